"""Rows of a slot, as tensors: where new ones go, and which count."""

from __future__ import annotations

from lazygraph import dims, ops
from lazygraph.dims import Size
from lazygraph.ops.shaping import sizes_tensor
from lazygraph.tensor import Tensor


def row_index(anchor: Tensor, length: Size, count: Size) -> Tensor:
    """Return where ``count`` rows after ``length`` go, as ScatterND takes it: ``int64 (count, 1)``."""
    return ops.unsqueeze(ops.arange(length, dims.add(length, count), anchor=anchor), 1)


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


__all__ = ["first_rows", "row_index"]
