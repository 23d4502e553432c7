"""The Hugging Face config that a GGUF file's metadata amounts to."""

from __future__ import annotations

from typing import Any

import numpy as np

from lazygraph.errors import UnsupportedError, WeightsError
from lazygraph.models.files import asking_line, ids_of
from lazygraph.models.gguf_file import GgufFile

# general.architecture -> the class that a Hugging Face config names. Mistral's files say "llama".
ARCHITECTURES = {"llama": "LlamaForCausalLM", "qwen2": "Qwen2ForCausalLM", "qwen3": "Qwen3ForCausalLM"}

# Divisors of the rotary frequencies: what llama.cpp's converter makes of rope type llama3.
ROPE_FACTORS = "rope_freqs.weight"

# Keys after "<arch>." that are read below, and keys that do not change what the model computes. Any other key is
# refused: llama.cpp adds one for each new twist of the mathematics (scales, soft caps, non-causal attention).
_READ = (
    "block_count",
    "context_length",
    "embedding_length",
    "feed_forward_length",
    "vocab_size",
    "attention.head_count",
    "attention.head_count_kv",
    "attention.key_length",
    "attention.value_length",
    "attention.layer_norm_rms_epsilon",
    "attention.sliding_window",
    "attention.causal",
    "rope.dimension_count",
    "rope.freq_base",
    "rope.scale_linear",
    "rope.scaling.type",
    "rope.scaling.factor",
    "rope.scaling.original_context_length",
    "rope.scaling.attn_factor",
    "rope.scaling.yarn_ext_factor",
    "rope.scaling.yarn_attn_factor",
    "rope.scaling.yarn_beta_fast",
    "rope.scaling.yarn_beta_slow",
    "expert_count",
    "expert_used_count",
)
_HARMLESS = ("tensor_data_layout", "rope.scaling.finetuned", "pooling_type")


def require_architecture(file: GgufFile) -> str:
    """Return the file's architecture.

    Raises:
        UnsupportedError: It is none of ``ARCHITECTURES``.
    """
    if file.architecture not in ARCHITECTURES:
        raise UnsupportedError(
            f"GGUF architecture {file.architecture!r} is not read",
            op="open",
            operands={"file": file.path},
            expected="one of " + ", ".join(ARCHITECTURES),
            hint="the safetensors folder of the same model may be",
            at=asking_line(),
        )
    return file.architecture


def config_of(file: GgufFile) -> dict[str, Any]:
    """Return the file's metadata under the keys of a Hugging Face ``config.json``.

    One key is not Hugging Face's: ``rope_freq_factors``, a list of ``head_dim / 2`` floats by which the inverse
    frequencies are divided. It stands for ``rope_scaling`` of type ``llama3``, whose four numbers the file does not
    keep. ``attention_bias`` says whether the query projection has a bias (qwen2 always has, and has no such key).

    Raises:
        WeightsError: A key that the architecture needs is absent or of the wrong kind.
        UnsupportedError: The architecture, or a key that changes the mathematics, is not known.
    """
    keys = _Keys(file, require_architecture(file))
    keys.refuse_unknown()

    heads = keys.whole("attention.head_count")
    hidden = keys.whole("embedding_length")
    head_dim = keys.whole("attention.key_length", hidden // heads if heads else 0)
    experts = keys.whole("expert_count", 0)
    window = keys.whole("attention.sliding_window", 0)
    if keys.whole("attention.value_length", head_dim) != head_dim:
        raise keys.unsupported("attention.value_length", f"the key length {head_dim}")
    if not keys.get("attention.causal", True):
        raise keys.unsupported("attention.causal", "true")

    config: dict[str, Any] = {
        "architectures": [ARCHITECTURES[keys.architecture]],
        "model_type": keys.architecture,
        "hidden_act": "silu",
        "hidden_size": hidden,
        "intermediate_size": keys.whole("feed_forward_length"),
        "num_hidden_layers": keys.whole("block_count"),
        "num_attention_heads": heads,
        "num_key_value_heads": keys.whole("attention.head_count_kv", heads),
        "head_dim": head_dim,
        "rms_norm_eps": keys.number("attention.layer_norm_rms_epsilon"),
        "rope_theta": keys.number("rope.freq_base", 10000.0),
        "max_position_embeddings": keys.whole("context_length"),
        "vocab_size": _vocab_size(keys),
        "tie_word_embeddings": "output.weight" not in file.tensors,
    }
    if keys.architecture != "qwen2":
        config["attention_bias"] = "blk.0.attn_q.bias" in file.tensors
    if keys.architecture == "llama":
        config["mlp_bias"] = "blk.0.ffn_gate.bias" in file.tensors
    config |= _rope_scaling(keys)
    rotated = keys.whole("rope.dimension_count", head_dim)
    if rotated != head_dim:
        config["partial_rotary_factor"] = rotated / head_dim
    if keys.architecture == "llama" and window:
        config |= {"architectures": ["MistralForCausalLM"], "model_type": "mistral", "sliding_window": window}
    elif window:
        # Which of its layers slide is not in the file.
        raise keys.unsupported("attention.sliding_window", "none, or a llama file")
    if experts:
        config |= {"num_local_experts": experts, "num_experts_per_tok": keys.whole("expert_used_count")}
        if keys.architecture == "llama":
            config |= {"architectures": ["MixtralForCausalLM"], "model_type": "mixtral"}

    for name in ("bos", "eos"):
        for token in ids_of(file.metadata.get(f"tokenizer.ggml.{name}_token_id")):
            config[f"{name}_token_id"] = token
    return config


def _rope_scaling(keys: _Keys) -> dict[str, Any]:
    kind = str(keys.get("rope.scaling.type", "none"))
    factor = keys.number("rope.scaling.factor", keys.number("rope.scale_linear", 1.0))
    if kind == "none" and "rope.scaling.type" not in keys and factor != 1.0:
        kind = "linear"  # files older than the type key scale linearly

    scaling: dict[str, Any] = {}
    if kind == "linear":
        scaling = {"rope_type": "linear", "factor": factor} if factor != 1.0 else {}
    elif kind == "yarn":
        scaling = {
            "rope_type": "yarn",
            "factor": factor,
            "original_max_position_embeddings": keys.whole("rope.scaling.original_context_length"),
            "beta_fast": keys.number("rope.scaling.yarn_beta_fast", 32.0),
            "beta_slow": keys.number("rope.scaling.yarn_beta_slow", 1.0),
        }
    elif kind != "none":
        raise keys.unsupported("rope.scaling.type", "none, linear or yarn")

    # llama.cpp multiplies the rotation's own magnitude by these; other values than 1 have no Hugging Face key.
    for key in ("rope.scaling.attn_factor", "rope.scaling.yarn_attn_factor", "rope.scaling.yarn_ext_factor"):
        if keys.number(key, 1.0) != 1.0:
            raise keys.unsupported(key, "1")

    config: dict[str, Any] = {"rope_scaling": scaling} if scaling else {}
    factors = keys.file.tensors.get(ROPE_FACTORS)
    if factors is not None and not np.all(factors.data == 1.0):
        if kind == "yarn" or factors.tensor_type.name != "F32":
            raise keys.unsupported("rope.scaling.type", f"none or linear beside the F32 tensor {ROPE_FACTORS}")
        config["rope_freq_factors"] = [float(factor) for factor in factors.data]
    return config


def _vocab_size(keys: _Keys) -> int:
    embedding = keys.file.tensors.get("token_embd.weight")
    if embedding is None:
        raise WeightsError(
            "the file has no tensor 'token_embd.weight'",
            op="open",
            operands={"file": keys.file.path},
            at=asking_line(),
            missing=("model.embed_tokens.weight",),
        )
    return int(embedding.shape[-1])


class _Keys:
    """The keys of one architecture, checked as they are read."""

    def __init__(self, file: GgufFile, architecture: str) -> None:
        self.file = file
        self.architecture = architecture

    def __contains__(self, key: str) -> bool:
        return f"{self.architecture}.{key}" in self.file.metadata

    def get(self, key: str, default: Any = None) -> Any:
        return self.file.metadata.get(f"{self.architecture}.{key}", default)

    def whole(self, key: str, default: int | None = None) -> int:
        value = self._value(key, default)
        if isinstance(value, list) and len(set(value)) == 1:
            value = value[0]  # a value per layer, all alike
        if isinstance(value, list):
            raise self.unsupported(key, "one value for all layers")
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise self._wrong(key, value, "an integer of at least 0")
        return value

    def number(self, key: str, default: float | None = None) -> float:
        value = self._value(key, default)
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise self._wrong(key, value, "a number")
        # The file holds float32; its shortest decimal is what the original config said (1e-05, not 9.99999974e-06).
        return float(str(np.float32(value)))

    def refuse_unknown(self) -> None:
        prefix = self.architecture + "."
        known = {*_READ, *_HARMLESS}
        for name in self.file.metadata:
            if name.startswith(prefix) and name.removeprefix(prefix) not in known:
                raise UnsupportedError(
                    f"metadata key {name!r} is not known and may change what the model computes",
                    op="open",
                    operands={"file": self.file.path, "value": repr(self.file.metadata[name])[:80]},
                    expected="one of " + ", ".join(sorted(prefix + key for key in known)),
                    at=asking_line(),
                )

    def unsupported(self, key: str, expected: str) -> UnsupportedError:
        return UnsupportedError(
            f"metadata key '{self.architecture}.{key}' is {self.get(key)!r}",
            op="open",
            operands={"file": self.file.path},
            expected=expected,
            at=asking_line(),
        )

    def _value(self, key: str, default: Any) -> Any:
        value = self.get(key, default)
        if value is None:
            raise WeightsError(
                f"metadata key '{self.architecture}.{key}' is absent",
                op="open",
                operands={"file": self.file.path},
                at=asking_line(),
            )
        return value

    def _wrong(self, key: str, value: object, expected: str) -> WeightsError:
        return WeightsError(
            f"metadata key '{self.architecture}.{key}' is {value!r}",
            op="open",
            operands={"file": self.file.path},
            expected=expected,
            at=asking_line(),
        )
