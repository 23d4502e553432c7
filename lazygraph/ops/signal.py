"""Rules of the Fourier transforms. A last axis of 1 holds real numbers, one of 2 real and imaginary parts."""

from __future__ import annotations

from lazygraph import dims
from lazygraph.dims import Size
from lazygraph.errors import ShapeError
from lazygraph.ops.checks import FLOAT, axis_of, between, dtype_among, exact_rank, first, fresh, rank_at_least, rows
from lazygraph.ops.core import Attrs, Inputs, Results, has_op, known_ints, rule
from lazygraph.tensor import Tensor


def _scalar(op: str, x: Tensor, given: Tensor | None, place: int, default: Size) -> Size:
    """Return the number in a scalar operand: ``default`` where it is left out, a new size where it is not known."""
    if given is None:
        return default
    if given.known_shape not in (None, (), (1,)):
        raise ShapeError("an operand is no scalar", op=op, operands=rows({"operand": given}), expected="shape ()")
    known = known_ints(given)
    return fresh(op, x, place) if known is None else known[0]


@rule("STFT")
def _stft_rule(op: str, inputs: Inputs, attrs: Attrs) -> Results:
    signal, step, window, length = between(op, inputs, 2, 4)
    x = first(op, inputs)
    dtype_among(op, "signal", x, FLOAT)
    exact_rank(op, "signal", x, 3)
    if window is not None:
        exact_rank(op, "window", window, 1)
    if x.known_shape is None or (window is not None and window.known_shape is None):
        return [(x.dtype, None)]
    onesided = bool(attrs.get("onesided", 1))
    if onesided and x.shape[2] == 2:
        raise ShapeError(
            "onesided of a complex signal",
            op=op,
            operands=rows({"signal": signal}),
            expected="real numbers, or onesided=0",
        )
    frame = _scalar(op, x, length, 2, x.shape[1] if window is None else window.shape[0])
    stride = _scalar(op, x, step, 1, 1)
    room = dims.subtract(x.shape[1], frame)
    if stride == 0 or dims.at_most(0, room) is False:
        raise ShapeError(
            f"frames of {frame} every {stride} in a signal of {x.shape[1]}",
            op=op,
            operands=rows({"signal": signal}),
            expected="frames no longer than the signal, and a step of at least 1",
        )
    frames = dims.add(dims.floordiv(room, stride), 1)
    bins = dims.add(dims.floordiv(frame, 2), 1) if onesided else frame
    return [(x.dtype, (x.shape[0], frames, bins, 2))]


@rule("DFT")
def _dft_rule(op: str, inputs: Inputs, attrs: Attrs) -> Results:
    _, length, axis = between(op, inputs, 1, 3)
    x = first(op, inputs)
    dtype_among(op, "input", x, FLOAT)
    if x.known_shape is None:
        return [(x.dtype, None)]
    rank_at_least(op, "input", x, 2)
    where = (-2 if has_op(x, 20) else 1) if axis is None else _scalar(op, x, axis, 0, -2)
    onesided, inverse = bool(attrs.get("onesided")), bool(attrs.get("inverse"))
    parts = 1 if onesided and inverse else 2
    if not isinstance(where, int):
        return [(x.dtype, (*[fresh(op, x, i) for i in range(len(x.shape) - 1)], parts))]
    place = axis_of(op, where, len(x.shape), operands={"input": x})
    size = x.shape[place]
    if onesided and inverse and length is None:
        size = dims.multiply(dims.subtract(size, 1), 2)
    size = _scalar(op, x, length, place, size)
    if onesided and not inverse:
        size = dims.add(dims.floordiv(size, 2), 1)
    sizes = [*x.shape[:-1], parts]
    sizes[place] = size
    return [(x.dtype, tuple(sizes))]
