"""Decoder: an exported decoder, its cache, and how far it has read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np

from lazygraph.errors import CacheError, OperandError
from lazygraph.export import running
from lazygraph.export.manifest import Manifest
from lazygraph.export.running import Ids, Logits, Runner, TokenIds
from lazygraph.export.sampling import Sampler
from lazygraph.whole import whole


@dataclass(frozen=True)
class Verified:
    """What a model says of proposed tokens.

    Attributes:
        accepted: How many of the proposed tokens, from the first on, the model would have chosen itself; they are read.
        token: What it chooses after them: the next token, not read yet.
        logits: ``float32 (k + 1, vocab_size)``: before each of the k proposed tokens, and after the last.
    """

    accepted: int
    token: int
    logits: Logits


class Decoder:
    """Runs an exported decoder: give it tokens, take logits; it keeps the cache.

    ``append`` is prefill, decode and everything between: any number of tokens, any chunking, the same logits. What does
    not fit is refused before anything runs, and a step that fails leaves the decoder as it was.

    Open one with ``open``.
    """

    def __init__(self, runner: Runner) -> None:
        self._runner = runner

    @classmethod
    def open(
        cls, folder: str | Path, provider: str = "cpu", threads: int | None = None, *, check_weights: bool = False
    ) -> Self:
        """Return a decoder at length 0.

        Args:
            folder: What ``lazygraph export`` wrote.
            provider: ``cpu`` or ``cuda``.
            threads: Threads that onnxruntime computes with; its own choice when None.
            check_weights: Read the weights file as a whole first and refuse it where a byte differs from what was
                written. Without it a weights file that is missing, too short or another export's is found.

        Raises:
            ExportError: The folder is no export or is damaged, or onnxruntime is not there.
            UnsupportedError: The installed onnxruntime has no such provider.
            OperandError: A provider that lazygraph does not know, fewer than one thread, or an export that runs
                several texts at once.
        """
        return cls(Runner.opened(Path(folder), provider, threads, check_weights))

    @property
    def folder(self) -> Path:
        """The export."""
        return self._runner.folder

    @property
    def manifest(self) -> Manifest:
        """What the export is."""
        return self._runner.manifest

    @property
    def length(self) -> int:
        """Tokens read so far: rows of the cache that count."""
        return self._runner.memory.lengths[0]

    @property
    def max_seq_len(self) -> int:
        """Tokens that the cache has room for."""
        return self.manifest.max_seq_len

    @property
    def rewindable(self) -> int:
        """Tokens that ``truncate`` can go back, each number from 0 on: all but where windows or states forget."""
        return self.length - self._runner.floor(0)

    @property
    def cache_bytes(self) -> int:
        """Bytes of cache memory that this decoder shares with no fork, touched or not."""
        return self._runner.memory.nbytes

    def __repr__(self) -> str:
        m = self.manifest
        cost = f"{m.bytes_per_token:,} cache bytes per token"
        return f"Decoder({m.model_type}, {self.length}/{m.max_seq_len} tokens, {cost})"

    # ---- reading ----

    def append(self, token_ids: TokenIds, logits: Literal["all", "last"] = "all") -> Logits:
        """Read tokens and return the logits after each (or after the last).

        Args:
            token_ids: ``n`` ids in ``[0, vocab_size)``, at least one.
            logits: ``"all"`` for every token, ``"last"`` to compute the last row only.

        Returns:
            ``float32 (n, vocab_size)``, or ``(1, vocab_size)`` for ``"last"``; the caller's own.

        Raises:
            OperandError: No token, or ids that are no whole numbers.
            IndexRangeError: An id outside the vocabulary.
            CacheOverflowError: More tokens than there is room for.
            CacheError: Slots that are to be filled once are empty.
            ExportError: onnxruntime failed. In every case the decoder is as before.
        """
        ids = self._runner.checked_ids(token_ids, self.length, "append")
        if not isinstance(logits, str) or logits not in ("all", "last"):
            raise OperandError(f"logits is {logits!r}", op="append", expected="'all' or 'last'")
        self._runner.check_filled("append")
        return self._append(ids, 0 if logits == "all" else len(ids) - 1)

    def _append(self, ids: Ids, first: int) -> Logits:
        """Read checked ids; return the logits from the ``first`` on."""
        runner, chunk = self._runner, running.CHUNK
        out = np.empty((len(ids) - first, self.manifest.vocab_size), np.float32)
        back = runner.mark() if len(ids) > chunk else None
        try:
            for start in range(0, len(ids), chunk):
                end = min(start + chunk, len(ids))
                part = out[max(start - first, 0) : max(end - first, 0)]
                runner.run(ids[start:end], (end - start,), end - start - len(part), part)
        except BaseException:
            if back is not None:
                back()
            raise
        return out

    def verify(
        self, token_ids: TokenIds, proposed: TokenIds, choose: Callable[[Logits], int] | None = None
    ) -> Verified:
        """Read tokens, then as many of the proposed ones as the model would have chosen: speculative decoding.

        All are read in one run, and what is not accepted is forgotten again. The result is the same, token for token,
        as reading one at a time and choosing.

        Args:
            token_ids: Tokens that are certain: usually the one last chosen. At least one.
            proposed: ``k`` tokens that somebody guesses come next, perhaps none.
            choose: Given ``float32 (vocab_size,)``, returns the next token; the most likely one when None. It is
                called once per accepted token, and once more.

        Raises:
            OperandError: No certain token, or ids that are no whole numbers.
            IndexRangeError: An id outside the vocabulary.
            CacheOverflowError: More tokens than there is room for.
            CacheError: Slots that are to be filled once are empty; or more tokens than the model can go back over:
                those of one run (512), and of a full window no more than it has rows.
            ExportError: onnxruntime failed. In every case the decoder is as before.
        """
        runner, before = self._runner, self.length
        certain = runner.checked_ids(token_ids, before, "verify")
        guessed = runner.checked_ids(proposed, before + len(certain), "verify", may_be_empty=True)
        runner.check_filled("verify")
        ids = np.concatenate([certain, guessed])
        reach = runner.reach(len(ids))
        if len(guessed) >= reach:
            raise CacheError(
                f"verify {len(guessed)} proposed tokens",
                op="verify",
                expected=f"at most {reach - 1}: this model cannot go back over more of one run",
                wanted=reach - 1,
                got=len(guessed),
            )
        # Certain tokens that do not fit into one run with the guesses are read before.
        head = len(certain) - 1 if len(ids) > reach else 0
        back = runner.mark() if head else None
        try:
            if head:
                self._append(certain[:head], head - 1)
            logits = self._append(ids[head:], len(certain) - 1 - head)
            chosen = choose or (lambda row: int(np.argmax(row)))
            accepted, token = 0, chosen(logits[0])
            while accepted < len(guessed) and token == guessed[accepted]:
                accepted += 1
                token = chosen(logits[accepted])
            self.truncate(before + len(certain) + accepted)
        except BaseException:
            if back is not None:
                back()
            elif self.length > before:
                self.truncate(before)
            raise
        return Verified(accepted, int(token), logits)

    def fill(self, rows: Mapping[str, np.ndarray[Any, Any]]) -> None:
        """Give the slots that are filled once what they hold: the keys and values of an encoder's output, say.

        Args:
            rows: Per input name, ``(rows, *trailing)`` of the slot's element type. Slots may be filled in several
                calls, and again, as long as no token was read.

        Raises:
            CacheError: A name of no such slot, rows of another shape or type, or tokens were read already.
            CacheOverflowError: More rows than the slot has room for. In every case nothing is changed.
        """
        self._runner.fill(rows)

    # ---- going back and aside ----

    def truncate(self, length: int) -> None:
        """Forget every token from ``length`` on; what is appended next is as if they had never been read.

        Where the model keeps a window or a state, older rows are gone for good: ``rewindable`` says how far back
        one can go. The last run (of up to 512 tokens; of a full window no more than it has rows) can always be undone,
        as a whole and in part. With a state, undoing it in part runs the tokens again that stay.

        Raises:
            CacheError: ``length`` is not in ``[0, self.length]``, or what is needed to go on from there is gone.
            ExportError: Tokens had to run again and onnxruntime failed; the decoder is then where that run began.
        """
        kept = whole(length)
        if kept is None or not 0 <= kept <= self.length:
            raise CacheError(
                f"truncate to {length!r} of {self.length} tokens",
                op="truncate",
                expected=f"an int in [0, {self.length}]",
                wanted=self.length,
                got=length,
            )
        self._runner.truncate([kept])

    def fork(self) -> Self:
        """Return a second decoder at the same place; the two go on independently.

        They share the weights, and the cache until one of them reads on: that one then copies the rows that count.
        """
        return type(self)(self._runner.forked())

    # ---- files ----

    def save(self, file: str | Path) -> None:
        """Write the state to a file, whole or not at all: what the cache holds, and which model it belongs to.

        Raises:
            ExportError: The file cannot be written; an older one there is unchanged.

        Spec: the safetensors format.
        """
        self._runner.save(Path(file))

    @classmethod
    def restore(
        cls,
        folder: str | Path,
        file: str | Path,
        provider: str = "cpu",
        threads: int | None = None,
        *,
        check_weights: bool = False,
    ) -> Self:
        """Return a decoder at the state that ``save`` wrote, as if it had read the tokens again.

        Args:
            folder: The export whose decoder was saved.
            file: What ``save`` wrote.
            provider: As for ``open``.
            threads: As for ``open``.
            check_weights: As for ``open``.

        Raises:
            ExportError: As for ``open``; or the file is missing, damaged, or the state of another model.
        """
        return cls(Runner.restored(Path(folder), Path(file), provider, threads, check_weights, False))

    # ---- generating ----

    def generate(
        self,
        token_ids: TokenIds,
        max_new_tokens: int = 256,
        *,
        temperature: float = 0.0,
        top_p: float = 1.0,
        top_k: int = 0,
        seed: int | None = None,
        stop_ids: Sequence[int] | None = None,
        on_token: Callable[[int], None] | None = None,
    ) -> Iterator[int]:
        """Read a prompt, then yield new token ids one by one, ending before a stop id or when the cache is full.

        Stopping the iteration early is fine: the decoder has then read everything but the last token yielded.

        Args:
            token_ids: The prompt, at least one id.
            max_new_tokens: At most so many new tokens.
            temperature: 0 takes the most likely token; larger numbers draw.
            top_p: Draw from the smallest set of tokens that holds this much probability.
            top_k: Draw from so many of the likeliest; 0 is all.
            seed: Makes draws repeatable.
            stop_ids: Ids that end the text; the model's own when None.
            on_token: Called with each id before it is yielded.

        Raises:
            OperandError: No prompt, or a sampling number outside its range.
            IndexRangeError: An id outside the vocabulary.
            CacheOverflowError: The prompt does not fit.
        """
        at_most = whole(max_new_tokens)
        if at_most is None or at_most < 0:
            raise OperandError(f"max_new_tokens is {max_new_tokens!r}", op="generate", expected="an int of at least 0")
        sampler = Sampler(temperature, top_p, top_k, seed)
        stops = frozenset(self.manifest.stop_ids) if stop_ids is None else _stops(stop_ids)
        prompt = self._runner.checked_ids(token_ids, self.length, "generate")
        return self._generate(prompt, at_most, sampler, stops, on_token)

    def _generate(
        self,
        prompt: Ids,
        max_new_tokens: int,
        sampler: Sampler,
        stops: frozenset[int],
        on_token: Callable[[int], None] | None,
    ) -> Iterator[int]:
        row = self.append(prompt.tolist(), logits="last")[0]
        for made in range(max_new_tokens):
            token = sampler.pick(row)
            if token in stops:
                return
            if on_token is not None:
                on_token(token)
            yield token
            if made + 1 == max_new_tokens or self.length == self.max_seq_len:
                return
            row = self.append([token], logits="last")[0]


def _stops(stop_ids: Any) -> frozenset[int]:
    numbers = [whole(token) for token in stop_ids] if isinstance(stop_ids, Iterable) else [None]
    if None in numbers:
        raise OperandError(f"stop_ids is {stop_ids!r}", op="generate", expected="a list of token ids, perhaps empty")
    return frozenset(number for number in numbers if number is not None)


__all__ = ["Decoder", "Verified"]
