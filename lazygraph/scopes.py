"""Named regions of a program: ``with lg.scope("layers.0")`` puts its name before those of the nodes made inside."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_scope: ContextVar[str] = ContextVar("lazygraph_scope", default="")
current_scope = _scope.get


@contextmanager
def scope(name: str) -> Iterator[None]:
    """Carry ``name`` in the names of all nodes and unnamed constants made inside the block. Scopes nest."""
    outer = _scope.get()
    token = _scope.set(f"{outer}/{name}" if outer else name)
    try:
        yield
    finally:
        _scope.reset(token)
