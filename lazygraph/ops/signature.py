"""Operands of an operator call, checked against its schema's signature; scalars and arrays made constants."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from lazygraph.dtypes import as_dtype
from lazygraph.errors import DTypeError, OperandError
from lazygraph.ops.core import Inputs, as_tensor
from lazygraph.tensor import Graph, Tensor, describe

if TYPE_CHECKING:
    from onnx.defs import OpSchema

# ONNX's names of element types in type constraints, where they differ from numpy's and ml_dtypes'.
_ONNX_NAMES = {
    "float": "float32",
    "double": "float64",
    "float8e4m3fn": "float8_e4m3fn",
    "float8e4m3fnuz": "float8_e4m3fnuz",
    "float8e5m2": "float8_e5m2",
    "float8e5m2fnuz": "float8_e5m2fnuz",
    "float4e2m1": "float4_e2m1fn",
    "float8e8m0": "float8_e8m0fnu",
}


class Formal(NamedTuple):
    """One place of a signature.

    Attributes:
        name: The spec's name for it.
        option: ``Single``, ``Optional`` or ``Variadic``.
        variable: The type variable, or the one type, that its element type is bound to.
        allowed: Names of the element types that it may have, in order.
        homogeneous: Whether all tensors of a variadic place have one type.
    """

    name: str
    option: str
    variable: str
    allowed: tuple[str, ...]
    homogeneous: bool


class Signature(NamedTuple):
    """What an operator takes, read once from its schema."""

    op: str
    formals: tuple[Formal, ...]
    least: int
    most: int

    def at(self, place: int) -> Formal:
        """Return the place's formal; a variadic last one repeats."""
        return self.formals[min(place, len(self.formals) - 1)]

    def label(self, place: int) -> str:
        """Return how messages call the operand at a place."""
        formal = self.at(place)
        return f"operand {place}" if formal.option == "Variadic" else formal.name


def option_of(formal: Any) -> str:
    """Return ``Single``, ``Optional`` or ``Variadic``."""
    return str(formal.option).rsplit(".", 1)[-1]


def dtype_name(kind: str) -> str:
    """Return our name of ``tensor(float)``, ``seq(tensor(float))`` or ``map(int64,tensor(float))``; else empty."""
    if kind.startswith("map("):
        key, _, value = kind[4:-1].partition(",")
        value = value.strip().removeprefix("tensor(").removesuffix(")")  # schemas leave the word out, or write it
        return f"map({_ONNX_NAMES.get(key, key)},{_ONNX_NAMES.get(value, value)})"
    for word in ("seq", "optional"):
        if kind.startswith(f"{word}("):
            inner = dtype_name(kind[len(word) + 1 : -1])
            return f"{word}({inner})" if inner else ""
    if not kind.startswith("tensor("):
        return ""
    name = kind[7:-1]
    return _ONNX_NAMES.get(name, name)


@lru_cache(maxsize=1024)
def signature_of(schema: OpSchema) -> Signature:
    """Return what a schema says of operands; read once (schemas are kept, and hashed by identity)."""
    formals = tuple(
        Formal(
            formal.name,
            option_of(formal),
            formal.type_str,
            tuple(filter(None, map(dtype_name, sorted(formal.types)))),
            formal.is_homogeneous,
        )
        for formal in schema.inputs
    )
    return Signature(schema.name, formals, schema.min_input, schema.max_input)


def inputs_of(schema: OpSchema, operands: Sequence[Any], attributes: Mapping[str, Any], graph: Graph) -> Inputs:
    """Return the operands as tensors of the graph, None where one is left out; trailing ones dropped.

    Raises:
        OperandError: One is missing, superfluous, given by name, or nothing that can become a tensor.
        DTypeError: A scalar does not fit the element type that its neighbours fix.
    """
    signature = signature_of(schema)
    given = list(operands)
    while given and given[-1] is None:
        given.pop()
    for name in attributes:
        if name not in schema.attributes and any(formal.name == name for formal in signature.formals):
            _refuse(signature, given, f"{name!r} is an operand", "operands by position: ")
    if len(given) > signature.most:
        _refuse(signature, given, f"{len(given)} operands given", f"at most {signature.most}: ")
    for place in range(max(signature.least, len(given))):
        if (place >= len(given) or given[place] is None) and signature.at(place).option != "Optional":
            _refuse(signature, given, f"operand {signature.label(place)!r} is missing", "operands ")

    bound: dict[str, Tensor] = {}
    for place, value in enumerate(given):
        if isinstance(value, Tensor):
            bound.setdefault(signature.at(place).variable, value)
    like = next(iter(bound.values()), None)
    made: list[Tensor | None] = []
    for place, value in enumerate(given):
        if value is not None and not isinstance(value, Tensor):
            formal = signature.at(place)
            value = _constant(schema.name, formal, value, bound.get(formal.variable), like, graph)
            bound.setdefault(formal.variable, value)
        made.append(value)
    return tuple(made)


def _refuse(signature: Signature, given: Sequence[Any], what: str, expected: str) -> None:
    shown = {
        (signature.label(i) if i < len(signature.formals) else f"operand {i}"): (
            describe(value) if isinstance(value, Tensor) else "left out" if value is None else repr(value)
        )
        for i, value in enumerate(given)
    }
    names = ", ".join(formal.name for formal in signature.formals)
    raise OperandError(what, op=signature.op, operands=shown, expected=expected + names if names else "no operand")


def _constant(op: str, formal: Formal, value: Any, bound: Tensor | None, like: Tensor | None, graph: Graph) -> Tensor:
    """Return a value as a constant of the type that its place in the signature asks for."""
    if bound is not None:
        return as_tensor(op, value, bound)
    beside = like if like is not None else graph.ints(())
    if isinstance(value, (np.ndarray, np.generic)):
        return as_tensor(op, value, beside)
    kind = np.asarray(value).dtype.kind
    wanted = {"f": ["float32"], "i": ["int64", "int32", "float32"], "b": ["bool"], "U": ["string"]}.get(kind, [])
    for name in [*wanted, *formal.allowed]:
        if name in formal.allowed:
            return as_tensor(op, value, beside, as_dtype(name))
    raise OperandError(f"{value!r} is no {formal.name}", op=op, expected=f"one of {', '.join(formal.allowed)}")


def check_types(schema: OpSchema, inputs: Inputs) -> None:
    """Require element types that the schema allows, and one for all operands of one type variable.

    Raises:
        DTypeError: They are others.
    """
    signature = signature_of(schema)
    bound: dict[str, tuple[int, Tensor]] = {}
    for place, tensor in enumerate(inputs):
        if tensor is None:
            continue
        formal = signature.at(place)
        if tensor.dtype.name not in formal.allowed:
            label = signature.label(place)
            raise DTypeError(
                f"{label} is {tensor.dtype}",
                op=schema.name,
                operands={label: describe(tensor)},
                expected=f"{label} of {', '.join(formal.allowed) or 'no tensor type'}",
            )
        if formal.option == "Variadic" and not formal.homogeneous:
            continue
        other, first = bound.setdefault(formal.variable, (place, tensor))
        if first.dtype is not tensor.dtype:
            labels = signature.label(other), signature.label(place)
            raise DTypeError(
                f"element types differ: {first.dtype} and {tensor.dtype}",
                op=schema.name,
                operands={labels[0]: describe(first), labels[1]: describe(tensor)},
                expected=f"one element type for {labels[0]} and {labels[1]}",
                hint="x.astype(...) converts",
            )


__all__ = ["Formal", "Signature", "check_types", "dtype_name", "inputs_of", "option_of", "signature_of"]
