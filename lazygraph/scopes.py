"""Named regions of a program: ``with lg.scope("layers.0")`` puts its name before those of the nodes made inside.

A call of a local function (``lazygraph.functions``) is a region too; a node keeps both in one text, its scope.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from lazygraph.where import Where


@dataclass(frozen=True, eq=False, slots=True)
class Call:
    """One call of a local function.

    Attributes:
        name: The function's name.
        domain: The function's domain.
        scope: The names around the call.
        at: The user's line of the call.
        around: The call in whose body this one stands, or None.
    """

    name: str
    domain: str
    scope: str
    at: Where | None
    around: Call | None


class Scope(str):
    """The names around a node, joined by ``/``, and the call of a local function in which it was made.

    Attributes:
        call: The innermost call, or None.
    """

    __slots__ = ("call",)

    call: Call | None

    def __new__(cls, text: str, call: Call | None = None) -> Scope:
        """Return a text that remembers a call."""
        made = super().__new__(cls, text)
        made.call = call
        return made


_NOWHERE = Scope("")
_scope: ContextVar[Scope] = ContextVar("lazygraph_scope", default=_NOWHERE)
current_scope = _scope.get


@contextmanager
def scope(name: str) -> Iterator[None]:
    """Carry ``name`` in the names of all nodes and unnamed constants made inside the block. Scopes nest."""
    outer = _scope.get()
    token = _scope.set(Scope(f"{outer}/{name}" if outer else name, outer.call))
    try:
        yield
    finally:
        _scope.reset(token)


@contextmanager
def calling(call: Call) -> Iterator[None]:
    """Let all nodes made inside the block belong to a call of a local function."""
    token = _scope.set(Scope(_scope.get(), call))
    try:
        yield
    finally:
        _scope.reset(token)


def call_of(scope: str) -> Call | None:
    """Return the innermost call of a local function that a node's scope tells."""
    return scope.call if isinstance(scope, Scope) else None
