"""The user's lines in a file: written when they are asked for, read back from every file that tells them.

lazygraph keeps them in one text of the model, for which no newer IR version is needed: by source file, scope and call
the line. Files stand as they are called below the current folder or in their package, never with the path of a machine.
torch's exporter keeps a stack trace with each node; others write ``file:line`` as a node's text for people.
"""

from __future__ import annotations

import ast
import json
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lazygraph.export.program import Program
from lazygraph.where import Where, shown_file

if TYPE_CHECKING:
    from onnx import FunctionProto, GraphProto, ModelProto, NodeProto

# The model's text that holds the lines, and the text of a node that holds its own while functions are inlined.
KEY = "lazygraph.source_lines"
NODE_KEY = "lazygraph.line"
TORCH_TRACE = "pkg.torch.onnx.stack_trace"
TORCH_SCOPES = "pkg.torch.onnx.name_scopes"
TORCH_NAMESPACE = "namespace"

_DOC = re.compile(r"([^\n]+):(\d+)")
_FRAME = re.compile(r'File "([^"\n]+)", line (\d+)')
_TORCH = re.compile(r"[/\\](?:site|dist|local)-packages[/\\]torch[/\\]")
_PACKAGES = ("site-packages", "dist-packages")


# ---- writing --------------------------------------------------------------------------------------------------------


def lines_of(program: Program, everything: bool) -> dict[str, Where]:
    """Return the lines that are to be written, by name of the call.

    Args:
        program: What is written.
        everything: All that are known; otherwise those alone that the file told which the program was loaded from.
    """
    found: dict[str, Where] = {}
    for node, name in zip(program.nodes, program.node_names, strict=True):
        at = node.at if node.kept is None else node.kept.at
        if at is not None and (everything or node.kept is not None):
            found[name] = at
    if everything:
        found.update((copy.name, copy.node.at) for copy in program.copies if copy.node.at is not None)
    return found


def write(model: ModelProto, lines: Mapping[str, Where]) -> None:
    """Write the lines of the calls that the model has; a text of older ones goes."""
    kept = [entry for entry in model.metadata_props if entry.key != KEY]
    del model.metadata_props[:]
    model.metadata_props.extend(kept)
    files: dict[str, dict[str, dict[str, int]]] = {}
    spelled: dict[str, str] = {}
    for name in _names(model):
        at = lines.get(name)
        if at is None:
            continue
        file = spelled.get(at.file)
        if file is None:
            file = spelled[at.file] = portable(at.file)
        scope, _, own = name.rpartition("/")
        files.setdefault(file, {}).setdefault(scope, {})[own] = at.line
    if files:
        model.metadata_props.add(key=KEY, value=json.dumps(files, separators=(",", ":"), ensure_ascii=False))


def portable(file: str) -> str:
    """Return a file's name as others can use it: in its package, below the current folder, or its last part alone."""
    path = Path(file)
    for parent in path.parents:
        if parent.name in _PACKAGES:
            return path.relative_to(parent).as_posix()
    shown = Path(shown_file(file))
    if not shown.is_absolute():
        return shown.as_posix()
    roots = [Path(entry) for entry in sys.path if entry and path.is_relative_to(entry)]
    nearest = max(roots, key=lambda root: len(root.parts), default=path.parent)
    return path.relative_to(nearest).as_posix()


def _names(model: ModelProto) -> Iterator[str]:
    yield from _names_in(model.graph)
    for function in model.functions:
        for node in function.node:
            yield inner_name(function, node.name)


def _names_in(graph: GraphProto) -> Iterator[str]:
    for node in graph.node:
        yield node.name
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from _names_in(attribute.g)


def inner_name(function: FunctionProto, name: str) -> str:
    """Return the name by which a call in a local function is told from all others of the model."""
    return f"{function.domain}::{function.name}/{name}"


# ---- reading --------------------------------------------------------------------------------------------------------


class FileLines:
    """What a file tells of the lines that made its calls.

    Args:
        texts: The model's texts by key.
    """

    def __init__(self, texts: Mapping[str, str]) -> None:
        self._table = dict(_entries(texts.get(KEY, "")))

    @classmethod
    def of_model(cls, model: ModelProto) -> FileLines:
        """Return those of a model."""
        return cls({entry.key: entry.value for entry in model.metadata_props})

    def of(self, node: NodeProto) -> Where | None:
        """Return the line of a call; one that another program renamed is known by what it gives."""
        table = self._table
        if table:
            for name in (node.name, *node.output):
                if name in table:
                    return table[name]
        if node.metadata_props or node.doc_string:
            return _told(node)
        return None

    def by_name(self, graph: GraphProto) -> dict[str, tuple[str, Where | None]]:
        """Return by name of the call its operator and line, of those whose lines are known, in bodies too."""
        found: dict[str, tuple[str, Where | None]] = {}
        for node in graph.node:
            at = self.of(node)
            if at is not None:
                found[node.name or next(filter(None, node.output), "")] = str(node.op_type), at
            for attribute in node.attribute:
                if attribute.HasField("g"):
                    found.update(self.by_name(attribute.g))
        return found

    def told(self) -> dict[str, Where]:
        """Return by name of the call what the model's own text says, where nothing but that text is at hand."""
        return self._table

    def marked(self, model: ModelProto) -> ModelProto:
        """Return the model with the lines beside the calls of its functions, so that they outlive inlining."""
        keys = [
            (f, n)
            for f, function in enumerate(model.functions)
            for n, node in enumerate(function.node)
            if inner_name(function, node.name) in self._table
        ]
        if not keys:
            return model
        made = type(model)()
        made.CopyFrom(model)
        for f, n in keys:
            node = made.functions[f].node[n]
            at = self._table[inner_name(made.functions[f], node.name)]
            node.metadata_props.add(key=NODE_KEY, value=f"{at.file}:{at.line}")
        return made


def _entries(text: str) -> Iterator[tuple[str, Where]]:
    """Yield what the model's text says; one that another program damaged says nothing."""
    try:
        files = json.loads(text) if text else {}
    except ValueError:
        return
    for file, scopes in _items(files):
        for scope, calls in _items(scopes):
            for own, line in _items(calls):
                if type(line) is int:
                    yield f"{scope}/{own}" if scope else own, Where(file, line)


def _items(found: Any) -> Iterable[tuple[str, Any]]:
    return found.items() if isinstance(found, dict) else ()


def _told(node: NodeProto) -> Where | None:
    texts = {entry.key: entry.value for entry in node.metadata_props}
    for text in (texts.get(NODE_KEY, ""), node.doc_string):
        found = _DOC.fullmatch(text)
        if found:
            return Where(found[1], int(found[2]))
    frames = _FRAME.findall(texts.get(TORCH_TRACE, ""))
    own = [frame for frame in frames if not _TORCH.search(frame[0])]
    if not frames:
        return None
    file, line = (own or frames)[-1]
    return Where(file, int(line))


# ---- scopes ---------------------------------------------------------------------------------------------------------


def scope_of(texts: Iterable[tuple[str, str]]) -> tuple[str, ...]:
    """Return the modules around a call as torch's exporter wrote them, outermost first; none where it did not."""
    known = dict(texts)
    parts: list[str] = []
    paths = _listed(known[TORCH_SCOPES]) if TORCH_SCOPES in known else _namespace(known.get(TORCH_NAMESPACE, ""))
    around = ""
    for path in paths[:-1]:  # the last one is the call itself
        inner = path.removeprefix(f"{around}.") if around else path
        if inner:
            parts.append(inner)
        around = path or around
    return tuple(parts)


def _listed(text: str) -> list[str]:
    try:
        found = ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return []
    return [item for item in found if isinstance(item, str)] if isinstance(found, list) else []


def _namespace(text: str) -> list[str]:
    """Return the paths in ``: Model/layers.0: Layer/linear: aten.linear``; what is not of that form has none."""
    steps = text.split("/")
    return [step.partition(":")[0] for step in steps] if all(":" in step for step in steps) else []


__all__ = ["KEY", "NODE_KEY", "FileLines", "inner_name", "lines_of", "portable", "scope_of", "write"]
