"""Models whose cache keeps fewer bytes than they compute in: close to the reference, the same in every chunking."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import onnx
import onnxruntime
import pytest
from safetensors.numpy import load_file

import lazygraph as lg
from lazygraph.export.manifest import read_manifest

Array = np.ndarray[Any, Any]
Name = Literal["fp32", "fp16", "bf16", "int8", "fp8"]
ROWS = 40
# Difference of all logits from the float32 reference, as a share of their size, both root mean squares. The references
# have random weights, which forgive less than trained ones; what a code loses of a row is bounded in tests/cache.
BOUNDS = {"fp32": 1e-5, "fp16": 2e-3, "bf16": 5e-2, "int8": 4e-2, "fp8": 0.25}
MODELS = ("llama", "qwen3", "deepseek_v2_lite", "deepseek_v3")


def bytes_per_token(model: str, name: Name, goldens: Path) -> int:
    config: dict[str, int] = json.loads((goldens / model / "config.json").read_text())
    if model.startswith("deepseek"):
        slots = [config["kv_lora_rank"], config["qk_rope_head_dim"]]
    else:
        width = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
        slots = [config["num_key_value_heads"] * width] * 2
    each = {"fp32": 4, "fp16": 2, "bf16": 2, "int8": 1, "fp8": 1}[name]
    scales = 4 * len(slots) if name in ("int8", "fp8") else 0
    return config["num_hidden_layers"] * (each * sum(slots) + scales)


def fed(folder: Path, tokens: list[int], chunks: list[int], batch: bool = False) -> Array:
    """Return the logits after tokens, by plain onnxruntime with plain feeds."""
    session = onnxruntime.InferenceSession(folder / "model.onnx", providers=["CPUExecutionProvider"])
    names, texts = [output.name for output in session.get_outputs()], [2] if batch else []
    held = {one.source: zeros([*texts, ROWS, *one.trailing], one.dtype) for one in read_manifest(folder).memory}
    past, found = 0, []
    for count in chunks:
        ids: Array = np.array(tokens[past : past + count])
        feeds = {"input_ids": ids, "past_len": np.array(past), "logits_from": np.array(0)}
        if batch:
            feeds |= {"input_ids": np.stack([ids] * 2), "past_len": np.full(2, past), "new_len": np.full(2, count)}
        given = {name: onnxruntime.OrtValue.ortvalue_from_numpy(array) for name, array in feeds.items()}
        got = dict(zip(names, session.run_with_ort_values(names, {**given, **held}), strict=True))
        held = {source: got[source.replace("past.", "present.")] for source in held}
        found.append(got["logits"].numpy())
        past += count
    return np.concatenate(found, axis=1 if batch else 0)


def difference(logits: Array, wanted: Array) -> float:
    return float(np.sqrt(((logits - wanted) ** 2).mean() / (wanted**2).mean()))


def zeros(shape: list[int], dtype: str) -> onnxruntime.OrtValue:
    if dtype == "bfloat16":
        bits = np.zeros(shape, np.uint16)
        return onnxruntime.OrtValue.ortvalue_from_numpy_with_onnx_type(bits, onnx.TensorProto.BFLOAT16)
    return onnxruntime.OrtValue.ortvalue_from_numpy(np.zeros(shape, dtype))


@pytest.mark.parametrize("name", get_args(Name))
@pytest.mark.parametrize("model", MODELS)
def test_logits_stay_close_and_the_bytes_are_reported(goldens: Path, tmp_path: Path, model: str, name: Name) -> None:
    golden = load_file(goldens / model / "golden.safetensors")
    manifest = lg.convert(goldens / model, tmp_path / "one", max_seq_len=ROWS, cache_dtype=name)
    assert manifest.bytes_per_token == bytes_per_token(model, name, goldens)
    assert json.loads((tmp_path / "one" / "manifest.json").read_text())["bytes_per_token"] == manifest.bytes_per_token
    assert not manifest.copied
    tokens = golden["tokens"][:32].tolist()
    whole = fed(tmp_path / "one", tokens, [32])
    assert difference(whole, golden["logits"]) < BOUNDS[name]
    # Rows are kept alike whatever the chunks: a token reads itself as it is kept, too.
    for chunks in ([9] + [1] * 23, [4, 5, 23]):
        assert difference(fed(tmp_path / "one", tokens, chunks), whole) < 1e-3

    lg.convert(goldens / model, tmp_path / "two", max_seq_len=ROWS, cache_dtype=name, batch=True)
    both = fed(tmp_path / "two", tokens, [9, 1, 22], batch=True)
    for text in both:
        assert difference(text, whole) < 1e-3


def test_a_cache_type_that_there_is_not_is_refused(goldens: Path, tmp_path: Path) -> None:
    wrong: Any = "int4"
    with pytest.raises(lg.OperandError, match="cache_dtype is 'int4'"):
        lg.convert(goldens / "llama", tmp_path / "out", cache_dtype=wrong)
    assert not (tmp_path / "out").exists()
