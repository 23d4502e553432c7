"""Tensors of a Hugging Face folder: ``model.safetensors``, or an index and its shards, read when they are needed."""

from __future__ import annotations

import json
from collections import Counter
from functools import partial
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any, NamedTuple

import numpy as np

from lazygraph.arrays import LazyArray
from lazygraph.dtypes import DType, as_dtype
from lazygraph.errors import UnsupportedError, WeightsError
from lazygraph.models.files import absent, asking_line, read_json, require

_SINGLE = "model.safetensors"
_INDEX = "model.safetensors.index.json"

# Source: safetensors/src/tensor.rs, enum Dtype. Its packed 4 and 6 bit types have no one-element-one-item numpy form.
_DTYPES = {
    "BOOL": "bool",
    "U8": "uint8",
    "I8": "int8",
    "F8_E5M2": "float8_e5m2",
    "F8_E4M3": "float8_e4m3fn",
    "F8_E8M0": "float8_e8m0fnu",
    "F8_E4M3FNUZ": "float8_e4m3fnuz",
    "F8_E5M2FNUZ": "float8_e5m2fnuz",
    "I16": "int16",
    "U16": "uint16",
    "F16": "float16",
    "BF16": "bfloat16",
    "I32": "int32",
    "U32": "uint32",
    "F32": "float32",
    "C64": "complex64",
    "F64": "float64",
    "I64": "int64",
    "U64": "uint64",
}


class _Place(NamedTuple):
    file: Path
    code: str
    shape: tuple[int, ...]
    offset: int  # bytes from the start of the file


class SafetensorsWeights:
    """The tensors of a folder in the hub's layout, under their checkpoint names.

    Args:
        folder: Holds ``model.safetensors``, or ``model.safetensors.index.json`` and the shards that it names, or one
            file ``*.safetensors`` of any name. Links are followed.

    Raises:
        WeightsError: No such file, more than one and no index, a truncated or malformed file, an index that names an
            absent shard, a tensor that its shard lacks, or a path that leaves the folder.

    Source: https://github.com/huggingface/safetensors, "Format".
    """

    def __init__(self, folder: str | Path) -> None:
        self.path = Path(folder)
        self._places = _places(self.path)

    def names(self) -> tuple[str, ...]:
        """Return the tensors' names, sorted."""
        return tuple(self._places)

    def array(self, name: str) -> LazyArray:
        """Return one tensor: dtype and shape as stored, numbers memory-mapped when ``read`` is called.

        Raises:
            WeightsError: The checkpoint has no such tensor.
            UnsupportedError: Its element type has no numpy form here.
        """
        place = self._places.get(name)
        if place is None:
            raise absent(name, self._places, self.path)

        if place.code not in _DTYPES:
            raise UnsupportedError(
                f"tensor {name!r} is {place.code}",
                op="array",
                operands={"file": place.file},
                expected="one of " + ", ".join(_DTYPES),
                at=asking_line(),
            )
        dtype = as_dtype(_DTYPES[place.code])
        return LazyArray(dtype, place.shape, partial(_map, name, place, dtype), name=name, key=(str(place.file), name))

    @property
    def main_dtype(self) -> str:
        """The element type that most bytes have, as numpy and ml_dtypes call it."""
        sizes: Counter[str] = Counter()
        for place in self._places.values():
            dtype = _DTYPES.get(place.code)
            bits = as_dtype(dtype).bits if dtype else 4
            sizes[dtype or place.code] += bits * _count(place.shape)
        return sizes.most_common(1)[0][0] if sizes else "no tensors"

    def __repr__(self) -> str:
        return f"SafetensorsWeights({str(self.path)!r}: {len(self._places)} tensors)"


def _places(folder: Path) -> dict[str, _Place]:
    """Return where each tensor lies, by name in sorted order."""
    if (folder / _SINGLE).is_file():
        return dict(sorted(_header(folder / _SINGLE).items()))
    if (folder / _INDEX).is_file():
        return _indexed(folder)

    files = sorted(folder.glob("*.safetensors"))
    if len(files) == 1:
        return dict(sorted(_header(files[0]).items()))
    raise WeightsError(
        f"{len(files)} files *.safetensors and no index say which is the model" if files else "no safetensors file",
        op="open",
        operands={"folder": folder} | {f"file {number}": file.name for number, file in enumerate(files)},
        expected=f"{_SINGLE}, or {_INDEX} with its shards, or one *.safetensors",
        hint=_other_formats(folder),
        at=asking_line(),
    )


def _other_formats(folder: Path) -> str:
    for pattern in ("*.bin", "*.pt", "*.pth", "*.msgpack", "*.h5"):
        for file in sorted(folder.glob(pattern)):
            return f"{file.name} is of a format that is not read; convert it with transformers' save_pretrained"
    return ""


def _indexed(folder: Path) -> dict[str, _Place]:
    index = folder / _INDEX
    shard_of = read_json(index).get("weight_map")
    if not isinstance(shard_of, dict):
        raise WeightsError(
            f"{_INDEX} has no weight_map",
            op="open",
            operands={"file": index},
            expected="a weight_map from tensor names to shards",
            at=asking_line(),
        )

    headers: dict[str, dict[str, _Place]] = {}
    places: dict[str, _Place] = {}
    for name, shard in sorted(shard_of.items()):
        if shard not in headers:
            headers[shard] = _header(_inside(folder, name, shard))
        if name not in headers[shard]:
            raise WeightsError(
                f"tensor {name!r} is not in the shard that the index names",
                op="open",
                operands={"index": index, "shard": folder / shard},
                hint="index and shards come from different downloads",
                at=asking_line(),
                missing=(name,),
            )
        places[name] = headers[shard][name]
    return places


def _inside(folder: Path, name: str, shard: object) -> Path:
    """Return a shard's path. The rule is about the text, not the target: the hub's own cache is made of links."""
    rows = {"index": folder / _INDEX, "tensor": name, "shard": repr(shard)}
    pure = (PurePosixPath(shard), PureWindowsPath(shard)) if isinstance(shard, str) and shard else ()
    if not pure or any(path.anchor or ".." in path.parts for path in pure):
        raise WeightsError(
            f"the index sends tensor {name!r} outside its folder",
            op="open",
            operands=rows,
            expected="a relative path without '..'",
            at=asking_line(),
        )
    path = folder / str(shard)
    if not path.is_file():
        raise WeightsError(
            f"shard {shard!r} of tensor {name!r} does not exist",
            op="open",
            operands=rows,
            hint="an interrupted download, or a link whose target is gone",
            at=asking_line(),
        )
    return path


def _header(file: Path) -> dict[str, _Place]:
    """Return what a file's header says, after its claims were held against the file."""
    require("safetensors")
    from safetensors import SafetensorError, safe_open

    try:
        with file.open("rb") as stream:
            size = stream.seek(0, 2)
            stream.seek(0)
            length = int.from_bytes(stream.read(8), "little")
            if size < 8 or length > size - 8:
                raise _broken(file, f"its header claims {length} bytes and the file has {max(size - 8, 0)} after it")
            header = json.loads(stream.read(length))
    except OSError as error:
        raise _broken(file, str(error.strerror or error)) from error
    except (ValueError, RecursionError) as error:
        if isinstance(error, WeightsError):
            raise
        raise _broken(file, f"its header is not JSON: {error}") from error

    # A tensor that reaches past the end is named here; everything else that the format forbids (gaps, overlaps,
    # sizes that do not fit the shape) is the library's to find.
    places: dict[str, _Place] = {}
    for name, entry in header.items() if isinstance(header, dict) else ():
        if name == "__metadata__":
            continue
        try:
            begin, end = (int(offset) for offset in entry["data_offsets"])
            place = _Place(file, str(entry["dtype"]), tuple(int(n) for n in entry["shape"]), 8 + length + begin)
        except (KeyError, TypeError, ValueError) as error:
            raise _broken(file, f"the entry of tensor {name!r} is malformed: {entry!r}") from error
        if 8 + length + end > size:
            raise _broken(file, f"tensor {name!r} ends at byte {8 + length + end} of {size}: the file is truncated")
        places[name] = place

    try:
        with safe_open(file, framework="numpy"):
            pass
    except (SafetensorError, OSError) as error:
        raise _broken(file, str(error)) from error
    return places


def _broken(file: Path, what: str) -> WeightsError:
    return WeightsError(
        f"{file.name} is not a whole safetensors file: {what}",
        op="open",
        operands={"file": file},
        hint="an interrupted download, or a Git LFS pointer instead of the file",
        at=asking_line(),
    )


def _map(name: str, place: _Place, dtype: DType) -> np.ndarray[Any, Any]:
    """Return a tensor as a read-only view of the file: pages are read when touched and dropped with the view."""
    count = _count(place.shape)
    try:
        flat = np.memmap(place.file, dtype=dtype.numpy, mode="r", offset=place.offset, shape=(count,))
    except (OSError, ValueError) as error:
        raise WeightsError(
            f"tensor {name!r} cannot be read any more: {error}",
            op="read",
            operands={"file": place.file},
            hint="the file changed since the checkpoint was opened",
            at=asking_line(),
        ) from error
    aligned: np.ndarray[Any, Any] = np.require(flat, requirements="A")
    return aligned.reshape(place.shape)


def _count(shape: tuple[int, ...]) -> int:
    count = 1
    for size in shape:
        count *= size
    return count
