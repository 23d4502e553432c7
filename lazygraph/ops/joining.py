"""Ops that join, cut and repeat tensors: concat, stack, split, tile."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast as typed

import numpy as np

from lazygraph import dims
from lazygraph.dims import Dim, Size, SizeLike
from lazygraph.errors import OperandError, ShapeError
from lazygraph.ops.checks import assume_hint, axis_of, exactly, fresh, meet, refuse_meeting, rows, same_dtype
from lazygraph.ops.core import Attrs, Inputs, Results, apply, apply_all, as_tensor, has_op, known_ints, rule
from lazygraph.ops.shaping import unsqueeze
from lazygraph.ops.sizes import sizes_tensor
from lazygraph.tensor import Operand, Tensor


@rule("Concat")
def _concat_rule(op: str, inputs: Inputs, attrs: Attrs) -> Results:
    labelled = {f"operand {i}": tensor for i, tensor in enumerate(inputs)}
    dtype = same_dtype(op, **labelled)
    given = typed("tuple[Tensor, ...]", inputs)
    if any(tensor.known_shape is None for tensor in given):
        return [(dtype, None)]
    first = given[0].shape
    if "axis" not in attrs:
        raise OperandError("axis is missing", op=op, expected="axis=<int>")
    axis = axis_of(op, attrs["axis"], len(first), operands=labelled)
    total: Size = 0
    sizes = list(first)
    for tensor in given:
        if len(tensor.shape) != len(first):
            raise ShapeError(
                f"ranks differ: {' and '.join(str(len(t.shape)) for t in given)}",
                op=op,
                operands=rows(labelled),
                expected="operands with the same number of axes",
            )
        total = dims.add(total, tensor.shape[axis])
        for i, size in enumerate(tensor.shape):
            if i != axis and size is not sizes[i]:
                met = meet(sizes[i], size)
                if met is None:
                    refuse_meeting(op, sizes[i], size, labelled, f"equal sizes on every axis but {axis}")
                sizes[i] = met
    sizes[axis] = total
    return [(dtype, tuple(sizes))]


def concat(tensors: Sequence[Operand], axis: int) -> Tensor:
    """Return the tensors joined along ``axis``; its size is their sum, named sizes included.

    Raises:
        ShapeError: Ranks or the other sizes differ.

    Spec: ai.onnx::Concat.
    """
    tensors = list(tensors)
    like = next((tensor for tensor in tensors if isinstance(tensor, Tensor)), None)
    if like is None:
        raise OperandError("no tensor among the operands", op="concat", expected="at least one tensor")
    return apply("Concat", *[as_tensor("concat", tensor, like) for tensor in tensors], axis=axis)


def stack(tensors: Sequence[Tensor], axis: int = 0) -> Tensor:
    """Return the tensors joined along a new axis. Composed of Unsqueeze and Concat."""
    return concat([unsqueeze(tensor, axis) for tensor in tensors], axis)


@rule("Split")
def _split_rule(op: str, inputs: Inputs, attrs: Attrs) -> Results:
    x, sizes = [*inputs, None][:2]
    if x is None:
        raise OperandError("x is missing", op=op)
    count = attrs.get("num_outputs")
    if count is not None and not has_op(x, 18):
        return _equal_parts(op, x, attrs.get("axis", 0), count)
    if (sizes is None) == (count is None):
        raise OperandError(
            "split sizes and num_outputs exclude each other", op=op, operands=rows({"x": x}), expected="exactly one"
        )
    if x.known_shape is None:
        parts = count if sizes is None else sizes.shape[0] if sizes.known_shape else None
        if not isinstance(parts, int):
            raise ShapeError("the number of parts is not known", op=op, operands=rows({"x": x, "split": sizes}))
        return [(x.dtype, None)] * parts
    axis = axis_of(op, attrs.get("axis", 0), len(x.shape), operands={"x": x})
    pieces = _even_pieces(op, x, axis, count) if count is not None else _given_pieces(op, x, axis, typed(Tensor, sizes))
    return [(x.dtype, (*x.shape[:axis], piece, *x.shape[axis + 1 :])) for piece in pieces]


def _equal_parts(op: str, x: Tensor, axis: int, count: int) -> Results:
    """Return as many parts, which had to be equal before opset 18."""
    if x.known_shape is None:
        return [(x.dtype, None)] * count
    axis = axis_of(op, axis, len(x.shape), operands={"x": x})
    size = x.shape[axis]
    if count < 1 or (isinstance(size, int) and size % count):
        raise ShapeError(
            f"{size} into {count} parts", op=op, operands=rows({"x": x}), expected="equal parts before opset 18"
        )
    return [(x.dtype, (*x.shape[:axis], dims.floordiv(size, count), *x.shape[axis + 1 :]))] * count


def _even_pieces(op: str, x: Tensor, axis: int, count: int) -> list[Size]:
    if count < 1:
        raise OperandError(f"num_outputs is {count}", op=op, expected="at least 1")
    size = x.shape[axis]
    if count == 2:  # of any size: the second half is the smaller one
        return [dims.floordiv(dims.add(size, 1), 2), dims.floordiv(size, 2)]
    exact = dims.exact_quotient(dims.known(size), count)
    if exact is not None:
        return [dims.floordiv(size, count)] * count
    piece = dims.floordiv(dims.add(size, count - 1), count)
    last = dims.subtract(size, dims.multiply(piece, count - 1))
    if dims.at_most(0, last) is not True:
        raise ShapeError(
            f"{size} into {count} parts of {piece} "
            + (f"leaves {last}" if isinstance(last, int) else "may leave less than 0"),
            op=op,
            operands=rows({"x": x}),
            expected="parts of the size rounded up, and a last one that is not negative",
            hint=f"give the sizes of the {count} parts"
            + ("" if isinstance(size, int) else f", or declare '{count}*n'"),
        )
    return [piece] * (count - 1) + [last]


def _given_pieces(op: str, x: Tensor, axis: int, sizes: Tensor) -> list[Size]:
    pieces = known_ints(sizes)
    if pieces is None:
        count = sizes.shape[0] if sizes.known_shape else None
        if not isinstance(count, int):
            raise ShapeError("the number of parts is not known", op=op, operands=rows({"x": x, "split": sizes}))
        return [fresh(op, x, i) for i in range(count)]
    if any(dims.at_most(0, piece) is False for piece in pieces):
        raise ShapeError(
            f"sizes {pieces} include a negative one", op=op, operands=rows({"x": x}), expected="sizes >= 0"
        )
    total: Size = 0
    for piece in pieces:
        total = dims.add(total, piece)
    if meet(total, x.shape[axis]) is None:
        raise ShapeError(
            f"sizes {pieces} sum to {total}, axis {axis} has {x.shape[axis]}",
            op=op,
            operands=rows({"x": x}),
            expected="sizes that sum to the axis's",
            hint=assume_hint(total, x.shape[axis]),
            sizes=(total, x.shape[axis]),
        )
    return pieces


def split(x: Tensor, parts: int | Sequence[SizeLike], axis: int = 0) -> tuple[Tensor, ...]:
    """Return ``x`` cut along ``axis``.

    Args:
        x: ``T``.
        parts: The sizes of the pieces, or their number (each rounded up, the last what is left).
        axis: The axis to cut.

    Raises:
        ShapeError: The sizes do not sum to the axis's, or the last piece would be negative.

    Spec: ai.onnx::Split.
    """
    axis = axis_of("split", axis, len(x.shape), operands={"x": x})
    if isinstance(parts, (int, np.integer)):
        parts = int(parts)
        size = x.shape[axis]
        pieces = _even_pieces("split", x, axis, parts)
        if isinstance(size, int) or not has_op(x, 18):  # sizes as an operand: the form of opset 13 on
            return apply_all("Split", (x, sizes_tensor("split", pieces, x)), {"axis": axis})
        return apply_all("Split", (x, None), {"axis": axis, "num_outputs": parts})
    return apply_all("Split", (x, sizes_tensor("split", list(parts), x)), {"axis": axis})


@rule("Tile")
def _tile_rule(op: str, inputs: Inputs, attrs: Attrs) -> Results:
    x, repeats = exactly(op, inputs, 2)
    counts = known_ints(repeats)
    if x.known_shape is None:
        return [(x.dtype, None)]
    if counts is None:
        return [(x.dtype, tuple(fresh(op, x, i) for i in range(len(x.shape))))]
    if len(counts) != len(x.shape):
        raise ShapeError(
            f"{len(counts)} repeats for {len(x.shape)} axes", op=op, operands=rows({"x": x}), expected="one per axis"
        )
    return [(x.dtype, tuple(dims.multiply(a, b) for a, b in zip(x.shape, counts, strict=True)))]


def tile(x: Tensor, repeats: SizeLike | Sequence[SizeLike] | Tensor) -> Tensor:
    """Return ``x`` repeated so many times along each axis.

    Args:
        x: ``T``.
        repeats: A number for each axis, or ``int64 (rank,)``. As in numpy, fewer numbers are of the last axes, and
            more of them bring new axes in front.

    Raises:
        ShapeError: A number is negative.

    Spec: ai.onnx::Tile.
    """
    if isinstance(repeats, Tensor):
        return apply("Tile", x, repeats)
    given = [repeats] if isinstance(repeats, (int, str, Dim, np.integer)) else list(repeats)
    missing = len(x.shape) - len(given)
    if missing < 0:
        x = unsqueeze(x, range(-missing))
    return apply("Tile", x, sizes_tensor("tile", [1] * missing + given, x))
