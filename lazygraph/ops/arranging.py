"""numpy's ways to arrange axes and elements, each said with the operators that ONNX has."""

from __future__ import annotations

from collections.abc import Sequence

from lazygraph import dims
from lazygraph.dims import Size, SizeLike
from lazygraph.errors import OperandError, ShapeError
from lazygraph.ops.checks import axes_of, axis_of, int_of, rows
from lazygraph.ops.core import as_tensor
from lazygraph.ops.create import arange
from lazygraph.ops.elementwise import mod, sub
from lazygraph.ops.gathering import gather, gather_elements, in_range
from lazygraph.ops.joining import concat
from lazygraph.ops.searching import non_zero
from lazygraph.ops.shaping import expand, reshape, transpose, unsqueeze
from lazygraph.ops.sizes import size_tensor
from lazygraph.ops.slicing import slice
from lazygraph.tensor import Operand, Tensor


def expand_dims(x: Tensor, axis: int | Sequence[int]) -> Tensor:
    """Return the tensor with an axis of size 1 at each place named, counted in the result. Spec: ai.onnx::Unsqueeze."""
    return unsqueeze(x, axis)


def broadcast_to(x: Operand, shape: Sequence[SizeLike], anchor: Tensor | None = None) -> Tensor:
    """Return ``x`` in exactly this shape, repeated along axes of size 1.

    Args:
        x: ``T``, of a shape that broadcasts into ``shape``.
        shape: The sizes.
        anchor: A tensor of the graph, where ``x`` is none.

    Raises:
        ShapeError: The shape has fewer axes, or a size that ``x`` does not broadcast to.

    Spec: ai.onnx::Expand.
    """
    tensor = x if isinstance(x, Tensor) else as_tensor("broadcast_to", x, _anchor("broadcast_to", anchor))
    made = expand(tensor, shape)
    wanted = tuple(tensor.graph.size(size) for size in shape)
    if made.known_shape is not None and made.shape != wanted:
        raise ShapeError(
            f"{made.shape} is what it broadcasts to",
            op="broadcast_to",
            operands={**rows({"x": tensor}), "shape": str(wanted)},
            expected="a shape that x broadcasts into; lg.expand lets x be the larger one",
        )
    return made


def _anchor(op: str, anchor: Tensor | None) -> Tensor:
    if anchor is None:
        raise OperandError("no operand is a tensor", op=op, expected="a tensor, or anchor=, a tensor of the graph")
    return anchor


def moveaxis(x: Tensor, source: int | Sequence[int], destination: int | Sequence[int]) -> Tensor:
    """Return the tensor with axes moved to other places; the rest keep their order.

    Raises:
        IndexRangeError: An axis lies outside ``[-rank, rank)``.
        ShapeError: One is named twice, or there are not as many places as axes.

    Spec: ai.onnx::Transpose.
    """
    rank = len(x.shape)
    before, after = axes_of("moveaxis", source, rank, {"x": x}), axes_of("moveaxis", destination, rank, {"x": x})
    if len(before) != len(after):
        raise ShapeError(
            f"{len(before)} axes and {len(after)} places",
            op="moveaxis",
            operands=rows({"x": x}),
            expected="a place for each axis",
        )
    order = [axis for axis in range(rank) if axis not in before]
    for place, axis in sorted(zip(after, before, strict=True)):
        order.insert(place, axis)
    return transpose(x, order)


def swapaxes(x: Tensor, axis1: int, axis2: int) -> Tensor:
    """Return the tensor with two axes exchanged. Spec: ai.onnx::Transpose."""
    rank = len(x.shape)
    first, second = (axis_of("swapaxes", axis, rank, operands={"x": x}) for axis in (axis1, axis2))
    order = list(range(rank))
    order[first], order[second] = second, first
    return transpose(x, order)


def ravel(x: Tensor) -> Tensor:
    """Return the elements along one axis, row by row. Spec: ai.onnx::Reshape."""
    return reshape(x, [-1])


def roll(x: Tensor, shift: int | Sequence[int], axis: int | Sequence[int] | None = None) -> Tensor:
    """Return the elements moved along axes; those that leave at an end come back at the other.

    Args:
        x: ``T``.
        shift: How far, one number or one per axis; negative moves towards the front.
        axis: The axes; None rolls the elements row by row.

    Raises:
        IndexRangeError: An axis lies outside ``[-rank, rank)``.
        ShapeError: Not one shift per axis.

    Spec: ai.onnx::Slice, ai.onnx::Concat; ai.onnx::Gather along an axis of a named size.
    """
    if axis is None:
        return reshape(roll(ravel(x), shift, 0), x.shape)
    axes = list(axis) if isinstance(axis, Sequence) else [axis]
    steps = list(shift) if isinstance(shift, Sequence) else [shift] * len(axes)
    if len(steps) != len(axes):
        raise ShapeError(
            f"{len(steps)} shifts along {len(axes)} axes",
            op="roll",
            operands=rows({"x": x}),
            expected="one shift, or one per axis",
        )
    result = x
    for place, step in zip(axes, steps, strict=True):
        number = int_of("roll", step, "shift")
        along = axis_of("roll", place, len(x.shape), operands={"x": x})
        result = _rolled(result, number, along, x.shape[along])
    return result


def _rolled(x: Tensor, shift: int, axis: int, size: Size) -> Tensor:
    """Return ``x`` rolled along one axis: what stands behind the cut comes first."""
    if not isinstance(size, int):  # it may be 0, and there is no remainder of 0
        places = mod(sub(arange(size, anchor=x), shift), size_tensor(dims.largest(size, 1), x))
        return gather(x, places, axis)
    cut = -shift % size if size else 0
    return concat([slice(x, [cut], [size], [axis]), slice(x, [0], [cut], [axis])], axis) if cut else x


def meshgrid(*xs: Tensor, indexing: str = "xy") -> tuple[Tensor, ...]:
    """Return for each vector a tensor of every combination's element of it.

    Args:
        xs: ``T (n_i,)``, any number.
        indexing: ``"ij"`` gives shapes ``(n_0, n_1, ...)``; ``"xy"``, numpy's habit, exchanges the first two.

    Raises:
        ShapeError: One is no vector.
        OperandError: Another ``indexing``, or no vector.
    """
    if indexing not in ("xy", "ij"):
        raise OperandError(f"indexing is {indexing!r}", op="meshgrid", expected="'xy' or 'ij'")
    if not xs:
        raise OperandError("no vector", op="meshgrid", expected="at least one")
    for x in xs:
        if len(x.shape) != 1:
            raise ShapeError(f"{len(x.shape)} axes", op="meshgrid", operands=rows({"x": x}), expected="vectors")
    order = list(range(len(xs)))
    if indexing == "xy" and len(xs) > 1:
        order[0], order[1] = 1, 0
    shape = [xs[k].shape[0] for k in order]
    return tuple(
        expand(unsqueeze(x, [axis for axis in range(len(xs)) if axis != order.index(k)]), shape) if len(xs) > 1 else x
        for k, x in enumerate(xs)
    )


def take_along_axis(x: Tensor, indices: Operand, axis: int | None) -> Tensor:
    """Return the elements that indices choose along one axis, as ``lg.argsort`` gives them.

    Args:
        x: ``T``.
        indices: ``int32 | int64``, of the rank of ``x``; an axis of size 1 other than ``axis`` serves all of them, in
            either.
        axis: The axis; None takes the elements row by row.

    Raises:
        IndexRangeError: A constant index lies outside ``[-size, size)``, or the axis is none.
        ShapeError: Another rank, or sizes that do not broadcast.

    Spec: ai.onnx::GatherElements.
    """
    chosen = as_tensor("take_along_axis", indices, x)
    if axis is None:
        return take_along_axis(ravel(x), chosen, 0)
    along = axis_of("take_along_axis", axis, len(x.shape), operands={"x": x})
    if len(x.shape) != len(chosen.shape):
        raise ShapeError(
            f"{len(x.shape)} axes and {len(chosen.shape)}",
            op="take_along_axis",
            operands=rows({"x": x, "indices": chosen}),
            expected="indices of the rank of x",
        )
    in_range("take_along_axis", chosen, x.shape[along], {"x": x, "indices": chosen})
    ones = [1] * len(x.shape)
    from_x, from_indices = list(x.shape), list(chosen.shape)
    from_x[along] = from_indices[along] = 1
    if from_x != from_indices:
        wide_x, wide_indices = [*from_indices], [*from_x]
        x = expand(x, wide_x) if wide_x != ones else x
        chosen = expand(chosen, wide_indices) if wide_indices != ones else chosen
    return gather_elements(x, chosen, along)


def nonzero(x: Tensor) -> tuple[Tensor, ...]:
    """Return where the elements are not 0: per axis an ``int64 (count,)``. Spec: ai.onnx::NonZero."""
    found = non_zero(x)
    return tuple(found[axis] for axis in range(len(x.shape)))
