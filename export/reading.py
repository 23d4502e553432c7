"""Reads a ``GraphProto`` into a graph: its inputs, weights and calls, those of the graphs inside it too."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from lazygraph import dims
from lazygraph.arrays import LazyArray
from lazygraph.dtypes import DType, dtype_of_onnx, untold
from lazygraph.errors import DTypeError, LazyGraphError
from lazygraph.export.declared import Sizes, declared_dtype
from lazygraph.export.external import Contents
from lazygraph.export.source_lines import NODE_KEY, FileLines
from lazygraph.graph import Graph
from lazygraph.ops.attributes import NAMES_A_DTYPE
from lazygraph.ops.core import Results, add_node
from lazygraph.ops.deduce import body_input_types, narrowed, results_of
from lazygraph.origins import Body, BodyInput, Kept, Node, Raw, describe, shape_text
from lazygraph.scopes import current_scope
from lazygraph.tensor import Shape, Tensor
from lazygraph.where import user_line

if TYPE_CHECKING:
    from onnx import AttributeProto, GraphProto, NodeProto, ValueInfoProto

Told = tuple[DType, "Shape | None"]


class _Scope:
    """The names of one graph of the file, and of those around it.

    Attributes:
        values: What each name stands for so far.
        outputs: The graph's output names.
        told: What the file declares of values.
        later: The call that makes each name.
    """

    def __init__(self, proto: GraphProto, around: _Scope | None = None) -> None:
        self.values: dict[str, Tensor] = {} if around is None else dict(around.values)
        self.outputs = {value.name for value in proto.output}
        self.told = {value.name: value for value in (*proto.value_info, *proto.output)}
        self.later = {name: node for node in proto.node for name in node.output if name}
        self._own: set[str] = set()

    def define(self, name: str, tensor: Tensor) -> bool:
        """Give a name to a value; return whether the graph had none of that name."""
        fresh = name not in self._own
        self._own.add(name)
        self.values[name] = tensor
        return fresh


class Reader:
    """Builds the calls of one model.

    Attributes:
        notes: What could be passed over.
        sizes: What the file's sizes mean.
    """

    def __init__(self, graph: Graph, contents: Contents, sizes: Sizes, lines: FileLines) -> None:
        self.graph = graph
        self.contents = contents
        self.sizes = sizes
        self._lines = lines
        self.notes: list[str] = []
        self._at = user_line()
        self._branches = 0

    def whole(self, proto: GraphProto, defaults: bool) -> dict[str, Tensor]:
        """Read the model's graph; return all its values by name.

        Args:
            proto: The graph.
            defaults: Whether an initialiser that is an input too is its default; before IR version 4 every initialiser
                had to be one.
        """
        scope = _Scope(proto)
        weights = dict(self._weights(proto))
        for value in proto.input:
            default = weights.pop(value.name, None) if defaults else weights.get(value.name)
            if defaults or default is None:
                self._input(value, default)
        for name, tensor in self.graph.inputs.items():
            self._define(scope, name, tensor)
        for name, array in weights.items():
            self._weight(scope, name, array)
        self._know_sizes()
        self._calls(proto, scope)
        self._values = scope.values
        return scope.values

    def _know_sizes(self) -> None:
        """Let the sizes that the inputs name be meant where somebody continues the graph."""
        for tensor in self.graph.inputs.values():
            for size in tensor.known_shape or ():
                for atom in dims.atoms(size):
                    if atom.met is not None:
                        self.graph.sizes[atom.text] = dims.Dim({(atom,): 1})

    def output(self, value: ValueInfoProto) -> Tensor:
        """Return what an output of the model gives, which its declaration must not contradict."""
        tensor = self._values.get(value.name)
        if tensor is None:
            raise self.contents.broken(f"nothing makes the output {value.name!r}", "a call that makes each output")
        told = self._told(value)
        if told is None:
            return tensor
        dtype, shape = told
        if dtype is not tensor.dtype and untold not in (dtype, tensor.dtype):
            raise DTypeError(
                f"the output {value.name!r} is declared {dtype}, and is {tensor.dtype}",
                op="load",
                operands={"file": self.contents.source, value.name: describe(tensor)},
                expected="the element type that the graph gives",
            )
        ours = tensor.known_shape
        if shape is not None and ours is not None:
            pairs = list(zip(ours, shape, strict=False))
            if len(ours) != len(shape) or any(dims.equal(a, b) is False for a, b in pairs):
                self.notes.append(f"output {value.name!r} is declared {shape_text(shape)}, and is {shape_text(ours)}")
        return tensor

    # ---- inputs and weights -----------------------------------------------------------------------------------------

    def _weights(self, proto: GraphProto) -> Iterator[tuple[str, np.ndarray[Any, Any] | LazyArray]]:
        seen: set[str] = set()
        for tensor in proto.initializer:
            self._once(tensor.name, seen)
            yield tensor.name, self.contents.array(tensor)
        for sparse in proto.sparse_initializer:
            self._once(sparse.values.name, seen)
            yield sparse.values.name, self.contents.sparse(sparse)

    def _once(self, name: str, seen: set[str]) -> None:
        if not name or name in seen:
            what = f"two initialisers are called {name!r}" if name else "an initialiser has no name"
            raise self.contents.broken(what, "a name of its own for each")
        seen.add(name)

    def _input(self, value: ValueInfoProto, default: np.ndarray[Any, Any] | LazyArray | None) -> None:
        if not value.name or value.name in self.graph.inputs:
            what = f"two inputs are called {value.name!r}" if value.name else "an input has no name"
            raise self.contents.broken(what, "a name of its own for each")
        dtype, shape = self._told(value) or (untold, None)
        if dtype is untold:
            raise self.contents.broken(f"the input {value.name!r} has no element type", "a type for every input")
        self.graph.add_input(value.name, dtype, shape, default)

    def _weight(self, scope: _Scope, name: str, array: np.ndarray[Any, Any] | LazyArray) -> None:
        """Add a constant; one that is an output too leaves the name to that."""
        called = None if name in scope.outputs else self.graph.free_name(name)
        self._define(scope, name, self.graph.constant(array, called))

    def _define(self, scope: _Scope, name: str, tensor: Tensor) -> None:
        if not scope.define(name, tensor):
            raise self.contents.broken(f"two values are called {name!r}", "a name of its own for each value")

    def _told(self, value: ValueInfoProto) -> Told | None:
        """Return the type that a file declares for a value; None where it declares none."""
        if value.type.WhichOneof("value") is None:
            return None
        try:
            dtype = declared_dtype(value.type)
        except DTypeError as error:
            raise self.contents.broken(
                f"{value.name!r} is declared as {value.type.WhichOneof('value')}: {error.what}",
                "a tensor, a sequence or an optional of an element type that ONNX has",
            ) from error
        return dtype, self.sizes.shape(value.type) if dtype.element is None else None

    # ---- calls ------------------------------------------------------------------------------------------------------

    def _calls(self, proto: GraphProto, scope: _Scope) -> None:
        for node in proto.node:
            try:
                self._call(node, scope)
            except LazyGraphError as error:
                if "node" not in error.operands:
                    rows = {name: row for name, row in error.operands.items() if name != "file"}
                    error.operands = {"file": self.contents.source, "node": _called(node), **rows}
                raise

    def _call(self, node: NodeProto, scope: _Scope) -> None:
        domain = "" if node.domain == "ai.onnx" else node.domain
        if node.op_type == "Constant" and domain == "" and self._constant(node, scope):
            return
        inputs = tuple([self._operand(name, scope) if name else None for name in node.input])
        attrs: dict[str, Any] = {}
        graphs: list[AttributeProto] = []
        for attribute in node.attribute:
            if attribute.name in attrs or any(attribute.name == other.name for other in graphs):
                raise self.contents.broken(
                    f"attribute {attribute.name!r} is given twice", "each once", node=_called(node)
                )
            if attribute.HasField("g"):
                graphs.append(attribute)
            else:
                attrs[attribute.name] = self._attribute(attribute)
        bodies = tuple([self._body(attribute, node, inputs, attrs, scope) for attribute in _ordered(graphs)])
        if not any(node.output):
            raise self.contents.broken("the call gives nothing", "at least one output", node=_called(node))

        facts = self.graph.facts
        version = None if facts is None else facts.domains.get(domain)
        results = self._results(node, domain, inputs, attrs, bodies, version)
        declared = [self._told(scope.told[name]) if name in scope.told else None for name in node.output]
        results = [narrowed(found, said) for found, said in zip(results, declared, strict=True)]
        outputs = add_node(self.graph, node.op_type, inputs, attrs, results, domain)
        made = outputs[0].origin
        if isinstance(made, Node):
            at = self._lines.of(node)
            made.bodies, made.at = bodies, at or self._at
            made.kept = Kept(
                node.name,
                tuple(node.output),
                node.doc_string,
                tuple((entry.key, entry.value) for entry in node.metadata_props if entry.key != NODE_KEY),
                at=at,
            )
        for name, tensor in zip(node.output, outputs, strict=True):
            if name:
                self._define(scope, name, tensor)

    def _results(
        self,
        node: NodeProto,
        domain: str,
        inputs: tuple[Tensor | None, ...],
        attrs: dict[str, Any],
        bodies: tuple[Body, ...],
        version: int | None,
    ) -> Results:
        """Return what a call gives. What lazygraph refuses and onnx does not may run: it is passed over, and noted.

        So may what stands in a branch: which of two branches fits is often decided by the shapes that they read.
        """
        given = (self.graph, node.op_type, domain, inputs, attrs, len(node.output), bodies, version)
        try:
            return results_of(*given)
        except LazyGraphError as error:
            try:
                found = results_of(*given, own=False)
            except LazyGraphError:
                if not self._branches:
                    raise error from None
                found = [(untold, None)] * len(node.output)
            self.notes.append(f"{_called(node)}: {error.what}")
            return found

    def _operand(self, name: str, scope: _Scope) -> Tensor:
        found = scope.values.get(name)
        if found is not None:
            return found
        later = scope.later.get(name)
        if later is not None:
            raise self.contents.broken(
                f"it reads {name!r}, which {_called(later)} makes further down",
                "calls in an order in which they can run",
            )
        raise self.contents.broken(
            f"it reads {name!r}, which nothing makes", "an input, a weight or a result before it"
        )

    def _constant(self, node: NodeProto, scope: _Scope) -> bool:
        """Read a Constant as a weight; return whether it is of a kind that can be one."""
        if len(node.attribute) != 1 or len(node.output) != 1 or node.input:
            return False
        array = self._numbers(node.attribute[0])
        if array is not None:
            self._weight(scope, node.output[0], array)
        return array is not None

    def _numbers(self, attribute: AttributeProto) -> np.ndarray[Any, Any] | LazyArray | None:
        if attribute.name == "value" and attribute.HasField("t"):
            return self.contents.array(attribute.t)
        if attribute.name == "sparse_value" and attribute.HasField("sparse_tensor"):
            return self.contents.sparse(attribute.sparse_tensor)
        value = self._attribute(attribute)
        kinds: dict[str, Any] = {"float": np.float32, "int": np.int64, "string": object}
        kind = kinds.get(attribute.name.removeprefix("value_").removesuffix("s"))
        return None if kind is None or isinstance(value, Raw) else np.array(value, dtype=kind)

    def _attribute(self, attribute: AttributeProto) -> Any:
        """Return an attribute as a Python value; as the file has it where Python has none."""
        kinds = type(attribute)
        kind = attribute.type
        if kind == kinds.INT:
            number = int(attribute.i)
            if attribute.name in NAMES_A_DTYPE and number:
                try:
                    return dtype_of_onnx(number)
                except DTypeError:
                    return number
            return number
        if kind == kinds.FLOAT:
            return float(attribute.f)
        if kind == kinds.STRING:
            return _text(attribute.s)
        if kind == kinds.INTS:
            return [int(item) for item in attribute.ints]
        if kind == kinds.FLOATS:
            return [float(item) for item in attribute.floats]
        if kind == kinds.STRINGS:
            return [_text(item) for item in attribute.strings]
        if kind == kinds.TENSOR:
            array = self.contents.array(attribute.t)
            return array.read() if isinstance(array, LazyArray) else array
        return Raw(attribute.SerializeToString())

    # ---- graphs inside the graph ------------------------------------------------------------------------------------

    def _body(
        self,
        attribute: AttributeProto,
        node: NodeProto,
        inputs: tuple[Tensor | None, ...],
        attrs: dict[str, Any],
        around: _Scope,
    ) -> Body:
        proto = attribute.g
        scope = _Scope(proto, around)
        given = body_input_types(node.op_type, inputs, attrs, len(proto.input), self.graph.opset)
        made: list[Tensor] = []
        for value, found in zip(proto.input, given, strict=True):
            dtype, shape = narrowed(found, self._told(value))
            if dtype is untold:
                raise self.contents.broken(f"the body's input {value.name!r} has no element type", "a type for it")
            origin = BodyInput(value.name, current_scope(), self.graph.next_serial(), self._at)
            made.append(Tensor(self.graph, dtype, shape, origin, 0))
            self._define(scope, value.name, made[-1])
        for name, array in self._weights(proto):
            self._weight(scope, name, array)
        self._branches += node.op_type == "If"
        self._calls(proto, scope)
        self._branches -= node.op_type == "If"
        missing = [value.name for value in proto.output if value.name not in scope.values]
        if missing:
            raise self.contents.broken(f"nothing makes the body's output {missing[0]!r}", "a call that makes it")
        return Body(attribute.name, tuple(made), tuple(scope.values[value.name] for value in proto.output))


def _ordered(graphs: Iterable[AttributeProto]) -> list[AttributeProto]:
    """Return a call's graphs with that of ``then`` before that of ``else``."""
    return sorted(graphs, key=lambda attribute: (attribute.name == "else_branch", attribute.name))


def _called(node: NodeProto) -> str:
    name = node.name or next((name for name in node.output if name), "")
    return f"{node.op_type} {name!r}" if name else str(node.op_type)


def _text(item: bytes) -> str | bytes:
    try:
        return item.decode()
    except UnicodeDecodeError:
        return item


__all__ = ["Reader"]
