"""Schemas of onnxruntime's own operators, ``com.microsoft``, from a table that its registry wrote.

The table needs no onnxruntime to be read. ``python -m lazygraph.export.contribs`` writes it anew from the installed
one; a test compares the two.
"""

from __future__ import annotations

import json
from functools import lru_cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from onnx.defs import OpSchema

# How the table marks an operand's option behind its name; a number behind ``*`` is the least count.
OPTIONAL, VARIADIC, MIXED = "?", "*", "~"


@lru_cache(maxsize=1)
def _entries() -> dict[str, list[str]]:
    """Return the table's lines by operator."""
    from lazygraph.ops.contrib_table import TABLE

    found: dict[str, list[str]] = {}
    lines: list[str] = []
    for line in TABLE.strip().split("\n"):
        if line.startswith(" "):
            lines.append(line.strip())
        else:
            lines = found[line] = []
    return found


def contrib_names() -> tuple[str, ...]:
    """Return the names of all operators of the domain."""
    return tuple(_entries())


@lru_cache(maxsize=256)
def contrib_schema(name: str) -> OpSchema:
    """Return the schema of an operator.

    Raises:
        KeyError: The table has none of that name.
    """
    from onnx import defs

    inputs: list[Any] = []
    outputs: list[Any] = []
    types: list[tuple[str, list[str], str]] = []
    attributes: list[Any] = []
    for line in _entries()[name]:
        mark, _, rest = line.partition(" ")
        if mark == "attr":
            attributes.append(_attribute(rest))
        elif mark == "type":
            variable, _, allowed = rest.partition(" = ")
            types.append((variable, [_type_text(text) for text in allowed.split(" ")], ""))
        else:
            (inputs if mark == "in" else outputs).extend(map(_formal, rest.split(" ")))
    return defs.OpSchema(
        name,
        "com.microsoft",
        1,
        "onnxruntime's docs/ContribOperators.md describes it.",
        inputs=inputs,
        outputs=outputs,
        type_constraints=types,
        attributes=attributes,
    )


def _formal(text: str) -> Any:
    from onnx.defs import OpSchema

    name, _, kind = text.partition(":")
    if "(" not in kind and kind[:1].islower():
        kind = _type_text(kind)
    option, least = OpSchema.FormalParameterOption.Single, 1
    if name.endswith(OPTIONAL):
        name, option = name[:-1], OpSchema.FormalParameterOption.Optional
    mixed = name.endswith(MIXED)
    name = name.removesuffix(MIXED)
    if VARIADIC in name:
        name, _, count = name.partition(VARIADIC)
        option, least = OpSchema.FormalParameterOption.Variadic, int(count)
    return OpSchema.FormalParameter(name, kind, param_option=option, is_homogeneous=not mixed, min_arity=least)


def _type_text(text: str) -> str:
    return text if "(" in text else f"tensor({text})"


def _attribute(text: str) -> Any:
    from onnx import helper
    from onnx.defs import OpSchema

    head, _, default = text.partition(" = ")
    name, kind, *required = head.split(" ")
    type_ = getattr(OpSchema.AttrType, kind)
    if not default:
        return OpSchema.Attribute(name, type_, required=bool(required))
    value = json.loads(default)
    return OpSchema.Attribute(name, helper.make_attribute(name, float(value) if kind == "FLOAT" else value))


__all__ = ["MIXED", "OPTIONAL", "VARIADIC", "contrib_names", "contrib_schema"]
