"""``deepseek_v3``: DeepSeek V3, V3.1 and R1."""

from __future__ import annotations

from lazygraph.models import latent_config
from lazygraph.models.checkpoint import WeightsUse
from lazygraph.models.config import Config
from lazygraph.models.experts import Routing
from lazygraph.models.program import BuildOptions, DecoderGraph


def build(config: Config, weights: WeightsUse, options: BuildOptions) -> DecoderGraph:
    """Return the decoder's graph (see ``lazygraph.models.latent.decoder_graph``).

    Raises:
        UnsupportedError: A key asks for something else than the reference computes.

    Source: transformers ``models/deepseek_v3/modeling_deepseek_v3.py``.
    """
    config.only("scoring_func", "sigmoid")
    config.only("topk_method", "noaux_tc")
    experts = config.integer("n_routed_experts", 256)
    routing = Routing(
        n_experts=experts,
        n_chosen=config.integer("num_experts_per_tok", 8),
        scores="sigmoid",
        biased=True,
        n_groups=config.integer("n_group", 8),
        n_chosen_groups=config.integer("topk_group", 4),
        group_score=2,
        normalised=config.flag("norm_topk_prob", True),
        factor=config.number("routed_scaling_factor", 2.5),
    )
    defaults = latent_config.Defaults(first_dense=3, n_shared=1, expert_size=2048)
    interleaved = config.flag("rope_interleave", True)
    model = latent_config.read(config, defaults, routing, interleaved=interleaved)
    return latent_config.decoder_graph(config, model, weights, options)
