"""How numbers cross between Python and onnxruntime where numpy has no element type of its own for them."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from lazygraph.dtypes import IN_NUMPY, DType
from lazygraph.errors import UnsupportedError
from lazygraph.export.stored import pack, unpack

_NUMPYS_OWN = IN_NUMPY | {"string"}


def plain(dtype: DType | None) -> bool:
    """Return whether onnxruntime takes and gives numpy arrays of the type (None: not a tensor) as they are."""
    return dtype is None or dtype.name in _NUMPYS_OWN


def to_value(array: np.ndarray[Any, Any], dtype: DType | None) -> Any:
    """Return an ``OrtValue`` with the array's numbers.

    Raises:
        UnsupportedError: Texts, which onnxruntime takes only where every input and output is numpy's own.
    """
    from onnxruntime import OrtValue

    if dtype is None or dtype.kind == "s":
        raise UnsupportedError(
            f"{dtype or 'a sequence'} beside an element type that numpy lacks",
            op="run",
            expected="inputs and outputs of numbers",
        )
    array = np.ascontiguousarray(array).reshape(array.shape)
    if plain(dtype):
        return OrtValue.ortvalue_from_numpy(array)
    value = OrtValue.ortvalue_from_shape_and_type(list(array.shape), dtype.onnx, "cpu", 0)
    packed = pack(array, dtype)
    if packed.nbytes:
        ctypes.memmove(value.data_ptr(), np.frombuffer(packed, np.uint8).ctypes.data, packed.nbytes)
    return value


def to_array(value: Any, dtype: DType | None) -> np.ndarray[Any, Any]:
    """Return the numbers of an ``OrtValue`` as an array of its own, ml_dtypes' where numpy lacks the type."""
    if dtype is None or plain(dtype):
        result: np.ndarray[Any, Any] = value.numpy()
        return result
    shape = tuple(value.shape())
    count = int(np.prod(shape, dtype=np.int64))
    content = ctypes.string_at(value.data_ptr(), dtype.nbytes(count)) if count else b""
    return unpack(np.frombuffer(content, np.uint8), dtype, count).copy().reshape(shape)


__all__ = ["plain", "to_array", "to_value"]
