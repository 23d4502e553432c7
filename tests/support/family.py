"""Small decoders of every kind of memory, exported: what the tests of the cache family run.

A token's rows are looked up by its id and its position, so that what a cache keeps is known to the last bit; logits
are what attention makes of them. The numbers that a graph is made of are those that :mod:`tests.support.family_model`
computes with.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np

import lazygraph as lg
from lazygraph import nn
from lazygraph.cache import Code
from lazygraph.dtypes import as_dtype
from lazygraph.memory import Lowering

Array: TypeAlias = np.ndarray[Any, Any]

CAPACITY, WORDS, FRAMES = 32, 12, 2
# Tokens whose rows are no numbers that a model makes; they are read only to be forgotten.
POISON = {9: np.nan, 10: np.inf, 11: 1e30}
# Per way of reading: how many numbers a query has, how often, and the slots.
Reading: TypeAlias = Literal["heads", "single", "latent"]
SLOTS: dict[Reading, dict[str, list[int]]] = {
    "heads": {"k": [2, 4], "v": [2, 4]},
    "single": {"row": [1, 8]},
    "latent": {"c": [6], "r": [2], "gate": []},
}
QUERY: dict[Reading, tuple[int, int]] = {"heads": (4, 4), "single": (2, 8), "latent": (2, 8)}  # heads, size
MIXED: dict[Reading, int] = {"heads": 16, "single": 16, "latent": 12}
SCALE, TAIL, WIDTH = 0.5, 2, 8


@dataclass(frozen=True)
class Layer:
    """What one layer remembers.

    Attributes:
        reading: How it reads rows; None where it keeps none.
        window: Rows that it keeps beside its sinks; None for all.
        sinks: First rows that it keeps for good.
        state: Whether it keeps the tail of a convolution too.
        once: Whether it attends rows that are filled once.
    """

    reading: Reading | None = "heads"
    window: int | None = None
    sinks: int = 0
    state: bool = False
    once: bool = False


@dataclass(frozen=True)
class Kind:
    """A kind of decoder: its layers, and the code that rows are kept in."""

    layers: tuple[Layer, ...] = field(default=(Layer(), Layer()))
    code: Literal["int8", "fp8"] | None = None

    @property
    def layered(self) -> bool:
        """Whether it takes a :class:`lazygraph.LayeredCache`."""
        return len({layer.reading for layer in self.layers}) > 1 or any(one.state or one.once for one in self.layers)

    @property
    def windows(self) -> bool:
        """Whether some layer forgets."""
        return any(layer.window for layer in self.layers)


_SINKS = Layer(window=4, sinks=2)
KINDS = {
    "kv": Kind(),
    "latent": Kind((Layer("latent"), Layer("latent"))),
    "single": Kind((Layer("single"), Layer("single"))),
    "window": Kind((Layer(window=5), Layer(window=5))),
    "window and sinks": Kind((_SINKS, _SINKS)),
    "one layer slides": Kind((Layer("latent"), Layer("latent", window=3, sinks=1))),
    "state": Kind((Layer(), Layer(None, state=True))),
    "once": Kind((Layer(), Layer(once=True))),
    "all at once": Kind((Layer("heads", once=True), Layer("single", window=4, sinks=1, state=True))),
    "int8": Kind(code="int8"),
    "fp8": Kind((Layer("latent"), Layer("latent")), code="fp8"),
    "int8 window": Kind((_SINKS, _SINKS), code="int8"),
}
LOWERINGS: tuple[Lowering, ...] = ("view", "buffer", "concat")


def numbers(layer: int, name: str, rows: int, width: int, dtype: str, poison: bool = False) -> Array:
    """Return a table of numbers, ``(rows, width)``; the rows of poisonous tokens hold nothing else."""
    seed = [layer, *name.encode(), rows]
    table = np.random.default_rng(seed).normal(size=(rows, width)).astype(np.float32)
    if poison:
        for token, value in POISON.items():
            table[token] = value
    with np.errstate(over="ignore"):
        return table.astype(as_dtype(dtype).numpy)


def given(kept: str, which: int = 0) -> Array:
    """Return what slots that are filled once are filled with, one of several."""
    return numbers(which, "given", FRAMES + which, WIDTH, kept)


def width(sizes: Sequence[int]) -> int:
    """Return how many numbers one row has."""
    return int(np.prod(sizes, dtype=int))


def slots_of(kind: Kind, number: int) -> dict[str, list[int]]:
    """Return the slots of rows of a layer, by name."""
    reading = kind.layers[number].reading
    return {} if reading is None else SLOTS[reading]


def export(
    folder: Path, kind: Kind, lowering: Lowering, compute: str = "float32", kept: str = "float32", batch: bool = False
) -> Path:
    """Write a decoder; rows are kept in ``kept`` where the kind has no code."""
    n = lg.size("n", min=1, max=CAPACITY)
    ids = lg.input("input_ids", "int64", ["batch", n] if batch else [n])
    tokens = lg.reshape(ids, [-1]) if batch else ids
    cache = _cache(ids, kind, lowering, kept, batch)
    step = cache.step("n")

    def looked_up(layer: int, name: str, sizes: Sequence[int]) -> lg.Tensor:
        many = width(sizes)
        word = ids.const(numbers(layer, name, WORDS, many, compute, poison=True))
        place = ids.const(numbers(layer, name, CAPACITY, many, compute))
        return lg.reshape(lg.gather(word, tokens) + lg.gather(place, step.positions), [tokens.shape[0], *sizes])

    logits: lg.Tensor | None = None
    for number, layer in enumerate(kind.layers):
        found: list[tuple[str, lg.Tensor]] = []
        if layer.reading is not None:
            q = looked_up(number, "q", QUERY[layer.reading])
            rows = [looked_up(number, name, sizes) for name, sizes in slots_of(kind, number).items()]
            mixed, cache = cache.attend(number, rows, step, _mix(layer.reading, q))
            found.append(("mixed", mixed))
        if layer.state:
            x = looked_up(number, "x", [WIDTH]).astype(kept).astype(compute)  # the same from the tail as from the step
            whole = lg.concat([cache.slot(number, "tail").astype(compute), x], 0)
            parts = [lg.slice(whole, [i], [i - TAIL if i < TAIL else 2**31], axes=[0]) for i in range(TAIL + 1)]
            found.append(("conv", sum(part * float(i + 1) for i, part in enumerate(parts[1:])) + parts[0] * 0.25))
            cache = cache.replace(number, [lg.slice(whole, [-TAIL], [2**31], axes=[0]).astype(kept)])
        if layer.once:
            filled = cache.slot(number, "given").astype(compute)
            across = looked_up(number, "across", [WIDTH])
            found.append(("across", lg.softmax(across @ filled.T, -1) @ filled))
        for name, tensor in found:
            head = ids.const(numbers(number, name + " head", int(tensor.shape[-1]), WORDS, "float32"))
            added = tensor.astype("float32") @ head
            logits = added if logits is None else logits + added
    assert logits is not None
    start = lg.input("logits_from", "int64", [], anchor=ids)
    shaped = lg.reshape(logits, [*ids.shape, WORDS])
    wanted = lg.slice(shaped, lg.reshape(start, [1]), [CAPACITY], axes=[int(batch)])
    lg.save_decoder(wanted, cache.advance_by("n"), folder)
    return folder


def opened(folder: Path) -> lg.Decoder:
    """Return a decoder whose slots that are filled once are filled."""
    decoder = lg.Decoder.open(folder, threads=1)
    fill(decoder)
    return decoder


def fill(decoder: lg.Decoder, which: int = 0) -> None:
    """Fill the slots that are filled once, where there are such, with one of several things."""
    slots = [slot for slot in decoder.manifest.memory if slot.kind == "once"]
    if slots:
        decoder.fill({slot.source: given(slot.dtype, which) for slot in slots})


def _mix(reading: Reading, q: lg.Tensor) -> Any:
    """Return attention over the slots of a way of reading; each slot's rows may come in several parts."""

    def mix(rows: Any, mask: lg.Tensor) -> lg.Tensor:
        if reading == "heads":
            return nn.attention(q, rows[0], rows[1], mask, SCALE)
        if reading == "single":
            return nn.attention(q, rows[0], rows[0], mask, SCALE)
        by_part = zip(*([one] if isinstance(one, lg.Tensor) else one for one in rows), strict=True)
        keys, values = [], []
        for c, r, gate in by_part:
            keys.append(lg.unsqueeze(lg.concat([c, r], -1), -2))
            values.append(lg.unsqueeze(c * lg.unsqueeze(gate, -1), -2))
        return nn.attention(q, keys, values, mask, SCALE)

    return mix


def _cache(ids: lg.Tensor, kind: Kind, lowering: Lowering, kept: str, batch: bool) -> Any:
    if kind.layered:
        return lg.LayeredCache.inputs(ids, CAPACITY, [_parts(layer, kept) for layer in kind.layers], lowering=lowering)
    slots, dtypes = slots_of(kind, 0), [as_dtype(kept)] * len(slots_of(kind, 0))
    code = Code(kind.code) if kind.code else None
    if code:
        slots, dtypes = code.slots(slots)
    common: dict[str, Any] = {"slot_names": list(slots), "lowering": lowering}
    sizes = (len(kind.layers), CAPACITY, list(slots.values()), dtypes)
    cache: lg.LatentCache
    if kind.windows:
        sliding = [i for i, layer in enumerate(kind.layers) if layer.window]
        one = kind.layers[sliding[0]]
        common |= {"window": one.window or 1, "sinks": one.sinks, "layers": sliding}
    if batch:
        cache = lg.BatchCache.inputs(ids, *sizes, **common)
    else:
        cache = (lg.RotatingCache if kind.windows else lg.LatentCache).inputs(ids, *sizes, **common)
    return lg.QuantisedCache(cache, code) if code else cache


def _parts(layer: Layer, kept: str) -> list[Any]:
    parts: list[Any] = []
    if layer.reading is not None and layer.window:
        parts.append(lg.Window(SLOTS[layer.reading], layer.window, layer.sinks, kept))
    elif layer.reading is not None:
        parts.append(lg.Rows(SLOTS[layer.reading], kept))
    if layer.state:
        parts.append(lg.State({"tail": [TAIL, WIDTH]}, kept))
    if layer.once:
        parts.append(lg.Once({"given": [WIDTH]}, rows=lg.size("frames", min=1, max=3), dtype=kept))
    return parts
