"""Reading a DeepSeek config: the keys that V2 and V3 share."""

from __future__ import annotations

from dataclasses import dataclass

from lazygraph.errors import WeightsError
from lazygraph.models.checkpoint import WeightsUse
from lazygraph.models.config import Config
from lazygraph.models.experts import Routing
from lazygraph.models.latent import LatentDecoder
from lazygraph.models.rope import read_rope


@dataclass(frozen=True)
class Defaults:
    """What a key that a config does not carry means, where the model types differ."""

    first_dense: int
    n_shared: int
    expert_size: int


def read(config: Config, defaults: Defaults, routing: Routing, *, interleaved: bool) -> LatentDecoder:
    """Return what a config says. Keys are Hugging Face's own.

    Args:
        config: The config.
        defaults: Of keys that it does not carry.
        routing: How tokens choose experts.
        interleaved: Whether the checkpoint rotates adjacent pairs.

    Raises:
        WeightsError: A key is missing or of the wrong kind, or numbers contradict each other.
        UnsupportedError: A key asks for something that is not served.
    """
    config.only("hidden_act", "silu")
    config.only("moe_layer_freq", 1)
    for key in (
        "aux_loss_alpha",
        "seq_aux",
        "ep_size",
        "qk_head_dim",
        "topk_method",
        "scoring_func",
        "n_group",
        "topk_group",
    ):
        config.get(key)  # training and placement, or read where the routing is
    heads = config.integer("num_attention_heads")
    config.only("num_key_value_heads", heads)
    nope, turning = config.integer("qk_nope_head_dim", 128), config.integer("qk_rope_head_dim", 64)
    config.only("head_dim", turning, nope + turning)
    _consistent(config, routing)
    rope = read_rope(config, turning)
    scale = (nope + turning) ** -0.5 * rope.mscale_all_dim**2
    q_rank = (
        None
        if "q_lora_rank" in config.values and config.get("q_lora_rank") is None
        else config.integer("q_lora_rank", 1536)
    )
    return LatentDecoder(
        hidden_size=config.integer("hidden_size"),
        n_layers=config.integer("num_hidden_layers"),
        n_heads=heads,
        q_rank=q_rank,
        kv_rank=config.integer("kv_lora_rank", 512),
        nope=nope,
        rope_dim=turning,
        v=config.integer("v_head_dim", 128),
        intermediate_size=config.integer("intermediate_size"),
        expert_size=config.integer("moe_intermediate_size", defaults.expert_size),
        n_shared=config.integer("n_shared_experts", defaults.n_shared, least=0),
        first_dense=config.integer("first_k_dense_replace", defaults.first_dense, least=0),
        routing=routing,
        vocab_size=config.integer("vocab_size"),
        eps=config.number("rms_norm_eps", 1e-6),
        rope=rope,
        interleaved=interleaved,
        scale=scale,
        bias=config.flag("attention_bias", False),
        mlp_bias=config.flag("mlp_bias", False),
        tied=config.flag("tie_word_embeddings", False),
        max_position=config.integer("max_position_embeddings", 2048),
    )


def _consistent(config: Config, routing: Routing) -> None:
    whole = routing.n_experts % routing.n_groups == 0
    reachable = routing.n_experts // routing.n_groups * routing.n_chosen_groups if whole else 0
    if not whole or routing.n_chosen_groups > routing.n_groups or routing.n_chosen > reachable:
        groups = f"{routing.n_chosen_groups} of {routing.n_groups} groups"
        raise WeightsError(
            f"{routing.n_chosen} of {routing.n_experts} experts from {groups}",
            op=f"config of {config.model_type}",
            expected="n_group that divides n_routed_experts, and enough experts in topk_group groups",
        )


def without_extra_layers(config: Config, weights: WeightsUse, n_layers: int) -> WeightsUse:
    """Return the weights with the multi-token-prediction layers behind the last one known and left alone."""
    for extra in range(config.integer("num_nextn_predict_layers", 0, least=0)):
        weights.ignore(f"model.layers.{n_layers + extra}.*")
    return weights
