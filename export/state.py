"""A decoder's state in a file: what its slots hold, in the safetensors layout, bound to the model that made it.

The file holds one tensor per slot, ``past.<layer>.<slot>`` of shape ``[rows, *trailing]`` (a state ``[*trailing]``;
with a batch axis before them where the graph has one), and in its metadata the fingerprint of the model, the lengths,
and the SHA-256 of all that: nothing of another model or damaged is ever restored.
"""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

import numpy as np

from lazygraph.errors import ExportError
from lazygraph.export import files
from lazygraph.export.buffers import Content
from lazygraph.export.manifest import Manifest
from lazygraph.memory import Memory

KIND = "lazygraph-decoder-2"
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


@dataclass(frozen=True)
class State:
    """What a file holds.

    Attributes:
        lengths: Tokens read, per text.
        held: Per slot that is a ring, the first position beyond the sinks that each text holds.
        contents: Per slot's input name, uint8 ``(texts, rows, bytes per row)``.
    """

    lengths: tuple[int, ...]
    held: dict[str, list[int]]
    contents: dict[str, Content]


def write_state(
    place: Path,
    manifest: Manifest,
    lengths: Sequence[int],
    held: dict[str, list[int]],
    rows: Callable[[], Iterable[tuple[Memory, Content]]],
) -> None:
    """Write a state to a file, whole or not at all.

    Args:
        place: The file; its folder must exist.
        manifest: What the model is.
        lengths: Tokens read, per text.
        held: Per slot that is a ring, the first position beyond the sinks that each text holds.
        rows: Gives every slot and what it holds, uint8 ``(texts, rows, bytes per row)``; called several times.

    Raises:
        ExportError: The file cannot be written; an older one there is unchanged.

    Spec: the safetensors format.
    """
    counts = {slot.source: content.shape[1] for slot, content in rows()}
    facts = {
        "format": KIND,
        "fingerprint": manifest.fingerprint,
        "model_type": manifest.model_type,
        "length": ",".join(map(str, lengths)),
        "held": json.dumps(held, separators=(",", ":")),
    }
    digest = _digest(facts)
    for _, content in rows():
        digest.update(np.ascontiguousarray(content).data)
    facts["sha256"] = digest.hexdigest()
    listed = {"__metadata__": facts, **_tensors(manifest, len(lengths), counts)}
    header = json.dumps(listed, separators=(",", ":")).encode()
    header += b" " * (-len(header) % 8)
    with files.draft(place) as draft:
        draft.file.write(struct.pack("<Q", len(header)) + header)
        for _, content in rows():
            draft.file.write(np.ascontiguousarray(content).data)
        draft.settle()
        draft.publish()
    files.settle_folder(place.parent)


def read_state(place: Path, manifest: Manifest) -> State:
    """Return what a file holds.

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


def _read(place: Path, stream: BinaryIO, manifest: Manifest) -> State:
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
    lengths = _lengths(str(facts.get("length")), manifest)
    counts = _counts(header, manifest, lengths) if lengths else None
    if lengths is None or counts is None or header != _tensors(manifest, len(lengths), counts):
        _refuse_damaged(place, "its header does not fit the model")

    digest = _digest(facts)
    contents: dict[str, Content] = {}
    for slot in manifest.memory:
        shape = (len(lengths), counts[slot.source], slot.bytes_per_row)
        content = np.frombuffer(stream.read(prod(shape)), np.uint8)
        if content.size != prod(shape):
            _refuse_damaged(place, "it is too short")
        digest.update(content.data)
        contents[slot.source] = content.reshape(shape)
    if stream.read(1):
        _refuse_damaged(place, "it is too long")
    if digest.hexdigest() != facts.get("sha256"):
        _refuse_damaged(place, "its content is not what was saved")
    return State(lengths, json.loads(facts["held"]), contents)  # as saved: the digest covers it


def _digest(facts: dict[str, Any]) -> Any:
    """Return a digest that has seen what the rows mean; theirs follows."""
    return hashlib.sha256(f"{facts.get('length')} {facts.get('held')} ".encode())


def _lengths(text: str, manifest: Manifest) -> tuple[int, ...] | None:
    parts = text.split(",")
    if not all(part.isascii() and part.isdecimal() and len(part) < 19 for part in parts):
        return None
    lengths = tuple(map(int, parts))
    fits = max(lengths) <= manifest.max_seq_len and (manifest.batch or len(lengths) == 1)
    return lengths if fits else None


def _counts(header: dict[str, Any], manifest: Manifest, lengths: tuple[int, ...]) -> dict[str, int] | None:
    """Return the rows of each slot's tensor: they follow from the lengths, but for slots that are filled once."""
    counts = {slot.source: slot.kept_rows(max(lengths)) for slot in manifest.memory}
    for slot in manifest.memory:
        if slot.kind == "once":
            entry = header.get(slot.source)
            shape = entry.get("shape") if isinstance(entry, dict) else None
            axis = 1 if manifest.batch else 0
            rows = shape[axis] if isinstance(shape, list) and len(shape) > axis else None
            if not isinstance(rows, int) or isinstance(rows, bool) or not 0 <= rows <= slot.capacity:
                return None
            counts[slot.source] = rows
    return counts


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


def _tensors(manifest: Manifest, texts: int, counts: dict[str, int]) -> dict[str, Any]:
    """Return the header's entries: they follow from the model and how much there is of it."""
    entries: dict[str, Any] = {}
    offset = 0
    leading = [texts] if manifest.batch else []
    for slot in manifest.memory:
        count = counts[slot.source]
        end = offset + texts * count * slot.bytes_per_row
        rows = [] if slot.kind == "state" else [count]
        entries[slot.source] = {
            "dtype": _TYPES.get(slot.dtype, slot.dtype.upper()),
            "shape": [*leading, *rows, *slot.trailing],
            "data_offsets": [offset, end],
        }
        offset = end
    return entries


__all__ = ["State", "read_state", "write_state"]
