"""Whole numbers that users give: Python's and numpy's alike."""

from __future__ import annotations

import operator
from typing import Any

from lazygraph.errors import ShapeError


def whole(value: Any) -> int | None:
    """Return the int that a value is, or None: a bool, a float, a text or a named size is none."""
    if isinstance(value, bool):
        return None
    try:
        return operator.index(value)
    except (TypeError, ShapeError):
        return None


__all__ = ["whole"]
