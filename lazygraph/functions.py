"""Local functions: a Python function whose calls become calls of one ONNX function.

Calling it builds its nodes as any Python function does: every rule is checked for the tensors of this very call, errors
point into the body, sizes stay exact, and whatever Python can pass (numbers, texts, caches, lists of tensors) can be an
argument or a result. What makes it a function is remembered with the nodes. When the graph is written, the nodes of a
call become one node, and calls whose bodies are equal share one ``FunctionProto``: equal but for the tensors that they
read from outside, so that sixty layers with weights of their own are sixty calls of one function.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Generic, ParamSpec, TypeVar, overload

from lazygraph.errors import LazyGraphError, OperandError
from lazygraph.scopes import Call, calling, current_scope
from lazygraph.where import user_line

P = ParamSpec("P")
R = TypeVar("R")

DOMAIN = "lazygraph.local"


class Function(Generic[P, R]):
    """A Python function on tensors that files hold as a local function. Made by ``function``.

    Attributes:
        name: The ONNX function's name; another body under the same name gets a number behind it.
        domain: Its domain.
        inline: Whether calls stay what they are made of.
    """

    def __init__(self, body: Callable[P, R], name: str, domain: str, inline: bool) -> None:
        functools.update_wrapper(self, body)
        self._body = body
        self.name = name
        self.domain = domain
        self.inline = inline

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Build the body for these arguments; return what it returns."""
        if self.inline:
            return self._body(*args, **kwargs)
        scope = current_scope()
        call = Call(self.name, self.domain, str(scope), user_line(), scope.call)
        with calling(call):
            try:
                return self._body(*args, **kwargs)
            except LazyGraphError as error:  # its own line is the one in the body
                error.operands.setdefault(f"in {self.name}", f"called at {call.at}")
                raise

    def inlined(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Build the body without making a call of it, this once."""
        return self._body(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<lazygraph function {self.domain}.{self.name}>"


@overload
def function(body: Callable[P, R], /) -> Function[P, R]: ...
@overload
def function(
    *, name: str | None = None, domain: str = DOMAIN, inline: bool = False
) -> Callable[[Callable[P, R]], Function[P, R]]: ...


def function(
    body: Callable[P, R] | None = None, /, *, name: str | None = None, domain: str = DOMAIN, inline: bool = False
) -> Function[P, R] | Callable[[Callable[P, R]], Function[P, R]]:
    """Return a Python function whose calls become calls of one local ONNX function.

    Tensors that the body reads and does not make, arguments and weights among them, become inputs of the call, in the
    order in which the body reads them. Small constants without a name stay in the body. Calls may differ in shapes;
    where that changes the body, a second function is written. What the body computes of whole numbers alone and others
    read too (sizes, the rows that a cache writes) is computed once, outside.

    Args:
        body: The function.
        name: The ONNX function's name; by default the Python function's.
        domain: Its domain.
        inline: Write the nodes themselves and no function.

    Raises:
        OperandError: No function, or a name or a domain that cannot be.

    Spec: onnx.proto, FunctionProto.
    """
    for label, text in (("name", name), ("domain", domain)):
        if text is not None and (not isinstance(text, str) or not text):
            raise OperandError(f"{label} is {text!r}", op="function", expected="a text that is not empty")
    if domain in ("ai.onnx", "ai.onnx.ml", "com.microsoft"):
        raise OperandError(f"the domain {domain!r} is taken", op="function", expected="a domain of your own")

    def made(body: Callable[P, R]) -> Function[P, R]:
        if not callable(body):
            raise OperandError(f"{body!r} is no function", op="function", expected="a Python function on tensors")
        return Function(body, name or getattr(body, "__name__", "function").strip("<>"), domain, inline)

    return made if body is None else made(body)


__all__ = ["DOMAIN", "Function", "function"]
