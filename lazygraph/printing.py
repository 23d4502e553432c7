"""A graph as text that reviews well, and as a small table for notebooks.

Names count per operator and scope, so that a line more or less does not rename the rest. The file has other names.
"""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np

from lazygraph.errors import spelled
from lazygraph.origins import Constant, Input, Node, same_graph, shape_text

if TYPE_CHECKING:
    from lazygraph.graph import Graph
    from lazygraph.tensor import Tensor

# Constants of so many elements are written out; of larger ones, type and shape.
_SHOWN = 8
_ROWS = 12  # of a table in a notebook


def to_text(outputs: Tensor | Mapping[str, Tensor]) -> str:
    """Return a program as text: inputs, named constants, operator calls in program order and outputs, a line each.

    The text is the same on every build of the same program, and made to be kept and compared.

    Args:
        outputs: Tensors by output name; a single tensor is called ``output``.

    Raises:
        OperandError: No outputs, or one that is no tensor.
        GraphMismatchError: They belong to different graphs.
    """
    named = outputs if isinstance(outputs, Mapping) else {"output": outputs}
    return _program_text(named, same_graph("to_text", list(named.values())))


def _program_text(outputs: Mapping[str, Tensor], graph: Graph) -> str:
    return "\n".join(_Text(outputs, graph).lines())


def graph_text(graph: Graph) -> str:
    """Return the text of all results that are still held: what no other operator call reads."""
    return _program_text(_held(graph), graph)


def tensor_html(tensor: Tensor) -> str:
    """Return a line for a notebook: element type, shape and where it comes from."""
    origin = tensor.origin
    source = f"{origin.op}" if isinstance(origin, Node) else f"input {origin.name}" if isinstance(origin, Input) else ""
    source = source or ("constant" if isinstance(origin, Constant) else "body input")
    at = f" <small>{escape(str(origin.at))}</small>" if origin.at else ""
    return f"<code>{tensor.dtype}{escape(_shape(tensor))}</code> from <b>{escape(source)}</b>{at}"


def graph_html(graph: Graph) -> str:
    """Return a small table for a notebook: the inputs, and the results that are still held."""
    rows = [("input", name, tensor) for name, tensor in graph.inputs.items()]
    rows += [("result", name, tensor) for name, tensor in _held(graph).items()]
    cells = [
        f"<tr><td>{kind}</td><td>{escape(name)}</td><td><code>{tensor.dtype}{escape(_shape(tensor))}</code></td></tr>"
        for kind, name, tensor in rows[:_ROWS]
    ]
    more = f"<tr><td colspan=3>and {len(rows) - _ROWS} more</td></tr>" if len(rows) > _ROWS else ""
    return f"<table>{''.join(cells)}{more}</table>"


def ends_html(source: str, inputs: Mapping[str, Tensor], outputs: Mapping[str, Tensor], weights: int) -> str:
    """Return a table for a notebook: what goes into a model and what comes out."""
    rows = [("input", name, tensor) for name, tensor in inputs.items()]
    rows += [("output", name, tensor) for name, tensor in outputs.items()]
    cells = [
        f"<tr><td>{kind}</td><td>{escape(name)}</td><td><code>{tensor.dtype}{escape(_shape(tensor))}</code></td></tr>"
        for kind, name, tensor in rows[:_ROWS]
    ]
    more = f"<tr><td colspan=3>and {len(rows) - _ROWS} more</td></tr>" if len(rows) > _ROWS else ""
    caption = f"<caption>{escape(source)}: {weights:,} weights</caption>"
    return f"<table>{caption}{''.join(cells)}{more}</table>"


def _held(graph: Graph) -> dict[str, Tensor]:
    """Return the results that something outside the graph may still use: the graph itself keeps no list of nodes."""
    gc.collect()
    tensor_type = graph.makes
    found = [item for item in gc.get_objects() if type(item) is tensor_type and item.graph is graph]
    nodes = {tensor.origin for tensor in found if isinstance(tensor.origin, Node)}
    read = {id(operand) for node in nodes for operand in node.needs()}
    ends = [
        tensor
        for node in sorted(nodes, key=lambda node: node.serial)
        if not any(id(tensor) in read for tensor in node.outputs)
        for tensor in node.outputs
    ]
    return {f"result_{i}" if len(ends) > 1 else "result": tensor for i, tensor in enumerate(ends)}


class _Text:
    """Collects what the outputs need, names it, and writes the lines."""

    def __init__(self, outputs: Mapping[str, Tensor], graph: Graph) -> None:
        self.graph = graph
        self.outputs = outputs
        self.names: dict[object, str] = {tensor.origin: name for name, tensor in graph.inputs.items()}
        self.taken = set(graph.inputs)
        self.counts: dict[str, int] = {}

    def lines(self) -> Iterator[str]:
        nodes, constants = _reached(self.outputs.values())
        for constant in constants:
            if constant.name:
                self.names[constant] = self._free(constant.name)
        for node in nodes:
            self.names[node] = self._fresh(node.scope, spelled(node.op))
            for body in node.bodies:
                for tensor in body.inputs:
                    self.names[tensor.origin] = self._fresh(node.scope, "item")
        yield "graph" + (f" (opset {self.graph.opset})" if self.graph.opset is not None else "")
        for name, tensor in self.graph.inputs.items():
            yield f"  input   {name}: {tensor.dtype}{_shape(tensor)}"
        for constant in constants:
            if constant.name:
                yield f"  weight  {self.names[constant]}: {_stored(constant)}"
        yield from self._calls(nodes)
        for name, tensor in self.outputs.items():
            yield f"  output  {name} = {self._ref(tensor)}: {tensor.dtype}{_shape(tensor)}"

    def _calls(self, nodes: Sequence[Node]) -> Iterator[str]:
        scope = ""
        for node in nodes:
            if node.scope != scope:
                scope = node.scope
                yield f"  # {scope or 'no scope'}"
            yield f"  {self._call(node)}"

    def _call(self, node: Node) -> str:
        operands = ["None" if tensor is None else self._ref(tensor) for tensor in node.inputs]
        while operands and operands[-1] == "None":
            operands.pop()
        attributes = [f"{name}={_value(value)}" for name, value in sorted(node.attrs.items())]
        bodies = [f"{body.name}=({', '.join(map(self._ref, body.outputs))})" for body in node.bodies]
        results = ", ".join(f"{tensor.dtype}{_shape(tensor)}" for tensor in node.outputs)
        op = f"{node.domain}.{node.op}" if node.domain else node.op
        return f"{self.names[node]} = {op}({', '.join([*operands, *attributes, *bodies])}): {results}"

    def _ref(self, tensor: Tensor) -> str:
        origin = tensor.origin
        if isinstance(origin, Constant) and not origin.name:
            return _literal(origin)
        name = self.names[origin]
        return f"{name}.{tensor.index}" if isinstance(origin, Node) and not origin.single else name

    def _fresh(self, scope: str, base: str) -> str:
        prefix = f"{scope}/{base}" if scope else base
        while True:
            count = self.counts.get(prefix, 0)
            self.counts[prefix] = count + 1
            name = f"{prefix}_{count}" if count else prefix
            if name not in self.taken:
                self.taken.add(name)
                return name

    def _free(self, name: str) -> str:
        while name in self.taken:
            name += "_"
        self.taken.add(name)
        return name


def _reached(outputs: Iterable[Tensor]) -> tuple[list[Node], list[Constant]]:
    """Return the nodes and constants that the outputs need, in program order."""
    seen: set[object] = set()
    nodes: list[Node] = []
    constants: list[Constant] = []
    waiting = list(outputs)
    while waiting:
        origin = waiting.pop().origin
        if origin in seen:
            continue
        seen.add(origin)
        if isinstance(origin, Node):
            nodes.append(origin)
            waiting += origin.needs()
        elif isinstance(origin, Constant):
            constants.append(origin)
    return sorted(nodes, key=lambda node: node.serial), sorted(constants, key=lambda constant: constant.serial)


def _shape(tensor: Tensor) -> str:
    if tensor.dtype.element is not None:
        return ""
    return " (unknown)" if tensor.known_shape is None else f" {shape_text(tensor.known_shape)}"


def _stored(constant: Constant) -> str:
    array = constant.array
    return f"{_dtype(array)} {shape_text(array.shape)}"


def _dtype(array: Any) -> str:
    return "string" if str(array.dtype) == "object" else str(array.dtype)


def _literal(constant: Constant) -> str:
    """Return a constant as it would be written in the call."""
    array = constant.array
    if not isinstance(array, np.ndarray) or array.size > _SHOWN:
        return f"<{_stored(constant)}>"
    text = repr(array.tolist()) if array.dtype.kind in "iub" else str(array.tolist())
    return text if array.dtype.name in ("int64", "float32", "bool") else f"{_dtype(array)}({text})"


def _value(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return str(value.tolist()) if value.size <= _SHOWN else f"<{_dtype(value)} {shape_text(value.shape)}>"
    if isinstance(value, float):
        return f"{value:.7g}"
    return repr(list(value)) if isinstance(value, (list, tuple)) else repr(value)


__all__ = ["ends_html", "graph_html", "graph_text", "tensor_html", "to_text"]
