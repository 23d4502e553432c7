# ruff: noqa: D102 (what kinds have in common is said once, of the base)
"""Windows in a ring of rows: what a run writes over, and how far a text can go back.

Position ``p`` of a text lies in row ``p`` where it is one of the first ``sinks``, else in row
``sinks + (p - sinks) mod window``. A run at position ``q`` sees the sinks and the positions above ``q - window``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np

from lazygraph.export.buffers import Content
from lazygraph.export.groups import STRIDE, Bound, Group, Lengths, Now, Place
from lazygraph.memory import Memory

Index: TypeAlias = "np.ndarray[Any, np.dtype[np.int64]]"


class Undo:
    """What the last run wrote over, of one text.

    Attributes:
        start: Length of the text before the run.
        held: First position beyond the sinks that the ring held then.
        rows: The rows that were written over.
        kept: Per slot, their content before.
    """

    def __init__(self, start: int, held: int, rows: Index, kept: list[Content]) -> None:
        self.start, self.held, self.rows, self.kept = start, held, rows, kept


class Ring(Group):
    """Slots that keep the last ``window`` rows of a text, and its first ``sinks``.

    A run of more than one token writes over rows that an earlier length needs. They are kept until the next run, so
    that a text can go back to any place within the last run (of at most ``window`` tokens), and that a run which stops
    half way changes nothing.
    """

    def __init__(self, place: Place, now: Now, slots: Sequence[Memory], alternates: bool = False) -> None:
        first = slots[0]
        self.sinks, self.window, self.capacity = first.sinks, first.window, first.capacity
        self._bound_rows = self.capacity
        self._held = [self.sinks] * place.texts  # first position beyond the sinks that the ring holds
        self._undo: list[Undo | None] = [None] * place.texts
        super().__init__(place, now, slots, alternates)

    def rows_of(self, start: int, end: int) -> Index:
        """Return the rows of the positions ``[start, end)``, of each row the last only."""
        places = np.arange(start, end)
        sinks, others = places[places < self.sinks], places[places >= self.sinks][-self.window :]
        return np.concatenate([sinks, self.sinks + (others - self.sinks) % self.window])

    # ---- a run ----

    def before(self, past: Lengths, new: Lengths) -> None:
        self._own(self.capacity)
        for text, (start, count) in enumerate(zip(past, new, strict=True)):
            if count:  # a text that waits can still go back into its own last run
                self._undo[text] = self._saved_rows(text, start, count) if count > 1 else None
        if self.place.lowering == "view" and self.place.texts == 1:
            longest = past[0] + new[0]
            self._bound_rows = min(self.capacity, -(-longest // STRIDE) * STRIDE)

    def _saved_rows(self, text: int, start: int, count: int) -> Undo:
        rows = self.rows_of(start, start + count)
        kept = [slot.read(self.now.flip).content()[text, rows] for slot in self.slots]
        return Undo(start, self._held[text], rows, kept)

    def settle(self, past: Lengths, new: Lengths) -> None:
        for text, (start, count) in enumerate(zip(past, new, strict=True)):
            self._held[text] = max(self._held[text], start + count - self.window)

    def failed(self, past: Lengths, new: Lengths) -> None:
        for text, (start, count) in enumerate(zip(past, new, strict=True)):
            self._clear(text, start, start + count)
            if self._undo[text] is None:
                self._held[text] = max(self._held[text], start + count - self.window)

    def _clear(self, text: int, start: int, end: int) -> None:
        """Make the rows of the positions ``[start, end)`` what they were before the last run, or zero.

        Rows that no later position sees are masked, but a mask is no wall: one NaN in them would be in every result.
        """
        rows = self.rows_of(start, end)
        undo = self._undo[text]
        again = np.isin(undo.rows, rows) if undo is not None else None
        for i, slot in enumerate(self.slots):
            content = self._content(slot)
            content[text, rows] = 0
            if undo is not None and again is not None:
                content[text, undo.rows[again]] = undo.kept[i][again]
            self._put(slot, content)

    def key(self) -> object:
        return (self._generation, self.now.flip % 2 if self.alternates else 0, self._bound_rows)

    def bound(self) -> Iterator[Bound]:
        for slot in self.slots:
            yield slot, self._bound_rows, self._bound_rows

    # ---- rewinding ----

    def _bottom(self, held: int) -> int:
        """Return the lowest length whose rows are all there, if those from position ``held`` on are."""
        return 0 if held <= self.sinks else held + self.window - 1

    def _held_at_start(self, undo: Undo) -> int:
        return max(undo.held, undo.start - self.window, self.sinks)

    def _undoes(self, text: int) -> Undo | None:
        """Return what was kept, where it leads back to every place within the last run."""
        undo = self._undo[text]
        return undo if undo is not None and self.now.lengths[text] - undo.start <= self.window else None

    def floor(self, text: int) -> int:
        length = self.now.lengths[text]
        lowest = min(length, self._bottom(self._held[text]))
        undo = self._undoes(text)
        if undo is not None:
            lowest = min(lowest, undo.start, self._bottom(self._held_at_start(undo)))
        return lowest

    def allows(self, text: int, to: int) -> bool:
        undo = self._undo[text]
        return to <= self.sinks or to >= self.floor(text) or (undo is not None and to == undo.start)

    def reach(self, text: int, new: int) -> int | None:
        whole = self._held[text] <= self.sinks and self.now.lengths[text] + new <= self.capacity
        return None if whole else self.window

    def truncate(self, text: int, to: int) -> None:
        length, undo = self.now.lengths[text], self._undo[text]
        if to == length:
            return
        back = undo is not None and (to == undo.start or (to >= undo.start and self._undoes(text) is not None))
        if undo is not None and not back and to < undo.start:
            self._clear(text, undo.start, length)  # first to where the run began
            self._held[text] = self._held_at_start(undo)
            length, self._undo[text] = undo.start, None
        self._clear(text, to, length)
        if to <= self.sinks:
            self._held[text] = self.sinks
        elif back and undo is not None:
            self._held[text] = max(undo.held, to - self.window, self.sinks)
        if not back or to == 0:
            self._undo[text] = None

    # ---- copies and files ----

    def forked(self, now: Now) -> Group:
        other = super().forked(now)
        if isinstance(other, Ring):
            other._held, other._undo = list(self._held), list(self._undo)
        return other

    @property
    def held(self) -> list[int]:
        """Per text, the first position beyond the sinks that the ring holds."""
        return list(self._held)

    @held.setter
    def held(self, positions: list[int]) -> None:
        self._held = list(positions)


__all__ = ["Ring"]
