"""What lies beyond the rows that count never reaches a result: NaN, infinity and huge numbers in the decoder's memory.

Rows beyond those that count are masked, but a mask is no wall: one NaN in a row that attention touches, times a weight
of zero, is NaN. So each kind is poisoned where such rows can come from: in the buffers, and by tokens that were read
and forgotten again.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import lazygraph as lg
from lazygraph.dtypes import as_dtype
from lazygraph.export.groups import Rows
from lazygraph.export.ring import Ring
from lazygraph.memory import Lowering
from tests.cache.conftest import Fresh
from tests.support.family import KINDS, LOWERINGS, POISON, Array
from tests.support.family_model import Model

TOKENS = [3, 1, 4, 1, 5, 8, 2, 6, 5, 3, 5, 0, 7, 7, 2]
each_decoder = pytest.mark.parametrize(("name", "lowering"), list(itertools.product(KINDS, LOWERINGS)))
each_poison = pytest.mark.parametrize("token", POISON, ids=lambda token: str(POISON[token]))


def close(got: Array, wanted: Array) -> None:
    np.testing.assert_allclose(got, wanted, rtol=0, atol=3e-5)


def model_of(name: str) -> Model:
    return Model(KINDS[name], "float32", "float32")


def garbage(shape: Sequence[int], dtype: str, value: float) -> Any:
    """Return bytes of rows that are no numbers that a model makes; of whole numbers, the largest."""
    kind = as_dtype(dtype).numpy
    filled = np.full(shape[-1] // np.dtype(kind).itemsize, value if as_dtype(dtype).is_float else 127, kind)
    return np.broadcast_to(filled.view(np.uint8), tuple(shape))


def poison(decoder: lg.Decoder, value: float) -> int:
    """Fill all memory that holds nothing, and return how many rows those are.

    Lowered as view, rows that are bound and do not count are zeros, which the decoder sees to; no others are bound.
    """
    memory, poisoned = decoder._runner.memory, 0
    for group in memory.groups:
        for slot in group.slots:
            bound = decoder.manifest.lowering == "view" and isinstance(group, (Rows, Ring))
            for buffer in slot.buffers:
                if bound or slot.slot.kind == "once" or len(buffer.holders) > 1:  # another decoder's too
                    continue
                counts = slot.slot.kept_rows(decoder.length) if buffer is slot.read(memory.now.flip) else 0
                beyond = buffer.content()[:, counts:]
                beyond[:] = garbage(beyond.shape, slot.slot.dtype, value)
                poisoned += beyond.shape[1]
    return poisoned


@each_decoder
@pytest.mark.parametrize("value", POISON.values(), ids=str)
def test_rows_that_hold_nothing_may_hold_anything(fresh: Fresh, name: str, lowering: Lowering, value: float) -> None:
    decoder, wanted = fresh(name, lowering), model_of(name).logits(TOKENS)
    decoder.append(TOKENS[:1])  # makes the memory its own
    for count in (1, 1, 2, 3, 1, 6):
        done = decoder.length
        poisoned = poison(decoder, value)
        assert poisoned or lowering == "view" or done >= 5  # a window of 5 is full
        close(decoder.append(TOKENS[done : done + count]), wanted[done : done + count])


@each_decoder
@each_poison
def test_tokens_that_were_forgotten_leave_nothing(fresh: Fresh, name: str, lowering: Lowering, token: int) -> None:
    wanted = model_of(name).logits(TOKENS)
    for read, bad, kept in itertools.product((0, 3, 9), ([token], [token] * 3, [token] * 12), (0, 2)):
        decoder = fresh(name, lowering)
        if read:
            decoder.append(TOKENS[:read])
        # The last run is undone as a whole, or all but its first tokens, which are no poison.
        good = TOKENS[read : read + kept]
        decoder.append([*good, *bad])
        try:
            decoder.truncate(read + kept)
        except lg.CacheError:  # a window that the run wrote over as a whole: back to where it began
            assert kept and KINDS[name].windows and len(good + bad) > decoder.rewindable
            decoder.truncate(read)
        for count in (1, 3):
            done = decoder.length
            close(decoder.append(TOKENS[done : done + count]), wanted[done : done + count])


@each_decoder
@each_poison
def test_guesses_that_were_refused_leave_nothing(fresh: Fresh, name: str, lowering: Lowering, token: int) -> None:
    wanted = model_of(name).logits(TOKENS)
    for read in (1, 2, 8):
        decoder = fresh(name, lowering)
        decoder.append(TOKENS[:read])
        found = decoder.verify(TOKENS[read : read + 1], [token, token], lambda row: 0)
        assert (found.accepted, found.token, decoder.length) == (0, 0, read + 1)
        # Not so the logits of the run itself: what it reads after a token is masked there, and NaN times 0 is NaN.
        close(decoder.append(TOKENS[read + 1 : read + 3]), wanted[read + 1 : read + 3])


@each_decoder
def test_a_run_that_stopped_leaves_nothing(
    fresh: Fresh, monkeypatch: pytest.MonkeyPatch, name: str, lowering: Lowering
) -> None:
    wanted = model_of(name).logits(TOKENS)
    for read, token, count in itertools.product((0, 2, 7), POISON, (1, 2, 9)):
        decoder = fresh(name, lowering)
        if read:
            decoder.append(TOKENS[:read])
        session = decoder._runner.session

        class Stopping:
            def run_with_iobinding(self, binding: Any, *rest: Any) -> None:
                session.run_with_iobinding(binding, *rest)  # noqa: B023 (called before the next turn)
                raise KeyboardInterrupt

        decoder._runner.session = Stopping()
        with pytest.raises(KeyboardInterrupt):
            decoder.append([token] * count)
        decoder._runner.session = session
        assert decoder.length == read
        close(decoder.append(TOKENS[read : read + 3]), wanted[read : read + 3])


@each_decoder
def test_a_rewound_decoder_equals_a_fresh_one(fresh: Fresh, name: str, lowering: Lowering) -> None:
    wanted = model_of(name).logits(TOKENS)
    for chunks in ([12], [1] * 12, [5, 7], [10, 1, 1], [3, 2, 4, 3]):
        decoder = fresh(name, lowering)
        for count in chunks:
            decoder.append(TOKENS[decoder.length : decoder.length + count])
        reached = 0
        for to in range(12):
            other = decoder.fork()
            try:
                other.truncate(to)
            except lg.CacheError:
                assert decoder.rewindable < 12 - to and to > 0 and (KINDS[name].windows or KINDS[name].layered)
                assert other.length == 12
                close(other.append(TOKENS[12:13]), wanted[12:13])
                continue
            reached += 1
            close(other.append(TOKENS[to : to + 1]), wanted[to : to + 1])
            close(other.append(TOKENS[to + 1 : to + 3]), wanted[to + 1 : to + 3])
        assert reached >= max(decoder.rewindable, 1)
