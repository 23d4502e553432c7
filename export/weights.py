"""The weights file: one after the other, aligned, each content once."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, TypeAlias

from lazygraph.export import wire
from lazygraph.export.stored import Stored

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, TensorProto

# Called with what is being written, bytes done and bytes in all.
Progress: TypeAlias = "Callable[[str, int, int], None]"

# More weights than this go to a file of their own.
INLINE_BYTES = 50_000_000
# What protobuf can hold in one message.
PROTO_BYTES = 2**31 - 1
# Large weights start on a page, so that a runtime maps them without a copy; small ones on a cache line.
PAGE = 4096
LINE = 64
LARGE = 64 * 1024
_CHUNK = 16 * 2**20


class WeightsFile:
    """Streams weights into an open file, one at a time, and knows where each went."""

    def __init__(self, file: BinaryIO, total: int, progress: Progress | None) -> None:
        self._file = file
        self._total = total
        self._progress = progress
        self._end = 0
        self._done = 0
        self._places: dict[object, tuple[int, Stored]] = {}
        self._whole = hashlib.sha256()

    @property
    def digest(self) -> str:
        """The hexadecimal digest of what was written."""
        return self._whole.hexdigest()

    def add(self, stored: Stored) -> tuple[int, Stored]:
        """Write one weight; return its offset and the weight that stands for this content."""
        packed = stored.packed()
        content = _digest(packed)
        key = stored.identity(content)
        found = self._places.get(key)
        self._done += stored.nbytes
        if found is None:
            alignment = PAGE if stored.nbytes >= LARGE else LINE
            start = -(-self._end // alignment) * alignment
            self._file.write(bytes(start - self._end))
            for place in range(0, stored.nbytes, _CHUNK):
                self._file.write(packed[place : place + _CHUNK])
            self._end = start + stored.nbytes
            self._whole.update(f"{start} ".encode() + content)
            found = self._places[key] = start, stored
        if self._progress is not None:
            self._progress(stored.name, self._done, self._total)
        return found


def external_proto(stored: Stored, location: str, offset: int) -> TensorProto:
    """Return an initialiser whose bytes lie in another file."""
    from onnx import TensorProto

    tensor = TensorProto(name=stored.name, data_type=stored.dtype.onnx, dims=stored.shape)
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in (("location", location), ("offset", str(offset)), ("length", str(stored.nbytes))):
        tensor.external_data.add(key=key, value=value)
    return tensor


def inline(model: ModelProto, weights: list[Stored], progress: Progress | None = None) -> None:
    """Put the weights into the model, each content once."""
    seen: dict[object, Stored] = {}
    renamed: dict[str, str] = {}
    total, done = sum(stored.nbytes for stored in weights), 0
    waiting: list[bytes] = []
    held = 0
    for stored in weights:
        done += stored.nbytes
        packed = None if stored.dtype.kind == "s" else stored.packed()
        if packed is not None and not stored.small:
            first = seen.setdefault(stored.identity(_digest(packed)), stored)
            if first is not stored:
                renamed[stored.name] = first.name
                continue
        if packed is None:
            waiting.append(wire.packed(wire.field(wire.INITIALIZER, wire.letters(stored.proto().SerializeToString()))))
        else:
            waiting.append(wire.tensor(stored.name, stored.dtype.onnx, stored.shape, packed))
        held += stored.nbytes
        if held > _CHUNK:
            model.graph.MergeFromString(b"".join(waiting))
            waiting, held = [], 0
        if progress is not None:
            progress(stored.name, done, total)
    model.graph.MergeFromString(b"".join(waiting))
    rename_operands(model, renamed)


def locations(model: Path) -> set[str]:
    """Return the names of the files that a model's file reads its weights from; empty where it is none."""
    from google.protobuf.message import DecodeError
    from onnx import ModelProto

    # A model with weights beside it is small; a link's weights are somebody else's.
    if model.is_symlink() or not model.is_file() or model.stat().st_size > 2**28:
        return set()
    try:
        proto = ModelProto.FromString(model.read_bytes())
    except DecodeError:
        return set()
    entries = [entry for tensor in proto.graph.initializer for entry in tensor.external_data]
    return {entry.value for entry in entries if entry.key == "location"}


def _digest(content: bytes | memoryview) -> bytes:
    return hashlib.sha256(content).digest()


def rename_operands(model: ModelProto, renamed: dict[str, str]) -> None:
    """Let the nodes read other names, those in bodies too."""
    if renamed:
        _rename(model.graph, renamed)


def _rename(graph: GraphProto, renamed: dict[str, str]) -> None:
    for node in graph.node:
        for i, name in enumerate(node.input):
            if name in renamed:
                node.input[i] = renamed[name]
        for attribute in node.attribute:
            if attribute.HasField("g"):
                _rename(attribute.g, renamed)


__all__ = [
    "INLINE_BYTES",
    "LARGE",
    "LINE",
    "PAGE",
    "PROTO_BYTES",
    "Progress",
    "WeightsFile",
    "external_proto",
    "inline",
    "locations",
    "rename_operands",
]
