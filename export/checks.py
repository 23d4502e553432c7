"""The second opinion: onnx's own checker and shape inference against what lazygraph knows, without weights' bytes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from lazygraph import dims
from lazygraph.dims import Dim, Size
from lazygraph.dtypes import DType, dtype_of_onnx, int64, untold
from lazygraph.errors import ExportError, ShapeError
from lazygraph.export import versions, wire
from lazygraph.export.lower import type_of
from lazygraph.export.program import Program
from lazygraph.export.stored import Stored
from lazygraph.tensor import Node, Shape, Tensor, describe, shape_text

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, ValueInfoProto

# Calls that onnx infers wrongly: operator, the attribute whose absence brings the fault, and the evidence. Their
# results stand as lazygraph says; what is computed from them is checked all the same. A test shows each fault.
FAULTS: dict[tuple[str, str], tuple[str, str]] = {
    ("", "STFT"): ("onesided", "onnx 1.23 takes the default to be 0, all bins; the spec says 1, half of them"),
    ("", "MeanVarianceNormalization"): (
        "axes",
        "onnx 1.23 rejects it in strict mode: its body's Constant gets no value",
    ),
}
_FAULTY = {op for _, op in FAULTS}

# What onnx says where it follows numbers wrongly: it takes those of a (4, 1) and a (1, 6) operand for lists of 4 and 6
# numbers that must be equally long. The model is then judged by its shapes alone.
DATA_FAULT = "Invalid rank for"

# Weights of at most so many elements take part with their numbers: shapes and axes.
SHOWN = 1024


def check(program: Program, model: ModelProto) -> None:
    """Ask onnx what it thinks of a lowered program.

    Args:
        program: What was lowered.
        model: Its model, still without initialisers; unchanged afterwards.

    Raises:
        ExportError: onnx refuses the model, or infers another type or shape than lazygraph.
    """
    if any(tensor.dtype is untold for node in program.nodes for tensor in node.outputs):
        return  # onnx judges no model in which a value has no type
    content, types = _checkable(program, model)
    if content:
        _second_opinion(program, content, types)


def declared_shapes(program: Program) -> None:
    """Require the declared output shapes to be possible.

    Raises:
        ShapeError: A declared rank or size is not what the graph gives.
    """
    for name, declared in program.declared.items():
        tensor = program.outputs[name]
        shape = tensor.known_shape
        if shape is None:
            continue
        if len(shape) != len(declared):
            _refuse_declared(name, tensor, declared, f"{len(declared)} axes declared, {len(shape)} given")
        for axis, (ours, said) in enumerate(zip(shape, declared, strict=True)):
            if not _may_declare(ours, said):
                _refuse_declared(name, tensor, declared, f"axis {axis} is declared as {said}, and is {ours}")


def _may_declare(ours: Size, said: Size) -> bool:
    """Return whether a size may be declared so: equal, a new name for it, or a number that only the run can tell."""
    if dims.equal(ours, said):
        return True
    if dims.is_unknown(ours):
        return dims.equal(ours, said) is not False
    return False


def _refuse_declared(name: str, tensor: Tensor, declared: Shape, what: str) -> None:
    raise ShapeError(
        f"output {name!r}: {what}",
        op="outputs",
        operands={name: describe(tensor), "declared": shape_text(declared)},
        expected="a declared shape that the graph gives",
    )


# ---- the model that is checked ------------------------------------------------------------------------------------


def _checkable(program: Program, model: ModelProto) -> tuple[bytes, bytes]:
    """Return a copy with weights as inputs and no node that onnx cannot judge; and lazygraph's types for every value.

    The second goes behind the first: protobuf merges what it reads twice. The first is empty where nothing is left to
    check.
    """
    from onnx import ModelProto

    graph = model.graph
    unseen = {node for node in program.nodes if (node.domain or node.op in _FAULTY) and _opaque(node)}
    inputs, values = [wire.packed(wire.field(wire.GRAPH, fields)) for fields in _told(program, unseen)]
    if unseen or graph.value_info or any(_without_rank(output) for output in graph.output):
        copy = ModelProto()
        copy.CopyFrom(model)
        graph = copy.graph
        del graph.value_info[:]
        copy.MergeFromString(inputs + values)
        if unseen:
            _cut(copy, {name for node, name in zip(program.nodes, program.node_names, strict=True) if node in unseen})
        _give_ranks(program, graph, unseen)
        shaped = [output for output in graph.output if not _without_rank(output)]
        if len(shaped) < len(graph.output):  # onnx's checker asks for a rank, which only the run can tell
            del graph.output[:]
            graph.output.extend(shaped)
        model, inputs, values = copy, b"", b""
    if not graph.node or not graph.output:
        return b"", b""
    content: bytes = model.SerializeToString()
    return content + inputs, values


def _told(program: Program, unseen: set[Node]) -> tuple[str, str]:
    """Return the fields of the graph that onnx is told and the file does not have: for weights, and types of values."""
    types = _Types()
    shown = [stored.proto().SerializeToString() for stored in program.weights if _shown(stored) and not stored.own]
    inputs = [wire.field(wire.INITIALIZER, wire.letters(content)) for content in shown]
    values: list[str] = []
    for stored in program.weights:
        if not _shown(stored) and not stored.own:
            inputs.append(wire.value(wire.INPUT, stored.name, types.kind(stored.dtype, stored.shape)))
    named, placed = program.outputs, program.places
    known = types.by_place
    for node, name, tensor in _values(program):
        kind = known.get((id(tensor.known_shape), tensor.dtype.onnx)) or types.kind(tensor.dtype, tensor.known_shape)
        if node in unseen:
            inputs.append(wire.value(wire.INPUT, name, kind))
        elif name not in named and node not in placed:
            values.append(wire.value(wire.VALUE_INFO, name, kind))
    return "".join(inputs), "".join(values)


def _give_ranks(program: Program, graph: GraphProto, unseen: set[Node]) -> None:
    """Make what nodes beyond onnx give, and has no known rank, by a Reshape to an unknown shape: no input may be so."""
    sources = [
        (name, tensor) for node, name, tensor in _values(program) if node in unseen and tensor.known_shape is None
    ]
    if not sources:
        return
    without = {name for name, _ in sources}
    inputs = [value for value in graph.input if value.name not in without]
    nodes = list(graph.node)
    del graph.input[:], graph.node[:]
    graph.input.extend(inputs)
    for name, tensor in sources:
        graph.input.add(name=f"{name}.elements", type=type_of(tensor.dtype, (dims.unknown("n"),)))
        graph.input.add(name=f"{name}.shape", type=type_of(int64, (dims.unknown("r"),)))
        graph.node.add(op_type="Reshape", input=[f"{name}.elements", f"{name}.shape"], output=[name])
    graph.node.extend(nodes)


def _without_rank(output: ValueInfoProto) -> bool:
    return output.type.HasField("tensor_type") and not output.type.tensor_type.HasField("shape")


class _Types:
    """``type`` fields of a ``ValueInfoProto``, as letters: most types recur, and are encoded once."""

    def __init__(self) -> None:
        self._types: dict[object, str] = {}
        self.by_place: dict[tuple[int, int], str] = {}

    def kind(self, dtype: DType, shape: Shape | None) -> str:
        """Return the field of a type; the shape must live as long as this."""
        place = id(shape), dtype.onnx
        kind = self.by_place.get(place)
        if kind is None:
            key = shape, dtype.onnx
            kind = self._types.get(key)
            if kind is None:
                kind = self._types[key] = wire.field(2, wire.letters(type_of(dtype, shape).SerializeToString()))
            self.by_place[place] = kind
        return kind


def _shown(stored: Stored) -> bool:
    elements = 1
    for size in stored.shape:
        elements *= size
    return stored.dtype.kind in "iub" and elements <= SHOWN


def _opaque(node: Node) -> bool:
    if node.domain and not versions.versions_of(node.op, node.domain):
        return True
    fault = FAULTS.get((node.domain, node.op))
    return fault is not None and fault[0] not in node.attrs


def _cut(copy: ModelProto, opaque: set[str]) -> None:
    """Take out the nodes, whose results are inputs by now; outputs that they made are left out of the check."""
    _without(copy.graph, opaque)
    inputs = {value.name for value in copy.graph.input}
    kept = [output for output in copy.graph.output if output.name not in inputs]
    del copy.graph.output[:]
    copy.graph.output.extend(kept)


def _without(graph: GraphProto, opaque: set[str]) -> None:
    """Take nodes out of a graph and the graphs inside it, by their names."""
    for i in reversed(range(len(graph.node))):
        if graph.node[i].name in opaque:
            del graph.node[i]
            continue
        for attribute in graph.node[i].attribute:
            if attribute.HasField("g"):
                _without(attribute.g, opaque)


def _second_opinion(program: Program, content: bytes, types: bytes) -> None:
    """Let onnx check the structure and infer every value again; it must not contradict what it was told."""
    from onnx import ModelProto, checker, shape_inference

    try:
        checker.check_model(content)
        try:
            shape_inference.infer_shapes(content + types, check_type=True, strict_mode=True, data_prop=True)
        except shape_inference.InferenceError as error:
            if DATA_FAULT not in str(error):
                raise
            shape_inference.infer_shapes(content + types, check_type=True, strict_mode=True, data_prop=False)
    except (checker.ValidationError, shape_inference.InferenceError) as error:
        _explain(program, ModelProto.FromString(content))
        raise _located(program, error) from error


def _explain(program: Program, model: ModelProto) -> None:
    """Raise the error of the first value that onnx sees otherwise, if there is one: infer without being told."""
    from onnx import shape_inference

    del model.graph.value_info[:]
    for output in model.graph.output:
        output.ClearField("type")
    try:
        inferred = shape_inference.infer_shapes(model, data_prop=True)
    except shape_inference.InferenceError:
        return
    answers = {value.name: value for value in (*inferred.graph.value_info, *inferred.graph.output)}
    for node, name, tensor in _values(program):
        if name in answers:
            _require_same(node, name, tensor, answers[name])


def _located(program: Program, error: Exception) -> ExportError:
    """Return onnx's complaint as an error on the line of the node that it names."""
    text = str(error)
    for name, (op, at) in program.lines().items():
        if f"node name: {name})" in text or f"name: {name} " in text or f"name: {name}\n" in text:
            return ExportError(f"onnx refuses it: {text.strip()}", op=op, operands={"node": name}, at=at)
    return ExportError(f"onnx refuses the model: {text.strip()}", op="check")


# ---- the comparison -----------------------------------------------------------------------------------------------


def _values(program: Program) -> Iterator[tuple[Node, str, Tensor]]:
    names = program.names
    for node in program.nodes:
        made = node.made
        if isinstance(made, Tensor):
            yield node, names[node][0], made
        else:
            for name, tensor in zip(names[node], made, strict=True):
                if name:
                    yield node, name, tensor


def _require_same(node: Node, name: str, tensor: Tensor, value: ValueInfoProto) -> None:
    if value.type.WhichOneof("value") != "tensor_type":
        return
    kind = value.type.tensor_type
    theirs: DType | None = dtype_of_onnx(kind.elem_type) if kind.elem_type else None
    if theirs is not None and theirs is not tensor.dtype:
        _refuse(node, name, tensor, f"element type {tensor.dtype} by lazygraph, {theirs} by onnx", value)
    shape = tensor.known_shape
    if shape is None or not kind.HasField("shape"):
        return
    if len(kind.shape.dim) != len(shape):
        _refuse(node, name, tensor, f"{len(shape)} axes by lazygraph, {len(kind.shape.dim)} by onnx", value)
    for axis, (ours, dim) in enumerate(zip(shape, kind.shape.dim, strict=True)):
        if dim.HasField("dim_value") and _contradict(ours, dim.dim_value):
            _refuse(node, name, tensor, f"axis {axis} has {ours} by lazygraph, {dim.dim_value} by onnx", value)


def _contradict(ours: Size, theirs: int) -> bool:
    return ours != theirs if not isinstance(ours, Dim) else dims.equal(ours, theirs) is False


def _refuse(node: Node, name: str, tensor: Tensor, what: str, value: ValueInfoProto) -> None:
    sizes = [
        str(dim.dim_value) if dim.HasField("dim_value") else dim.dim_param or "?"
        for dim in value.type.tensor_type.shape.dim
    ]
    number = value.type.tensor_type.elem_type
    raise ExportError(
        f"two answers: {what}",
        op=node.op,
        operands={
            **{f"operand {i}": describe(t) for i, t in enumerate(node.inputs) if t is not None},
            "lazygraph": f"{tensor.dtype} {'?' if tensor.known_shape is None else shape_text(tensor.known_shape)}",
            "onnx": f"{dtype_of_onnx(number) if number else '?'} {shape_text(sizes)}",
            "value": name,
        },
        expected="one shape and type; one of the two rules is wrong",
        at=node.at,
    )


__all__ = ["DATA_FAULT", "FAULTS", "SHOWN", "check", "declared_shapes"]
