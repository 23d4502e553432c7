"""Ops that decide and convert: comparison, logic on bools and bits, choice by condition, casts."""

from __future__ import annotations

from typing import Any
from typing import cast as typed

import numpy as np

from lazygraph.dtypes import DType, DTypeLike, as_dtype, bool_
from lazygraph.errors import DTypeError, OperandError
from lazygraph.ops.checks import (
    BOOL,
    FLOAT,
    INTEGER,
    NUMBER,
    Types,
    broadcast,
    dtype_among,
    exactly,
    rows,
    same_dtype,
)
from lazygraph.ops.core import Attrs, Inputs, Results, apply, as_tensor, operands, rule
from lazygraph.tensor import Operand, Tensor

_COMPARE = {
    "Equal": Types("comparable", NUMBER.names | {"bool", "string"}),
    **dict.fromkeys(["Greater", "GreaterOrEqual", "Less", "LessOrEqual"], NUMBER),
}
_BITS = {
    **dict.fromkeys(["BitwiseAnd", "BitwiseOr", "BitwiseXor", "BitwiseNot"], INTEGER),
    "BitShift": INTEGER,
    **dict.fromkeys(["And", "Or", "Xor", "Not"], BOOL),
}
_TESTED = Types("floating-point", FLOAT.names | {"float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz"})


@rule("BitwiseNot", "Not")
def _not_rule(op: str, inputs: Inputs, attrs: Attrs) -> Results:
    (x,) = exactly(op, inputs, 1)
    dtype_among(op, "x", x, _BITS[op])
    return [(x.dtype, x.known_shape)]


@rule("BitwiseAnd", "BitwiseOr", "BitwiseXor", "BitShift", "And", "Or", "Xor")
def _bits_rule(op: str, inputs: Inputs, attrs: Attrs) -> Results:
    a, b = exactly(op, inputs, 2)
    same_dtype(op, a=a, b=b)
    dtype_among(op, "a", a, _BITS[op])
    return [(a.dtype, broadcast(op, {"a": a, "b": b}))]


@rule("IsNaN", "IsInf")
def _float_test_rule(op: str, inputs: Inputs, attrs: Attrs) -> Results:
    (x,) = exactly(op, inputs, 1)
    dtype_among(op, "x", x, _TESTED)
    return [(bool_, x.known_shape)]


@rule(*_COMPARE)
def _compare_rule(op: str, inputs: Inputs, attrs: Attrs) -> Results:
    a, b = exactly(op, inputs, 2)
    same_dtype(op, a=a, b=b)
    dtype_among(op, "a", a, _COMPARE[op])
    return [(bool_, broadcast(op, {"a": a, "b": b}))]


@rule("Where")
def _where_rule(op: str, inputs: Inputs, attrs: Attrs) -> Results:
    condition, x, y = exactly(op, inputs, 3)
    dtype_among(op, "condition", condition, BOOL)
    return [(same_dtype(op, x=x, y=y), broadcast(op, {"condition": condition, "x": x, "y": y}))]


@rule("Cast")
def _cast_rule(op: str, inputs: Inputs, attrs: Attrs) -> Results:
    (x,) = exactly(op, inputs, 1)
    to: DType = attrs["to"]
    if (to.kind == "c") != (x.dtype.kind == "c"):
        raise DTypeError(f"{x.dtype} cannot become {to}", op=op, operands=rows({"x": x}), expected="no complex type")
    return [(to, x.known_shape)]


@rule("CastLike")
def _cast_like_rule(op: str, inputs: Inputs, attrs: Attrs) -> Results:
    x, like = exactly(op, inputs, 2)
    return [(like.dtype, x.known_shape)]


def isnan(x: Tensor) -> Tensor:
    """Return where ``x`` is not a number, as bool. ``T: float``. Spec: ai.onnx::IsNaN."""
    return apply("IsNaN", x)


def isinf(x: Tensor) -> Tensor:
    """Return where ``x`` is infinite, as bool. ``T: float``. Spec: ai.onnx::IsInf."""
    return apply("IsInf", x)


# ---- comparison and logic ----


def equal(a: Operand, b: Operand) -> Tensor:
    """Return where ``a == b``, as bool, broadcast. Spec: ai.onnx::Equal."""
    a, b = operands("equal", a, b)
    return apply("Equal", a, b)


def not_equal(a: Operand, b: Operand) -> Tensor:
    """Return where ``a != b``, as bool, broadcast. Composed of Equal and Not."""
    return apply("Not", equal(a, b))


def less(a: Operand, b: Operand) -> Tensor:
    """Return where ``a < b``, as bool, broadcast. ``T: number``. Spec: ai.onnx::Less."""
    a, b = operands("less", a, b)
    return apply("Less", a, b)


def less_or_equal(a: Operand, b: Operand) -> Tensor:
    """Return where ``a <= b``, as bool, broadcast. ``T: number``. Spec: ai.onnx::LessOrEqual."""
    a, b = operands("less_or_equal", a, b)
    return apply("LessOrEqual", a, b)


def greater(a: Operand, b: Operand) -> Tensor:
    """Return where ``a > b``, as bool, broadcast. ``T: number``. Spec: ai.onnx::Greater."""
    a, b = operands("greater", a, b)
    return apply("Greater", a, b)


def greater_or_equal(a: Operand, b: Operand) -> Tensor:
    """Return where ``a >= b``, as bool, broadcast. ``T: number``. Spec: ai.onnx::GreaterOrEqual."""
    a, b = operands("greater_or_equal", a, b)
    return apply("GreaterOrEqual", a, b)


def logical_not(x: Tensor) -> Tensor:
    """Return ``not x``. ``T: bool``. Spec: ai.onnx::Not."""
    return apply("Not", x)


def logical_and(a: Operand, b: Operand) -> Tensor:
    """Return ``a and b``, broadcast. ``T: bool``. Spec: ai.onnx::And."""
    a, b = operands("logical_and", a, b)
    return apply("And", a, b)


def logical_or(a: Operand, b: Operand) -> Tensor:
    """Return ``a or b``, broadcast. ``T: bool``. Spec: ai.onnx::Or."""
    a, b = operands("logical_or", a, b)
    return apply("Or", a, b)


def logical_xor(a: Operand, b: Operand) -> Tensor:
    """Return where exactly one of ``a`` and ``b`` holds, broadcast. ``T: bool``. Spec: ai.onnx::Xor."""
    a, b = operands("logical_xor", a, b)
    return apply("Xor", a, b)


def invert(x: Tensor) -> Tensor:
    """Return ``~x``: Not of bool, BitwiseNot of integers."""
    return apply("Not" if x.dtype is bool_ else "BitwiseNot", x)


def bit_and(a: Operand, b: Operand) -> Tensor:
    """Return ``a & b``, broadcast: And of bool, BitwiseAnd of integers."""
    a, b = operands("and", a, b)
    return apply("And" if a.dtype is bool_ else "BitwiseAnd", a, b)


def bit_or(a: Operand, b: Operand) -> Tensor:
    """Return ``a | b``, broadcast: Or of bool, BitwiseOr of integers."""
    a, b = operands("or", a, b)
    return apply("Or" if a.dtype is bool_ else "BitwiseOr", a, b)


def bit_xor(a: Operand, b: Operand) -> Tensor:
    """Return ``a ^ b``, broadcast: Xor of bool, BitwiseXor of integers."""
    a, b = operands("xor", a, b)
    return apply("Xor" if a.dtype is bool_ else "BitwiseXor", a, b)


def bit_shift(a: Operand, b: Operand, direction: str) -> Tensor:
    """Return ``a`` with its bits moved by ``b`` places, ``LEFT`` or ``RIGHT``. ``T: integer``.

    Raises:
        OperandError: Another direction.

    Spec: ai.onnx::BitShift.
    """
    if direction not in ("LEFT", "RIGHT"):
        raise OperandError(f"direction is {direction!r}", op="BitShift", expected="LEFT or RIGHT")
    a, b = operands("BitShift", a, b)
    return apply("BitShift", a, b, direction=direction)


# ---- choice and conversion ----


def where(condition: Tensor | np.ndarray[Any, Any], x: Operand, y: Operand) -> Tensor:
    """Return ``x`` where the condition holds and ``y`` elsewhere, broadcast.

    Args:
        condition: ``bool``.
        x: ``T``, or a scalar that takes ``y``'s type.
        y: ``T``, or a scalar that takes ``x``'s type.

    Raises:
        OperandError: Neither ``x`` nor ``y`` is a tensor or array: their type would be a guess.

    Spec: ai.onnx::Where.
    """
    beside = next((value for value in (condition, x, y) if isinstance(value, Tensor)), None)
    if beside is not None:
        condition, x, y = [_array_as_tensor(value, beside) for value in (condition, x, y)]
    x, y = operands("where", x, y)
    return apply("Where", typed(Tensor, condition), x, y)


def _array_as_tensor(value: Any, like: Tensor) -> Any:
    return as_tensor("where", value, like) if isinstance(value, (np.ndarray, np.generic)) else value


def cast(x: Tensor, to: DTypeLike) -> Tensor:
    """Return ``x`` in another element type, itself when it has that type already.

    Spec: ai.onnx::Cast.
    """
    dtype = as_dtype(to)
    return x if x.dtype is dtype else apply("Cast", x, to=dtype)
