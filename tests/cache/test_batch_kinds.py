"""Batches of rows and of windows, in every lowering: each text is what it is alone, and what it is in plain numpy."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lazygraph as lg
from lazygraph import latent, nn
from lazygraph.memory import Lowering, Memory
from tests.support.batching import BatchRunner, padded
from tests.support.stepping import Runner

Array = np.ndarray[Any, Any]

LAYERS, HEADS, KV, WIDTH, LONGEST = 2, 4, 2, 8, 40
RANK, ROPE, NOPE, V = 12, 4, 6, 5
LOWERINGS: tuple[Lowering, ...] = ("buffer", "view", "concat")


@dataclass(frozen=True)
class Kind:
    """A kind of cache: the window None for none, and the layers that slide; rows as numbers, or in a code."""

    window: int | None = None
    sinks: int = 0
    layers: tuple[int, ...] | None = None
    attention: Literal["heads", "absorbed", "expanded", "auto"] = "heads"
    code: Literal["int8", "fp8"] | None = None

    @property
    def in_place(self) -> bool:
        """Whether the graph is proven to allow it: what an If gives may be a view of what its branches read."""
        return self.window is None or self.attention != "auto"


KINDS = {
    "rows": Kind(),
    "latent": Kind(attention="auto"),
    "window": Kind(window=6),
    "window of one": Kind(window=1),
    "window and sinks": Kind(window=5, sinks=2),
    "sinks, window of one": Kind(window=1, sinks=3),
    "one layer slides": Kind(window=4, layers=(1,)),
    "latent window": Kind(window=6, sinks=1, attention="absorbed"),
    "expanded window": Kind(window=6, attention="expanded"),
    "chosen window": Kind(window=6, attention="auto"),
    "int8 rows": Kind(code="int8"),
    "fp8 rows": Kind(code="fp8"),
    "int8 window": Kind(window=5, sinks=1, code="int8"),
    "fp8 window": Kind(window=5, code="fp8"),
}
# Per step, the tokens that each of three texts brings: up to the window, to it, beyond it, more than it; none at all;
# a text that never says anything until the others are long.
STEPS = {
    "ragged": [[9, 4, 1], [1, 1, 1], [1, 5, 0], [3, 0, 7], [0, 1, 1], [1, 1, 1], [12, 2, 6]],
    "one by one": [[1, 1, 1]] * 8 + [[1, 0, 1], [0, 1, 1]] * 4,
    "across the wrap": [[4, 5, 6], [1, 1, 1], [3, 3, 3], [6, 0, 13], [1, 9, 1]],
    "late": [[7, 1, 0], [7, 1, 0], [1, 1, 11], [1, 1, 1]],
}


def exported(
    folder: Path, kind: Kind, lowering: Lowering, dtype: str, batch: bool, kept_as: str | None = None
) -> tuple[Path, tuple[Memory, ...]]:
    """Save the graph of one step, of a batch or of one text: queries and new rows in, attention out."""
    n = lg.size("n", min=1, max=LONGEST)
    lead: list[Any] = ["batch", n] if batch else [n]
    heads = kind.attention == "heads"
    sizes: dict[str, list[int]] = {"q": [HEADS, WIDTH], "k": [KV, WIDTH], "v": [KV, WIDTH]}
    if not heads:
        sizes = {"q": [HEADS, NOPE], "q_pe": [HEADS, ROPE], "k": [RANK], "v": [ROPE]}
    first = lg.input("q", dtype, [*lead, *sizes["q"]])
    t = {"q": first} | {
        name: lg.input(name, dtype, [*lead, *row], anchor=first) for name, row in sizes.items() if name != "q"
    }
    if batch:
        t = {name: lg.reshape(tensor, [-1, *sizes[name]]) for name, tensor in t.items()}
    if not heads:
        for name, shape in {"w_uk": [HEADS, NOPE, RANK], "w_uv": [HEADS, RANK, V]}.items():
            t[name] = lg.input(name, dtype, shape, anchor=first)
    slots = {"k": sizes["k"], "v": sizes["v"]}
    types: Any = kept_as or dtype
    code = lg.Code(kind.code) if kind.code else None
    if code:
        slots, types = code.slots(slots)
    how: dict[str, Any] = {"slot_names": list(slots), "lowering": lowering}
    ring: dict[str, Any] = {"window": kind.window, "sinks": kind.sinks, "layers": kind.layers} if kind.window else {}
    made: Any = lg.BatchCache if batch else lg.RotatingCache if kind.window else lg.LatentCache
    anchor = first[:, :, 0, 0] if batch else first
    cache = made.inputs(anchor, LAYERS, LONGEST, list(slots.values()), types, **ring, **how)
    memory = cache.memory()
    cache = lg.QuantisedCache(cache, code) if code else cache

    step = cache.step("n")
    mixed = {"positions": step.positions}
    for layer in range(LAYERS):

        def mix(rows: Any, mask: lg.Tensor) -> lg.Tensor:
            if kind.attention == "heads":
                return nn.attention(t["q"], rows[0], rows[1], mask, 0.5)
            turned = {name: lg.transpose(t[name], [1, 0, 2]) for name in ("q", "q_pe")}
            query = nn.LatentQuery(turned["q"], turned["q_pe"], t["w_uk"], t["w_uv"], mask, 0.5)
            return latent.latent_attention(query, rows[0], rows[1], kind.attention)

        mixed[f"mixed.{layer}"], cache = cache.attend(layer, [t["k"] * (layer + 1), t["v"] * (layer + 1)], step, mix)
    path = folder / ("batch.onnx" if batch else "one.onnx")
    model = lg.save({**cache.advance_by("n").outputs(), **mixed}, path)
    if lowering != "concat" and kind.in_place:
        assert lg.shared_memory_faults(model, {slot.source: slot.target for slot in memory}) == {}
    return path, memory


def wanted(kind: Kind, layer: int, text: dict[str, Array], n: int) -> Array:
    """Return attention of the last ``n`` of a whole text's tokens, in float64 and with the window's mask."""
    k, v = text["k"].astype(np.float64) * (layer + 1), text["v"].astype(np.float64) * (layer + 1)
    total = len(k)
    here, there = np.arange(total - n, total)[:, None], np.arange(total)[None]
    visible = there <= here
    if kind.window is not None and (kind.layers is None or layer in kind.layers):
        visible &= (there > here - kind.window) | (there < kind.sinks)
    q = text["q"][total - n :].astype(np.float64)
    if kind.attention == "heads":
        scores = np.einsum("nhd,rhd->hnr", q, np.repeat(k, HEADS // KV, 1)) * 0.5
        values = np.repeat(v, HEADS // KV, 1).transpose(1, 0, 2)
    else:
        keys = np.einsum("hor,cr->hco", WEIGHTS["w_uk"].astype(np.float64), k)
        values = np.einsum("cr,hrv->hcv", k, WEIGHTS["w_uv"].astype(np.float64))
        scores = np.einsum("nho,hco->hnc", q, keys)
        scores = (scores + np.einsum("nhp,cp->hnc", text["q_pe"][total - n :].astype(np.float64), v)) * 0.5
    scores = np.where(visible, scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    return np.asarray(np.einsum("hnr,hrv->nhv", weights, values).reshape(n, -1))


_random = np.random.default_rng(7)
WEIGHTS = {
    "w_uk": (_random.normal(size=(HEADS, NOPE, RANK)) / 4).astype(np.float32),
    "w_uv": (_random.normal(size=(HEADS, RANK, V)) / 4).astype(np.float32),
}


def drive(kind: Kind, batch: BatchRunner, alone: list[Runner], steps: list[list[int]], dtype: str, seed: int) -> None:
    """Run ragged steps: every text against its single run, and against numpy where rows are kept as numbers."""
    random = np.random.default_rng(seed)
    sizes: dict[str, tuple[int, ...]] = {"q": (HEADS, WIDTH), "k": (KV, WIDTH), "v": (KV, WIDTH)}
    if kind.attention != "heads":
        sizes = {"q": (HEADS, NOPE), "q_pe": (HEADS, ROPE), "k": (RANK,), "v": (ROPE,)}
    weights = {} if kind.attention == "heads" else {name: w.astype(dtype) for name, w in WEIGHTS.items()}
    texts = [{name: np.zeros((0, *size), dtype) for name, size in sizes.items()} for _ in alone]
    close = {"float32": 2e-5, "float16": 3e-2}[dtype]
    for counts in steps:
        new = [
            {name: random.normal(size=(count, *size)).astype(dtype) for name, size in sizes.items()} for count in counts
        ]
        n = max(counts)
        inputs = {name: padded([one[name] for one in new], n, np.nan) for name in sizes}  # padding is no number
        got = batch.run({**inputs, **weights}, counts, ["positions", *(f"mixed.{layer}" for layer in range(LAYERS))])
        for which, count in enumerate(counts):
            if not count:
                continue
            text = texts[which] = {name: np.concatenate([texts[which][name], new[which][name]]) for name in sizes}
            total = len(text["k"])
            results = {f"mixed.{layer}": (count, got[f"mixed.{layer}"].shape[1]) for layer in range(LAYERS)}
            one = alone[which].run({**new[which], **weights}, count, results)
            place = got["positions"].reshape(len(alone), n)[which, n - count :]
            np.testing.assert_array_equal(place, np.arange(total - count, total))
            for layer in range(LAYERS):
                mixed = got[f"mixed.{layer}"].reshape(len(alone), n, -1)[which, n - count :]
                np.testing.assert_allclose(mixed, one[f"mixed.{layer}"], rtol=0, atol=close)
                if kind.code is None:
                    np.testing.assert_allclose(mixed, wanted(kind, layer, text, count), rtol=0, atol=close)
        for slot in batch.memory:  # what is kept is what the single run keeps
            for which, length in enumerate(batch.lengths.tolist()):
                positions, rows = batch.places(slot, length)
                kept = batch.held[slot.source][which, rows]
                if slot.slot in ("k", "v") and kind.code is None:
                    rows_given = texts[which][slot.slot][positions].astype(kept.dtype)
                    np.testing.assert_array_equal(kept, rows_given * np.asarray(slot.layer + 1, kept.dtype))
                else:
                    np.testing.assert_array_equal(kept, alone[which].held[slot.source][rows])


@pytest.mark.parametrize("lowering", LOWERINGS)
@pytest.mark.parametrize("name", KINDS)
def test_each_text_is_what_it_is_alone(tmp_path: Path, name: str, lowering: Lowering) -> None:
    kind = KINDS[name]
    path, memory = exported(tmp_path, kind, lowering, "float32", True)
    one, own = exported(tmp_path, kind, lowering, "float32", False)
    assert [(slot.kind, slot.capacity, slot.window, slot.sinks) for slot in memory] == [
        (slot.kind, slot.capacity, slot.window, slot.sinks) for slot in own
    ]
    for seed, steps in enumerate(STEPS.values()):
        for spare in (0, 3):
            in_place = kind.in_place and lowering != "concat" and spare == 0
            batch = BatchRunner(path, memory, lowering, 3, in_place=in_place, spare=spare)
            drive(kind, batch, [Runner(one, own, lowering) for _ in range(3)], steps, "float32", seed)


@pytest.mark.parametrize("lowering", LOWERINGS)
@pytest.mark.parametrize("name", ["rows", "window and sinks"])
def test_half_precision_too(tmp_path: Path, name: str, lowering: Lowering) -> None:
    path, memory = exported(tmp_path, KINDS[name], lowering, "float16", True)
    one, own = exported(tmp_path, KINDS[name], lowering, "float16", False)
    batch = BatchRunner(path, memory, lowering, 3)
    drive(KINDS[name], batch, [Runner(one, own, lowering) for _ in range(3)], STEPS["ragged"], "float16", 0)


@pytest.fixture(scope="module")
def rings(tmp_path_factory: pytest.TempPathFactory) -> dict[Lowering, list[tuple[Path, tuple[Memory, ...]]]]:
    made = {}
    for lowering in LOWERINGS:
        folder = tmp_path_factory.mktemp(lowering)
        both = (True, False)
        made[lowering] = [exported(folder, KINDS["window and sinks"], lowering, "float32", batch) for batch in both]
    return made


@settings(max_examples=30, deadline=None)
@given(
    steps=st.lists(st.lists(st.integers(0, 9), min_size=3, max_size=3).filter(any), min_size=1, max_size=7),
    seed=st.integers(0, 99),
    lowering=st.sampled_from(LOWERINGS),
    spare=st.integers(0, 4),
)
def test_windows_hold_in_ragged_steps_of_any_size(
    rings: dict[Lowering, list[tuple[Path, tuple[Memory, ...]]]],
    steps: list[list[int]],
    seed: int,
    lowering: Lowering,
    spare: int,
) -> None:
    while np.sum(steps, 0).max() > LONGEST:
        steps.pop()
    (path, memory), (one, own) = rings[lowering]
    batch = BatchRunner(path, memory, lowering, 3, spare=spare)
    alone = [Runner(one, own, lowering) for _ in range(3)]
    drive(KINDS["window and sinks"], batch, alone, steps, "float32", seed)


def test_no_row_is_written_twice(tmp_path: Path) -> None:
    ids = lg.input("x", "float32", ["batch", lg.size("n", min=1, max=LONGEST)])
    cache = lg.BatchCache.inputs(ids, 1, LONGEST, [[]], window=4, sinks=1, lowering="buffer")
    model = lg.to_onnx(cache.append(0, [lg.reshape(ids, [-1])]).outputs())
    index = next(node for node in model.graph.node if node.op_type == "ScatterND").input[1]
    model.graph.output.add(name=index)
    import onnxruntime

    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    for past in range(8):
        for count in range(13):
            n = max(count, 3)
            feeds = {"x": np.zeros((2, n), np.float32), "past.0.slot0": np.zeros((2, 5), np.float32)}
            counts = {"past_len": np.array([past, 11]), "new_len": np.array([count, 3])}
            rows = session.run([index], feeds | counts)[0]
            assert len({tuple(row) for row in rows.tolist()}) == len(rows)
            positions = [p for p in range(past, past + count) if p < 1 or p >= past + count - 4]
            assert sorted(row[1] for row in rows.tolist() if row[0] == 0) == sorted(
                p if p < 1 else 1 + (p - 1) % 4 for p in positions
            )


def test_what_a_batch_of_windows_is_and_what_it_refuses() -> None:
    ids = lg.input("x", "float32", ["batch", "n"])
    cache = lg.BatchCache.inputs(ids, 2, 30, [[4]], window=3, sinks=1, layers=[1])
    assert [(slot.kind, slot.capacity) for slot in cache.memory()] == [("rows", 30), ("window", 4)]
    assert repr(cache) == (
        "BatchCache(batch x 2 layers x (slot0 [4]) float32, window of 3 and 1 sinks in 1 layers, 30 rows, "
        "544 bytes each)"
    )
    wrong: list[tuple[dict[str, Any], type[Exception], str]] = [
        ({"window": 0}, lg.CacheError, "window is 0"),
        ({"window": 2, "sinks": -1}, lg.CacheError, "sinks is -1"),
        ({"window": 2, "layers": []}, lg.CacheLayerError, "no layer slides"),
        ({"sinks": 2}, lg.OperandError, "sinks=2, layers=None of no window"),
        ({"layers": [0]}, lg.OperandError, r"sinks=0, layers=\[0\] of no window"),
        ({"lowering": "ring"}, lg.CacheError, "lowering is 'ring'"),
    ]
    for changed, error, match in wrong:
        with pytest.raises(error, match=match):
            lg.BatchCache.inputs(lg.input("x", "float32", ["batch", "n"]), 2, 30, [[4]], **changed)
    with pytest.raises(lg.CacheLayerError):
        cache.causal_mask("n", layer=2)
