"""A constant as a file keeps it: its bytes, packed as ONNX wants them, read when they are written."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from lazygraph.arrays import LazyArray
from lazygraph.dtypes import DType, as_dtype
from lazygraph.errors import ExportError, WeightsError
from lazygraph.tensor import Constant, Input
from lazygraph.where import Where

if TYPE_CHECKING:
    from onnx import TensorProto

# Smaller constants are compared by their bytes at once and always lie in the model file itself: runtimes look at them
# (shapes, axes) before they open any other.
SMALL_BYTES = 1024


class Stored:
    """One content: shared by every constant that has it.

    Attributes:
        key: Equal for equal content, as far as that is known without reading large arrays.
        name: The initialiser's name.
        named: Whether that is a name that the user gave.
        dtype: Element type.
        shape: Sizes.
        nbytes: Bytes in the file.
        own: Whether nothing else may share it: what an input has where nothing is fed.
        at: The user's line of the first constant.
    """

    __slots__ = ("_array", "at", "dtype", "key", "name", "named", "nbytes", "own", "shape")

    def __init__(self, array: np.ndarray[Any, Any] | LazyArray, dtype: DType, key: object, at: Where | None) -> None:
        self._array = array
        self.dtype = dtype
        self.shape = tuple(array.shape)
        self.nbytes = dtype.nbytes(array.size)
        self.key = key
        self.name = ""
        self.named = False
        self.own = False
        self.at = at

    def identity(self, digest: bytes) -> object:
        """Return what is equal for contents of which one is enough, given the digest of the packed bytes."""
        return digest, self.dtype.name, self.shape, self.name if self.own else None

    @property
    def small(self) -> bool:
        """Whether it always lies in the model file itself."""
        return self.nbytes < SMALL_BYTES or self.dtype.kind == "s"

    def read(self) -> np.ndarray[Any, Any]:
        """Return the numbers (one element per item, 4-bit ones too).

        Raises:
            WeightsError: The source cannot be read, or holds something else than it promised.
        """
        if not isinstance(self._array, LazyArray):
            return self._array
        try:
            return self._array.read()
        except OSError as error:
            raise WeightsError(f"{self.name!r} cannot be read: {error}", op="read", at=self.at) from error

    def packed(self) -> memoryview:
        """Return the bytes that the file keeps: little-endian, C order, sub-byte elements packed low bits first.

        Raises:
            ExportError: The source promised another number of bytes.
        """
        packed = pack(self.read(), self.dtype)
        if packed.nbytes != self.nbytes:
            raise ExportError(
                f"{self.name!r} has {packed.nbytes} bytes where {self.nbytes} were promised", op="save", at=self.at
            )
        return packed

    def proto(self) -> TensorProto:
        """Return the initialiser with its bytes inside."""
        from onnx import TensorProto

        tensor = TensorProto(name=self.name, data_type=self.dtype.onnx, dims=self.shape)
        if self.dtype.kind == "s":
            tensor.string_data.extend([_encoded(item) for item in self.read().ravel().tolist()])
        else:
            tensor.raw_data = bytes(self.packed())
        return tensor


def store(constant: Constant) -> Stored:
    """Return a constant's content. Small arrays are known by their bytes, large ones by key or identity."""
    array = constant.array
    if isinstance(array, LazyArray):
        key: object = ("lazy", array.key)
        return Stored(array, array.dtype, key, constant.at)
    dtype = as_dtype(array.dtype)
    if dtype.kind == "s":
        key = ("strings", array.shape, tuple(_encoded(item) for item in array.ravel().tolist()))
    elif array.nbytes < SMALL_BYTES:
        key = (dtype.name, array.shape, array.tobytes())
    else:
        key = ("array", id(array))
    return Stored(array, dtype, key, constant.at)


def store_default(origin: Input) -> Stored:
    """Return the numbers that an input has where none are fed; no other content shares them."""
    array = origin.default
    if array is None:
        raise ExportError(f"input {origin.name!r} has no default", op="export", at=origin.at)
    dtype = array.dtype if isinstance(array, LazyArray) else as_dtype(array.dtype)
    made = Stored(array, dtype, ("default", origin.name), origin.at)
    made.name, made.own = origin.name, True
    return made


def pack(array: np.ndarray[Any, Any], dtype: DType) -> memoryview:
    """Return an array's bytes as ONNX keeps them; a view where nothing has to change."""
    flat = np.ascontiguousarray(array).reshape(-1)
    if dtype.bits and dtype.bits < 8:
        per_byte = 8 // dtype.bits
        codes = flat.view(np.uint8) & np.uint8(2**dtype.bits - 1)
        if codes.size % per_byte:
            codes = np.concatenate([codes, np.zeros(-codes.size % per_byte, np.uint8)])
        packed = np.zeros(codes.size // per_byte, np.uint8)
        for place in range(per_byte):
            packed |= codes[place::per_byte] << np.uint8(place * dtype.bits)
        return packed.data
    if flat.dtype.byteorder == ">":
        flat = flat.astype(flat.dtype.newbyteorder("<"))
    return flat.view(np.uint8).data


def unpack(content: np.ndarray[Any, Any], dtype: DType, count: int) -> np.ndarray[Any, Any]:
    """Return ``count`` elements from the bytes that ONNX keeps of them; a view where nothing has to change."""
    if dtype.bits < 8:  # one byte per element; ml_dtypes reads the low bits, with the sign bits above them alike
        per_byte = 8 // dtype.bits
        mask = np.uint8(2**dtype.bits - 1)
        spread = np.stack([(content >> np.uint8(place * dtype.bits)) & mask for place in range(per_byte)], axis=-1)
        content = spread.reshape(-1)[:count]
        if dtype.kind == "i":
            high = np.uint8(1 << (dtype.bits - 1))
            content = np.where(content & high, content | ~mask, content).astype(np.uint8)
    elements = np.require(content, requirements="C").view(dtype.numpy)
    return elements if elements.flags.aligned else elements.copy()


def _encoded(item: object) -> bytes:
    return item if isinstance(item, bytes) else str(item).encode()


__all__ = ["SMALL_BYTES", "Stored", "pack", "store", "store_default", "unpack"]
