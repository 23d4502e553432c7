"""``lg.op.Name(...)``: every operator of ai.onnx by its spec name, checked against the installed schema.

lazygraph's own rule gives the shapes where it has one; the schema's own inference does elsewhere.
"""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from lazygraph.errors import UnknownOpError, UnsupportedError
from lazygraph.ops.attributes import attributes_of, default_of, kind_of
from lazygraph.ops.core import Results, add_node, graph_of, rule_of
from lazygraph.ops.inference import inferred
from lazygraph.ops.signature import check_types, dtype_name, inputs_of, option_of
from lazygraph.tensor import Graph, Tensor, same_graph

if TYPE_CHECKING:
    from onnx.defs import OpSchema


class Ops:
    """All operators of ai.onnx as functions, ``op.Name(*operands, **attributes)``.

    ``help(lg.op.Add)`` explains one. Operands are given by position, None for one that is left out; scalars, lists and
    arrays become constants. An operator with one output in its schema gives a tensor, any other a tuple of all outputs.
    """

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name.startswith("__"):
            raise AttributeError(name)
        return _function(name)

    def __dir__(self) -> list[str]:
        return list(op_names())


op = Ops()


@lru_cache(maxsize=1)
def op_names() -> tuple[str, ...]:
    """Return the names of all operators that the newest opset has, deprecated ones left out."""
    from onnx import defs

    return tuple(sorted(s.name for s in defs.get_all_schemas() if s.domain == "" and not s.deprecated))


@lru_cache(maxsize=1)
def newest_opset() -> int:
    """Return the newest ai.onnx opset that the installed onnx has."""
    from onnx import defs

    return int(defs.onnx_opset_version())


@lru_cache(maxsize=4096)
def schema_of(name: str, opset: int | None = None) -> OpSchema:
    """Return the schema of an operator in an opset, the newest when None.

    Raises:
        UnknownOpError: The opset has no such operator.
        UnsupportedError: It is deprecated there.
    """
    from onnx import defs

    version = newest_opset() if opset is None else min(opset, newest_opset())
    try:
        schema = defs.get_schema(name, version, "")
    except defs.SchemaError:
        later = [s.since_version for s in defs.get_all_schemas_with_history() if s.name == name and s.domain == ""]
        if later:
            raise UnknownOpError(
                f"opset {version} has no {name}", op="op", expected=f"opset {min(later)} or later for {name}", name=name
            ) from None
        near = difflib.get_close_matches(name, op_names(), 3, 0.5) or _same_letters(name)
        raise UnknownOpError(
            f"no operator is called {name!r}",
            op="op",
            expected="the name of an ai.onnx operator",
            hint=f"did you mean {', '.join(near)}?" if near else "",
            name=name,
        ) from None
    if schema.deprecated:
        raise UnsupportedError(f"{name} is deprecated in opset {version}", op="op", expected="its successor", name=name)
    return schema


def _same_letters(name: str) -> list[str]:
    plain = name.replace("_", "").lower()
    lowered = {known.lower(): known for known in op_names()}
    return [lowered[near] for near in difflib.get_close_matches(plain, lowered, 3, 0.5)]


@lru_cache(maxsize=1024)
def _function(name: str) -> Callable[..., Any]:
    schema = schema_of(name)

    def call(*operands: Any, anchor: Tensor | Graph | None = None, **attributes: Any) -> Any:
        return call_op(name, operands, attributes, anchor)

    call.__name__ = name
    call.__qualname__ = f"op.{name}"
    call.__doc__ = _documentation(schema)
    call.__signature__ = _signature(schema)  # type: ignore[attr-defined]
    return call


def _signature(schema: OpSchema) -> inspect.Signature:
    kinds = inspect.Parameter
    made = []
    for formal in schema.inputs:
        kind = kinds.VAR_POSITIONAL if option_of(formal) == "Variadic" else kinds.POSITIONAL_ONLY
        default = None if option_of(formal) == "Optional" else kinds.empty
        made.append(kinds(formal.name, kind, default=default))
    for name, attribute in sorted(schema.attributes.items()):
        made.append(
            kinds(name, kinds.KEYWORD_ONLY, default=kinds.empty if attribute.required else default_of(attribute))
        )
    return inspect.Signature(made)


def _documentation(schema: OpSchema) -> str:
    lines = [inspect.cleandoc(schema.doc or ""), "", f"Spec: ai.onnx::{schema.name}-{schema.since_version}.", ""]
    for title, formals in (("Operands", schema.inputs), ("Returns", schema.outputs)):
        lines += [f"{title}:"] if formals else []
        for formal in formals:
            option = option_of(formal)
            note = "" if option == "Single" else f", {option.lower()}"
            lines.append(f"    {formal.name} ({formal.type_str}{note}): {' '.join(formal.description.split())}")
    lines += ["Attributes:"] if schema.attributes else []
    for name, attribute in sorted(schema.attributes.items()):
        note = "required" if attribute.required else f"default {default_of(attribute)!r}"
        lines.append(f"    {name} ({kind_of(attribute)}, {note}): {' '.join(attribute.description.split())}")
    lines += ["Types:"] if schema.type_constraints else []
    lines += [f"    {t.type_param_str}: {', '.join(t.allowed_type_strs)}" for t in schema.type_constraints]
    return "\n".join(lines)


# ---- one call ----


def call_op(
    name: str, operands: Sequence[Any], attributes: dict[str, Any], anchor: Tensor | Graph | None = None
) -> Any:
    """Check and add one operator call; return its output, or the tuple of all of them where the schema has several.

    Raises:
        UnknownOpError: The graph's opset has no such operator.
        OperandError: An operand or attribute is missing, superfluous, or of the wrong kind.
        DTypeError: An operand's element type is not among those that the schema allows.
        ShapeError: The operands' shapes do not fit.
        UnsupportedError: It takes a subgraph, or sequences or optionals.
    """
    tensors = [value for value in operands if isinstance(value, Tensor)]
    graph = same_graph(name, tensors) if tensors else graph_of(anchor)
    schema = schema_of(name, graph.opset)
    inputs = inputs_of(schema, operands, attributes, graph)
    attrs = attributes_of(schema, attributes)
    if not _makes_tensors(name, schema.since_version):
        raise UnsupportedError("it makes sequences or optionals", op=name, expected="operators on tensors")

    # A rule knows the newest form; an older one that a fixed opset asks for may have other attributes.
    own = rule_of(name)
    results: Results
    if own is not None and (not attrs or all(attribute in schema_of(name).attributes for attribute in attrs)):
        results = own(name, inputs, attrs)
        check_types(schema, inputs)
    else:
        check_types(schema, inputs)
        results = inferred(schema, inputs, attrs, graph)
    outputs = add_node(graph, name, inputs, attrs, results)
    return outputs[0] if _is_single(name, schema.since_version) else outputs


@lru_cache(maxsize=1024)
def _makes_tensors(name: str, version: int) -> bool:
    return all(any(map(dtype_name, formal.types)) for formal in schema_of(name, version).outputs)


@lru_cache(maxsize=1024)
def _is_single(name: str, version: int) -> bool:
    outputs = schema_of(name, version).outputs
    return len(outputs) == 1 and option_of(outputs[0]) != "Variadic"


__all__ = ["Ops", "call_op", "newest_opset", "op", "op_names", "schema_of"]
