"""Names, order and signatures: what a model file says of itself, looked at node by node."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from lazygraph.export import versions
from lazygraph.export.checking.finding import Finding
from lazygraph.ops.contrib import contrib_names
from lazygraph.ops.microsoft import DOMAIN as MICROSOFT

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, NodeProto
    from onnx.defs import OpSchema


def called(node: NodeProto) -> str:
    """Return how a node is spoken of: by its name, or by what it makes."""
    return node.name or next((name for name in node.output if name), "") or str(node.op_type)


def structure(model: ModelProto, opset: int | None = None) -> Iterator[Finding]:
    """Yield what is wrong with names, order, opsets and signatures.

    Args:
        model: The model; its weights need not be loaded.
        opset: The newest ai.onnx opset that is allowed; None for the newest that onnx knows.
    """
    yield from _versions(model, opset)
    checker = _Names(model)
    yield from checker.graph(model.graph, frozenset())
    for function in model.functions:
        for node in function.node:
            yield from checker.call(node)


def _versions(model: ModelProto, opset: int | None) -> Iterator[Finding]:
    from onnx import IR_VERSION

    if not 1 <= model.ir_version <= IR_VERSION:
        yield Finding("ir-version", f"IR version {model.ir_version}; the installed onnx knows 1 to {IR_VERSION}")
    counts = Counter("" if entry.domain == "ai.onnx" else entry.domain for entry in model.opset_import)
    for domain, count in counts.items():
        if count > 1:
            yield Finding("opset-twice", f"domain {domain or 'ai.onnx'} is imported {count} times")
    newest = versions.newest_opset()
    for entry in model.opset_import:
        if entry.domain not in ("", "ai.onnx"):
            continue
        if not 1 <= entry.version <= newest:
            yield Finding("opset-unknown", f"opset {entry.version}; the installed onnx knows 1 to {newest}")
        elif opset is not None and entry.version > opset:
            yield Finding("opset-too-new", f"opset {entry.version}; at most {opset} is allowed")


class _Names:
    """Walks the graphs of a model; each is looked at with the names of those around it."""

    def __init__(self, model: ModelProto) -> None:
        self.imported = {"" if e.domain == "ai.onnx" else e.domain: int(e.version) for e in model.opset_import}
        self.functions = {("" if f.domain == "ai.onnx" else f.domain, f.name) for f in model.functions}
        self.missing: set[str] = set()
        self.custom: set[tuple[str, str]] = set()
        self.asked: dict[object, tuple[Finding, ...]] = {}  # most calls are like one before

    def graph(self, graph: GraphProto, around: frozenset[str]) -> Iterator[Finding]:
        """Yield what is wrong in a graph and in those inside it."""
        inputs = [value.name for value in graph.input]
        weights = [tensor.name for tensor in graph.initializer]
        weights += [tensor.values.name for tensor in graph.sparse_initializer]
        for name, count in Counter(inputs).items():
            if count > 1:
                yield Finding("name-twice", f"{count} inputs are called {name!r}", name)
        for name, count in Counter(weights).items():
            if count > 1:
                yield Finding("name-initializer-twice", f"{count} initialisers are called {name!r}", name)
        for name, count in Counter(node.name for node in graph.node if node.name).items():
            if count > 1:
                yield Finding("name-node-twice", f"{count} nodes are called {name!r}", name)

        makers: dict[str, str] = dict.fromkeys((*inputs, *weights), "")
        for name in makers.keys() & around:
            yield Finding("name-hides", f"{name!r} is also a name of the graph around it", name)
        later = {name: called(node) for node in graph.node for name in node.output if name}
        read: set[str] = {value.name for value in graph.output}
        for node in graph.node:
            yield from self.call(node)
            for name in node.input:
                if name:
                    read.add(name)
                    if name not in makers and name not in around:
                        yield _unmade(name, node, later)
            if any(attribute.HasField("g") or attribute.graphs for attribute in node.attribute):
                inner = around.union(makers)
                for attribute in node.attribute:
                    for body in (*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs):
                        yield from self.graph(body, inner)
                        read.update(_captured(body))
            for name in node.output:
                if not name:
                    continue
                if name in makers:
                    before = makers[name]
                    whose = f"node {before!r}" if before else "an input or a weight"
                    yield Finding("name-twice", f"{name!r} is made here and is the name of {whose}", called(node))
                elif name in around:
                    yield Finding("name-hides", f"{name!r} is also a name of the graph around it", called(node))
                makers[name] = called(node)
        for value in graph.output:
            if value.name not in makers and value.name not in around:
                yield Finding("name-missing", f"nothing makes the output {value.name!r}", value.name)
        yield from _unread(graph, weights, read)

    def call(self, node: NodeProto) -> Iterator[Finding]:
        """Yield what is wrong with one call, taken alone."""
        attributes = tuple([(entry.name, entry.type) for entry in node.attribute]) if node.attribute else ()
        given = node.input
        left_out = bool(given) and not given[-1]
        key = (node.op_type, node.domain, len(given), left_out, len(node.output), attributes)
        if not left_out and self.asked.get(key) == ():
            return
        found = tuple(self._alone(node))
        self.asked[key] = found
        yield from found

    def _alone(self, node: NodeProto) -> Iterator[Finding]:
        domain = "" if node.domain == "ai.onnx" else node.domain
        if (domain, node.op_type) in self.functions:
            return
        version = self.imported.get(domain)
        if version is None:
            if domain not in self.missing:
                self.missing.add(domain)
                yield Finding(
                    "opset-missing", f"{node.op_type} is of {domain or 'ai.onnx'}, which is not imported", called(node)
                )
            return
        known = versions.versions_of(node.op_type, domain)
        if not known:
            yield from self._stranger(node, domain)
            return
        schema = versions.schema_at(node.op_type, domain, version)
        if schema is None:
            first = known[-1].since_version
            what = f"{node.op_type} came with opset {first}, and the model's is {version}"
            yield Finding("operator-unknown", what, called(node))
        elif schema.deprecated:
            yield Finding("operator-deprecated", f"{node.op_type} is out of use in opset {version}", called(node))
        else:
            yield from (Finding("call-signature", what, called(node)) for what in _misfits(schema, node))

    def _stranger(self, node: NodeProto, domain: str) -> Iterator[Finding]:
        if domain in ("", "ai.onnx.ml", "ai.onnx.preview.training", "ai.onnx.preview"):
            yield Finding("operator-unknown", f"no opset has an operator {node.op_type}", called(node))
        elif domain == MICROSOFT and node.op_type in contrib_names():
            return
        elif (domain, node.op_type) not in self.custom:
            self.custom.add((domain, node.op_type))
            yield Finding("operator-custom", f"{node.op_type} of {domain} needs a library that brings it", called(node))


def _unmade(name: str, node: NodeProto, later: dict[str, str]) -> Finding:
    if name in later:
        return Finding("name-order", f"it reads {name!r}, which {later[name]!r} makes further down", called(node))
    return Finding("name-missing", f"it reads {name!r}, which nothing makes", called(node))


def _captured(graph: GraphProto) -> set[str]:
    """Return every name that a graph inside reads, its own included."""
    found = {value.name for value in graph.output}
    for node in graph.node:
        found.update(node.input)
        for attribute in node.attribute:
            for body in (*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs):
                found |= _captured(body)
    return found


def _unread(graph: GraphProto, weights: list[str], read: set[str]) -> Iterator[Finding]:
    inputs = {value.name for value in graph.input}
    for name in weights:
        if name not in read and name not in inputs:
            yield Finding("weight-unused", f"nothing reads the weight {name!r}", name)
    for node in graph.node:
        if not any(name in read for name in node.output):
            yield Finding("node-unused", f"nothing reads what {node.op_type} makes", called(node))


def _misfits(schema: OpSchema, node: NodeProto) -> Iterator[str]:
    """Yield how a call departs from its operator's signature."""
    given = len(node.input)
    while given and not node.input[given - 1]:
        given -= 1
    if not schema.min_input <= given <= schema.max_input:
        yield f"{node.op_type} has {given} operands, and takes {_range(schema.min_input, schema.max_input)}"
    made = len(node.output)
    if not schema.min_output <= made <= schema.max_output:
        yield f"{node.op_type} has {made} results, and gives {_range(schema.min_output, schema.max_output)}"
    names = [attribute.name for attribute in node.attribute]
    for attribute in node.attribute:
        formal = schema.attributes.get(attribute.name)
        if formal is None:
            if not attribute.name.startswith("_"):
                yield f"{node.op_type} has no attribute {attribute.name!r} in opset {schema.since_version}"
        elif attribute.type and int(attribute.type) != _kind(formal).value and not attribute.ref_attr_name:
            yield f"attribute {attribute.name!r} of {node.op_type} is of another kind than {_kind(formal).name}"
        if names.count(attribute.name) > 1:
            yield f"attribute {attribute.name!r} of {node.op_type} is given {names.count(attribute.name)} times"
    for name, formal in schema.attributes.items():
        if formal.required and name not in names:
            yield f"{node.op_type} lacks the attribute {name!r}"


def _kind(formal: OpSchema.Attribute) -> Any:
    return formal.type


def _range(least: int, most: int) -> str:
    return str(least) if least == most else f"{least} or more" if most > 10_000 else f"{least} to {most}"


__all__ = ["called", "structure"]
