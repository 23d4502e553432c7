"""From a file to tensors: ``load`` reads a model and builds its graph call by call, checked like any other."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from lazygraph.errors import LazyGraphError, LoadError, UnsupportedError
from lazygraph.export import versions
from lazygraph.export.declared import Sizes
from lazygraph.export.external import Contents
from lazygraph.export.reading import Reader
from lazygraph.export.source_lines import FileLines
from lazygraph.graph import FileFacts, Graph
from lazygraph.loaded import Loaded

if TYPE_CHECKING:
    from onnx import ModelProto


def load(
    model: str | os.PathLike[str] | ModelProto | bytes,
    *,
    folder: str | os.PathLike[str] | None = None,
    opset: int | None = None,
) -> Loaded:
    """Return a model as a graph with named inputs, outputs and values, to be continued, changed and saved.

    Everything that the file says is kept for when it is saved again: names of values and calls, texts, metadata, the
    version of every domain. Weights in files beside it stay on disk until they are used. Sizes that the file names are
    no rule: two names that meet are taken for equal and noted (``loaded.equal_sizes``). Operators that nobody here
    knows pass through; what they give is what the file declares.

    Args:
        model: A path, a model, or the bytes of one.
        folder: Where weights files lie; by default beside the model's file. A model in memory has no such place.
        opset: Convert the model to this opset of ai.onnx first, with onnx's converter; None keeps the file's.

    Raises:
        LoadError: No such file, no ONNX model, a damaged one, or one that asks for a file outside its folder.
        UnsupportedError: A newer opset than onnx knows here, training information, or a conversion that onnx lacks.
        LazyGraphError: A call breaks its operator's rule; the message names the file and the call.

    Spec: onnx.proto, ModelProto.
    """
    from onnx import ModelProto

    if isinstance(model, ModelProto):
        proto, source, path = model, "a model in memory", None
    elif isinstance(model, bytes):
        proto, source, path = parsed(model, "a model in memory"), "a model in memory", None
    else:
        path = Path(model)
        source = str(path)
        proto = parsed(content_of(path), source)
    beside = Path(folder) if folder is not None else path.parent if path is not None else None
    real = path.resolve().parent if path is not None and folder is None and path.is_symlink() else None
    contents = Contents(source, beside, real)
    try:
        _require_whole(proto, contents)
        lines = FileLines.of_model(proto)
        return _graph(_converted(lines.marked(proto), opset, source), contents, lines)
    except LazyGraphError:
        raise
    except (ArithmeticError, AttributeError, LookupError, MemoryError, RecursionError, TypeError, ValueError) as error:
        # A damaged file can hold anything: a text that is no text, a size that no memory has.
        raise contents.broken(f"it cannot be read: {type(error).__name__}: {error}", "a whole model") from error


def content_of(path: Path) -> bytes:
    """Return the bytes of a model file.

    Raises:
        LoadError: It cannot be read.
    """
    try:
        return path.read_bytes()
    except OSError as error:
        raise LoadError(
            f"{path} cannot be read: {error.strerror}", op="load", expected="the path of an .onnx file", path=str(path)
        ) from error


def parsed(content: bytes, source: str) -> ModelProto:
    """Return the model that the bytes of a file mean.

    Raises:
        LoadError: They are no ONNX model.
    """
    from google.protobuf.message import DecodeError
    from onnx import ModelProto

    pointer = content.startswith(b"version https://git-lfs")
    try:
        if pointer:
            raise DecodeError
        found: ModelProto = ModelProto.FromString(content)
    except DecodeError as error:
        raise LoadError(
            f"{source} is no ONNX model, or only a part of one ({len(content)} bytes)",
            op="load",
            expected="a whole .onnx file",
            hint="a Git LFS pointer instead of the file" if pointer else "an interrupted download, or another format",
        ) from error
    return found


def _require_whole(proto: ModelProto, contents: Contents) -> None:
    """Require what every model has, and nothing that cannot be kept."""
    if not proto.HasField("graph") or not proto.opset_import:
        raise contents.broken("there is no graph, or no opset, in it", "an ONNX model", "a truncated file")
    if proto.training_info:
        raise UnsupportedError(
            "it holds training information",
            op="load",
            operands={"file": contents.source},
            expected="a model for inference",
            hint="del model.training_info[:] leaves it out",
        )
    seen: set[str] = set()
    for entry in proto.opset_import:
        domain = "" if entry.domain == "ai.onnx" else entry.domain
        if domain in seen:
            raise contents.broken(f"domain {domain or 'ai.onnx'!r} is imported twice", "each domain once")
        seen.add(domain)
        if domain == "" and not 1 <= entry.version <= versions.newest_opset():
            raise UnsupportedError(
                f"opset {entry.version}",
                op="load",
                operands={"file": contents.source},
                expected=f"opset 1 to {versions.newest_opset()}, the newest that onnx knows here",
            )


def _converted(proto: ModelProto, opset: int | None, source: str) -> ModelProto:
    from onnx import inliner, version_converter

    if proto.functions:
        inlined: ModelProto = inliner.inline_local_functions(proto)
        proto = inlined
    before = next((entry.version for entry in proto.opset_import if entry.domain in ("", "ai.onnx")), None)
    if opset is None or before is None or opset == before:
        return proto
    try:
        made: ModelProto = version_converter.convert_version(proto, opset)
    except (RuntimeError, ValueError) as error:
        raise UnsupportedError(
            f"onnx cannot convert it from opset {before} to {opset}: {error}",
            op="load",
            operands={"file": source},
            expected=f"a model whose operators are converted, or opset {before}",
        ) from error
    return made


def _graph(proto: ModelProto, contents: Contents, lines: FileLines) -> Loaded:
    domains = {"" if entry.domain == "ai.onnx" else entry.domain: int(entry.version) for entry in proto.opset_import}
    graph = Graph(domains.get(""))
    docs = {value.name: value.doc_string for value in (*proto.graph.input, *proto.graph.output) if value.doc_string}
    graph.facts = FileFacts(
        name=proto.graph.name,
        doc=proto.graph.doc_string,
        metadata={entry.key: entry.value for entry in proto.metadata_props},
        domains=domains,
        ir_version=int(proto.ir_version),
        docs=docs,
        annotations=[entry.SerializeToString() for entry in proto.graph.quantization_annotation],
    )
    reader = Reader(graph, contents, Sizes(proto.graph), lines)
    values = reader.whole(proto.graph, defaults=proto.ir_version >= 4)
    outputs = {value.name: reader.output(value) for value in proto.graph.output}
    if not outputs:
        raise contents.broken("the graph has no outputs", "at least one output")
    return Loaded(graph, graph.inputs, outputs, values, contents.source, reader.notes, reader.sizes.met)


__all__ = ["content_of", "load", "parsed"]
