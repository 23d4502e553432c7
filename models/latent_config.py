"""Reading a DeepSeek config: the keys that V2 and V3 share."""

from __future__ import annotations

from dataclasses import dataclass, replace

from lazygraph.errors import WeightsError
from lazygraph.models import latent
from lazygraph.models.checkpoint import WeightsUse
from lazygraph.models.config import Config
from lazygraph.models.experts import Routing
from lazygraph.models.latent import LatentDecoder
from lazygraph.models.program import BuildOptions, DecoderGraph
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
    if config.get("index_topk"):
        what = (
            f"index_topk is {config.get('index_topk')!r}: sparse attention, an indexer picks the rows that a token sees"
        )
        raise config.unsupported("index_topk", what, "attention over all rows: a config without an indexer")
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
    rope = read_rope(config, turning, "qk_rope_head_dim")
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
    members = routing.n_experts // routing.n_groups if whole else 0
    reachable = members * routing.n_chosen_groups
    too_small = routing.n_chosen_groups < routing.n_groups and members < routing.group_score
    if not whole or too_small or routing.n_chosen_groups > routing.n_groups or routing.n_chosen > reachable:
        groups = f"{routing.n_chosen_groups} of {routing.n_groups} groups"
        raise WeightsError(
            f"{routing.n_chosen} of {routing.n_experts} experts from {groups}",
            op=f"config of {config.model_type}",
            expected="n_group that divides n_routed_experts, and enough experts in topk_group groups",
        )


def decoder_graph(config: Config, model: LatentDecoder, weights: WeightsUse, options: BuildOptions) -> DecoderGraph:
    """Return the decoder's graph (see ``lazygraph.models.latent.decoder_graph``).

    Layers behind the last one, as many as ``num_nextn_predict_layers`` says, predict further tokens at once: they take
    no part in this decoder. They are left alone, and a note says so where the checkpoint has them.
    """
    extra = range(model.n_layers, model.n_layers + config.integer("num_nextn_predict_layers", 0, least=0))
    weights.ignore(*[f"model.layers.{layer}.*" for layer in extra])
    graph = latent.decoder_graph(model, weights, options)
    left = [str(layer) for layer in extra if f"model.layers.{layer}.input_layernorm.weight" in weights]
    if not left:
        return graph
    note = f"multi-token-prediction layers of the checkpoint are left out: {', '.join(left)}"
    return replace(graph, notes=(*graph.notes, note))
