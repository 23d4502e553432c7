"""Decoder: an exported decoder, its cache, and how far it has read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self, TypeAlias

import numpy as np

from lazygraph.errors import CacheError, CacheOverflowError, ExportError, IndexRangeError, OperandError
from lazygraph.export.binding import Bytes, CacheMemory
from lazygraph.export.manifest import MODEL, Manifest, check_fits, fingerprint, read_manifest
from lazygraph.export.sampling import Sampler
from lazygraph.export.session import open_session, run_bound
from lazygraph.export.state import read_state, write_state
from lazygraph.whole import whole

if TYPE_CHECKING:
    from onnxruntime import InferenceSession

Logits = np.ndarray[Any, np.dtype[np.float32]]
Ids = np.ndarray[Any, np.dtype[np.int64]]
TokenIds: TypeAlias = "Sequence[int] | np.ndarray[Any, np.dtype[np.integer[Any]]]"

# A long prompt runs in pieces of so many tokens: its scores, heads x tokens x rows, would fill the memory in one.
CHUNK = 512


class Decoder:
    """Runs an exported decoder: give it tokens, take logits; it keeps the cache.

    ``append`` is prefill, decode and everything between: any number of tokens, any chunking, the same logits. What does
    not fit is refused before anything runs, and a step that fails leaves the decoder as it was.

    Open one with :meth:`open`.
    """

    def __init__(self, folder: Path, manifest: Manifest, session: InferenceSession, device: str) -> None:
        self.folder = folder
        self.manifest = manifest
        self._session = session
        self._device = device
        self._start(CacheMemory(manifest, device), 0)

    @classmethod
    def open(cls, folder: str | Path, provider: str = "cpu", threads: int | None = None) -> Self:
        """Return a decoder at length 0.

        Args:
            folder: What ``lazygraph export`` wrote.
            provider: ``cpu`` or ``cuda``.
            threads: Threads that onnxruntime computes with; its own choice when None.

        Raises:
            ExportError: The folder is no export or is damaged, or onnxruntime is not there.
            UnsupportedError: The installed onnxruntime has no such provider.
            OperandError: A provider that lazygraph does not know, or fewer than one thread.
        """
        if threads is not None and (whole(threads) or 0) < 1:
            raise OperandError(f"threads is {threads!r}", op="open", expected="an int of at least 1, or None")
        place = Path(folder)
        manifest = read_manifest(place)
        model = place / MODEL
        if not model.is_file():
            raise ExportError(f"no {MODEL} in {place}", op="open", expected="a folder that `lazygraph export` wrote")
        if fingerprint(model) != manifest.fingerprint:
            raise ExportError(
                f"{model} is not the file that the manifest describes",
                op="open",
                expected=f"SHA-256 {manifest.fingerprint}",
                hint="export it again",
            )
        session = open_session(model, provider, threads=threads)
        check_fits(manifest, session)
        return cls(place, manifest, session, provider)

    def _start(self, memory: CacheMemory, length: int) -> None:
        self._memory = memory
        self._length = length
        self._binding = self._session.io_binding()

    @property
    def length(self) -> int:
        """Tokens read so far: rows of the cache that count."""
        return self._length

    @property
    def max_seq_len(self) -> int:
        """Tokens that the cache has room for."""
        return self.manifest.max_seq_len

    def __repr__(self) -> str:
        m = self.manifest
        cost = f"{m.bytes_per_token:,} cache bytes per token"
        return f"Decoder({m.model_type}, {self._length}/{m.max_seq_len} tokens, {cost})"

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
            ExportError: onnxruntime failed. In every case the decoder is as before.
        """
        ids = self._checked_ids(token_ids)
        if not isinstance(logits, str) or logits not in ("all", "last"):
            raise OperandError(f"logits is {logits!r}", op="append", expected="'all' or 'last'")
        first = 0 if logits == "all" else len(ids) - 1
        out = np.empty((len(ids) - first, self.manifest.vocab_size), np.float32)

        for start in range(0, len(ids), CHUNK):
            end = min(start + CHUNK, len(ids))
            self._step(ids[start:end], self._length + start, out[max(start - first, 0) : max(end - first, 0)])
        self._length += len(ids)
        return out

    def _step(self, ids: Ids, past: int, out: Logits) -> None:
        """Run the graph once: write the rows of ``ids`` from row ``past`` on, and the last logits to ``out``."""
        inputs = {
            "input_ids": ids,
            "past_len": np.array(past, np.int64),
            "logits_from": np.array(len(ids) - len(out), np.int64),
        }
        self._memory.bind(self._binding, past, past + len(ids))
        run_bound(self._session, self._binding, inputs, {"logits": out})
        self._memory.settle()

    def truncate(self, length: int) -> None:
        """Forget every token from ``length`` on; what is appended next is as if they had never been read.

        Raises:
            CacheError: ``length`` is not in ``[0, self.length]``.
        """
        kept = whole(length)
        if kept is None or not 0 <= kept <= self._length:
            raise CacheError(
                f"truncate to {length!r} of {self._length} tokens",
                op="truncate",
                expected=f"an int in [0, {self._length}]",
                wanted=self._length,
                got=length,
            )
        self._length = kept

    def fork(self) -> Self:
        """Return a second decoder at the same place; the two go on independently and share the weights."""
        other = object.__new__(type(self))
        other.folder, other.manifest = self.folder, self.manifest
        other._session, other._device = self._session, self._device
        rows: dict[str, Bytes] = dict(self._memory.first_rows(self._length))
        other._start(CacheMemory(self.manifest, self._device, rows), self._length)
        return other

    def save(self, file: str | Path) -> None:
        """Write the state to a file, whole or not at all: the tokens' rows, and which model they belong to.

        Raises:
            ExportError: The file cannot be written; an older one there is unchanged.

        Spec: the safetensors format.
        """
        length = self._length
        write_state(Path(file), self.manifest, length, lambda: self._memory.first_rows(length))

    @classmethod
    def restore(cls, folder: str | Path, file: str | Path, provider: str = "cpu", threads: int | None = None) -> Self:
        """Return a decoder at the state that :meth:`save` wrote, as if it had read the tokens again.

        Args:
            folder: The export whose decoder was saved.
            file: What ``save`` wrote.
            provider: As for :meth:`open`.
            threads: As for :meth:`open`.

        Raises:
            ExportError: As for :meth:`open`; or the file is missing, damaged, or the state of another model.
        """
        length, rows = read_state(Path(file), read_manifest(Path(folder)))
        decoder = cls.open(folder, provider, threads)
        decoder._start(CacheMemory(decoder.manifest, provider, rows), length)
        return decoder

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
        prompt = self._checked_ids(token_ids)
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
            if made + 1 == max_new_tokens or self._length == self.max_seq_len:
                return
            row = self.append([token], logits="last")[0]

    def _checked_ids(self, token_ids: TokenIds) -> Ids:
        given = _array(token_ids)
        if given is None or given.ndim != 1 or given.size == 0 or given.dtype.kind not in "iu":
            shown = "no whole numbers" if given is None or given.dtype.kind not in "iu" else f"{given.ndim} axes"
            what = "no token" if given is not None and given.size == 0 else shown
            raise OperandError(what, op="append", expected="a flat list of at least one token id, whole numbers")
        vocab = self.manifest.vocab_size
        wrong = given[(given < 0) | (given >= vocab)]
        if wrong.size:
            raise IndexRangeError(
                f"token id {int(wrong[0])} of a vocabulary of {vocab}",
                op="append",
                expected=f"ids in [0, {vocab})",
                index=int(wrong[0]),
            )
        if self._length + given.size > self.max_seq_len:
            raise CacheOverflowError(
                f"{given.size} tokens after {self._length} pass the end at {self.max_seq_len}",
                op="append",
                expected=f"length + new tokens <= {self.max_seq_len}",
                hint="export with a larger --max-seq-len, or truncate",
                wanted=self.max_seq_len,
                got=self._length + given.size,
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


def _stops(stop_ids: Any) -> frozenset[int]:
    numbers = [whole(token) for token in stop_ids] if isinstance(stop_ids, Iterable) else [None]
    if None in numbers:
        raise OperandError(f"stop_ids is {stop_ids!r}", op="generate", expected="a list of token ids, perhaps empty")
    return frozenset(number for number in numbers if number is not None)
