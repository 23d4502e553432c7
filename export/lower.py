"""A program as an ``onnx.ModelProto``, made field by field."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from lazygraph.dtypes import DType, as_dtype
from lazygraph.errors import ExportError, OperandError
from lazygraph.export import versions, wire
from lazygraph.export.program import Origin, Program
from lazygraph.export.stored import pack
from lazygraph.graph import FileFacts
from lazygraph.origins import Body, Kept, Raw
from lazygraph.tensor import Node, Shape
from lazygraph.version import VERSION

if TYPE_CHECKING:
    from onnx import AttributeProto, GraphProto, ModelProto, TypeProto, ValueInfoProto

GRAPH_NAME = "lazygraph"


def lower(
    program: Program,
    domains: Mapping[str, int],
    *,
    ir_version: int | None = None,
    metadata: Mapping[str, str] | None = None,
    value_info: bool = False,
) -> ModelProto:
    """Return the model of a program, all but its initialisers.

    Args:
        program: What to write.
        domains: The version of every domain (see ``lazygraph.export.versions.opsets``).
        ir_version: The IR version to declare, at least what is needed; None for the lowest.
        metadata: Texts kept with the model.
        value_info: Also write the types of intermediate values.

    Raises:
        OperandError: The IR version is lower than what is needed.
        ExportError: An attribute that ONNX cannot hold.
    """
    from onnx import ModelProto

    model = ModelProto(producer_name="lazygraph", producer_version=VERSION)
    for domain, version in domains.items():
        model.opset_import.add(domain=domain, version=version)
    facts = program.graph.facts or FileFacts()
    model.ir_version = _ir(program, domains, ir_version, facts.ir_version)
    texts = {**facts.metadata, **(metadata or {})}
    for key in sorted(texts):
        model.metadata_props.add(key=key, value=texts[key])

    graph = model.graph
    graph.name = facts.name or GRAPH_NAME
    if facts.doc:
        graph.doc_string = facts.doc
    for name, tensor in program.inputs.items():
        write_type(graph.input.add(name=name, doc_string=facts.docs.get(name)), tensor.dtype, tensor.known_shape)
    for name, tensor in program.outputs.items():
        shape = program.declared.get(name, tensor.known_shape)
        write_type(graph.output.add(name=name, doc_string=facts.docs.get(name)), tensor.dtype, shape)
    _annotate(program, graph, facts)
    graph.MergeFromString(wire.packed(_Nodes(program).of(None)))
    if value_info:
        _write_value_info(program, graph)
    return model


def _annotate(program: Program, graph: GraphProto, facts: FileFacts) -> None:
    """Write the quantisation annotations of the values that are still there."""
    from onnx import TensorAnnotation

    if not facts.annotations:
        return
    there = {name for names in program.names.values() for name in names}
    for content in facts.annotations:
        annotation = TensorAnnotation()
        annotation.ParseFromString(content)
        if annotation.tensor_name in there:
            graph.quantization_annotation.append(annotation)


def type_of(dtype: DType, shape: Shape | None) -> TypeProto:
    """Return a tensor type; named sizes become ``dim_param``, an unknown rank leaves the shape out."""
    from onnx import TypeProto

    made = TypeProto()
    if dtype.element is not None and dtype.key is not None:
        made.map_type.key_type = dtype.key.onnx
        made.map_type.value_type.CopyFrom(type_of(dtype.element, ()))
        return made
    if dtype.element is not None:
        holder = made.sequence_type if dtype.kind == "q" else made.optional_type
        holder.elem_type.CopyFrom(type_of(dtype.element, None))
        return made
    kind = made.tensor_type
    kind.elem_type = dtype.onnx
    if shape is None:
        return made
    kind.shape.SetInParent()
    for size in shape:
        if isinstance(size, int):
            kind.shape.dim.add(dim_value=size)
        else:
            kind.shape.dim.add(dim_param=str(size))
    return made


def write_type(target: ValueInfoProto, dtype: DType, shape: Shape | None) -> None:
    """Fill in a value's type (see ``type_of``)."""
    target.type.CopyFrom(type_of(dtype, shape))


def _ir(program: Program, domains: Mapping[str, int], wanted: int | None, of_file: int) -> int:
    dtypes = {tensor.dtype for tensor in program.inputs.values()} | {stored.dtype for stored in program.weights}
    dtypes.update({tensor.dtype.onnx: tensor.dtype for node in program.nodes for tensor in node.outputs}.values())
    needed = versions.ir_version(domains, dtypes)
    if wanted is not None and wanted < needed:
        raise OperandError(f"IR version {wanted}", op="export", expected=f"at least {needed}, which the program needs")
    return wanted or max(needed, of_file)


class _Nodes:
    """Writes nodes as bytes: those of the graph itself, and those of bodies into the attributes that they become."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.by_body: dict[Body | None, list[tuple[Node, str]]] = {}
        self.tails: dict[object, str] = {}
        self.operands = _Operands(program)
        places = program.places
        for node, name in zip(program.nodes, program.node_names, strict=True) if places else ():
            place = places.get(node)
            self.by_body.setdefault(None if place is None else place.body, []).append((node, name))
        if not places:
            self.by_body[None] = list(zip(program.nodes, program.node_names, strict=True))

    def of(self, body: Body | None) -> str:
        """Return the nodes of a body as fields of its graph: 1 an operand, 2 a result, 3 the name."""
        names, operands, tails = self.program.names, self.operands, self.tails
        text, varint = wire.text, wire.varint
        parts: list[str] = []
        for node, node_name in self.by_body.get(body, []):
            inputs = node.inputs
            while inputs and inputs[-1] is None:
                inputs = inputs[:-1]
            given = "".join([_LEFT_OUT if x is None else operands[x.origin][x.index] for x in inputs])
            tail = None if node.attrs or node.domain or node.bodies else tails.get(node.op)
            if tail is None:
                tail = _tail(node, tails)
                for inner in node.bodies:
                    tail += wire.field(wire.ATTRIBUTE, self._attribute(node_name, inner))
            own = text(node_name)
            outputs: Sequence[str] = names[node]
            if len(outputs) == 1:
                result = own if outputs[0] == node_name else text(outputs[0])
                operands[node] = (f"\x0a{result}",)
                content = f"{given}\x12{result}\x1a{own}{tail}"
            else:
                if "" in outputs:
                    outputs = _kept(node, node_name, outputs)
                results = [text(name) for name in outputs]
                operands[node] = [f"\x0a{result}" for result in results]
                content = f"{given}\x12{_NEXT.join(results)}\x1a{own}{tail}"
            if node.kept is not None and (node.kept.doc or node.kept.metadata):
                content += _texts(node.kept)
            parts.append(f"\x0a{varint(len(content))}{content}")
        for copy in self.program.copies:
            if copy.body is body:
                parts.append(wire.field(wire.NODE, wire.identity(copy.name, copy.source, copy.target)))
        return "".join(parts)

    def _attribute(self, node_name: str, body: Body) -> str:
        """Return one body of a node as its attribute."""
        from onnx import AttributeProto, GraphProto

        program = self.program
        graph = GraphProto(name=f"{node_name}.{body.name}")
        for tensor in body.inputs:
            write_type(graph.input.add(name=program.name_of(tensor)), tensor.dtype, tensor.known_shape)
        for tensor, name in zip(body.outputs, program.results[body], strict=True):
            write_type(graph.output.add(name=name), tensor.dtype, tensor.known_shape)
        made = AttributeProto(name=body.name, type=AttributeProto.GRAPH)
        content = wire.letters(graph.SerializeToString()) + self.of(body)
        return wire.letters(made.SerializeToString()) + wire.field(wire.ATTRIBUTE_GRAPH, content)


def _texts(kept: Kept) -> str:
    """Return what a file said of a call for people, as fields of the node."""
    from onnx import NodeProto

    node = NodeProto(doc_string=kept.doc) if kept.doc else NodeProto()
    for key, value in kept.metadata:
        node.metadata_props.add(key=key, value=value)
    return wire.letters(node.SerializeToString())


class _Operands(dict[Origin, Sequence[str]]):
    """By origin, each of its values as a node reads it; what no node made is encoded when it is first read."""

    def __init__(self, program: Program) -> None:
        super().__init__()
        self._program = program

    def __missing__(self, origin: Origin) -> Sequence[str]:
        made = self[origin] = [f"\x0a{wire.text(name)}" for name in self._program.names[origin]]
        return made


_LEFT_OUT = f"\x0a{wire.text('')}"
_NEXT = "\x12"


def _kept(node: Node, node_name: str, outputs: Sequence[str]) -> list[str]:
    """Return the output names, those that nobody reads left out where the schema allows it (contrib: always)."""
    from onnx.defs import OpSchema

    schemas = versions.versions_of(node.op, node.domain)
    formals = schemas[0].outputs if schemas else []
    optional = OpSchema.FormalParameterOption.Optional
    kept: list[str] = []
    for i, name in enumerate(outputs):
        required = formals[min(i, len(formals) - 1)].option != optional if formals else i == 0
        kept.append(name or (f"{node_name}.{i}" if required else ""))
    while not kept[-1]:
        kept.pop()
    return kept


def _tail(node: Node, tails: dict[object, str]) -> str:
    """Return what a node shares with every call of its kind."""
    key: object = (node.op, node.domain) if node.domain or node.attrs else node.op
    if node.attrs:
        try:
            key = (key, *[(name, type(value), _hashable(value)) for name, value in node.attrs.items()])
            hash(key)
        except TypeError:  # an array: not hashable, and rare
            return _made_tail(node)
    found = tails.get(key)
    if found is None:
        found = tails[key] = _made_tail(node)
    return found


def _made_tail(node: Node) -> str:
    attributes = [wire.letters(attribute(node, name, value).SerializeToString()) for name, value in node.attrs.items()]
    return wire.tail(node.op, node.domain, attributes)


def _hashable(value: Any) -> object:
    """Return what tells attribute values apart: 0.0 from -0.0 and [1] from [1.0] too."""
    if isinstance(value, float):
        return value.hex()
    if isinstance(value, (list, tuple)):
        return tuple([(type(item), _hashable(item)) for item in value])
    return value


def attribute(node: Node, name: str, value: Any) -> AttributeProto:
    """Return one attribute; its ONNX type follows from the Python type, for an empty list from the schema.

    Raises:
        ExportError: ONNX has no attribute of that Python type.
    """
    from onnx import AttributeProto

    if isinstance(value, (bool, int, np.integer)):
        return AttributeProto(name=name, type=AttributeProto.INT, i=int(value))
    if isinstance(value, (float, np.floating)):
        return AttributeProto(name=name, type=AttributeProto.FLOAT, f=float(value))
    if isinstance(value, DType) and name == "type":  # Optional's: a type as it stands
        return AttributeProto(name=name, type=AttributeProto.TYPE_PROTO, tp=type_of(value, None))
    if isinstance(value, DType):
        return AttributeProto(name=name, type=AttributeProto.INT, i=value.onnx)
    if isinstance(value, (str, bytes)):
        return AttributeProto(name=name, type=AttributeProto.STRING, s=_bytes(value))
    if isinstance(value, np.ndarray):
        made = AttributeProto(name=name, type=AttributeProto.TENSOR)
        dtype = as_dtype(value.dtype)
        made.t.data_type = dtype.onnx
        made.t.dims.extend(value.shape)
        if dtype.kind == "s":
            made.t.string_data.extend([_bytes(item) for item in value.ravel().tolist()])
        else:
            made.t.raw_data = bytes(pack(value, dtype))
        return made
    if isinstance(value, (list, tuple)):
        return _list_attribute(node, name, value)
    if isinstance(value, Raw):
        kept = AttributeProto()
        kept.ParseFromString(value.content)
        return kept
    raise _no_attribute(node, name, value)


def _list_attribute(node: Node, name: str, value: Sequence[Any]) -> AttributeProto:
    from onnx import AttributeProto

    made = AttributeProto(name=name)
    if not value:
        schemas = versions.versions_of(node.op, node.domain)
        declared = schemas[0].attributes.get(name) if schemas else None
        made.type = AttributeProto.AttributeType.Value(
            "INTS" if declared is None else declared.type.name  # type: ignore[attr-defined]
        )
    elif all(isinstance(item, (bool, int, np.integer)) for item in value):
        made.type = AttributeProto.INTS
        made.ints.extend([int(item) for item in value])
    elif all(isinstance(item, (int, float, np.integer, np.floating)) for item in value):
        made.type = AttributeProto.FLOATS
        made.floats.extend([float(item) for item in value])
    elif all(isinstance(item, (str, bytes)) for item in value):
        made.type = AttributeProto.STRINGS
        made.strings.extend([_bytes(item) for item in value])
    else:
        raise _no_attribute(node, name, value)
    return made


def _no_attribute(node: Node, name: str, value: object) -> ExportError:
    return ExportError(
        f"attribute {name} is {value!r}",
        op=node.op,
        expected="an int, float, text, array, element type, or a list of ints, floats or texts",
        at=node.at,
    )


def _bytes(value: str | bytes) -> bytes:
    return value if isinstance(value, bytes) else value.encode()


def _write_value_info(program: Program, graph: GraphProto) -> None:
    for node in program.nodes:
        for tensor, name in zip(node.outputs, program.names[node], strict=True):
            if name and name not in program.outputs and node not in program.places:
                write_type(graph.value_info.add(name=name), tensor.dtype, tensor.known_shape)


__all__ = ["GRAPH_NAME", "attribute", "lower", "write_type"]
