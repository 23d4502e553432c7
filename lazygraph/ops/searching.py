"""Ops whose result's size depends on the numbers, and their relatives: nonzero, compress, unique, one-hot."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from lazygraph import dims
from lazygraph.dims import Dim
from lazygraph.dtypes import DTypeLike, as_dtype, float32, int64
from lazygraph.errors import ShapeError
from lazygraph.ops.checks import (
    BOOL,
    NUMBER,
    PLAIN,
    assume_hint,
    axis_of,
    dtype_among,
    exact_rank,
    exactly,
    fresh,
    meet,
    rank_at_least,
    rows,
)
from lazygraph.ops.core import Attrs, Inputs, Results, apply, apply_all, as_tensor, known_ints, rule
from lazygraph.tensor import Constant, Operand, Shape, Tensor


@rule("NonZero")
def _non_zero_rule(op: str, inputs: Inputs, attrs: Attrs) -> Results:
    (x,) = exactly(op, inputs, 1)
    dtype_among(op, "x", x, PLAIN)
    if x.known_shape is None:
        return [(int64, None)]
    rank_at_least(op, "x", x, 1)
    return [(int64, (len(x.shape), fresh(op, x, 1, dims.bounds(x.size)[1])))]


def non_zero(x: Tensor) -> Tensor:
    """Return where ``x`` is not 0 (or True), as ``int64 (rank, n)``: one column of indices per element found.

    Raises:
        ShapeError: ``x`` has no axes.

    Spec: ai.onnx::NonZero.
    """
    return apply("NonZero", x)


@rule("Compress")
def _compress_rule(op: str, inputs: Inputs, attrs: Attrs) -> Results:
    x, condition = exactly(op, inputs, 2)
    dtype_among(op, "x", x, PLAIN)
    dtype_among(op, "condition", condition, BOOL)
    exact_rank(op, "condition", condition, 1)
    axis = attrs.get("axis")
    if x.known_shape is None:
        return [(x.dtype, None if axis is not None else (fresh(op, x, 0),))]
    rank_at_least(op, "x", x, 1)
    place = None if axis is None else axis_of(op, axis, len(x.shape), operands={"x": x})
    whole = x.size if place is None else x.shape[place]
    if condition.known_shape and dims.at_most(condition.shape[0], whole) is False:
        raise ShapeError(
            f"{condition.shape[0]} conditions for {whole} elements",
            op=op,
            operands=rows({"x": x, "condition": condition}),
            expected="no more conditions than elements",
        )
    kept = fresh(op, x, place or 0, dims.bounds(whole)[1])
    return [(x.dtype, (kept,) if place is None else (*x.shape[:place], kept, *x.shape[place + 1 :]))]


def compress(x: Tensor, condition: Operand, axis: int | None = None) -> Tensor:
    """Return the slices of ``x`` along an axis where the condition holds (elements, counted flat, when None).

    Args:
        x: ``T (..., n, ...)``.
        condition: ``bool (m,)`` with ``m <= n``; what it does not reach is dropped.
        axis: The axis, or None.

    Raises:
        ShapeError: More conditions than elements, or a condition that has not one axis.
        IndexRangeError: The axis lies outside ``[-rank, rank)``.

    Spec: ai.onnx::Compress.
    """
    mask = x.graph.constant(condition, dtype="bool") if isinstance(condition, (list, tuple)) else condition
    attrs: Attrs = {} if axis is None else {"axis": axis}
    return apply("Compress", x, as_tensor("compress", mask, x), **attrs)


@rule("Unique")
def _unique_rule(op: str, inputs: Inputs, attrs: Attrs) -> Results:
    (x,) = exactly(op, inputs, 1)
    dtype_among(op, "x", x, PLAIN)
    axis = attrs.get("axis")
    found = fresh(op, x, axis or 0)
    if x.known_shape is None:
        return [(x.dtype, None if axis is not None else (found,)), (int64, (found,)), (int64, None), (int64, (found,))]
    if axis is None:
        return [(x.dtype, (found,)), (int64, (found,)), (int64, (x.size,)), (int64, (found,))]
    place = axis_of(op, axis, len(x.shape), operands={"x": x})
    shape = (*x.shape[:place], found, *x.shape[place + 1 :])
    return [(x.dtype, shape), (int64, (found,)), (int64, (x.shape[place],)), (int64, (found,))]


def unique(x: Tensor, axis: int | None = None, sorted: bool = True) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return the distinct elements (slices along an axis), first indices, inverse indices and counts.

    Args:
        x: ``T``.
        axis: The axis, or None for elements counted flat.
        sorted: Whether they rise; otherwise they come in the order of their first appearance.

    Raises:
        IndexRangeError: The axis lies outside ``[-rank, rank)``.

    Spec: ai.onnx::Unique.
    """
    attrs: Attrs = {**({} if axis is None else {"axis": axis}), **({} if sorted else {"sorted": 0})}
    values, first, inverse, counts = apply_all("Unique", (x,), attrs)
    return values, first, inverse, counts


@rule("OneHot")
def _one_hot_rule(op: str, inputs: Inputs, attrs: Attrs) -> Results:
    indices, depth, values = exactly(op, inputs, 3)
    dtype_among(op, "indices", indices, NUMBER)
    dtype_among(op, "depth", depth, NUMBER)
    dtype_among(op, "values", values, PLAIN)
    if depth.known_shape is not None and depth.known_shape not in ((), (1,)):
        raise ShapeError("depth is no scalar", op=op, operands=rows({"depth": depth}), expected="depth of shape ()")
    exact_rank(op, "values", values, 1)
    if values.known_shape is not None and meet(values.shape[0], 2) is None:
        raise ShapeError(
            "values are not two",
            op=op,
            operands=rows({"values": values}),
            expected="[off, on]",
            hint=assume_hint(values.shape[0], 2),
            sizes=(values.shape[0], 2),
        )
    if indices.known_shape is None:
        return [(values.dtype, None)]
    axis = axis_of(op, attrs.get("axis", -1), len(indices.shape) + 1, operands={"indices": indices})
    known = known_ints(depth)
    if known is None and isinstance(depth.origin, Constant) and isinstance(depth.origin.array, np.ndarray):
        known = [int(depth.origin.array.reshape(-1)[0])]
    count = fresh(op, indices, axis) if known is None else known[0]
    shape: Shape = (*indices.shape[:axis], count, *indices.shape[axis:])
    return [(values.dtype, shape)]


def one_hot(
    indices: Tensor,
    depth: int | Dim | Tensor,
    values: Sequence[float] | Tensor = (0, 1),
    axis: int = -1,
    dtype: DTypeLike = float32,
) -> Tensor:
    """Return ``values[1]`` where a new axis's place equals the index, ``values[0]`` elsewhere.

    Args:
        indices: ``number``; those outside ``[-depth, depth)`` give no ``on``.
        depth: Size of the new axis.
        values: ``T (2,)``: off and on.
        axis: Where the new axis stands in the result.
        dtype: Element type of values given as numbers.

    Raises:
        IndexRangeError: The axis lies outside ``[-rank - 1, rank]``.
        ShapeError: ``values`` are not two, or ``depth`` is no scalar.

    Spec: ai.onnx::OneHot.
    """
    count = as_tensor("OneHot", depth, indices, int64)
    pair = values if isinstance(values, Tensor) else indices.graph.small(np.array(values).astype(as_dtype(dtype).numpy))
    if indices.known_shape == ():  # the operator asks for an axis
        axis_of("OneHot", axis, 1, operands={"indices": indices})
        row = apply("OneHot", apply("Unsqueeze", indices, indices.graph.ints((0,))), count, pair, axis=-1)
        return apply("Squeeze", row, indices.graph.ints((0,)))
    return apply("OneHot", indices, count, pair, axis=axis)


__all__ = ["compress", "non_zero", "one_hot", "unique"]
