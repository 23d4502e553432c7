"""``lg.op.Name(...)``: every operator of ai.onnx by its spec name, checked against the installed schema.

``lg.op.ml``, ``lg.op.preview`` and ``lg.op.training`` hold the operators of onnx's other domains, ``lg.op.microsoft``
those of onnxruntime. lazygraph's own rule gives the shapes where it has one; the schema's own inference does elsewhere.
"""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, cast

from lazygraph.errors import UnknownOpError, UnsupportedError
from lazygraph.ops import classical, folding, fused, recurrent, signal, training  # noqa: F401  rules that only lg.op needs
from lazygraph.ops.attributes import attributes_of, default_of, kind_of
from lazygraph.ops.contrib import contrib_names, contrib_schema
from lazygraph.ops.core import Results, add_node, graph_of, rule_of
from lazygraph.ops.inference import inferred
from lazygraph.ops.microsoft import DOMAIN as MICROSOFT
from lazygraph.ops.signature import check_types, dtype_name, inputs_of, option_of
from lazygraph.ops.structured import graph_attributes, parts_of
from lazygraph.origins import Body, Node
from lazygraph.tensor import Graph, Tensor, same_graph

if TYPE_CHECKING:
    from onnx.defs import OpSchema

    from lazygraph.ops.catalogue import Catalogue


# The domains beside ai.onnx, by the name that they have under ``lg.op``.
DOMAINS = {
    "ml": "ai.onnx.ml",
    "preview": "ai.onnx.preview",
    "training": "ai.onnx.preview.training",
    "microsoft": MICROSOFT,
}


class Ops:
    """All operators of a domain as functions, ``op.Name(*operands, **attributes)``.

    ``help(lg.op.Add)`` explains one. Operands are given by position, None for one that is left out; scalars, lists and
    arrays become constants. An operator with one output in its schema gives a tensor, any other a tuple of all outputs.
    The operators of other domains stand one step further in: ``op.ml.TreeEnsemble``, ``op.microsoft.MatMulNBits``.
    """

    def __init__(self, domain: str = "") -> None:
        self._domain = domain

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if name in DOMAINS and not self._domain:
            return _OTHERS[name]
        return _function(name, self._domain)

    def __dir__(self) -> list[str]:
        return [*op_names(self._domain), *([] if self._domain else DOMAINS)]

    def __repr__(self) -> str:
        return f"<the operators of {self._domain or 'ai.onnx'}>"


op = cast("Catalogue", Ops())
_OTHERS = {name: Ops(domain) for name, domain in DOMAINS.items()}


@lru_cache(maxsize=8)
def op_names(domain: str = "") -> tuple[str, ...]:
    """Return the names of all operators that a domain's newest opset has, deprecated ones left out."""
    from onnx import defs

    if domain == MICROSOFT:
        return contrib_names()
    return tuple(sorted(s.name for s in defs.get_all_schemas() if s.domain == domain and not s.deprecated))


@lru_cache(maxsize=1)
def newest_opset() -> int:
    """Return the newest ai.onnx opset that the installed onnx has."""
    from onnx import defs

    return int(defs.onnx_opset_version())


@lru_cache(maxsize=4096)
def schema_of(name: str, opset: int | None = None, domain: str = "") -> OpSchema:
    """Return the schema of an operator in an opset of ai.onnx, the newest when None; other domains have the newest.

    Raises:
        UnknownOpError: The opset has no such operator.
        UnsupportedError: It is deprecated there.
    """
    from onnx import defs

    version = newest_opset() if opset is None or domain else min(opset, newest_opset())
    try:
        schema = contrib_schema(name) if domain == MICROSOFT else defs.get_schema(name, version, domain)
    except (defs.SchemaError, KeyError):
        raise _unknown(name, version, domain) from None
    if schema.deprecated:
        raise UnsupportedError(
            f"{name} is deprecated in {domain or f'opset {version}'}", op="op", expected="its successor", name=name
        )
    return schema


def _unknown(name: str, version: int, domain: str) -> UnknownOpError:
    """Return the error for a name that the domain does not have: where it is, or what is called like it."""
    from onnx import defs

    known = [s for s in defs.get_all_schemas_with_history() if s.name == name]
    later = [s.since_version for s in known if s.domain == domain]
    if later and domain == "":
        return UnknownOpError(
            f"opset {version} has no {name}", op="op", expected=f"opset {min(later)} or later for {name}", name=name
        )
    elsewhere = [place for place, other in [("", ""), *DOMAINS.items()] if name in op_names(other)]
    near = [".".join(filter(None, ["lg.op", place, name])) for place in elsewhere]
    near = near or difflib.get_close_matches(name, op_names(domain), 3, 0.5) or _same_letters(name, domain)
    return UnknownOpError(
        f"no operator is called {name!r}",
        op="op",
        expected=f"the name of an operator of {domain or 'ai.onnx'}",
        hint=f"did you mean {', '.join(near)}?" if near else "",
        name=name,
    )


def _same_letters(name: str, domain: str) -> list[str]:
    plain = name.replace("_", "").lower()
    lowered = {known.lower(): known for known in op_names(domain)}
    return [lowered[near] for near in difflib.get_close_matches(plain, lowered, 3, 0.5)]


@lru_cache(maxsize=1024)
def _function(name: str, domain: str) -> Callable[..., Any]:
    schema = schema_of(name, None, domain)

    def call(*operands: Any, anchor: Tensor | Graph | None = None, **attributes: Any) -> Any:
        return call_op(name, operands, attributes, anchor, domain)

    call.__name__ = name
    call.__qualname__ = f"op.{name}" if not domain else f"op.{_place(domain)}.{name}"
    call.__doc__ = _documentation(schema)
    call.__signature__ = _signature(schema)  # type: ignore[attr-defined]
    return call


def _place(domain: str) -> str:
    return next(place for place, other in DOMAINS.items() if other == domain)


def _signature(schema: OpSchema) -> inspect.Signature:
    kinds = inspect.Parameter
    made = []
    optional = [option_of(formal) == "Optional" for formal in schema.inputs]
    for place, formal in enumerate(schema.inputs):
        kind = kinds.VAR_POSITIONAL if option_of(formal) == "Variadic" else kinds.POSITIONAL_ONLY
        default = None if all(optional[place:]) else kinds.empty  # Python has none before one that must be given
        made.append(kinds(formal.name, kind, default=default))
    for name, attribute in sorted(schema.attributes.items()):
        made.append(
            kinds(name, kinds.KEYWORD_ONLY, default=kinds.empty if attribute.required else default_of(attribute))
        )
    return inspect.Signature(made)


def _documentation(schema: OpSchema) -> str:
    spec = f"Spec: {schema.domain or 'ai.onnx'}::{schema.name}-{schema.since_version}."
    lines = [inspect.cleandoc(schema.doc or ""), "", spec, ""]
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
    name: str,
    operands: Sequence[Any],
    attributes: dict[str, Any],
    anchor: Tensor | Graph | None = None,
    domain: str = "",
) -> Any:
    """Check and add one operator call; return its output, or the tuple of all of them where the schema has several.

    Raises:
        UnknownOpError: The graph's opset has no such operator.
        OperandError: An operand or attribute is missing, superfluous, or of the wrong kind.
        DTypeError: An operand's element type is not among those that the schema allows.
        ShapeError: The operands' shapes do not fit.
        UnsupportedError: It makes sparse tensors, or holds parts of the program in a way that is not known here.
    """
    tensors = [value for value in operands if isinstance(value, Tensor)]
    graph = same_graph(name, tensors) if tensors else graph_of(anchor)
    schema = schema_of(name, graph.opset, domain)
    parts = attributes.pop("num_outputs", None) if name == "Split" and "num_outputs" not in schema.attributes else None
    names = graph_attributes(schema)
    functions = {part: attributes.pop(part) for part in names if attributes.get(part) is not None}
    inputs = inputs_of(schema, operands, attributes, graph)
    attrs = attributes_of(schema, attributes, functions)
    if not _makes_tensors(schema):
        raise UnsupportedError("it makes sparse tensors", op=name, expected="operators that make anything else")

    # A rule knows the newest form; an older one that a fixed opset asks for may have other attributes.
    own = rule_of(name, domain)
    results: Results
    bodies: tuple[Body, ...] = ()
    if functions:
        check_types(schema, inputs)
        results, bodies = parts_of(schema, graph, inputs, attrs, functions)
    elif own is not None and (not attrs or all(given in schema_of(name, None, domain).attributes for given in attrs)):
        results = own(name, inputs, attrs if parts is None else {**attrs, "num_outputs": parts})
        check_types(schema, inputs)
    else:
        check_types(schema, inputs)
        results = inferred(schema, inputs, attrs, graph)
    outputs = add_node(graph, name, inputs, attrs, results, domain)
    if bodies and isinstance(outputs[0].origin, Node):
        outputs[0].origin.bodies = bodies
    return outputs[0] if is_single(schema) else outputs


@lru_cache(maxsize=1024)
def _makes_tensors(schema: OpSchema) -> bool:
    return all(any(map(dtype_name, formal.types)) for formal in schema.outputs)


@lru_cache(maxsize=1024)
def is_single(schema: OpSchema) -> bool:
    """Return whether a call gives a tensor, not a tuple of them."""
    return len(schema.outputs) == 1 and option_of(schema.outputs[0]) != "Variadic"


__all__ = ["DOMAINS", "Ops", "call_op", "is_single", "newest_opset", "op", "op_names", "schema_of"]
