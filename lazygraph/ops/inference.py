"""What a schema's own inference says of a call's outputs, in lazygraph's terms: for ops without a rule of our own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from lazygraph import dims
from lazygraph.dims import Size
from lazygraph.dtypes import DType, as_dtype, dtype_of_onnx, map_of, optional_of, sequence_of, untold
from lazygraph.errors import ShapeError, UnsupportedError
from lazygraph.ops.attributes import NAMES_A_DTYPE, default_of
from lazygraph.ops.core import Attrs, Inputs, Results
from lazygraph.ops.signature import dtype_name
from lazygraph.origins import Raw
from lazygraph.tensor import SMALL, Constant, Graph, Shape, Tensor, describe

if TYPE_CHECKING:
    from onnx import NodeProto, TensorProto, TypeProto
    from onnx.defs import OpSchema


def inferred(
    schema: OpSchema, inputs: Inputs, attrs: Attrs, graph: Graph, count: int | None = None, version: int | None = None
) -> Results:
    """Return element type and shape of every output that the schema has.

    Args:
        schema: The operator's.
        inputs: Operands.
        attrs: Attributes.
        graph: Whose numbers new sizes are named after.
        count: How many outputs there are, where not one for each of the schema's.
        version: The version of the domain that the call is written for; by default the schema's own.

    Raises:
        ShapeError: The inference refuses the operands.
        UnsupportedError: Not even the element type of an output follows.
    """
    from onnx import OperatorSetIdProto, shape_inference

    formals = [schema.outputs[min(i, len(schema.outputs) - 1)] for i in range(count or len(schema.outputs))]
    node = _node(schema, inputs, attrs, len(formals))
    types: dict[str, TypeProto] = {}
    values: dict[str, TensorProto] = {}
    sizes: dict[str, Size] = {}
    for name, tensor in zip(node.input, inputs, strict=True):
        if tensor is None:
            continue
        types[name] = _type(tensor, sizes)
        value = _value(tensor)
        if value is not None:
            values[name] = value
    opsets = [OperatorSetIdProto(domain=schema.domain, version=version or schema.since_version)]
    try:
        found = shape_inference.infer_node_outputs(schema, node, types, values, opset_imports=opsets)
    except shape_inference.InferenceError as error:
        labels = {f"operand {i}": describe(tensor) for i, tensor in enumerate(inputs) if tensor is not None}
        raise ShapeError(
            _reason(str(error)), op=schema.name, operands=labels, expected="what the operator's spec says"
        ) from None

    fresh: dict[str, Size] = {}
    results: Results = []
    for i, (formal, name) in enumerate(zip(formals, node.output, strict=True)):
        kind = found.get(name)
        holder = None if kind is None else _holder(kind)
        if holder is not None:
            results.append((holder, None))
        elif kind is not None and kind.tensor_type.elem_type:
            shape = _shape(kind, sizes, fresh, f"{schema.name.lower()}_{graph.next_serial()}_{i}")
            results.append((dtype_of_onnx(kind.tensor_type.elem_type), shape))
        else:
            results.append((_bound_dtype(schema, formal, inputs, attrs), None))
    return results


def _node(schema: OpSchema, inputs: Inputs, attrs: Attrs, outputs: int) -> NodeProto:
    from onnx import AttributeProto, TypeProto, helper, numpy_helper

    proto_attrs: dict[str, Any] = {}
    raw: list[AttributeProto] = []
    for name, value in attrs.items():
        if isinstance(value, Raw):
            raw.append(AttributeProto.FromString(value.content))
            continue
        if isinstance(value, DType) and name == "type":
            held = TypeProto()
            _fill(held, value)
            raw.append(AttributeProto(name=name, type=AttributeProto.TYPE_PROTO, tp=held))
            continue
        if isinstance(value, list) and not value:
            kind = schema.attributes[name].type
            raw.append(helper.make_attribute(name, [], attr_type=AttributeProto.AttributeType.Value(kind.name)))  # type: ignore[attr-defined]
            continue
        if isinstance(value, np.ndarray):
            value = numpy_helper.from_array(value, name)
        proto_attrs[name] = value.onnx if isinstance(value, DType) else value
    names = ["" if tensor is None else f"i{place}" for place, tensor in enumerate(inputs)]
    node = helper.make_node(schema.name, names, [f"o{i}" for i in range(outputs)], **proto_attrs)
    node.attribute.extend(raw)
    return node


def _type(tensor: Tensor, sizes: dict[str, Size]) -> TypeProto:
    from onnx import TypeProto

    kind = TypeProto()
    if tensor.dtype is untold:
        return kind
    if tensor.dtype.element is not None:
        _fill(kind, tensor.dtype)
        return kind
    kind.tensor_type.elem_type = tensor.dtype.onnx
    if tensor.known_shape is None:
        return kind
    kind.tensor_type.shape.SetInParent()
    for size in tensor.known_shape:
        if isinstance(size, int):
            kind.tensor_type.shape.dim.add(dim_value=size)
        else:
            sizes[str(size)] = size
            kind.tensor_type.shape.dim.add(dim_param=str(size))
    return kind


def _fill(kind: TypeProto, dtype: DType) -> None:
    """Write a type without a shape, down through what it holds."""
    if dtype.element is None:
        kind.tensor_type.elem_type = dtype.onnx
    elif dtype.key is not None:
        kind.map_type.key_type = dtype.key.onnx
        _fill(kind.map_type.value_type, dtype.element)
    elif dtype.kind == "q":
        _fill(kind.sequence_type.elem_type, dtype.element)
    else:
        _fill(kind.optional_type.elem_type, dtype.element)


def _holder(kind: TypeProto) -> DType | None:
    """Return the sequence, optional or map that a type is; None for tensors and what is not told."""
    if kind.HasField("map_type"):
        values = kind.map_type.value_type.tensor_type.elem_type
        return map_of(dtype_of_onnx(kind.map_type.key_type), dtype_of_onnx(values)) if values else None
    for field, make in (("sequence_type", sequence_of), ("optional_type", optional_of)):
        if kind.HasField(field):
            inner = getattr(kind, field).elem_type
            element = _holder(inner) or (
                dtype_of_onnx(inner.tensor_type.elem_type) if inner.tensor_type.elem_type else None
            )
            return None if element is None else make(element)
    return None


def _value(tensor: Tensor) -> TensorProto | None:
    """Return the numbers of a small operand where they are known: sizes to come out, scales, axes."""
    from onnx import numpy_helper

    value = tensor.value
    if value is None and isinstance(tensor.origin, Constant) and isinstance(tensor.origin.array, np.ndarray):
        value = tensor.origin.array
    if (
        value is None
        or value.size > SMALL
        or tensor.dtype.bits < 8
        or (value.dtype == object and tensor.dtype.kind != "s")
    ):
        return None
    return numpy_helper.from_array(np.ascontiguousarray(value).reshape(value.shape))


def _shape(kind: TypeProto, sizes: dict[str, Size], fresh: dict[str, Size], prefix: str) -> Shape | None:
    if not kind.tensor_type.HasField("shape"):
        return None
    shape: list[Size] = []
    for axis, dim in enumerate(kind.tensor_type.shape.dim):
        if dim.HasField("dim_value") and dim.dim_value >= 0:
            shape.append(int(dim.dim_value))
        elif dim.dim_param in sizes:
            shape.append(sizes[dim.dim_param])
        else:  # one new name of the inference's is one size, wherever it appears
            name = f"{prefix}_{axis}"
            shape.append(fresh.setdefault(dim.dim_param or name, dims.unknown(name)))
    return tuple(shape)


def _bound_dtype(schema: OpSchema, formal: Any, inputs: Inputs, attrs: Attrs) -> DType:
    """Return the element type of an output: its variable's, its only one, or the one that an attribute names."""
    for place, tensor in enumerate(inputs):
        declared = schema.inputs[min(place, len(schema.inputs) - 1)]
        if tensor is not None and declared.type_str == formal.type_str and tensor.dtype is not untold:
            return tensor.dtype
    kinds = [name for name in map(dtype_name, formal.types) if name]
    if len(kinds) == 1:
        return as_dtype(kinds[0])
    for name in NAMES_A_DTYPE:
        if name in schema.attributes:
            named = attrs.get(name, default_of(schema.attributes[name]))
            if named:
                return dtype_of_onnx(named) if isinstance(named, int) else as_dtype(named)
    raise UnsupportedError(f"the element type of {formal.name} does not follow from the operands", op=schema.name)


def _reason(text: str) -> str:
    """Return the sentence in an inference error: ``[ShapeInferenceError] (op_type:X): ...`` without its frame."""
    last = text.strip().splitlines()[-1]
    return last.rsplit("[ShapeInferenceError]", 1)[-1].rsplit("[TypeInferenceError]", 1)[-1].strip(" :") or "refused"


__all__ = ["inferred"]
