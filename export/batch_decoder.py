"""BatchDecoder: an exported decoder that reads several texts at once."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal, Self

import numpy as np

from lazygraph.errors import CacheError, OperandError
from lazygraph.export import running
from lazygraph.export.manifest import Manifest
from lazygraph.export.running import Logits, Runner, TokenIds
from lazygraph.whole import whole


class BatchDecoder:
    """Runs an export made with ``--batch``: several texts side by side, each with a length of its own.

    Open one with ``open``.
    """

    def __init__(self, runner: Runner) -> None:
        self._runner = runner

    @classmethod
    def open(
        cls,
        folder: str | Path,
        texts: int,
        provider: str = "cpu",
        threads: int | None = None,
        *,
        check_weights: bool = False,
    ) -> Self:
        """Return a decoder of so many texts, each at length 0.

        Args:
            folder: What ``lazygraph export --batch`` wrote.
            texts: How many texts.
            provider: As for ``lazygraph.Decoder.open``, like what follows.
            threads: The same.
            check_weights: The same.

        Raises:
            OperandError: Fewer than one text, or an export that runs one text.
            ExportError: As for ``lazygraph.Decoder.open``.
        """
        count = whole(texts)
        if count is None or count < 1:
            raise OperandError(f"texts is {texts!r}", op="open", expected="an int of at least 1")
        return cls(Runner.opened(Path(folder), provider, threads, check_weights, count))

    @property
    def manifest(self) -> Manifest:
        """What the export is."""
        return self._runner.manifest

    @property
    def lengths(self) -> tuple[int, ...]:
        """Tokens read so far, per text."""
        return self._runner.memory.lengths

    @property
    def rewindable(self) -> tuple[int, ...]:
        """Per text, tokens that ``truncate`` can go back, each number from 0 on."""
        return tuple(length - self._runner.floor(text) for text, length in enumerate(self.lengths))

    def __repr__(self) -> str:
        m = self._runner.manifest
        return f"BatchDecoder({m.model_type}, {list(self.lengths)}/{m.max_seq_len} tokens)"

    def append(self, token_ids: Sequence[TokenIds], logits: Literal["all", "last"] = "all") -> list[Logits]:
        """Read tokens of every text and return the logits after each (or after the last).

        Args:
            token_ids: Per text, the ids it reads; an empty list lets it wait.
            logits: ``"all"`` for every token, ``"last"`` to compute each text's last row only.

        Returns:
            Per text, ``float32 (n, vocab_size)`` for its own n tokens, or ``(1, vocab_size)`` for ``"last"``; no row
            for a text that waits. Each is what the text alone would give.

        Raises:
            OperandError: Not one list per text, no token at all, or ids that are no whole numbers.
            IndexRangeError: An id outside the vocabulary.
            CacheOverflowError: More tokens than a text has room for.
            CacheError: Slots that are to be filled once are empty.
            ExportError: onnxruntime failed. In every case nothing is changed.
        """
        runner, lengths = self._runner, self.lengths
        given = list(token_ids) if isinstance(token_ids, Sequence) else []
        if len(given) != len(lengths):
            raise OperandError(f"{len(given)} lists", op="append", expected=f"a list of ids for each of {len(lengths)}")
        if not isinstance(logits, str) or logits not in ("all", "last"):
            raise OperandError(f"logits is {logits!r}", op="append", expected="'all' or 'last'")
        both = zip(given, lengths, strict=True)
        ids = [runner.checked_ids(one, length, "append", may_be_empty=True) for one, length in both]
        if not any(map(len, ids)):
            raise OperandError("no token", op="append", expected="at least one token in all")
        runner.check_filled("append")
        vocab = runner.manifest.vocab_size
        rows: list[list[Logits]] = [[np.empty((0, vocab), np.float32)] for _ in ids]
        chunk, longest = running.CHUNK, max(map(len, ids))
        back = runner.mark() if longest > chunk else None
        try:
            for start in range(0, longest, chunk):
                parts = [one[start : start + chunk] for one in ids]
                width = max(map(len, parts))
                padded = np.zeros((len(parts), width), np.int64)  # on the left: the newest tokens are the last column
                for row, part in zip(padded, parts, strict=True):
                    row[width - len(part) :] = part
                first = width - 1 if logits == "last" else 0
                out = np.empty((len(parts), width - first, vocab), np.float32)
                runner.run(padded, tuple(map(len, parts)), first, out)
                for found, made, part, one in zip(rows, out, parts, ids, strict=True):
                    if logits == "all":
                        found.append(made[width - len(part) :])
                    elif start < len(one) <= start + chunk:
                        found.append(made)
        except BaseException:
            if back is not None:
                back()
            raise
        return [np.concatenate(found) for found in rows]

    def truncate(self, lengths: Sequence[int]) -> None:
        """Forget every text's tokens from its length on; what it reads next is as if they had never been read.

        How far each can go back, ``rewindable`` says. A text that waited in a run keeps its way back into a window,
        but not into a state or rows that a graph lowered as concat dropped: those are kept of the last run only.

        Args:
            lengths: Per text, how many of its tokens stay.

        Raises:
            CacheError: Not one length per text, or one that is none of the text's past; nothing is changed.
        """
        to = [whole(length) for length in lengths]
        kept = [length for length, now in zip(to, self.lengths, strict=False) if length is not None and length <= now]
        if len(to) != len(self.lengths) or len(kept) != len(to) or min(kept) < 0:
            raise CacheError(
                f"truncate to {list(lengths)} of {list(self.lengths)} tokens",
                op="truncate",
                expected="for each text a length in its past",
                wanted=self.lengths,
                got=lengths,
            )
        self._runner.truncate(kept)

    def release(self, text: int) -> None:
        """Forget a text altogether: its place in the batch is free for another, whatever the others are doing.

        Args:
            text: Which, from 0.

        Raises:
            OperandError: There is no such text.
        """
        number = whole(text)
        if number is None or not 0 <= number < len(self.lengths):
            raise OperandError(
                f"text {text!r} of {len(self.lengths)}", op="release", expected=f"0 <= text < {len(self.lengths)}"
            )
        self._runner.truncate([*self.lengths[:number], 0, *self.lengths[number + 1 :]])

    def fork(self) -> Self:
        """Return a second decoder at the same place; both share the cache until one of them reads on."""
        return type(self)(self._runner.forked())

    def save(self, file: str | Path) -> None:
        """Write the state to a file; as ``lazygraph.Decoder.save``."""
        self._runner.save(Path(file))

    @classmethod
    def restore(cls, folder: str | Path, file: str | Path, provider: str = "cpu", threads: int | None = None) -> Self:
        """Return a decoder at the state that ``save`` wrote; as ``lazygraph.Decoder.restore``."""
        return cls(Runner.restored(Path(folder), Path(file), provider, threads, False, True))


__all__ = ["BatchDecoder"]
