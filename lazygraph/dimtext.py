"""Reads sizes written as text: ``"past + seq"``, ``"2*n"``, ``"max(seq - 1, 0)"``."""

from __future__ import annotations

import ast
from collections.abc import Callable

from lazygraph import dimalgebra, dimbounds
from lazygraph.dimalgebra import Dim, Size, SizeLike, symbol
from lazygraph.errors import ShapeError

_OPERATORS: dict[type[ast.operator], Callable[[Size, Size], Size]] = {
    ast.Add: dimalgebra.add,
    ast.Sub: dimalgebra.subtract,
    ast.Mult: dimalgebra.multiply,
    ast.FloorDiv: dimalgebra.floordiv,
    ast.Mod: dimalgebra.modulo,
}
_FUNCTIONS: dict[str, Callable[..., Size]] = {"min": dimbounds.smallest, "max": dimbounds.largest}


def parse_size(text: str) -> Size:
    """Return the size that the arithmetic means.

    Raises:
        ShapeError: It is not arithmetic over names and whole numbers.
    """
    try:
        return _size(ast.parse(text.strip(), mode="eval").body)
    except (SyntaxError, ValueError):
        raise ShapeError(
            f"{text!r} is not a size",
            op="shape",
            expected="a name, or + - * // % min max over names and whole numbers",
        ) from None


def _size(node: ast.expr) -> Size:
    if isinstance(node, ast.Name):
        return symbol(node.id)
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return node.value
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return dimalgebra.multiply(_size(node.operand), -1)
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        return _OPERATORS[type(node.op)](_size(node.left), _size(node.right))
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _FUNCTIONS and node.args:
        return _FUNCTIONS[node.func.id](*map(_size, node.args))
    raise ValueError(ast.dump(node))


def parse(text: str) -> Size:
    """Return the size that a declaration such as ``"seq"`` or ``"past + seq"`` means.

    Raises:
        ShapeError: It is no name and no arithmetic over names.
    """
    if text.isidentifier():
        return symbol(text)
    return parse_size(text)


def as_size(value: SizeLike) -> Size:
    """Return an int or a Dim for what a user writes as a size.

    Raises:
        ShapeError: It is negative, or no size at all.
    """
    if isinstance(value, Dim):
        return value
    if isinstance(value, str):
        return parse(value)
    try:
        number = int(value.__index__())
    except (AttributeError, TypeError):
        raise ShapeError(f"{value!r} is not a size", op="shape", expected="an int or a name") from None
    if number < 0:
        raise ShapeError(f"a size cannot be {number}", op="shape", expected="an int of at least 0 or a name")
    return number
