"""Writes ``catalogue.pyi``, which tells editors and type checkers what ``lg.op`` takes and gives.

``python -m lazygraph.ops.stub`` writes it anew from the installed onnx and the table of contrib operators; a test
compares the two. Only the signatures are written: what an operator does, ``help(lg.op.Name)`` reads from the schema.
"""

from __future__ import annotations

import keyword
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lazygraph.ops.attributes import NAMES_A_DTYPE, default_of, kind_of
from lazygraph.ops.schema import DOMAINS, is_single, op_names, schema_of
from lazygraph.ops.signature import option_of

if TYPE_CHECKING:
    from onnx.defs import OpSchema

FILE = Path(__file__).with_name("catalogue.pyi")

_HEAD = '''"""What ``lg.op`` takes and gives. Generated: ``python -m lazygraph.ops.stub`` with onnx {version}."""

# ruff: noqa: E501
# fmt: off
from collections.abc import Callable, Sequence
from typing import Any

from numpy.typing import ArrayLike

from lazygraph.dtypes import DTypeLike
from lazygraph.graph import Graph
from lazygraph.tensor import Operand, Tensor

_Operand = Operand | str
'''
_KINDS = {
    "INT": "int",
    "FLOAT": "float",
    "STRING": "str",
    "INTS": "Sequence[int]",
    "FLOATS": "Sequence[float]",
    "STRINGS": "Sequence[str]",
    "TENSOR": "ArrayLike",
    "TYPE_PROTO": "DTypeLike",
    "GRAPH": "Callable[..., Tensor | Sequence[Tensor]]",
}


def written(version: str) -> str:
    """Return the stub for the installed schemas."""
    blocks = [_HEAD.format(version=version)]
    for place, domain in DOMAINS.items():
        blocks.append(_class(_title(place), domain, []))
    blocks.append(_class("Catalogue", "", [f"    {place}: {_title(place)}" for place in DOMAINS]))
    return "\n".join(blocks)


def _title(place: str) -> str:
    return place.capitalize()


def _class(name: str, domain: str, fields: list[str]) -> str:
    lines = [f"class {name}:", f'    """The operators of {domain or "ai.onnx"}."""', *fields]
    return "\n".join([*lines, *[_method(schema_of(op, None, domain)) for op in op_names(domain)], ""])


def _method(schema: OpSchema) -> str:
    gives = "Tensor" if is_single(schema) else "tuple[Tensor, ...]"
    spec = f"Spec: {schema.domain or 'ai.onnx'}::{schema.name}-{schema.since_version}."
    takes = ", ".join(["self", *_operands(schema), *_attributes(schema)])
    return f'    def {schema.name}({takes}) -> {gives}: """{spec}"""'


def _operands(schema: OpSchema) -> list[str]:
    found: list[str] = []
    variadic = False
    optional = [option_of(formal) == "Optional" for formal in schema.inputs]
    for place, formal in enumerate(schema.inputs):
        if option_of(formal) == "Variadic":
            found += ["/"] * bool(place)
            found.append(f"*{_name(formal.name)}: _Operand | None")
            variadic = True
        elif all(optional[place:]):
            found.append(f"{_name(formal.name)}: _Operand | None = None")
        else:
            found.append(f"{_name(formal.name)}: _Operand{' | None' if optional[place] else ''}")
    if not variadic:
        found += ["/"] * bool(schema.inputs) + ["*"]
    return found


def _attributes(schema: OpSchema) -> list[str]:
    found: list[str] = []
    for name, attribute in sorted(schema.attributes.items(), key=lambda item: (not item[1].required, item[0])):
        kind = _KINDS.get(kind_of(attribute), "Any")
        if kind == "int" and name in NAMES_A_DTYPE:
            kind = "DTypeLike | int"
        default = default_of(attribute)
        if attribute.required:
            found.append(f"{name}: {kind}")
        elif default is None:
            found.append(f"{name}: {kind} | None = None")
        else:
            found.append(f"{name}: {kind} = {_text(default)}")
    if schema.name == "Split" and not schema.domain:
        found = [text for text in found if not text.startswith("num_outputs")] + ["num_outputs: int | None = None"]
    return [*found, "anchor: Tensor | Graph | None = None"]


def _text(default: Any) -> str:
    return f"{default:.7g}" if isinstance(default, float) and not default.is_integer() else repr(default)


def _name(name: str) -> str:
    return f"{name}_" if keyword.iskeyword(name) else name


def main() -> None:
    """Write the stub beside this file."""
    from onnx import __version__

    text = written(__version__)
    FILE.write_text(text, encoding="utf-8")
    sys.stdout.write(f"{text.count('    def ')} operators\n")


if __name__ == "__main__":
    main()
