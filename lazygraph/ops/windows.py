"""Ops that move a window over spatial axes: convolutions and pools. ``x`` is ``(batch, channels, *spatial)``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast as typed

from lazygraph import dims
from lazygraph.dims import Size
from lazygraph.dtypes import int32, int64
from lazygraph.errors import OperandError, ShapeError
from lazygraph.ops.checks import (
    FLOAT,
    Types,
    between,
    dtype_among,
    exact_rank,
    exactly,
    rank_at_least,
    rows,
    same_dtype,
    same_size,
    types,
)
from lazygraph.ops.core import Attrs, Inputs, Results, apply, rule
from lazygraph.tensor import Shape, Tensor

_POOLED = Types("floating-point, int8 or uint8", FLOAT.names | {"int8", "uint8"})
_BYTES = types("int8 or uint8", "int8 uint8")


def _per_axis(op: str, attrs: Attrs, name: str, count: int, default: int) -> list[int]:
    values = attrs.get(name)
    if not values:
        return [default] * count
    if len(values) != count:
        raise ShapeError(f"{len(values)} {name} for {count} spatial axes", op=op, expected=f"{count} {name}")
    if any(value < (0 if name == "pads" else 1) for value in values):
        raise ShapeError(
            f"{name} are {list(values)}", op=op, expected=f"{name} of at least {0 if name == 'pads' else 1}"
        )
    return list(values)


def window_sizes(op: str, x: Tensor, kernel: Sequence[Size], attrs: Attrs) -> Shape:
    """Return how many places a window of these sizes takes along each spatial axis.

    Raises:
        ShapeError: A window is known to be larger than its padded axis, or attributes differ in length.
    """
    spatial = x.shape[2:]
    count = len(spatial)
    strides = _per_axis(op, attrs, "strides", count, 1)
    dilations = _per_axis(op, attrs, "dilations", count, 1)
    pads = _per_axis(op, attrs, "pads", 2 * count, 0)
    auto = attrs.get("auto_pad", "NOTSET")
    sizes: list[Size] = []
    for i, size in enumerate(spatial):
        extent = dims.add(dims.multiply(dims.subtract(kernel[i], 1), dilations[i]), 1)
        if auto in ("SAME_UPPER", "SAME_LOWER"):
            sizes.append(dims.floordiv(dims.add(size, strides[i] - 1), strides[i]))
            continue
        before, after = (0, 0) if auto == "VALID" else (pads[i], pads[count + i])
        room = dims.subtract(dims.add(size, before + after), extent)
        if dims.at_most(0, room) is False:
            raise ShapeError(
                f"the window takes {extent} of axis {i + 2}, which has {dims.add(size, before + after)} with padding",
                op=op,
                operands=rows({"x": x}),
                expected="a window no larger than the padded axis",
            )
        if attrs.get("ceil_mode"):
            sizes.append(_rounded_up(op, x, i, size, room, strides[i], before, after, extent))
        else:
            sizes.append(dims.add(dims.floordiv(room, strides[i]), 1))
    return tuple(sizes)


def _rounded_up(
    op: str, x: Tensor, i: int, size: Size, room: Size, stride: int, before: int, after: int, extent: Size
) -> Size:
    """Return the places with ``ceil_mode``: a last window that starts in the padding behind does not count."""
    places = dims.add(dims.floordiv(dims.add(room, stride - 1), stride), 1)
    starts_behind = dims.at_most(dims.add(size, before), dims.multiply(dims.subtract(places, 1), stride))
    if starts_behind is None:
        if dims.at_most(after + stride, extent):
            return places
        begun = dims.add(dims.floordiv(dims.add(size, before - 1), stride), 1)
        return dims.smallest(places, begun)
    return dims.subtract(places, 1) if starts_behind else places


def _kernel(op: str, attrs: Attrs, sizes: Shape, operands: dict[str, Tensor | None]) -> Shape:
    given = attrs.get("kernel_shape")
    if given is None:
        return sizes
    if len(given) != len(sizes):
        raise ShapeError(f"kernel_shape {list(given)} for {len(sizes)} spatial axes", op=op, operands=rows(operands))
    for a, b in zip(given, sizes, strict=True):
        same_size(op, operands, "kernel_shape equal to the spatial sizes of w", a, b)
    return tuple(given)


@rule("Conv", "ConvInteger")
def _conv_rule(op: str, inputs: Inputs, attrs: Attrs) -> Results:
    x, w, third, fourth = [*between(op, inputs, 2, 3 if op == "Conv" else 4), None][:4]
    x, w = typed(Tensor, x), typed(Tensor, w)
    labelled: dict[str, Tensor | None] = {"x": x, "w": w}
    if op == "Conv":
        labelled["b"] = third
        dtype = same_dtype(op, x=x, w=w, b=third)
        dtype_among(op, "x", x, FLOAT)
    else:
        dtype = int32
        dtype_among(op, "x", x, _BYTES)
        dtype_among(op, "w", w, _BYTES)
        same_dtype(op, x=x, x_zero_point=third)
        same_dtype(op, w=w, w_zero_point=fourth)
    if x.known_shape is None or w.known_shape is None:
        return [(dtype, None)]
    rank_at_least(op, "x", x, 3)
    exact_rank(op, "w", w, len(x.shape))
    group = attrs.get("group", 1)
    same_size(op, labelled, "channels of x equal to w.shape[1] * group", x.shape[1], dims.multiply(w.shape[1], group))
    if isinstance(w.shape[0], int) and w.shape[0] % group:
        raise ShapeError(
            f"{w.shape[0]} filters in {group} groups",
            op=op,
            operands=rows(labelled),
            expected="filters that divide by group",
        )
    if op == "Conv":
        _bias(op, labelled, third, w.shape[0])
    kernel = _kernel(op, attrs, w.shape[2:], labelled)
    return [(dtype, (x.shape[0], w.shape[0], *window_sizes(op, x, kernel, attrs)))]


def _bias(op: str, labelled: dict[str, Tensor | None], b: Tensor | None, filters: Size) -> None:
    if b is not None and b.known_shape is not None:
        exact_rank(op, "b", b, 1)
        same_size(op, labelled, "one bias per filter", b.shape[0], filters)


def _window_attrs(
    strides: Sequence[int] | None,
    pads: Sequence[int] | None,
    dilations: Sequence[int] | None,
    auto_pad: str,
    group: int = 1,
) -> Attrs:
    if auto_pad not in ("NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID"):
        raise OperandError(
            f"auto_pad is {auto_pad!r}", op="auto_pad", expected="NOTSET, SAME_UPPER, SAME_LOWER or VALID"
        )
    if auto_pad != "NOTSET" and pads is not None:
        raise OperandError("pads beside auto_pad", op="auto_pad", expected="one of them")
    given = {"strides": strides, "pads": pads, "dilations": dilations}
    attrs: Attrs = {name: [int(v) for v in values] for name, values in given.items() if values is not None}
    if auto_pad != "NOTSET":
        attrs["auto_pad"] = auto_pad
    if group != 1:
        attrs["group"] = int(group)
    return attrs


def conv(
    x: Tensor,
    w: Tensor,
    b: Tensor | None = None,
    strides: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    dilations: Sequence[int] | None = None,
    group: int = 1,
    auto_pad: str = "NOTSET",
) -> Tensor:
    """Return the convolution (cross-correlation) of ``x`` with the filters ``w``.

    Args:
        x: ``T (batch, channels, *spatial)``.
        w: ``T (filters, channels / group, *kernel)``.
        b: ``T (filters,)`` or None.
        strides: One per spatial axis; 1 when None.
        pads: Zeros before each spatial axis, then after each; none when None.
        dilations: One per spatial axis; 1 when None.
        group: Groups that channels and filters fall into.
        auto_pad: ``SAME_UPPER``, ``SAME_LOWER`` or ``VALID`` in place of ``pads``.

    Raises:
        ShapeError: Ranks, channels or filters do not fit, or the window is larger than the padded axis.
        DTypeError: Element types differ, or are not floating-point.

    Spec: ai.onnx::Conv.
    """
    attrs = _window_attrs(strides, pads, dilations, auto_pad, group)
    return apply("Conv", x, w, *([] if b is None else [b]), **attrs)


@rule("ConvTranspose")
def _conv_transpose_rule(op: str, inputs: Inputs, attrs: Attrs) -> Results:
    x, w, b = between(op, inputs, 2, 3)
    x, w = typed(Tensor, x), typed(Tensor, w)
    labelled = {"x": x, "w": w, "b": b}
    dtype = same_dtype(op, x=x, w=w, b=b)
    dtype_among(op, "x", x, FLOAT)
    if x.known_shape is None or w.known_shape is None:
        return [(dtype, None)]
    rank_at_least(op, "x", x, 3)
    exact_rank(op, "w", w, len(x.shape))
    same_size(op, labelled, "channels of x equal to w.shape[0]", x.shape[1], w.shape[0])
    filters = dims.multiply(w.shape[1], attrs.get("group", 1))
    _bias(op, labelled, b, filters)
    kernel = _kernel(op, attrs, w.shape[2:], labelled)

    count = len(x.shape) - 2
    wanted = attrs.get("output_shape")
    if wanted:
        return [(dtype, (x.shape[0], filters, *_per_axis(op, attrs, "output_shape", count, 1)))]
    strides = _per_axis(op, attrs, "strides", count, 1)
    dilations = _per_axis(op, attrs, "dilations", count, 1)
    pads = _per_axis(op, attrs, "pads", 2 * count, 0)
    extra = attrs.get("output_padding") or [0] * count
    same = attrs.get("auto_pad", "NOTSET") in ("SAME_UPPER", "SAME_LOWER")
    sizes: list[Size] = []
    for i, size in enumerate(x.shape[2:]):
        if same:
            sizes.append(dims.multiply(size, strides[i]))
            continue
        extent = dims.add(dims.multiply(dims.subtract(kernel[i], 1), dilations[i]), 1 + extra[i])
        start = dims.multiply(dims.subtract(size, 1), strides[i])
        sizes.append(dims.subtract(dims.add(start, extent), pads[i] + pads[count + i]))
    return [(dtype, (x.shape[0], filters, *sizes))]


def conv_transpose(
    x: Tensor,
    w: Tensor,
    b: Tensor | None = None,
    strides: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    dilations: Sequence[int] | None = None,
    group: int = 1,
    output_padding: Sequence[int] | None = None,
) -> Tensor:
    """Return the transposed convolution, which spreads each element over a window.

    Args:
        x: ``T (batch, channels, *spatial)``.
        w: ``T (channels, filters / group, *kernel)``.
        b: ``T (filters,)`` or None.
        strides: One per spatial axis; 1 when None.
        pads: What to cut before each spatial axis, then after each.
        dilations: One per spatial axis; 1 when None.
        group: Groups that channels and filters fall into.
        output_padding: Elements more at the end of each spatial axis.

    Raises:
        ShapeError: Ranks or channels do not fit.

    Spec: ai.onnx::ConvTranspose.
    """
    attrs = _window_attrs(strides, pads, dilations, "NOTSET", group)
    if output_padding is not None:
        attrs["output_padding"] = [int(v) for v in output_padding]
    return apply("ConvTranspose", x, w, *([] if b is None else [b]), **attrs)


# ---- pools ----


@rule("MaxPool", "AveragePool", "LpPool")
def _pool_rule(op: str, inputs: Inputs, attrs: Attrs) -> Results:
    (x,) = exactly(op, inputs, 1)
    dtype_among(op, "x", x, _POOLED if op == "MaxPool" else FLOAT)
    if "kernel_shape" not in attrs:
        raise OperandError("kernel_shape is missing", op=op, operands=rows({"x": x}), expected="kernel_shape=[...]")
    shape: Shape | None = None
    if x.known_shape is not None:
        rank_at_least(op, "x", x, 3)
        kernel = tuple(_per_axis(op, attrs, "kernel_shape", len(x.shape) - 2, 1))
        shape = (*x.shape[:2], *window_sizes(op, x, kernel, attrs))
    return [(x.dtype, shape), (int64, shape)] if op == "MaxPool" else [(x.dtype, shape)]


@rule("GlobalMaxPool", "GlobalAveragePool", "GlobalLpPool")
def _global_pool_rule(op: str, inputs: Inputs, attrs: Attrs) -> Results:
    (x,) = exactly(op, inputs, 1)
    dtype_among(op, "x", x, FLOAT)
    if x.known_shape is None:
        return [(x.dtype, None)]
    rank_at_least(op, "x", x, 3)
    return [(x.dtype, (*x.shape[:2], *[1] * (len(x.shape) - 2)))]


def max_pool(
    x: Tensor,
    kernel_shape: Sequence[int],
    strides: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    dilations: Sequence[int] | None = None,
    ceil_mode: bool = False,
    auto_pad: str = "NOTSET",
) -> Tensor:
    """Return the maximum in each window.

    Args:
        x: ``T (batch, channels, *spatial)``.
        kernel_shape: The window's size along each spatial axis.
        strides: One per spatial axis; 1 when None.
        pads: Places before each spatial axis, then after each.
        dilations: One per spatial axis; 1 when None.
        ceil_mode: Count a last window that is not full.
        auto_pad: ``SAME_UPPER``, ``SAME_LOWER`` or ``VALID`` in place of ``pads``.

    Raises:
        ShapeError: Lengths do not fit, or the window is larger than the padded axis.

    Spec: ai.onnx::MaxPool.
    """
    attrs = _window_attrs(strides, pads, dilations, auto_pad)
    return apply("MaxPool", x, kernel_shape=[int(k) for k in kernel_shape], **_ceil(ceil_mode), **attrs)


def average_pool(
    x: Tensor,
    kernel_shape: Sequence[int],
    strides: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    ceil_mode: bool = False,
    count_include_pad: bool = False,
    auto_pad: str = "NOTSET",
) -> Tensor:
    """Return the mean of each window (see ``max_pool``); padding counts if asked. Spec: ai.onnx::AveragePool."""
    attrs = _window_attrs(strides, pads, None, auto_pad)
    if count_include_pad:
        attrs["count_include_pad"] = 1
    return apply("AveragePool", x, kernel_shape=[int(k) for k in kernel_shape], **_ceil(ceil_mode), **attrs)


def _ceil(ceil_mode: bool) -> Attrs:
    return {"ceil_mode": 1} if ceil_mode else {}


def global_max_pool(x: Tensor) -> Tensor:
    """Return the maximum over the spatial axes, which stay with size 1. Spec: ai.onnx::GlobalMaxPool."""
    return apply("GlobalMaxPool", x)


def global_average_pool(x: Tensor) -> Tensor:
    """Return the mean over the spatial axes, which stay with size 1. Spec: ai.onnx::GlobalAveragePool."""
    return apply("GlobalAveragePool", x)


__all__ = [
    "average_pool",
    "conv",
    "conv_transpose",
    "global_average_pool",
    "global_max_pool",
    "max_pool",
    "window_sizes",
]
