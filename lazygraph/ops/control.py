"""A choice between two parts of a program, and a part run on every tensor of a sequence.

The parts are ordinary Python functions. They may use any tensor of the graph: what only one part needs is computed
there, only if and when it runs; what others need too is computed outside, once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import overload

from lazygraph.dtypes import sequence_of
from lazygraph.errors import DTypeError, OperandError, ShapeError
from lazygraph.ops.bodies import Type, common, element_of, emit_with, require_function, tensors_given, trace
from lazygraph.ops.checks import BOOL, dtype_among, rows
from lazygraph.origins import Body
from lazygraph.tensor import Graph, Tensor, describe, same_graph, shape_text

Results = Tensor | Sequence[Tensor]


@overload
def cond(pred: Tensor, then: Callable[[], Tensor], orelse: Callable[[], Tensor]) -> Tensor: ...
@overload
def cond(
    pred: Tensor, then: Callable[[], Sequence[Tensor]], orelse: Callable[[], Sequence[Tensor]]
) -> tuple[Tensor, ...]: ...


def cond(pred: Tensor, then: Callable[[], Results], orelse: Callable[[], Results]) -> Tensor | tuple[Tensor, ...]:
    """Return what ``then`` gives where ``pred`` holds, else what ``orelse`` gives; only one of them runs.

    Args:
        pred: ``bool ()`` or ``bool (1,)``.
        then: Called once, now, to build its part; returns a tensor or several.
        orelse: The same; as many tensors, of the same element types.

    Returns:
        A tensor where ``then`` returns one, a tuple where it returns a list or a tuple. A size in which the two differ
        is known at run time only.

    Raises:
        DTypeError: ``pred`` is not bool, or the two give different element types.
        ShapeError: ``pred`` is no scalar, or the two give different numbers of axes.
        OperandError: The two give different numbers of tensors.

    Spec: ai.onnx::If.
    """
    dtype_among("cond", "pred", pred, BOOL)
    if pred.known_shape not in (None, (), (1,)):
        raise ShapeError("pred is no scalar", op="cond", operands=rows({"pred": pred}), expected="shape () or (1,)")
    require_function("cond", "then", then, ())
    require_function("cond", "orelse", orelse, ())
    given = then()
    first = tensors_given("cond", "then", then, given)
    second = tensors_given("cond", "orelse", orelse, orelse())
    if len(first) != len(second):
        raise OperandError(
            f"then gives {len(first)} tensors, orelse {len(second)}", op="cond", expected="as many tensors from both"
        )
    graph = same_graph("cond", [pred, *first, *second])
    results = [_either(graph, a, b) for a, b in zip(first, second, strict=True)]
    parts = Body("then_branch", (), first), Body("else_branch", (), second)
    made = emit_with("If", graph, (pred,), {}, results, parts)
    return made[0] if isinstance(given, Tensor) else made


@overload
def sequence_map(body: Callable[..., Tensor], sequence: Tensor, *more: Tensor) -> Tensor: ...
@overload
def sequence_map(body: Callable[..., Sequence[Tensor]], sequence: Tensor, *more: Tensor) -> tuple[Tensor, ...]: ...


def sequence_map(body: Callable[..., Results], sequence: Tensor, *more: Tensor) -> Tensor | tuple[Tensor, ...]:
    """Return what ``body`` gives of every tensor of a sequence, as a sequence.

    Args:
        body: Called once, now, with a tensor of each sequence and each further tensor as it is; returns a tensor or
            several.
        sequence: ``seq(T)``.
        more: Further sequences, as long as the first, or tensors that every call is given.

    Returns:
        A sequence where ``body`` returns a tensor, a tuple of sequences where it returns several.

    Raises:
        DTypeError: ``sequence`` is none.
        OperandError: ``body`` does not take that many tensors, or gives none.
        GraphMismatchError: Tensors of several graphs meet.

    Spec: ai.onnx::SequenceMap.
    """
    inputs = (sequence, *more)
    graph = same_graph("sequence_map", inputs)
    if sequence.dtype.kind != "q":
        raise DTypeError(
            f"it goes over {sequence.dtype}",
            op="sequence_map",
            operands=rows({"sequence": sequence}),
            expected="a sequence of tensors",
        )
    part, single = trace("sequence_map", "body", body, [element_of(x) for x in inputs], graph)
    results: list[Type] = [(sequence_of(y.dtype), None) for y in part.outputs]
    made = emit_with("SequenceMap", graph, inputs, {}, results, (part,))
    return made[0] if single else made


def _either(graph: Graph, a: Tensor, b: Tensor) -> Type:
    operands = {"then": describe(a), "orelse": describe(b)}
    if a.dtype is not b.dtype:
        raise DTypeError(f"then gives {a.dtype}, orelse {b.dtype}", op="cond", operands=operands, expected="one type")
    if a.known_shape is not None and b.known_shape is not None and len(a.shape) != len(b.shape):
        raise ShapeError(
            f"then gives {shape_text(a.shape)}, orelse {shape_text(b.shape)}",
            op="cond",
            operands=operands,
            expected="as many axes from both; sizes may differ",
            hint="lg.op.If takes any two shapes, and what it gives then has no known shape",
        )
    return a.dtype, common(graph, a.known_shape, b.known_shape)


__all__ = ["cond", "sequence_map"]
