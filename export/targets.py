"""What a provider can run, asked before a file is written."""

from __future__ import annotations

from lazygraph.errors import OperandError
from lazygraph.export.program import Program

TARGETS = ("cpu", "cuda")


def check(program: Program, target: str, opset: int) -> None:
    """Require that the target runs every node.

    Raises:
        OperandError: The target is none that lazygraph knows.
        UnsupportedError: It has no kernel for a node.
    """
    if target not in TARGETS:
        raise OperandError(f"target {target!r}", op="export", expected="'cpu', 'cuda' or None")


__all__ = ["TARGETS", "check"]
