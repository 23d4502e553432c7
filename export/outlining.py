"""Calls of local functions: nodes that were made in one call become one node, and equal bodies one function.

The model is complete and checked when this begins: every node of a body stands in it. What a call reads from outside
becomes its inputs, what others read of it its outputs, and its body is renamed so that equal bodies are equal texts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from lazygraph.export.program import Program
from lazygraph.export.source_lines import inner_name
from lazygraph.scopes import Call, call_of
from lazygraph.where import Where

if TYPE_CHECKING:
    from onnx import FunctionProto, GraphProto, ModelProto, NodeProto, TensorProto

# The first IR version with local functions.
IR_VERSION = 8


def outline(program: Program, model: ModelProto, lines: dict[str, Where] | None = None) -> ModelProto:
    """Make calls of what was built by local functions, in place; return the model.

    Args:
        program: What the model was lowered from; weights that only bodies read leave it.
        model: The model without its weights.
        lines: By call, the line that made it; those of the calls and bodies that are made here are added.
    """
    calls = {
        name: call
        for node, name in zip(program.nodes, program.node_names, strict=True)
        if node not in program.places and (call := call_of(node.scope)) is not None
    }
    if not calls:
        return model
    whole = {
        name
        for node, name in zip(program.nodes, program.node_names, strict=True)
        if not node.bodies and all(tensor.dtype.kind in "iub" for tensor in node.outputs)
    }
    kept = {stored.name: stored.proto() for stored in program.weights if stored.small and not stored.named}
    _Outliner(model, calls, kept, whole, {} if lines is None else lines).run()
    read = _read(model.graph)
    told = [value for value in model.graph.value_info if value.name in read]
    del model.graph.value_info[:]
    model.graph.value_info.extend(told)
    program.weights = [stored for stored in program.weights if stored.own or stored.name in read]
    model.ir_version = max(model.ir_version, IR_VERSION)
    return model


class _Outliner:
    """Works on one model: innermost calls first, so that outer bodies hold calls of inner functions."""

    def __init__(
        self,
        model: ModelProto,
        calls: dict[str, Call],
        constants: dict[str, TensorProto],
        whole: set[str],
        lines: dict[str, Where],
    ) -> None:
        self.model = model
        self.calls = calls
        self.constants = constants
        self.whole = whole
        self.lines = lines
        self.versions = {entry.domain: entry.version for entry in model.opset_import}
        self.functions: dict[bytes, FunctionProto] = {}
        self.taken: set[tuple[str, str]] = set()
        self.names: set[str] = {node.name for node in model.graph.node}

    def run(self) -> None:
        """Replace the graph's nodes, and add the functions."""
        graph = self.model.graph
        nodes = list(graph.node)
        depth = max(_depth(call) for call in self.calls.values())
        while depth:
            nodes = self._level(nodes, depth, {value.name for value in graph.output})
            depth -= 1
        del graph.node[:]
        graph.node.extend(nodes)
        self.model.functions.extend(self.functions.values())
        for domain in sorted({function.domain for function in self.functions.values()}):
            self.model.opset_import.add(domain=domain, version=1)

    def _level(self, nodes: list[NodeProto], depth: int, outputs: set[str]) -> list[NodeProto]:
        """Make one node of every call that lies so deep."""
        regions: dict[Call, list[NodeProto]] = {}
        belongs: dict[str, Call] = {}
        for node in nodes:
            call = self.calls.get(node.name)
            if call is not None and _depth(call) == depth:
                belongs[node.name] = call
                regions.setdefault(call, []).append(node)
        readers = _readers(nodes)
        made: list[NodeProto] = []
        for node in nodes:
            if node.name not in belongs:
                made.append(node)
            elif belongs[node.name] in regions:  # the first of its nodes: all of them are made here
                call = belongs[node.name]
                made += self._called(call, regions.pop(call), readers, outputs)
        return made

    def _called(
        self, made_by: Call, nodes: list[NodeProto], readers: dict[str, set[str]], outputs: set[str]
    ) -> list[NodeProto]:
        """Return what stands for a call: nodes that do not belong into its body, and the call."""
        from onnx import NodeProto

        hoisted = _hoisted(nodes, readers, self.whole)
        before = [node for node in nodes if node.name in hoisted]
        body = [node for node in nodes if node.name not in hoisted]
        for node in before:
            if made_by.around is not None:
                self.calls[node.name] = made_by.around
            else:
                self.calls.pop(node.name, None)
        if not body:
            return before
        mine = {node.name for node in body}
        given = [name for node in body for name in node.output if name]
        results = [name for name in given if name in outputs or readers.get(name, set()) - mine]
        function, inputs = self._function(made_by, body, results)
        call = NodeProto(op_type=function.name, domain=function.domain, name=self._free(made_by))
        call.input.extend(inputs)
        call.output.extend(results)
        if made_by.around is not None:
            self.calls[call.name] = made_by.around
        if made_by.at is not None:
            self.lines[call.name] = made_by.at
        return [*before, call]

    def _free(self, call: Call) -> str:
        """Return a name for a call, like those of other nodes."""
        near = f"{call.scope}/{call.name}" if call.scope else call.name
        count = 0
        while (name := f"{near}_{count}") in self.names:
            count += 1
        self.names.add(name)
        return name

    def _function(self, call: Call, body: list[NodeProto], results: list[str]) -> tuple[FunctionProto, list[str]]:
        """Return the function of a body, an equal one if there is, and what this call feeds it."""
        from onnx import FunctionProto

        made = FunctionProto(domain=call.domain)
        renamer = _Renamer(body, self.constants)
        nodes = renamer.nodes()
        made.node.extend(nodes)
        made.input.extend(renamer.inputs.values())
        made.output.extend([renamer.names[name] for name in results])
        for domain in sorted(_domains(nodes)):
            made.opset_import.add(domain=domain, version=self.versions.get(domain, 1))
        made.name = call.name
        content = made.SerializeToString(deterministic=True)
        known = self.functions.get(content)
        if known is None:
            count, name = 1, call.name
            while (call.domain, name) in self.taken:
                count += 1
                name = f"{call.name}_{count}"
            self.taken.add((call.domain, name))
            made.name = name
            known = self.functions[content] = made
            for own, before in renamer.made.items():
                if before in self.lines:
                    self.lines[inner_name(made, own)] = self.lines[before]
        return known, list(renamer.inputs)


class _Renamer:
    """Copies the nodes of a body under names that depend on the body alone."""

    def __init__(self, body: list[NodeProto], constants: dict[str, TensorProto]) -> None:
        self.body = body
        self.constants = constants
        self.names: dict[str, str] = {"": ""}
        self.made: dict[str, str] = {}
        self.inputs: dict[str, str] = {}
        self._constants: dict[str, NodeProto] = {}
        self._count = 0

    def nodes(self) -> list[NodeProto]:
        """Return the copies, with the small constants that they read before them."""
        for node in self.body:
            for name in node.output:
                if name:
                    self.names[name] = self._next("v")
        made = [self._copied(node) for node in self.body]
        return [*self._constants.values(), *made]

    def _next(self, letter: str) -> str:
        self._count += 1
        return f"{letter}{self._count}"

    def _read(self, name: str) -> str:
        """Return the body's name of what a node reads: a value of the body, a small constant, or an input."""
        from onnx import NodeProto

        found = self.names.get(name)
        if found is not None:
            return found
        constant = self.constants.get(name)
        if constant is None:
            found = self.inputs[name] = f"i{len(self.inputs)}"
        else:
            found = f"c{len(self._constants)}"
            node = NodeProto(op_type="Constant", name=found)
            node.output.append(found)
            attribute = node.attribute.add(name="value", type=4)
            attribute.t.CopyFrom(constant)
            attribute.t.ClearField("name")
            self._constants[name] = node
        self.names[name] = found
        return found

    def _copied(self, node: NodeProto, numbered: bool = True) -> NodeProto:
        from onnx import NodeProto

        made = NodeProto()
        made.CopyFrom(node)
        made.name = self._next("n") if numbered else ""
        if numbered:
            self.made[made.name] = node.name
        made.ClearField("doc_string")
        made.input[:] = [self._read(name) for name in node.input]
        made.output[:] = [self.names[name] for name in node.output]
        for attribute in made.attribute:
            if attribute.HasField("g"):
                self._rename_graph(attribute.g)
        return made

    def _rename_graph(self, graph: GraphProto) -> None:
        graph.name = "g"
        for value in graph.input:
            self.names[value.name] = value.name = self._rename(value.name)
        for tensor in graph.initializer:
            self.names[tensor.name] = tensor.name = self._rename(tensor.name)
        nodes = []
        for node in graph.node:
            for name in node.output:
                if name:
                    self._rename(name)
            nodes.append(self._copied(node))
        del graph.node[:]
        graph.node.extend(nodes)
        for value in graph.output:
            value.name = self._read(value.name)

    def _rename(self, name: str) -> str:
        found = self.names[name] = self._next("b")
        return found


def _hoisted(nodes: list[NodeProto], readers: dict[str, set[str]], whole: set[str]) -> set[str]:
    """Return the nodes that compute whole numbers of whole numbers which others read too.

    The graph keeps sizes and a cache keeps row numbers for everybody, whoever asked first: left in the first call, they
    would be its results, and its body another than that of all the others.
    """
    inside = {node.name for node in nodes}
    makers = {name: node for node in nodes for name in node.output if name}
    wanted = [node for node in nodes if any(readers.get(name, set()) - inside for name in node.output)]
    found: set[str] = set()
    for node in wanted:
        behind, waiting = set(), [node]
        while waiting:
            one = waiting.pop()
            if one.name in behind:
                continue
            behind.add(one.name)
            waiting += [makers[name] for name in one.input if name in makers]
        if behind <= whole and (behind - found):
            found |= behind
    return found


def _depth(call: Call | None) -> int:
    found = 0
    while call is not None:
        call, found = call.around, found + 1
    return found


def _readers(nodes: Iterable[NodeProto]) -> dict[str, set[str]]:
    """Return by value the names of the nodes that read it, in their bodies too."""
    found: dict[str, set[str]] = {}
    for node in nodes:
        _visit(node, lambda name, reader=node.name: found.setdefault(name, set()).add(reader))  # type: ignore[misc]
    return found


def _read(graph: GraphProto) -> set[str]:
    found = {value.name for value in graph.output}
    for node in graph.node:
        _visit(node, found.add)
    return found


def _visit(node: NodeProto, see: Callable[[str], None]) -> None:
    for name in node.input:
        if name:
            see(name)
    for attribute in node.attribute:
        if attribute.HasField("g"):
            for inner in attribute.g.node:
                _visit(inner, see)
            for value in attribute.g.output:
                see(value.name)


def _domains(nodes: Iterable[NodeProto]) -> set[str]:
    found = set()
    for node in nodes:
        found.add(node.domain)
        for attribute in node.attribute:
            if attribute.HasField("g"):
                found |= _domains(attribute.g.node)
    return found


__all__ = ["outline"]
