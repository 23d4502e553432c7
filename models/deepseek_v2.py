"""``deepseek_v2``: DeepSeek V2, V2-Lite and V2.5."""

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

    Source: transformers ``models/deepseek_v2/modeling_deepseek_v2.py``.
    """
    config.only("scoring_func", "softmax")
    config.only("topk_method", "greedy", "group_limited_greedy")
    # The two published implementations disagree on it: one ignores it, the other drops the scaling factor with it.
    config.only("norm_topk_prob", False)
    limited = config.get("topk_method", "greedy") == "group_limited_greedy"
    routing = Routing(
        n_experts=config.integer("n_routed_experts", 64),
        n_chosen=config.integer("num_experts_per_tok"),
        scores="softmax",
        biased=False,
        n_groups=config.integer("n_group") if limited else 1,
        n_chosen_groups=config.integer("topk_group") if limited else 1,
        group_score=1,
        normalised=False,
        factor=config.number("routed_scaling_factor", 1.0),
    )
    defaults = latent_config.Defaults(first_dense=0, n_shared=2, expert_size=1407)
    model = latent_config.read(config, defaults, routing, interleaved=True)
    return latent_config.decoder_graph(config, model, weights, options)
