"""``lg.op.Name(...)``: every operator of ai.onnx by its spec name, checked against the installed schema.

lazygraph's own rule gives the shapes where it has one; the schema's own inference does elsewhere.
"""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from lazygraph.dtypes import as_dtype
from lazygraph.errors import DTypeError, OperandError, UnknownOpError, UnsupportedError
from lazygraph.ops.attributes import attributes_of, default_of, kind_of
from lazygraph.ops.core import Inputs, Results, add_node, as_tensor, graph_of, rule_of
from lazygraph.tensor import Graph, Tensor, describe, same_graph

if TYPE_CHECKING:
    from onnx.defs import OpSchema

OLDEST = 13
# ONNX's names of element types in type constraints, where they differ from numpy's and ml_dtypes'.
_ONNX_NAMES = {
    "float": "float32",
    "double": "float64",
    "float8e4m3fn": "float8_e4m3fn",
    "float8e4m3fnuz": "float8_e4m3fnuz",
    "float8e5m2": "float8_e5m2",
    "float8e5m2fnuz": "float8_e5m2fnuz",
    "float4e2m1": "float4_e2m1fn",
    "float8e8m0": "float8_e8m0fnu",
}


class Ops:
    """All operators of ai.onnx as functions, ``op.Name(*operands, **attributes)``.

    ``help(lg.op.Add)`` explains one. Operands are given by position, None for one that is left out; scalars, lists and
    with one output in its schema gives a tensor, any other a tuple of all its outputs.
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
        kind = kinds.VAR_POSITIONAL if _option(formal) == "Variadic" else kinds.POSITIONAL_ONLY
        default = None if _option(formal) == "Optional" else kinds.empty
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
            option = _option(formal)
            note = "" if option == "Single" else f", {option.lower()}"
            lines.append(f"    {formal.name} ({formal.type_str}{note}): {' '.join(formal.description.split())}")
    lines += ["Attributes:"] if schema.attributes else []
    for name, attribute in sorted(schema.attributes.items()):
        note = "required" if attribute.required else f"default {default_of(attribute)!r}"
        lines.append(f"    {name} ({kind_of(attribute)}, {note}): {' '.join(attribute.description.split())}")
    lines += ["Types:"] if schema.type_constraints else []
    lines += [f"    {t.type_param_str}: {', '.join(t.allowed_type_strs)}" for t in schema.type_constraints]
    return "\n".join(lines)


def _option(formal: Any) -> str:
    return str(formal.option).rsplit(".", 1)[-1]


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
    inputs = _inputs(schema, operands, attributes, graph)
    attrs = attributes_of(schema, attributes)
    if any("tensor" not in kind[:6] for formal in schema.outputs for kind in formal.types):
        only_tensors = any(kind.startswith("tensor") for formal in schema.outputs for kind in formal.types)
        if not only_tensors:
            raise UnsupportedError("it makes sequences or optionals", op=name, expected="operators on tensors")

    own = rule_of(name)
    results: Results
    if own is not None and all(attribute in schema_of(name).attributes for attribute in attrs):
        results = own(name, inputs, attrs)
        _check_types(schema, inputs)
    else:
        _check_types(schema, inputs)
        from lazygraph.ops.inference import inferred

        results = inferred(schema, inputs, attrs, graph)
    outputs = add_node(graph, name, inputs, attrs, results)
    variadic = bool(schema.outputs) and _option(schema.outputs[-1]) == "Variadic"
    return outputs[0] if len(schema.outputs) == 1 and not variadic else outputs


def _formal(schema: OpSchema, place: int) -> Any:
    return schema.inputs[min(place, len(schema.inputs) - 1)]


def _inputs(schema: OpSchema, operands: Sequence[Any], attributes: dict[str, Any], graph: Graph) -> Inputs:
    given = list(operands)
    while given and given[-1] is None:
        given.pop()
    names = [formal.name for formal in schema.inputs]
    shown = {_label(schema, i): _shown(value) for i, value in enumerate(given)}
    for name in attributes:
        if name in names and name not in schema.attributes:
            raise OperandError(
                f"{name!r} is an operand",
                op=schema.name,
                operands=shown,
                expected=f"operands by position: {', '.join(names)}",
            )
    if len(given) > schema.max_input:
        raise OperandError(
            f"{len(given)} operands given",
            op=schema.name,
            operands=shown,
            expected=f"at most {schema.max_input}: {', '.join(names)}" if names else "no operand",
        )
    for place in range(max(schema.min_input, len(given))):
        left_out = place >= len(given) or given[place] is None
        if left_out and (place < schema.min_input or _option(_formal(schema, place)) != "Optional"):
            if place < len(names) and _option(schema.inputs[place]) == "Optional":
                continue
            raise OperandError(
                f"operand {_label(schema, place)!r} is missing",
                op=schema.name,
                operands=shown,
                expected=f"operands {', '.join(names)}",
            )

    bound: dict[str, Tensor] = {}
    for place, value in enumerate(given):
        if isinstance(value, Tensor):
            bound.setdefault(_formal(schema, place).type_str, value)
    like = next(iter(bound.values()), None)
    made = []
    for place, value in enumerate(given):
        if value is None or isinstance(value, Tensor):
            made.append(value)
            continue
        formal = _formal(schema, place)
        constant = _constant(schema, formal, value, bound.get(formal.type_str), like, graph)
        made.append(constant)
        bound.setdefault(formal.type_str, constant)
    return tuple(made)


def _label(schema: OpSchema, place: int) -> str:
    if place < len(schema.inputs) and _option(schema.inputs[place]) != "Variadic":
        return str(schema.inputs[place].name)
    return f"operand {place}"


def _shown(value: Any) -> str:
    return describe(value) if isinstance(value, Tensor) else "left out" if value is None else repr(value)


def _constant(
    schema: OpSchema, formal: Any, value: Any, bound: Tensor | None, like: Tensor | None, graph: Graph
) -> Tensor:
    """Return a value as a constant of the type that its place in the signature asks for."""
    if bound is not None:
        return as_tensor(schema.name, value, bound)
    beside = like if like is not None else graph.ints(())
    allowed = [name for name in map(dtype_name, sorted(formal.types)) if name]
    if isinstance(value, (np.ndarray, np.generic)):
        return as_tensor(schema.name, value, beside)
    flat = np.asarray(value).dtype.kind
    wanted = {"f": ["float32"], "i": ["int64", "int32", "float32"], "b": ["bool"], "U": ["string"]}.get(flat, [])
    for name in [*wanted, *allowed]:
        if name in allowed:
            return as_tensor(schema.name, value, beside, as_dtype(name))
    raise OperandError(f"{value!r} is no {formal.name}", op=schema.name, expected=f"one of {', '.join(allowed)}")


def dtype_name(kind: str) -> str:
    """Return our name of ``tensor(float)``; empty for what is no tensor, or of a type that lazygraph has not."""
    if not kind.startswith("tensor("):
        return ""
    name = kind[7:-1]
    return _ONNX_NAMES.get(name, name)


def _check_types(schema: OpSchema, inputs: Inputs) -> None:
    bound: dict[str, tuple[str, Tensor]] = {}
    for place, tensor in enumerate(inputs):
        if tensor is None:
            continue
        formal = _formal(schema, place)
        label = _label(schema, place)
        allowed = {dtype_name(kind) for kind in formal.types}
        if tensor.dtype.name not in allowed:
            raise DTypeError(
                f"{label} is {tensor.dtype}",
                op=schema.name,
                operands={label: describe(tensor)},
                expected=f"{label} of {', '.join(sorted(filter(None, allowed))) or 'no tensor type'}",
            )
        if _option(formal) == "Variadic" and not formal.is_homogeneous:
            continue
        other, first = bound.setdefault(formal.type_str, (label, tensor))
        if first.dtype is not tensor.dtype:
            raise DTypeError(
                f"element types differ: {first.dtype} and {tensor.dtype}",
                op=schema.name,
                operands={other: describe(first), label: describe(tensor)},
                expected=f"one element type for {other} and {label}",
                hint="x.astype(...) converts",
            )


__all__ = ["Ops", "call_op", "dtype_name", "newest_opset", "op", "op_names", "schema_of"]
