"""The memory of a decoder's cache, and how it is bound to the graph.

What is bound changes rarely: rows are bound in strides, and memories that change places with each run have two
bindings. A slot that is bound already costs a step nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from lazygraph.export.buffers import Content, SlotMemory
from lazygraph.export.groups import Group, Lengths, Now, Once, Place, Rows
from lazygraph.export.manifest import Manifest
from lazygraph.export.replaced import Joined, Replaced
from lazygraph.export.ring import Ring
from lazygraph.export.session import run_bound
from lazygraph.memory import Memory

if TYPE_CHECKING:
    import onnxruntime as ort

Array = np.ndarray[Any, Any]


class CacheMemory:
    """The memory of all slots, and where its texts stand.

    Args:
        manifest: What the graph expects.
        device: ``cpu`` or ``cuda``.
        batch: Texts side by side; None where the graph has no such axis.

    Attributes:
        now: Where all texts stand.
        groups: The slots, by how they live.
    """

    def __init__(self, manifest: Manifest, device: str, batch: int | None = None) -> None:
        place = Place(device, manifest.lowering, batch)
        self.now = Now((0, (0,) * place.texts))
        self.groups = _grouped(manifest, place, self.now)
        self._running: tuple[tuple[int, tuple[int, ...]], Lengths] | None = None

    @property
    def lengths(self) -> tuple[int, ...]:
        """Tokens read, per text."""
        return self.now.lengths

    # ---- a run ----

    def before(self, new: Lengths) -> None:
        """Make ready for a run that brings so many tokens to each text."""
        self.recover()
        for group in self.groups:
            group.before(self.now.lengths, new)
        self._running = (self.now.state, new)  # from here on something may be written

    def count(self, new: Lengths) -> None:
        """Let the run count. It does from one assignment on; if that is not reached, nothing happened."""
        flip, lengths = self.now.state
        self.now.state = (flip + 1, tuple(map(int.__add__, lengths, new)))
        self.recover()

    def recover(self) -> None:
        """Bring everything in line after a run that counts, or one that stopped somewhere."""
        if self._running is None:
            return
        (flip, past), new = self._running
        counts = self.now.flip != flip
        for group in self.groups:
            (group.settle if counts else group.failed)(past, new)
        self._running = None

    # ---- rewinding ----

    def floor(self, text: int) -> int:
        """Return the lowest length down to which a text can go back to every length."""
        return max(group.floor(text) for group in self.groups)

    def allows(self, text: int, to: int) -> bool:
        """Return whether a text can go back to a length."""
        return all(group.allows(text, to) for group in self.groups)

    def reruns(self, text: int, to: int) -> bool:
        """Return whether going there takes another run of the tokens since the last one began."""
        return any(group.reruns(text, to) for group in self.groups)

    def truncate(self, text: int, to: int) -> None:
        """Go back to a length that is allowed and takes no run."""
        for group in self.groups:
            group.truncate(text, to)
        flip, lengths = self.now.state
        self.now.state = (flip, (*lengths[:text], to, *lengths[text + 1 :]))

    # ---- copies and files ----

    def forked(self, everything: bool = True) -> Self:
        """Return memory of the same content; what neither writes both share.

        Args:
            everything: False leaves out the rows that no run writes over, to go back with ``back``.
        """
        other: Self = object.__new__(type(self))
        other.now = Now(self.now.state)
        other._running = None
        kept = [group for group in self.groups if everything or type(group) is not Rows]
        other.groups = [group.forked(other.now) for group in kept]
        return other

    def back(self, to: CacheMemory) -> None:
        """Go back to where ``forked(everything=False)`` was taken."""
        self.recover()
        for text, length in enumerate(to.lengths):
            for group in self.groups:
                if type(group) is Rows:
                    group.truncate(text, length)
        kept = iter(to.groups)
        groups = [group if type(group) is Rows else next(kept) for group in self.groups]
        for group in to.groups:
            group.now = self.now
            if (self.now.flip - to.now.flip) % 2:
                for slot in group.slots:
                    slot.buffers.reverse()
        self.groups = groups
        self.now.state = (self.now.flip, to.lengths)

    def saved(self) -> Iterator[tuple[SlotMemory, Content]]:
        """Yield every slot and what a file must hold of it."""
        for group in self.groups:
            yield from group.saved()

    @property
    def held(self) -> dict[str, list[int]]:
        """Per slot that is a ring, the first position beyond the sinks that each text holds."""
        rings = [group for group in self.groups if isinstance(group, Ring)]
        return {slot.slot.source: ring.held for ring in rings for slot in ring.slots}

    def restore(self, lengths: Lengths, contents: Mapping[str, Content], held: Mapping[str, list[int]]) -> None:
        """Take what was saved, into memory that was never used."""
        self.now.state = (0, tuple(lengths))
        for group in self.groups:
            for slot in group.slots:
                group.restore(slot, contents[slot.slot.source])
                if isinstance(group, Ring):
                    group.held = held[slot.slot.source]

    @property
    def unfilled(self) -> list[str]:
        """Inputs that are to be filled once and were not."""
        return [source for group in self.groups if isinstance(group, Once) for source in group.missing]

    def fill(self, contents: Mapping[str, Content]) -> None:
        """Keep the rows of slots that are filled once, by input name."""
        for group in self.groups:
            for slot in group.slots:
                if isinstance(group, Once) and slot.slot.source in contents:
                    group.restore(slot, contents[slot.slot.source])

    @property
    def nbytes(self) -> int:
        """Bytes that this memory alone holds."""
        return sum(group.nbytes for group in self.groups)


def _grouped(manifest: Manifest, place: Place, now: Now) -> list[Group]:
    """Return the slots by how they live."""
    alike: dict[tuple[Any, ...], list[Memory]] = {}
    for slot in manifest.memory:
        sizes = (slot.capacity, slot.window, slot.sinks) if slot.kind in ("rows", "window") else ()
        alike.setdefault((slot.kind, slot.source in manifest.copied, *sizes), []).append(slot)
    groups: list[Group] = []
    for (kind, copied, *_), slots in alike.items():
        if kind == "once":
            groups.append(Once(place, now, slots))
        elif kind == "state":
            groups.append(Replaced(place, now, slots))
        elif manifest.lowering == "concat":
            groups.append(Joined(place, now, slots))
        else:
            groups.append((Rows if kind == "rows" else Ring)(place, now, slots, copied))
    return groups


class Bindings:
    """What is bound to a session; binds what changed.

    Args:
        session: The session.
        device: Where the cache lies.
    """

    def __init__(self, session: ort.InferenceSession, device: str) -> None:
        self._device = device
        self._bindings = [session.io_binding(), session.io_binding()]
        self._keys: list[dict[Group, object]] = [{}, {}]
        self._fed: list[dict[str, Array]] = [{}, {}]

    def run(
        self,
        session: ort.InferenceSession,
        memory: CacheMemory,
        inputs: Mapping[str, Array],
        outputs: Mapping[str, Array],
    ) -> None:
        """Run the session on a cache that was made ready.

        Args:
            session: The session.
            memory: The cache.
            inputs: C-contiguous arrays by input name. One that was bound before is read where it lies.
            outputs: C-contiguous arrays to write to, by output name.

        Raises:
            ExportError: onnxruntime failed.
        """
        which = memory.now.flip % 2 if any(group.alternates for group in memory.groups) else 0
        binding, keys, fed = self._bindings[which], self._keys[which], self._fed[which]
        for group in memory.groups:
            key = group.key()
            if keys.get(group) != key:
                keys.pop(group, None)  # an interrupt half way must not leave a mixture that looks bound
                self._bind(binding, group)
                keys[group] = key
        # Elsewhere than on the host, numbers are taken over when they are bound.
        known = fed if self._device == "cpu" else {}
        left = {name: array for name, array in inputs.items() if known.get(name) is not array}
        for name in left:
            fed.pop(name, None)
        run_bound(session, binding, left, outputs)
        fed.update(left)

    def _bind(self, binding: Any, group: Group) -> None:
        leading = [] if group.place.batch is None else [group.place.batch]
        device, flip = self._device, group.now.flip
        for memory, rows, written in group.bound():
            slot = memory.slot
            shape = [*leading, *([] if rows is None else [rows]), *slot.trailing]
            binding.bind_input(slot.source, device, 0, memory.kind, shape, memory.read(flip).address)
            if slot.target:
                shape = [*leading, *([] if written is None else [written]), *slot.trailing]
                binding.bind_output(slot.target, device, 0, memory.kind, shape, memory.written(flip).address)


__all__ = ["Bindings", "CacheMemory"]
