"""One value of a cache, as tensors of a graph; every kind of cache keeps one and replaces it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from lazygraph import dims, ops
from lazygraph.cache.fitting import Buffers
from lazygraph.cache.layout import CacheLayout
from lazygraph.dims import Size
from lazygraph.errors import OperandError
from lazygraph.memory import Lowering
from lazygraph.tensor import Graph, Tensor


@dataclass(frozen=True, eq=False, repr=False)
class State:
    """One value of a cache: its buffers, how many rows count, and what was appended since the last advance.

    Attributes:
        layout: The declaration.
        buffers: ``[layer][slot]``: ``T (max_seq_len, *trailing)``, or ``(rows, *trailing)`` when lowered otherwise.
        length: Rows that count.
        pending: Per layer, the rows appended since the last advance; 0 for none.
        index: ``int64 (n, 1)``: where this step's rows go; made by the step's first append, shared by the others.
        runtime: Whether the position is an input; its bounds are then checked by whoever runs the graph.
        lowering: What is bound: the whole buffer (``buffer``), the rows that count and perhaps more (``view``), or the
            rows before the step, with those after it given back (``concat``).
    """

    layout: CacheLayout
    buffers: Buffers
    length: Size
    pending: tuple[Size, ...]
    index: Tensor | None
    runtime: bool
    lowering: Lowering


def graph_of(anchor: Any) -> Graph:
    """Return the graph of an anchor.

    Raises:
        OperandError: It is neither a tensor nor a graph.
    """
    if isinstance(anchor, Graph):
        return anchor
    if not isinstance(anchor, Tensor):
        raise OperandError(
            f"the anchor is {anchor!r}", op="LatentCache", expected="a tensor of the graph that the cache joins"
        )
    return anchor.graph


def row_index(state: State, count: Size) -> Tensor:
    """Return where the step's rows go, ``int64 (n, 1)``."""
    anchor = state.buffers[0][0]
    rows = ops.arange(state.length, dims.add(state.length, count), anchor=anchor)
    return ops.unsqueeze(rows, 1)


def zeros(graph: Graph, declared: CacheLayout) -> Buffers:
    """Return zero buffers, one tensor per distinct slot shape: buffers are values, so layers can share it."""
    slots = list(zip(declared.trailing, declared.dtypes, strict=True))
    made = {slot: ops.zeros([declared.max_seq_len, *slot[0]], slot[1], graph) for slot in slots}
    return (tuple(made[slot] for slot in slots),) * declared.n_layers
