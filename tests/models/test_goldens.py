"""The reference decodes of transformers, token by token, from every form in which a checkpoint comes."""

from __future__ import annotations

import math
import shutil
from pathlib import Path
from typing import Any, Literal

import gguf
import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import load_file

import lazygraph as lg
from lazygraph.export.decoder import Decoder
from lazygraph.models.files import read_json
from tests.support.checkpoints import (
    Array,
    inverse_frequencies,
    random_tensors,
    reference_logits,
    small_config,
    write_folder,
    write_safetensors,
)

MODELS = ("llama", "llama_tied", "qwen3")
LATENT = ("deepseek_v2_lite_hub", "deepseek_v3_fp8")
SINGLES = [1] * 32
CHUNKINGS = {
    "prompt, then one by one": [9] + [1] * 23,
    "one by one": SINGLES,
    "two pieces, then one by one": [4, 5] + [1] * 23,
    "all at once": [32],
}


@pytest.fixture(scope="session")
def exports(tmp_path_factory: pytest.TempPathFactory, goldens: Path) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("goldens")
    for model in (*MODELS, *LATENT):
        lg.convert(goldens / model, folder / model)
    return {model: folder / model for model in (*MODELS, *LATENT)}


def _decode(folder: Path, tokens: Array, chunks: list[int]) -> Array:
    """Return the logits after each token, the tokens read in chunks of these sizes."""
    assert sum(chunks) == len(tokens)
    decoder = Decoder.open(folder, threads=1)
    rows, start = [], 0
    for size in chunks:
        rows.append(decoder.append(tokens[start : start + size].tolist()))
        start += size
    assert decoder.length == len(tokens)
    return np.concatenate(rows)


@pytest.mark.parametrize("chunks", CHUNKINGS.values(), ids=CHUNKINGS.keys())
@pytest.mark.parametrize("model", (*MODELS, *LATENT))
def test_logits_and_tokens_are_the_references(
    exports: dict[str, Path], goldens: Path, model: str, chunks: list[int]
) -> None:
    golden = load_file(goldens / model / "golden.safetensors")
    tokens = golden["tokens"]
    assert tokens[:9].tolist() == golden["prompt"].tolist()

    logits = _decode(exports[model], tokens[:32], chunks)

    assert logits.dtype == np.float32
    np.testing.assert_allclose(logits, golden["logits"], rtol=0, atol=1e-4)
    assert logits[8:].argmax(-1).tolist() == tokens[9:].tolist()


@pytest.mark.parametrize("model", (*MODELS, *LATENT))
def test_generation_goes_on_as_the_reference_does(exports: dict[str, Path], goldens: Path, model: str) -> None:
    golden = load_file(goldens / model / "golden.safetensors")
    decoder = Decoder.open(exports[model], threads=1)
    made = list(decoder.generate(golden["prompt"].tolist(), 24, stop_ids=()))
    assert made == golden["tokens"][9:].tolist()


@pytest.mark.parametrize("model", MODELS)
def test_the_references_agree_with_plain_numpy(goldens: Path, model: str) -> None:
    # The oracle of the other tests is held against transformers' numbers here.
    config = read_json(goldens / model / "config.json")
    golden = load_file(goldens / model / "golden.safetensors")
    logits = reference_logits(config, load_file(goldens / model / "model.safetensors"), golden["tokens"][:32])
    np.testing.assert_allclose(logits, golden["logits"], rtol=0, atol=1e-4)


def test_a_window_that_the_cache_never_outgrows_decodes_as_the_reference(goldens: Path, tmp_path: Path) -> None:
    source = goldens / "mistral_sliding"
    golden = load_file(source / "golden.safetensors")
    manifest = lg.convert(source, tmp_path / "out", max_seq_len=6)
    assert {slot.kind for slot in manifest.memory} == {"rows"}
    for chunks in ([6], [1] * 6, [4, 2]):
        logits = _decode(tmp_path / "out", golden["tokens"][:6], chunks)
        np.testing.assert_allclose(logits, golden["logits"][:6], rtol=0, atol=1e-4)


@pytest.mark.parametrize("portable", [False, True], ids=["", "portable"])
@pytest.mark.parametrize("mla", ["absorbed", "expanded", "auto"])
@pytest.mark.parametrize("model", LATENT)
def test_latent_attention_decodes_as_the_reference_whichever_way_it_computes(
    goldens: Path, tmp_path: Path, model: str, mla: Literal["absorbed", "expanded", "auto"], portable: bool
) -> None:
    golden = load_file(goldens / model / "golden.safetensors")
    lg.convert(goldens / model, tmp_path / "out", mla=mla, portable=portable)
    for chunks in ([9] + [1] * 23, [32]):
        logits = _decode(tmp_path / "out", golden["tokens"][:32], chunks)
        np.testing.assert_allclose(logits, golden["logits"], rtol=0, atol=1e-4)


@pytest.mark.parametrize("model", MODELS)
def test_a_portable_export_decodes_as_the_reference(goldens: Path, tmp_path: Path, model: str) -> None:
    import onnx

    golden = load_file(goldens / model / "golden.safetensors")
    lg.convert(goldens / model, tmp_path / "out", portable=True)
    logits = _decode(tmp_path / "out", golden["tokens"][:32], [9] + [1] * 23)
    np.testing.assert_allclose(logits, golden["logits"], rtol=0, atol=1e-4)
    graph = onnx.load(tmp_path / "out" / "model.onnx", load_external_data=False)
    assert [entry.domain for entry in graph.opset_import] == [""]


# --- the same weights in other files ---


@pytest.mark.parametrize("shards", [2, 5])
def test_shards_decode_like_one_file(goldens: Path, tmp_path: Path, shards: int) -> None:
    golden = load_file(goldens / "llama" / "golden.safetensors")
    config, tensors = read_json(goldens / "llama" / "config.json"), load_file(goldens / "llama" / "model.safetensors")
    write_folder(tmp_path / "in", config, tensors, shards)
    lg.convert(tmp_path / "in", tmp_path / "out")
    logits = _decode(tmp_path / "out", golden["tokens"][:32], [32])
    np.testing.assert_allclose(logits, golden["logits"], rtol=0, atol=1e-4)


@pytest.mark.parametrize(("name", "dtype"), [("float16", np.float16), ("bfloat16", ml_dtypes.bfloat16)])
@pytest.mark.parametrize("model", MODELS)
def test_half_precision_weights_are_computed_with_as_they_are_stored(
    goldens: Path, tmp_path: Path, model: str, name: str, dtype: Any
) -> None:
    config = read_json(goldens / model / "config.json")
    tokens = load_file(goldens / model / "golden.safetensors")["tokens"][:32]
    full = load_file(goldens / model / "model.safetensors")
    stored = {key: numbers.astype(dtype) for key, numbers in full.items()}
    write_folder(tmp_path / "in", {**config, "dtype": name}, stored)

    manifest = lg.convert(tmp_path / "in", tmp_path / "out")

    assert name in manifest.source
    expected = reference_logits(config, {key: numbers.astype(np.float32) for key, numbers in stored.items()}, tokens)
    np.testing.assert_allclose(_decode(tmp_path / "out", tokens, [9] + [1] * 23), expected, rtol=0, atol=1e-4)


def test_a_mix_of_element_types_is_fine(goldens: Path, tmp_path: Path) -> None:
    config = read_json(goldens / "llama" / "config.json")
    full = load_file(goldens / "llama" / "model.safetensors")
    kinds = [np.float32, np.float16, ml_dtypes.bfloat16, np.float64]
    stored = {name: full[name].astype(kinds[number % 4]) for number, name in enumerate(sorted(full))}
    write_folder(tmp_path / "in", config, stored)
    lg.convert(tmp_path / "in", tmp_path / "out")
    tokens = load_file(goldens / "llama" / "golden.safetensors")["tokens"][:32]
    expected = reference_logits(config, {name: numbers.astype(np.float64) for name, numbers in stored.items()}, tokens)
    np.testing.assert_allclose(_decode(tmp_path / "out", tokens, [32]), expected, rtol=0, atol=1e-4)


# --- GGUF ---

_GGUF_LAYER = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
_GGUF_WHOLE = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}


def _gguf_name(name: str) -> str:
    stem, kind = name.rsplit(".", 1)
    if stem in _GGUF_WHOLE:
        return f"{_GGUF_WHOLE[stem]}.{kind}"
    _, _, layer, inner = stem.split(".", 3)
    return f"blk.{layer}.{_GGUF_LAYER[inner]}.{kind}"


def _as_llama_cpp_orders(rows: Array, heads: int) -> Array:
    """Return a projection's rows with the two halves of each head taken in turn, as llama.cpp's converter does."""
    half = rows.shape[0] // heads // 2
    order = [head * 2 * half + part * half + pair for head in range(heads) for pair in range(half) for part in (0, 1)]
    return rows[order]


def _write_gguf(
    file: Path, config: dict[str, Any], tensors: dict[str, Array], kind: gguf.GGMLQuantizationType
) -> dict[str, Array]:
    """Write a GGUF file as llama.cpp's converter does; return the tensors as a reader sees them, in the hub's order."""
    arch, heads = config["model_type"], config["num_attention_heads"]
    kv_heads = config.get("num_key_value_heads", heads)
    width = config.get("head_dim", config["hidden_size"] // heads)
    rope = {**(config.get("rope_scaling") or {}), **(config.get("rope_parameters") or {})}

    writer = gguf.GGUFWriter(file, arch)
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(heads)
    writer.add_head_count_kv(kv_heads)
    writer.add_key_length(width)
    writer.add_value_length(width)
    writer.add_rope_dimension_count(width)
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_rope_freq_base(rope.get("rope_theta", config.get("rope_theta", 10000.0)))
    if rope.get("rope_type") == "llama3":
        plain = inverse_frequencies({"rope_theta": rope["rope_theta"]}, width)
        factors = [a / b for a, b in zip(plain, inverse_frequencies(config, width), strict=True)]
        writer.add_tensor("rope_freqs.weight", np.array(factors, np.float32))

    seen = {}
    for name, numbers in tensors.items():
        heads_here = {"q_proj": heads, "k_proj": kv_heads}.get(name.split(".")[-2]) if arch == "llama" else None
        moved = numbers if heads_here is None else _as_llama_cpp_orders(numbers, heads_here)
        if numbers.ndim == 1 or kind == gguf.GGMLQuantizationType.F32:
            writer.add_tensor(_gguf_name(name), moved.astype(np.float32))
            seen[name] = numbers
            continue
        packed = gguf.quants.quantize(moved, kind)
        writer.add_tensor(_gguf_name(name), packed, raw_dtype=kind)
        seen[name] = gguf.quants.dequantize(gguf.quants.quantize(numbers, kind), kind).astype(np.float32)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return seen


@pytest.mark.parametrize("model", MODELS)
def test_gguf_in_float32_decodes_as_the_reference(goldens: Path, tmp_path: Path, model: str) -> None:
    config, tensors = read_json(goldens / model / "config.json"), load_file(goldens / model / "model.safetensors")
    _write_gguf(tmp_path / "model.gguf", config, tensors, gguf.GGMLQuantizationType.F32)
    manifest = lg.convert(tmp_path / "model.gguf", tmp_path / "out")
    golden = load_file(goldens / model / "golden.safetensors")
    logits = _decode(tmp_path / "out", golden["tokens"][:32], [9] + [1] * 23)
    np.testing.assert_allclose(logits, golden["logits"], rtol=0, atol=1e-4)
    assert logits[8:].argmax(-1).tolist() == golden["tokens"][9:].tolist()
    assert manifest.source == "model.gguf (GGUF F32)"


@pytest.mark.parametrize("kind", [gguf.GGMLQuantizationType.F16, gguf.GGMLQuantizationType.Q8_0], ids=["F16", "Q8_0"])
@pytest.mark.parametrize("model_type", ["llama", "qwen2", "qwen3"])
def test_gguf_in_fewer_bits_decodes_like_the_numbers_it_holds(
    tmp_path: Path, model_type: str, kind: gguf.GGMLQuantizationType
) -> None:
    # Every row a multiple of 32: Q8_0's block.
    config = small_config(model_type, hidden_size=64, intermediate_size=96, head_dim=32)
    held = _write_gguf(tmp_path / "model.gguf", config, random_tensors(config), kind)
    tokens = np.arange(3, 15)
    lg.convert(tmp_path / "model.gguf", tmp_path / "out")
    logits = _decode(tmp_path / "out", tokens, [5] + [1] * 7)
    np.testing.assert_allclose(logits, reference_logits(config, held, tokens), rtol=0, atol=2e-4)


def test_files_in_a_folder_beside_the_weights_do_not_matter(goldens: Path, tmp_path: Path) -> None:
    shutil.copytree(goldens / "llama", tmp_path / "in")
    write_safetensors(tmp_path / "in" / "adapter.safetensors", {"x": np.zeros(3, np.float32)})
    (tmp_path / "in" / "README.md").write_text("hello")
    manifest = lg.convert(tmp_path / "in", tmp_path / "out")
    assert manifest.parameters > 0


def test_two_exports_of_one_checkpoint_are_the_same_bytes(
    exports: dict[str, Path], goldens: Path, tmp_path: Path
) -> None:
    lg.convert(goldens / "llama", tmp_path / "again")
    old = {file.name: file.read_bytes() for file in exports["llama"].iterdir()}
    assert {file.name: file.read_bytes() for file in (tmp_path / "again").iterdir()} == old


def test_the_cost_of_the_cache_is_what_the_manifest_says(exports: dict[str, Path], goldens: Path) -> None:
    for model in MODELS:
        config = read_json(goldens / model / "config.json")
        per_token = 2 * config["num_hidden_layers"] * config["num_key_value_heads"] * config["head_dim"] * 4
        manifest = Decoder.open(exports[model]).manifest
        assert manifest.bytes_per_token == per_token
        assert manifest.max_seq_len == manifest.max_position == config["max_position_embeddings"]
        assert manifest.copied == {}
        assert math.prod(manifest.memory[0].trailing) == config["num_key_value_heads"] * config["head_dim"]
