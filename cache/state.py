"""One value of a cache, as tensors of a graph; every kind of cache keeps one and replaces it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, get_args

from lazygraph import dims, ops
from lazygraph.cache.fitting import Buffers
from lazygraph.cache.layout import CacheLayout
from lazygraph.cache.ring import Ring
from lazygraph.dims import Size
from lazygraph.errors import CacheError, OperandError
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
        index: Where this step's rows go; made by the step's first append, shared by the others; empty before.
        runtime: Whether the position is an input; its bounds are then checked by whoever runs the graph.
        lowering: What is bound: the whole buffer (``buffer``), the rows that count and perhaps more (``view``), or the
            rows before the step, with those after it given back (``concat``).
        ring: Which layers keep a window only, if any.
    """

    layout: CacheLayout
    buffers: Buffers
    length: Size
    pending: tuple[Size, ...]
    index: tuple[Tensor, ...]
    runtime: bool
    lowering: Lowering
    ring: Ring | None

    def capacity(self, layer: int) -> int:
        """Return the most rows that a layer's slots hold."""
        if self.ring is not None and layer in self.ring.layers:
            return self.ring.capacity
        return self.layout.max_seq_len


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


def check_lowering(lowering: object) -> None:
    """Require the name of a lowering.

    Raises:
        CacheError: It is none.
    """
    if lowering not in get_args(Lowering):
        raise CacheError(
            f"lowering is {lowering!r}",
            op="inputs",
            expected="one of " + ", ".join(get_args(Lowering)),
            wanted=get_args(Lowering),
            got=lowering,
        )


def input_state(
    anchor: Tensor | Graph, declared: CacheLayout, position: str, lowering: Lowering, ring: Ring | None = None
) -> State:
    """Return a cache whose buffers and position are new inputs of the graph.

    Raises:
        CacheError: No such lowering.
    """
    check_lowering(lowering)
    graph = graph_of(anchor)
    ops.size_input(position, graph, 0, declared.max_seq_len)
    length = graph.size(position)
    layers = range(declared.n_layers)
    empty = State(declared, ((),) * declared.n_layers, length, (0,) * declared.n_layers, (), True, lowering, ring)

    def rows(layer: int) -> Size:
        capacity = empty.capacity(layer)
        if lowering == "buffer":
            return capacity
        if lowering == "concat":
            return dims.smallest(length, capacity)
        slides = ring is not None and layer in ring.layers
        return graph.size(dims.size("window_rows" if slides else "rows", 1, capacity))

    buffers = tuple(
        tuple(
            graph.input(f"past.{layer}.{name}", kept, (rows(layer), *sizes))
            for name, kept, sizes in zip(declared.slot_names, declared.dtypes, declared.trailing, strict=True)
        )
        for layer in layers
    )
    return State(declared, buffers, length, (0,) * declared.n_layers, (), True, lowering, ring)


def zeros(graph: Graph, declared: CacheLayout, capacities: list[int]) -> Buffers:
    """Return zero buffers, one tensor per distinct shape and type: buffers are values, so layers can share it."""
    slots = list(zip(declared.trailing, declared.dtypes, strict=True))
    made = {
        (rows, *slot): ops.zeros([rows, *slot[0]], slot[1], graph)
        for rows in dict.fromkeys(capacities)
        for slot in slots
    }
    return tuple(tuple(made[rows, *slot] for slot in slots) for rows in capacities)


__all__ = ["State", "check_lowering", "graph_of", "input_state", "zeros"]
