"""Small checkpoints of the DeepSeek family, and what they compute, in numpy alone: nothing here comes from lazygraph.

Attention is written out with every head's keys and values, rotation by complex numbers, mixtures by a loop over tokens.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from tests.support.checkpoints import Array

Rounding = Callable[[Array], Array]


def deepseek_config(model_type: str = "deepseek_v3", **changes: Any) -> dict[str, Any]:
    """Return a config of a model that is made in milliseconds; None takes a key out."""
    config = {
        "model_type": model_type,
        "hidden_act": "silu",
        "hidden_size": 32,
        "intermediate_size": 40,
        "moe_intermediate_size": 20,
        "first_k_dense_replace": 1,
        "kv_lora_rank": 16,
        "q_lora_rank": 12,
        "qk_nope_head_dim": 6,
        "qk_rope_head_dim": 8,
        "v_head_dim": 5,
        "n_routed_experts": 8,
        "n_shared_experts": 1,
        "num_experts_per_tok": 3,
        "n_group": 4,
        "topk_group": 2,
        "norm_topk_prob": model_type == "deepseek_v3",
        "routed_scaling_factor": 1.5,
        "topk_method": "noaux_tc" if model_type == "deepseek_v3" else "group_limited_greedy",
        "max_position_embeddings": 64,
        "num_attention_heads": 3,
        "num_key_value_heads": 3,
        "num_hidden_layers": 2,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "tie_word_embeddings": False,
        "vocab_size": 40,
        **changes,
    }
    return {
        key: value for key, value in config.items() if value is not None or (key in changes and key == "q_lora_rank")
    }


def deepseek_shapes(config: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    """Return every tensor that a config needs, by its name in the checkpoint."""
    hidden, heads = config["hidden_size"], config["num_attention_heads"]
    rank, nope = config["kv_lora_rank"], config["qk_nope_head_dim"]
    turning, v, q_rank = config["qk_rope_head_dim"], config["v_head_dim"], config["q_lora_rank"]
    bias = config.get("attention_bias", False)
    found: dict[str, tuple[int, ...]] = {
        "model.embed_tokens.weight": (config["vocab_size"], hidden),
        "model.norm.weight": (hidden,),
        "lm_head.weight": (config["vocab_size"], hidden),
    }

    def gated(prefix: str, inner: int) -> None:
        found[f"{prefix}.gate_proj.weight"] = found[f"{prefix}.up_proj.weight"] = (inner, hidden)
        found[f"{prefix}.down_proj.weight"] = (hidden, inner)

    for layer in range(config["num_hidden_layers"]):
        p = f"model.layers.{layer}."
        a = p + "self_attn."
        found[p + "input_layernorm.weight"] = found[p + "post_attention_layernorm.weight"] = (hidden,)
        if q_rank is None:
            found[a + "q_proj.weight"] = (heads * (nope + turning), hidden)
        else:
            found[a + "q_a_proj.weight"], found[a + "q_a_layernorm.weight"] = (q_rank, hidden), (q_rank,)
            found[a + "q_b_proj.weight"] = (heads * (nope + turning), q_rank)
        found[a + "kv_a_proj_with_mqa.weight"] = (rank + turning, hidden)
        found[a + "kv_a_layernorm.weight"] = (rank,)
        found[a + "kv_b_proj.weight"] = (heads * (nope + v), rank)
        found[a + "o_proj.weight"] = (hidden, heads * v)
        if bias:
            found[a + "kv_a_proj_with_mqa.bias"], found[a + "o_proj.bias"] = (rank + turning,), (hidden,)
            if q_rank is not None:
                found[a + "q_a_proj.bias"] = (q_rank,)
        if layer < config["first_k_dense_replace"]:
            gated(p + "mlp", config["intermediate_size"])
            continue
        found[p + "mlp.gate.weight"] = (config["n_routed_experts"], hidden)
        if config["model_type"] == "deepseek_v3":
            found[p + "mlp.gate.e_score_correction_bias"] = (config["n_routed_experts"],)
        for expert in range(config["n_routed_experts"]):
            gated(f"{p}mlp.experts.{expert}", config["moe_intermediate_size"])
        if config["n_shared_experts"]:
            gated(p + "mlp.shared_experts", config["moe_intermediate_size"] * config["n_shared_experts"])
    return found


def random_deepseek(config: Mapping[str, Any], seed: int = 0) -> dict[str, Array]:
    """Return weights large enough that every part of the model matters to its logits."""
    random = np.random.default_rng(seed)
    tensors = {}
    for name, sizes in deepseek_shapes(config).items():
        numbers = random.normal(size=sizes)
        if "norm" in name:
            numbers = 1 + 0.3 * numbers
        elif name.endswith(("bias", "e_score_correction_bias")):
            numbers = 0.2 * numbers
        elif "embed" not in name:
            numbers = 1.5 * numbers / math.sqrt(sizes[1])
        tensors[name] = numbers.astype(np.float32)
    return tensors


# --- rotation ---


def rope_keys(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keys of the rotation from either spelling."""
    keys = {**(config.get("rope_scaling") or {}), **(config.get("rope_parameters") or {})}
    keys.setdefault("rope_theta", config.get("rope_theta", 10000.0))
    keys["kind"] = keys.get("rope_type") or keys.get("type") or "default"
    return keys


def yarn_frequencies(config: Mapping[str, Any], width: int) -> list[float]:
    """Return radians per position for each pair, in plain Python floats."""
    keys = rope_keys(config)
    theta = keys["rope_theta"]
    plain = [theta ** (-2.0 * pair / width) for pair in range(width // 2)]
    if keys["kind"] != "yarn":
        return plain
    length = keys.get("original_max_position_embeddings") or config["max_position_embeddings"]

    def pair_with(turns: float) -> float:
        """Return the pair, a real number, that turns so often over the original length: solve L f / 2 pi = turns."""
        return width / 2 * math.log(length / (2 * math.pi * turns), theta)

    first, last = pair_with(keys.get("beta_fast") or 32), pair_with(keys.get("beta_slow") or 1)
    if keys.get("truncate", True):
        first, last = math.floor(first), math.ceil(last)
    first, last = max(first, 0), min(last, width - 1)
    out = []
    for pair, frequency in enumerate(plain):
        slow = (pair - first) / (last - first) if last != first else float(pair > first)
        slow = min(1.0, max(0.0, slow))
        out.append(frequency * (1 - slow) + frequency / keys["factor"] * slow)
    return out


def yarn_mscale(factor: float, mscale: float) -> float:
    """Return the growth that a factor asks for."""
    return 1 + 0.1 * mscale * math.log(factor) if factor > 1 else 1.0


def yarn_magnitude(config: Mapping[str, Any]) -> float:
    """Return what cosines and sines are multiplied by."""
    keys = rope_keys(config)
    if keys["kind"] != "yarn":
        return 1.0
    if keys.get("attention_factor") is not None:
        return float(keys["attention_factor"])
    if keys.get("mscale") and keys.get("mscale_all_dim"):
        return yarn_mscale(keys["factor"], keys["mscale"]) / yarn_mscale(keys["factor"], keys["mscale_all_dim"])
    return yarn_mscale(keys["factor"], 1.0)


def softmax_scale(config: Mapping[str, Any]) -> float:
    """Return what multiplies the scores of latent attention."""
    keys = rope_keys(config)
    scale: float = (config["qk_nope_head_dim"] + config["qk_rope_head_dim"]) ** -0.5
    if keys["kind"] == "yarn" and keys.get("mscale_all_dim"):
        scale *= yarn_mscale(keys["factor"], keys["mscale_all_dim"]) ** 2
    return scale


def turned(x: Array, positions: Array, frequencies: Array, interleaved: bool, magnitude: float = 1.0) -> Array:
    """Return ``x (n, ..., d)`` with pairs of its last axis turned as complex numbers, in the layout that it came in.

    Pairs are adjacent where ``interleaved``, else ``(i, i + d / 2)``.
    """
    half = x.shape[-1] // 2
    real, imaginary = (x[..., 0::2], x[..., 1::2]) if interleaved else (x[..., :half], x[..., half:])
    angles = np.multiply.outer(np.asarray(positions, np.float64), np.asarray(frequencies, np.float64))
    angles = angles.reshape(len(positions), *[1] * (x.ndim - 2), half)
    numbers = (real + 1j * imaginary) * np.exp(1j * angles) * magnitude
    out = np.empty(x.shape, np.float64)
    if interleaved:
        out[..., 0::2], out[..., 1::2] = numbers.real, numbers.imag
    else:
        out[..., :half], out[..., half:] = numbers.real, numbers.imag
    return out


# --- attention ---


def softmax(x: Array) -> Array:
    """Return the softmax over the last axis."""
    grown = np.exp(x - x.max(-1, keepdims=True))
    shares: Array = grown / grown.sum(-1, keepdims=True)
    return shares


def latent_attention(
    q_nope: Array, q_pe: Array, w_uk: Array, w_uv: Array, c_kv: Array, k_pe: Array, scale: float, visible: Array
) -> Array:
    """Return MLA with each head's keys and values written out, ``(n, heads * v)``.

    Shapes as lazygraph's: ``q_nope (heads, n, nope)``, ``q_pe (heads, n, rope)``, ``w_uk (heads, nope, rank)``,
    ``w_uv (heads, rank, v)``, ``c_kv (rows, rank)``, ``k_pe (rows, rope)``, ``visible (n, rows)``.
    """
    heads = []
    for head in range(q_nope.shape[0]):
        keys, values = c_kv @ w_uk[head].T, c_kv @ w_uv[head]
        scores = (q_nope[head] @ keys.T + q_pe[head] @ k_pe.T) * scale
        heads.append(softmax(np.where(visible, scores, -np.inf)) @ values)
    return np.concatenate(heads, axis=-1)


# --- routing ---


def routed(
    logits: Array,
    chosen: int,
    *,
    scoring: str = "softmax",
    bias: Array | None = None,
    groups: int = 1,
    chosen_groups: int = 1,
    group_best: int = 1,
    normalised: bool = False,
    factor: float = 1.0,
) -> tuple[Array, Array]:
    """Return each token's experts and weights, ``(n, chosen)``, token after token; a tie goes to the lower index."""
    experts, weights = [], []
    for row in np.asarray(logits, np.float64):
        scores = softmax(row) if scoring == "softmax" else 1 / (1 + np.exp(-row))
        choice = scores if bias is None else scores + bias
        members = len(row) // groups
        group_scores = [
            sum(sorted(choice[group * members : (group + 1) * members], reverse=True)[:group_best])
            for group in range(groups)
        ]
        open_groups = sorted(range(groups), key=lambda group, s=group_scores: (-s[group], group))[:chosen_groups]  # type: ignore[misc]
        candidates = [expert for expert in range(len(row)) if expert // members in open_groups]
        best = sorted(candidates, key=lambda expert, c=choice: (-c[expert], expert))[:chosen]  # type: ignore[misc]
        taken = np.array([scores[expert] for expert in best])
        if normalised:
            taken = taken / (taken.sum() + 1e-20)
        experts.append(best)
        weights.append(taken * factor)
    return np.array(experts), np.array(weights)


def swiglu_expert(x: Array, gate: Array, up: Array, down: Array) -> Array:
    """Return one gated feed-forward of ``x (..., hidden)``; matrices as a checkpoint stores them."""
    g = x @ gate.T
    y: Array = (g / (1 + np.exp(-g)) * (x @ up.T)) @ down.T
    return y


# --- the whole model ---


def deepseek_logits(
    config: Mapping[str, Any], tensors: Mapping[str, Array], tokens: Array, kept: Rounding = lambda rows: rows
) -> Array:
    """Return the logits after each token, ``float64 (n, vocab)``, the whole text in one pass.

    Args:
        config: The config.
        tensors: The checkpoint.
        tokens: Token ids.
        kept: What happens to rows that go into the cache: rounding, where the cache is narrow.
    """
    t = {name: numbers.astype(np.float64) for name, numbers in tensors.items()}
    v3 = config["model_type"] == "deepseek_v3"
    n, heads = len(tokens), config["num_attention_heads"]
    rank, nope = config["kv_lora_rank"], config["qk_nope_head_dim"]
    turning, v = config["qk_rope_head_dim"], config["v_head_dim"]
    eps = config.get("rms_norm_eps", 1e-6)
    interleaved = config.get("rope_interleave", True)
    frequencies, magnitude = np.array(yarn_frequencies(config, turning)), yarn_magnitude(config)
    where, visible = np.arange(n), np.tril(np.ones((n, n), bool))

    def norm(x: Array, name: str, eps: float) -> Array:
        scaled: Array = x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * t[name]
        return scaled

    def project(x: Array, name: str) -> Array:
        y: Array = x @ t[name + ".weight"].T
        return y + t[name + ".bias"] if name + ".bias" in t else y

    def gated(x: Array, prefix: str) -> Array:
        return swiglu_expert(x, *[t[f"{prefix}.{kind}_proj.weight"] for kind in ("gate", "up", "down")])

    def mixture(h: Array, prefix: str) -> Array:
        limited = v3 or config.get("topk_method") == "group_limited_greedy"
        experts, weights = routed(
            h @ t[prefix + ".gate.weight"].T,
            config["num_experts_per_tok"],
            scoring="sigmoid" if v3 else "softmax",
            bias=t.get(prefix + ".gate.e_score_correction_bias"),
            groups=config["n_group"] if limited else 1,
            chosen_groups=config["topk_group"] if limited else 1,
            group_best=2 if v3 else 1,
            normalised=v3 and config.get("norm_topk_prob", True),
            factor=config.get("routed_scaling_factor", 2.5 if v3 else 1.0),
        )
        out = np.zeros_like(h)
        for token in range(n):
            for expert, weight in zip(experts[token], weights[token], strict=True):
                out[token] += weight * gated(h[token], f"{prefix}.experts.{expert}")
        return out + gated(h, prefix + ".shared_experts") if config["n_shared_experts"] else out

    x = t["model.embed_tokens.weight"][tokens]
    for layer in range(config["num_hidden_layers"]):
        p = f"model.layers.{layer}."
        a = p + "self_attn."
        h = norm(x, p + "input_layernorm.weight", eps)
        if config["q_lora_rank"] is None:
            q = project(h, a + "q_proj")
        else:
            q = project(norm(project(h, a + "q_a_proj"), a + "q_a_layernorm.weight", 1e-6), a + "q_b_proj")
        q = q.reshape(n, heads, nope + turning)
        both = project(h, a + "kv_a_proj_with_mqa")
        c_kv = kept(norm(both[:, :rank], a + "kv_a_layernorm.weight", 1e-6))
        k_pe = kept(turned(both[:, rank:], where, frequencies, interleaved, magnitude))
        q_pe = turned(q[..., nope:], where, frequencies, interleaved, magnitude)
        w = t[a + "kv_b_proj.weight"].reshape(heads, nope + v, rank)
        mixed = latent_attention(
            q[..., :nope].transpose(1, 0, 2),
            q_pe.transpose(1, 0, 2),
            w[:, :nope],
            w[:, nope:].transpose(0, 2, 1),
            c_kv,
            k_pe,
            softmax_scale(config),
            visible,
        )
        x = x + project(mixed, a + "o_proj")
        h = norm(x, p + "post_attention_layernorm.weight", eps)
        x = x + (gated(h, p + "mlp") if layer < config["first_k_dense_replace"] else mixture(h, p + "mlp"))
    logits: Array = norm(x, "model.norm.weight", eps) @ t.get("lm_head.weight", t["model.embed_tokens.weight"]).T
    return logits
