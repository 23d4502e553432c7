"""Weights inside a model and in files beside it: whether they are whole, and where they lie."""

from __future__ import annotations

import os
from collections.abc import Iterator
from math import prod
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import TYPE_CHECKING

from lazygraph.dtypes import dtype_of_onnx
from lazygraph.errors import DTypeError, LoadError
from lazygraph.export.checking.finding import Finding
from lazygraph.export.external import Contents

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, TensorProto


def weights(model: ModelProto, path: Path | None) -> Iterator[Finding]:
    """Yield what is wrong with a model's weights.

    Args:
        model: The model, its external weights not loaded.
        path: The model's file; None for a model in memory.
    """
    files = _Files(path)
    contents = Contents(str(path or "a model in memory"), None if path is None else path.parent)
    for tensor in _tensors(model.graph):
        if tensor.data_location == tensor.EXTERNAL:
            yield from files.tensor(tensor)
            continue
        try:
            contents.array(tensor)
        except LoadError as error:
            yield Finding("weight-broken", error.what, tensor.name)
    yield from files.overlaps()


def _tensors(graph: GraphProto) -> Iterator[TensorProto]:
    yield from graph.initializer
    for sparse in graph.sparse_initializer:
        yield sparse.values
        yield sparse.indices
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("t"):
                yield attribute.t
            yield from attribute.tensors
            for inner in (*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs):
                yield from _tensors(inner)


class _Files:
    """The weights files of one model, each looked at once."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self.sizes: dict[str, int | None] = {}
        self.spans: dict[str, list[tuple[int, int, str]]] = {}

    def tensor(self, tensor: TensorProto) -> Iterator[Finding]:
        """Yield what is wrong with one weight in a file."""
        entries = {entry.key: entry.value for entry in tensor.external_data}
        location = entries.get("location", "")
        if location not in self.sizes:
            yield from self._file(location, tensor.name)
        try:
            dtype = dtype_of_onnx(tensor.data_type)
            offset = int(entries.get("offset") or 0)
            length = int(entries.get("length") or dtype.nbytes(prod(tensor.dims)))
        except (DTypeError, ValueError) as error:
            yield Finding("data-length", f"{tensor.name!r}: {error}", tensor.name)
            return
        wanted = dtype.nbytes(prod(tensor.dims))
        if offset < 0 or length != wanted or dtype.kind == "s" or any(size < 0 for size in tensor.dims):
            what = f"{length} bytes from byte {offset}; {dtype} {list(tensor.dims)} takes {wanted} bytes from 0 on"
            yield Finding("data-length", what, tensor.name)
            return
        size = self.sizes[location]
        if size is not None and offset + length > size:
            what = f"it ends at byte {offset + length}, and {location} has {size} bytes"
            yield Finding("data-short", what, tensor.name)
        if length:
            self.spans.setdefault(location, []).append((offset, offset + length, tensor.name))

    def _file(self, location: str, name: str) -> Iterator[Finding]:
        self.sizes[location] = None
        posix, windows = PurePosixPath(location), PureWindowsPath(location)
        leaves = any(path.anchor or ".." in path.parts for path in (posix, windows)) or "\0" in location
        if leaves or not location or not posix.parts:
            yield Finding("data-escapes", f"its weights file is {location!r}, outside the model's folder", name)
            return
        if self.path is None:
            yield Finding("data-missing", f"it lies in {location!r}, and a model in memory has no folder", name)
            return
        folders = dict.fromkeys([self.path.parent, self.path.resolve().parent])
        found = next((folder / location for folder in folders if (folder / location).is_file()), None)
        if found is None:
            yield Finding("data-missing", f"there is no file {self.path.parent / location}", name)
            return
        self.sizes[location] = found.stat().st_size
        # A hub keeps the model and its weights as links into one folder: that leaves no folder of its own.
        homes = [folder.resolve() for folder in folders]
        real = found.resolve()
        if not any(real.is_relative_to(home) for home in homes):
            yield Finding("data-link", f"{location} is a link to {real}; onnxruntime and onnx refuse it", location)
        if os.stat(found).st_nlink > 1:
            yield Finding("data-linked-twice", f"{location} has {os.stat(found).st_nlink} names (hard links)", location)

    def overlaps(self) -> Iterator[Finding]:
        """Yield weights that share a part of their bytes; the same bytes twice are one weight of two names."""
        for location, spans in self.spans.items():
            distinct = sorted({(start, end): name for start, end, name in spans}.items())
            reach, holder = 0, ""
            for (start, end), name in distinct:
                if start < reach:
                    yield Finding("data-overlap", f"it shares bytes of {location} with {holder!r}", name)
                if end > reach:
                    reach, holder = end, name


__all__ = ["weights"]
