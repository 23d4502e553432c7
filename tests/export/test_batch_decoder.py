"""Several texts at once through BatchDecoder: each is what it is alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lazygraph as lg

GOLDENS = Path(__file__).parents[1] / "goldens"


LOWERINGS = ["view", "buffer", "concat"]


@pytest.mark.parametrize("lowering", LOWERINGS)
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


@pytest.mark.parametrize("lowering", LOWERINGS)
def test_windows_of_texts_that_come_and_go(tmp_path: Path, lowering: Any) -> None:
    """Reading, waiting, going back, going aside, files, and a place that another text takes: each as it is alone."""
    for batch in (False, True):
        lg.convert(GOLDENS / "mistral_sliding", tmp_path / str(batch), max_seq_len=90, batch=batch, lowering=lowering)
    decoder = lg.BatchDecoder.open(tmp_path / "True", 3, threads=1)
    start = lg.Decoder.open(tmp_path / "False", threads=1)
    alone, random = [start.fork() for _ in range(3)], np.random.default_rng(1)
    went_back = 0
    for turn in range(60):
        room = [90 - one.length for one in alone]
        most = int(random.choice([1, 4, 13]))
        counts = [min(int(random.integers(0, most + 1)), left) for left in room]
        if any(counts):
            ids = [random.integers(0, 160, count).tolist() for count in counts]
            last = turn % 3 == 0
            got = decoder.append(ids, "last" if last else "all")
            for text, (one, read) in enumerate(zip(alone, ids, strict=True)):
                assert got[text].shape == (min(len(read), 1) if last else len(read), 160)
                if read:
                    np.testing.assert_allclose(got[text], one.append(read)[-len(got[text]) :], rtol=0, atol=1e-4)
        for text, (can, one) in enumerate(zip(decoder.rewindable, alone, strict=True)):
            assert 0 <= can <= one.rewindable or one.length == 0
            back = int(random.integers(0, can + 1)) if turn % 4 == text else 0
            to = list(decoder.lengths)
            to[text] -= back
            decoder.truncate(to)
            one.truncate(one.length - back)
            went_back += back > 0
        if turn % 7 == 6:
            aside = decoder.fork()
            if min(aside.lengths) < 80:
                aside.append([[1, 2, 3, 4, 5, 6, 7] if length < 80 else [] for length in aside.lengths])
            decoder.save(tmp_path / "state")
        if turn % 14 == 13:
            decoder = lg.BatchDecoder.restore(tmp_path / "True", tmp_path / "state", threads=1)
            alone = [_anew(one, tmp_path) for one in alone]
        if turn % 9 == 8:
            decoder.release(turn % 3)
            alone[turn % 3] = start.fork()
        assert decoder.lengths == tuple(one.length for one in alone)
    assert went_back > 8


def _anew(one: lg.Decoder, folder: Path) -> lg.Decoder:
    """Return a decoder from a file: like a restored batch, it has no way back into its last run."""
    one.save(folder / "one")
    return lg.Decoder.restore(folder / "False", folder / "one", threads=1)


@pytest.mark.parametrize("model", ["llama", "mistral_sliding"])
@pytest.mark.parametrize("lowering", LOWERINGS)
def test_rows_that_were_forgotten_never_reach_another_text(tmp_path: Path, model: str, lowering: Any) -> None:
    """A decoder that went back, or whose place another text took, is as a fresh one; memory is poisoned between."""
    lg.convert(GOLDENS / model, tmp_path / "e", max_seq_len=64, batch=True, lowering=lowering)
    used, fresh = (lg.BatchDecoder.open(tmp_path / "e", 2, threads=1) for _ in range(2))
    used.append([[5, 6, 7, 8, 9, 10, 11], [3]])
    used.truncate([0, 1])
    used.release(1)
    assert used.lengths == (0, 0)
    for group in used._runner.memory.groups:
        for slot in group.slots:
            for buffer in slot.buffers:
                buffer.content().view(np.float32)[:] = np.nan
    for ids in ([[1, 2], [4, 5, 6]], [[], [9]], [[7, 8, 9, 1, 2, 3, 4, 5], [1]]):
        for got, wanted in zip(used.append(ids), fresh.append(ids), strict=True):
            assert np.isfinite(got).all()
            np.testing.assert_allclose(got, wanted, rtol=0, atol=1e-5)


def test_a_prompt_longer_than_one_run_beside_a_short_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from lazygraph.export import running

    lg.convert(GOLDENS / "mistral_sliding", tmp_path / "b", batch=True)
    lg.convert(GOLDENS / "mistral_sliding", tmp_path / "one")
    monkeypatch.setattr(running, "CHUNK", 8)
    texts: list[list[int]] = [list(range(30)), [7, 8, 9], [], list(range(60, 76))]
    decoder = lg.BatchDecoder.open(tmp_path / "b", 4, threads=1)
    everything, last = decoder.fork().append(texts), decoder.append(texts, "last")
    for text, all_of_it, end in zip(texts, everything, last, strict=True):
        assert all_of_it.shape[0] == len(text) and end.shape[0] == min(1, len(text))
        if text:
            alone = lg.Decoder.open(tmp_path / "one", threads=1).append(text)
            np.testing.assert_allclose(all_of_it, alone, rtol=0, atol=1e-4)
            np.testing.assert_allclose(end, alone[-1:], rtol=0, atol=1e-4)
    for wrong in (4, -1, None, True):
        with pytest.raises(lg.OperandError, match=f"text {wrong!r} of 4"):
            decoder.release(wrong)  # type: ignore[arg-type]
    with pytest.raises(lg.OperandError, match="logits is 'first'"):
        decoder.append([[1], [], [], []], "first")  # type: ignore[arg-type]
    assert decoder.lengths == (30, 3, 0, 16) and decoder.manifest.batch
