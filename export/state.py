"""A decoder's state in a file: the rows that count, in the safetensors layout, bound to the model that made them.

The file holds one tensor per slot, ``past.<layer>.<slot>`` of shape ``[length, *trailing]``, and in its metadata the
fingerprint of the model, the length, and the SHA-256 of all rows: nothing of another model or damaged is ever restored.
"""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

import numpy as np

from lazygraph.errors import ExportError
from lazygraph.export import files
from lazygraph.export.manifest import Manifest

Bytes = np.ndarray[Any, np.dtype[np.uint8]]

KIND = "lazygraph-decoder-1"
# safetensors' names of element types.
_TYPES = {
    "float64": "F64",
    "float32": "F32",
    "float16": "F16",
    "bfloat16": "BF16",
    "int8": "I8",
    "uint8": "U8",
    "float8_e4m3fn": "F8_E4M3",
    "float8_e5m2": "F8_E5M2",
}
# What safetensors allows a header to have.
_HEADER_LIMIT = 100_000_000


def write_state(place: Path, manifest: Manifest, length: int, rows: Callable[[], Iterable[tuple[str, Bytes]]]) -> None:
    """Write the rows that count to a file, whole or not at all.

    Args:
        place: The file; its folder must exist.
        manifest: What the model is.
        length: Rows that count.
        rows: Gives every slot's input name and the bytes of its rows, in the manifest's order; called twice.

    Raises:
        ExportError: The file cannot be written; an older one there is unchanged.

    Spec: the safetensors format.
    """
    digest = hashlib.sha256()
    for _, content in rows():
        digest.update(content.data)
    facts = {
        "format": KIND,
        "fingerprint": manifest.fingerprint,
        "model_type": manifest.model_type,
        "length": str(length),
        "sha256": digest.hexdigest(),
    }
    header = json.dumps({"__metadata__": facts, **_tensors(manifest, length)}, separators=(",", ":")).encode()
    header += b" " * (-len(header) % 8)
    with files.draft(place) as draft:
        draft.file.write(struct.pack("<Q", len(header)) + header)
        for _, content in rows():
            draft.file.write(content.data)
        draft.settle()
        draft.publish()
    files.settle_folder(place.parent)


def read_state(place: Path, manifest: Manifest) -> tuple[int, dict[str, Bytes]]:
    """Return the rows that count and, per slot's input name, the bytes of its rows.

    Raises:
        ExportError: There is no such file, it is damaged or no decoder's state, or it is another model's.
    """
    try:
        with place.open("rb") as stream:
            return _read(place, stream, manifest)
    except OSError as error:
        raise ExportError(
            f"{place} cannot be read: {error.strerror or error}",
            op="restore",
            expected="a file that Decoder.save wrote",
        ) from None


def _read(place: Path, stream: BinaryIO, manifest: Manifest) -> tuple[int, dict[str, Bytes]]:
    header = _header(place, stream)
    facts = header.pop("__metadata__", None)
    if not isinstance(facts, dict) or facts.get("format") != KIND:
        raise ExportError(f"{place} is no decoder's state", op="restore", expected="a file that Decoder.save wrote")
    if facts.get("fingerprint") != manifest.fingerprint:
        raise ExportError(
            f"{place} is the state of another model",
            op="restore",
            operands={
                "file": f"{facts.get('model_type')}, model.onnx {facts.get('fingerprint')}",
                "folder": f"{manifest.model_type}, model.onnx {manifest.fingerprint}",
            },
            expected="the export whose decoder was saved",
            hint="a new export of the same checkpoint is another model: read the tokens again",
        )
    text = str(facts.get("length"))
    length = int(text) if text.isdecimal() and len(text) < 19 else -1
    if not 0 <= length <= manifest.max_seq_len or header != _tensors(manifest, length):
        _refuse_damaged(place, "its header does not fit the model")

    digest = hashlib.sha256()
    rows: dict[str, Bytes] = {}
    for source, nbytes in _sizes(manifest, length):
        content = np.frombuffer(stream.read(nbytes), np.uint8)
        if content.size != nbytes:
            _refuse_damaged(place, "it is too short")
        digest.update(content.data)
        rows[source] = content
    if stream.read(1):
        _refuse_damaged(place, "it is too long")
    if digest.hexdigest() != facts.get("sha256"):
        _refuse_damaged(place, "its rows are not those that were saved")
    return length, rows


def _header(place: Path, stream: BinaryIO) -> dict[str, Any]:
    start = stream.read(8)
    size = struct.unpack("<Q", start)[0] if len(start) == 8 else _HEADER_LIMIT + 1
    if size > _HEADER_LIMIT:
        _refuse_damaged(place, "it has no header")
    text = stream.read(size)
    if len(text) != size:
        _refuse_damaged(place, "it is too short")
    try:
        header = json.loads(text)
    except (ValueError, RecursionError):
        _refuse_damaged(place, "its header is not JSON")
    if not isinstance(header, dict):
        _refuse_damaged(place, "its header is no table")
    return dict(header)


def _refuse_damaged(place: Path, what: str) -> NoReturn:
    raise ExportError(f"{place} is damaged: {what}", op="restore", expected="the file as Decoder.save wrote it")


def _sizes(manifest: Manifest, length: int) -> Iterator[tuple[str, int]]:
    for slot in manifest.memory:
        yield slot.source, slot.bytes_per_row * length


def _tensors(manifest: Manifest, length: int) -> dict[str, Any]:
    """Return the header's entries: they follow from the model and the length alone."""
    entries: dict[str, Any] = {}
    offset = 0
    for slot in manifest.memory:
        end = offset + slot.bytes_per_row * length
        entries[slot.source] = {
            "dtype": _TYPES.get(slot.dtype, slot.dtype.upper()),
            "shape": [length, *slot.trailing],
            "data_offsets": [offset, end],
        }
        offset = end
    return entries


__all__ = ["read_state", "write_state"]
