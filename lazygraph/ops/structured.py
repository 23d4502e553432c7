"""Operators that hold parts of the program, by their spec names: ``lg.op.If(p, then_branch=f, else_branch=g)``.

A part is given as a Python function of tensors that returns a tensor or several, in the order of the spec. Where the
spec lets a state of a Loop change its shape, the function may be called more than once, each time knowing less of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from lazygraph import dims
from lazygraph.dims import Size
from lazygraph.dtypes import DType, bool_, float32, float64, int64, optional_of, sequence_of
from lazygraph.errors import DTypeError, OperandError, UnsupportedError
from lazygraph.ops.attributes import kind_of
from lazygraph.ops.bodies import Type, common, element_of, line_of, loop_results, scan_results, trace
from lazygraph.ops.checks import BOOL, axis_of, dtype_among, meet
from lazygraph.ops.core import Attrs, Inputs, Results
from lazygraph.ops.inference import inferred
from lazygraph.ops.looping import axes_along, same_state, scalar_operand
from lazygraph.origins import Body, describe
from lazygraph.tensor import Graph, Shape, Tensor

if TYPE_CHECKING:
    from onnx.defs import OpSchema

Functions = Mapping[str, Callable[..., Any]]
Parts = tuple[Results, tuple[Body, ...]]


@lru_cache(maxsize=1024)
def graph_attributes(schema: OpSchema) -> tuple[str, ...]:
    """Return the attributes of an operator that are parts of the program, in the order in which they are built."""
    found = [name for name, attribute in schema.attributes.items() if kind_of(attribute) == "GRAPH"]
    return tuple(sorted(found, reverse=True))  # then_branch before else_branch, score_mod before prob_mod


def parts_of(schema: OpSchema, graph: Graph, inputs: Inputs, attrs: Attrs, functions: Functions) -> Parts:
    """Return what a call with bodies gives, and its bodies, built and checked.

    Raises:
        OperandError: A function cannot be called so, or gives too many or too few tensors.
        DTypeError: What it gives has another element type than the operator asks for.
        ShapeError: Or another shape.
        UnsupportedError: The operator's bodies are not known here.
    """
    maker = _MAKERS.get(schema.name)
    if maker is None:
        raise UnsupportedError(
            f"{', '.join(functions)} of this operator", op=schema.name, expected=f"one of {', '.join(_MAKERS)}"
        )
    return maker(schema, graph, inputs, attrs, functions)


def _if(schema: OpSchema, graph: Graph, inputs: Inputs, attrs: Attrs, functions: Functions) -> Parts:
    for condition in inputs:
        if condition is not None:
            scalar_operand("If", "cond", condition)
    then, orelse = (trace("If", name, functions[name], (), graph)[0] for name in ("then_branch", "else_branch"))
    _require_count("If", "else_branch", functions["else_branch"], orelse, len(then.outputs), "as many as then_branch")
    results: Results = []
    for a, b in zip(then.outputs, orelse.outputs, strict=True):
        if a.dtype is not b.dtype:
            raise DTypeError(
                f"then_branch gives {a.dtype}, else_branch {b.dtype}",
                op="If",
                operands={"then_branch": describe(a), "else_branch": describe(b)},
                expected="one type",
            )
        results.append((a.dtype, common(graph, a.known_shape, b.known_shape)))
    return results, (then, orelse)


def _loop(schema: OpSchema, graph: Graph, inputs: Inputs, attrs: Attrs, functions: Functions) -> Parts:
    count, condition = [*inputs, None, None][:2]
    states = [state for state in inputs[2:] if state is not None]
    if len(states) != len(inputs[2:]):
        raise OperandError("a state is left out", op="Loop", expected="a tensor for each state")
    for label, operand in (("M", count), ("cond", condition)):
        if operand is not None:
            scalar_operand("Loop", label, operand)
    function = functions["body"]
    kinds: list[Type] = [(int64, ()), (bool_, ()), *((state.dtype, state.known_shape) for state in states)]
    start, open_sizes = graph.names(), set[Size]()
    while True:
        body, _ = trace("Loop", "body", function, kinds, graph)
        _require_count("Loop", "body", function, body, 1 + len(states), "the condition and every state", more=True)
        dtype_among("Loop", "the body's condition", body.outputs[0], BOOL)
        scalar_operand("Loop", "the body's condition", body.outputs[0])
        after = body.outputs[1:]
        pairs = zip(kinds[2:], after, strict=False)
        wider = [(dtype, _wider(graph, shape, y, open_sizes)) for (dtype, shape), y in pairs]
        for old, new in zip(body.inputs[2:], after, strict=False):
            if old.dtype is not new.dtype and old.dtype is not _may_be(new):
                same_state("Loop", old, new, meet)
        if wider == kinds[2:]:
            break
        kinds[2:] = wider
        graph.forget_since(start)
    if len(body.outputs) == 1:
        raise OperandError("body gives only its condition", op="Loop", expected="states, or something to keep")
    return loop_results(graph, inputs, body), (body,)


def _may_be(new: Tensor) -> DType | None:
    """Return the optional type that a state may have at first, where a step gives what it holds: none to begin with."""
    return None if new.dtype.kind == "o" else optional_of(new.dtype)


def _wider(graph: Graph, shape: Shape | None, after: Tensor, open_sizes: set[Size]) -> Shape | None:
    """Return a shape that a state has before and after a step: where the two may differ, a size for the run to tell."""
    if shape is None or after.known_shape is None or len(shape) != len(after.known_shape):
        return None
    wider = list(shape)
    for axis, (size, new) in enumerate(zip(shape, after.known_shape, strict=True)):
        if size not in open_sizes and dims.equal(size, new) is not True:
            wider[axis] = dims.unknown(f"carried_{graph.next_serial()}")
            open_sizes.add(wider[axis])
    return tuple(wider)


def _scan(schema: OpSchema, graph: Graph, inputs: Inputs, attrs: Attrs, functions: Functions) -> Parts:
    given = [x for x in inputs if x is not None]
    scanned = attrs["num_scan_inputs"]
    if len(given) != len(inputs) or not 0 < scanned <= len(given):
        raise OperandError(
            f"num_scan_inputs is {scanned} of {len(given)} operands",
            op="Scan",
            operands={f"operand {i}": describe(x) for i, x in enumerate(given)},
            expected="the states, then at least one tensor to go over",
        )
    states, xs = given[:-scanned], given[-scanned:]
    axes = axes_along("Scan", _one_each(attrs, "scan_input_axes", scanned), xs)
    _one_each(attrs, "scan_input_directions", scanned)
    kinds: list[Type] = [(state.dtype, state.known_shape) for state in states]
    kinds += [(x.dtype, (*x.shape[:axis], *x.shape[axis + 1 :])) for x, axis in zip(xs, axes, strict=True)]
    function = functions["body"]
    body, _ = trace("Scan", "body", function, kinds, graph)
    _require_count("Scan", "body", function, body, len(states), "every state", more=True)
    for old, new in zip(states, body.outputs, strict=False):
        same_state("Scan", old, new, meet)
    kept = body.outputs[len(states) :]
    out_axes = [
        axis if y.known_shape is None else axis_of("Scan", axis, y.ndim + 1, "scan_output_axes")
        for axis, y in zip(_one_each(attrs, "scan_output_axes", len(kept)), kept, strict=True)
    ]
    _one_each(attrs, "scan_output_directions", len(kept))
    results = scan_results(graph, given, body, scanned, axes, out_axes)
    results[: len(states)] = [(state.dtype, state.known_shape) for state in states]
    return results, (body,)


def _one_each(attrs: Attrs, name: str, count: int) -> list[int]:
    values: list[int] = attrs.get(name) or [0] * count
    if len(values) != count:
        raise OperandError(f"{name} is {values}", op="Scan", expected=f"{name}, one for each of {count} tensors")
    return values


def _sequence_map(schema: OpSchema, graph: Graph, inputs: Inputs, attrs: Attrs, functions: Functions) -> Parts:
    kinds = [element_of(x) for x in inputs if x is not None]
    body, _ = trace("SequenceMap", "body", functions["body"], kinds, graph)
    return [(sequence_of(y.dtype), None) for y in body.outputs], (body,)


def _flex_attention(schema: OpSchema, graph: Graph, inputs: Inputs, attrs: Attrs, functions: Functions) -> Parts:
    results = inferred(schema, inputs, attrs, graph)
    q, k = inputs[0], inputs[1]
    shape: Shape | None = None
    if q is not None and k is not None and q.known_shape is not None and k.known_shape is not None:
        shape = (*q.shape[:3], k.shape[2])
    precision = attrs.get("softmax_precision")
    dtype = precision if isinstance(precision, DType) else float64 if q is not None and q.dtype is float64 else float32
    bodies: list[Body] = []
    for name in graph_attributes(schema):
        if name in functions:
            body, _ = trace(schema.name, name, functions[name], [(dtype, shape)], graph)
            _require_count(schema.name, name, functions[name], body, 1, "the scores or shares")
            same_state(schema.name, body.inputs[0], body.outputs[0], meet)
            bodies.append(body)
    return results, tuple(bodies)


def _require_count(
    op: str, label: str, function: object, body: Body, count: int, what: str, more: bool = False
) -> None:
    given = len(body.outputs)
    if given < count or (given > count and not more):
        raise OperandError(
            f"{label} gives {given} tensors",
            op=op,
            operands={f"result {i}": describe(y) for i, y in enumerate(body.outputs)},
            expected=f"{'at least ' if more else ''}{count}: {what}",
            at=line_of(function),
        )


_MAKERS: dict[str, Callable[[OpSchema, Graph, Inputs, Attrs, Functions], Parts]] = {
    "FlexAttention": _flex_attention,
    "If": _if,
    "Loop": _loop,
    "Scan": _scan,
    "SequenceMap": _sequence_map,
}

__all__ = ["graph_attributes", "parts_of"]
