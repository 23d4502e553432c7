"""Chat messages as the text that a model was trained on: Jinja templates, rendered as transformers does."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from lazygraph.errors import OperandError, UnsupportedError
from lazygraph.models.files import asking_line, require

if TYPE_CHECKING:
    from jinja2.sandbox import ImmutableSandboxedEnvironment


def render(
    template: str,
    messages: Sequence[Mapping[str, Any]],
    add_generation_prompt: bool,
    variables: Mapping[str, Any],
) -> str:
    """Return the text of a conversation.

    Args:
        template: Jinja source. It comes with the checkpoint, so it runs in a sandbox that can change nothing.
        messages: Each with ``role`` and, usually, ``content``.
        add_generation_prompt: End with the words that begin an answer.
        variables: Further names that the template may use (``bos_token``, ``tools``, ``enable_thinking``).

    Raises:
        OperandError: The messages are no messages, or the template refuses them.
        UnsupportedError: The template is not Jinja that this sandbox understands.

    Source: transformers, utils/chat_template_utils.py.
    """
    require("jinja2")
    from jinja2 import TemplateError, TemplateSyntaxError

    _check(messages)
    try:
        compiled = _environment().from_string(template)
    except TemplateSyntaxError as error:
        raise UnsupportedError(
            f"the chat template is not valid: {error.message} (its line {error.lineno})", op="chat", at=asking_line()
        ) from error

    names: dict[str, Any] = {"tools": None, "documents": None, **variables}
    names |= {"messages": [dict(message) for message in messages], "add_generation_prompt": add_generation_prompt}
    try:
        return compiled.render(names)
    except TemplateError as error:
        raise OperandError(
            f"the chat template refuses these messages: {error.message or type(error).__name__}",
            op="chat",
            operands=_rows(messages),
            at=asking_line(),
        ) from error
    except Exception as error:  # template code is code: it may fail in any way
        raise OperandError(
            f"the chat template fails on these messages: {type(error).__name__}: {error}",
            op="chat",
            operands=_rows(messages),
            at=asking_line(),
        ) from error


def _check(messages: object) -> None:
    good = isinstance(messages, Sequence) and not isinstance(messages, str)
    if isinstance(messages, Sequence):
        good = good and all(isinstance(entry, Mapping) and isinstance(entry.get("role"), str) for entry in messages)
    if not good:
        raise OperandError(
            "these are not chat messages",
            op="chat",
            operands={"messages": repr(messages)[:80]},
            expected="a list of mappings, each with a 'role' and a 'content'",
            at=asking_line(),
        )


def _rows(messages: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    return {"roles": ", ".join(str(message["role"]) for message in messages) or "no messages"}


def _environment() -> ImmutableSandboxedEnvironment:
    from jinja2 import TemplateError, nodes
    from jinja2.ext import Extension, loopcontrols
    from jinja2.parser import Parser
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    class Generation(Extension):
        """``{% generation %}`` marks what an assistant said, for training; its text is shown as it is."""

        tags = {"generation"}  # noqa: RUF012 - jinja's own attribute

        def parse(self, parser: Parser) -> list[nodes.Node]:
            next(parser.stream)
            return parser.parse_statements(("name:endgeneration",), drop_needle=True)

    def raise_exception(message: str) -> None:
        raise TemplateError(message)

    def strftime_now(layout: str) -> str:
        return datetime.now().strftime(layout)

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols]
    )
    environment.filters["tojson"] = _tojson
    environment.globals["raise_exception"] = raise_exception
    environment.globals["strftime_now"] = strftime_now
    return environment


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    # Jinja's own filter escapes <, > and &, which no model has seen.
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)
