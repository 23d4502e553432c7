# ruff: noqa: D102 (what kinds have in common is said once, of the base)
"""How slots of one kind live between two runs: made ready, bound, settled, forgotten.

A group holds the slots that are always treated alike, so that a step costs a few calls and not one per slot. Lengths
are one number per text; a decoder of one text has one.

A run may stop anywhere, and so may what follows it. So nothing is changed that could not be told from the rest: the
moment at which a run counts is one assignment, of ``Now.state``. ``settle`` and ``failed`` come after it, perhaps
twice, and do the same each time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import TypeAlias

from lazygraph.export.buffers import Buffer, Content, SlotMemory
from lazygraph.memory import Lowering, Memory

Lengths: TypeAlias = Sequence[int]
# What is bound: a slot, the rows of its input, the rows of its output; None where it has no axis of rows.
Bound: TypeAlias = tuple[SlotMemory, "int | None", "int | None"]

# Rows by which the bound part of a buffer grows. Rows bound beyond those that count are masked, which costs less than
# binding anew each step.
STRIDE = 64


@dataclass(frozen=True)
class Place:
    """Where memory lies and how it is laid out.

    Attributes:
        device: ``cpu`` or ``cuda``.
        lowering: How the graph takes rows.
        batch: Texts side by side; None where the graph has no such axis.
    """

    device: str
    lowering: Lowering
    batch: int | None = None

    @property
    def texts(self) -> int:
        """How many texts."""
        return 1 if self.batch is None else self.batch


@dataclass
class Now:
    """Where all texts stand; one assignment makes a run count.

    Attributes:
        state: How often memories changed places, and each text's length.
    """

    state: tuple[int, tuple[int, ...]]

    @property
    def flip(self) -> int:
        """How often memories changed places."""
        return self.state[0]

    @property
    def lengths(self) -> tuple[int, ...]:
        """Tokens read, per text."""
        return self.state[1]


class Group:
    """Slots that are treated alike; the base of all kinds.

    Attributes:
        place: Where they lie.
        now: Where all texts stand.
        slots: The slots.
        alternates: Whether each run writes to other memory than it reads.
    """

    alternates = False

    def __init__(self, place: Place, now: Now, slots: Sequence[Memory], alternates: bool = False) -> None:
        self.place, self.now = place, now
        self.alternates = alternates or self.alternates
        self.slots = [SlotMemory(slot, [self._new(slot) for _ in range(1 + self.alternates)]) for slot in slots]
        self._generation = 0  # of the buffers: another one, another binding
        self._shared = False  # whether somebody else may hold some
        self._hold()

    def _hold(self) -> None:
        for slot in self.slots:
            for buffer in slot.buffers:
                buffer.holders.add(self)

    def _new(self, slot: Memory, start: Content | None = None) -> Buffer:
        return Buffer((self.place.texts, self._rows(slot), slot.bytes_per_row), self.place.device, start)

    def _rows(self, slot: Memory) -> int:
        """Return the rows that a new buffer has."""
        return slot.capacity

    def _set(self, slot: SlotMemory, which: int, buffer: Buffer) -> None:
        slot.buffers[which].holders.discard(self)
        buffer.holders.add(self)
        slot.buffers[which] = buffer
        self._generation += 1

    # ---- a run ----

    def before(self, past: Lengths, new: Lengths) -> None:
        """Make ready for a run of ``new`` tokens after ``past``."""
        self._own(max(past))

    def key(self) -> object:
        """Return what decides the binding: equal keys, equal bindings."""
        return (self._generation, self.now.flip % 2 if self.alternates else 0)

    def bound(self) -> Iterator[Bound]:
        """Yield what to bind for the run that was made ready."""
        raise NotImplementedError

    def settle(self, past: Lengths, new: Lengths) -> None:
        """Take note that a run counts."""

    def failed(self, past: Lengths, new: Lengths) -> None:
        """Undo what a run that does not count may have written."""

    def _own(self, kept: int) -> None:
        """Make what the next run writes to this group's own: of what others hold too, copy the rows that count."""
        if not self._shared:
            return
        for slot in self.slots:
            if not self.alternates:
                self._content(slot, kept)
            elif len(slot.written(self.now.flip).holders) > 1:
                self._set(slot, (self.now.flip + 1) % 2, self._new(slot.slot))
        self._shared = any(len(buffer.holders) > 1 for slot in self.slots for buffer in slot.buffers)

    def _content(self, slot: SlotMemory, kept: int | None = None) -> Content:
        """Return what the next run reads as content that this group may change; give it back with ``put``."""
        old = slot.read(self.now.flip)
        if len(old.holders) > 1:
            which = self.now.flip % len(slot.buffers)
            self._set(slot, which, self._new(slot.slot, old.content()[:, :kept]))
        return slot.read(self.now.flip).content()

    def _put(self, slot: SlotMemory, content: Content) -> None:
        slot.read(self.now.flip).put(content)

    # ---- rewinding ----

    def floor(self, text: int) -> int:
        """Return the lowest length down to which a text can go back to every length."""
        return 0

    def allows(self, text: int, to: int) -> bool:
        """Return whether a text can go back to a length."""
        return True

    def reruns(self, text: int, to: int) -> bool:
        """Return whether going there takes another run of the tokens since the last one began."""
        return False

    def reach(self, text: int, new: int) -> int | None:
        """Return how many of ``new`` tokens one run can read so that each can be undone; None where any number."""
        return None

    def truncate(self, text: int, to: int) -> None:
        """Go back to a length; the text's length is set afterwards."""

    # ---- copies and files ----

    def forked(self, now: Now) -> Group:
        """Return a group of the same content; what neither writes they share."""
        other: Group = object.__new__(type(self))
        other.__dict__.update(self.__dict__)
        other.now = now
        other.slots = [SlotMemory(slot.slot, list(slot.buffers)) for slot in self.slots]
        self._shared = other._shared = True
        other._hold()
        return other

    def saved(self) -> Iterator[tuple[SlotMemory, Content]]:
        """Yield what a file must hold of each slot."""
        for slot in self.slots:
            yield slot, slot.read(self.now.flip).content()[:, : slot.slot.kept_rows(max(self.now.lengths))]

    def restore(self, slot: SlotMemory, content: Content) -> None:
        """Take what ``saved`` gave."""
        self._set(slot, self.now.flip % len(slot.buffers), self._new(slot.slot, content))

    @property
    def nbytes(self) -> int:
        """Bytes of memory that no one else holds, touched or not."""
        buffers = [buffer for slot in self.slots for buffer in slot.buffers]
        return sum(prod(buffer.shape) for buffer in buffers if len(buffer.holders) == 1)


class Rows(Group):
    """Slots with one row per token, whole buffers or the first rows of them bound.

    Lowered as view, rows beyond a text's length must be zero: they are masked, but a mask is no wall. One NaN in them,
    times a weight of zero, is NaN in every result.
    """

    def __init__(self, place: Place, now: Now, slots: Sequence[Memory], alternates: bool = False) -> None:
        # The rows of several texts lie one text behind the other: bound are all of them or none, so few are made.
        self._grows = place.texts > 1 and place.lowering == "view"
        self._bound_rows = min(STRIDE, slots[0].capacity) if self._grows else slots[0].capacity
        # Per text, the rows beyond its length that may hold what was forgotten: from, to. All others are zero.
        self._stale = [(0, 0)] * place.texts
        super().__init__(place, now, slots, alternates)

    def _rows(self, slot: Memory) -> int:
        return self._bound_rows if self._grows else slot.capacity

    def before(self, past: Lengths, new: Lengths) -> None:
        self._own(max(past))
        if self.place.lowering == "view":
            longest = max(map(int.__add__, past, new))
            rows = min(self.slots[0].slot.capacity, -(-longest // STRIDE) * STRIDE)
            if self._grows:
                rows = max(rows, self._bound_rows)
                self._grow(rows)
            self._bound_rows = self._cleaned(past, new, rows)

    def _grow(self, rows: int) -> None:
        if rows == self._bound_rows:
            return
        self._bound_rows = rows
        for slot in self.slots:
            for which, old in enumerate(slot.buffers):
                self._set(slot, which, self._new(slot.slot, old.content()))

    def _cleaned(self, past: Lengths, new: Lengths, rows: int) -> int:
        """Return how many rows to bind so that none beyond a text's length holds what was forgotten."""
        for text, (start, end) in enumerate(self._stale):
            length = past[text] + new[text]
            first, last = max(start, length), min(end, rows)
            if first >= last:
                continue
            if self.place.device != "cpu" and not self._grows:
                return length  # beyond the host's reach: leave them out
            for slot in self.slots:
                self._content(slot)  # makes it this group's own
                for buffer in slot.buffers:
                    content = buffer.content()
                    content[text, first:last] = 0
                    buffer.put(content)
            self._stale[text] = (last, end)
        return rows

    def failed(self, past: Lengths, new: Lengths) -> None:
        for text in range(self.place.texts):
            self._forget(text, past[text], past[text] + new[text])

    def truncate(self, text: int, to: int) -> None:
        self._forget(text, to, self.now.lengths[text])

    def _forget(self, text: int, start: int, end: int) -> None:
        old_start, old_end = self._stale[text]
        self._stale[text] = (min(start, old_start), max(end, old_end)) if old_start < old_end else (start, end)

    def key(self) -> object:
        return (self._generation, self.now.flip % 2 if self.alternates else 0, self._bound_rows)

    def bound(self) -> Iterator[Bound]:
        for slot in self.slots:
            yield slot, self._bound_rows, self._bound_rows

    def forked(self, now: Now) -> Group:
        other = super().forked(now)
        if isinstance(other, Rows):
            other._stale = list(self._stale)
        return other

    def restore(self, slot: SlotMemory, content: Content) -> None:
        if self._grows:
            self._grow(max(self._bound_rows, content.shape[1]))
        super().restore(slot, content)
        # Of several texts the shorter ones bring rows that do not count.
        self._stale = [(length, content.shape[1]) for length in self.now.lengths]


class Once(Group):
    """Slots that are filled once and then only read."""

    def __init__(self, place: Place, now: Now, slots: Sequence[Memory]) -> None:
        self._filled: dict[str, int] = {}
        super().__init__(place, now, slots)

    @property
    def missing(self) -> list[str]:
        """Inputs that were not filled yet."""
        return [slot.slot.source for slot in self.slots if slot.slot.source not in self._filled]

    def before(self, past: Lengths, new: Lengths) -> None:
        pass  # never written

    def bound(self) -> Iterator[Bound]:
        for slot in self.slots:
            yield slot, self._filled[slot.slot.source], None

    def saved(self) -> Iterator[tuple[SlotMemory, Content]]:
        for slot in self.slots:
            yield slot, slot.buffers[0].content()[:, : self._filled.get(slot.slot.source, 0)]

    def restore(self, slot: SlotMemory, content: Content) -> None:
        """Keep the rows of a slot."""
        if content.shape[1]:
            self._set(slot, 0, Buffer(content.shape, self.place.device, content))
            self._filled = {**self._filled, slot.slot.source: content.shape[1]}


__all__ = ["STRIDE", "Bound", "Group", "Lengths", "Now", "Once", "Place", "Rows"]
