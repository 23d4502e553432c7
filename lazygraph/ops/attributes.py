"""Attributes of an operator call, checked against its schema and brought to the kinds that ONNX stores."""

from __future__ import annotations

import difflib
from collections.abc import Container, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from lazygraph.dtypes import DType, as_dtype, dtype_of_onnx
from lazygraph.errors import OperandError, UnsupportedError
from lazygraph.ops.core import Attrs
from lazygraph.tensor import Tensor

if TYPE_CHECKING:
    from onnx.defs import OpSchema

# Attributes of kind INT that stand for an element type.
NAMES_A_DTYPE = ("to", "dtype", "output_dtype")


def kind_of(attribute: Any) -> str:
    """Return ``INT``, ``FLOATS``, ``GRAPH``...: what kind of value an attribute takes."""
    return str(attribute.type).rsplit(".", 1)[-1]


def default_of(attribute: Any) -> Any:
    """Return the value that an attribute has when it is not given; None for none."""
    from onnx import helper

    if not attribute.default_value.name:
        return None
    value = helper.get_attribute_value(attribute.default_value)
    if isinstance(value, list):
        return [item.decode() if isinstance(item, bytes) else item for item in value]
    return value.decode() if isinstance(value, bytes) else value


def attributes_of(schema: OpSchema, given: dict[str, Any], functions: Container[str] = ()) -> Attrs:
    """Return the attributes of a call in the kinds that the schema asks for; those at their default left out.

    Args:
        schema: The operator.
        given: The attributes that are values.
        functions: The names of those that are parts of the program, given elsewhere.

    Raises:
        OperandError: One is unknown, missing, or of another kind.
        UnsupportedError: One is a subgraph, or another kind that Python values cannot be.
    """
    attrs: Attrs = {}
    for name, value in given.items():
        attribute = schema.attributes.get(name)
        if attribute is None:
            near = difflib.get_close_matches(name, schema.attributes, 1, 0.5)
            raise OperandError(
                f"{name!r} is no attribute",
                op=schema.name,
                expected=f"attributes {', '.join(sorted(schema.attributes))}" if schema.attributes else "no attributes",
                hint=f"did you mean {near[0]}?" if near else "",
            )
        if value is not None:
            attrs[name] = _attribute(schema, name, kind_of(attribute), value)
    for name, attribute in schema.attributes.items():
        if attribute.required and name not in attrs and name not in functions:
            raise OperandError(
                f"attribute {name!r} is missing",
                op=schema.name,
                expected=f"{name}, {_KINDS.get(kind_of(attribute), 'a function of tensors')}",
            )
        if not attribute.required and name in attrs and _is(attrs[name], default_of(attribute)):
            del attrs[name]  # said or not, it means the same
    return attrs


def _is(value: Any, default: Any) -> bool:
    if default is None or isinstance(value, np.ndarray):
        return False
    if isinstance(value, DType):
        return bool(value.onnx == default)
    return bool(np.float32(value) == np.float32(default)) if isinstance(value, float) else bool(value == default)


_KINDS = {
    "INT": "an int",
    "FLOAT": "a number",
    "STRING": "a string",
    "INTS": "a list of ints",
    "FLOATS": "a list of numbers",
    "STRINGS": "a list of strings",
    "TENSOR": "an array",
}


def _attribute(schema: OpSchema, name: str, kind: str, value: Any) -> Any:
    """Return an attribute's value in the kind that the schema asks for.

    Raises:
        OperandError: It is of another kind.
        UnsupportedError: The attribute is a subgraph, or another kind that Python values cannot be.
    """
    if kind == "TYPE_PROTO":
        return as_dtype(value)
    if kind not in _KINDS:
        raise UnsupportedError(f"{name} is of kind {kind}", op=schema.name, expected="attributes that are values")
    many = kind.endswith("S")
    if kind == "INT" and name in NAMES_A_DTYPE and value != 0:
        if isinstance(value, int) and not isinstance(value, bool):
            return dtype_of_onnx(value)
        return as_dtype(value)
    if kind == "TENSOR":
        origin = value.origin if isinstance(value, Tensor) else None
        if isinstance(value, (Tensor, str)):
            raise OperandError(f"{name} is {origin or value!r}", op=schema.name, expected=f"{name}, an array")
        array = np.asarray(value)
        plain = not isinstance(value, (np.ndarray, np.generic))
        return array.astype(np.float32) if plain and array.dtype.kind == "f" else array
    if many and (isinstance(value, (str, bytes)) or not isinstance(value, (Sequence, np.ndarray))):
        raise _wrong(schema, name, kind, value)
    items = [_single(schema, name, kind, value, item) for item in (value if many else [value])]
    return items if many else items[0]


def _single(schema: OpSchema, name: str, kind: str, whole: Any, item: Any) -> Any:
    if kind.startswith("INT") and isinstance(item, (int, np.integer, np.bool_)):
        return int(item)
    if kind.startswith("FLOAT") and isinstance(item, (int, float, np.number)) and not isinstance(item, bool):
        return float(item)
    if kind.startswith("STRING") and isinstance(item, (str, bytes)):
        return item if isinstance(item, str) else item.decode()
    raise _wrong(schema, name, kind, whole)


def _wrong(schema: OpSchema, name: str, kind: str, value: Any) -> OperandError:
    return OperandError(f"attribute {name!r} is {value!r}", op=schema.name, expected=f"{name}, {_KINDS[kind]}")
