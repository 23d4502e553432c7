"""Control flow: a choice between two parts of a program, and a loop over slices.

The parts are ordinary Python functions. They may use any tensor of the graph: what only one part needs is computed
there, only if and when it runs; what others need too is computed outside, once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import overload

from lazygraph import dims
from lazygraph.dtypes import DType
from lazygraph.errors import DTypeError, OperandError, ShapeError
from lazygraph.ops.checks import BOOL, dtype_among, meet, rows
from lazygraph.origins import Body, BodyInput
from lazygraph.scopes import current_scope
from lazygraph.tensor import Shape, Tensor, describe, same_graph, shape_text
from lazygraph.where import user_line

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
    given = then()
    first, second = _several("then", given), _several("orelse", orelse())
    if len(first) != len(second):
        raise OperandError(
            f"then gives {len(first)} tensors, orelse {len(second)}", op="cond", expected="as many tensors from both"
        )
    graph = same_graph("cond", [pred, *first, *second])
    results = [_either(graph.next_serial(), a, b) for a, b in zip(first, second, strict=True)]
    made = graph.emit("If", (pred,), {}, results)
    made[0].origin.bodies = (Body("then_branch", (), first), Body("else_branch", (), second))  # type: ignore[union-attr]
    return made[0] if isinstance(given, Tensor) else made


def scan(
    body: Callable[..., tuple[Sequence[Tensor], Sequence[Tensor]]], init: Sequence[Tensor], xs: Sequence[Tensor]
) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
    """Return what is left after ``body`` has run over the slices of ``xs`` along axis 0, and what it gave on the way.

    Args:
        body: Called once, now, with one tensor per ``init`` and one slice per ``xs``; returns the next state (as
            ``init``) and what to keep of this step.
        init: The state before the first step.
        xs: At least one tensor to go over; all of the same first size, at least 1 when it runs (onnxruntime cannot go
            over nothing).

    Returns:
        The final state, and what was kept, stacked along a new axis 0.

    Raises:
        OperandError: Nothing to go over, ``body`` does not return two lists of tensors, not as many next states as
            states, or neither states nor anything kept.
        ShapeError: First sizes of ``xs`` differ, one of them has no axes, or a state changes its shape.
        DTypeError: A state changes its element type.
        GraphMismatchError: Tensors of several graphs meet.

    Spec: ai.onnx::Scan.
    """
    if not xs:
        raise OperandError("nothing to go over", op="scan", expected="at least one tensor in xs")
    graph = same_graph("scan", [*init, *xs])
    for x in xs:
        if not x.shape or meet(x.shape[0], xs[0].shape[0]) is None:
            given = {f"xs[{i}]": x for i, x in enumerate(xs)}
            what = "the first sizes differ" if x.shape else "there is no axis to go along"
            raise ShapeError(what, op="scan", operands=rows(given), expected="one number of steps")

    slices = [(x.dtype, x.shape[1:]) for x in xs]
    entries: list[tuple[DType, Shape | None]] = [*((state.dtype, state.known_shape) for state in init), *slices]
    inputs = tuple(_body_input(graph.next_serial(), xs[0], dtype, shape) for dtype, shape in entries)
    following, kept = _state_and_kept(body(*inputs))
    if not following and not kept:
        raise OperandError("body gives nothing", op="scan", expected="states, or something to keep of every step")
    same_graph("scan", [*init, *xs, *following, *kept])
    if len(following) != len(init):
        raise OperandError(
            f"{len(following)} next states for {len(init)}", op="scan", expected="one next state per state"
        )
    for before, after in zip(init, following, strict=True):
        _same_state(before, after)

    steps = xs[0].shape[0]
    results: list[tuple[DType, Shape | None]] = [(state.dtype, state.known_shape) for state in init]
    results += [(y.dtype, None if y.known_shape is None else (steps, *y.known_shape)) for y in kept]
    made = graph.emit("Scan", (*init, *xs), {"num_scan_inputs": len(xs)}, results)
    made[0].origin.bodies = (Body("body", inputs, (*following, *kept)),)  # type: ignore[union-attr]
    return made[: len(init)], made[len(init) :]


def _several(label: str, given: Results) -> tuple[Tensor, ...]:
    tensors = (given,) if isinstance(given, Tensor) else tuple(given) if isinstance(given, (tuple, list)) else ()
    if not tensors or not all(isinstance(tensor, Tensor) for tensor in tensors):
        raise OperandError(f"{label} returns {given!r}", op="cond", expected="a tensor, or several")
    return tensors


def _state_and_kept(given: object) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
    parts = tuple(given) if isinstance(given, (tuple, list)) else ()
    lists = [tuple(part) for part in parts if isinstance(part, (tuple, list))]
    if len(parts) != 2 or len(lists) != 2 or not all(isinstance(tensor, Tensor) for part in lists for tensor in part):
        raise OperandError(
            f"body returns {given!r}", op="scan", expected="two lists of tensors: the next state, and what to keep"
        )
    return lists[0], lists[1]


def _either(serial: int, a: Tensor, b: Tensor) -> tuple[DType, Shape | None]:
    operands = {"then": describe(a), "orelse": describe(b)}
    if a.dtype is not b.dtype:
        raise DTypeError(f"then gives {a.dtype}, orelse {b.dtype}", op="cond", operands=operands, expected="one type")
    if a.known_shape is None or b.known_shape is None:
        return a.dtype, None
    if len(a.shape) != len(b.shape):
        raise ShapeError(
            f"then gives {shape_text(a.shape)}, orelse {shape_text(b.shape)}",
            op="cond",
            operands=operands,
            expected="as many axes from both",
        )
    sizes = [
        dims.unknown(f"if_{serial}_{axis}") if dims.equal(x, y) is not True else x
        for axis, (x, y) in enumerate(zip(a.shape, b.shape, strict=True))
    ]
    return a.dtype, tuple(sizes)


def _body_input(serial: int, anchor: Tensor, dtype: DType, shape: Shape | None) -> Tensor:
    origin = BodyInput("item", current_scope(), serial, user_line())
    return Tensor(anchor.graph, dtype, shape, origin, 0)


def _same_state(before: Tensor, after: Tensor) -> None:
    operands = {"before": describe(before), "after": describe(after)}
    if before.dtype is not after.dtype:
        raise DTypeError("a state changes its element type", op="scan", operands=operands, expected=str(before.dtype))
    a, b = before.known_shape, after.known_shape
    if (
        a is not None
        and b is not None
        and (len(a) != len(b) or any(meet(x, y) is None for x, y in zip(a, b, strict=True)))
    ):
        raise ShapeError("a state changes its shape", op="scan", operands=operands, expected=shape_text(a))
