"""Writes the table of onnxruntime's own operators, ``lazygraph.ops.contrib_table``, from the installed one.

``python -m lazygraph.export.contribs``. The schemas come with those builds of onnxruntime that tell them.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from lazygraph.ops import contrib

_DOMAIN = "com.microsoft"


def written(schemas: Iterable[Any]) -> str:
    """Return the table of onnxruntime's schemas, as ``lazygraph.ops.contrib_table`` holds it."""
    blocks: list[str] = []
    for schema in sorted(schemas, key=lambda schema: str(schema.name)):
        if schema.domain == _DOMAIN and not schema.deprecated:
            blocks += [schema.name, *[f"  {line}" for line in _lines(schema)]]
    return "\n".join(blocks)


def _lines(schema: Any) -> list[str]:
    lines: list[str] = []
    for mark, formals, least in (("in", schema.inputs, schema.min_input), ("out", schema.outputs, schema.min_output)):
        if formals:
            lines.append(" ".join([mark, *[_formal(formal, i, least) for i, formal in enumerate(formals)]]))
    for limit in sorted(schema.type_constraints, key=lambda limit: str(limit.type_param_str)):
        types = " ".join(sorted(map(_type, limit.allowed_type_strs)))
        lines.append(f"type {limit.type_param_str} = {types}")
    for name, attribute in sorted(schema.attributes.items()):
        lines.append(_attribute(name, attribute))
    return lines


def _formal(formal: Any, place: int, least: int) -> str:
    option = str(formal.option).rsplit(".", 1)[-1]
    mark = {"Optional": contrib.OPTIONAL, "Variadic": f"{contrib.VARIADIC}{max(0, least - place)}"}.get(option, "")
    if option == "Variadic" and not formal.isHomogeneous:
        mark += contrib.MIXED
    return f"{formal.name}{mark}:{_type(formal.typeStr)}"


def _type(text: str) -> str:
    return text[7:-1] if text.startswith("tensor(") else text


def _attribute(name: str, attribute: Any) -> str:
    from onnx import AttributeProto, helper

    line = f"attr {name} {str(attribute.type).rsplit('.', 1)[-1]}"
    if attribute.required:
        return f"{line} required"
    if not attribute._default_value:
        return line
    value = helper.get_attribute_value(AttributeProto.FromString(attribute._default_value))
    if isinstance(value, float):
        value = float(f"{value:.7g}")  # float32, in as few digits
    return f"{line} = {json.dumps(value.decode() if isinstance(value, bytes) else value)}"


def main() -> None:
    """Write the table into the folder of the ops."""
    import onnxruntime
    from onnxruntime.capi import onnxruntime_pybind11_state as state

    table = written(state.get_all_operator_schema())
    head = (
        f'"""The {_DOMAIN} operators of onnxruntime {onnxruntime.__version__}. '
        'Generated: ``python -m lazygraph.export.contribs``."""\n\n'
        "# ruff: noqa: E501\n"
        "from __future__ import annotations\n\n"
        "# operands (? optional, *n variadic with at least n, ~ of mixed types), types, attributes with defaults\n"
    )
    Path(contrib.__file__).with_name("contrib_table.py").write_text(
        f'{head}TABLE = """\n{table}\n"""\n', encoding="utf-8"
    )
    sys.stdout.write(f"{sum(not line.startswith(' ') for line in table.splitlines())} operators\n")


if __name__ == "__main__":
    main()
