"""How fast a model runs here: a decoder's steps by length, any other model's runs on random inputs."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from lazygraph.errors import OperandError
from lazygraph.export.decoder import Decoder
from lazygraph.export.session import Session, open_session


@dataclass(frozen=True)
class Point:
    """Times of one thing that was run several times.

    Attributes:
        what: ``decode``, ``prefill`` or ``run``.
        length: Tokens: those before a decode step, or those that a prefill reads; 0 for a plain run.
        seconds: The median.
        low: The shortest.
        high: The longest.
    """

    what: str
    length: int
    seconds: float
    low: float
    high: float

    @property
    def per_second(self) -> float:
        """Tokens per second; of a plain run, runs per second."""
        return (self.length if self.what == "prefill" else 1) / self.seconds


def decode_points(decoder: Decoder, lengths: Sequence[int], repeats: int = 5) -> list[Point]:
    """Return the time of one decode step after each number of tokens.

    Raises:
        OperandError: A length that leaves no room for the steps.
    """
    points = []
    rng = np.random.default_rng(0)
    for length in sorted(lengths):
        _room(decoder, length + repeats + 1)
        if length < decoder.length:
            decoder.truncate(length)
        elif length > decoder.length:
            fresh = rng.integers(0, decoder.manifest.vocab_size, length - decoder.length)
            decoder.append(fresh, logits="last")
        token = [int(rng.integers(0, decoder.manifest.vocab_size))]
        decoder.append(token, logits="last")  # the first run of a shape plans its memory
        points.append(_timed("decode", length, repeats, partial(decoder.append, token, logits="last")))
        decoder.truncate(length)
    return points


def prefill_points(decoder: Decoder, lengths: Sequence[int], repeats: int = 3) -> list[Point]:
    """Return the time to read so many tokens from the start.

    Raises:
        OperandError: A length that has no room.
    """
    points = []
    for length in sorted(lengths):
        _room(decoder, length)
        ids = np.random.default_rng(0).integers(0, decoder.manifest.vocab_size, length)

        def step(ids: Any = ids) -> None:
            decoder.truncate(0)
            decoder.append(ids, logits="last")

        step()
        points.append(_timed("prefill", length, repeats, step))
    decoder.truncate(0)
    return points


def run_point(model: Path, sizes: Mapping[str, int], provider: str, threads: int | None, repeats: int) -> Point:
    """Return the time of a model's run on random inputs; sizes that nobody gives are 1.

    Raises:
        ExportError: onnxruntime cannot open or run it.
        OperandError: An input that cannot be made up.
    """
    session = Session(open_session(model, provider, threads))
    feeds = random_feeds(session, sizes)
    session.run(feeds)
    return _timed("run", 0, repeats, lambda: session.run(feeds))


def random_feeds(session: Session, sizes: Mapping[str, int]) -> dict[str, Any]:
    """Return an array for every input: normal numbers, small whole ones, mixed truths.

    Raises:
        OperandError: An input is no tensor of numbers.
    """
    rng = np.random.default_rng(0)
    feeds: dict[str, Any] = {}
    for value in session.raw.get_inputs():
        dtype = session.inputs[value.name]
        if dtype is None or dtype.kind == "s":
            raise OperandError(f"input {value.name!r} is {value.type}", op="bench", expected="tensors of numbers")
        shape = [size if isinstance(size, int) else sizes.get(str(size), 1) for size in value.shape]
        whole = dtype.kind == "b" or dtype.is_integer
        array: Any = rng.integers(0, 2, shape) if whole else rng.standard_normal(shape)
        feeds[value.name] = np.asarray(array).astype(dtype.numpy)
    return feeds


def _room(decoder: Decoder, length: int) -> None:
    if length > decoder.max_seq_len:
        raise OperandError(
            f"{length:,} tokens are measured, and the cache has room for {decoder.max_seq_len:,}",
            op="bench",
            expected="lengths that leave room for the measured steps",
        )


def _timed(what: str, length: int, repeats: int, step: Callable[[], object]) -> Point:
    times = []
    for _ in range(repeats):
        began = time.perf_counter()
        step()
        times.append(time.perf_counter() - began)
    return Point(what, length, statistics.median(times), min(times), max(times))


__all__ = ["Point", "decode_points", "prefill_points", "random_feeds", "run_point"]
