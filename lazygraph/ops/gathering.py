"""Gather and scatter: reading and replacing elements by index."""

from __future__ import annotations

from typing import Any

import numpy as np

from lazygraph import dims
from lazygraph.dims import Dim, Size
from lazygraph.dtypes import int64
from lazygraph.errors import IndexRangeError, OperandError, ShapeError
from lazygraph.ops.checks import (
    INDEX,
    INT64,
    Operands,
    axis_of,
    dtype_among,
    exactly,
    meet,
    rank_at_least,
    rows,
    same_dtype,
    same_size,
)
from lazygraph.ops.core import Attrs, Inputs, Results, apply, as_tensor, rule
from lazygraph.tensor import Operand, Shape, Tensor, describe, shape_text


def _indices(op: str, indices: Tensor) -> None:
    dtype_among(op, "indices", indices, INT64 if op.endswith("ND") else INDEX)


def in_range(op: str, indices: Tensor, size: Size, operands: Operands) -> None:
    """Refuse a constant index outside ``[-size, size)``."""
    value = indices.value
    if value is None or value.dtype == object or not isinstance(size, int) or value.size == 0:
        return
    wrong = value[(value < -size) | (value >= size)]
    if wrong.size:
        raise IndexRangeError(
            f"index {int(wrong.flat[0])} of an axis of size {size}",
            op=op,
            operands=rows(operands),
            expected=f"indices in [{-size}, {size})",
            index=int(wrong.flat[0]),
        )


@rule("Gather")
def _gather_rule(op: str, inputs: Inputs, attrs: Attrs) -> Results:
    x, indices = exactly(op, inputs, 2)
    _indices(op, indices)
    if x.known_shape is None:
        return [(x.dtype, None)]
    rank_at_least(op, "x", x, 1)
    axis = axis_of(op, attrs.get("axis", 0), len(x.shape), operands={"x": x})
    in_range(op, indices, x.shape[axis], {"x": x, "indices": indices})
    if indices.known_shape is None:
        return [(x.dtype, None)]
    return [(x.dtype, (*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :]))]


def gather(x: Tensor, indices: Operand, axis: int = 0) -> Tensor:
    """Return the slices of ``x`` along ``axis`` that the indices name (numpy's ``take``).

    Args:
        x: ``T (..., n, ...)``.
        indices: ``int64`` or ``int32``, any shape, each in ``[-n, n)``.
        axis: The axis that is indexed.

    Raises:
        IndexRangeError: A constant index, or the axis, is out of range.

    Spec: ai.onnx::Gather.
    """
    return apply("Gather", x, as_tensor("gather", indices, x, int64), axis=axis)


@rule("GatherElements")
def _gather_elements_rule(op: str, inputs: Inputs, attrs: Attrs) -> Results:
    x, indices = exactly(op, inputs, 2)
    _indices(op, indices)
    if x.known_shape is not None and indices.known_shape is not None:
        if len(x.shape) != len(indices.shape):
            raise ShapeError("ranks differ", op=op, operands=rows({"x": x, "indices": indices}), expected="equal ranks")
        axis = axis_of(op, attrs.get("axis", 0), len(x.shape), operands={"x": x})
        _no_longer(op, {"x": x, "indices": indices}, axis)
        in_range(op, indices, x.shape[axis], {"x": x, "indices": indices})
    return [(x.dtype, indices.known_shape)]


def _no_longer(op: str, operands: dict[str, Tensor], axis: int) -> None:
    """Refuse indices that are longer than ``x`` on an axis that they are not along."""
    x, indices = operands["x"], operands["indices"]
    for place, (size, count) in enumerate(zip(x.shape, indices.shape, strict=True)):
        if place != axis and dims.at_most(count, size) is False:
            raise ShapeError(
                f"indices have {count} along axis {place}, x has {size}",
                op=op,
                operands=rows(operands),
                expected=f"indices no longer than x on every axis but {axis}",
            )


def gather_elements(x: Tensor, indices: Operand, axis: int = 0) -> Tensor:
    """Return ``x`` read at one index per element (numpy's ``take_along_axis``). Spec: ai.onnx::GatherElements."""
    return apply("GatherElements", x, as_tensor("gather_elements", indices, x, int64), axis=axis)


@rule("GatherND")
def _gather_nd_rule(op: str, inputs: Inputs, attrs: Attrs) -> Results:
    x, indices = exactly(op, inputs, 2)
    _indices(op, indices)
    batch = attrs.get("batch_dims", 0)
    if x.known_shape is None or indices.known_shape is None:
        return [(x.dtype, None)]
    rank_at_least(op, "indices", indices, 1)
    depth = indices.shape[-1]
    if isinstance(depth, Dim):
        return [(x.dtype, None)]
    if batch + depth > len(x.shape) or batch >= min(len(x.shape), len(indices.shape)):
        raise ShapeError(
            f"indices name {depth} axes after {batch} batch axes of {len(x.shape)}",
            op=op,
            operands=rows({"x": x, "indices": indices}),
            expected="batch_dims + indices.shape[-1] <= rank of x",
        )
    _tuples_in_range(op, indices, x.shape[batch:], {"x": x, "indices": indices})
    for i in range(batch):
        same_size(op, {"x": x, "indices": indices}, "equal batch axes", x.shape[i], indices.shape[i])
    return [(x.dtype, (*indices.shape[:-1], *x.shape[batch + depth :]))]


def gather_nd(x: Tensor, indices: Operand, batch_dims: int = 0) -> Tensor:
    """Return the slices of ``x`` that index tuples in the last axis of ``indices`` name. Spec: ai.onnx::GatherND."""
    attrs: Attrs = {"batch_dims": batch_dims} if batch_dims else {}
    return apply("GatherND", x, as_tensor("gather_nd", indices, x, int64), **attrs)


@rule("ScatterND")
def _scatter_nd_rule(op: str, inputs: Inputs, attrs: Attrs) -> Results:
    x, indices, updates = exactly(op, inputs, 3)
    _indices(op, indices)
    dtype = same_dtype(op, x=x, updates=updates)
    if x.known_shape is None or indices.known_shape is None or updates.known_shape is None:
        return [(dtype, x.known_shape)]
    rank_at_least(op, "indices", indices, 1)
    operands = {"x": x, "indices": indices, "updates": updates}
    depth = indices.shape[-1]
    if isinstance(depth, int):
        if depth > len(x.shape):
            raise ShapeError(f"indices name {depth} axes of {len(x.shape)}", op=op, operands=rows(operands))
        wanted: Shape = (*indices.shape[:-1], *x.shape[depth:])
        fits = len(wanted) == len(updates.shape) and all(
            meet(a, b) is not None for a, b in zip(wanted, updates.shape, strict=True)
        )
        if not fits:
            raise ShapeError(
                f"updates are {shape_text(updates.shape)}",
                op=op,
                operands=rows(operands),
                expected=f"updates of {shape_text(wanted)}: indices' axes but the last, then x's from {depth}",
            )
        _constant_tuples(op, indices, x, attrs.get("reduction", "none"), operands)
    return [(dtype, x.shape)]


def _constant_tuples(op: str, indices: Tensor, x: Tensor, reduction: str, operands: Operands) -> None:
    """Refuse constant index tuples out of range or, without a reduction, written twice."""
    tuples = _tuples_in_range(op, indices, x.shape, operands)
    if tuples is None:
        return
    if reduction == "none":
        wrapped = tuples.copy()
        for axis in range(tuples.shape[1]):
            size = x.shape[axis]
            if isinstance(size, int):
                wrapped[:, axis] %= max(size, 1)
        if len(np.unique(wrapped, axis=0)) != len(wrapped):
            raise ShapeError(
                "one place is written twice, and which write wins is not defined",
                op=op,
                operands=rows(operands),
                expected="distinct index tuples, or a reduction",
            )


def _tuples_in_range(op: str, indices: Tensor, sizes: Shape, operands: Operands) -> np.ndarray[Any, Any] | None:
    """Return constant index tuples as a matrix, None where they are not known; refuse one out of range."""
    value = indices.value
    if value is None or value.dtype == object or value.size == 0:
        return None
    tuples: np.ndarray[Any, Any] = value.reshape(-1, value.shape[-1])
    for axis in range(tuples.shape[1]):
        size = sizes[axis]
        column = tuples[:, axis]
        if isinstance(size, int) and ((column < -size) | (column >= size)).any():
            wrong = int(column[(column < -size) | (column >= size)][0])
            raise IndexRangeError(
                f"index {wrong} of axis {axis} of size {size}",
                op=op,
                operands=rows(operands),
                expected=f"indices in [{-size}, {size})",
                index=wrong,
            )
    return tuples


def scatter_nd(x: Tensor, indices: Operand, updates: Operand, reduction: str = "none") -> Tensor:
    """Return ``x`` with the slices that index tuples name replaced by ``updates``.

    Args:
        x: ``T``.
        indices: ``int64 (..., k)``: tuples into the first ``k`` axes of ``x``.
        updates: ``T (*indices.shape[:-1], *x.shape[k:])``.
        reduction: ``none`` (tuples must be distinct), ``add``, ``mul``, ``max`` or ``min``.

    Raises:
        ShapeError: The updates do not have that shape, or constant tuples repeat without a reduction.
        IndexRangeError: A constant index is out of range.
        DTypeError: Element types differ.

    Spec: ai.onnx::ScatterND.
    """
    _reduction("scatter_nd", reduction)
    attrs: Attrs = {"reduction": reduction} if reduction != "none" else {}
    index = as_tensor("scatter_nd", indices, x, int64)
    return apply("ScatterND", x, index, as_tensor("scatter_nd", updates, x), **attrs)


def _reduction(op: str, reduction: str) -> None:
    if reduction not in ("none", "add", "mul", "max", "min"):
        raise OperandError(f"reduction is {reduction!r}", op=op, expected="none, add, mul, max or min")


@rule("ScatterElements")
def _scatter_elements_rule(op: str, inputs: Inputs, attrs: Attrs) -> Results:
    x, indices, updates = exactly(op, inputs, 3)
    _indices(op, indices)
    dtype = same_dtype(op, x=x, updates=updates)
    if x.known_shape is None or indices.known_shape is None or updates.known_shape is None:
        return [(dtype, x.known_shape)]
    operands = {"x": x, "indices": indices, "updates": updates}
    axis = axis_of(op, attrs.get("axis", 0), len(x.shape), operands=operands)
    if not len(x.shape) == len(indices.shape) == len(updates.shape) or any(
        meet(a, b) is None for a, b in zip(indices.shape, updates.shape, strict=True)
    ):
        raise ShapeError(
            f"indices {shape_text(indices.shape)} and updates {shape_text(updates.shape)}",
            op=op,
            operands=rows(operands),
            expected="indices and updates of one shape, with the rank of x",
        )
    _no_longer(op, operands, axis)
    in_range(op, indices, x.shape[axis], operands)
    return [(dtype, x.shape)]


def scatter_elements(x: Tensor, indices: Operand, updates: Operand, axis: int = 0, reduction: str = "none") -> Tensor:
    """Return ``x`` with single elements replaced along ``axis``. Spec: ai.onnx::ScatterElements."""
    _reduction("scatter_elements", reduction)
    attrs: Attrs = {"axis": axis, **({"reduction": reduction} if reduction != "none" else {})}
    index = as_tensor("scatter_elements", indices, x, int64)
    return apply("ScatterElements", x, index, as_tensor("scatter_elements", updates, x), **attrs)


def scatter_rows(buffer: Tensor, rows: Tensor, start: int | Tensor) -> Tensor:
    """Return ``buffer`` with ``rows`` written from row ``start`` on.

    Args:
        buffer: ``T (capacity, *trailing)``.
        rows: ``T (n, *trailing)``.
        start: First row to write, a Python int or ``int64 ()``; in rows.

    Raises:
        ShapeError: Trailing sizes differ, or ``start + n`` is known to pass ``capacity``.
        DTypeError: Element types differ.

    Spec: ai.onnx::ScatterND.
    """
    from lazygraph.ops.create import arange
    from lazygraph.ops.shaping import unsqueeze

    rank_at_least("scatter_rows", "buffer", buffer, 1)
    rank_at_least("scatter_rows", "rows", rows, 1)
    count = rows.shape[0]
    first = as_tensor("scatter_rows", start, buffer, int64)
    if isinstance(start, int) and start < 0:
        raise IndexRangeError(
            f"start is {start}",
            op="scatter_rows",
            operands={"buffer": describe(buffer)},
            expected="start of at least 0",
        )
    if isinstance(start, int) and dims.at_most(dims.add(start, count), buffer.shape[0]) is False:
        raise ShapeError(
            f"rows {start} to {dims.add(start, count)} of {buffer.shape[0]}",
            op="scatter_rows",
            operands={"buffer": describe(buffer), "rows": describe(rows)},
            expected="start + n <= capacity",
        )
    index = unsqueeze(arange(first, first + as_tensor("scatter_rows", count, buffer, int64)), -1)  # (n, 1)
    return scatter_nd(buffer, index, rows)
