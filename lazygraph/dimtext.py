"""Reads sizes written as text: ``"past + seq"``, ``"2*n"``, ``"max(seq - 1, 0)"``."""

from __future__ import annotations

import ast
from collections.abc import Callable

from lazygraph import dims
from lazygraph.dims import Size
from lazygraph.errors import ShapeError

_OPERATORS: dict[type[ast.operator], Callable[[Size, Size], Size]] = {
    ast.Add: dims.add,
    ast.Sub: dims.subtract,
    ast.Mult: dims.multiply,
    ast.FloorDiv: dims.floordiv,
    ast.Mod: dims.modulo,
}
_FUNCTIONS: dict[str, Callable[..., Size]] = {"min": dims.smallest, "max": dims.largest}


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
        return dims.size(node.id)
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return node.value
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return dims.multiply(_size(node.operand), -1)
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        return _OPERATORS[type(node.op)](_size(node.left), _size(node.right))
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _FUNCTIONS and node.args:
        return _FUNCTIONS[node.func.id](*map(_size, node.args))
    raise ValueError(ast.dump(node))
