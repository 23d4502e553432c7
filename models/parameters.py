"""A checkpoint's tensors as constants of a graph: kept in one element type, computed with in another."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from lazygraph.arrays import LazyArray
from lazygraph.dtypes import DType, float32
from lazygraph.errors import DTypeError, WeightsError
from lazygraph.models.checkpoint import WeightsUse
from lazygraph.models.program import Precision
from lazygraph.tensor import Tensor

Numbers = np.ndarray[Any, np.dtype[np.float32]]


class Parameters:
    """Makes constants of a checkpoint's tensors, converted as they stream into the export.

    Args:
        weights: The checkpoint.
        precision: What is kept and what is computed in.
    """

    def __init__(self, weights: WeightsUse, precision: Precision) -> None:
        self.weights = weights
        self.precision = precision

    def __contains__(self, name: str) -> bool:
        return name in self.weights

    def array(self, name: str, shape: tuple[int, ...]) -> LazyArray:
        """Return a tensor of the checkpoint in float32, unread, under its name there.

        Raises:
            WeightsError: It has other sizes.
            DTypeError: It holds no floating-point numbers.
        """
        found = self.weights.take(name, shape)
        if not found.dtype.is_float:
            raise DTypeError(f"weight {name!r} is {found.dtype}", op="weights", expected="floating-point numbers")
        return found if found.dtype is float32 else converted(found, float32)

    def made(self, anchor: Tensor, name: str, shape: tuple[int, ...], make: Callable[[], Numbers]) -> Tensor:
        """Return what ``make`` gives when the export asks for it, as a constant ready to compute with."""
        return self.kept(anchor, LazyArray(float32, shape, make, name)).astype(self.precision.compute)

    def kept(self, anchor: Tensor, array: LazyArray) -> Tensor:
        """Return an array as a constant in the element type that is kept."""
        return anchor.const(converted(array, self.precision.stored, self.precision.compute), array.name)

    def vector(self, anchor: Tensor, name: str, size: int) -> Tensor:
        """Return a norm's weight or a bias, ``(size,)``, ready to compute with."""
        return self.kept(anchor, self.array(name, (size,))).astype(self.precision.compute)


def converted(array: LazyArray, dtype: DType, used_as: DType | None = None) -> LazyArray:
    """Return the array in another element type, converted when it is read.

    Reading it raises ``WeightsError`` where a finite number becomes infinite, in that type or in the one that it
    is cast to when it is used.
    """
    used_as = used_as or dtype
    if array.dtype is dtype and used_as in (dtype, float32):
        return array

    def cast(numbers: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        with np.errstate(over="ignore"):
            found = numbers.astype(dtype.numpy)
            for kind, hint, option in ((used_as, "compute in", "--precision"), (dtype, "keep it in", "--store")):
                narrow = found if kind is dtype else found.astype(kind.numpy)
                if kind.bits < 32 and not np.isfinite(narrow).all() and np.isfinite(numbers).all():
                    raise WeightsError(
                        f"{kind} cannot hold every number of {array.name!r}",
                        op="weights",
                        hint=f"{hint} float32 or bfloat16: {option}",
                    )
        return found

    return array.map(array.name, dtype, array.shape, cast)
