"""A real model of 135M parameters, from its GGUF file: what transformers says of the same numbers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lazygraph as lg
from lazygraph.export.decoder import Decoder
from lazygraph.models.checkpoint import open_checkpoint
from lazygraph.models.tokenizer import Tokenizer

pytestmark = [pytest.mark.slow, pytest.mark.smollm2]
ROOT = Path(__file__).parents[2]
CASES: list[dict[str, Any]] = json.loads((ROOT / "tests" / "goldens" / "smollm2_135m.json").read_text("utf-8"))["cases"]
by_question = pytest.mark.parametrize("case", CASES, ids=[case["user"].split()[0].lower() for case in CASES])


@pytest.fixture(scope="module")
def exported(smollm2_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("smollm2") / "out"
    lg.convert(smollm2_path, folder, max_seq_len=512)
    return folder


@pytest.fixture(scope="module")
def opened(exported: Path) -> Decoder:
    return Decoder.open(exported)


@by_question
def test_the_prompt_is_the_references_token_by_token(exported: Path, case: dict[str, Any]) -> None:
    tokenizer = Tokenizer.open(exported)
    text = tokenizer.chat([{"role": "user", "content": case["user"]}])
    assert text == case["text"]
    assert tokenizer.encode(text, add_special=False) == case["prompt_tokens"]


@by_question
def test_the_whole_answer_and_the_five_best_logits_are_the_references(opened: Decoder, case: dict[str, Any]) -> None:
    opened.truncate(0)
    row = opened.append(case["prompt_tokens"], logits="last")[0]
    assert len(case["new_tokens"]) == len(case["top5_ids"])
    for token, ids, logits in zip(case["new_tokens"], case["top5_ids"], case["top5_logits"], strict=True):
        np.testing.assert_allclose(row[ids], logits, rtol=0, atol=5e-3)
        assert np.sort(row)[-5:].min() >= min(logits) - 5e-3
        assert int(row.argmax()) == token
        row = opened.append([token], logits="last")[0]


@by_question
def test_generation_says_the_references_words(exported: Path, opened: Decoder, case: dict[str, Any]) -> None:
    tokenizer = Tokenizer.open(exported)
    decoder = opened.fork()
    decoder.truncate(0)
    made = list(decoder.generate(case["prompt_tokens"], len(case["new_tokens"])))
    assert made == [token for token in case["new_tokens"] if token not in decoder.manifest.stop_ids]
    stream = tokenizer.stream()
    assert "".join([*map(stream.push, made), stream.finish()]) == case["new_text"]


def test_a_prompt_in_pieces_gives_the_same_logits(opened: Decoder) -> None:
    prompt = CASES[1]["prompt_tokens"]
    opened.truncate(0)
    whole = opened.append(prompt)
    for sizes in ([1] * len(prompt), [7, 20, len(prompt) - 27]):
        opened.truncate(0)
        rows, start = [], 0
        for size in sizes:
            rows.append(opened.append(prompt[start : start + size]))
            start += size
        np.testing.assert_allclose(np.concatenate(rows), whole, rtol=0, atol=5e-3)


def test_the_manifest_says_what_the_model_is(opened: Decoder, smollm2_path: Path) -> None:
    manifest = opened.manifest
    assert manifest.model_type == "llama"
    assert manifest.vocab_size == 49152
    assert (manifest.n_layers, manifest.max_position) == (30, 8192)
    assert [slot.trailing for slot in manifest.memory[:2]] == [(3, 64), (3, 64)]
    assert manifest.parameters == pytest.approx(134_515_008, abs=5_000)  # and a few constants
    assert manifest.copied == {}
    assert 2 in manifest.stop_ids
    assert open_checkpoint(smollm2_path).config["tie_word_embeddings"] is True


def test_the_command_line_answers(exported: Path) -> None:
    where = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    done = subprocess.run(
        [sys.executable, "-m", "lazygraph", "run", str(exported), CASES[0]["user"]],
        env={**os.environ, "PYTHONPATH": where},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "The capital of France is Paris.\n"
    assert done.stderr == ""


def test_the_export_needs_less_memory_than_twice_the_weights(smollm2_path: Path, tmp_path: Path) -> None:
    # In a process of its own, against what the same process holds before it starts: the libraries alone.
    program = (
        "import sys, onnx, onnxruntime, gguf, tokenizers, lazygraph as lg\n"
        "from lazygraph import conversion\n"
        # Not ru_maxrss: that begins with the memory of the process that started this one.
        "peak = lambda: int(open('/proc/self/status').read().split('VmHWM:')[1].split()[0]) * 1024\n"
        "before = peak()\n"
        "manifest = lg.convert(sys.argv[1], sys.argv[2], max_seq_len=512)\n"
        "print(before, peak(), manifest.weight_bytes)\n"
    )
    where = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    done = subprocess.run(
        [sys.executable, "-c", program, str(smollm2_path), str(tmp_path / "out")],
        env={**os.environ, "PYTHONPATH": where},
        capture_output=True,
        text=True,
        check=True,
    )
    before, after, weights = map(int, done.stdout.split())
    assert weights > 500e6
    assert after < 2 * weights
    assert after - before < weights  # streamed: about the largest tensor at a time, and the pages of the file
