"""Ops that make one number of many along some axes: sums, extremes, positions, running sums, the k largest."""

from __future__ import annotations

from collections.abc import Sequence, Sized
from typing import TYPE_CHECKING
from typing import cast as typed

from lazygraph import dims
from lazygraph.dims import Dim, Size
from lazygraph.dtypes import bool_, int32, int64
from lazygraph.errors import ShapeError
from lazygraph.ops.checks import (
    BOOL,
    FLOAT,
    INDEX,
    INT64,
    NUMBER,
    WIDE,
    Types,
    axes_of,
    axis_of,
    between,
    dtype_among,
    exactly,
    fresh,
    rows,
)
from lazygraph.ops.core import Attrs, Inputs, Results, apply, apply_all, as_tensor, has_op, known_ints, rule
from lazygraph.ops.elementwise import abs as absolute
from lazygraph.ops.elementwise import log, square
from lazygraph.ops.logic import cast, logical_not
from lazygraph.ops.shaping import reshape
from lazygraph.ops.sizes import shape
from lazygraph.tensor import Shape, Tensor

if TYPE_CHECKING:
    from typing import TypeAlias

Axis: TypeAlias = "int | Sequence[int] | None"

_EXTREME = Types("number or bool", WIDE.names | {"int8", "uint8", "bool"})
_REDUCED = {
    **dict.fromkeys(["ReduceSum", "ReduceMean", "ReduceProd", "ReduceL1", "ReduceL2", "ReduceSumSquare"], WIDE),
    **dict.fromkeys(["ReduceMax", "ReduceMin"], _EXTREME),
    **dict.fromkeys(["ReduceLogSum", "ReduceLogSumExp"], FLOAT),
}


@rule(*_REDUCED)
def _reduce_rule(op: str, inputs: Inputs, attrs: Attrs) -> Results:
    x, axes = between(op, inputs, 1, 2)
    x = typed(Tensor, x)
    dtype_among(op, "x", x, _REDUCED[op])
    if axes is not None:
        dtype_among(op, "axes", axes, INT64)
    keep = bool(attrs.get("keepdims", 1))
    chosen: Sequence[Size] | None = attrs.get("axes", ()) if axes is None else known_ints(axes)
    if x.known_shape is None:
        return [(x.dtype, () if axes is None and not keep and not attrs.get("noop_with_empty_axes") else None)]
    if chosen is None:  # the axes come with the inputs: their number is known at best
        count = axes.known_shape[0] if axes is not None and axes.known_shape else None
        left = len(x.shape) if keep else len(x.shape) - count if isinstance(count, int) and count else None
        return [(x.dtype, None if left is None else tuple(fresh(op, x, i) for i in range(left)))]
    if not chosen:
        if attrs.get("noop_with_empty_axes"):
            return [(x.dtype, x.shape)]
        return [(x.dtype, (1,) * len(x.shape) if keep else ())]
    gone = axes_of(op, typed("list[int]", chosen), len(x.shape), {"x": x})
    return [(x.dtype, without_axes(x.shape, gone, keep))]


def without_axes(shape: Shape, gone: Sequence[int], keep: bool) -> Shape:
    """Return the shape that reducing these axes leaves: size 1 there, or the axes gone."""
    if keep:
        return tuple([1 if axis in gone else size for axis, size in enumerate(shape)])
    return tuple([size for axis, size in enumerate(shape) if axis not in gone])


def _reduced(op: str, x: Tensor, axis: Axis, keepdims: bool) -> Tensor:
    attrs: Attrs = {} if keepdims else {"keepdims": 0}
    if axis is None:
        return apply(op, x, **attrs)
    axes = axes_of(op, axis, len(x.shape), {"x": x})
    if op != "ReduceSum" and not has_op(x, 18):  # before, the axes were an attribute
        return apply(op, x, axes=list(axes), **attrs)
    return apply(op, x, x.graph.ints(axes), **attrs)


def no_axes(axis: Axis) -> bool:
    """Return whether ``axis`` is an empty list, which in numpy reduces nothing (in ONNX it means all axes)."""
    return isinstance(axis, Sized) and len(axis) == 0


def reduce_sum(x: Tensor, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """Return sums over the axes, all of them when None; over ``()`` the tensor itself.

    Args:
        x: ``T``: floating-point, or integers of 32 or 64 bits.
        axis: An axis, several, or None.
        keepdims: Whether reduced axes stay, with size 1.

    Raises:
        IndexRangeError: An axis lies outside ``[-rank, rank)``.
        ShapeError: One axis is named twice.
        DTypeError: Narrow integers or bools.

    Spec: ai.onnx::ReduceSum.
    """
    return x if no_axes(axis) else _reduced("ReduceSum", x, axis, keepdims)


def reduce_mean(x: Tensor, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """Return means over the axes (see ``reduce_sum``); those of integers are cut. Spec: ai.onnx::ReduceMean."""
    return x if no_axes(axis) else _reduced("ReduceMean", x, axis, keepdims)


def reduce_max(x: Tensor, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """Return maxima over the axes (see ``reduce_sum``). ``T: number``. Spec: ai.onnx::ReduceMax."""
    return x if no_axes(axis) else _reduced("ReduceMax", x, axis, keepdims)


def reduce_min(x: Tensor, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """Return minima over the axes (see ``reduce_sum``). ``T: number``. Spec: ai.onnx::ReduceMin."""
    return x if no_axes(axis) else _reduced("ReduceMin", x, axis, keepdims)


def reduce_prod(x: Tensor, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """Return products over the axes (see ``reduce_sum``). Spec: ai.onnx::ReduceProd."""
    return x if no_axes(axis) else _reduced("ReduceProd", x, axis, keepdims)


def reduce_l1(x: Tensor, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """Return sums of absolute values over the axes (see ``reduce_sum``). Spec: ai.onnx::ReduceL1."""
    return absolute(x) if no_axes(axis) else _reduced("ReduceL1", x, axis, keepdims)


def reduce_l2(x: Tensor, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """Return roots of sums of squares over the axes (see ``reduce_sum``). Spec: ai.onnx::ReduceL2."""
    return absolute(x) if no_axes(axis) else _reduced("ReduceL2", x, axis, keepdims)


def reduce_log_sum(x: Tensor, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """Return logarithms of sums over the axes (see ``reduce_sum``). ``T: float``. Spec: ai.onnx::ReduceLogSum."""
    return log(x) if no_axes(axis) else _reduced("ReduceLogSum", x, axis, keepdims)


def reduce_log_sum_exp(x: Tensor, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """Return ``log(sum(exp(x)))`` over the axes, without overflow. ``T: float``. Spec: ai.onnx::ReduceLogSumExp."""
    return x if no_axes(axis) else _reduced("ReduceLogSumExp", x, axis, keepdims)


def reduce_sum_square(x: Tensor, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """Return sums of squares over the axes (see ``reduce_sum``). Spec: ai.onnx::ReduceSumSquare."""
    return square(x) if no_axes(axis) else _reduced("ReduceSumSquare", x, axis, keepdims)


# ---- composed of them ----


def any(x: Tensor, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """Return whether any element along the axes holds, as bool; over none, False. Composed of Cast and ReduceSum."""
    dtype_among("any", "x", x, BOOL)
    if no_axes(axis):
        return x
    return cast(_reduced("ReduceSum", cast(x, int32), axis, keepdims), bool_)


def all(x: Tensor, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """Return whether every element along the axes holds, as bool; over none, True. Composed as ``any``."""
    dtype_among("all", "x", x, BOOL)
    return x if no_axes(axis) else logical_not(any(logical_not(x), axis, keepdims))


# ---- positions ----


@rule("ArgMax", "ArgMin")
def _arg_rule(op: str, inputs: Inputs, attrs: Attrs) -> Results:
    (x,) = exactly(op, inputs, 1)
    dtype_among(op, "x", x, NUMBER)
    if x.known_shape is None:
        return [(int64, None)]
    axis = axis_of(op, attrs.get("axis", 0), len(x.shape), operands={"x": x})
    if x.shape[axis] == 0:
        raise ShapeError(f"axis {axis} is empty", op=op, operands=rows({"x": x}), expected="at least one element")
    return [(int64, without_axes(x.shape, (axis,), bool(attrs.get("keepdims", 1))))]


def argmax(x: Tensor, axis: int | None = None, keepdims: bool = False, select_last_index: bool = False) -> Tensor:
    """Return where the maximum along an axis is (of all elements, counted flat, when None), as ``int64``.

    Args:
        x: ``T: number``.
        axis: The axis, or None.
        keepdims: Whether the axis stays, with size 1.
        select_last_index: Of equal maxima take the last one instead of the first.

    Raises:
        IndexRangeError: The axis lies outside ``[-rank, rank)``.
        ShapeError: The axis is known to be empty.

    Spec: ai.onnx::ArgMax.
    """
    return _position("ArgMax", x, axis, keepdims, select_last_index)


def argmin(x: Tensor, axis: int | None = None, keepdims: bool = False, select_last_index: bool = False) -> Tensor:
    """Return where the minimum along an axis is (see ``argmax``). Spec: ai.onnx::ArgMin."""
    return _position("ArgMin", x, axis, keepdims, select_last_index)


def _position(op: str, x: Tensor, axis: int | None, keepdims: bool, last: bool) -> Tensor:
    attrs: Attrs = {"select_last_index": 1} if last else {}
    if axis is None:
        flat = apply(op, reshape(x, [-1]), axis=0, keepdims=0, **attrs)
        return reshape(flat, [1] * len(x.shape)) if keepdims else flat
    axis = axis_of(op, axis, len(x.shape), operands={"x": x})
    if not keepdims:
        attrs["keepdims"] = 0
    return apply(op, x, axis=axis, **attrs)


# ---- along an axis ----


@rule("CumSum", "CumProd")
def _cumulative_rule(op: str, inputs: Inputs, attrs: Attrs) -> Results:
    x, axis = exactly(op, inputs, 2)
    dtype_among(op, "x", x, WIDE)
    dtype_among(op, "axis", axis, INDEX)
    if axis.known_shape is not None and axis.known_shape not in ((), (1,)):
        raise ShapeError("axis is no scalar", op=op, operands=rows({"axis": axis}), expected="axis of shape ()")
    chosen = known_ints(axis)
    if x.known_shape is not None and chosen is not None:
        axis_of(op, typed(int, chosen[0]), len(x.shape), operands={"x": x})
    return [(x.dtype, x.known_shape)]


def cumsum(x: Tensor, axis: int | None = 0, exclusive: bool = False, reverse: bool = False) -> Tensor:
    """Return running sums along an axis.

    Args:
        x: ``T``: floating-point, or integers of 32 or 64 bits.
        axis: The axis; None for all elements as one row.
        exclusive: Leave each element out of its own sum.
        reverse: Sum from the end.

    Raises:
        IndexRangeError: The axis lies outside ``[-rank, rank)``.

    Spec: ai.onnx::CumSum.
    """
    if axis is None:
        x, axis = reshape(x, [-1]), 0
    axis = axis_of("CumSum", axis, len(x.shape), operands={"x": x})
    attrs: Attrs = {**({"exclusive": 1} if exclusive else {}), **({"reverse": 1} if reverse else {})}
    return apply("CumSum", x, as_tensor("CumSum", axis, x, int64), **attrs)


@rule("TopK")
def _topk_rule(op: str, inputs: Inputs, attrs: Attrs) -> Results:
    x, k = exactly(op, inputs, 2)
    dtype_among(op, "x", x, NUMBER)
    dtype_among(op, "k", k, INT64)
    if k.known_shape is not None and k.known_shape != (1,):
        raise ShapeError("k is no list of one number", op=op, operands=rows({"k": k}), expected="k of shape (1,)")
    if x.known_shape is None:
        return [(x.dtype, None), (int64, None)]
    axis = axis_of(op, attrs.get("axis", -1), len(x.shape), operands={"x": x})
    size = x.shape[axis]
    known = known_ints(k)
    count = fresh(op, x, axis, dims.bounds(size)[1]) if known is None else known[0]
    if known is not None and (dims.at_most(0, count) is False or dims.at_most(count, size) is False):
        raise ShapeError(
            f"k is {count}, axis {axis} has {size}", op=op, operands=rows({"x": x}), expected="k between 0 and the size"
        )
    shape = (*x.shape[:axis], count, *x.shape[axis + 1 :])
    return [(x.dtype, shape), (int64, shape)]


def topk(
    x: Tensor, k: int | Dim | Tensor, axis: int = -1, largest: bool = True, sorted: bool = True
) -> tuple[Tensor, Tensor]:
    """Return the ``k`` largest elements along an axis, and their indices as ``int64``.

    Args:
        x: ``T: number``.
        k: How many: a size, or ``int64 (1,)`` or ``()``.
        axis: The axis.
        largest: False takes the smallest.
        sorted: Whether they come in order.

    Raises:
        ShapeError: ``k`` is known to be more than there are, or negative.
        IndexRangeError: The axis lies outside ``[-rank, rank)``.

    Spec: ai.onnx::TopK.
    """
    count = k if isinstance(k, Tensor) else as_tensor("TopK", k, x, int64)
    if count.known_shape == ():
        count = reshape(count, [1])
    axis = axis_of("TopK", axis, len(x.shape), operands={"x": x})
    attrs: Attrs = {"axis": axis, **({} if largest else {"largest": 0}), **({} if sorted else {"sorted": 0})}
    values, indices = apply_all("TopK", (x, count), attrs)
    return values, indices


def sort(x: Tensor, axis: int | None = -1, descending: bool = False) -> Tensor:
    """Return the elements in rising order along an axis (falling if asked); None for all of them as one row.

    Composed of TopK.
    """
    return _sorted(x, axis, descending)[0]


def argsort(x: Tensor, axis: int | None = -1, descending: bool = False) -> Tensor:
    """Return the indices that sort along an axis (see ``sort``), as ``int64``; equal elements keep their order.

    Composed of TopK.
    """
    return _sorted(x, axis, descending)[1]


def _sorted(x: Tensor, axis: int | None, descending: bool) -> tuple[Tensor, Tensor]:
    if axis is None:
        x, axis = reshape(x, [-1]), 0
    return topk(x, _count(x, axis), axis, largest=descending)


def _count(x: Tensor, axis: int) -> int | Dim | Tensor:
    place = axis_of("sort", axis, len(x.shape), operands={"x": x})
    size = x.shape[place]
    return size if isinstance(size, int) else shape(x, place, place + 1)


__all__ = [
    "all",
    "any",
    "argmax",
    "argmin",
    "argsort",
    "cumsum",
    "no_axes",
    "reduce_l1",
    "reduce_l2",
    "reduce_log_sum",
    "reduce_log_sum_exp",
    "reduce_max",
    "reduce_mean",
    "reduce_min",
    "reduce_prod",
    "reduce_sum",
    "reduce_sum_square",
    "sort",
    "topk",
    "without_axes",
]
