"""Several texts at once through BatchDecoder: each is what it is alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lazygraph as lg

GOLDENS = Path(__file__).parents[1] / "goldens"


@pytest.mark.parametrize("lowering", ["view", "buffer"])
def test_each_text_is_what_it_is_alone(tmp_path: Path, lowering: Any) -> None:
    for batch in (False, True):
        lg.convert(GOLDENS / "llama", tmp_path / str(batch), max_seq_len=150, batch=batch, lowering=lowering)
    decoder = lg.BatchDecoder.open(tmp_path / "True", 3, threads=1)
    alone = [lg.Decoder.open(tmp_path / "False", threads=1) for _ in range(3)]
    random = np.random.default_rng(0)
    for step, counts in enumerate(([5, 2, 0], [1, 1, 1], [3, 0, 9], [70, 2, 4], [1, 0, 0], [1, 1, 1])):
        ids = [random.integers(0, 160, count).tolist() for count in counts]
        for got, one, read in zip(decoder.append(ids), alone, ids, strict=True):
            assert got.shape == (len(read), 160)
            if read:
                np.testing.assert_allclose(got, one.append(read), rtol=0, atol=1e-4)
        if step == 3:
            to = [one.length - back for one, back in zip(alone, (60, 0, 5), strict=True)]
            decoder.truncate(to)
            for one, length in zip(alone, to, strict=True):
                one.truncate(length)
            other = decoder.fork()
            other.append([[1], [2], [3]])
            decoder.save(tmp_path / "state")
            decoder = lg.BatchDecoder.restore(tmp_path / "True", tmp_path / "state", threads=1)
        assert decoder.lengths == tuple(one.length for one in alone)


def test_what_does_not_fit_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    lg.convert(GOLDENS / "llama", tmp_path / "e", max_seq_len=8, batch=True)
    with pytest.raises(lg.OperandError, match="texts is 0"):
        lg.BatchDecoder.open(tmp_path / "e", 0)
    decoder = lg.BatchDecoder.open(tmp_path / "e", 2, threads=1)
    decoder.append([[1, 2, 3], [4]])
    bad: list[Any] = [[[1]], [[], []], [[1.5], [1]], 5]
    for ids in bad:
        with pytest.raises(lg.OperandError):
            decoder.append(ids)
    with pytest.raises(lg.IndexRangeError):
        decoder.append([[1], [160]])
    with pytest.raises(lg.CacheOverflowError):
        decoder.append([[1] * 6, [1]])
    for to in ([3], [4, 1], [-1, 1], [1, None]):
        with pytest.raises(lg.CacheError):
            decoder.truncate(to)  # type: ignore[arg-type]
    assert decoder.lengths == (3, 1) and repr(decoder) == "BatchDecoder(llama, [3, 1]/8 tokens)"
    decoder.save(tmp_path / "state")
    with pytest.raises(lg.OperandError, match="several texts at once"):
        lg.Decoder.restore(tmp_path / "e", tmp_path / "state")
