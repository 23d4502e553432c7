"""Every lowering of every kind of cache decodes as the reference, run by plain onnxruntime as the manifest says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

import lazygraph as lg
from lazygraph.export.manifest import read_manifest
from lazygraph.memory import Lowering
from tests.support.checkpoints import random_tensors, reference_logits, small_config, write_folder
from tests.support.stepping import decode

LOWERINGS: tuple[Lowering, ...] = ("buffer", "view", "concat")
# A window of 6: before it is full, when it is, one more; a prompt longer than it; chunks across the wrap.
WINDOWED = ([9] + [1] * 23, [1] * 32, [4, 5] + [1] * 23, [32], [6, 1, 25], [5, 1, 1, 7, 18], [3, 11, 2, 16])


EVERY_RUN = ["llama", "llama_tied", "qwen3", "deepseek_v2_lite_hub", "deepseek_v3_fp8"]
SLOWER = ["deepseek_v2", "deepseek_v2_lite", "deepseek_v3"]


@pytest.mark.parametrize("lowering", LOWERINGS)
def test_a_sliding_window_decodes_as_the_reference_in_every_chunking(
    goldens: Path, tmp_path: Path, lowering: Lowering
) -> None:
    golden = load_file(goldens / "mistral_sliding" / "golden.safetensors")
    tokens = golden["tokens"]
    manifest = lg.convert(goldens / "mistral_sliding", tmp_path / "out", lowering=lowering)

    assert manifest.lowering == lowering and manifest.max_seq_len == 256 and manifest.copied == {}
    kept = {(slot.kind, slot.capacity, slot.window, slot.sinks) for slot in manifest.memory}
    assert kept == {("window", 6, 6, 0)} and len(manifest.memory) == 6
    assert sum(slot.nbytes for slot in manifest.memory) == 3 * 2 * 6 * 2 * 12 * 4
    for chunks in WINDOWED:
        for in_place in (False, True):
            if in_place and lowering == "concat":
                continue
            logits, runner = decode(tmp_path / "out", tokens[:32], chunks, in_place=in_place, poison=np.nan, spare=1)
            np.testing.assert_allclose(logits, golden["logits"], rtol=0, atol=1e-4)
            assert logits[8:].argmax(-1).tolist() == tokens[9:].tolist()
            assert all(len(held) == 6 for held in runner.held.values())


@pytest.mark.parametrize("lowering", LOWERINGS)
@pytest.mark.parametrize("model", [*EVERY_RUN, *(pytest.param(model, marks=pytest.mark.slow) for model in SLOWER)])
def test_the_references_are_met_in_every_lowering(
    goldens: Path, tmp_path: Path, model: str, lowering: Lowering
) -> None:
    golden = load_file(goldens / model / "golden.safetensors")
    manifest = lg.convert(goldens / model, tmp_path / "out", max_seq_len=64, lowering=lowering)
    assert manifest.lowering == lowering and manifest.copied == {}
    for chunks in ([9] + [1] * 23, [4, 5, 1, 22], [32]):
        logits, _ = decode(tmp_path / "out", golden["tokens"][:32], chunks, poison=np.nan, spare=5)
        np.testing.assert_allclose(logits, golden["logits"], rtol=0, atol=1e-4)
        assert logits[8:].argmax(-1).tolist() == golden["tokens"][9:].tolist()


@pytest.mark.parametrize("lowering", LOWERINGS)
def test_layers_that_slide_stand_beside_layers_that_do_not(tmp_path: Path, lowering: Lowering) -> None:
    config = small_config("qwen3", num_hidden_layers=3, sliding_window=4, use_sliding_window=True)
    config["layer_types"] = ["sliding_attention", "full_attention", "sliding_attention"]
    tensors, tokens = random_tensors(config), np.arange(3, 23)
    write_folder(tmp_path / "in", config, tensors)
    manifest = lg.convert(tmp_path / "in", tmp_path / "out", max_seq_len=32, lowering=lowering)
    assert [slot.capacity for slot in manifest.memory if slot.slot == "k"] == [4, 32, 4]

    expected = reference_logits(config, tensors, tokens)
    unlike = reference_logits({**config, "layer_types": ["full_attention"] * 3}, tensors, tokens)
    assert np.abs(expected - unlike).max() > 1e-2  # the windows matter
    for chunks in ([20], [1] * 20, [3, 9, 1, 7]):
        logits, _ = decode(tmp_path / "out", tokens, chunks, poison=np.nan)
        np.testing.assert_allclose(logits, expected, rtol=0, atol=1e-4)


@pytest.mark.parametrize("store", ["fp16", "bf16"])
def test_a_window_of_half_precision_rows_decodes_alike_in_every_lowering(
    goldens: Path, tmp_path: Path, store: Any
) -> None:
    tokens = load_file(goldens / "mistral_sliding" / "golden.safetensors")["tokens"][:32]
    found = []
    for lowering in LOWERINGS:
        lg.convert(goldens / "mistral_sliding", tmp_path / lowering, store=store, lowering=lowering)
        for chunks in ([32], [5, 1, 20, 6]):
            found.append(decode(tmp_path / lowering, tokens, chunks)[0])
    # A sum in another order may round a row the other way: by 2**-11 of itself, or 2**-8.
    for logits in found[1:]:
        np.testing.assert_allclose(logits, found[0], rtol=0, atol=2e-3 if store == "fp16" else 1.6e-2)


def test_what_each_lowering_takes_and_gives_stands_in_the_manifest(goldens: Path, tmp_path: Path) -> None:
    shapes = {}
    for lowering in LOWERINGS:
        lg.convert(goldens / "mistral_sliding", tmp_path / lowering, lowering=lowering)
        text = (tmp_path / lowering / "manifest.json").read_text(encoding="utf-8")
        shapes[lowering] = [line.strip() for line in text.splitlines() if "past.<layer>" in line or "present.<" in line]
        assert read_manifest(tmp_path / lowering).lowering == lowering
    assert "the rows kept, oldest first" in shapes["concat"][0]
    assert len({tuple(lines) for lines in shapes.values()}) == 3 and all(len(lines) == 2 for lines in shapes.values())


def test_a_lowering_that_is_none_is_refused(goldens: Path, tmp_path: Path) -> None:
    with pytest.raises(lg.OperandError, match="lowering is 'ring'"):
        lg.convert(goldens / "llama", tmp_path / "out", lowering="ring")  # type: ignore[arg-type]
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("lowering", LOWERINGS)
def test_a_window_of_one_byte_rows_decodes_nearly_as_the_reference(
    goldens: Path, tmp_path: Path, lowering: Lowering
) -> None:
    golden = load_file(goldens / "mistral_sliding" / "golden.safetensors")
    manifest = lg.convert(goldens / "mistral_sliding", tmp_path / "out", lowering=lowering, cache_dtype="int8")
    assert {(slot.kind, slot.dtype) for slot in manifest.memory} == {("window", "int8"), ("window", "float32")}
    found = [decode(tmp_path / "out", golden["tokens"][:32], chunks)[0] for chunks in ([32], [5, 1, 20, 6])]
    # A number is rounded to a 127th of its row's largest; logits reach 3.
    assert 0 < np.abs(found[0] - golden["logits"]).max() < 0.25
    np.testing.assert_allclose(found[1], found[0], rtol=0, atol=2e-2)


@pytest.mark.parametrize("lowering", LOWERINGS)
@pytest.mark.parametrize("model", ["mistral_sliding", "llama", "deepseek_v2_lite_hub", "deepseek_v3_fp8"])
def test_the_decoder_runs_every_lowering_as_the_reference(
    goldens: Path, tmp_path: Path, model: str, lowering: Lowering
) -> None:
    golden = load_file(goldens / model / "golden.safetensors")
    tokens = golden["tokens"]
    lg.convert(goldens / model, tmp_path / "out", max_seq_len=64, lowering=lowering)
    for chunks in WINDOWED:
        decoder = lg.Decoder.open(tmp_path / "out", threads=1)
        ends = np.cumsum(chunks)
        rows = [decoder.append(tokens[end - n : end]) for n, end in zip(chunks, ends, strict=True)]
        np.testing.assert_allclose(np.concatenate(rows), golden["logits"], rtol=0, atol=1e-4)
    decoder = lg.Decoder.open(tmp_path / "out", threads=1)
    made = list(decoder.generate(golden["prompt"].tolist(), 24, stop_ids=()))
    assert made == tokens[9:].tolist()
