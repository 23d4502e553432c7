"""Configs: every key is understood, harmless, or refused by name; rotation is what the formulas say."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lazygraph as lg
from lazygraph.conversion import model_module
from lazygraph.export.decoder import Decoder
from lazygraph.models.checkpoint import WeightsUse
from lazygraph.models.config import Config
from lazygraph.models.program import BuildOptions, DecoderGraph
from lazygraph.models.rope import read_rope
from tests.support.checkpoints import (
    Array,
    inverse_frequencies,
    random_tensors,
    reference_logits,
    shapes,
    small_config,
    write_folder,
)

TOKENS = np.array([1, 7, 39, 0, 12, 12, 5, 30, 30, 2])
LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}


class Zeros:
    """A checkpoint of the right shapes and no bytes: what is taken from it is never read."""

    def __init__(self, sizes: Mapping[str, tuple[int, ...]]) -> None:
        self.sizes = dict(sizes)

    def names(self) -> tuple[str, ...]:
        return tuple(sorted(self.sizes))

    def array(self, name: str) -> lg.LazyArray:
        return lg.LazyArray("float32", self.sizes[name], lambda: pytest.fail("read"), name=name, key=name)


def _build(values: Mapping[str, Any], max_seq_len: int = 16, ignore: tuple[str, ...] = ()) -> DecoderGraph:
    config, weights = Config(values, ignore), WeightsUse(Zeros(shapes(values)))
    graph: DecoderGraph = model_module(config.model_type).build(config, weights, BuildOptions(max_seq_len))
    config.finish()
    weights.finish()
    return graph


def _frequencies(width: int = 16, **values: Any) -> Array:
    return read_rope(Config({"model_type": "llama", **values}), width).inv_freq


# --- rotation ---


@pytest.mark.parametrize("theta", [10000.0, 500000, 1e6, 100.0])
@pytest.mark.parametrize("width", [2, 12, 16, 64, 128])
def test_default_rotation_is_the_papers(theta: float, width: int) -> None:
    wanted = inverse_frequencies({"rope_theta": theta}, width)
    for spelling in ({"rope_theta": theta}, {"rope_parameters": {"rope_theta": theta, "rope_type": "default"}}):
        got = _frequencies(width, **spelling)
        assert got.dtype == np.float32
        np.testing.assert_allclose(got, wanted, rtol=3e-6)


@pytest.mark.parametrize("scaling", [{"factor": 4.0}, {"factor": 2}, {"factor": 1.5}, {"factor": 1.0}])
@pytest.mark.parametrize("key", ["type", "rope_type"])
def test_linear_scaling_divides_positions(scaling: dict[str, Any], key: str) -> None:
    older = {"rope_theta": 5000.0, "rope_scaling": {key: "linear", **scaling}}
    newer = {"rope_parameters": {"rope_type": "linear", "rope_theta": 5000.0, **scaling}}
    for values in (older, newer):
        np.testing.assert_allclose(_frequencies(**values), inverse_frequencies(values, 16), rtol=3e-6)
    both = {"type": "linear", "rope_type": "linear", **scaling}
    np.testing.assert_allclose(
        _frequencies(rope_theta=5000.0, rope_scaling=both), inverse_frequencies(older, 16), rtol=3e-6
    )


@pytest.mark.parametrize("factor", [8.0, 32.0])
@pytest.mark.parametrize("original", [32, 8192])
@pytest.mark.parametrize("width", [12, 64, 128])
def test_llama3_scaling_keeps_stretches_and_blends(factor: float, original: int, width: int) -> None:
    scaling = {**LLAMA3, "factor": factor, "original_max_position_embeddings": original}
    older = {"rope_theta": 500000.0, "rope_scaling": scaling}
    newer = {"rope_parameters": {**scaling, "rope_theta": 500000.0}}
    plain = np.array(inverse_frequencies({"rope_theta": 500000.0}, width))
    for values in (older, newer):
        got = _frequencies(width, **values)
        np.testing.assert_allclose(got, inverse_frequencies(values, width), rtol=1e-5)
        ratios = got / plain
        assert ratios.max() <= 1 + 1e-5
        assert ratios.min() >= 1 / factor - 1e-5


@pytest.mark.parametrize("factor", [4.0, 40.0])
@pytest.mark.parametrize("original", [32, 4096])
@pytest.mark.parametrize("betas", [{}, {"beta_fast": 16, "beta_slow": 2}])
@pytest.mark.parametrize("width", [16, 64, 128])
def test_yarn_keeps_stretches_and_blends(width: int, betas: dict[str, int], original: int, factor: float) -> None:
    scaling = {"rope_type": "yarn", "factor": factor, "original_max_position_embeddings": original, **betas}
    values = {"rope_theta": 10000.0, "rope_scaling": scaling}
    np.testing.assert_allclose(_frequencies(width, **values), inverse_frequencies(values, width), rtol=1e-5)
    # Source: YaRN, Peng et al. 2023, section 3.4: the rotation's magnitude.
    magnitude = read_rope(Config({"model_type": "llama", **values}), width).magnitude
    assert magnitude == pytest.approx(0.1 * math.log(factor) + 1)


def test_theta_defaults_to_ten_thousand() -> None:
    np.testing.assert_allclose(_frequencies(), inverse_frequencies({"rope_theta": 10000.0}, 16), rtol=3e-6)
    values: dict[str, Any] = {"rope_theta": None, "rope_scaling": None, "rope_parameters": None}
    np.testing.assert_allclose(_frequencies(**values), inverse_frequencies({"rope_theta": 10000.0}, 16), rtol=3e-6)


@pytest.mark.parametrize("kind", ["dynamic", "longrope", "su", "mrope", "ntk", "proportional", "LLAMA3"])
@pytest.mark.parametrize("key", ["rope_scaling", "rope_parameters"])
def test_rope_types_that_are_not_served_are_refused_by_name(kind: str, key: str) -> None:
    with pytest.raises(lg.UnsupportedError, match=f"rope type '{kind}'") as caught:
        _build({**small_config(), key: {"rope_type": kind, "factor": 2.0}})
    assert caught.value.expected.startswith("one of default, linear, llama3")


@pytest.mark.parametrize(
    ("scaling", "complaint"),
    [
        ({"rope_type": "default", "factor": 2.0}, "factor"),
        ({"rope_type": "linear", "factor": 2.0, "attention_factor": 1.3}, "attention_factor"),
        ({**LLAMA3, "beta_fast": 32}, "beta_fast"),
        ({"rope_type": "linear", "factor": 2.0, "mrope_section": [1, 2]}, "mrope_section"),
        ({"rope_type": "default", "partial_rotary_factor": 0.5}, "partial_rotary_factor"),
    ],
)
def test_rope_keys_that_are_not_understood_are_refused_by_name(scaling: dict[str, Any], complaint: str) -> None:
    with pytest.raises(lg.UnsupportedError, match=complaint):
        _frequencies(rope_scaling=scaling)
    with pytest.raises(lg.UnsupportedError, match=complaint):
        _frequencies(rope_parameters={**scaling, "rope_theta": 10000.0})


def test_a_rotation_of_all_dimensions_may_be_said() -> None:
    plain = _frequencies()
    np.testing.assert_array_equal(_frequencies(partial_rotary_factor=1.0), plain)
    np.testing.assert_array_equal(
        _frequencies(rope_parameters={"rope_type": "default", "partial_rotary_factor": 1.0}), plain
    )
    with pytest.raises(lg.UnsupportedError, match=r"partial_rotary_factor is 0\.25"):
        _frequencies(partial_rotary_factor=0.25)


@pytest.mark.parametrize(
    "missing", ["factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"]
)
@pytest.mark.parametrize("value", [None, "8", True, 0, -1.0, float("nan"), [8.0]])
def test_rope_numbers_must_be_there_and_be_numbers(missing: str, value: object) -> None:
    with pytest.raises(lg.WeightsError, match=f"{missing} is "):
        _frequencies(rope_scaling={**LLAMA3, missing: value})


@pytest.mark.parametrize("theta", ["10000", True, 0, -5.0, float("nan"), float("inf"), [1], {}])
def test_theta_must_be_a_positive_number_wherever_it_stands(theta: object) -> None:
    with pytest.raises(lg.WeightsError, match="rope_theta is "):
        _frequencies(rope_theta=theta)
    with pytest.raises((lg.WeightsError, lg.UnsupportedError), match="rope"):
        _frequencies(rope_parameters={"rope_theta": theta, "rope_type": "default"})


def test_two_different_rotations_are_refused() -> None:
    newer = {"rope_type": "default", "rope_theta": 10000.0}
    with pytest.raises(lg.UnsupportedError, match="rope_parameters and rope_scaling differ"):
        _frequencies(rope_parameters=newer, rope_scaling={"rope_type": "linear", "factor": 2.0})
    with pytest.raises(lg.UnsupportedError, match="rope_theta"):
        _frequencies(rope_parameters=newer, rope_theta=500000.0)
    same = {"rope_type": "linear", "factor": 2.0}
    np.testing.assert_array_equal(
        _frequencies(rope_parameters=same, rope_scaling={"type": "linear", "factor": 2.0}),
        _frequencies(rope_scaling=same),
    )


@pytest.mark.parametrize("value", ["linear", 2.0, [1]])
@pytest.mark.parametrize("key", ["rope_scaling", "rope_parameters"])
def test_rope_scaling_must_be_an_object(key: str, value: object) -> None:
    with pytest.raises(lg.UnsupportedError, match=f"{key} is "):
        read_rope(Config({"model_type": "llama", key: value}), 16)


def test_rotation_per_layer_type_is_refused() -> None:
    with pytest.raises(lg.UnsupportedError, match="per layer type"):
        _frequencies(rope_parameters={"full_attention": {"rope_theta": 1e6}, "sliding_attention": {"rope_theta": 1e4}})


def test_an_odd_number_of_dimensions_cannot_rotate() -> None:
    with pytest.raises(lg.WeightsError, match="head_dim is 7"):
        _build(small_config(head_dim=7))


def test_equal_blending_limits_are_refused() -> None:
    with pytest.raises(lg.WeightsError, match="low_freq_factor equals high_freq_factor"):
        _frequencies(rope_scaling={**LLAMA3, "low_freq_factor": 4.0})


# --- B23: positions and the capacity of the cache ---


@pytest.mark.parametrize("capacity", [8, 64, 65, 200])
def test_rotation_covers_the_capacity_whatever_the_config_says(tmp_path: Path, capacity: int) -> None:
    # No table of positions is baked in: the last row that fits turns as far as the formula says, also past
    # max_position_embeddings, and a row that does not fit is refused before anything runs.
    config = small_config(max_position_embeddings=64)
    tensors = random_tensors(config)
    notes: list[str] = []
    write_folder(tmp_path / "in", config, tensors)
    lg.convert(tmp_path / "in", tmp_path / "out", max_seq_len=capacity, warn=notes.append)
    assert any("longer than the 64" in note for note in notes) == (capacity > 64)

    tokens = np.random.default_rng(1).integers(0, 40, capacity)
    expected = reference_logits(config, tensors, tokens)
    decoder = Decoder.open(tmp_path / "out", threads=1)
    near = capacity - 3
    np.testing.assert_allclose(decoder.append(tokens[:near].tolist()), expected[:near], rtol=0, atol=3e-4)
    with pytest.raises(lg.CacheOverflowError, match=f"4 tokens after {near} pass the end at {capacity}"):
        decoder.append([1, 2, 3, 4])
    assert decoder.length == near
    np.testing.assert_allclose(decoder.append(tokens[near:].tolist()), expected[near:], rtol=0, atol=3e-4)
    with pytest.raises(lg.CacheOverflowError, match=f"pass the end at {capacity}"):
        decoder.append([1])


@pytest.mark.parametrize("capacity", [0, -1, True, 2.0, "8"])
def test_a_capacity_that_is_no_number_of_tokens_is_refused(tmp_path: Path, capacity: Any) -> None:
    write_folder(tmp_path / "in", small_config(), random_tensors(small_config()))
    with pytest.raises(lg.OperandError, match="max_seq_len is"):
        lg.convert(tmp_path / "in", tmp_path / "out", max_seq_len=capacity)
    assert not (tmp_path / "out").exists()


# --- keys ---

NEEDED = ["hidden_size", "num_attention_heads", "num_hidden_layers", "intermediate_size", "vocab_size"]


@pytest.mark.parametrize("key", NEEDED)
def test_a_missing_key_is_named(key: str) -> None:
    values = small_config()
    del values[key]
    with pytest.raises(lg.WeightsError, match=f"{key} is missing"):
        model_module("llama").build(Config(values), WeightsUse(Zeros({})), BuildOptions(16))


@pytest.mark.parametrize("key", [*NEEDED, "head_dim", "num_key_value_heads"])
@pytest.mark.parametrize("value", [0, -4, "4", 4.0, True, [4]])
def test_a_key_of_the_wrong_kind_is_named(key: str, value: object) -> None:
    with pytest.raises(lg.WeightsError, match=f"{key} is ") as caught:
        model_module("llama").build(Config({**small_config(), key: value}), WeightsUse(Zeros({})), BuildOptions(16))
    assert "whole number" in caught.value.expected


@pytest.mark.parametrize(
    ("key", "value"),
    [("rms_norm_eps", 0), ("rms_norm_eps", "1e-5"), ("tie_word_embeddings", "true"), ("tie_word_embeddings", 1),
     ("attention_bias", "no"), ("mlp_bias", 0), ("rms_norm_eps", float("inf"))],
)  # fmt: skip
def test_numbers_and_flags_of_the_wrong_kind_are_named(key: str, value: object) -> None:
    with pytest.raises(lg.WeightsError, match=f"{key} is "):
        model_module("llama").build(Config({**small_config(), key: value}), WeightsUse(Zeros({})), BuildOptions(16))


def test_heads_that_do_not_divide_are_refused() -> None:
    with pytest.raises(lg.WeightsError, match="4 query heads over 3 key heads"):
        _build(small_config(num_key_value_heads=3))
    with pytest.raises(lg.WeightsError, match="hidden_size 32 over 5 heads"):
        _build(small_config(num_attention_heads=5, num_key_value_heads=5))


@pytest.mark.parametrize("act", ["gelu", "gelu_pytorch_tanh", "relu", "SILU", ["silu"]])
@pytest.mark.parametrize("model_type", ["llama", "mistral", "qwen2", "qwen3"])
def test_other_activations_are_refused(model_type: str, act: object) -> None:
    with pytest.raises(lg.UnsupportedError, match="hidden_act is "):
        _build(small_config(model_type, hidden_act=act))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("attention_multiplier", 0.0078125),
        ("embedding_multiplier", 12.0),
        ("residual_multiplier", 0.22),
        ("logits_scaling", 8.0),
        ("final_logit_softcapping", 30.0),
        ("attn_logit_softcapping", 50.0),
        ("quantization_config", {"quant_method": "gptq", "bits": 4}),
        ("query_pre_attn_scalar", 256),
        ("no_rope_layers", [1, 1, 0]),
        ("use_qk_norm", True),
        ("num_local_experts", 8),
        ("add_cross_attention", True),
        ("partial_rotary_factor", 0.5),
        ("is_causal", False),
        ("some_new_idea", 3),
    ],
)
@pytest.mark.parametrize("model_type", ["llama", "qwen3"])
def test_keys_that_may_change_the_mathematics_are_refused_by_name(model_type: str, key: str, value: object) -> None:
    with pytest.raises(lg.UnsupportedError, match=key):
        _build({**small_config(model_type), key: value})


def test_every_unknown_key_is_named_at_once_and_can_be_vouched_for() -> None:
    values = small_config(zeta=1, alpha="x", attention_dropout=0.1)
    with pytest.raises(lg.UnsupportedError, match="not understood: alpha, zeta") as caught:
        _build(values)
    assert vars(caught.value)["keys"] == ("alpha", "zeta")
    assert "--ignore-key" in caught.value.hint
    with pytest.raises(lg.UnsupportedError, match="not understood: zeta"):
        _build(values, ignore=("alpha",))
    _build(values, ignore=("alpha", "zeta"))


def test_unknown_keys_that_say_nothing_pass() -> None:
    _build({**small_config(), "a": None, "b": False, "c": [], "d": {}, "e": "", "is_causal": True})


def test_an_unknown_model_type_lists_those_that_are_served() -> None:
    for name in ("gpt2", "dense", "config", "__init__", "../llama", ""):
        with pytest.raises(lg.UnsupportedError) as caught:
            model_module(name)
        served = vars(caught.value)["served"]
        assert {"llama", "mistral", "qwen2", "qwen3"} <= set(served)
        assert "dense" not in served


# --- variants, against numpy ---

VARIANTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "no key heads said": {"num_key_value_heads": None},
    "one key head": {"num_key_value_heads": 1},
    "head size said": {"head_dim": 6},
    "attention bias": {"attention_bias": True},
    "feed-forward bias": {"mlp_bias": True},
    "all biases": {"attention_bias": True, "mlp_bias": True},
    "linear rotation": {"rope_scaling": {"type": "linear", "factor": 4.0}},
    "llama3 rotation": {"rope_scaling": LLAMA3},
    "large eps": {"rms_norm_eps": 0.5},
    "tied": {"tie_word_embeddings": True},
    "one layer, one head": {"num_hidden_layers": 1, "num_attention_heads": 1, "num_key_value_heads": 1},
}


@pytest.mark.parametrize("changes", VARIANTS.values(), ids=VARIANTS.keys())
def test_llama_variants_compute_what_numpy_does(tmp_path: Path, changes: dict[str, Any]) -> None:
    _holds(tmp_path, small_config(**changes))


@pytest.mark.parametrize(
    "changes", [{}, {"tie_word_embeddings": True}, {"head_dim": 12}], ids=["plain", "tied", "head size"]
)
@pytest.mark.parametrize("model_type", ["mistral", "qwen2", "qwen3"])
def test_the_cousins_compute_what_numpy_does(tmp_path: Path, model_type: str, changes: dict[str, Any]) -> None:
    _holds(tmp_path, small_config(model_type, **({"sliding_window": None} | changes)))


def test_qwen3_with_attention_bias_computes_what_numpy_does(tmp_path: Path) -> None:
    _holds(tmp_path, small_config("qwen3", attention_bias=True))


def _holds(tmp_path: Path, config: dict[str, Any]) -> None:
    tensors = random_tensors(config, seed=3)
    if config["model_type"] == "mistral":
        config = {**config, "sliding_window": None}
    write_folder(tmp_path / "in", config, tensors)
    lg.convert(tmp_path / "in", tmp_path / "out")
    decoder = Decoder.open(tmp_path / "out", threads=1)
    logits = np.concatenate([decoder.append(TOKENS[:4].tolist()), *(decoder.append([int(t)]) for t in TOKENS[4:])])
    np.testing.assert_allclose(logits, reference_logits(config, tensors, TOKENS), rtol=0, atol=1e-4)


# --- sliding windows ---


def _windows(config: dict[str, Any], capacity: int) -> list[int | None]:
    """Return each layer's window, None for none."""
    memory = _build(config, capacity).cache.memory()
    return [slot.window or None for slot in memory if slot.slot == "k"]


def test_mistral_without_the_key_has_the_window_that_transformers_gives_it() -> None:
    # An absent key means 4,096 there; only null means none.
    absent = small_config("mistral", max_position_embeddings=32768)
    assert _windows(absent, 4096) == [None, None]
    assert _windows(absent, 4097) == [4096, 4096]
    assert _windows({**absent, "sliding_window": None}, 8192) == [None, None]


@pytest.mark.parametrize("model_type", ["qwen2", "qwen3"])
def test_qwens_window_counts_only_where_it_is_used(model_type: str) -> None:
    unused = small_config(model_type, sliding_window=8, use_sliding_window=False, max_window_layers=1)
    full, half = ["full_attention"] * 2, ["sliding_attention", "full_attention"]
    assert _windows(unused, 64) == [None, None]
    assert _windows({**unused, "layer_types": full}, 64) == [None, None]
    used = {**unused, "use_sliding_window": True}
    assert _windows(used, 8) == [None, None]
    assert _windows(used, 9) == [None, 8]  # from max_window_layers on
    assert _windows({**used, "max_window_layers": 0}, 9) == [8, 8]
    assert _windows({**used, "max_window_layers": 2}, 9) == [None, None]
    assert _windows({**used, "layer_types": half}, 9) == [8, None]  # which says more than max_window_layers
    assert _windows({**used, "sliding_window": None}, 9) == [None, None]
    absent = {key: value for key, value in used.items() if key != "sliding_window"}
    assert _windows(absent, 4097) == [None, 4096]


def test_layer_types_name_every_layer() -> None:
    with pytest.raises(lg.WeightsError, match="layer_types names 3 layers of 2"):
        _build(small_config("qwen3", layer_types=["full_attention"] * 3))


@pytest.mark.parametrize("value", [-1, 1.5, "2"])
def test_a_first_sliding_layer_that_is_no_number_is_named(value: object) -> None:
    with pytest.raises(lg.WeightsError, match="max_window_layers is "):
        _build(small_config("qwen2", max_window_layers=value))


@pytest.mark.parametrize("value", ["8", 0, -1, True, 8.5])
def test_a_window_that_is_no_number_of_tokens_is_named(value: object) -> None:
    with pytest.raises(lg.WeightsError, match="sliding_window is "):
        _build(small_config("mistral", sliding_window=value))
    with pytest.raises(lg.WeightsError, match="sliding_window is "):
        _build(small_config("qwen2", sliding_window=value, use_sliding_window=True, max_window_layers=0))


@pytest.mark.parametrize("kinds", [5, "sliding", ["chunked_attention"], ["full_attention", "linear_attention"]])
def test_layer_types_that_are_not_served_are_named(kinds: object) -> None:
    with pytest.raises(lg.LazyGraphError, match="layer_types"):
        _build(small_config("qwen3", layer_types=kinds))


# --- configs as the hub has them ---

_EVERYWHERE = {"attention_dropout": 0.0, "hidden_act": "silu", "initializer_range": 0.02, "use_cache": True}
HUB: dict[str, dict[str, Any]] = {
    "Llama-3.2-1B": {
        **_EVERYWHERE,
        "architectures": ["LlamaForCausalLM"],
        "attention_bias": False,
        "bos_token_id": 128000,
        "eos_token_id": [128001, 128008, 128009],
        "head_dim": 64,
        "hidden_size": 2048,
        "intermediate_size": 8192,
        "max_position_embeddings": 131072,
        "mlp_bias": False,
        "model_type": "llama",
        "num_attention_heads": 32,
        "num_hidden_layers": 16,
        "num_key_value_heads": 8,
        "pretraining_tp": 1,
        "rms_norm_eps": 1e-05,
        "rope_scaling": {
            "factor": 32.0,
            "high_freq_factor": 4.0,
            "low_freq_factor": 1.0,
            "original_max_position_embeddings": 8192,
            "rope_type": "llama3",
        },
        "rope_theta": 500000.0,
        "tie_word_embeddings": True,
        "torch_dtype": "bfloat16",
        "transformers_version": "4.45.0.dev0",
        "vocab_size": 128256,
    },
    "Llama-2-7b": {
        "_name_or_path": "meta-llama/Llama-2-7b-hf",
        "architectures": ["LlamaForCausalLM"],
        "bos_token_id": 1,
        "eos_token_id": 2,
        "hidden_act": "silu",
        "hidden_size": 4096,
        "initializer_range": 0.02,
        "intermediate_size": 11008,
        "max_position_embeddings": 4096,
        "model_type": "llama",
        "num_attention_heads": 32,
        "num_hidden_layers": 32,
        "num_key_value_heads": 32,
        "pretraining_tp": 1,
        "rms_norm_eps": 1e-05,
        "rope_scaling": None,
        "tie_word_embeddings": False,
        "torch_dtype": "float16",
        "transformers_version": "4.31.0.dev0",
        "use_cache": True,
        "vocab_size": 32000,
    },
    "SmolLM2-135M-Instruct": {
        "architectures": ["LlamaForCausalLM"],
        "attention_bias": False,
        "attention_dropout": 0.0,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "hidden_act": "silu",
        "hidden_size": 576,
        "initializer_range": 0.041666666666666664,
        "intermediate_size": 1536,
        "is_llama_config": True,
        "max_position_embeddings": 8192,
        "mlp_bias": False,
        "model_type": "llama",
        "num_attention_heads": 9,
        "num_hidden_layers": 30,
        "num_key_value_heads": 3,
        "pad_token_id": 2,
        "pretraining_tp": 1,
        "rms_norm_eps": 1e-05,
        "rope_interleaved": False,
        "rope_scaling": None,
        "rope_theta": 100000,
        "tie_word_embeddings": True,
        "torch_dtype": "bfloat16",
        "transformers.js_config": {"kv_cache_dtype": {"q4f16": "float16", "fp16": "float16"}},
        "transformers_version": "4.42.3",
        "use_cache": True,
        "vocab_size": 49152,
    },
    "TinyLlama-1.1B": {
        "architectures": ["LlamaForCausalLM"],
        "attention_bias": False,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "hidden_act": "silu",
        "hidden_size": 2048,
        "initializer_range": 0.02,
        "intermediate_size": 5632,
        "max_position_embeddings": 2048,
        "model_type": "llama",
        "num_attention_heads": 32,
        "num_hidden_layers": 22,
        "num_key_value_heads": 4,
        "pretraining_tp": 1,
        "rms_norm_eps": 1e-05,
        "rope_scaling": None,
        "rope_theta": 10000.0,
        "tie_word_embeddings": False,
        "torch_dtype": "bfloat16",
        "transformers_version": "4.35.0",
        "use_cache": True,
        "vocab_size": 32000,
    },
    "Qwen2.5-0.5B-Instruct": {
        **_EVERYWHERE,
        "architectures": ["Qwen2ForCausalLM"],
        "bos_token_id": 151643,
        "eos_token_id": 151645,
        "hidden_size": 896,
        "intermediate_size": 4864,
        "max_position_embeddings": 32768,
        "max_window_layers": 21,
        "model_type": "qwen2",
        "num_attention_heads": 14,
        "num_hidden_layers": 24,
        "num_key_value_heads": 2,
        "rms_norm_eps": 1e-06,
        "rope_theta": 1000000.0,
        "sliding_window": 32768,
        "tie_word_embeddings": True,
        "torch_dtype": "bfloat16",
        "transformers_version": "4.43.1",
        "use_sliding_window": False,
        "vocab_size": 151936,
    },
    "Qwen2.5-0.5B": {
        **_EVERYWHERE,
        "architectures": ["Qwen2ForCausalLM"],
        "bos_token_id": 151643,
        "eos_token_id": 151643,
        "hidden_size": 896,
        "intermediate_size": 4864,
        "max_position_embeddings": 32768,
        "max_window_layers": 24,
        "model_type": "qwen2",
        "num_attention_heads": 14,
        "num_hidden_layers": 24,
        "num_key_value_heads": 2,
        "rms_norm_eps": 1e-06,
        "rope_theta": 1000000.0,
        "sliding_window": 32768,
        "tie_word_embeddings": True,
        "torch_dtype": "bfloat16",
        "transformers_version": "4.40.1",
        "use_mrope": False,
        "use_sliding_window": False,
        "vocab_size": 151936,
    },
    "Qwen3-0.6B": {
        **_EVERYWHERE,
        "architectures": ["Qwen3ForCausalLM"],
        "attention_bias": False,
        "bos_token_id": 151643,
        "eos_token_id": 151645,
        "head_dim": 128,
        "hidden_size": 1024,
        "intermediate_size": 3072,
        "max_position_embeddings": 40960,
        "max_window_layers": 28,
        "model_type": "qwen3",
        "num_attention_heads": 16,
        "num_hidden_layers": 28,
        "num_key_value_heads": 8,
        "rms_norm_eps": 1e-06,
        "rope_scaling": None,
        "rope_theta": 1000000,
        "sliding_window": None,
        "tie_word_embeddings": True,
        "torch_dtype": "bfloat16",
        "transformers_version": "4.51.0",
        "use_sliding_window": False,
        "vocab_size": 151936,
    },
    "Mistral-7B-v0.3": {
        **_EVERYWHERE,
        "architectures": ["MistralForCausalLM"],
        "bos_token_id": 1,
        "eos_token_id": 2,
        "hidden_size": 4096,
        "intermediate_size": 14336,
        "max_position_embeddings": 32768,
        "model_type": "mistral",
        "num_attention_heads": 32,
        "num_hidden_layers": 32,
        "num_key_value_heads": 8,
        "rms_norm_eps": 1e-05,
        "rope_theta": 1000000.0,
        "sliding_window": None,
        "tie_word_embeddings": False,
        "torch_dtype": "bfloat16",
        "transformers_version": "4.42.0.dev0",
        "vocab_size": 32768,
    },
}


@pytest.mark.parametrize("name", HUB)
def test_configs_of_the_hub_are_read_and_their_graphs_built(name: str) -> None:
    values = HUB[name]
    graph = _build(values, max_seq_len=values["max_position_embeddings"])
    layout = graph.cache.layout
    width = values.get("head_dim", values["hidden_size"] // values["num_attention_heads"])
    assert layout.n_layers == values["num_hidden_layers"]
    assert layout.trailing == ((values["num_key_value_heads"], width),) * 2
    assert graph.logits.shape[-1] == graph.vocab_size == values["vocab_size"]
    assert graph.max_position == values["max_position_embeddings"]
    assert graph.logits.dtype is lg.float32


@pytest.mark.parametrize(
    "name", ["Llama-3.2-1B", "SmolLM2-135M-Instruct", "Qwen2.5-0.5B", "Qwen3-0.6B", "Mistral-7B-v0.3"]
)
def test_each_key_of_a_hub_config_either_matters_or_is_known_not_to(name: str) -> None:
    # Under another name every key that says something would be refused: none passes unread.
    for key, value in HUB[name].items():
        if value in (None, False, 0.0) or key in ("model_type", "hidden_act"):
            continue
        with pytest.raises(lg.UnsupportedError, match=f"{key}_renamed"):
            Config({"model_type": "x", f"{key}_renamed": value}).finish()


def test_a_config_of_one_family_does_not_pass_for_another() -> None:
    values = {**HUB["Qwen2.5-0.5B"], "model_type": "llama"}
    with pytest.raises(lg.UnsupportedError, match="sliding_window"):
        _build(values)
