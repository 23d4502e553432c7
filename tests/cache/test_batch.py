"""A batch's cache against numpy: places, masks, padding and refusals, on exported files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lazygraph as lg
from lazygraph import nn
from lazygraph.memory import Lowering

Array = np.ndarray[Any, Any]
CAPACITY, HEADS, SIZE = 10, 2, 4


def exported(path: Path, dtype: str, lowering: Lowering) -> onnxruntime.InferenceSession:
    """Save one step: rows that are keys, values and queries at once; one slot of single numbers beside them."""
    ids = lg.input("x", dtype, ["batch", lg.size("n", min=1, max=CAPACITY)])
    row = [HEADS, SIZE]
    cache = lg.BatchCache.inputs(
        ids, 1, CAPACITY, [row, row, []], dtype, slot_names=["k", "v", "id"], lowering=lowering
    )
    step = cache.step("n")
    flat = lg.reshape(ids, [-1])
    rows = lg.reshape(flat, [-1, 1, 1]) * ids.const(
        np.linspace(-1, 1, HEADS * SIZE).reshape(1, HEADS, SIZE).astype(dtype)
    )
    y, cache = cache.attend(
        0, [rows, rows * 2.0, flat], step, lambda held, mask: nn.attention(rows, held[0], held[1], mask, 0.5)
    )
    cache = cache.advance_by("n")
    outputs = {"y": y, "positions": cache.positions("n"), "mask": cache.causal_mask("n"), "lengths": cache.lengths}
    lg.save({**outputs, **cache.outputs()}, path)
    return onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])


@pytest.fixture(scope="module", params=[("float32", "view"), ("float32", "buffer"), ("float16", "view")])
def step(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    dtype, lowering = request.param
    return dtype, lowering, exported(tmp_path_factory.mktemp("batch") / "m.onnx", dtype, lowering)


@settings(max_examples=25, deadline=None)
@given(
    turns=st.lists(st.lists(st.integers(0, 4), min_size=3, max_size=3), min_size=1, max_size=5), seed=st.integers(0, 99)
)
def test_any_ragged_steps_are_what_each_text_is_alone(step: Any, turns: list[list[int]], seed: int) -> None:
    dtype, lowering, session = step
    random = np.random.default_rng(seed)
    texts: list[list[float]] = [[], [], []]
    held = {f"past.0.{name}": np.full((3, CAPACITY, *row), np.nan, dtype) for name, row in SLOTS.items()}
    for counts in turns:
        counts = [min(count, CAPACITY - len(text)) for count, text in zip(counts, texts, strict=True)]
        n = max(counts)
        if n == 0:
            continue
        ids = np.full((3, n), 99, dtype)
        for which, count in enumerate(counts):
            ids[which, n - count :] = random.normal(size=count)
        past = np.array([len(text) for text in texts])
        bound = CAPACITY if lowering == "buffer" else int((past + counts).max())
        feeds = {name: array[:, :bound] for name, array in held.items()}
        names = [output.name for output in session.get_outputs()]
        values = session.run(names, {"x": ids, "past_len": past, "new_len": np.array(counts), **feeds})
        got = dict(zip(names, values, strict=True))
        assert np.isfinite(got["y"]).all()
        y = got["y"].reshape(3, n, -1)
        for which, count in enumerate(counts):
            texts[which] += ids[which, n - count :].tolist()
            length = len(texts[which])
            np.testing.assert_array_equal(got["lengths"][which], length)
            np.testing.assert_array_equal(got["present.0.id"][which, :length], np.array(texts[which], dtype))
            assert np.isnan(got["present.0.id"][which, length:]).all()
            np.testing.assert_array_equal(got["positions"][which, n - count :], np.arange(length - count, length))
            np.testing.assert_array_equal(got["mask"][which, n - count :], np.tri(count, bound, length - count, bool))
            close = 1e-5 if dtype == "float32" else 2e-2
            np.testing.assert_allclose(y[which, n - count :], alone(texts[which])[length - count :], atol=close)
        for name in held:
            held[name][:, :bound] = got[name.replace("past", "present")]


SLOTS: dict[str, list[int]] = {"k": [HEADS, SIZE], "v": [HEADS, SIZE], "id": []}


def alone(text: list[float]) -> Array:
    """Return attention over one whole text, in float64."""
    rows = np.array(text)[:, None, None] * np.linspace(-1, 1, HEADS * SIZE).reshape(1, HEADS, SIZE)
    scores = np.einsum("ihd,jhd->hij", rows, rows) * 0.5
    scores[:, ~np.tri(len(text), dtype=bool)] = -np.inf
    weights = np.exp(scores - scores.max(-1, keepdims=True, initial=-1e9))
    weights /= weights.sum(-1, keepdims=True)
    mixed: Array = np.einsum("hij,jhd->ihd", weights, rows * 2).reshape(len(text), HEADS * SIZE)
    return mixed


def test_refusals() -> None:
    ids = lg.input("x", "float32", ["batch", "n"])
    with pytest.raises(lg.ShapeError, match="no batch"):
        lg.BatchCache.inputs(lg.input("x", "float32", ["n"]), 1, 8, [[4]])
    cache = lg.BatchCache.inputs(ids, 1, 8, [[4]])
    assert repr(cache) == "BatchCache(batch x 1 layers x (slot0 [4]) float32, 8 rows, 128 bytes each)"
    with pytest.raises(lg.CacheError, match="a length of its own"):
        _ = cache.current_seq_len
    rows = lg.reshape(lg.concat([ids] * 4, 1), [-1, 4])
    with pytest.raises(lg.CacheStepError, match="the step is over"):
        cache.append(0, [rows]).advance_by("n").append(0, [rows])
    with pytest.raises(lg.CacheStepError, match="layer 0 was given 0 rows"):
        cache.advance_by("n")
    wide = lg.input("x", "float32", ["batch", 9])
    over = lg.BatchCache.inputs(wide, 1, 8, [[]])
    with pytest.raises(lg.CacheOverflowError, match="9 rows pass the end at 8"):
        over.append(0, [lg.reshape(wide, [-1])])
