"""Rows of a slot, as tensors: where new ones go, which count, which may be attended."""

from __future__ import annotations

from lazygraph import dims, ops
from lazygraph.dims import Size
from lazygraph.memory import Lowering
from lazygraph.ops.shaping import sizes_tensor
from lazygraph.tensor import Graph, Tensor


def rows_bound(graph: Graph, lowering: Lowering, length: Size, capacity: int) -> Size:
    """Return the rows of an input that holds a slot: all, a number that the caller chooses, or those that count."""
    if lowering == "buffer":
        return capacity
    return length if lowering == "concat" else graph.size(dims.size("rows", 1, capacity))


def row_index(anchor: Tensor, length: Size, count: Size) -> Tensor:
    """Return where ``count`` rows after ``length`` go, as ScatterND takes it: ``int64 (count, 1)``."""
    return ops.unsqueeze(ops.arange(length, dims.add(length, count), anchor=anchor), 1)


def active(buffer: Tensor, length: Size, capacity: int) -> Tensor:
    """Return the first ``length`` rows of a buffer of ``capacity`` rows, at least one.

    Spec: ai.onnx::Slice ``[0:max(1, length)]`` on axis 0.
    """
    rows = dims.largest(1, length)
    return buffer if rows == capacity else first_rows(buffer, rows)


def first_rows(buffer: Tensor, rows: Size) -> Tensor:
    """Return the first ``rows`` rows of a buffer, which has as many.

    Spec: ai.onnx::Slice.
    """
    if rows == buffer.shape[0]:
        return buffer
    ends = sizes_tensor("slot", [rows], buffer)
    graph = buffer.graph
    # Emitted with the shape that the contract promises: that the rows stay within the capacity is checked before
    # (integer position) or by whoever runs the graph, and needs no min() in every size downstream.
    operands = (buffer, graph.ints((0,)), ends, graph.ints((0,)))
    return graph.emit("Slice", operands, {}, [(buffer.dtype, (rows, *buffer.shape[1:]))])[0]


def rows_visible(buffer: Tensor, length: Size, count: Size, all_bound: bool) -> Tensor:
    """Return which rows each of ``count`` new rows may attend, ``bool (count, rows)``: ``j <= length + i``.

    Args:
        buffer: A slot's buffer.
        length: Rows that count before the step.
        count: Rows that the step adds.
        all_bound: Whether attention reads all bound rows, or those that count after the step.
    """
    rows = buffer.shape[0] if all_bound else dims.largest(1, dims.add(length, count))
    columns = ops.arange(0, rows, anchor=buffer)  # (rows,)
    last = ops.arange(length, dims.add(length, count), anchor=buffer)  # (count,)
    return columns <= ops.unsqueeze(last, 1)


__all__ = ["active", "first_rows", "row_index", "rows_bound", "rows_visible"]
