"""Arrays that stay where they are until somebody needs their numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from lazygraph.dtypes import DType, DTypeLike, as_dtype
from lazygraph.errors import WeightsError


class LazyArray:
    """An array known by dtype and shape, read when its numbers are needed (a checkpoint's tensor, usually).

    Args:
        dtype: Element type of what ``load`` returns.
        shape: Its sizes.
        load: Returns the numbers; called once per use and never kept, so that weights stream.
        name: How messages call it.
        key: Two arrays of equal key hold the same numbers (one is stored for both). None: known by identity.
    """

    __slots__ = ("dtype", "key", "load", "name", "shape")

    def __init__(
        self,
        dtype: DTypeLike,
        shape: tuple[int, ...],
        load: Callable[[], np.ndarray[Any, Any]],
        name: str = "",
        key: object = None,
    ) -> None:
        self.dtype: DType = as_dtype(dtype)
        self.shape = tuple(int(size) for size in shape)
        self.load = load
        self.name = name
        self.key = key if key is not None else id(self)

    @property
    def size(self) -> int:
        """Elements."""
        count = 1
        for size in self.shape:
            count *= size
        return count

    @property
    def nbytes(self) -> int:
        """Bytes."""
        return self.dtype.nbytes(self.size)

    def read(self) -> np.ndarray[Any, Any]:
        """Return the numbers as a C-contiguous array of the promised dtype and shape.

        Raises:
            WeightsError: The source holds something else than it promised.
        """
        if not self.size:
            return np.empty(self.shape, self.dtype.numpy)
        array = np.ascontiguousarray(self.load()).reshape(self.shape)
        if array.dtype != self.dtype.numpy:
            raise WeightsError(f"{self.name or 'array'} promised {self.dtype} and holds {array.dtype.name}", op="read")
        return array

    def map(self, name: str, dtype: DTypeLike, shape: tuple[int, ...], change: Callable[[Any], Any]) -> LazyArray:
        """Return the array that ``change`` makes of this one, as lazily (a transpose, a cast, a slice of rows)."""
        source = self
        key = self.key, name, as_dtype(dtype).name, tuple(shape)
        return LazyArray(dtype, shape, lambda: change(source.read()), name=name, key=key)

    def __repr__(self) -> str:
        return f"LazyArray({self.name or '?'}: {self.dtype} {self.shape})"
