"""What any operator call gives: of any domain, any opset, known here or not. Loading and rebuilding ask this."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from lazygraph import dims
from lazygraph.dims import Size
from lazygraph.dtypes import DType, bool_, int64, sequence_of, untold
from lazygraph.errors import LazyGraphError, OperandError, UnsupportedError
from lazygraph.ops.attributes import attributes_of, default_of
from lazygraph.ops.bodies import common, loop_results, scan_results
from lazygraph.ops.checks import meet
from lazygraph.ops.contrib import contrib_names, contrib_schema
from lazygraph.ops.core import Attrs, Inputs, Results, rule_of
from lazygraph.ops.inference import inferred
from lazygraph.ops.microsoft import DOMAIN as MICROSOFT
from lazygraph.ops.signature import check_types, option_of, signature_of
from lazygraph.origins import Body, Raw
from lazygraph.tensor import Graph, Shape, describe

if TYPE_CHECKING:
    from onnx.defs import OpSchema


@lru_cache(maxsize=4096)
def schema_in(op: str, domain: str, version: int | None) -> OpSchema | None:
    """Return the schema of an operator in a version of its domain (None: the newest), None where nobody knows one."""
    from onnx import defs

    if domain == MICROSOFT:
        return contrib_schema(op) if op in contrib_names() else None
    try:
        return defs.get_schema(op, version or defs.onnx_opset_version(), domain)
    except defs.SchemaError:
        return None


@lru_cache(maxsize=1024)
def defaults_of(op: str, domain: str, version: int | None) -> dict[str, Any]:
    """Return what attributes of an operator are where they are left out; empty where nobody knows the operator."""
    schema = schema_in(op, domain, version)
    return {} if schema is None else {name: default_of(found) for name, found in schema.attributes.items()}


def results_of(
    graph: Graph,
    op: str,
    domain: str,
    inputs: Inputs,
    attrs: Attrs,
    count: int,
    bodies: Sequence[Body] = (),
    version: int | None = None,
    own: bool = True,
) -> Results:
    """Return element type and shape of each of the first ``count`` outputs; what is not known is left open.

    Args:
        graph: Whose numbers new sizes are named after.
        op: The operator.
        domain: Its domain.
        inputs: Operands.
        attrs: Attributes.
        count: How many outputs the call has.
        bodies: The parts of the program that it holds.
        version: The version of the domain that the call is written for; None for the newest.
        own: Ask lazygraph's own rule, not the schema alone.

    Raises:
        LazyGraphError: The call breaks the operator's rule.
    """
    nothing: Results = [(untold, None)] * count
    if bodies:
        found = list(_of_bodies(graph, op, inputs, attrs, bodies, count))
        if op == "Scan" and version is not None and version < 9:  # it had a batch axis and an operand more
            found = [(y.dtype, None) for y in bodies[0].outputs]
        return [*found, *nothing][:count]
    schema = schema_in(op, domain, version)
    if schema is None or schema.deprecated:
        return nothing
    _require_arity(schema, inputs, count)
    attrs = _checked_attributes(schema, attrs)
    whole = all(tensor is None or tensor.dtype is not untold for tensor in inputs)
    if whole:
        check_types(schema, inputs)
        ours = _by_own_rule(op, domain, inputs, attrs, count) if own and not _ancient(domain, version) else None
        if ours is not None:
            return ours[:count]
    try:
        found = inferred(schema, inputs, attrs, graph, max(count, 1), version)
    except UnsupportedError:
        return nothing
    except LazyGraphError:
        if whole:
            raise
        return nothing
    return [*found, *nothing][:count]


def _ancient(domain: str, version: int | None) -> bool:
    """Return whether the opset is one before numpy's broadcasting came to ONNX: no rule here knows its operators."""
    return domain == "" and version is not None and version < 7


def _by_own_rule(op: str, domain: str, inputs: Inputs, attrs: Attrs, count: int) -> Results | None:
    """Return what lazygraph's own rule says; None where it does not know this form of the call.

    A rule knows the newest form of its operator; an older one may have other attributes, operands or outputs.
    """
    rule, newest = rule_of(op, domain), schema_in(op, domain, None)
    if rule is None or newest is None or any(name not in newest.attributes for name in attrs):
        return None
    given = sum(1 for tensor in inputs if tensor is not None)
    if not newest.min_input <= given or len(inputs) > newest.max_input:
        return None
    if any(isinstance(value, Raw) for value in attrs.values()):
        return None
    if op == "Split" and len(inputs) < 2 and "num_outputs" not in attrs:
        attrs = {**attrs, "num_outputs": count}
    found = rule(op, inputs, attrs)
    return found if len(found) >= count else None


def _require_arity(schema: OpSchema, inputs: Inputs, count: int) -> None:
    signature = signature_of(schema)
    given = len(inputs)
    while given and inputs[given - 1] is None:
        given -= 1
    if not signature.least <= given <= signature.most:
        expected = f"{signature.least} to {signature.most} operands"
        raise OperandError(f"{given} operands given", op=schema.name, operands=_rows(inputs), expected=expected)
    for place in range(given):
        if inputs[place] is None and signature.at(place).option == "Single":
            raise OperandError(
                f"operand {signature.label(place)!r} is missing", op=schema.name, operands=_rows(inputs), expected="it"
            )
    formals = schema.outputs
    if not count or (count > len(formals) and not (formals and option_of(formals[-1]) == "Variadic")):
        raise OperandError(
            f"{count} outputs asked for", op=schema.name, operands=_rows(inputs), expected=f"1 to {len(formals)}"
        )


def _rows(inputs: Inputs) -> dict[str, str]:
    return {f"operand {i}": "left out" if tensor is None else describe(tensor) for i, tensor in enumerate(inputs)}


def _checked_attributes(schema: OpSchema, attrs: Attrs) -> Attrs:
    """Return the attributes in the kinds that the schema asks for, those at their default left out."""
    raw = {name: value for name, value in attrs.items() if isinstance(value, Raw)}
    if raw:
        return attrs
    return attributes_of(schema, dict(attrs))


# ---- operators with bodies ------------------------------------------------------------------------------------------


def _of_bodies(
    graph: Graph, op: str, inputs: Inputs, attrs: Attrs, bodies: Sequence[Body], count: int
) -> list[tuple[DType, Shape | None]]:
    outputs = bodies[0].outputs
    if op == "If" and len(bodies) == 2:
        pairs = zip(outputs, bodies[1].outputs, strict=False)
        return [(a.dtype, common(graph, a.known_shape, b.known_shape)) for a, b in pairs]
    if op == "SequenceMap":
        return [(sequence_of(y.dtype), None) for y in outputs]
    if op == "Loop":
        return loop_results(graph, inputs, bodies[0])
    if op == "Scan":
        scanned = int(attrs.get("num_scan_inputs", 0))
        axes, out_axes = attrs.get("scan_input_axes") or [], attrs.get("scan_output_axes") or []
        return scan_results(graph, inputs, bodies[0], scanned, axes, out_axes)
    return [(untold, None)] * count


def body_input_types(
    op: str, inputs: Inputs, attrs: Attrs, count: int, version: int | None
) -> list[tuple[DType, Shape | None]]:
    """Return what each run of a body is given, where the operands tell; ``untold`` elsewhere."""
    made: list[tuple[DType, Shape | None]] = []
    if op == "Loop":
        made = [(int64, ()), (bool_, ())]
        made += [(untold, None) if x is None else (x.dtype, None) for x in inputs[2:]]
    elif op == "Scan" and (version is None or version >= 9):
        scanned = int(attrs.get("num_scan_inputs", 0))
        states = len(inputs) - scanned
        axes = attrs.get("scan_input_axes") or [0] * scanned
        made = [(untold, None) if x is None else (x.dtype, x.known_shape) for x in inputs[:states]]
        for x, axis in zip(inputs[states:], axes, strict=False):
            shape = None if x is None else x.known_shape
            if shape is not None:
                place = axis % len(shape) if shape else 0
                shape = (*shape[:place], *shape[place + 1 :])
            made.append((untold, None) if x is None else (x.dtype, shape))
    elif op == "SequenceMap":
        for x in inputs:
            element = None if x is None else x.dtype.element
            made.append((untold, None) if x is None else (element, None) if element else (x.dtype, x.known_shape))
    return [*made, *[(untold, None)] * count][:count]


def narrowed(result: tuple[DType, Shape | None], told: tuple[DType, Shape | None] | None) -> tuple[DType, Shape | None]:
    """Return what was deduced, its gaps filled with what a file declares; where both speak, what was deduced stands."""
    if told is None:
        return result
    dtype, shape = result
    said_dtype, said = told
    dtype = said_dtype if dtype is untold else dtype
    if shape is None or said is None:
        return dtype, said if shape is None else shape
    if len(said) != len(shape):
        return dtype, shape
    return dtype, tuple(
        declared if not isinstance(size, int) and _untold(size) and meet(size, declared) is not None else size
        for size, declared in zip(shape, said, strict=True)
    )


def _untold(size: Size) -> bool:
    """Return whether the size is one that only the run can tell, and no name of a file's or a user's is in it."""
    return all(atom.kind == "unknown" and atom.met is None for atom in dims.atoms(size))


__all__ = ["body_input_types", "narrowed", "results_of", "schema_in"]
