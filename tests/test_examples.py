"""Every example is a short program that runs as it stands, writes a file that plain onnxruntime runs, and is right."""

from __future__ import annotations

import re
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from safetensors.numpy import load_file

import lazygraph as lg

ROOT = Path(__file__).parents[1]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


def _run(example: Path, folder: Path, *more: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-W", "error", str(example), "made.onnx", *more],
        cwd=folder,
        capture_output=True,
        text=True,
        env={"PYTHONPATH": str(ROOT), "PATH": ""},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout.splitlines()


def test_the_examples_are_there() -> None:
    expected = {"cnn.py", "greedy_loop.py", "mla_block.py", "streaming.py", "two_projection.py"}
    assert expected <= {example.name for example in EXAMPLES}


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.stem)
def test_an_example_is_short_and_says_what_it_is(example: Path) -> None:
    text = example.read_text(encoding="utf-8")
    assert len(text.splitlines()) < 60
    assert text.startswith('"""')


def _in_pieces_as_at_once(printed: list[str]) -> None:
    differences = [float(found[1]) for line in printed if (found := re.search(r"largest difference (\S+)$", line))]
    assert len(differences) == 3
    assert max(differences) < 1e-5


def test_the_latent_block_keeps_what_it_says_and_chooses_per_run(tmp_path: Path) -> None:
    _in_pieces_as_at_once(_run(ROOT / "examples" / "mla_block.py", tmp_path))
    graph = onnx.load(tmp_path / "made.onnx").graph
    sizes = {value.name: [dim.dim_value for dim in value.type.tensor_type.shape.dim] for value in graph.input}
    assert sizes["past.0.c_kv"] == [32, 16]
    assert sizes["past.0.k_pe"] == [32, 8]
    assert sum(node.op_type == "If" for node in graph.node) == 1


def test_the_two_projection_decoder_has_one_slot_per_layer(tmp_path: Path) -> None:
    printed = _run(ROOT / "examples" / "two_projection.py", tmp_path)
    assert "a token costs 256 bytes" in printed[0]
    _in_pieces_as_at_once(printed)
    graph = onnx.load(tmp_path / "made.onnx").graph
    assert [value.name for value in graph.output] == ["y", "present.0.kept", "present.1.kept"]


def test_the_classifier_takes_every_image_and_equals_numpy(tmp_path: Path) -> None:
    printed = _run(ROOT / "examples" / "cnn.py", tmp_path)
    assert printed[:2] == [
        "after stage 0: (batch, 8, height//2, width//2)",
        "after stage 1: (batch, 16, height//4, width//4)",
    ]
    assert [float(line.rsplit(" ", 1)[1]) < 1e-6 for line in printed[2:]] == [True, True]


def test_the_sliding_window_keeps_its_rows_and_equals_numpy(tmp_path: Path) -> None:
    printed = _run(ROOT / "examples" / "sliding_window.py", tmp_path)
    assert printed[0] == "896 bytes for up to 1,000,000 tokens"
    _in_pieces_as_at_once(printed)
    model = onnx.load(tmp_path / "made.onnx")
    w = {
        one.name: onnx.numpy_helper.to_array(one).astype(np.float64)
        for one in model.graph.initializer
        if one.name in "qkvo"
    }
    session = onnxruntime.InferenceSession(tmp_path / "made.onnx", providers=["CPUExecutionProvider"])
    x = np.random.default_rng(4).normal(size=(20, 16)).astype(np.float32)
    rows = np.zeros((7, 2, 8), np.float32)
    y = session.run(["y"], {"x": x, "past_len": np.array(0), "past.0.k": rows, "past.0.v": rows})[0]

    q, k, v = ((x @ w[name]).reshape(20, 2, 8) for name in "qkv")
    behind = np.arange(20)[:, None] - np.arange(20)
    seen = (behind >= 0) & ((behind < 6) | (np.arange(20) < 1))
    share = np.where(seen, np.exp(np.einsum("ihd,jhd->hij", q, k) / 8**0.5), 0)
    mixed = np.einsum("hij,jhd->ihd", share / share.sum(-1, keepdims=True), v).reshape(20, 16)
    np.testing.assert_allclose(y, x + mixed @ w["o"], atol=1e-5)


def test_the_recogniser_streams_and_equals_numpy(tmp_path: Path) -> None:
    printed = _run(ROOT / "examples" / "streaming.py", tmp_path)
    assert printed[0] == "tail: state, 256 bytes, k: rows, 8,192 bytes, v: rows, 8,192 bytes"
    _in_pieces_as_at_once(printed)
    model = onnx.load(tmp_path / "made.onnx")
    weights = {one.name: onnx.numpy_helper.to_array(one).astype(np.float64) for one in model.graph.initializer}
    session = onnxruntime.InferenceSession(tmp_path / "made.onnx", providers=["CPUExecutionProvider"])
    frames = np.random.default_rng(7).normal(size=(9, 16)).astype(np.float32)
    tail, rows = np.zeros((4, 16), np.float32), np.full((64, 4, 8), np.nan, np.float32)
    feeds = {"frames": frames, "past_len": np.array(0), "past.0.tail": tail, "past.1.k": rows, "past.1.v": rows}
    words = session.run(["words"], feeds)[0]

    windows = np.lib.stride_tricks.sliding_window_view(np.concatenate([tail, frames]), 5, axis=0)  # (9, 16, 5)
    y = np.maximum(np.einsum("tbw,hbw->th", windows, weights["conv"]), 0)
    q, k, v = ((y @ weights[name]).reshape(9, 4, 8) for name in "qkv")
    scores = np.einsum("ihd,jhd->hij", q, k) / 8**0.5
    share = np.where(np.tri(9, dtype=bool), np.exp(scores), 0)
    mixed = np.einsum("hij,jhd->ihd", share / share.sum(-1, keepdims=True), v).reshape(9, 32)
    np.testing.assert_allclose(words, (y + mixed) @ weights["head"], atol=1e-5)


@pytest.mark.parametrize("model", ["llama", "deepseek_v2_lite"])
def test_a_decoder_in_a_loop_generates_what_the_decoder_does(tmp_path: Path, goldens: Path, model: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the goldens have no tokenizer
        lg.convert(goldens / model, tmp_path / "export", max_seq_len=64)
    golden = load_file(goldens / model / "golden.safetensors")
    prompt = golden["prompt"].tolist()
    shape, printed = _run(ROOT / "examples" / "greedy_loop.py", tmp_path, "export", ",".join(map(str, prompt)))
    assert shape == "tokens: (steps,)"
    tokens = [int(token) for token in printed.split()]
    assert tokens == golden["tokens"][len(prompt) :][:12].tolist()

    decoder, ids, found = lg.Decoder.open(tmp_path / "export"), prompt, []
    for _ in range(12):
        ids = [int(decoder.append(ids, logits="last").argmax())]
        found += ids
    assert tokens == found

    # One decoder in the file, within the loop, and its weights once, outside.
    alone, graph = (
        onnx.load(tmp_path / file, load_external_data=False).graph for file in ("export/model.onnx", "made.onnx")
    )
    (loop,) = [node for node in graph.node if node.op_type == "Loop"]
    body = loop.attribute[0].g
    assert _writes(graph) == 0
    assert _writes(body) == _writes(alone) > 0
    assert not body.initializer


def _writes(graph: onnx.GraphProto) -> int:
    return sum(node.op_type == "ScatterND" for node in graph.node)


def test_the_ci_check_finds_the_departure_and_the_changed_weight(tmp_path: Path) -> None:
    printed = _run(ROOT / "examples" / "ci_check.py", tmp_path)
    assert printed[0].startswith("first node : Softmax")
    assert printed[1].startswith("weight changed weight 64 of 64 numbers, by up to")
    assert len(printed) == 2
    assert (tmp_path / "released.onnx").is_file()
