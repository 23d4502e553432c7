"""Small checkpoints of the Llama family, and what they compute, in numpy alone: nothing here comes from lazygraph."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]

_CODES = {
    "float32": "F32",
    "float16": "F16",
    "bfloat16": "BF16",
    "float64": "F64",
    "int64": "I64",
    "float8_e4m3fn": "F8_E4M3",
}


def small_config(model_type: str = "llama", **changes: Any) -> dict[str, Any]:
    """Return a config of a model that is made in milliseconds; None takes a key out."""
    config = {
        "model_type": model_type,
        "hidden_act": "silu",
        "hidden_size": 32,
        "intermediate_size": 48,
        "max_position_embeddings": 64,
        "num_attention_heads": 4,
        "num_hidden_layers": 2,
        "num_key_value_heads": 2,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "tie_word_embeddings": False,
        "vocab_size": 40,
        **changes,
    }
    return {key: value for key, value in config.items() if value is not None}


def shapes(config: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    """Return every tensor that a config needs, by its name in the checkpoint."""
    hidden, inner = config["hidden_size"], config["intermediate_size"]
    heads = config["num_attention_heads"]
    kv_heads = config.get("num_key_value_heads") or heads
    width = config.get("head_dim") or hidden // heads
    kind = config["model_type"]
    qkv_bias = kind == "qwen2" or config.get("attention_bias", False)
    o_bias = kind != "qwen2" and config.get("attention_bias", False)
    found: dict[str, tuple[int, ...]] = {
        "model.embed_tokens.weight": (config["vocab_size"], hidden),
        "model.norm.weight": (hidden,),
    }
    if not config.get("tie_word_embeddings", False):
        found["lm_head.weight"] = (config["vocab_size"], hidden)
    for layer in range(config["num_hidden_layers"]):
        p = f"model.layers.{layer}."
        found[p + "input_layernorm.weight"] = found[p + "post_attention_layernorm.weight"] = (hidden,)
        for name, rows in (("q", heads), ("k", kv_heads), ("v", kv_heads)):
            found[f"{p}self_attn.{name}_proj.weight"] = (rows * width, hidden)
            if qkv_bias:
                found[f"{p}self_attn.{name}_proj.bias"] = (rows * width,)
        found[p + "self_attn.o_proj.weight"] = (hidden, heads * width)
        if o_bias:
            found[p + "self_attn.o_proj.bias"] = (hidden,)
        if kind == "qwen3":
            found[p + "self_attn.q_norm.weight"] = found[p + "self_attn.k_norm.weight"] = (width,)
        for name, sizes in (("gate", (inner, hidden)), ("up", (inner, hidden)), ("down", (hidden, inner))):
            found[f"{p}mlp.{name}_proj.weight"] = sizes
            if config.get("mlp_bias", False):
                found[f"{p}mlp.{name}_proj.bias"] = (sizes[0],)
    return found


def random_tensors(config: Mapping[str, Any], seed: int = 0) -> dict[str, Array]:
    """Return weights large enough that every part of the model matters to its logits."""
    random = np.random.default_rng(seed)
    tensors = {}
    for name, sizes in shapes(config).items():
        numbers = random.normal(size=sizes)
        if "norm" in name:
            numbers = 1 + 0.3 * numbers
        elif len(sizes) == 2 and "embed" not in name:
            numbers = 1.5 * numbers / math.sqrt(sizes[1])
        tensors[name] = numbers.astype(np.float32)
    return tensors


def write_folder(folder: Path, config: Mapping[str, Any], tensors: Mapping[str, Array], shards: int = 1) -> Path:
    """Write a checkpoint as the hub lays it out; several shards get an index."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    if shards == 1:
        write_safetensors(folder / "model.safetensors", tensors)
        return folder
    names = list(tensors)
    weight_map: dict[str, str] = {}
    for number in range(shards):
        file = f"model-{number + 1:05}-of-{shards:05}.safetensors"
        part = names[number::shards]
        write_safetensors(folder / file, {name: tensors[name] for name in part})
        weight_map |= dict.fromkeys(part, file)
    index = {"metadata": {"total_size": sum(t.nbytes for t in tensors.values())}, "weight_map": weight_map}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return folder


def write_safetensors(file: Path, tensors: Mapping[str, Array]) -> None:
    """Write tensors of any element type. Source: the format's own description."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    blocks, end = [], 0
    for name, numbers in tensors.items():
        block = np.ascontiguousarray(numbers).tobytes()
        offsets = [end, end + len(block)]
        header[name] = {"dtype": _CODES[numbers.dtype.name], "shape": list(numbers.shape), "data_offsets": offsets}
        blocks.append(block)
        end += len(block)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    file.write_bytes(len(text).to_bytes(8, "little") + text + b"".join(blocks))


def inverse_frequencies(config: Mapping[str, Any], width: int) -> list[float]:
    """Return radians per position for each pair, in plain Python floats, from either spelling of the config."""
    scaling = {**(config.get("rope_scaling") or {}), **(config.get("rope_parameters") or {})}
    theta = scaling.get("rope_theta", config.get("rope_theta", 10000.0))
    kind = scaling.get("rope_type", scaling.get("type", "default"))
    out = []
    for pair in range(width // 2):
        frequency = theta ** (-2.0 * pair / width)
        if kind == "linear":
            frequency /= scaling["factor"]
        elif kind == "llama3":
            # Whole turns within the original context: few are stretched, many are kept, between them it is blended.
            turns = scaling["original_max_position_embeddings"] * frequency / (2 * math.pi)
            low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
            share = min(1.0, max(0.0, (turns - low) / (high - low)))
            frequency = share * frequency + (1 - share) * frequency / scaling["factor"]
        elif kind == "yarn":
            # The pair that turns so often within the original context; between two such pairs it is blended.
            context = scaling["original_max_position_embeddings"]
            ends = [
                width * math.log(context / (turns * 2 * math.pi)) / (2 * math.log(theta))
                for turns in (scaling.get("beta_fast", 32), scaling.get("beta_slow", 1))
            ]
            first, last = max(math.floor(ends[0]), 0), min(math.ceil(ends[1]), width - 1)
            share = min(1.0, max(0.0, (pair - first) / max(last - first, 0.001)))
            frequency = share * frequency / scaling["factor"] + (1 - share) * frequency
        out.append(frequency)
    return out


def reference_logits(config: Mapping[str, Any], tensors: Mapping[str, Array], tokens: Array) -> Array:
    """Return the logits after each token, ``float64 (n, vocab)``, the whole text in one pass over full matrices."""
    t = {name: numbers.astype(np.float64) for name, numbers in tensors.items()}
    n, heads = len(tokens), config["num_attention_heads"]
    kv_heads = config.get("num_key_value_heads") or heads
    width = config.get("head_dim") or config["hidden_size"] // heads
    eps = config.get("rms_norm_eps", 1e-6)
    angles = np.outer(np.arange(n), inverse_frequencies(config, width))
    later = np.arange(n)[None, :] > np.arange(n)[:, None]
    too_old = np.arange(n)[None, :] <= np.arange(n)[:, None] - (config.get("sliding_window") or n)
    kinds = config.get("layer_types") or ["sliding_attention"] * config["num_hidden_layers"]

    def norm(x: Array, name: str) -> Array:
        scaled: Array = x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * t[name]
        return scaled

    def project(x: Array, name: str) -> Array:
        y: Array = x @ t[name + ".weight"].T
        return y + t[name + ".bias"] if name + ".bias" in t else y

    def rotate(x: Array) -> Array:
        turned = np.empty_like(x)
        half = width // 2
        for position in range(n):
            for pair in range(half):
                c, s = math.cos(angles[position, pair]), math.sin(angles[position, pair])
                a, b = x[position, :, pair], x[position, :, pair + half]
                turned[position, :, pair], turned[position, :, pair + half] = a * c - b * s, b * c + a * s
        return turned

    x = t["model.embed_tokens.weight"][tokens]
    for layer in range(config["num_hidden_layers"]):
        p = f"model.layers.{layer}."
        h = norm(x, p + "input_layernorm.weight")
        q = project(h, p + "self_attn.q_proj").reshape(n, heads, width)
        k = project(h, p + "self_attn.k_proj").reshape(n, kv_heads, width)
        v = project(h, p + "self_attn.v_proj").reshape(n, kv_heads, width)
        if p + "self_attn.q_norm.weight" in t:
            q, k = norm(q, p + "self_attn.q_norm.weight"), norm(k, p + "self_attn.k_norm.weight")
        q, k = rotate(q), rotate(k)
        mixed = np.empty((n, heads, width))
        hidden_rows = later | too_old if kinds[layer] == "sliding_attention" else later
        for head in range(heads):
            group = head // (heads // kv_heads)
            scores = np.where(hidden_rows, -np.inf, q[:, head] @ k[:, group].T / math.sqrt(width))
            weights = np.exp(scores - scores.max(-1, keepdims=True))
            mixed[:, head] = weights / weights.sum(-1, keepdims=True) @ v[:, group]
        x = x + project(mixed.reshape(n, -1), p + "self_attn.o_proj")
        h = norm(x, p + "post_attention_layernorm.weight")
        gate, up = project(h, p + "mlp.gate_proj"), project(h, p + "mlp.up_proj")
        x = x + project(gate / (1 + np.exp(-gate)) * up, p + "mlp.down_proj")
    logits: Array = norm(x, "model.norm.weight") @ t.get("lm_head.weight", t["model.embed_tokens.weight"]).T
    return logits
