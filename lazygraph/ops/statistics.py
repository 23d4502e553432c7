"""What numpy computes of many numbers and ONNX has no operator for: norms, variances, standard deviations."""

from __future__ import annotations

import math

from lazygraph import dims
from lazygraph.dtypes import float32, float64
from lazygraph.errors import OperandError, ShapeError
from lazygraph.ops.checks import FLOAT, axes_of, dtype_among, int_of, rows
from lazygraph.ops.core import as_tensor
from lazygraph.ops.elementwise import abs as absolute
from lazygraph.ops.elementwise import div, mul, pow, sqrt, square, sub
from lazygraph.ops.logic import cast, not_equal
from lazygraph.ops.reduce import (
    Axis,
    no_axes,
    reduce_l1,
    reduce_l2,
    reduce_max,
    reduce_mean,
    reduce_min,
    reduce_sum,
)
from lazygraph.ops.sizes import size_tensor
from lazygraph.tensor import Tensor


def norm(x: Tensor, ord: float | str | None = None, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """Return the norm of the elements along the axes, taken as one vector.

    Args:
        x: ``T``: floating-point; for 1 and 2 integers of 32 or 64 bits too.
        ord: 2 or None for Euclid's, 1 for the sum of absolute values, ``inf`` and ``-inf`` for the largest and the
            smallest of them, 0 for how many are not 0, any other ``p`` for ``sum(abs(x) ** p) ** (1 / p)``.
        axis: An axis, several, or None for all. Several are one vector here, where numpy takes two as a matrix.
        keepdims: Whether reduced axes stay, with size 1.

    Raises:
        OperandError: ``ord`` is no number (numpy's ``"fro"`` and ``"nuc"`` are of matrices).
        DTypeError: ``x`` has another element type.
        IndexRangeError: An axis lies outside ``[-rank, rank)``.

    Spec: ai.onnx::ReduceL1, ai.onnx::ReduceL2, ai.onnx::ReduceMax, ai.onnx::ReduceMin, ai.onnx::ReduceSum.
    """
    if isinstance(ord, bool) or not isinstance(ord, (int, float, type(None))) or ord != ord:
        raise OperandError(
            f"ord is {ord!r}",
            op="norm",
            operands=rows({"x": x}),
            expected="a number, inf, -inf, or None",
            hint="ord=None over both axes is the Frobenius norm" if ord == "fro" else "",
        )
    if ord is None or ord == 2:
        return reduce_l2(x, axis, keepdims)
    if ord == 1:
        return reduce_l1(x, axis, keepdims)
    dtype_among("norm", "x", x, FLOAT)
    if ord == 0:
        return reduce_sum(cast(not_equal(x, 0.0), x.dtype), axis, keepdims)
    if math.isinf(ord):
        return (reduce_max if ord > 0 else reduce_min)(absolute(x), axis, keepdims)
    return pow(reduce_sum(pow(absolute(x), float(ord)), axis, keepdims), 1.0 / ord)


def var(x: Tensor, axis: Axis = None, keepdims: bool = False, ddof: int = 0) -> Tensor:
    """Return the variance over the axes: the mean square distance from the mean.

    Args:
        x: ``T``: floating-point.
        axis: An axis, several, or None for all.
        keepdims: Whether reduced axes stay, with size 1.
        ddof: What is taken off the number of elements that the sum is divided by; 1 for a sample's variance.

    Raises:
        ShapeError: ``ddof`` leaves nothing to divide by.
        DTypeError: ``x`` is no floating-point tensor.
        IndexRangeError: An axis lies outside ``[-rank, rank)``.

    Composed of ReduceMean, Sub and Mul.
    """
    dtype_among("var", "x", x, FLOAT)
    ddof = int_of("var", ddof, "ddof", {"x": x})
    if no_axes(axis) and not ddof:
        return sub(x, x)
    spread = sub(x, x) if no_axes(axis) else square(sub(x, reduce_mean(x, axis, True)))
    if not ddof:
        return reduce_mean(spread, axis, keepdims)
    return mul(reduce_mean(spread, axis, keepdims), _correction(x, axis, ddof))


def std(x: Tensor, axis: Axis = None, keepdims: bool = False, ddof: int = 0) -> Tensor:
    """Return the standard deviation over the axes (see ``var``). ``T: float``. Composed of it and Sqrt."""
    return sqrt(var(x, axis, keepdims, ddof))


def _correction(x: Tensor, axis: Axis, ddof: int) -> Tensor | float:
    """Return ``n / (n - ddof)`` for the ``n`` elements that each variance is of."""
    gone = axes_of("var", range(len(x.shape)) if axis is None else axis, len(x.shape), {"x": x})
    count = dims.product([x.shape[place] for place in gone])
    if dims.at_most(count, ddof) is True:
        raise ShapeError(
            f"ddof {ddof} of {count} elements",
            op="var",
            operands=rows({"x": x}),
            expected="fewer than the elements that each variance is of",
        )
    if isinstance(count, int):
        return count / (count - ddof)
    wide = float64 if x.dtype is float64 else float32
    number = cast(size_tensor(count, x), wide)
    return cast(div(number, sub(number, as_tensor("var", float(ddof), number))), x.dtype)


__all__ = ["norm", "std", "var"]
