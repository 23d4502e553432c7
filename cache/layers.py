"""What the layers of a ``LayeredCache`` declare, and what it accepts for them. Nothing here emits anything."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn, TypeAlias

from lazygraph import dims
from lazygraph.cache.layout import CacheLayout
from lazygraph.cache.parts import Once, Part, Rows, State, Window
from lazygraph.dims import Size
from lazygraph.errors import (
    CacheError,
    CacheLayerError,
    CacheStepError,
    OperandError,
    SlotCountError,
    SlotDTypeError,
    SlotGraphError,
    SlotShapeError,
)
from lazygraph.memory import Kind, Lowering
from lazygraph.ops.checks import meet
from lazygraph.tensor import Graph, Shape, Tensor, describe, shape_text
from lazygraph.whole import whole

Place: TypeAlias = tuple[int, Kind]
Layers: TypeAlias = "Sequence[Part | Sequence[Part]]"


@dataclass(frozen=True)
class Declared:
    """One part of one layer, checked.

    Attributes:
        part: What was declared.
        layout: Its slots; of one layer.
    """

    part: Part
    layout: CacheLayout


@dataclass(frozen=True, eq=False, repr=False)
class Held:
    """One value of a cache.

    Attributes:
        declared: Per layer and kind, what was declared.
        n_layers: Layers.
        max_seq_len: Capacity of slots of rows.
        graph: The graph that all tensors belong to.
        held: Per layer and kind, a tensor per slot; a kind that is filled later is missing.
        length: Rows that count.
        pending: Per layer, the rows appended since the last advance; 0 for none.
        replaced: Layers whose state was replaced since the last advance.
        runtime: Whether tensors and position are inputs.
        lowering: How slots of rows are bound.
    """

    declared: Mapping[Place, Declared]
    n_layers: int
    max_seq_len: int
    graph: Graph
    held: Mapping[Place, tuple[Tensor, ...]]
    length: Size
    pending: tuple[Size, ...]
    replaced: frozenset[int]
    runtime: bool
    lowering: Lowering


def check_position(position: int, capacity: int) -> int:
    """Return a position.

    Raises:
        CacheError: It is not in ``[0, capacity]``.
    """
    start = whole(position)
    if start is None or not 0 <= start <= capacity:
        raise CacheError(
            f"position {position!r} of {capacity} rows",
            op="LayeredCache",
            expected=f"an int in [0, {capacity}]",
            wanted=capacity,
            got=position,
        )
    return start


def declared_layers(max_seq_len: int, layers: Layers) -> tuple[dict[Place, Declared], int, int]:
    """Return what each layer declares, by layer and kind; how many layers there are; and the capacity.

    Raises:
        CacheError: No layer, or a capacity below 1.
        OperandError: A layer is neither a part nor a list of parts.
        SlotCountError: A layer without slots, with two parts of one kind, with Rows and a Window, or with two slots of
            one name.
        SlotShapeError: A size below 1.
    """
    capacity = whole(max_seq_len)
    if capacity is None or capacity < 1:
        raise CacheError(
            f"max_seq_len is {max_seq_len!r}",
            op="LayeredCache",
            expected="max_seq_len an int of at least 1",
            wanted=1,
            got=max_seq_len,
        )
    if not isinstance(layers, Sequence) or not layers:
        raise CacheError(
            f"layers is {layers!r}", op="LayeredCache", expected="a list with at least one layer", wanted=1, got=layers
        )
    found: dict[Place, Declared] = {}
    for layer, given in enumerate(layers):
        parts = [given] if isinstance(given, (Rows, Window, State, Once)) else given
        if not isinstance(parts, Sequence) or not all(isinstance(part, (Rows, Window, State, Once)) for part in parts):
            raise OperandError(
                f"layer {layer} is {given!r}",
                op="LayeredCache",
                expected="Rows, Window, State or Once, or a list of them",
            )
        names: list[str] = []
        for part in parts:
            if (layer, part.kind) in found:
                _refuse_slots(layer, f"two {type(part).__name__}", "one part of each kind", part)
            found[layer, part.kind] = Declared(part, part.layout(capacity))
            names += part.slots
        if (layer, "rows") in found and (layer, "window") in found:
            _refuse_slots(layer, "Rows and a Window", "one of the two", parts)
        if len(set(names)) < max(1, len(names)):
            _refuse_slots(layer, f"slots {names}", "at least one slot, each with a name of its own", names)
    return found, len(layers), capacity


def _refuse_slots(layer: int, what: str, expected: str, got: object) -> NoReturn:
    raise SlotCountError(f"layer {layer} has {what}", op="LayeredCache", expected=expected, layer=layer, got=got)


def layer_of(op: str, layer: int, n_layers: int) -> int:
    """Return the layer.

    Raises:
        CacheLayerError: It is not in ``[0, n_layers)``; negative numbers are refused too.
    """
    number = whole(layer)
    if number is None or not 0 <= number < n_layers:
        raise CacheLayerError(
            f"layer {layer!r} of a cache with {n_layers}",
            op=op,
            expected=f"0 <= layer < {n_layers}",
            layer=layer,
            wanted=range(n_layers),
            got=layer,
        )
    return number


def layers_chosen(layers: Sequence[int] | None, n_layers: int) -> set[int]:
    """Return the layers that take part in an advance; None for all.

    Raises:
        CacheLayerError: No list, or no such layer.
        CacheStepError: None is left.
    """
    if layers is not None and not isinstance(layers, Iterable):
        raise CacheLayerError(
            f"layers is {layers!r}", op="advance_by", expected="a list of layers, or None for all", got=layers
        )
    chosen = set(range(n_layers)) if layers is None else {layer_of("advance_by", one, n_layers) for one in layers}
    if not chosen:
        raise CacheStepError("no layer takes part", op="advance_by", expected="at least one layer", wanted=1, got=0)
    return chosen


def whole_slots(
    declared: Mapping[Place, Declared],
    n_layers: int,
    graph: Graph,
    shapes: Mapping[Place, Sequence[Shape]],
    buffers: Any,
) -> dict[Place, tuple[Tensor, ...]]:
    """Return the tensors that a cache continues from, by layer and kind; slots filled once may be missing.

    Args:
        declared: What each layer declares.
        n_layers: Layers.
        graph: The graph of the cache.
        shapes: The shape of each slot.
        buffers: Per layer, tensors by slot name.

    Raises:
        SlotCountError: Not one table per layer, or one for other slots.
        SlotShapeError: A tensor of other sizes.
        SlotDTypeError: Another element type.
        SlotGraphError: Another graph.
    """
    tables = list(buffers) if isinstance(buffers, Sequence) else []
    if len(tables) != n_layers or not all(isinstance(table, Mapping) for table in tables):
        raise SlotCountError(
            f"buffers is {buffers!r}",
            op="LayeredCache",
            expected='per layer the tensors by slot name: [{"k": k, "v": v}, ...]',
            wanted=n_layers,
            got=buffers,
        )
    for layer, table in enumerate(tables):
        own = {kind: one.layout.slot_names for (at, kind), one in declared.items() if at == layer}
        names = [name for kind in own for name in own[kind]]
        needed = [
            name for kind in own if kind != "once" or not table.keys().isdisjoint(own[kind]) for name in own[kind]
        ]
        if not set(needed) <= table.keys() <= set(names):
            _refuse_slots(layer, f"buffers for {list(table)}", f"a tensor for each of {', '.join(names)}", list(table))
    held = {}
    for (layer, kind), one in declared.items():
        names_of = one.layout.slot_names
        if names_of[0] in tables[layer]:
            given = [tables[layer][name] for name in names_of]
            held[layer, kind] = _fitting("LayeredCache", None, one.layout, graph, layer, given, shapes[layer, kind])
    return held


def slot_of(cache: object, layer: int, slot: int | str, names: Sequence[str]) -> str:
    """Return the name of a slot that is given by name or number.

    Raises:
        CacheLayerError: The layer has no such slot.
    """
    if isinstance(slot, str) and slot in names:
        return slot
    number = whole(slot)
    if number is None or not 0 <= number < len(names):
        raise CacheLayerError(
            f"slot {slot!r} of layer {layer} with {', '.join(names)}",
            op="slot",
            operands={"cache": cache},
            expected=f"a name, or 0 <= slot < {len(names)}",
            layer=layer,
            slot=slot,
            wanted=tuple(names),
            got=slot,
        )
    return names[number]


def tensors_given(
    cache: object, declared: Declared, graph: Graph, layer: int, slots: Sequence[Tensor]
) -> tuple[Tensor, ...]:
    """Return whole tensors for the slots of a part, each fitting its slot; the order of checks is the contract's.

    Raises:
        SlotCountError: Not one tensor per slot.
        SlotShapeError: A tensor of other sizes.
        SlotDTypeError: Another element type.
        SlotGraphError: Another graph.
    """
    op, layout_ = declared.part.verb, declared.layout
    given = tuple(slots) if isinstance(slots, Sequence) else ()
    facts: dict[str, Any] = {"op": op, "layer": layer}
    if len(given) != layout_.n_slots:
        raise SlotCountError(
            f"{len(given) if isinstance(slots, Sequence) else 'no list of'} tensors for {layout_.n_slots} slots",
            operands={"cache": cache},
            expected="a list of one tensor per slot",
            wanted=layout_.n_slots,
            got=len(given),
            **facts,
        )
    shapes = [declared.part.shape(0, sizes) for sizes in layout_.trailing]
    return _fitting(op, cache, layout_, graph, layer, given, shapes)


def _fitting(
    op: str,
    cache: object,
    layout_: CacheLayout,
    graph: Graph,
    layer: int,
    given: Sequence[Tensor],
    shapes: Sequence[Shape],
) -> tuple[Tensor, ...]:
    """Return whole tensors, one per slot, each of its slot's shape, then type, then graph."""
    facts: dict[str, Any] = {"op": op, "layer": layer}
    for slot, (tensor, wanted) in enumerate(zip(given, shapes, strict=True)):
        shape = tensor.known_shape if isinstance(tensor, Tensor) else None
        if (
            shape is None
            or len(shape) != len(wanted)
            or any(meet(a, b) is None for a, b in zip(shape, wanted, strict=True))
        ):
            shown = describe(tensor) if isinstance(tensor, Tensor) else repr(tensor)
            raise SlotShapeError(
                f"slot {slot} of layer {layer} has another shape",
                operands={layout_.slot_names[slot]: shown, "cache": cache},
                expected=shape_text(wanted),
                slot=slot,
                wanted=wanted,
                got=shape,
                **facts,
            )
    for slot, tensor in enumerate(given):
        if tensor.dtype is not layout_.dtype:
            raise SlotDTypeError(
                f"slot {slot} is {tensor.dtype}, the cache {layout_.dtype}",
                operands={layout_.slot_names[slot]: describe(tensor)},
                expected=str(layout_.dtype),
                slot=slot,
                wanted=layout_.dtype,
                got=tensor.dtype,
                **facts,
            )
    for slot, tensor in enumerate(given):
        if tensor.graph is not graph:
            raise SlotGraphError(
                f"slot {slot} belongs to another graph",
                operands={layout_.slot_names[slot]: describe(tensor)},
                expected="tensors grown from the cache's anchor",
                slot=slot,
                wanted=graph,
                got=tensor.graph,
                **facts,
            )
    return tuple(given)


def check_advance(cache: object, layer: int, wanted: Size, pending: Size, due: bool, replaced: bool) -> None:
    """Check what a layer was given since the last advance.

    Args:
        cache: Shown in messages.
        layer: The layer.
        wanted: The rows that it ought to have been given.
        pending: The rows that it was given.
        due: Whether its state ought to have been replaced.
        replaced: Whether it was.

    Raises:
        CacheStepError: It was given something else.
    """
    if dims.equal(pending, wanted) is not True:
        raise CacheStepError(
            f"layer {layer} was given {pending} rows since the last advance, not {wanted}",
            op="advance_by",
            operands={"cache": cache},
            expected="every layer that takes part appended exactly n rows, the others none",
            layer=layer,
            wanted=wanted,
            got=pending,
        )
    if due != replaced:
        raise CacheStepError(
            f"the state of layer {layer} was {'not ' if due else ''}replaced since the last advance",
            op="advance_by",
            operands={"cache": cache},
            expected="every layer that takes part has its state replaced, the others not",
            layer=layer,
            wanted=due,
            got=replaced,
        )


__all__ = [
    "Declared",
    "Held",
    "Layers",
    "check_advance",
    "check_position",
    "declared_layers",
    "layer_of",
    "layers_chosen",
    "slot_of",
    "tensors_given",
    "whole_slots",
]
