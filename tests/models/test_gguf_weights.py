"""Tensors and config of GGUF files, against readings of the format that share nothing with the package's own."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gguf
import ml_dtypes
import numpy as np
import pytest
from gguf.constants import GGML_QUANT_SIZES
from gguf.constants import GGMLQuantizationType as Kind
from safetensors.numpy import load_file

from lazygraph.errors import UnsupportedError, WeightsError
from lazygraph.models import gguf_weights
from lazygraph.models.files import read_json
from lazygraph.models.gguf_file import GgufFile
from lazygraph.models.gguf_weights import GgufWeights

_SMALL: dict[str, Any] = {
    "block_count": 1,
    "context_length": 64,
    "embedding_length": 32,
    "feed_forward_length": 64,
    "attention.head_count": 4,
    "attention.head_count_kv": 2,
    "attention.layer_norm_rms_epsilon": 1e-6,
}


def _add(writer: gguf.GGUFWriter, name: str, value: Any) -> None:
    if isinstance(value, bool):
        writer.add_bool(name, value)
    elif isinstance(value, int):
        writer.add_uint32(name, value)
    elif isinstance(value, float):
        writer.add_float32(name, value)
    elif isinstance(value, str):
        writer.add_string(name, value)
    else:
        writer.add_array(name, value)


def _write(
    file: Path,
    arch: str = "llama",
    keys: Mapping[str, Any] = _SMALL,
    tensors: Mapping[str, np.ndarray[Any, Any]] | None = None,
    packed: Mapping[str, tuple[Kind, np.ndarray[Any, Any]]] | None = None,
    whole_keys: Mapping[str, Any] | None = None,
) -> Path:
    writer = gguf.GGUFWriter(file, arch)
    for name, value in {**{f"{arch}.{key}": value for key, value in keys.items()}, **(whole_keys or {})}.items():
        _add(writer, name, value)
    held = {"token_embd.weight": np.zeros((8, 32), np.float32)} | dict(tensors or {})
    for name, numbers in held.items():
        if name not in (packed or {}):
            writer.add_tensor(name, numbers)
    for name, (kind, blocks) in (packed or {}).items():
        writer.add_tensor(name, blocks, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return file


def test_float_types_come_as_float32(tmp_path: Path) -> None:
    numbers = np.random.default_rng(0).normal(size=(8, 32)).astype(np.float32)
    rounded = numbers.astype(ml_dtypes.bfloat16)
    tensors = {"output_norm.weight": numbers[0], "output.weight": numbers.astype(np.float16)}
    packed = {"token_embd.weight": (Kind.BF16, rounded.view(np.uint8))}
    weights = GgufWeights(_write(tmp_path / "m.gguf", tensors=tensors, packed=packed))

    np.testing.assert_array_equal(weights.array("model.norm.weight").read(), numbers[0])
    np.testing.assert_array_equal(weights.array("lm_head.weight").read(), numbers.astype(np.float16))
    np.testing.assert_array_equal(weights.array("model.embed_tokens.weight").read(), rounded.astype(np.float32))
    assert all(weights.array(name).read().dtype == np.float32 for name in weights.names())


def test_a_type_that_is_not_read_is_refused_by_name(tmp_path: Path) -> None:
    held = np.zeros((8, GGML_QUANT_SIZES[Kind.Q2_K][1]), np.uint8)
    weights = GgufWeights(_write(tmp_path / "m.gguf", packed={"token_embd.weight": (Kind.Q2_K, held)}))
    with pytest.raises(UnsupportedError, match="stored as Q2_K") as caught:
        weights.array("model.embed_tokens.weight")
    assert "Q4_1" in caught.value.expected


def _interleaved(rows: np.ndarray[Any, Any], heads: int) -> np.ndarray[Any, Any]:
    """Return rows the way llama.cpp keeps them: row 2i is row i of the head, row 2i + 1 is row i + half."""
    size = len(rows) // heads
    moved = np.empty_like(rows)
    for head in range(heads):
        for pair in range(size // 2):
            moved[head * size + 2 * pair] = rows[head * size + pair]
            moved[head * size + 2 * pair + 1] = rows[head * size + pair + size // 2]
    return moved


@pytest.mark.parametrize("arch", ["llama", "qwen2", "qwen3"])
def test_only_llamas_query_and_key_rows_are_put_back(tmp_path: Path, arch: str) -> None:
    random = np.random.default_rng(1)
    q, k, v = (random.normal(size=(rows, 32)).astype(np.float32) for rows in (32, 16, 16))
    moves = (lambda rows, heads: _interleaved(rows, heads)) if arch == "llama" else (lambda rows, heads: rows)
    held = {
        "blk.0.attn_q.weight": moves(q, 4),
        "blk.0.attn_q.bias": moves(q[:, 0], 4),
        "blk.0.attn_k.weight": moves(k, 2),
        "blk.0.attn_k.bias": moves(k[:, 0], 2),
        "blk.0.attn_v.weight": v,
        "blk.0.attn_v.bias": v[:, 0],
    }
    weights = GgufWeights(_write(tmp_path / "m.gguf", arch, tensors=held))

    prefix = "model.layers.0.self_attn."
    for name, numbers in (("q", q), ("k", k), ("v", v)):
        np.testing.assert_array_equal(weights.array(f"{prefix}{name}_proj.weight").read(), numbers)
        np.testing.assert_array_equal(weights.array(f"{prefix}{name}_proj.bias").read(), numbers[:, 0])
    assert weights.config.get("attention_bias") is (None if arch == "qwen2" else True)


def test_putting_rows_back_turns_neighbouring_rotary_pairs_into_halves() -> None:
    """Scores of interleaved rotation on stored rows equal those of half rotation on the rows as given out."""
    random = np.random.default_rng(2)
    size, positions = 8, np.arange(5)
    angle = positions[:, None] * 10000.0 ** (-np.arange(size // 2) / (size // 2))
    turn = np.exp(1j * angle)
    x = random.normal(size=(5, 6))
    stored_q, stored_k = random.normal(size=(2, size, 6))

    def pairs(weight: np.ndarray[Any, Any]) -> Any:
        rows = x @ weight.T
        return (rows[:, 0::2] + 1j * rows[:, 1::2]) * turn

    def halves(weight: np.ndarray[Any, Any]) -> Any:
        rows = x @ gguf_weights.unpermute(weight, 1).T
        return (rows[:, : size // 2] + 1j * rows[:, size // 2 :]) * turn

    np.testing.assert_allclose(
        (pairs(stored_q) @ pairs(stored_k).conj().T).real, (halves(stored_q) @ halves(stored_k).conj().T).real
    )


def test_rows_that_do_not_divide_among_the_heads_are_refused(tmp_path: Path) -> None:
    tensors = {"blk.0.attn_q.weight": np.zeros((30, 32), np.float32)}
    weights = GgufWeights(_write(tmp_path / "m.gguf", tensors=tensors))
    with pytest.raises(WeightsError, match="has 30 rows for 4 heads"):
        weights.array("model.layers.0.self_attn.q_proj.weight")


@pytest.mark.parametrize(("golden", "arch"), [("llama", "llama"), ("llama_tied", "llama"), ("qwen3", "qwen3")])
def test_a_golden_written_as_gguf_comes_back_whole(goldens: Path, tmp_path: Path, golden: str, arch: str) -> None:
    """Names are mapped by the gguf package's own table, in the other direction."""
    config = read_json(goldens / golden / "config.json")
    oracle = load_file(goldens / golden / "model.safetensors")
    layers, heads = config["num_hidden_layers"], config["num_attention_heads"]
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH[arch.upper()], layers)
    held = {}
    for name, numbers in oracle.items():
        turned = arch == "llama" and name.endswith(("q_proj.weight", "k_proj.weight"))
        count = heads if "q_proj" in name else config["num_key_value_heads"]
        stored = names.get_name(name, try_suffixes=(".weight", ".bias"))
        assert stored is not None
        held[stored] = _interleaved(numbers, count) if turned else numbers
    keys = {
        "block_count": layers,
        "context_length": config["max_position_embeddings"],
        "embedding_length": config["hidden_size"],
        "feed_forward_length": config["intermediate_size"],
        "attention.head_count": heads,
        "attention.head_count_kv": config["num_key_value_heads"],
        "attention.key_length": config["head_dim"],
        "attention.value_length": config["head_dim"],
        "attention.layer_norm_rms_epsilon": config["rms_norm_eps"],
        "rope.freq_base": config["rope_parameters"]["rope_theta"],
        "rope.dimension_count": config["head_dim"],
    }
    ids = {f"tokenizer.ggml.{end}_token_id": config[f"{end}_token_id"] for end in ("bos", "eos")}
    weights = GgufWeights(_write(tmp_path / "m.gguf", arch, keys, held, whole_keys=ids))

    assert weights.names() == tuple(sorted(oracle))
    for name, numbers in oracle.items():
        np.testing.assert_array_equal(weights.array(name).read(), numbers)
    same = set(weights.config) - {"rope_theta", "mlp_bias"}
    assert {key: weights.config[key] for key in same} == {key: config[key] for key in same}
    assert weights.config["rope_theta"] == config["rope_parameters"]["rope_theta"]
    assert len(same) == 16


def _config(tmp_path: Path, keys: Mapping[str, Any], arch: str = "llama", **tensors: Any) -> dict[str, Any]:
    held = {name.replace("__", "."): numbers for name, numbers in tensors.items()}
    return GgufWeights(_write(tmp_path / "m.gguf", arch, {**_SMALL, **keys}, held)).config


def test_what_the_file_leaves_out_gets_llama_cpps_defaults(tmp_path: Path) -> None:
    keys = {key: value for key, value in _SMALL.items() if key != "attention.head_count_kv"}
    config = GgufWeights(_write(tmp_path / "m.gguf", keys=keys)).config
    assert (config["num_key_value_heads"], config["head_dim"], config["rope_theta"]) == (4, 8, 10000.0)
    assert (config["rms_norm_eps"], config["vocab_size"], config["tie_word_embeddings"]) == (1e-6, 8, True)
    assert "rope_scaling" not in config


def test_linear_scaling_is_read_in_both_spellings(tmp_path: Path) -> None:
    wanted = {"rope_type": "linear", "factor": 4.0}
    assert _config(tmp_path, {"rope.scaling.type": "linear", "rope.scaling.factor": 4.0})["rope_scaling"] == wanted
    assert _config(tmp_path, {"rope.scale_linear": 4.0})["rope_scaling"] == wanted
    assert "rope_scaling" not in _config(tmp_path, {"rope.scaling.type": "none", "rope.scaling.factor": 4.0})


def test_yarn_scaling_has_hugging_faces_keys(tmp_path: Path) -> None:
    keys = {"rope.scaling.type": "yarn", "rope.scaling.factor": 4.0, "rope.scaling.original_context_length": 32}
    wanted = {
        "rope_type": "yarn",
        "factor": 4.0,
        "original_max_position_embeddings": 32,
        "beta_fast": 32.0,
        "beta_slow": 1.0,
    }
    assert _config(tmp_path, keys)["rope_scaling"] == wanted


def test_frequency_divisors_mean_llama3_scaling(tmp_path: Path) -> None:
    factors = np.array([1.0, 1.5, 4.0, 8.0], np.float32)
    config = _config(tmp_path, {}, rope_freqs__weight=factors)
    assert config["rope_freq_factors"] == [1.0, 1.5, 4.0, 8.0]
    assert "rope_scaling" not in config
    assert "rope_freqs.weight" not in GgufWeights(tmp_path / "m.gguf").names()
    assert "rope_freq_factors" not in _config(tmp_path, {}, rope_freqs__weight=np.ones(4, np.float32))


def test_a_sliding_window_in_a_llama_file_means_mistral(tmp_path: Path) -> None:
    config = _config(tmp_path, {"attention.sliding_window": 16})
    assert (config["model_type"], config["sliding_window"]) == ("mistral", 16)


def test_experts_partial_rotation_and_per_layer_values_keep_their_keys(tmp_path: Path) -> None:
    config = _config(tmp_path, {"expert_count": 8, "expert_used_count": 2, "rope.dimension_count": 4})
    assert (config["model_type"], config["num_local_experts"], config["num_experts_per_tok"]) == ("mixtral", 8, 2)
    assert config["partial_rotary_factor"] == 0.5
    assert _config(tmp_path, {"feed_forward_length": [64, 64]})["intermediate_size"] == 64


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"attention.scale": 0.5}, "llama.attention.scale"),
        ({"attention.causal": False}, "llama.attention.causal"),
        ({"attention.value_length": 4}, "llama.attention.value_length"),
        ({"rope.scaling.type": "longrope"}, "longrope"),
        ({"rope.scaling.attn_factor": 1.5}, "llama.rope.scaling.attn_factor"),
        ({"feed_forward_length": [64, 32]}, "llama.feed_forward_length"),
    ],
)
def test_keys_that_change_the_mathematics_are_refused(tmp_path: Path, keys: dict[str, Any], words: str) -> None:
    with pytest.raises(UnsupportedError, match=words):
        _config(tmp_path, keys)


def test_an_absent_or_wrong_key_is_named(tmp_path: Path) -> None:
    keys = {key: value for key, value in _SMALL.items() if key != "block_count"}
    with pytest.raises(WeightsError, match=r"'llama\.block_count' is absent"):
        GgufWeights(_write(tmp_path / "m.gguf", keys=keys))
    with pytest.raises(WeightsError, match=r"'llama\.block_count' is 'one'"):
        _config(tmp_path, {"block_count": "one"})


def test_another_architecture_is_refused_with_the_ones_that_are_read(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match="'gpt2' is not read") as caught:
        GgufWeights(_write(tmp_path / "m.gguf", "gpt2"))
    assert "qwen3" in caught.value.expected


def test_unknown_names_stay_and_absent_ones_are_named(tmp_path: Path) -> None:
    weights = GgufWeights(_write(tmp_path / "m.gguf", tensors={"blk.0.extra.weight": np.ones(2, np.float32)}))
    assert "blk.0.extra.weight" in weights.names()
    with pytest.raises(WeightsError, match=r"no tensor 'model\.embed_token\.weight'") as caught:
        weights.array("model.embed_token.weight")
    assert "model.embed_tokens.weight" in caught.value.hint


def test_metadata_is_what_the_packages_own_reader_gives(tmp_path: Path) -> None:
    keys = {**_SMALL, "x": ["", "a", "→ü"], "y": [1, 2, 3], "z": [0.5, 1.5], "b": [True, False], "t": "text"}
    file = _write(tmp_path / "m.gguf", "other", keys)
    fields = gguf.GGUFReader(file).fields
    oracle = {name: field.contents() for name, field in fields.items() if not name.startswith("GGUF.")}
    assert GgufFile(file).metadata == oracle


def test_a_vocabulary_is_not_read_one_numpy_array_a_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = {"words": [f"word {number}" for number in range(5000)], "numbers": list(range(5000))}
    file = _write(tmp_path / "m.gguf", whole_keys=keys)
    calls, slow = [], gguf.GGUFReader._get

    def counted(self: gguf.GGUFReader, *place: Any, **options: Any) -> Any:
        calls.append(place)
        return slow(self, *place, **options)

    monkeypatch.setattr(gguf.GGUFReader, "_get", counted)
    metadata = GgufFile(file).metadata
    assert (metadata["words"], metadata["numbers"]) == (keys["words"], keys["numbers"])
    assert len(calls) < 500


def test_a_file_cut_anywhere_is_refused_and_in_its_tensors_by_name(tmp_path: Path) -> None:
    file = _write(tmp_path / "m.gguf", whole_keys={"words": ["a"] * 20}, tensors={"z": np.ones(64, np.float32)})
    whole = file.read_bytes()
    cuts = [0, 3, 10, 30, 100, 300, len(whole) // 2]
    for cut in cuts:
        file.write_bytes(whole[:cut])
        with pytest.raises(WeightsError, match=r"m\.gguf is not a whole GGUF file"):
            GgufFile(file)
    file.write_bytes(whole[:-40])
    with pytest.raises(WeightsError, match="tensor 'z'"):
        GgufFile(file)


def test_text_that_is_not_utf_8_is_refused(tmp_path: Path) -> None:
    file = _write(tmp_path / "m.gguf", whole_keys={"words": ["abcdefgh"]})
    file.write_bytes(file.read_bytes().replace(b"abcdefgh", b"abc\xffefgh"))
    with pytest.raises(WeightsError, match=r"m\.gguf is not a whole GGUF file: 'utf-8' codec"):
        GgufFile(file)


def test_split_files_and_types_of_the_future_are_refused(tmp_path: Path) -> None:
    file = _write(tmp_path / "m.gguf", whole_keys={"split.count": 3})
    with pytest.raises(UnsupportedError, match="one part of 3"):
        GgufFile(file)

    file = _write(tmp_path / "m.gguf")
    held = file.read_bytes()
    code = held.index(b"token_embd.weight") + len(b"token_embd.weight") + 4 + 16
    file.write_bytes(held[:code] + struct.pack("<I", 9999) + held[code + 4 :])
    with pytest.raises(UnsupportedError, match=r"tensor 'token_embd\.weight' has type number 9999"):
        GgufFile(file)


@pytest.mark.smollm2
def test_smollm2s_config_is_the_hubs(smollm2_path: Path) -> None:
    weights = GgufWeights(smollm2_path)
    wanted = {
        "model_type": "llama",
        "hidden_size": 576,
        "intermediate_size": 1536,
        "num_hidden_layers": 30,
        "num_attention_heads": 9,
        "num_key_value_heads": 3,
        "rms_norm_eps": 1e-05,
        "rope_theta": 100000.0,
        "max_position_embeddings": 8192,
        "vocab_size": 49152,
        "tie_word_embeddings": True,
        "attention_bias": False,
        "bos_token_id": 1,
        "eos_token_id": 2,
    }
    assert {key: weights.config[key] for key in wanted} == wanted
    assert weights.main_type == "Q4_1"
    assert weights.array("model.layers.29.mlp.down_proj.weight").read().shape == (576, 1536)
