"""A window's arithmetic: which row holds which position of the text, which rows are written, which may be attended.

Position ``p`` of a text lies in row ``p`` where it is a sink, and after those in row
``sinks + (p - sinks) mod window``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from typing import Any

from lazygraph import dims, ops
from lazygraph.cache.layout import CacheLayout
from lazygraph.dims import Size
from lazygraph.dtypes import float32
from lazygraph.errors import CacheError, CacheLayerError
from lazygraph.memory import Lowering, Memory
from lazygraph.tensor import Tensor
from lazygraph.whole import whole

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

    def text(self, n_layers: int) -> str:
        """Return what is kept, as the ``repr`` of a cache of so many layers says it."""
        some = "" if len(self.layers) == n_layers else f" in {len(self.layers)} layers"
        return f"window of {self.window}{f' and {self.sinks} sinks' if self.sinks else ''}{some}"

    def memory(self, slots: Iterable[Memory]) -> tuple[Memory, ...]:
        """Return slots as whoever runs the graph must know them, those of these layers as windows."""
        facts: dict[str, Any] = {
            "kind": "window",
            "capacity": self.capacity,
            "window": self.window,
            "sinks": self.sinks,
        }
        return tuple(replace(slot, **facts) if slot.layer in self.layers else slot for slot in slots)

    def row(self, positions: Tensor) -> Tensor:
        """Return the row in which each position lies."""
        if not self.sinks:
            return ops.mod(positions, self.window)
        # Below 0, the remainder of a sink is never taken.
        turned = ops.mod(positions - self.sinks, self.window) + self.sinks
        return ops.where(positions < self.sinks, positions, turned)


def check_window(op: str, window: Any, sinks: Any) -> tuple[int, int]:
    """Return a window and its sinks, as ints.

    Raises:
        CacheError: A window below 1, or sinks below 0.
    """
    numbers = []
    for name, value, least in (("window", window, 1), ("sinks", sinks, 0)):
        number = whole(value)
        if number is None or number < least:
            raise CacheError(
                f"{name} is {value!r}", op=op, expected=f"an int of at least {least}", wanted=least, got=value
            )
        numbers.append(number)
    return numbers[0], numbers[1]


def declared_ring(op: str, declared: CacheLayout, window: Any, sinks: Any, layers: Any) -> Ring:
    """Return what the layers of a cache that slide keep, checked.

    Args:
        op: Shown in messages.
        declared: The cache.
        window: How many last rows are kept.
        sinks: How many first rows.
        layers: The layers that slide, all where it is None.

    Raises:
        CacheError: A window below 1, or sinks below 0.
        CacheLayerError: ``layers`` names one that there is not, or none.
    """
    numbers = check_window(op, window, sinks)
    if layers is not None and not isinstance(layers, Collection):
        raise CacheLayerError(f"layers is {layers!r}", op=op, expected="a list of layers, or None for all", got=layers)
    chosen = range(declared.n_layers) if layers is None else [declared.check_layer(op, layer) for layer in layers]
    if not chosen:
        raise CacheLayerError(
            "no layer slides", op=op, expected="at least one layer", hint="a LatentCache keeps every row"
        )
    return Ring(*numbers, frozenset(chosen))


@dataclass(frozen=True, eq=False, repr=False)
class HeldRows:
    """What rows of a ring hold.

    Attributes:
        positions: ``int64 (..., rows)``: the position of the text that each holds; ``NOWHERE`` for none.
        count: ``bool (..., rows)``: which hold one.
    """

    positions: Tensor
    count: Tensor


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
    return last_held(ring, ops.size_tensor(length, anchor), row).positions


def last_held(ring: Ring, length: Tensor, row: Tensor) -> HeldRows:
    """Return what the first rows of a ring hold.

    Args:
        ring: What is kept.
        length: ``int64 ()``: tokens read; or ``(batch, 1)``.
        row: ``int64 (rows,)``: ``0, 1, ...``.
    """
    # The last position before `length` that goes to this row: both have one remainder.
    last = length - 1
    held = last - ops.mod(last - row, ring.window)
    written = held >= ring.sinks
    if ring.sinks:
        # A sink's row holds its own position, from then on.
        held = ops.where(row < ring.sinks, row, held)
        written = ops.logical_and(ops.logical_or(written, row < ring.sinks), held < length)
    return HeldRows(ops.where(written, held, NOWHERE), written)


def oldest_first(ring: Ring, length: Tensor, rows: Size) -> HeldRows:
    """Return what rows hold that lie sinks first, then oldest first, as texts of a batch do where lowered as concat.

    Args:
        ring: What is kept.
        length: ``int64 (batch, 1)``: tokens read, per text.
        rows: How many rows each text has; those beyond what it keeps hold nothing.
    """
    row = ops.arange(0, rows, anchor=length)
    held = row + ops.maximum(length - ring.capacity, 0)  # (batch, rows)
    if ring.sinks:
        held = ops.where(row < ring.sinks, row, held)
    written = held < length
    return HeldRows(ops.where(written, held, NOWHERE), written)


def visible(ring: Ring, held: Tensor, keys: Tensor, new: Tensor) -> Tensor:
    """Return what each new token may attend, ``bool (n, rows + n)``: the rows held before, then the new ones.

    Args:
        ring: What is kept.
        held: ``int64 (rows,)``: the position that each row holds; of a batch, ``(batch, rows)``, and so on.
        keys: ``int64 (n,)``: the positions of the new tokens; ``NOWHERE`` for what none may attend.
        new: ``int64 (n,)``: the positions of the new tokens as they attend.
    """
    there = ops.concat([held, keys], axis=-1)  # (rows + n,)
    if len(there.shape) == 2:
        there = ops.unsqueeze(there, 1)  # (batch, 1, rows + n)
    here = ops.unsqueeze(new, -1)  # (n, 1)
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
    else:
        positions = ops.arange(first, end, anchor=anchor)
    return positions - ops.size_tensor(length, anchor), ops.unsqueeze(ring.row(positions), 1)


def after_reading(index: Tensor, result: Tensor) -> Tensor:
    """Return the index, which now cannot be had before ``result``: a write to it comes after what ``result`` read.

    A runtime may run nodes in any order that the data allows, and may fold what depends on shapes alone. The place of
    the greatest of one number is always 0, but no optimizer knows.

    Args:
        index: ``int64 (k, ...)``.
        result: What is computed from the rows as they were; at least one number.
    """
    one = ops.reshape(result, [-1])[0:1].astype(float32)
    return index + ops.argmax(one, axis=0, keepdims=True)


__all__ = [
    "NOWHERE",
    "HeldRows",
    "Ring",
    "after_reading",
    "check_window",
    "declared_ring",
    "last_held",
    "oldest_first",
    "positions_held",
    "rows_written",
    "visible",
]
