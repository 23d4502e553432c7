"""The assertions of ``lazygraph.testing``: what passes, what fails, and that a failure names the node and the line."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import lazygraph as lg
from lazygraph.testing import assert_decodes_like, assert_matches, assert_valid, feeds

W = np.random.default_rng(0).standard_normal((4, 3)).astype(np.float32)


def layer(scale: float = 1.0) -> dict[str, lg.Tensor]:
    x = lg.input("x", lg.float32, ["n", 4])
    h = lg.relu(x @ x.const(W, "w"))
    h = h * scale
    return {"y": lg.softmax(h, axis=-1)}


def by_numpy(x: np.ndarray) -> np.ndarray:
    e = np.exp(np.maximum(x @ W, 0))
    return np.asarray(e / e.sum(-1, keepdims=True))


X = {"x": np.random.default_rng(1).standard_normal((5, 4)).astype(np.float32)}


# ---- assert_valid ---------------------------------------------------------------------------------------------------


def test_a_valid_graph_passes_as_tensors_and_as_a_file(tmp_path: Path) -> None:
    assert_valid(layer(), target="cpu", opset=17)
    lg.save(layer(), tmp_path / "m.onnx", opset=17)
    assert_valid(tmp_path / "m.onnx", target="cpu", opset=17)
    with pytest.raises(AssertionError, match="opset-too-new"):
        assert_valid(tmp_path / "m.onnx", opset=16)


def test_what_a_provider_cannot_run_is_not_valid_for_it() -> None:
    x = lg.input("x", "bfloat16", [2, 2])
    assert_valid(x @ x)
    with pytest.raises(AssertionError, match="CPUExecutionProvider cannot run it on bfloat16"):
        assert_valid(x @ x, target="cpu")


# ---- assert_matches -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("reference", [by_numpy, "onnx"])
def test_a_graph_matches_a_function_and_onnx(reference: Any) -> None:
    assert_matches(layer(), reference, X)
    assert_matches(layer(), reference, [X, X])
    assert_matches(layer(), reference, feeds(layer()), max_examples=5)


def test_a_graph_matches_another_model(tmp_path: Path) -> None:
    lg.save(layer(), tmp_path / "m.onnx")
    assert_matches(layer(), tmp_path / "m.onnx", X)
    assert_matches(layer(), lg.to_onnx(layer()), X)


def test_two_models_part_at_the_node_that_differs_and_at_its_line(tmp_path: Path) -> None:
    lg.save(layer(), tmp_path / "m.onnx")
    x = lg.input("x", lg.float32, ["n", 4])
    h = lg.leaky_relu(x @ x.const(W, "w"), alpha=0.5) * 1.0
    with pytest.raises(AssertionError) as caught:
        assert_matches({"y": lg.softmax(h, axis=-1)}, tmp_path / "m.onnx", X)
    text = str(caught.value)
    line = re.search(r"made at    : .*test_assertions.py:(\d+)", text)
    assert line is not None, text
    source = Path(__file__).read_text().splitlines()[int(line[1]) - 1]
    assert "leaky_relu" in source
    assert "x : float32 (5, 4)" in text


def test_a_wrong_function_is_told_from_a_wrong_runtime() -> None:
    with pytest.raises(AssertionError) as caught:
        assert_matches(layer(), lambda x: by_numpy(x) * 2, X)
    assert "onnx's evaluator agrees with onnxruntime: the graph says something else" in str(caught.value)
    assert re.search(r"first node : Softmax '.*', where graph and reference part", str(caught.value))


def test_inner_values_by_name_find_the_first_node() -> None:
    graph = layer()
    model = lg.to_onnx(graph)
    product = model.graph.node[0].output[0]

    def reference(x: np.ndarray) -> dict[str, np.ndarray]:
        return {"y": by_numpy(x) * 2, product: x @ W + 1}

    with pytest.raises(AssertionError) as caught:
        assert_matches(graph, reference, X)
    assert re.search(r"first node : MatMul", str(caught.value))
    with pytest.raises(AssertionError, match="first node : MatMul"):
        assert_matches(graph, lambda x: {"y": by_numpy(x), product: x @ W + 1}, X)


def test_tolerances_are_those_asked_for() -> None:
    assert_matches(layer(), lambda x: by_numpy(x) + 0.01, X, atol=0.02)
    with pytest.raises(AssertionError):
        assert_matches(layer(), lambda x: by_numpy(x) + 0.01, X)


def test_shapes_and_whole_numbers_must_be_equal() -> None:
    x = lg.input("x", lg.int64, [3])
    arrays = {"x": np.arange(3)}
    with pytest.raises(AssertionError, match="1 of 3 elements, first at"):
        assert_matches(x + 1, lambda x: x + np.array([1, 1, 2]), arrays)
    with pytest.raises(AssertionError, match=r"shape \(3,\) for \(1, 3\)"):
        assert_matches(x + 1, lambda x: (x + 1)[None], arrays)


def test_what_is_no_reference_is_refused() -> None:
    with pytest.raises(lg.OperandError, match="the reference returns 2 arrays"):
        assert_matches(layer(), lambda x: (x, x), X)
    with pytest.raises(lg.OperandError, match="is no reference"):
        assert_matches(layer(), 7, X)  # type: ignore[arg-type]
    with pytest.raises(lg.OperandError, match="no inputs"):
        assert_matches(layer(), by_numpy, [])


# ---- feeds ----------------------------------------------------------------------------------------------------------


def many() -> dict[str, lg.Tensor]:
    n = lg.size("n", min=2, max=7)
    x = lg.input("x", lg.float32, [n, 3])
    i = lg.input("i", lg.int64, ["m"], anchor=x)
    lg.input("twice", lg.float16, ["2*n"], anchor=x)
    lg.input("half", "bfloat16", ["n", "m"], anchor=x)
    lg.input("yes", lg.bool_, ["m"], anchor=x)
    lg.input("text", lg.string, [2], anchor=x)
    return {"y": lg.gather(x, i, axis=0)}


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(feeds(many(), bounds={"i": (0, 1)}, sizes={"m": (1, 4)}))
def test_drawn_inputs_share_their_named_sizes_and_keep_types_and_bounds(drawn: dict[str, Any]) -> None:
    n, m = len(drawn["x"]), len(drawn["i"])
    assert 2 <= n <= 7
    assert 1 <= m <= 4
    assert drawn["x"].shape == (n, 3)
    assert drawn["twice"].shape == (2 * n,)
    assert drawn["half"].shape == (n, m)
    assert (drawn["yes"].shape, drawn["yes"].dtype) == ((m,), np.bool_)
    assert drawn["half"].dtype.name == "bfloat16"
    assert all(isinstance(item, str) for item in drawn["text"])
    assert ((drawn["i"] >= 0) & (drawn["i"] <= 1)).all()


def test_drawn_inputs_run() -> None:
    x = lg.input("x", lg.float32, [lg.size("n", min=2), 3])
    i = lg.input("i", lg.int64, ["m"], anchor=x)
    drawn = feeds(lg.gather(x, i, axis=0), bounds={"i": (-2, 1)})
    assert_matches(lg.gather(x, i, axis=0), lambda x, i: x[i], drawn, max_examples=10)


@settings(max_examples=10, deadline=None)
@given(feeds(lg.input("x", lg.float32, [50, 50]), bounds={"x": (2, 3)}))
def test_large_arrays_keep_their_bounds(drawn: dict[str, Any]) -> None:
    assert drawn["x"].min() >= 2
    assert drawn["x"].max() <= 3


def test_elements_may_come_from_a_strategy() -> None:
    x = lg.input("x", lg.float32, [3])

    @settings(max_examples=5, deadline=None)
    @given(feeds(x, bounds={"x": st.just(1.5)}))
    def law(drawn: dict[str, Any]) -> None:
        assert drawn["x"].tolist() == [1.5] * 3

    law()


def test_a_bound_of_no_input_is_refused() -> None:
    with pytest.raises(lg.OperandError, match="there is no input 'z'"):
        feeds(layer(), bounds={"z": (0, 1)})
    with pytest.raises(lg.OperandError, match="there is no size 'z'"):
        feeds(layer(), sizes={"z": 1})


# ---- assert_decodes_like --------------------------------------------------------------------------------------------


def step(wrong: bool = False) -> dict[str, lg.Tensor]:
    x = lg.input("x", lg.float32, [lg.size("n", min=1, max=8), 4])
    cache = lg.KvCache.inputs(x, 1, 8, [[4], [4]])
    mask = cache.causal_mask("n")
    cache = cache.append(0, [x, x * 2.0])
    k, v = (cache.slot(0, slot, include_pending=True) for slot in (0, 1))
    scores = x @ lg.transpose(k, [1, 0])
    scores = scores if wrong else lg.where(mask, scores, -1e9)
    return {"y": lg.softmax(scores, axis=-1) @ v, **cache.advance_by("n").outputs()}


def test_a_causal_step_decodes_alike_in_any_chunking() -> None:
    assert_decodes_like(step())
    tokens = np.random.default_rng(2).standard_normal((5, 4)).astype(np.float32)
    scores = np.where(np.tril(np.ones((5, 5), bool)), tokens @ tokens.T, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    expected = weights / weights.sum(-1, keepdims=True) @ (tokens * 2)
    assert_decodes_like(step(), {"x": tokens}, expected, chunkings=[[2, 3], [1, 4]])


def test_a_step_that_sees_later_tokens_is_found() -> None:
    with pytest.raises(AssertionError, match=r"y of chunks \[1, 1, 1, 1, 1, 1\] departs from one pass at token 0"):
        assert_decodes_like(step(wrong=True))


def test_an_export_folder_decodes_like_its_golden(tmp_path: Path, goldens: Path) -> None:
    from safetensors.numpy import load_file

    golden = load_file(goldens / "llama" / "golden.safetensors")
    lg.convert(goldens / "llama", tmp_path / "out", warn=lambda text: None)
    tokens = golden["tokens"][:8]
    assert_decodes_like(tmp_path / "out", tokens, golden["logits"][:8])
    with pytest.raises(AssertionError, match="logits of one pass departs from the reference at token 0"):
        assert_decodes_like(tmp_path / "out", tokens, golden["logits"][:8] + 1)


def test_chunks_that_do_not_sum_up_and_graphs_without_a_cache_are_refused() -> None:
    with pytest.raises(lg.OperandError, match=r"chunks \[1, 1\] of 6 tokens"):
        assert_decodes_like(step(), chunkings=[[1, 1]])
    with pytest.raises(lg.OperandError, match="the graph has no input past"):
        assert_decodes_like(layer())
