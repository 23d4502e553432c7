"""Every error that lazygraph raises, and the one layout of their messages.

A message says what was wrong, shows a row per operand, states the rule, gives a hint where there is a usual
cause, and ends with the user's own line::

    matmul: inner sizes differ: 4 in a and 5 in b
      a        : float32 (3, 4) from input 'x'
      b        : float32 (5, 6) from const 'w' at train.py:12
      expected : last size of a equals second-to-last of b
      at       : train.py:14
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from lazygraph.where import Where, user_line


class LazyGraphError(Exception):
    """The base of every lazygraph error.

    Args:
        what: What was wrong, in one sentence without the op's name.
        op: The op or method that refused; a spec name is shown as the function that users call.
        operands: One row per operand: its label and anything whose ``str()`` describes it.
        expected: The rule that was broken.
        hint: The usual cause or the way out, when there is one.
        at: The user's line; found by itself when left out.
        facts: Further fields, set as attributes of the error.
    """

    def __init__(
        self,
        what: str,
        *,
        op: str = "",
        operands: Mapping[str, object] | None = None,
        expected: str = "",
        hint: str = "",
        at: Where | None = None,
        **facts: Any,
    ) -> None:
        super().__init__(what)
        self.what = what
        self.op = spelled(op)
        self.operands = {label: str(row) for label, row in (operands or {}).items()}
        self.expected = expected
        self.hint = hint
        self.at = at if at is not None else user_line()
        for name, fact in facts.items():
            setattr(self, name, fact)

    def __str__(self) -> str:
        rows = dict(self.operands)
        for label, row in (("expected", self.expected), ("hint", self.hint), ("at", self.at)):
            if row:
                rows[label] = str(row)

        width = max([8, *map(len, rows)])
        lines = [f"{self.op}: {self.what}" if self.op else self.what]
        lines += [f"  {label:<{width}} : {row}" for label, row in rows.items()]
        return "\n".join(lines)


@lru_cache(maxsize=1024)
def spelled(op: str) -> str:
    """Return an operator's spec name as lazygraph's function: ``ReduceSum`` as ``reduce_sum``."""
    return _SPELLED.get(op) or re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", op).lower()


_SPELLED = {
    "MatMul": "matmul",
    "IsNaN": "isnan",
    "IsInf": "isinf",
    "PRelu": "prelu",
    "CumSum": "cumsum",
    "TopK": "topk",
}


class ShapeError(LazyGraphError, ValueError):
    """Shapes do not fit each other or the op."""


class DTypeError(LazyGraphError, TypeError):
    """Element types do not fit each other, the op, or a value."""


class GraphMismatchError(LazyGraphError, ValueError):
    """Tensors of two different graphs met."""


class IndexRangeError(LazyGraphError, IndexError):
    """An axis or an index lies outside what it counts."""


class OperandError(LazyGraphError, TypeError):
    """An operand or attribute is missing, superfluous, or of the wrong kind."""


class UnknownOpError(LazyGraphError, AttributeError):
    """No operator of that name exists in the opset."""


class UnsupportedError(LazyGraphError, NotImplementedError):
    """The request is understood, but the target, opset or model family here cannot serve it."""


class ExportError(LazyGraphError, RuntimeError):
    """The graph could not be written, checked or run."""


class LoadError(LazyGraphError, ValueError):
    """A model file is broken, or asks for what a file must not ask for."""


class WeightsError(LazyGraphError, ValueError):
    """A checkpoint's tensors do not fit the model: missing, unused, or of the wrong shape or type."""

    missing: tuple[str, ...] = ()
    unexpected: tuple[str, ...] = ()


class CacheError(LazyGraphError, ValueError):
    """A cache's rule was broken. The cache it was asked of is unchanged.

    Attributes:
        layer: The layer asked for, or None where no layer is meant.
        slot: The slot asked for, or None.
        wanted: What the rule asks for.
        got: What was given.
    """

    layer: int | None = None
    slot: int | None = None
    wanted: object = None
    got: object = None


class CacheOverflowError(CacheError):
    """More rows than the cache has room for."""


class CacheLayerError(CacheError, IndexError):
    """A layer, or a slot of a layer, that the cache does not have."""


class SlotCountError(CacheError):
    """Not one tensor per slot."""


class SlotShapeError(CacheError):
    """A slot's rows do not have the slot's trailing sizes, or a slot was declared with impossible ones."""


class SeqLenMismatchError(CacheError):
    """The slots of one append bring different numbers of rows."""


class CacheStepError(CacheError, RuntimeError):
    """Appends and advances out of step."""


class SlotDTypeError(CacheError, DTypeError):
    """A slot's rows have another element type than the cache."""


class SlotGraphError(CacheError, GraphMismatchError):
    """A slot's rows belong to another graph than the cache."""
