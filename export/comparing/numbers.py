"""Weights of two models against each other, a piece at a time."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from lazygraph.arrays import LazyArray
from lazygraph.export.external import Contents

if TYPE_CHECKING:
    from onnx import ModelProto, TensorProto

Array = np.ndarray[Any, Any]
PIECE = 2**20  # elements compared at once


class Weights:
    """The weights of one model by name; those in a file are read when they are compared.

    Args:
        model: The model.
        path: Its file; None for a model in memory.
    """

    def __init__(self, model: ModelProto, path: Path | None) -> None:
        folder = None if path is None else path.parent
        real = path.resolve().parent if path is not None and path.is_symlink() else None
        self._contents = Contents(str(path or "a model in memory"), folder, real)
        self.tensors: dict[str, TensorProto] = {tensor.name: tensor for tensor in model.graph.initializer}
        for node in model.graph.node:  # a Constant is a weight by another way of writing
            if node.op_type == "Constant" and len(node.attribute) == 1 and node.attribute[0].name == "value":
                self.tensors.setdefault(node.output[0], node.attribute[0].t)

    def kind(self, name: str) -> tuple[int, tuple[int, ...]]:
        """Return element type and shape."""
        tensor = self.tensors[name]
        return int(tensor.data_type), tuple(tensor.dims)

    def array(self, name: str) -> Array:
        """Return the numbers; those of a file are not read before they are touched.

        Raises:
            LoadError: They are missing, or fewer than the shape says.
        """
        found = self._contents.array(self.tensors[name])
        return found.read() if isinstance(found, LazyArray) else found


def _pieces(array: Array) -> Iterator[Array]:
    flat = array.reshape(-1)
    for start in range(0, max(flat.size, 1), PIECE):
        yield flat[start : start + PIECE]


def difference(before: Array, after: Array, rtol: float, atol: float) -> tuple[int, float, int] | None:
    """Return how two arrays of one type and shape differ: how many elements, the largest difference, and its place.

    Args:
        before: The one.
        after: The other.
        rtol: Tolerance relative to the one's size.
        atol: Absolute tolerance.

    Returns:
        None where no element differs by more than ``atol + rtol * abs(before)``; NaN equals NaN.
    """
    count, largest, place, start = 0, 0.0, 0, 0
    for a, b in zip(_pieces(before), _pieces(after), strict=True):
        if a.dtype != object and a.tobytes() == b.tobytes():
            start += a.size
            continue
        if a.dtype == object or a.dtype.kind == "b":
            off = a != b
            gap = off.astype(np.float64)
        else:
            wide = np.complex128 if a.dtype.kind == "c" else np.float64
            x, y = a.astype(wide), b.astype(wide)
            with np.errstate(invalid="ignore", over="ignore"):
                gap = np.abs(x - y)
                off = ~(np.isfinite(gap) & (gap <= atol + rtol * np.abs(x))) & ~((x == y) | (np.isnan(x) & np.isnan(y)))
            exact = a.dtype.kind in "iu" and rtol == 0 and atol == 0
            off = off | (a != b) if exact else off  # float64 cannot tell large integers apart
            gap = np.where(np.isnan(gap), np.inf, gap)
        if off.any():
            gap = np.where(off, gap, -1)
            if gap.max() > largest or not count:
                largest, place = float(gap.max()), start + int(gap.argmax())
            count += int(off.sum())
        start += a.size
    return (count, largest, place) if count else None


__all__ = ["PIECE", "Weights", "difference"]
