"""Faults that users of other caches met: one slot written twice, a window that is wrong when full, ragged batches."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest

import lazygraph as lg
from lazygraph import nn

Array = np.ndarray[Any, Any]


@pytest.mark.parametrize("sinks", [0, 1])
def test_a_chunk_longer_than_the_window_writes_no_row_twice_and_the_same_on_every_run(
    tmp_path: Path, sinks: int
) -> None:
    """B08: ScatterND with one index twice gives whatever thread comes last; twenty runs on eight threads agree."""
    width, window, chunk = 4_096, 4, 9
    rows = lg.input("rows", lg.float32, [lg.size("n", min=1, max=64), width])
    cache = lg.RotatingCache.inputs(rows, 1, 64, [[width]], window=window, sinks=sinks)
    lg.save(cache.append(0, [rows]).advance_by("n").outputs(), tmp_path / "m.onnx")
    options = ort.SessionOptions()
    options.intra_op_num_threads = 8
    session = ort.InferenceSession(tmp_path / "m.onnx", options, providers=["CPUExecutionProvider"])
    given = np.repeat(np.arange(chunk, dtype=np.float32)[:, None], width, 1)
    feeds = {"rows": given, "past_len": np.array(0), "past.0.slot0": np.full((sinks + window, width), -1, np.float32)}
    wanted = np.full(sinks + window, -1.0)
    for position in range(chunk):
        wanted[position if position < sinks else sinks + (position - sinks) % window] = position
    for _ in range(20):
        (kept,) = session.run(["present.0.slot0"], feeds)
        assert np.array_equal(kept, np.repeat(wanted[:, None], width, 1).astype(np.float32))


@pytest.mark.parametrize("window", [1, 2, 4])
def test_a_window_is_right_before_at_and_after_it_fills(tmp_path: Path, window: int) -> None:
    """B09: attention one token at a time equals full attention under a banded mask, around the window."""
    x = lg.input("x", lg.float32, [lg.size("n", min=1, max=32), 1, 4])
    cache = lg.RotatingCache.inputs(x, 1, 32, [[1, 4], [1, 4]], window=window, slot_names=["k", "v"])
    y, cache = cache.attend(0, [x, x], cache.step("n"), lambda kept, mask: nn.attention(x, kept[0], kept[1], mask, 0.5))
    lg.save({"y": y, **cache.advance_by("n").outputs()}, tmp_path / "m.onnx")
    session = ort.InferenceSession(tmp_path / "m.onnx", providers=["CPUExecutionProvider"])
    tokens = np.random.default_rng(window).normal(size=(2 * window + 3, 1, 4)).astype(np.float32)
    flat = tokens[:, 0].astype(np.float64)
    behind = np.arange(len(flat))[:, None] - np.arange(len(flat))
    share = np.where((behind >= 0) & (behind < window), np.exp(flat @ flat.T / 2), 0)
    wanted = share / share.sum(1, keepdims=True) @ flat
    past: dict[str, Array] = {f"past.0.{slot}": np.zeros((window, 1, 4), np.float32) for slot in "kv"}
    for done in range(len(tokens)):
        made, *kept = session.run(None, {"x": tokens[done : done + 1], "past_len": np.array(done), **past})
        past = dict(zip(past, kept, strict=True))
        np.testing.assert_allclose(made[0], wanted[done], atol=1e-5, err_msg=f"token {done}, window {window}")


def test_texts_of_a_left_padded_batch_have_positions_and_masks_of_their_own(tmp_path: Path, goldens: Path) -> None:
    """B13: in a batch of texts of 1, 3 and 7 tokens each gives the logits that it gives alone."""
    for batch, name in ((False, "alone"), (True, "together")):
        lg.convert(goldens / "llama", tmp_path / name, max_seq_len=16, batch=batch)
    texts = [[5], [9, 3, 7], [1, 2, 3, 4, 5, 6, 7]]
    session = ort.InferenceSession(tmp_path / "together" / "model.onnx", providers=["CPUExecutionProvider"])
    ids = np.zeros((3, 7), np.int64)
    for row, text in zip(ids, texts, strict=True):
        row[7 - len(text) :] = text
    feeds: dict[str, Array] = {
        "input_ids": ids,
        "past_len": np.zeros(3, np.int64),
        "new_len": np.array([len(text) for text in texts]),
        "logits_from": np.array(6),
    }
    for one in session.get_inputs():
        if one.name.startswith("past."):
            feeds[one.name] = np.zeros((3, 16, *one.shape[2:]), np.float32)
    logits = session.run(["logits"], feeds)[0]
    for row, text in zip(logits, texts, strict=True):
        alone = lg.Decoder.open(tmp_path / "alone").append(text, logits="last")
        np.testing.assert_allclose(row, alone, atol=2e-5)
