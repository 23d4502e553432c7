"""What a cache accepts: the checks of its contract, in the contract's order. Nothing here emits anything."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NoReturn

from lazygraph import dims
from lazygraph.cache.layout import CacheLayout
from lazygraph.dims import Size
from lazygraph.errors import (
    CacheLayerError,
    CacheOverflowError,
    CacheStepError,
    SeqLenMismatchError,
    SlotCountError,
    SlotDTypeError,
    SlotGraphError,
    SlotShapeError,
)
from lazygraph.ops.checks import meet
from lazygraph.tensor import Graph, Shape, Tensor, describe, shape_text

Buffers = tuple[tuple[Tensor, ...], ...]


def listed(cache: object, declared: CacheLayout, layer: int, slots: Any) -> tuple[Tensor, ...]:
    """Return what an append was given, as a tuple.

    Raises:
        SlotCountError: It is no list: a single tensor, say.
    """
    if isinstance(slots, Tensor) or not isinstance(slots, Iterable):
        raise SlotCountError(
            "one tensor where a list of them is wanted" if isinstance(slots, Tensor) else f"{slots!r} for the slots",
            op="append",
            operands={"cache": cache},
            expected="a list of one tensor per slot",
            layer=layer,
            wanted=declared.n_slots,
            got=1 if isinstance(slots, Tensor) else slots,
        )
    return tuple(slots)


def cast_to_slots(declared: CacheLayout, given: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """Return new rows in the types that their slots keep; what does not fit the slots is left to the checks."""
    if len(given) != declared.n_slots or not all(isinstance(rows, Tensor) for rows in given):
        return given
    return tuple(rows.astype(kept) for rows, kept in zip(given, declared.dtypes, strict=True))


def check_count(cache: object, n_slots: int, layer: int, given: Sequence[object]) -> None:
    """Require one tensor per slot.

    Raises:
        SlotCountError: There are more or fewer.
    """
    if len(given) != n_slots:
        raise SlotCountError(
            f"{len(given)} tensors for {n_slots} slots",
            op="append",
            operands={"cache": cache},
            expected="one tensor per slot",
            layer=layer,
            wanted=n_slots,
            got=len(given),
        )


def rows_given(cache: object, declared: CacheLayout, graph: Graph, layer: int, given: tuple[Tensor, ...]) -> Size:
    """Return how many rows the tensors of an append bring, each fitting its slot. The order is the contract's.

    Raises:
        SlotCountError: Not one tensor per slot.
        SlotShapeError: A tensor is not ``[seqlen_new, *trailing]``.
        SeqLenMismatchError: The slots bring different numbers of rows.
        SlotDTypeError: Another element type.
        SlotGraphError: Another graph.
    """
    check_count(cache, declared.n_slots, layer, given)
    for slot, tensor in enumerate(given):
        if not isinstance(tensor, Tensor):
            _refuse_shape(cache, declared, layer, slot, tensor, "n", "no tensor")
    first = given[0].known_shape
    if not first:
        _refuse_shape(cache, declared, layer, 0, given[0], "n", "no axis of rows")
    count = first[0]
    for slot, (tensor, sizes) in enumerate(zip(given, declared.trailing, strict=True)):
        shape = tensor.known_shape
        if (
            shape is None
            or len(shape) != len(sizes) + 1
            or any(meet(a, b) is None for a, b in zip(shape[1:], sizes, strict=True))
        ):
            _refuse_shape(cache, declared, layer, slot, tensor, count, "another shape")
        if meet(shape[0], count) is None:
            raise SeqLenMismatchError(
                f"slot {slot} brings {shape[0]} rows, slot 0 brings {count}",
                op="append",
                operands={name: describe(t) for name, t in zip(declared.slot_names, given, strict=True)},
                expected="the same number of rows in every slot",
                layer=layer,
                slot=slot,
                wanted=count,
                got=shape[0],
            )
    for slot, tensor in enumerate(given):
        if tensor.dtype is not (wanted := declared.dtypes[slot]):
            raise SlotDTypeError(
                f"slot {slot} is {tensor.dtype}, the cache {wanted}",
                op="append",
                operands={declared.slot_names[slot]: describe(tensor)},
                expected=str(wanted),
                layer=layer,
                slot=slot,
                wanted=wanted,
                got=tensor.dtype,
            )
    for slot, tensor in enumerate(given):
        if tensor.graph is not graph:
            raise SlotGraphError(
                f"slot {slot} belongs to another graph",
                op="append",
                operands={declared.slot_names[slot]: describe(tensor)},
                expected="tensors grown from the cache's anchor",
                layer=layer,
                slot=slot,
                wanted=graph,
                got=tensor.graph,
            )
    return count


def _refuse_shape(
    cache: object, declared: CacheLayout, layer: int, slot: int, tensor: Any, count: Size | str, why: str
) -> NoReturn:
    wanted = (count, *declared.trailing[slot])
    shown = describe(tensor) if isinstance(tensor, Tensor) else repr(tensor)
    got = tensor.known_shape if isinstance(tensor, Tensor) else tensor
    raise SlotShapeError(
        f"slot {slot} of layer {layer} has {why}",
        op="append",
        operands={declared.slot_names[slot]: shown, "cache": cache},
        expected=f"{shape_text(wanted)}: [seqlen_new, *trailing]",
        layer=layer,
        slot=slot,
        wanted=wanted,
        got=got,
    )


def check_step(cache: object, pending: tuple[Size, ...], layer: int, count: Size) -> None:
    """Check that the layer has nothing of this step yet, and that the step's other layers brought as many rows.

    Raises:
        CacheStepError: Otherwise.
    """
    if pending[layer] != 0:
        raise CacheStepError(
            f"layer {layer} was given {pending[layer]} rows already in this step",
            op="append",
            operands={"cache": cache},
            expected="one append per layer between two advances",
            hint="cache.advance_by(n) ends the step, once, after the last layer",
            layer=layer,
            wanted=0,
            got=pending[layer],
        )
    for other, rows in enumerate(pending):
        if rows != 0 and meet(rows, count) is None:
            raise CacheStepError(
                f"layer {layer} brings {count} rows, layer {other} brought {rows} in this step",
                op="append",
                operands={"cache": cache},
                expected="the same number of rows in every layer of a step",
                layer=layer,
                wanted=rows,
                got=count,
            )


def check_advance(
    cache: object, declared: CacheLayout, pending: tuple[Size, ...], count: Size, layers: Sequence[int] | None
) -> None:
    """Check that every layer, or each of ``layers``, was given exactly ``count`` rows, and the others none.

    Raises:
        CacheLayerError: No such layer.
        CacheStepError: Otherwise.
    """
    if layers is not None and not isinstance(layers, Iterable):
        raise CacheLayerError(
            f"layers is {layers!r}",
            op="advance_by",
            expected="a list of layers, or None for all",
            wanted=range(declared.n_layers),
            got=layers,
        )
    everyone = range(declared.n_layers)
    taking_part = everyone if layers is None else {declared.check_layer("advance_by", layer) for layer in layers}
    for layer in everyone:
        wanted = count if layer in taking_part else 0
        if dims.equal(pending[layer], wanted) is not True:
            raise CacheStepError(
                f"layer {layer} was given {pending[layer]} rows since the last advance, not {wanted}",
                op="advance_by",
                operands={"cache": repr(cache), "n": count},
                expected="every layer appended exactly n rows"
                if layers is None
                else "each of `layers` appended exactly n rows, the others none",
                layer=layer,
                wanted=wanted,
                got=pending[layer],
            )
    if not taking_part:
        raise CacheStepError("no layer takes part", op="advance_by", expected="at least one layer", wanted=count, got=0)


def check_room(
    cache: object, op: str, layer: int | None, length: Size, count: Size, capacity: int, runtime: bool
) -> None:
    """Check that ``count`` rows fit behind ``length``; at a run-time position what cannot be decided may pass.

    Raises:
        CacheOverflowError: They do not, or it cannot be decided.
    """
    end = dims.add(length, count)
    fits = dims.at_most(end, capacity)
    if fits or (fits is None and runtime):
        return
    decided = fits is False
    raise CacheOverflowError(
        f"{count} rows after {length} "
        + (f"pass the end at {capacity}" if decided else f"may pass the end at {capacity}"),
        op=op,
        operands={"cache": cache},
        expected=f"current_seq_len + seqlen_new <= {capacity}"
        + ("" if decided else ", decided while the graph is built"),
        hint="" if decided else "bound the size with lg.size(name, max=...), or take the position at run time",
        layer=layer,
        wanted=capacity,
        got=end,
    )


def check_batch_room(cache: object, op: str, layer: int | None, n: Size, capacity: int) -> None:
    """Check that the ``n`` tokens of a text could fit at all; the rest is for whoever runs the graph.

    Raises:
        CacheOverflowError: They could not.
    """
    if dims.at_most(n, capacity) is False:
        raise CacheOverflowError(
            f"{n} rows pass the end at {capacity}",
            op=op,
            operands={"cache": cache},
            expected=f"n <= {capacity}",
            layer=layer,
            wanted=capacity,
            got=n,
        )


def buffers_given(graph: Graph, declared: CacheLayout, buffers: Any, capacities: Sequence[int]) -> Buffers:
    """Return the buffers that a cache continues from, ``[layer][slot]``; ``capacities`` are each layer's rows.

    Raises:
        SlotCountError: Not one list per layer of one tensor per slot.
        SlotShapeError: A buffer is not ``[capacity, *trailing]``.
        SlotDTypeError: Another element type.
        SlotGraphError: Another graph.
    """
    listed_all = isinstance(buffers, Sequence) and all(isinstance(layer, Sequence) for layer in buffers)
    given = tuple(tuple(layer) for layer in buffers) if listed_all else ()
    if len(given) != declared.n_layers or any(len(layer) != declared.n_slots for layer in given):
        counts = [len(layer) for layer in given]
        raise SlotCountError(
            f"buffers for {len(given)} layers of {counts} slots" if listed_all else f"buffers is {buffers!r}",
            op="LatentCache",
            expected=f"{declared.n_layers} layers of {declared.n_slots} slots: a list per layer of tensors",
            wanted=(declared.n_layers, declared.n_slots),
            got=counts if listed_all else buffers,
        )
    for layer, slots in enumerate(given):
        for slot, (tensor, sizes) in enumerate(zip(slots, declared.trailing, strict=True)):
            wanted: Shape = (capacities[layer], *sizes)
            facts: dict[str, Any] = {"layer": layer, "slot": slot}
            is_tensor = isinstance(tensor, Tensor)
            shown = {f"buffer {layer}.{slot}": describe(tensor) if is_tensor else repr(tensor)}
            shape = tensor.known_shape if is_tensor else None
            if (
                shape is None
                or len(shape) != len(wanted)
                or any(meet(a, b) is None for a, b in zip(shape, wanted, strict=True))
            ):
                raise SlotShapeError(
                    f"buffer {layer}.{slot} has another shape",
                    op="LatentCache",
                    operands=shown,
                    expected=shape_text(wanted),
                    wanted=wanted,
                    got=shape,
                    **facts,
                )
            if tensor.dtype is not declared.dtypes[slot]:
                raise SlotDTypeError(
                    f"buffer {layer}.{slot} is {tensor.dtype}",
                    op="LatentCache",
                    operands=shown,
                    expected=str(declared.dtypes[slot]),
                    wanted=declared.dtypes[slot],
                    got=tensor.dtype,
                    **facts,
                )
            if tensor.graph is not graph:
                raise SlotGraphError(
                    f"buffer {layer}.{slot} belongs to another graph",
                    op="LatentCache",
                    operands=shown,
                    expected="tensors grown from the cache's anchor",
                    wanted=graph,
                    got=tensor.graph,
                    **facts,
                )
    return given
