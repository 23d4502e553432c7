"""Ops that frame, mask and rearrange: pad, the triangles, space and depth, reversal, repetition."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast as typed

import numpy as np

from lazygraph import dims
from lazygraph.dims import Dim, Size, SizeLike
from lazygraph.errors import OperandError, ShapeError
from lazygraph.ops.checks import (
    INDEX,
    INT64,
    axes_of,
    axis_of,
    between,
    dtype_among,
    exact_rank,
    exactly,
    fresh,
    rank_at_least,
    rows,
    same_dtype,
    same_size,
)
from lazygraph.ops.core import Attrs, Inputs, Results, apply, as_tensor, known_ints, rule
from lazygraph.ops.shaping import expand, reshape, unsqueeze
from lazygraph.ops.sizes import sizes_tensor
from lazygraph.ops.slicing import TO_THE_END, TO_THE_FRONT, slice
from lazygraph.tensor import Constant, Operand, Tensor

_MODES = ("constant", "reflect", "edge", "wrap")


@rule("Pad")
def _pad_rule(op: str, inputs: Inputs, attrs: Attrs) -> Results:
    x, pads, value, axes = between(op, inputs, 2, 4)
    x, pads = typed(Tensor, x), typed(Tensor, pads)
    dtype_among(op, "pads", pads, INT64)
    dtype = same_dtype(op, x=x, constant_value=value)
    if axes is not None:
        dtype_among(op, "axes", axes, INDEX)
    mode = attrs.get("mode", "constant")
    if mode not in _MODES:
        raise OperandError(f"mode is {mode!r}", op=op, expected=", ".join(_MODES))
    if x.known_shape is None:
        return [(dtype, None)]
    widths = known_ints(pads)
    chosen = list(range(len(x.shape))) if axes is None else known_ints(axes)
    if widths is None or chosen is None:
        return [(dtype, tuple(fresh(op, x, i) for i in range(len(x.shape))))]
    places = axes_of(op, typed("list[int]", chosen), len(x.shape), {"x": x})
    if len(widths) != 2 * len(places):
        raise ShapeError(
            f"{len(widths)} pads for {len(places)} axes",
            op=op,
            operands=rows({"x": x}),
            expected="one before each axis, then one after each",
        )
    sizes = list(x.shape)
    for i, axis in enumerate(places):
        before, after, size = widths[i], widths[len(places) + i], sizes[axis]
        sizes[axis] = dims.add(size, dims.add(before, after))
        longest = {"reflect": dims.subtract(size, 1), "wrap": size}.get(mode)
        if dims.at_most(0, sizes[axis]) is False or (
            longest is not None and False in (dims.at_most(before, longest), dims.at_most(after, longest))
        ):
            raise ShapeError(
                f"axis {axis} of {size} padded by {before} and {after}",
                op=op,
                operands=rows({"x": x}),
                expected="a size of at least 0" if longest is None else f"{mode} pads of at most {longest}",
            )
    return [(dtype, tuple(sizes))]


def pad(
    x: Tensor,
    pads: SizeLike | Sequence[SizeLike | Sequence[SizeLike]] | Tensor,
    mode: str = "constant",
    constant_value: Operand | None = None,
    axes: Sequence[int] | None = None,
) -> Tensor:
    """Return ``x`` with elements added around it (negative pads cut).

    Args:
        x: ``T``.
        pads: One before each axis, then one after each: sizes, or ``int64 (2 * n,)``. Or as in numpy: one size for
            all sides, or pairs of before and after, one for each axis.
        mode: ``constant``, ``reflect``, ``edge`` or ``wrap`` (opset 19).
        constant_value: ``T ()``; 0 when None.
        axes: The axes that ``pads`` are for; all when None.

    Raises:
        ShapeError: Not two pads per axis, a size below 0, or pads that reflect further than there is.
        IndexRangeError: An axis lies outside ``[-rank, rank)``.
        OperandError: Another mode.

    Spec: ai.onnx::Pad.
    """
    places = None if axes is None else axes_of("Pad", axes, len(x.shape), {"x": x})
    widths = pads
    if not isinstance(widths, Tensor):
        given = _flat_pads(widths, len(x.shape) if places is None else len(places))
        if places is not None and len(given) == 2 * len(places):  # all axes: the form of opset 13
            full: list[SizeLike] = [0] * (2 * len(x.shape))
            for i, axis in enumerate(places):
                full[axis], full[len(x.shape) + axis] = given[i], given[len(places) + i]
            given, places = full, None
        widths = sizes_tensor("Pad", given, x)
    inputs: Inputs = (x, widths)
    if constant_value is not None or places is not None:
        inputs = (*inputs, None if constant_value is None else as_tensor("Pad", constant_value, x))
    if places is not None:
        inputs = (*inputs, x.graph.ints(places))
    return apply("Pad", *inputs, **({} if mode == "constant" else {"mode": mode}))


def _flat_pads(pads: SizeLike | Sequence[SizeLike | Sequence[SizeLike]], axes: int) -> list[SizeLike]:
    """Return numpy's forms of pads as ONNX's: those before each axis, then those after each."""
    if isinstance(pads, (int, str, Dim, np.integer)):
        return [pads] * (2 * axes)
    given = list(pads)
    pairs = [pair for pair in given if isinstance(pair, (list, tuple))]
    if len(pairs) != len(given) or not pairs:
        return typed("list[SizeLike]", given)  # a pair among sizes is refused as no size
    if len(pairs) == 1:
        pairs *= axes
    if any(len(pair) != 2 for pair in pairs):
        raise OperandError(
            f"pads are {given!r}", op="Pad", expected="pairs of before and after, or one list of ONNX's order"
        )
    return [*[before for before, _ in pairs], *[after for _, after in pairs]]


@rule("Trilu")
def _trilu_rule(op: str, inputs: Inputs, attrs: Attrs) -> Results:
    x, k = between(op, inputs, 1, 2)
    x = typed(Tensor, x)
    if k is not None:
        dtype_among(op, "k", k, INT64)
        if k.known_shape not in (None, (), (1,)):
            raise ShapeError("k is no scalar", op=op, operands=rows({"k": k}), expected="k of shape ()")
    if x.known_shape is not None:
        rank_at_least(op, "x", x, 2)
    return [(x.dtype, x.known_shape)]


def tril(x: Tensor, k: int | Dim | Tensor = 0) -> Tensor:
    """Return ``x`` with 0 above diagonal ``k`` of its last two axes. Spec: ai.onnx::Trilu."""
    return _triangle(x, k, {"upper": 0})


def triu(x: Tensor, k: int | Dim | Tensor = 0) -> Tensor:
    """Return ``x`` with 0 below diagonal ``k`` of its last two axes. Spec: ai.onnx::Trilu."""
    return _triangle(x, k, {})


def trilu(x: Tensor, k: int | Dim | Tensor = 0, upper: bool = True) -> Tensor:
    """Return ``triu`` or ``tril`` of ``x``. Spec: ai.onnx::Trilu."""
    return triu(x, k) if upper else tril(x, k)


def _triangle(x: Tensor, k: int | Dim | Tensor, attrs: Attrs) -> Tensor:
    if type(k) is int and k == 0:
        return apply("Trilu", x, **attrs)
    diagonal = x.graph.small(np.array(k, dtype=np.int64)) if isinstance(k, int) else as_tensor("Trilu", k, x)
    return apply("Trilu", x, diagonal, **attrs)


@rule("DepthToSpace", "SpaceToDepth")
def _space_rule(op: str, inputs: Inputs, attrs: Attrs) -> Results:
    (x,) = exactly(op, inputs, 1)
    exact_rank(op, "x", x, 4)
    block = attrs.get("blocksize")
    if block is None or block < 1:
        raise OperandError(f"blocksize is {block!r}", op=op, expected="blocksize of at least 1")
    if x.known_shape is None:
        return [(x.dtype, None)]
    n, c, h, w = x.shape
    if op == "DepthToSpace":
        return [(x.dtype, (n, _divided(op, x, c, block * block), dims.multiply(h, block), dims.multiply(w, block)))]
    return [(x.dtype, (n, dims.multiply(c, block * block), _divided(op, x, h, block), _divided(op, x, w, block)))]


def _divided(op: str, x: Tensor, size: Size, by: int) -> Size:
    if isinstance(size, int) and size % by:
        raise ShapeError(
            f"{size} does not divide by {by}", op=op, operands=rows({"x": x}), expected="a size that divides"
        )
    return dims.floordiv(size, by)


def depth_to_space(x: Tensor, blocksize: int, mode: str = "DCR") -> Tensor:
    """Return ``(n, c / b², h * b, w * b)`` of ``(n, c, h, w)``: channels laid out as blocks of ``b`` by ``b``.

    Raises:
        ShapeError: Not four axes, or channels that do not divide by ``b²``.
        OperandError: A mode other than ``DCR`` and ``CRD``.

    Spec: ai.onnx::DepthToSpace.
    """
    if mode not in ("DCR", "CRD"):
        raise OperandError(f"mode is {mode!r}", op="DepthToSpace", expected="DCR or CRD")
    return apply("DepthToSpace", x, blocksize=int(blocksize), **({} if mode == "DCR" else {"mode": mode}))


def space_to_depth(x: Tensor, blocksize: int) -> Tensor:
    """Return ``(n, c * b², h / b, w / b)`` of ``(n, c, h, w)``: blocks of ``b`` by ``b`` laid out as channels.

    Raises:
        ShapeError: Not four axes, or spatial sizes that do not divide by ``b``.

    Spec: ai.onnx::SpaceToDepth.
    """
    return apply("SpaceToDepth", x, blocksize=int(blocksize))


@rule("Resize")
def _resize_rule(op: str, inputs: Inputs, attrs: Attrs) -> Results:
    x, _, scales, sizes = between(op, inputs, 1, 4)
    x = typed(Tensor, x)
    if (scales is None) == (sizes is None):
        raise OperandError(
            "scales and sizes exclude each other", op=op, operands=rows({"x": x}), expected="exactly one"
        )
    if x.known_shape is None:
        return [(x.dtype, None)]
    places = axes_of(op, attrs.get("axes") or range(len(x.shape)), len(x.shape), {"x": x})
    factors = scales.origin.array if scales is not None and isinstance(scales.origin, Constant) else None
    wanted = None if sizes is None else known_ints(sizes)
    policy = attrs.get("keep_aspect_ratio_policy", "stretch")
    if wanted is not None and policy != "stretch":
        wanted = _kept_aspect(policy, [x.shape[axis] for axis in places], wanted)
    given = wanted if factors is None else np.asarray(factors).tolist() if isinstance(factors, np.ndarray) else None
    if given is not None and len(given) != len(places):
        raise ShapeError(
            f"{len(given)} numbers for {len(places)} axes",
            op=op,
            operands=rows({"x": x}),
            expected="one number per axis",
        )
    shape = list(x.shape)
    for i, axis in enumerate(places):
        size = shape[axis]
        if given is None:
            shape[axis] = fresh(op, x, axis)
        elif factors is None:
            shape[axis] = given[i]
        elif float(given[i]).is_integer():
            shape[axis] = dims.multiply(size, int(given[i]))
        else:
            shape[axis] = int(size * given[i]) if isinstance(size, int) else _scaled(op, x, axis, size, float(given[i]))
    return [(x.dtype, tuple(shape))]


def _scaled(op: str, x: Tensor, axis: int, size: Size, factor: float) -> Size:
    """Return ``floor(size * factor)``, exact where the factor is a fraction that floats hold, such as 1.5 or 0.25."""
    top, below = float(factor).as_integer_ratio()
    if below > 1024:
        return fresh(op, x, axis)
    return dims.floordiv(dims.multiply(size, top), below)


def _kept_aspect(policy: str, sizes: list[Size], wanted: list[Size]) -> list[Size] | None:
    """Return the sizes that one common scale gives; None where a size is not known."""
    pairs = [(np.float32(b), np.float32(a)) for a, b in zip(sizes, wanted, strict=False) if type(a) is type(b) is int]
    if len(pairs) != len(wanted) or len(sizes) != len(wanted) or not all(a for _, a in pairs):
        return None
    factor = (min if policy == "not_larger" else max)(b / a for b, a in pairs)
    return [int(np.floor(factor * a + np.float32(0.5))) for _, a in pairs]


@rule("ReverseSequence")
def _reverse_rule(op: str, inputs: Inputs, attrs: Attrs) -> Results:
    x, lengths = exactly(op, inputs, 2)
    dtype_among(op, "sequence_lens", lengths, INT64)
    exact_rank(op, "sequence_lens", lengths, 1)
    if x.known_shape is not None:
        rank_at_least(op, "x", x, 2)
        time, batch = attrs.get("time_axis", 0), attrs.get("batch_axis", 1)
        if {time, batch} != {0, 1}:
            raise OperandError(f"time_axis {time}, batch_axis {batch}", op=op, expected="0 and 1, or 1 and 0")
        if lengths.known_shape is not None:
            labelled = {"x": x, "sequence_lens": lengths}
            same_size(op, labelled, "one length per sample", lengths.shape[0], x.shape[batch])
    return [(x.dtype, x.known_shape)]


def reverse_sequence(x: Tensor, sequence_lens: Tensor, time_axis: int = 0, batch_axis: int = 1) -> Tensor:
    """Return ``x`` with the first steps of each sample, as many as its length says, reversed.

    Spec: ai.onnx::ReverseSequence.
    """
    lengths = as_tensor("ReverseSequence", sequence_lens, x)
    return apply("ReverseSequence", x, lengths, time_axis=time_axis, batch_axis=batch_axis)


def flip(x: Tensor, axis: int | Sequence[int] | None = None) -> Tensor:
    """Return ``x`` reversed along the axes, all of them when None. Spec: ai.onnx::Slice."""
    places = axes_of("flip", range(len(x.shape)) if axis is None else axis, len(x.shape), {"x": x})
    if not places:
        return x
    many = len(places)
    return slice(x, [TO_THE_END] * many, [TO_THE_FRONT] * many, places, [-1] * many)


def repeat(x: Tensor, repeats: int | Dim, axis: int | None = None) -> Tensor:
    """Return ``x`` with each element along an axis ``repeats`` times in a row; None for all elements as one row.

    Raises:
        IndexRangeError: The axis lies outside ``[-rank, rank)``.
        ShapeError: ``repeats`` is negative.

    Composed of Unsqueeze, Expand and Reshape.
    """
    if axis is None:
        x, axis = reshape(x, [-1]), 0
    place = axis_of("repeat", axis, len(x.shape), operands={"x": x})
    if isinstance(repeats, int) and repeats < 0:
        raise ShapeError(
            f"repeats is {repeats}", op="repeat", operands=rows({"x": x}), expected="repeats of at least 0"
        )
    if type(repeats) is int and repeats == 1:
        return x
    sizes: list[Size] = [1] * (len(x.shape) + 1)
    sizes[place + 1] = repeats
    wide = expand(unsqueeze(x, place + 1), sizes)
    whole = dims.multiply(x.shape[place], repeats)
    return reshape(wide, [*x.shape[:place], whole, *x.shape[place + 1 :]])


__all__ = [
    "depth_to_space",
    "flip",
    "pad",
    "repeat",
    "reverse_sequence",
    "space_to_depth",
    "tril",
    "trilu",
    "triu",
]
