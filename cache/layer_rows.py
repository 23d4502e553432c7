"""The rows of one layer of a ``LayeredCache``, as a cache of that layer alone, and how they lie in a graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from lazygraph import dims, ops
from lazygraph.cache.latent import LatentCache
from lazygraph.cache.layers import Declared, Held, Layers, Place, check_position, declared_layers, whole_slots
from lazygraph.cache.parts import Once, Window
from lazygraph.cache.ring import Ring
from lazygraph.cache.rotating import RotatingCache
from lazygraph.cache.state import State, check_lowering, graph_of
from lazygraph.dims import Size
from lazygraph.memory import Lowering, Memory
from lazygraph.tensor import Graph, Tensor


def fixed_layers(
    anchor: Tensor | Graph,
    max_seq_len: int,
    layers: Layers,
    position: int,
    buffers: Sequence[Mapping[str, Tensor]] | None,
) -> Held:
    """Return the first value of a cache whose position is known; see ``LayeredCache``."""
    declared, n_layers, capacity = declared_layers(max_seq_len, layers)
    start, graph = check_position(position, capacity), graph_of(anchor)
    shapes = {
        at: [one.part.shape(rows_kept(one), sizes) for sizes in one.layout.trailing] for at, one in declared.items()
    }
    held: dict[Place, tuple[Tensor, ...]] = {}
    if buffers is not None:
        held = whole_slots(declared, n_layers, graph, shapes, buffers)
    else:
        for at, one in declared.items():
            if not isinstance(one.part, Once):
                held[at] = tuple(ops.zeros(list(shape), one.layout.dtype, graph) for shape in shapes[at])
    return Held(declared, n_layers, capacity, graph, held, start, (0,) * n_layers, frozenset(), False, "buffer")


def input_layers(anchor: Tensor | Graph, max_seq_len: int, layers: Layers, position: str, lowering: Lowering) -> Held:
    """Return the first value of a cache whose slots and position are new inputs; see ``LayeredCache.inputs``."""
    declared, n_layers, capacity = declared_layers(max_seq_len, layers)
    check_lowering(lowering)
    graph = graph_of(anchor)
    ops.size_input(position, graph, 0, capacity)
    length = graph.size(position)
    held = {at: input_slots(graph, at[0], one, length, lowering) for at, one in declared.items()}
    return Held(declared, n_layers, capacity, graph, held, length, (0,) * n_layers, frozenset(), True, lowering)


def rows_kept(one: Declared) -> int:
    """Return the most rows that a slot of a part holds."""
    return one.part.sinks + one.part.window if isinstance(one.part, Window) else one.layout.max_seq_len


def input_slots(graph: Graph, layer: int, one: Declared, length: Size, lowering: Lowering) -> tuple[Tensor, ...]:
    """Return the slots of a part as new inputs, with all rows, those that count, or as many as the caller binds."""
    most = rows_kept(one)
    rows: Size = most
    if one.part.kind in ("rows", "window") and lowering == "concat":
        rows = dims.smallest(length, most)
    elif one.part.kind in ("rows", "window") and lowering == "view":
        rows = graph.size(dims.size(f"window_rows_{most}" if isinstance(one.part, Window) else "rows", 1, most))
    return tuple(
        graph.input(f"past.{layer}.{name}", one.layout.dtype, one.part.shape(rows, sizes))
        for name, sizes in zip(one.layout.slot_names, one.layout.trailing, strict=True)
    )


def rows_cache(
    one: Declared, slots: tuple[Tensor, ...], counted: tuple[Size, Size], runtime: bool, lowering: Lowering
) -> LatentCache:
    """Return the rows of one layer as a cache of one layer.

    Args:
        one: What the layer declares: Rows or a Window.
        slots: A tensor per slot.
        counted: Rows that count, and rows appended since the last advance.
        runtime: Whether tensors and position are inputs.
        lowering: How slots of rows are bound.
    """
    ring = Ring(one.part.window, one.part.sinks, frozenset({0})) if isinstance(one.part, Window) else None
    state = State(one.layout, (slots,), counted[0], (counted[1],), (), runtime, lowering, ring)
    return (LatentCache if ring is None else RotatingCache)._of(state)


def memory_of(layer: int, name: str, sizes: tuple[int, ...], one: Declared) -> Memory:
    """Return one slot of a layer as whoever runs the graph must know it."""
    part = one.part
    window, sinks = (part.window, part.sinks) if isinstance(part, Window) else (0, 0)
    return Memory(
        f"past.{layer}.{name}",
        "" if isinstance(part, Once) else f"present.{layer}.{name}",
        layer,
        name,
        part.kind,
        one.layout.dtype.name,
        sizes,
        rows_kept(one),
        window,
        sinks,
    )


__all__ = ["fixed_layers", "input_layers", "memory_of", "rows_cache", "rows_kept"]
