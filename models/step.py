"""What all families share at the ends of a step: its tokens and cache, rotation tables, the rows that want logits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from lazygraph import nn, ops
from lazygraph.cache import BatchCache, CacheStep, Code, LatentCache, QuantisedCache, RotatingCache
from lazygraph.dims import size
from lazygraph.dtypes import DType, int64
from lazygraph.models.program import BuildOptions
from lazygraph.models.rope import Rope
from lazygraph.tensor import Tensor

# What a model's layers know of it: attend, and no more.
Cache: TypeAlias = "LatentCache | QuantisedCache"


@dataclass(frozen=True)
class Window:
    """A sliding window.

    Attributes:
        size: Tokens that a token sees, itself the last of them.
        layers: The layers that slide; the others see everything.
    """

    size: int
    layers: tuple[int, ...]


def tokens_and_cache(
    n_layers: int, slots: Mapping[str, Sequence[int]], options: BuildOptions, window: Window | None = None
) -> tuple[Tensor, Tensor, Cache]:
    """Return the step's token ids as the graph takes them, the same one after another, and the cache before the step.

    Args:
        n_layers: Layers.
        slots: Per slot, its name and the sizes of one row.
        options: What the user chose. Of a batch, ids are ``int64 (batch, n)`` and come text by text.
        window: Which layers slide, and over what; one that is no shorter than the longest text changes nothing.

    Returns:
        ``input_ids``, ``int64 (tokens,)`` and the cache.
    """
    capacity, kept, how = options.max_seq_len, options.kept, options.lowering
    code = kept if isinstance(kept, Code) else None
    dtypes = [kept] * len(slots) if isinstance(kept, DType) else []
    if code:
        slots, dtypes = code.slots(slots)
    n, trailing, names = size("n", min=1, max=capacity), list(slots.values()), list(slots)
    sliding = window if window is not None and window.size < capacity else None
    cache: LatentCache
    if options.batch:
        ids = ops.input("input_ids", int64, [size("batch", min=1), n])
        tokens = ops.reshape(ids, [-1])
        cache = BatchCache.inputs(
            ids,
            n_layers,
            capacity,
            trailing,
            dtypes,
            window=sliding.size if sliding else None,
            layers=sliding.layers if sliding else None,
            slot_names=names,
            lowering=how,
        )
    else:
        ids = tokens = ops.input("input_ids", int64, [n])
        if sliding is None:
            cache = LatentCache.inputs(ids, n_layers, capacity, trailing, dtypes, slot_names=names, lowering=how)
        else:
            cache = RotatingCache.inputs(
                ids,
                n_layers,
                capacity,
                trailing,
                dtypes,
                window=sliding.size,
                layers=sliding.layers,
                slot_names=names,
                lowering=how,
            )
    return ids, tokens, QuantisedCache(cache, code) if code else cache


def wanted_rows(x: Tensor, ids: Tensor, logits_from: Tensor) -> Tensor:
    """Return the rows whose logits are wanted, ``T (n - logits_from, hidden)``; of a batch, with an axis before.

    Args:
        x: ``T (tokens, hidden)``, after the last layer.
        ids: ``input_ids``.
        logits_from: ``int64 ()``: the first of a text's n tokens whose logits are wanted.
    """
    axis = len(ids.shape) - 1
    by_text = ops.reshape(x, [*ids.shape, x.shape[1]]) if axis else x
    return ops.slice(by_text, ops.reshape(logits_from, [1]), [ops.TO_THE_END], axes=[axis])


def rotation(step: CacheStep, rope: Rope, compute: DType) -> tuple[Tensor, Tensor]:
    """Return the step's cosines and sines, ``compute (n, 1, dim)``.

    Args:
        step: Where the step's rows stand.
        rope: The rotation.
        compute: What is computed in; the tables are made in float32.
    """
    inv_freq = step.positions.const(rope.inv_freq, "rotary.inv_freq")
    cos, sin = nn.rotary_tables(step.positions, inv_freq, rope.magnitude)
    return cos.astype(compute), sin.astype(compute)
