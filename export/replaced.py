# ruff: noqa: D102 (what kinds have in common is said once, of the base)
"""Slots that each run replaces as a whole: fixed states, and everything of past/present graphs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from lazygraph.export.buffers import Content, SlotMemory
from lazygraph.export.groups import Bound, Group, Lengths, Now, Place
from lazygraph.memory import Memory


class Replaced(Group):
    """Fixed states: each run replaces them as a whole.

    What the last run replaced is kept until the next one. So a text can always go back to where that run began, and by
    running its first tokens again to any place within it.
    """

    alternates = True

    def __init__(self, place: Place, now: Now, slots: Sequence[Memory]) -> None:
        super().__init__(place, now, slots)
        # Per text, at which length it was what the other memory holds; None where that is nothing.
        self._began: list[int | None] = [None] * place.texts

    def before(self, past: Lengths, new: Lengths) -> None:
        self._began = [None] * self.place.texts  # the run writes over it
        self._own(1)

    def settle(self, past: Lengths, new: Lengths) -> None:
        self._began = list(past)

    def bound(self) -> Iterator[Bound]:
        for slot in self.slots:
            yield slot, None, None

    def floor(self, text: int) -> int:
        began = self._began[text]
        return self.now.lengths[text] if began is None else began

    def allows(self, text: int, to: int) -> bool:
        return to == 0 or to >= self.floor(text)

    def reach(self, text: int, new: int) -> int | None:
        return new

    def reruns(self, text: int, to: int) -> bool:
        return self.floor(text) < to < self.now.lengths[text]

    def truncate(self, text: int, to: int) -> None:
        if to == self.now.lengths[text]:
            return
        for slot in self.slots:
            before = self._packed(slot.written(self.now.flip).content(), slot, 1) if to == self._began[text] else None
            whole = self._content(slot)
            content = self._packed(whole, slot, 0)
            content[text] = 0
            if before is not None:
                content[text, : before.shape[1]] = before[text]
            self._put(slot, whole)
        self._began = [*self._began[:text], None, *self._began[text + 1 :]]

    def _packed(self, content: Content, slot: SlotMemory, runs: int) -> Content:
        """Return what a memory holds as its last run left it: ``(texts, rows, bytes per row)``.

        Args:
            content: The memory.
            slot: Whose it is.
            runs: How many runs ago it was what counts: 0 or 1.
        """
        return content


class Joined(Replaced):
    """Slots of past/present graphs: the rows kept go in, and those kept after the step come out.

    Of several texts all have as many rows as the longest, one text behind the other. One that was shortened leaves the
    others' rows where they are: more come in than the longest has, and as many go out.
    """

    def __init__(self, place: Place, now: Now, slots: Sequence[Memory]) -> None:
        super().__init__(place, now, slots)
        self._running = (0, 0)  # rows of each text that go in and come out of the run that was made ready
        # Per text, the rows of what is read next, and of what was read before; of one text those that count.
        self._rows_now = self._rows_before = 0

    def before(self, past: Lengths, new: Lengths) -> None:
        super().before(past, new)
        kept = self.slots[0].slot.kept_rows
        rows = kept(max(past)) if self.place.texts == 1 else self._rows_now
        self._running = rows, max(rows, kept(max(map(int.__add__, past, new))))

    def settle(self, past: Lengths, new: Lengths) -> None:
        super().settle(past, new)
        self._rows_before, self._rows_now = self._running

    def key(self) -> object:
        return (self._generation, self.now.flip % 2, self._running)

    def bound(self) -> Iterator[Bound]:
        for slot in self.slots:
            yield slot, *self._running

    def _packed(self, content: Content, slot: SlotMemory, runs: int) -> Content:
        texts, rows, width = self.place.texts, self._rows_before if runs else self._rows_now, slot.slot.bytes_per_row
        return content.reshape(-1)[: texts * rows * width].reshape(texts, rows, width)

    def saved(self) -> Iterator[tuple[SlotMemory, Content]]:
        for slot in self.slots:
            held = self._packed(slot.read(self.now.flip).content(), slot, 0)
            yield slot, held[:, : slot.slot.kept_rows(max(self.now.lengths))]

    def restore(self, slot: SlotMemory, content: Content) -> None:
        self._rows_now = content.shape[1]
        self._set(slot, self.now.flip % 2, self._new(slot.slot))
        whole = slot.read(self.now.flip).content()
        self._packed(whole, slot, 0)[:] = content
        self._put(slot, whole)

    def _whole(self, text: int) -> bool:
        """Return whether no row of the text was dropped yet: a shorter one is then its first rows."""
        return self.now.lengths[text] <= self.slots[0].slot.capacity

    def _begins_whole(self, text: int) -> bool:
        began = self._began[text]
        return began is not None and began <= self.slots[0].slot.capacity

    def floor(self, text: int) -> int:
        return 0 if self._whole(text) or self._begins_whole(text) else super().floor(text)

    def allows(self, text: int, to: int) -> bool:
        return to <= self.slots[0].slot.sinks or to >= self.floor(text)

    def reach(self, text: int, new: int) -> int | None:
        return None if self.now.lengths[text] + new <= self.slots[0].slot.capacity else new

    def reruns(self, text: int, to: int) -> bool:
        return not self._whole(text) and super().floor(text) < to < self.now.lengths[text]

    def truncate(self, text: int, to: int) -> None:
        began = self._began[text]
        if not self._whole(text) and began is not None and self.slots[0].slot.sinks < to <= began:
            super().truncate(text, began)
        elif began is not None and to <= began:
            self._began = [*self._began[:text], None, *self._began[text + 1 :]]


__all__ = ["Joined", "Replaced"]
