"""Running an exported decoder's graph: what decoders of one text and of several have in common."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeAlias

import numpy as np

from lazygraph.dtypes import as_dtype
from lazygraph.errors import CacheError, CacheOverflowError, ExportError, IndexRangeError, OperandError
from lazygraph.export.binding import Bindings, CacheMemory
from lazygraph.export.buffers import Content
from lazygraph.export.manifest import MODEL, Manifest, check_fits, fingerprint, read_manifest
from lazygraph.export.session import open_session
from lazygraph.export.state import read_state, write_state
from lazygraph.export.weight_check import check_weights
from lazygraph.whole import whole

if TYPE_CHECKING:
    from onnxruntime import InferenceSession

Logits: TypeAlias = "np.ndarray[Any, np.dtype[np.float32]]"
Ids: TypeAlias = "np.ndarray[Any, np.dtype[np.int64]]"
TokenIds: TypeAlias = "Sequence[int] | np.ndarray[Any, np.dtype[np.integer[Any]]]"

# A long prompt runs in pieces of so many tokens: its scores, heads x tokens x rows, would fill the memory in one.
CHUNK = 512


class Runner:
    """An open export and the memory of its texts.

    Args:
        folder: The export.
        manifest: What it is.
        session: Its graph.
        device: ``cpu`` or ``cuda``.
        batch: Texts side by side; None where the graph has no such axis.
    """

    def __init__(
        self, folder: Path, manifest: Manifest, session: InferenceSession, device: str, batch: int | None = None
    ) -> None:
        self.folder, self.manifest, self.session, self.device, self.batch = folder, manifest, session, device, batch
        self._start(CacheMemory(manifest, device, batch))

    def _start(self, memory: CacheMemory) -> None:
        self.memory = memory
        self._bindings = Bindings(self.session, self.device)
        texts, shape = self.texts, [] if self.batch is None else [self.batch]
        # These keep their place, so that a step need not bind them again.
        self._past = np.zeros(shape, np.int64)
        self._from = np.zeros((), np.int64)
        self._new = np.zeros(texts, np.int64)
        self._one = np.zeros([*shape, 1], np.int64)
        # The last run that counts, for going back into it: lengths before, ids, new tokens per text.
        self._last: tuple[tuple[int, ...], Ids, tuple[int, ...]] | None = None

    @property
    def texts(self) -> int:
        """How many texts."""
        return 1 if self.batch is None else self.batch

    # ---- runs ----

    def run(self, ids: Ids, new: tuple[int, ...], first: int, out: Logits) -> None:
        """Run the graph once.

        Args:
            ids: ``int64 (n,)``, or ``(batch, n)`` where the graph has such an axis.
            new: How many of them are new tokens, per text.
            first: The first of the n whose logits are wanted.
            out: Where the logits go.

        Raises:
            ExportError: onnxruntime failed. Then, and at any interrupt, the memory is as before.
        """
        memory = self.memory
        try:
            memory.before(new)
            if ids.shape[-1] == 1:
                self._one[:] = ids
                ids = self._one
            past = memory.lengths
            self._past[...] = past[0] if self.batch is None else past
            self._from[...] = first
            inputs = {"input_ids": ids, "past_len": self._past, "logits_from": self._from}
            if self.batch is not None:
                self._new[:] = new
                inputs["new_len"] = self._new
            self._bindings.run(self.session, memory, inputs, {"logits": out})
            # Into one token there is no way back but to its beginning, which takes no run.
            self._last = (past, ids, new) if ids.shape[-1] > 1 else None
        except BaseException:
            memory.recover()
            raise
        memory.count(new)

    def check_filled(self, op: str) -> None:
        """Refuse a run while slots that are to be filled once are empty.

        Raises:
            CacheError: Some are.
        """
        if missing := self.memory.unfilled:
            raise CacheError(
                f"{len(missing)} slots were not filled: {', '.join(missing[:4])}{', ...' if len(missing) > 4 else ''}",
                op=op,
                expected="what the model only reads, given once by fill before the first token",
                wanted=missing,
            )

    def fill(self, rows: Mapping[str, np.ndarray[Any, Any]]) -> None:
        """Keep the rows of slots that are filled once; see ``lazygraph.Decoder.fill``."""
        slots = {slot.source: slot for slot in self.manifest.memory if slot.kind == "once"}
        contents: dict[str, Content] = {}
        if any(self.memory.lengths):
            raise CacheError(
                f"fill after {max(self.memory.lengths)} tokens",
                op="fill",
                expected="length 0: every token read so far has seen what was filled",
                hint="truncate to 0 first, or fill a fork of the start",
                wanted=0,
                got=max(self.memory.lengths),
            )
        for source, array in rows.items():
            slot = slots.get(source)
            if slot is None:
                raise CacheError(
                    f"{source!r} is no slot that is filled once",
                    op="fill",
                    expected="one of " + (", ".join(slots) or "none: this model has no such slot"),
                    got=source,
                )
            given, kept = np.asarray(array), as_dtype(slot.dtype).numpy
            leading = () if self.batch is None else (self.batch,)
            axes = len(leading)
            fits = given.dtype == kept and given.ndim == axes + 1 + len(slot.trailing)
            if not fits or (*given.shape[:axes], *given.shape[axes + 1 :]) != (*leading, *slot.trailing):
                raise CacheError(
                    f"{source} is {given.dtype} {list(given.shape)}",
                    op="fill",
                    expected=f"{slot.dtype} {[*leading, 'rows', *slot.trailing]}",
                    got=given.shape,
                )
            count = given.shape[axes]
            fixed = next(value.shape[axes] for value in self.session.get_inputs() if value.name == source)
            if not 1 <= count <= slot.capacity or (isinstance(fixed, int) and count != fixed):
                raise CacheOverflowError(
                    f"{source} is given {count} rows",
                    op="fill",
                    expected=f"{slot.capacity} rows" if isinstance(fixed, int) else f"1 to {slot.capacity} rows",
                    wanted=slot.capacity,
                    got=count,
                )
            content = np.ascontiguousarray(given).view(np.uint8).reshape(self.texts, count, slot.bytes_per_row)
            contents[source] = content
        self.memory.fill(contents)

    # ---- rewinding ----

    def floor(self, text: int) -> int:
        """Return the lowest length down to which a text can go back to every length."""
        self.memory.recover()
        return self.memory.floor(text)

    def reach(self, new: int) -> int:
        """Return how many of ``new`` tokens can be read at once so that one can go back to any place among them."""
        limits = [group.reach(text, new) for group in self.memory.groups for text in range(self.texts)]
        known = [limit for limit in limits if limit is not None]
        return min(CHUNK, *known) if known else self.manifest.max_seq_len

    def truncate(self, to: Sequence[int]) -> None:
        """Bring every text to a length.

        Raises:
            CacheError: A length that is none of the text's past, or whose rows are gone; nothing is changed.
        """
        memory = self.memory
        memory.recover()
        for text, length in enumerate(to):
            if not memory.allows(text, length):
                self._refuse(text, length)
        again = [text for text, length in enumerate(to) if memory.reruns(text, length)]
        last = self._last
        for text, length in enumerate(to):
            memory.truncate(text, last[0][text] if last and text in again else length)
        if again and last:
            past, ids, _ = last
            counts = tuple(to[text] - past[text] if text in again else 0 for text in range(self.texts))
            width = max(counts)
            first = [*ids.shape[:-1]]
            out = np.empty((*first, 1, self.manifest.vocab_size), np.float32)
            self.run(np.ascontiguousarray(self._first(ids, counts)), counts, width - 1, out)

    def _first(self, ids: Ids, counts: tuple[int, ...]) -> Ids:
        """Return the ids of which each text takes its first tokens again."""
        if self.batch is None:
            return ids[: counts[0]]
        last, width = self._last, max(counts)
        found = np.zeros((self.texts, width), np.int64)  # padded on the left
        for text, count in enumerate(counts):
            start = ids.shape[1] - (last[2][text] if last else 0)
            found[text, width - count :] = ids[text, start : start + count]
        return found

    def _refuse(self, text: int, length: int) -> None:
        now, floor = self.memory.lengths[text], self.memory.floor(text)
        which = "" if self.batch is None else f" of text {text}"
        raise CacheError(
            f"truncate to {length} of {now} tokens{which}: what the model had kept there is gone",
            op="truncate",
            expected=f"a length in [{floor}, {now}], at most {now - floor} tokens back, or 0",
            hint="fork before reading on, and go back to the fork",
            wanted=floor,
            got=length,
        )

    def mark(self) -> Callable[[], None]:
        """Return what goes back to here, whatever runs in between."""
        self.memory.recover()
        kept, last = self.memory.forked(everything=False), self._last

        def back() -> None:
            self.memory.back(kept)
            self._last = last  # what was kept can be gone back into as before

        return back

    # ---- copies and files ----

    def forked(self) -> Self:
        """Return a runner at the same place that shares session and memory."""
        self.memory.recover()
        other: Self = object.__new__(type(self))
        other.folder, other.manifest, other.session = self.folder, self.manifest, self.session
        other.device, other.batch = self.device, self.batch
        other._start(self.memory.forked())
        other._last = self._last
        return other

    def save(self, file: Path) -> None:
        """Write the state to a file; see ``lazygraph.Decoder.save``."""
        memory = self.memory
        memory.recover()
        by_name = {slot.slot.source: (slot.slot, content) for slot, content in memory.saved()}
        order = [by_name[slot.source] for slot in self.manifest.memory]
        write_state(file, self.manifest, memory.lengths, memory.held, lambda: order)

    @classmethod
    def restored(cls, folder: Path, file: Path, provider: str, threads: int | None, check: bool, several: bool) -> Self:
        """Return a runner at the state of a file."""
        manifest = read_manifest(folder)
        if manifest.batch != several:
            cls.opened(folder, provider, threads, check, 1 if several else None)  # refuses
        state = read_state(file, manifest)
        runner = cls.opened(folder, provider, threads, check, len(state.lengths) if manifest.batch else None)
        runner.memory.restore(state.lengths, state.contents, state.held)
        return runner

    @classmethod
    def opened(cls, folder: Path, provider: str, threads: int | None, check: bool, batch: int | None = None) -> Self:
        """Return a runner at length 0.

        Raises:
            ExportError: The folder is no export or is damaged, or onnxruntime is not there.
            UnsupportedError: The installed onnxruntime has no such provider.
            OperandError: A provider that lazygraph does not know, or fewer than one thread.
        """
        if threads is not None and (whole(threads) or 0) < 1:
            raise OperandError(f"threads is {threads!r}", op="open", expected="an int of at least 1, or None")
        manifest = read_manifest(folder)
        if manifest.batch != (batch is not None):
            raise OperandError(
                f"the export runs {'several texts at once' if manifest.batch else 'one text'}",
                op="open",
                expected="lg.BatchDecoder for it" if manifest.batch else "lg.Decoder for it",
            )
        model = folder / MODEL
        if not model.is_file():
            raise ExportError(f"no {MODEL} in {folder}", op="open", expected="a folder that `lazygraph export` wrote")
        if fingerprint(model) != manifest.fingerprint:
            raise ExportError(
                f"{model} is not the file that the manifest describes",
                op="open",
                expected=f"SHA-256 {manifest.fingerprint}",
                hint="export it again",
            )
        if check:
            check_weights(model)
        session = open_session(model, provider, threads=threads)
        check_fits(manifest, session)
        return cls(folder, manifest, session, provider, batch)

    # ---- ids ----

    def checked_ids(self, token_ids: TokenIds, length: int, op: str, may_be_empty: bool = False) -> Ids:
        """Return ids that fit after ``length`` tokens.

        Raises:
            OperandError: No token, or ids that are no whole numbers.
            IndexRangeError: An id outside the vocabulary.
            CacheOverflowError: More tokens than there is room for.
        """
        given = _array(token_ids)
        if given is not None and may_be_empty and given.shape == (0,):
            return np.zeros(0, np.int64)
        if given is None or given.ndim != 1 or given.size == 0 or given.dtype.kind not in "iu":
            shown = "no whole numbers" if given is None or given.dtype.kind not in "iu" else f"{given.ndim} axes"
            what = "no token" if given is not None and given.size == 0 else shown
            raise OperandError(what, op=op, expected="a flat list of at least one token id, whole numbers")
        vocab = self.manifest.vocab_size
        wrong = given[(given < 0) | (given >= vocab)]
        if wrong.size:
            raise IndexRangeError(
                f"token id {int(wrong[0])} of a vocabulary of {vocab}",
                op=op,
                expected=f"ids in [0, {vocab})",
                index=int(wrong[0]),
            )
        limit = self.manifest.max_seq_len
        if length + given.size > limit:
            raise CacheOverflowError(
                f"{given.size} tokens after {length} pass the end at {limit}",
                op=op,
                expected=f"length + new tokens <= {limit}",
                hint="export with a larger --max-seq-len, or truncate",
                wanted=limit,
                got=length + given.size,
            )
        return np.ascontiguousarray(given, dtype=np.int64)


def _array(token_ids: Any) -> np.ndarray[Any, Any] | None:
    """Return the ids as an array, or None where they are no flat list of numbers; a bool among them is none."""
    if isinstance(token_ids, Sequence) and any(isinstance(token, (bool, np.bool_)) for token in token_ids):
        return None
    try:
        return np.asarray(token_ids)
    except ValueError:  # nested, and not evenly
        return None


__all__ = ["CHUNK", "Ids", "Logits", "Runner", "TokenIds"]
