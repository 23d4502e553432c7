"""Numbers of a model file: inside it, or in a file beside it that stays on disk until they are used."""

from __future__ import annotations

import os
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import TYPE_CHECKING, Any

import numpy as np

from lazygraph.arrays import LazyArray
from lazygraph.dtypes import DType, dtype_of_onnx
from lazygraph.errors import DTypeError, LoadError
from lazygraph.export.stored import unpack

if TYPE_CHECKING:
    from onnx import SparseTensorProto, TensorProto

Array = np.ndarray[Any, Any]


class Contents:
    """Reads the tensors of one model; the files that it names are opened once, and only those in its own folder.

    Args:
        source: The model's file, or how it was given; for messages.
        folder: Where files that it names lie; None where there is no such place.
        real: The folder of the file that ``source`` is a link to, looked in second: hubs keep models as links.
    """

    def __init__(self, source: str, folder: Path | None, real: Path | None = None) -> None:
        self.source = source
        self._folders = [place for place in dict.fromkeys([folder, real]) if place is not None]
        self._files: dict[str, tuple[Path, Array]] = {}

    def array(self, tensor: TensorProto) -> Array | LazyArray:
        """Return a tensor's numbers, those in another file as a LazyArray.

        Raises:
            LoadError: They are missing, too few, of no known type, or in a file that may not be read.
        """
        from onnx import TensorProto

        try:
            dtype = dtype_of_onnx(tensor.data_type)
        except DTypeError as error:
            raise self.broken(f"tensor {tensor.name!r}: {error.what}", "an element type that ONNX has") from error
        shape = tuple(tensor.dims)
        if any(size < 0 for size in shape):
            raise self.broken(f"tensor {tensor.name!r} has the shape {list(shape)}", "sizes of at least 0")
        if tensor.HasField("segment"):
            raise self.broken(f"tensor {tensor.name!r} is kept in segments", "a tensor in one piece")
        if tensor.data_location == TensorProto.EXTERNAL:
            return self._external(tensor, dtype, shape)
        return self._inside(tensor, dtype, shape)

    def sparse(self, tensor: SparseTensorProto) -> Array:
        """Return a sparse tensor's numbers as an ordinary array.

        Raises:
            LoadError: Its indices and values do not fit each other or its shape.
        """
        name, shape = tensor.values.name, tuple(tensor.dims)
        values, places = _read(self.array(tensor.values)), _read(self.array(tensor.indices))
        dense = np.zeros(shape, values.dtype)
        try:
            if places.ndim == 1:
                dense.reshape(-1)[places] = values
            else:
                dense[tuple(places.T)] = values
            if places.shape[0] != values.shape[0] or (places < 0).any():
                raise IndexError("indices and values differ in number, or an index is negative")
        except (IndexError, ValueError) as error:
            raise self.broken(f"sparse tensor {name!r}: {error}", f"indices within {list(shape)}") from error
        dense.setflags(write=False)
        return dense

    def broken(self, what: str, expected: str, hint: str = "", **rows: object) -> LoadError:
        """Return the error of a file that is not as it must be."""
        return LoadError(what, op="load", operands={"file": self.source, **rows}, expected=expected, hint=hint)

    def _inside(self, tensor: TensorProto, dtype: DType, shape: tuple[int, ...]) -> Array:
        count = int(np.prod(shape, dtype=np.int64))
        if tensor.HasField("raw_data") and dtype.kind != "s":
            content = tensor.raw_data
            if len(content) != dtype.nbytes(count):
                raise self._too_few(tensor, dtype, shape, len(content))
            return unpack(np.frombuffer(content, np.uint8), dtype, count).reshape(shape)
        if dtype.kind == "s":
            items = list(tensor.string_data)
            if len(items) != count:
                raise self._too_few(tensor, dtype, shape, len(items))
            texts = np.empty(count, dtype=object)
            texts[:] = [_text(item) for item in items]
            return texts.reshape(shape)

        from onnx import numpy_helper

        try:
            found = numpy_helper.to_array(tensor)
            array = np.asarray(found.astype(dtype.numpy) if found.dtype != dtype.numpy else found).reshape(shape)
        except (ValueError, TypeError, NotImplementedError) as error:
            raise self.broken(f"tensor {tensor.name!r}: {error}", f"{count} elements of {dtype}") from error
        array.setflags(write=False)
        return array

    def _too_few(self, tensor: TensorProto, dtype: DType, shape: tuple[int, ...], given: int) -> LoadError:
        count = int(np.prod(shape, dtype=np.int64))
        unit = "texts" if dtype.kind == "s" else "bytes"
        wanted = count if dtype.kind == "s" else dtype.nbytes(count)
        return self.broken(
            f"tensor {tensor.name!r} has {given} {unit}", f"{wanted} {unit} for {dtype} {list(shape)}", "a damaged file"
        )

    # ---- other files ------------------------------------------------------------------------------------------------

    def _external(self, tensor: TensorProto, dtype: DType, shape: tuple[int, ...]) -> LazyArray:
        entries = {entry.key: entry.value for entry in tensor.external_data}
        location = entries.get("location", "")
        count = int(np.prod(shape, dtype=np.int64))
        try:
            offset = int(entries.get("offset") or 0)
            length = int(entries.get("length") or dtype.nbytes(count))
        except ValueError as error:
            raise self.broken(f"tensor {tensor.name!r}: {error}", "offset and length in bytes") from error
        if dtype.kind == "s" or offset < 0 or length != dtype.nbytes(count):
            raise self.broken(
                f"tensor {tensor.name!r} lies at byte {offset} with {length} bytes of {location!r}",
                f"{dtype.nbytes(count)} bytes for {dtype} {list(shape)}, from byte 0 on",
            )
        file, content = self._file(location, tensor.name)
        if offset + length > content.size:
            raise self.broken(
                f"the weights file {file.name} is too short: {content.size} bytes, and {tensor.name!r} ends at byte "
                f"{offset + length}",
                "the weights file that was saved with the model",
                "an interrupted download or copy",
                weights=file,
            )

        def load() -> Array:
            return unpack(content[offset : offset + length], dtype, count).reshape(shape)

        return LazyArray(dtype, shape, load, name=tensor.name, key=(str(file), offset, length, dtype.name, shape))

    def _file(self, location: str, name: str) -> tuple[Path, Array]:
        """Return a weights file as bytes that are read when they are touched.

        The file stays open: saving over the model that was loaded may remove it under its name.
        """
        known = self._files.get(location)
        if known is not None:
            return known
        posix, windows = PurePosixPath(location), PureWindowsPath(location)
        leaves = any(path.anchor or ".." in path.parts for path in (posix, windows)) or "\0" in location
        if not location or leaves or not posix.parts:
            raise self.broken(
                f"tensor {name!r} is sent to {location!r}, outside the model's folder",
                "a relative path without '..'",
                "a file from somebody else must not choose what is read here",
            )
        if not self._folders:
            raise self.broken(
                f"tensor {name!r} lies in {location!r}, and a model in memory has no folder",
                "a model whose weights are inside it, or the folder",
                "lg.load(path) finds the file beside the model; lg.load(model, folder=...) says where it is",
            )
        places = [folder / location for folder in self._folders]
        file = next((place for place in places if place.is_file()), None)
        if file is None:
            raise self.broken(
                f"the weights file {location!r} does not exist",
                "the weights file beside the model, as it was saved",
                "move or copy the two files together",
                **{f"looked at{' too' * i}": os.path.abspath(place) for i, place in enumerate(places)},
            )
        try:
            content: Array = np.memmap(file, np.uint8, "r") if file.stat().st_size else np.empty(0, np.uint8)
        except OSError as error:
            raise self.broken(f"the weights file {file} cannot be read: {error.strerror}", "a file") from error
        found = self._files[location] = file, content
        return found


def _read(array: Array | LazyArray) -> Array:
    return array.read() if isinstance(array, LazyArray) else array


def _text(item: bytes) -> str | bytes:
    try:
        return item.decode()
    except UnicodeDecodeError:
        return item


__all__ = ["Contents"]
