"""Loops: over the slices of tensors, a number of times, or while something holds.

The body is an ordinary Python function of the state. It is called once, now; it may use any tensor of the graph, and
what does not depend on what it is given is computed outside, once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from lazygraph import dims
from lazygraph.dims import Size, SizeLike
from lazygraph.dtypes import bool_, int64
from lazygraph.errors import DTypeError, OperandError, ShapeError
from lazygraph.ops.bodies import (
    Carried,
    State,
    Type,
    body_input,
    emit_with,
    flat,
    line_of,
    loop_results,
    made_at,
    require_function,
    scan_results,
    unflat,
)
from lazygraph.ops.checks import BOOL, INT64, assume_hint, axis_of, dtype_among, meet, rows
from lazygraph.ops.core import as_tensor
from lazygraph.ops.sizes import size_tensor
from lazygraph.origins import Body
from lazygraph.tensor import Graph, Shape, Tensor, describe, same_graph, shape_text


def scan(
    body: Callable[..., tuple[Sequence[Any], Sequence[Tensor]]],
    init: Sequence[State],
    xs: Sequence[Tensor],
    axis: int | Sequence[int] = 0,
    reverse: bool | Sequence[bool] = False,
    out_axis: int | Sequence[int] = 0,
    out_reverse: bool | Sequence[bool] = False,
) -> tuple[tuple[Any, ...], tuple[Tensor, ...]]:
    """Return what is left after ``body`` has run over the slices of ``xs`` along an axis, and what it gave on the way.

    Args:
        body: Called once, now, with one tensor per ``init`` and one slice per ``xs``; returns the next state (as
            ``init``) and what to keep of this step.
        init: The state before the first step: tensors, or caches.
        xs: At least one tensor to go over; all of the same size along their axes, at least 1 when it runs (onnxruntime
            cannot go over nothing).
        axis: The axis to go along, one for all or one for each of ``xs``.
        reverse: Whether to go from the end to the front, one for all or one for each of ``xs``.
        out_axis: The new axis along which what is kept is stacked, one for all or one each.
        out_reverse: Whether it is stacked from the end to the front, one for all or one each.

    Returns:
        The final state, and what was kept, stacked.

    Raises:
        OperandError: Nothing to go over, ``body`` does not take that many tensors or does not return two lists of
            tensors, not as many next states as states, neither states nor anything kept, or not one axis or direction
            each.
        ShapeError: Sizes of ``xs`` differ along their axes, one of them has no axes, or a state changes its shape.
        DTypeError: A state changes its element type.
        IndexRangeError: An axis is out of range.
        GraphMismatchError: Tensors of several graphs meet.

    Spec: ai.onnx::Scan.
    """
    if not xs:
        raise OperandError("nothing to go over", op="scan", expected="at least one tensor in xs")
    before = flat(init)
    graph = same_graph("scan", [*before, *xs])
    axes = axes_along("scan", _each(axis, xs, "axis"), xs)
    backward = [bool(one) for one in _each(reverse, xs, "reverse")]

    slices = [(x.dtype, (*x.shape[:place], *x.shape[place + 1 :])) for x, place in zip(xs, axes, strict=True)]
    kinds: list[Type] = [*((state.dtype, state.known_shape) for state in before), *slices]
    inputs = tuple([body_input(graph, kind) for kind in kinds])
    given = (*unflat(init, inputs[: len(before)]), *inputs[len(before) :])
    require_function("scan", "body", body, given)
    following, kept = _state_and_kept("scan", body, body(*given), init)
    if not following and not kept:
        raise OperandError("body gives nothing", op="scan", expected="states, or something to keep of every step")
    same_graph("scan", [*before, *xs, *following, *kept])
    for old, new in zip(before, following, strict=True):
        same_state("scan", old, new, meet)
    out_axes = [_out_axis(place, y) for place, y in zip(_each(out_axis, kept, "out_axis"), kept, strict=True)]
    out_backward = [bool(one) for one in _each(out_reverse, kept, "out_reverse")]

    part = Body("body", inputs, (*following, *kept))
    results = scan_results(graph, (*before, *xs), part, len(xs), axes, out_axes)
    results[: len(before)] = [(state.dtype, state.known_shape) for state in before]
    attrs: dict[str, Any] = {"num_scan_inputs": len(xs)}
    for name, values in (
        ("scan_input_axes", axes),
        ("scan_input_directions", backward),
        ("scan_output_axes", out_axes),
        ("scan_output_directions", out_backward),
    ):
        if any(values):
            attrs[name] = [int(value) for value in values]
    made = emit_with("Scan", graph, (*before, *xs), attrs, results, (part,))
    return unflat(init, made[: len(before)]), made[len(before) :]


def loop(
    body: Callable[..., tuple[Sequence[Any], Sequence[Tensor]]],
    init: Sequence[State],
    steps: SizeLike | Tensor | None = None,
    condition: Callable[..., Tensor] | None = None,
    shapes: Sequence[Sequence[SizeLike | None] | None] | None = None,
) -> tuple[tuple[Any, ...], tuple[Tensor, ...]]:
    """Return what is left after ``body`` has run ``steps`` times, or while ``condition`` holds, and what it gave.

    Args:
        body: Called once, now, with the number of the step, ``int64 ()`` from 0, and the state; returns the next state
            (as ``init``) and what to keep of this step.
        init: The state before the first step: tensors, or caches.
        steps: How often at most: a number, a size, ``int64 ()`` or ``int64 (1,)``; below 0 is 0. None for no limit.
        condition: Called with a state, returns ``bool ()`` or ``bool (1,)``: whether to take a step from it. It is
            asked before the first step too.
        shapes: Per tensor of the state, the sizes that it has on every step, None for a size that may differ from step
            to step. None for a state that keeps the shape that it has in ``init``, which all do when this is left out.

    Returns:
        The final state, and what was kept, stacked along a new axis 0.

    Raises:
        OperandError: Neither ``steps`` nor ``condition``, a function that does not take that many tensors, ``body``
            does not return two lists of tensors, or not as many next states as states, nothing at all, or ``shapes``
            that are not one per tensor.
        ShapeError: A state changes its shape, or ``steps`` or the condition is no scalar.
        DTypeError: A state changes its element type, ``steps`` is not int64, or the condition not bool.
        GraphMismatchError: Tensors of several graphs meet.

    Spec: ai.onnx::Loop.
    """
    before = flat(init)
    tensors = [*before, steps] if isinstance(steps, Tensor) else list(before)
    if not tensors:
        raise OperandError(
            "nothing to begin with", op="loop", expected="at least one state, or the steps as a tensor of the graph"
        )
    graph = same_graph("loop", tensors)
    count = None if steps is None else _steps(steps, tensors[0])
    if count is None and condition is None:
        raise OperandError("nothing ends it", op="loop", expected="a number of steps, a condition, or both")
    first = None if condition is None else _condition(condition, init)

    known = _declared_states(graph, before, shapes)
    open_sizes = {
        size
        for shape, declared in zip(known, shapes or (), strict=False)
        for size, said in zip(shape or (), declared or (), strict=False)
        if said is None
    }

    def same(size: Size, after: Size) -> Size | None:
        return size if size in open_sizes or dims.equal(size, after) is True else None

    kinds: list[Type] = [(int64, ()), (bool_, ())]
    kinds += [(state.dtype, shape) for state, shape in zip(before, known, strict=True)]
    inputs = tuple([body_input(graph, kind) for kind in kinds])
    given = (inputs[0], *unflat(init, inputs[2:]))
    require_function("loop", "body", body, given)
    states = body(*given)
    following, kept = _state_and_kept("loop", body, states, init)
    if not following and not kept:
        raise OperandError("body gives nothing", op="loop", expected="states, or something to keep of every step")
    same_graph("loop", [*tensors, *following, *kept])
    for old, new in zip(inputs[2:], following, strict=True):
        same_state("loop", old, new, same)
    going_on = inputs[1] if condition is None else _condition(condition, states[0])

    part = Body("body", inputs, (going_on, *following, *kept))
    operands = (count, first, *before)
    after = _declared_states(graph, before, shapes)  # a size that may differ is another one again
    results = loop_results(graph, operands, part, after)
    made = emit_with("Loop", graph, operands, {}, results, (part,))
    return unflat(init, made[: len(before)]), made[len(before) :]


def _each(given: Any, over: Sequence[Tensor], label: str) -> list[Any]:
    """Return one value for each tensor: the same for all, or those given."""
    if not isinstance(given, (list, tuple)):
        return [given] * len(over)
    if len(given) != len(over):
        raise OperandError(
            f"{len(given)} values of {label} for {len(over)} tensors", op="scan", expected="one for all, or one each"
        )
    return list(given)


def axes_along(op: str, given: Sequence[int], xs: Sequence[Tensor]) -> list[int]:
    """Return the axis to go along of each tensor, counted from the front; all must have the same size there.

    Raises:
        IndexRangeError: One is out of range.
        ShapeError: A tensor has no axes, or the sizes differ.
    """
    shown = {f"xs[{i}]": x for i, x in enumerate(xs)}
    for x in xs:
        if not x.shape:
            raise ShapeError("there is no axis to go along", op=op, operands=rows(shown), expected="at least one axis")
    axes = [axis_of(op, axis, x.ndim, operands={"x": x}) for axis, x in zip(given, xs, strict=True)]
    sizes = [x.shape[axis] for x, axis in zip(xs, axes, strict=True)]
    for size in sizes:
        if meet(size, sizes[0]) is None:
            hint = assume_hint(size, sizes[0])
            what = f"the sizes to go along differ: {sizes[0]} and {size}"
            raise ShapeError(what, op=op, operands=rows(shown), expected="one number of steps", hint=hint)
    return axes


def _out_axis(axis: int, y: Tensor) -> int:
    return int(axis) if y.known_shape is None else axis_of("scan", axis, y.ndim + 1, "out_axis", {"kept": y})


def _steps(steps: SizeLike | Tensor, like: Tensor) -> Tensor:
    if isinstance(steps, int):
        return as_tensor("loop", steps, like, int64)
    count = steps if isinstance(steps, Tensor) else size_tensor(steps, like)
    dtype_among("loop", "steps", count, INT64)
    scalar_operand("loop", "steps", count)
    return count


def _condition(condition: Callable[..., Tensor], states: Sequence[State]) -> Tensor:
    require_function("loop", "condition", condition, states)
    holds = condition(*states)
    if not isinstance(holds, Tensor):
        raise OperandError(f"condition returns {holds!r}", op="loop", expected="a bool tensor", at=line_of(condition))
    dtype_among("loop", "condition", holds, BOOL)
    scalar_operand("loop", "condition", holds)
    return holds


def scalar_operand(op: str, label: str, tensor: Tensor) -> None:
    """Require one number, with or without an axis."""
    if tensor.known_shape not in (None, (), (1,)):
        raise ShapeError(f"{label} is no scalar", op=op, operands=rows({label: tensor}), expected="shape () or (1,)")


def _declared_states(
    graph: Graph, before: Sequence[Tensor], shapes: Sequence[Sequence[SizeLike | None] | None] | None
) -> list[Shape | None]:
    """Return the shapes that states have on every step; a size that may differ is one that only the run can tell."""
    if shapes is None:
        return [state.known_shape for state in before]
    if len(shapes) != len(before):
        raise OperandError(
            f"{len(shapes)} shapes for {len(before)} tensors", op="loop", expected="a shape, or None, for each"
        )
    found: list[Shape | None] = []
    for state, declared in zip(before, shapes, strict=True):
        if declared is None:
            found.append(state.known_shape)
            continue
        sizes = tuple(
            dims.unknown(f"carried_{graph.next_serial()}") if size is None else graph.size(size) for size in declared
        )
        known = state.known_shape
        if known is not None and (
            len(known) != len(sizes) or any(meet(a, b) is None for a, b in zip(known, sizes, strict=True))
        ):
            raise ShapeError(
                f"{shape_text(sizes)} contradicts {shape_text(known)}",
                op="loop",
                operands=rows({"init": state}),
                expected="shapes that are true of the first states too",
            )
        found.append(sizes)
    return found


def _state_and_kept(
    op: str, body: object, given: object, init: Sequence[State]
) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
    """Return the tensors of the next state, and those to keep."""
    parts = tuple(given) if isinstance(given, (tuple, list)) else ()
    lists = [tuple(part) for part in parts if isinstance(part, (tuple, list))]
    if (
        len(parts) != 2
        or len(lists) != 2
        or not all(isinstance(state, (Tensor, Carried)) for state in lists[0])
        or not all(isinstance(tensor, Tensor) for tensor in lists[1])
    ):
        raise OperandError(
            f"body returns {given!r}",
            op=op,
            expected="two lists of tensors: the next state, and what to keep",
            at=line_of(body),
        )
    if len(lists[0]) != len(init) or any(
        isinstance(a, Carried) != isinstance(b, Carried) for a, b in zip(lists[0], init, strict=True)
    ):
        raise OperandError(
            f"{len(lists[0])} next states for {len(init)}",
            op=op,
            operands={"init": [type(state).__name__ for state in init], "next": [type(x).__name__ for x in lists[0]]},
            expected="one next state per state, of its kind",
            at=line_of(body),
        )
    return flat(lists[0]), lists[1]


def same_state(op: str, before: Tensor, after: Tensor, same: Callable[[Size, Size], Size | None]) -> None:
    """Require that a state keeps its element type and shape, as the body is built for one of each."""
    operands = {"before": describe(before), "after": describe(after)}
    if before.dtype is not after.dtype:
        raise DTypeError(
            f"a state changes its element type from {before.dtype} to {after.dtype}",
            op=op,
            operands=operands,
            expected=str(before.dtype),
            at=made_at(after),
        )
    a, b = before.known_shape, after.known_shape
    if a is None or (b is None and same is meet):
        return
    if b is not None and len(a) == len(b) and all(same(x, y) is not None for x, y in zip(a, b, strict=True)):
        return
    raise ShapeError(
        f"a state changes its shape from {shape_text(a)} to {'one that is not known' if b is None else shape_text(b)}",
        op=op,
        operands=operands,
        expected=shape_text(a),
        hint="shapes=[[None, ...], ...] lets a size differ from step to step" if op == "loop" else "",
        at=made_at(after),
    )


__all__ = ["axes_along", "loop", "same_state", "scalar_operand", "scan"]
