"""Slice: part of a tensor along some axes, with Python's meaning of bounds and steps."""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from typing import cast as typed

from lazygraph import dims
from lazygraph.dims import Dim, Size, SizeLike
from lazygraph.errors import OperandError, ShapeError
from lazygraph.ops.checks import axes_of, rows
from lazygraph.ops.core import Attrs, Inputs, Results, apply, known_ints, rule
from lazygraph.ops.sizes import sizes_tensor
from lazygraph.tensor import Tensor

# "To the end" and "to the front" in the direction of travel. INT_MAX with a negative step means different things to
# different runtimes (the spec says: nothing is left), so it is never written there.
TO_THE_END = 2**63 - 1
TO_THE_FRONT = -(2**63)
# From this end on, onnxruntime takes a backward slice to the front, and the spec says that it is empty.
_INT_MAX = 2**31 - 1


@rule("Slice")
def _slice_rule(op: str, inputs: Inputs, attrs: Attrs) -> Results:
    x, starts, ends, axes, steps = [*inputs, None, None, None, None][:5]
    if x is None or starts is None or ends is None:
        raise OperandError(
            "x, starts or ends is missing", op=op, expected="x, starts, ends, and perhaps axes and steps"
        )
    if x.known_shape is None:
        return [(x.dtype, None)]
    count = next((t.shape[0] for t in (starts, ends) if t.known_shape), None)
    chosen = known_ints(axes) if axes is not None else list(range(count)) if isinstance(count, int) else None
    if chosen is None:
        return [(x.dtype, tuple(_unknown(x, axis, size) for axis, size in enumerate(x.shape)))]

    places = axes_of(op, typed("list[int]", chosen), len(x.shape), {"x": x})
    strides = known_ints(steps) if steps is not None else [1] * len(places)
    firsts, lasts = known_ints(starts), known_ints(ends)
    if strides is not None and 0 in strides:
        raise ShapeError("a step is 0", op=op, operands=rows({"x": x}), expected="steps other than 0")
    lengths = {len(values) for values in (firsts, lasts, strides, places) if values is not None}
    if len(lengths) > 1:
        raise ShapeError(
            "starts, ends, axes and steps differ in length",
            op=op,
            operands=rows({"x": x}),
            expected="one each per axis",
        )
    sizes = list(x.shape)
    for i, axis in enumerate(places):
        size = sizes[axis]
        if firsts is None or lasts is None or strides is None or isinstance(strides[i], Dim):
            sizes[axis] = _unknown(x, axis, size)
        else:
            sizes[axis] = _emitted_size(x, axis, firsts[i], lasts[i], typed(int, strides[i]))
    return [(x.dtype, tuple(sizes))]


def _emitted_size(x: Tensor, axis: int, start: Size, end: Size, step: int) -> Size:
    """Return how many elements ONNX's own ``[start:end:step]`` takes: Python's number, but for backward slices.

    A start before the front is moved to the first element, where Python takes nothing. An end of INT_MAX is nothing to
    the spec and everything to onnxruntime: the number is left to the run.
    """
    size = x.shape[axis]
    if step > 0:
        return sliced_size(size, start, end, step)
    if isinstance(end, int) and end >= _INT_MAX:
        return _unknown(x, axis, size)
    if not isinstance(start, int) or dims.at_most(-start, size) is True or start >= -1:
        return sliced_size(size, start, end, step)
    last = _from_front(end, size)
    if last is None:
        return _unknown(x, axis, size)
    span = dims.subtract(dims.largest(dims.add(size, start), 0), dims.largest(last, -1))
    count = dims.floordiv(dims.add(span, -step - 1), -step)
    return dims.smallest(size, dims.largest(0, count))


def sliced_size(size: Size, start: Size, end: Size, step: int) -> Size:
    """Return how many elements ``[start:end:step]`` takes of an axis, as Python counts; exact for named sizes."""
    if isinstance(size, int) and isinstance(start, int) and isinstance(end, int):
        stop = None if step < 0 and end < -size else end
        return len(range(size)[builtins.slice(start, stop, step)])

    first = _from_front(start, size)
    last = _from_front(end, size)
    if first is None or last is None:
        return dims.unknown(f"[{start}:{end}:{step}] of {size}", dims.bounds(size)[1])

    # Only the clamps that can change the count: what starts behind its end counts 0 anyway. What is subtracted from a
    # minimum is subtracted from each of its arguments, so that x[-3:] has min(3, n) elements and x[1:] max(0, n - 1).
    if step > 0:
        lasts = [last] if _is_negative(end) else [last, size]
        firsts = [first, 0] if _is_negative(start) else [first]
        spans = [dims.subtract(a, b) for a in lasts for b in firsts]
    else:
        highest = dims.subtract(size, 1)
        firsts = [first] if _is_negative(start) else [first, highest]
        lasts = [last, -1] if _is_negative(end) else [last]
        spans = [dims.subtract(a, b) for a in firsts for b in lasts]
    span = spans[0] if len(spans) == 1 else dims.smallest(*spans)
    width = abs(step)
    if width > 1:
        span = dims.floordiv(dims.add(span, width - 1), width)
    return span if span == size else dims.largest(0, span)


def _is_negative(bound: Size) -> bool:
    return bound < 0 if isinstance(bound, int) else dims.at_most(bound, -1) is True


def _from_front(bound: Size, size: Size) -> Size | None:
    """Return the bound counted from the front, not held to the axis; None where its sign is not known."""
    if isinstance(bound, int) and bound >= _INT_MAX:
        return size
    if bound >= 0 if isinstance(bound, int) else dims.at_most(0, bound):
        return bound
    if bound == TO_THE_FRONT:
        return -1
    return dims.add(bound, size) if _is_negative(bound) else None


def clamped_start(size: Size, start: Size | None, step: int) -> Size:
    """Return where ``[start::step]`` begins on an axis: counted from the front and held to the axis."""
    first = _from_front((0 if step > 0 else TO_THE_END) if start is None else start, size)
    if first is None:
        return dims.unknown(f"[{start}:] of {size}", dims.bounds(size)[1])
    low: Size = 0 if step > 0 else -1
    return dims.smallest(dims.largest(first, low), size if step > 0 else dims.subtract(size, 1))


def slice(
    x: Tensor,
    starts: Sequence[SizeLike] | Tensor,
    ends: Sequence[SizeLike] | Tensor,
    axes: Sequence[int] | None = None,
    steps: Sequence[int] | None = None,
) -> Tensor:
    """Return ``x[starts:ends:steps]`` along ``axes`` (the first ones when None), bounds as Python's.

    Args:
        x: ``T``.
        starts: Sizes, which may be negative ints, or an ``int64 (n,)`` tensor. A tensor's bounds are ONNX's: backward
            from before the front, they take the first element where Python takes nothing.
        ends: The same; ``TO_THE_END`` and ``TO_THE_FRONT`` mean just that.
        axes: The axes.
        steps: Ints other than 0.

    Raises:
        ShapeError: A step of 0, one axis twice, or lists of different lengths.
        IndexRangeError: An axis lies outside ``[-rank, rank)``.

    Spec: ai.onnx::Slice.
    """
    count = typed(int, starts.shape[0]) if isinstance(starts, Tensor) else len(starts)
    places = axes_of("slice", list(axes) if axes is not None else list(range(count)), len(x.shape), {"x": x})
    if steps is not None and not isinstance(ends, Tensor):
        ends = [
            _INT_MAX - 1 if isinstance(end, int) and end >= _INT_MAX and step < 0 else end
            for end, step in zip(ends, [*steps, *[1] * len(ends)], strict=False)
        ]
    if steps is not None and not isinstance(starts, Tensor) and not isinstance(ends, Tensor):
        x, starts, ends = _started_within(x, starts, ends, places, steps)
    first = starts if isinstance(starts, Tensor) else _bounds(starts, x)
    last = ends if isinstance(ends, Tensor) else _bounds(ends, x)
    extra = [x.graph.ints(tuple(steps))] if steps is not None and any(step != 1 for step in steps) else []
    return apply("Slice", x, first, last, x.graph.ints(places), *extra)


def _started_within(
    x: Tensor, starts: Sequence[SizeLike], ends: Sequence[SizeLike], places: Sequence[int], steps: Sequence[int]
) -> tuple[Tensor, Sequence[SizeLike], Sequence[SizeLike]]:
    """Return a backward slice so that it starts at an element or has none to start at.

    A start before the front takes nothing in Python and the first element in ONNX: what stands behind the start is cut
    away first, and the slice starts at the end of the rest.
    """
    firsts, lasts, cuts = list(starts), list(ends), {}
    for i, (axis, start, end, step) in enumerate(zip(places, starts, ends, steps, strict=False)):
        least = dims.bounds(x.shape[axis])[0]
        if step >= 0 or not isinstance(start, int) or start >= -1 or (least is not None and least >= -start):
            continue
        if isinstance(end, int) and end < 0 and end != TO_THE_FRONT:
            lasts[i] = end - start - 1 if end < start else -1
        elif not isinstance(end, int) and dims.at_most(0, x.graph.size(end)) is not True:
            raise ShapeError(
                f"whether {end} counts from the front or the end is not known",
                op="slice",
                operands=rows({"x": x}),
                expected="a sign that is known, where a backward slice may start before the front",
            )
        firsts[i], cuts[axis] = -1, start + 1
    if not cuts:
        return x, starts, ends
    return slice(x, [0] * len(cuts), list(cuts.values()), list(cuts)), firsts, lasts


def _bounds(values: Sequence[SizeLike], x: Tensor) -> Tensor:
    if all(isinstance(value, int) for value in values):
        return x.graph.ints(typed("list[int]", list(values)))
    return sizes_tensor("slice", values, x)


def _unknown(x: Tensor, axis: int, size: Size) -> Size:
    high = dims.bounds(size)[1]
    return dims.unknown(f"slice_{x.graph.next_serial()}_{axis}", high)


__all__ = ["TO_THE_END", "TO_THE_FRONT", "clamped_start", "slice", "sliced_size"]
