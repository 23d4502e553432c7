"""Rows of several texts side by side in one slot: where they lie, which are read, how new ones are written.

Every text's rows begin at row 0 of its own, whatever the lowering; those that do not count come after them. They are
taken as zeros, whatever they hold: a mask is no wall, since a NaN times a weight of zero is NaN.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from lazygraph import dims, ops
from lazygraph.cache.places import Places
from lazygraph.cache.ring import Ring, after_reading, last_held, oldest_first, visible
from lazygraph.dims import Size
from lazygraph.dtypes import int8
from lazygraph.memory import Lowering
from lazygraph.tensor import Graph, Tensor


class TextSlots(ABC):
    """How all slots that keep alike are read and written in one step of a batch.

    Args:
        places: Where the step's tokens stand.
        rows: Rows of each text that are given.
        most: The most rows that a text has.
        lowering: How they are bound.

    Attributes:
        after: Rows of each text that come out.
    """

    def __init__(self, places: Places, rows: Size, most: int, lowering: Lowering) -> None:
        self.places, self.rows, self.lowering = places, rows, lowering
        grown = dims.largest(rows, dims.smallest(places.longest, most))
        self.after = grown if lowering == "concat" else rows

    @abstractmethod
    def mask(self) -> Tensor:
        """Return what each token may attend of what ``read`` gives, ``bool (batch, n, columns)``."""

    @abstractmethod
    def written(self, old: Tensor, new: Tensor, read: Tensor | None) -> Tensor:
        """Return a slot with rows written.

        Args:
            old: ``T (batch, rows, *trailing)``.
            new: ``T (batch * n, *trailing)``.
            read: What was computed from the rows as they were, if anything.
        """

    def _zeroed(self, rows: Tensor, count: Tensor) -> Tensor:
        """Return rows, those that do not count as zeros.

        Args:
            rows: ``T (batch, rows, *trailing)``.
            count: ``bool (batch, rows)``.
        """
        if rows.dtype is int8:  # a code, whose scale becomes a zero; there is no int8 that is no number
            return rows
        shaped = ops.unsqueeze(count, list(range(2, len(rows.shape)))) if len(rows.shape) > 2 else count
        return ops.where(shaped, rows, ops.constant(0, dtype=rows.dtype, anchor=rows))


class EveryRow(TextSlots):
    """Slots with a row for every token: row ``p`` of a text is its position ``p``."""

    def __init__(self, places: Places, rows: Size, most: int, lowering: Lowering) -> None:
        super().__init__(places, rows, most, lowering)
        self._chosen, self._index = places.written(None, places.positions)
        self._columns = ops.arange(0, self.after, anchor=places.past)
        self._count = self._columns < ops.unsqueeze(places.after, 1)  # (batch, rows)

    def mask(self) -> Tensor:
        """Return ``bool (batch, n, rows)``; padding sees row 0."""
        return self._columns <= ops.unsqueeze(self.places.positions, 2)

    def written(self, old: Tensor, new: Tensor, read: Tensor | None) -> Tensor:
        """Return the slot with the rows of the step; lowered as concat, as many rows longer as the step needs."""
        if self.lowering == "concat":
            more = [old.shape[0], dims.subtract(self.after, self.rows), *old.shape[2:]]
            old = ops.concat([old, ops.zeros(more, old.dtype, old)], axis=1)
        return ops.scatter_nd(old, self._index, ops.gather(new, self._chosen, axis=0))

    def read(self, slot: Tensor, like: Tensor) -> Tensor:
        """Return the rows of a slot after the step, ``T (batch, rows, *trailing)``, in the type of ``like``."""
        return self._zeroed(slot.astype(like.dtype), self._count)


class LastRows(TextSlots):
    """Slots with the last rows of each text, and perhaps its first: a ring; lowered as concat, oldest first."""

    def __init__(self, places: Places, ring: Ring, rows: Size, lowering: Lowering) -> None:
        super().__init__(places, rows, ring.capacity, lowering)
        self.ring = ring
        self._before, self._after = (ops.unsqueeze(one, 1) for one in (places.past, places.after))
        if lowering == "concat":
            self._held = oldest_first(ring, self._before, rows)
            self._source = self._sources()
        else:
            self._held = last_held(ring, self._before, ops.arange(0, rows, anchor=places.past))
            standing = places.positions
            near = standing >= self._after - ring.window
            kept = ops.logical_or(near, standing < ring.sinks) if ring.sinks else near
            self._chosen, self._index = places.written(kept, ring.row(standing))

    def mask(self) -> Tensor:
        """Return ``bool (batch, n, rows + n)``: of the rows held before, then of the new ones."""
        return visible(self.ring, self._held.positions, self.places.as_keys, self.places.positions)

    def _sources(self) -> Tensor:
        """Return which of the rows before and the new ones each row after the step is, ``int64 (batch, after, 1)``."""
        places, past = self.places, self._before
        then = oldest_first(self.ring, self._after, self.after)
        dropped = ops.maximum(past - self.ring.capacity, 0)
        old = then.positions - dropped
        if self.ring.sinks:
            old = ops.where(then.positions < self.ring.sinks, then.positions, old)
        padding = ops.size_tensor(places.n, past) - ops.unsqueeze(places.new, 1)
        new = then.positions - past + padding + ops.size_tensor(self.rows, past)
        source = ops.where(then.positions < past, old, new)
        return ops.unsqueeze(ops.where(then.count, source, ops.constant(0, anchor=past)), 2)

    def written(self, old: Tensor, new: Tensor, read: Tensor | None) -> Tensor:
        """Return the slot with the last rows of the step; no row is written twice."""
        if self.lowering == "concat":
            return ops.gather_nd(ops.concat([old, self.places.by_text(new)], axis=1), self._source, batch_dims=1)
        index = self._index if read is None else after_reading(self._index, read)
        return ops.scatter_nd(old, index, ops.gather(new, self._chosen, axis=0))

    def read(self, slot: Tensor, new: Tensor, like: Tensor) -> list[Tensor]:
        """Return the rows of a slot before the step, and the new ones.

        Args:
            slot: ``T (batch, rows, *trailing)``, as it was.
            new: ``T (batch * n, *trailing)``, as it is kept.
            like: The type wanted.
        """
        kept = self._zeroed(slot.astype(like.dtype), self._held.count)
        return [kept, self._zeroed(self.places.by_text(new).astype(like.dtype), self.places.is_real)]


def given_rows(graph: Graph, ring: Ring | None, most: int, lowering: Lowering) -> Size:
    """Return how many rows of each text are bound: all, or a named size."""
    name = "rows" if ring is None else f"window_rows_{most}"
    if lowering == "buffer":
        return most
    return graph.size(dims.size(name, 0 if lowering == "concat" else 1, most))


def text_slots(places: Places, ring: Ring | None, rows: Size, most: int, lowering: Lowering) -> EveryRow | LastRows:
    """Return how slots of one kind are read and written in one step of a batch."""
    return EveryRow(places, rows, most, lowering) if ring is None else LastRows(places, ring, rows, lowering)


__all__ = ["EveryRow", "LastRows", "TextSlots", "given_rows", "text_slots"]
