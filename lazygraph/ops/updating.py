"""``x.at[key].set(v)`` and ``x.at[key].add(v)``: new tensors with a part replaced or added to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple
from typing import cast as typed

from lazygraph import dims
from lazygraph.dims import Dim, Size
from lazygraph.dtypes import bool_
from lazygraph.errors import ShapeError, UnsupportedError
from lazygraph.ops.checks import meet, rows, same_dtype
from lazygraph.ops.core import as_tensor
from lazygraph.ops.create import arange
from lazygraph.ops.elementwise import add, identity
from lazygraph.ops.gathering import scatter_nd
from lazygraph.ops.indexing import Cut, Key, Place, broadcast_indices, ends, layout, places_of
from lazygraph.ops.joining import concat
from lazygraph.ops.logic import where
from lazygraph.ops.shaping import expand, reshape, unsqueeze
from lazygraph.ops.sizes import shape as sizes_of
from lazygraph.ops.sizes import sizes_tensor
from lazygraph.ops.slicing import clamped_start, sliced_size
from lazygraph.tensor import Operand, Shape, Tensor, describe, shape_text


class At:
    """What ``x.at`` is: ``x.at[key]`` names a part to update."""

    __slots__ = ("_x",)

    def __init__(self, x: Tensor) -> None:
        self._x = x

    def __getitem__(self, key: Key) -> Part:
        return Part(self._x, key)


class Part(NamedTuple):
    """A part of a tensor, to be updated. The tensor itself never changes: each method returns a new one.

    Keys are those of indexing but for new axes: ints, sizes, slices, Ellipsis, integer arrays, masks. Bounds of a slice
    that come as tensors must lie within the axis and count from the front. An element that is named twice is refused
    by ``set`` where it is known, and undefined where it is not.
    """

    x: Tensor
    key: Key

    def set(self, value: Operand) -> Tensor:
        """Return the tensor with this part replaced by ``value``, broadcast.

        Raises:
            IndexRangeError: Too many indices, or a constant one out of range.
            ShapeError: ``value`` does not broadcast to the part, or one element is named twice.
            DTypeError: Element types differ.
            UnsupportedError: The key has a new axis.

        Spec: ai.onnx::ScatterND; Where for a mask and a scalar.
        """
        mask, x = self.key, self.x
        if isinstance(mask, Tensor) and mask.dtype is bool_ and mask.shape:
            number = as_tensor("at.set", value, x)
            if number.known_shape == ():
                same_dtype("at.set", x=x, value=number)
                places_of("at.set", x, mask)
                new = list(range(len(mask.shape), len(x.shape)))
                return where(unsqueeze(mask, new) if new else mask, number, x)
        return _scattered(x, self.key, value, "set", "none")

    def add(self, value: Operand) -> Tensor:
        """Return the tensor with ``value``, broadcast, added to this part; elements named twice get both.

        Raises:
            IndexRangeError: Too many indices, or a constant one out of range.
            ShapeError: ``value`` does not broadcast to the part.
            DTypeError: Element types differ.
            UnsupportedError: The key has a new axis.

        Spec: ai.onnx::ScatterND with reduction ``add``.
        """
        return _scattered(self.x, self.key, value, "add", "add")


def _scattered(x: Tensor, key: Key, value: Operand, method: str, reduction: str) -> Tensor:
    op = f"at.{method}"
    places = places_of(op, x, key)
    if any(place.new for place in places):
        raise UnsupportedError("a new axis in an update", op=op, operands=rows({"x": x}), expected="no None in the key")
    updates = as_tensor(op, value, x)
    same_dtype(op, x=x, value=updates)

    touched = max((i + 1 for i, place in enumerate(places) if place.cut is None or not place.cut.whole), default=0)
    if not touched:  # the whole tensor, of any rank
        whole = _broadcast_value(op, x, updates, x.shape, x, 0)
        return add(x, whole) if reduction == "add" else whole
    grid = _grid(op, x, places[:touched])
    indices = concat([unsqueeze(index, -1) for index in broadcast_indices(op, grid)], -1)
    wanted: Shape = (*indices.shape[:-1], *x.shape[touched:])
    written = _broadcast_value(op, x, updates, wanted, indices, touched)
    if 0 in wanted:  # nothing to write; and onnxruntime 1.32 takes the empty index for one of size 1 when it loads
        return identity(x)
    return scatter_nd(x, indices, written, reduction)


def _grid(op: str, x: Tensor, places: Sequence[Place]) -> list[Tensor]:
    """Return one index tensor per axis, each with size 1 on the axes of the others: they broadcast to the part."""
    arrays = [place.array for place in places if place.array is not None]
    width = max((len(array.shape) for array in arrays), default=0)
    cuts = [i for i, place in enumerate(places) if place.array is None]
    before = layout(places)[0] if arrays and width else 0
    if not width:
        before = len(cuts)
    order = [place for place in places if place.array is None]
    rank = len(order) + width

    grid: list[Tensor] = []
    for axis, place in enumerate(places):
        if place.array is not None:
            behind = len(order) - before
            index = place.array
            grid.append(unsqueeze(index, [*range(-behind, 0)]) if behind and width else index)
            continue
        position = cuts.index(axis)
        line = _line(op, x, axis, typed(Cut, place.cut))
        at = position if position < before else position + width
        others = [i for i in range(rank) if i != at]
        grid.append(unsqueeze(line, others) if others else line)
    return grid


def _line(op: str, x: Tensor, axis: int, cut: Cut) -> Tensor:
    """Return the indices that a slice takes of an axis, as ``int64 (n,)``."""
    size, (start, stop, step) = x.shape[axis], cut
    if isinstance(start, Tensor) or isinstance(stop, Tensor):
        first = start if start is not None else 0 if step > 0 else dims.subtract(size, 1)
        last = stop if stop is not None else size if step > 0 else -1
        return arange(_scalar(first), _scalar(last), step, anchor=x)
    first_known = clamped_start(size, start, step)
    count = sliced_size(size, *_bounds(start, stop, step), step)
    return arange(first_known, dims.add(first_known, dims.multiply(count, step)), step, anchor=x)


def _bounds(start: Size | None, stop: Size | None, step: int) -> tuple[Size, Size]:
    return typed("tuple[Size, Size]", ends(Cut(start, stop, step)))


def _scalar(bound: Size | Tensor) -> Size | Tensor:
    return reshape(bound, []) if isinstance(bound, Tensor) and bound.shape else bound


def _broadcast_value(op: str, x: Tensor, value: Tensor, wanted: Shape, indices: Tensor, touched: int) -> Tensor:
    """Return the value in the shape that the scatter wants."""
    given = value.shape
    mine = wanted[len(wanted) - len(given) :] if len(given) <= len(wanted) else None
    if mine is None or any(b != 1 and meet(a, b) is None for a, b in zip(mine, given, strict=True)):
        raise ShapeError(
            f"the part is {shape_text(wanted)}, the value {shape_text(given)}",
            op=op,
            operands={"x": describe(x), "value": describe(value)},
            expected="a value that broadcasts to the part",
        )
    if len(given) == len(wanted) and all(b != 1 or a == 1 for a, b in zip(wanted, given, strict=True)):
        return value
    if any(isinstance(size, Dim) and dims.is_unknown(size) for size in wanted):
        target = concat([sizes_of(indices, 0, -1), sizes_of(x, touched)], 0) if touched else sizes_of(x)
    else:
        target = sizes_tensor(op, wanted, x)
    return expand(value, target)


__all__ = ["At", "Part"]
