"""A window's arithmetic: which row holds which position of the text, which rows are written, which may be attended.

Position ``p`` of a text lies in row ``p`` where it is a sink, and after those in row
``sinks + (p - sinks) mod window``.
"""

from __future__ import annotations

from dataclasses import dataclass

from lazygraph import dims, ops
from lazygraph.dims import Size
from lazygraph.dtypes import float32
from lazygraph.memory import Lowering
from lazygraph.tensor import Tensor

# The position of a row that holds nothing: no token ever stands behind it.
NOWHERE = 2**62


@dataclass(frozen=True)
class Ring:
    """What some layers of a cache keep: the last rows of a text, and perhaps its first.

    Attributes:
        window: How many last rows are kept; a token sees itself and ``window - 1`` before it.
        sinks: How many first rows are kept for good, and seen by every later token.
        layers: The layers that keep no more than this.
    """

    window: int
    sinks: int
    layers: frozenset[int]

    @property
    def capacity(self) -> int:
        """Rows of a slot."""
        return self.sinks + self.window


def positions_held(ring: Ring, length: Size, rows: Size, lowering: Lowering, anchor: Tensor) -> Tensor:
    """Return which position of the text each row holds after ``length`` tokens, ``int64 (rows,)``.

    Args:
        ring: What is kept.
        length: Tokens read.
        rows: How many rows there are, the first of the ring; lowered as concat, those kept, oldest first.
        lowering: How they lie.
        anchor: A tensor of the graph.

    Returns:
        The positions; ``NOWHERE`` for a row that holds nothing yet.
    """
    row = ops.arange(0, rows, anchor=anchor)
    if lowering == "concat":
        skipped = ops.size_tensor(dims.subtract(length, rows), anchor)
        return ops.where(row < ring.sinks, row, row + skipped) if ring.sinks else row + skipped
    count = ops.size_tensor(length, anchor)
    # The last position before `length` that goes to this row: both have one remainder.
    last = count - 1
    held = last - ops.mod(last - row, ring.window)
    written = held >= ring.sinks
    if ring.sinks:
        # A sink's row holds its own position, from then on.
        held = ops.where(row < ring.sinks, row, held)
        written = ops.logical_and(ops.logical_or(written, row < ring.sinks), held < count)
    return ops.where(written, held, NOWHERE)


def visible(ring: Ring, held: Tensor, new: Tensor) -> Tensor:
    """Return what each new token may attend, ``bool (n, rows + n)``: the rows held before, then the new ones.

    Args:
        ring: What is kept.
        held: ``int64 (rows,)``: the position that each row holds.
        new: ``int64 (n,)``: the positions of the new tokens.
    """
    there = ops.concat([held, new], axis=0)  # (rows + n,)
    here = ops.unsqueeze(new, 1)  # (n, 1)
    near = there > here - ring.window
    if ring.sinks:
        near = ops.logical_or(near, there < ring.sinks)
    return ops.logical_and(there <= here, near)


def rows_written(ring: Ring, length: Size, count: Size, anchor: Tensor) -> tuple[Tensor, Tensor]:
    """Return which of ``count`` new rows are kept, and where each goes; no row of the ring comes twice.

    Of a chunk longer than the window only the last rows are kept, and those that are sinks.

    Args:
        ring: What is kept.
        length: Tokens before.
        count: New rows.
        anchor: A tensor of the graph.

    Returns:
        ``int64 (k,)``: numbers of new rows; ``int64 (k, 1)``: their rows in the ring.
    """
    end = dims.add(length, count)
    first = dims.largest(length, dims.subtract(end, ring.window))
    if ring.sinks:
        sinks = ops.arange(length, dims.largest(length, dims.smallest(end, ring.sinks)), anchor=anchor)
        others = ops.arange(dims.smallest(dims.largest(first, ring.sinks), end), end, anchor=anchor)
        positions = ops.concat([sinks, others], axis=0)
        # Below 0, the remainder of a sink is never taken.
        turned = ops.mod(positions - ring.sinks, ring.window) + ring.sinks
        index = ops.where(positions < ring.sinks, positions, turned)
    else:
        positions = ops.arange(first, end, anchor=anchor)
        index = ops.mod(positions, ring.window)
    return positions - ops.size_tensor(length, anchor), ops.unsqueeze(index, 1)


def after_reading(index: Tensor, result: Tensor) -> Tensor:
    """Return the index, which now cannot be had before ``result``: a write to it comes after what ``result`` read.

    A runtime may run nodes in any order that the data allows, and may fold what depends on shapes alone. The place of
    the greatest of one number is always 0, but no optimizer knows.

    Args:
        index: ``int64 (k, 1)``.
        result: What is computed from the rows as they were; at least one number.
    """
    one = ops.reshape(result, [-1])[0:1].astype(float32)
    return index + ops.argmax(one, axis=0, keepdims=True)


__all__ = ["NOWHERE", "Ring", "after_reading", "positions_held", "rows_written", "visible"]
