"""The cache with its position at run time: one exported graph for prefill, decode and any chunking."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lazygraph as lg
from lazygraph.cache import LatentCache, Lowering

CAPACITY = 12
TRAILING: list[list[int]] = [[3], [2, 2], []]
LAYERS = 2


def exported(folder: Path, lowering: Lowering, dtype: str) -> onnxruntime.InferenceSession:
    """Save the graph of one step: rows in; buffers, rows that count, and the mask out."""
    n = lg.size("n", min=1, max=CAPACITY)
    rows = lg.input("rows.0", dtype, [n, *TRAILING[0]])
    given_rows = [
        rows,
        *(lg.input(f"rows.{i}", dtype, [n, *sizes], anchor=rows) for i, sizes in enumerate(TRAILING) if i),
    ]
    cache = LatentCache.inputs(rows, LAYERS, CAPACITY, TRAILING, dtype, lowering=lowering)
    before = {f"before.{slot}": cache.slot(0, slot) for slot in range(len(TRAILING))}
    mask = cache.causal_mask("n")
    positions = cache.positions("n")
    for layer in range(LAYERS):
        cache = cache.append(layer, [tensor * (layer + 1) for tensor in given_rows])
    seen = {
        f"seen.{layer}.{s}": cache.slot(layer, s, include_pending=True) for layer in range(LAYERS) for s in range(3)
    }
    cache = cache.advance_by("n")
    path = folder / f"{lowering}-{dtype}.onnx"
    lg.save({**cache.outputs(), **before, **seen, "mask": mask, "positions": positions}, path)
    return onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])


@pytest.fixture(scope="module", params=[("buffer", "float32"), ("buffer", "float16"), ("view", "float32")])
def step(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[str, str, onnxruntime.InferenceSession]:
    lowering, dtype = request.param
    return lowering, dtype, exported(tmp_path_factory.mktemp("cache"), lowering, dtype)


@settings(max_examples=40, deadline=None)
@given(chunks=st.lists(st.integers(1, 5), min_size=1, max_size=6), seed=st.integers(0, 1000), spare=st.integers(0, 3))
def test_any_chunking_fills_the_buffers_alike(
    step: tuple[str, str, onnxruntime.InferenceSession], chunks: list[int], seed: int, spare: int
) -> None:
    lowering, dtype, session = step
    random = np.random.default_rng(seed)
    model = [[np.zeros((CAPACITY, *sizes), dtype) for sizes in TRAILING] for _ in range(LAYERS)]
    held = [[slot.copy() for slot in layer] for layer in model]
    names = [output.name for output in session.get_outputs()]
    past = 0
    for count in chunks:
        if past + count > CAPACITY:
            break
        new = [random.standard_normal((count, *sizes)).astype(dtype) for sizes in TRAILING]
        bound = CAPACITY if lowering == "buffer" else min(CAPACITY, past + count + spare)
        feeds: dict[str, Any] = {f"rows.{i}": rows for i, rows in enumerate(new)}
        feeds["past_len"] = np.array(past)
        for layer in range(LAYERS):
            for slot in range(len(TRAILING)):
                feeds[f"past.{layer}.slot{slot}"] = held[layer][slot][:bound]
        got = dict(zip(names, session.run(None, feeds), strict=True))

        for layer in range(LAYERS):
            for slot, rows in enumerate(new):
                model[layer][slot][past : past + count] = rows * np.array(layer + 1, dtype)
                held[layer][slot][:bound] = got[f"present.{layer}.slot{slot}"]
                np.testing.assert_array_equal(held[layer][slot], model[layer][slot])
                seen = bound if lowering == "view" else past + count
                np.testing.assert_array_equal(got[f"seen.{layer}.{slot}"], model[layer][slot][:seen])
        if lowering == "buffer":
            np.testing.assert_array_equal(got["before.0"].shape[0], max(1, past))
        columns = np.arange(bound if lowering == "view" else past + count)
        np.testing.assert_array_equal(got["mask"], columns[None] <= past + np.arange(count)[:, None])
        np.testing.assert_array_equal(got["positions"], past + np.arange(count))
        past += count


def sized(tensor: lg.Tensor, *wanted: int | str) -> bool:
    return len(tensor.shape) == len(wanted) and all(a == b for a, b in zip(tensor.shape, wanted, strict=True))


def test_sizes_keep_their_algebra() -> None:
    n = lg.size("n", min=1, max=CAPACITY)
    rows = lg.input("rows", "float32", [n, 4])
    cache = LatentCache.inputs(rows, 1, CAPACITY, [[4]])
    assert sized(cache.slot(0, 0), "max(1, past_len)", 4)
    cache = cache.append(0, [rows])
    assert sized(cache.slot(0, 0, include_pending=True), "past_len + n", 4)
    assert sized(cache.causal_mask("n"), "n", "past_len + n")
    assert cache.advance_by("n").current_seq_len == "past_len + n"


def test_a_known_overflow_is_refused_even_at_run_time_positions() -> None:
    rows = lg.input("rows", "float32", [CAPACITY + 1, 4])
    cache = LatentCache.inputs(rows, 1, CAPACITY, [[4]])
    with pytest.raises(lg.CacheOverflowError) as caught:
        cache.append(0, [rows])
    assert caught.value.layer == 0 and caught.value.wanted == CAPACITY


@pytest.mark.parametrize("position", [3, None, "", "past len", b"past"])
def test_a_position_that_is_no_name_is_refused(position: Any) -> None:
    rows = lg.input("rows", "float32", [2, 4])
    for made in (
        lambda: LatentCache.inputs(rows, 1, CAPACITY, [[4]], position=position),
        lambda: lg.LayeredCache.inputs(rows, CAPACITY, [lg.Rows({"k": [4]})], position=position),
    ):
        with pytest.raises(lg.ShapeError) as caught:
            made()
        assert caught.value.what == f"{position!r} cannot name a size"
