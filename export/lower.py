"""A program as an ``onnx.ModelProto``, made field by field."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from lazygraph.dtypes import DType, as_dtype
from lazygraph.errors import ExportError, OperandError
from lazygraph.export import versions
from lazygraph.export.program import Program
from lazygraph.export.stored import pack
from lazygraph.origins import Body
from lazygraph.tensor import Node, Shape
from lazygraph.version import VERSION

if TYPE_CHECKING:
    from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TypeProto, ValueInfoProto

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
        domains: The version of every domain (see :func:`lazygraph.export.versions.opsets`).
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
    model.ir_version = _ir(program, domains, ir_version)
    for key in sorted(metadata or ()):
        model.metadata_props.add(key=key, value=(metadata or {})[key])

    graph = model.graph
    graph.name = GRAPH_NAME
    for name, tensor in program.inputs.items():
        write_type(graph.input.add(name=name), tensor.dtype, tensor.known_shape)
    for name, tensor in program.outputs.items():
        write_type(graph.output.add(name=name), tensor.dtype, program.declared.get(name, tensor.known_shape))
    _write_nodes(program, graph)
    if value_info:
        _write_value_info(program, graph)
    return model


def type_of(dtype: DType, shape: Shape | None) -> TypeProto:
    """Return a tensor type; named sizes become ``dim_param``, an unknown rank leaves the shape out."""
    from onnx import TypeProto

    made = TypeProto()
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
    """Fill in a value's type (see :func:`type_of`)."""
    target.type.CopyFrom(type_of(dtype, shape))


def _ir(program: Program, domains: Mapping[str, int], wanted: int | None) -> int:
    dtypes = {tensor.dtype for tensor in program.inputs.values()} | {stored.dtype for stored in program.weights}
    dtypes.update([tensor.dtype for node in program.nodes for tensor in node.outputs])
    needed = versions.ir_version(domains, dtypes)
    if wanted is not None and wanted < needed:
        raise OperandError(f"IR version {wanted}", op="export", expected=f"at least {needed}, which the program needs")
    return wanted or needed


def _write_nodes(program: Program, graph: GraphProto) -> None:
    """Write every node: those of the graph itself, and those of bodies into the attributes that they become."""
    by_body: dict[Body | None, list[tuple[Node, str]]] = {}
    for node, name in zip(program.nodes, program.node_names, strict=True):
        place = program.places.get(node)
        by_body.setdefault(None if place is None else place.body, []).append((node, name))
    _write_body(program, graph, by_body, None, {})


def _write_body(
    program: Program,
    graph: GraphProto,
    by_body: Mapping[Body | None, list[tuple[Node, str]]],
    body: Body | None,
    cache: dict[object, list[AttributeProto]],
) -> None:
    add = graph.node.add
    names = program.names
    for node, node_name in by_body.get(body, []):
        inputs = ["" if tensor is None else names[tensor.origin][tensor.index] for tensor in node.inputs]
        while inputs and not inputs[-1]:
            inputs.pop()
        outputs: Sequence[str] = names[node]
        if "" in outputs:
            outputs = _kept(node, node_name, outputs)
        if node.attrs:
            proto = add(
                op_type=node.op, name=node_name, input=inputs, output=outputs, attribute=_attributes(node, cache)
            )
        else:
            proto = add(op_type=node.op, name=node_name, input=inputs, output=outputs)
        if node.domain:
            proto.domain = node.domain
        for inner in node.bodies:
            _write_inner(program, proto, node_name, by_body, inner, cache)
    for copy in program.copies:
        if copy.body is body:
            add(op_type="Identity", name=copy.name, input=[copy.source], output=[copy.target])


def _write_inner(
    program: Program,
    proto: NodeProto,
    node_name: str,
    by_body: Mapping[Body | None, list[tuple[Node, str]]],
    body: Body,
    cache: dict[object, list[AttributeProto]],
) -> None:
    """Write one body of a node as its attribute."""
    from onnx import AttributeProto

    graph = proto.attribute.add(name=body.name, type=AttributeProto.GRAPH).g
    graph.name = f"{node_name}.{body.name}"
    for tensor in body.inputs:
        write_type(graph.input.add(name=program.name_of(tensor)), tensor.dtype, tensor.known_shape)
    _write_body(program, graph, by_body, body, cache)
    for tensor, name in zip(body.outputs, program.results[body], strict=True):
        write_type(graph.output.add(name=name), tensor.dtype, tensor.known_shape)


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


def _attributes(node: Node, cache: dict[object, list[AttributeProto]]) -> list[AttributeProto]:
    try:
        key = (node.op, *[(name, type(value), _hashable(value)) for name, value in node.attrs.items()])
        found = cache.get(key)
    except TypeError:  # an array: not hashable, and rare
        return [attribute(node, name, value) for name, value in node.attrs.items()]
    if found is None:
        found = cache[key] = [attribute(node, name, value) for name, value in node.attrs.items()]
    return found


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
