"""``llama``: Llama 2 and 3, SmolLM and other checkpoints of the same architecture."""

from __future__ import annotations

from lazygraph.models import dense
from lazygraph.models.checkpoint import WeightsUse
from lazygraph.models.config import Config
from lazygraph.models.program import BuildOptions, DecoderGraph


def build(config: Config, weights: WeightsUse, options: BuildOptions) -> DecoderGraph:
    """Return the decoder's graph (see ``lazygraph.models.dense.decoder_graph``).

    Source: transformers ``models/llama/modeling_llama.py``.
    """
    bias = config.flag("attention_bias", False)
    model = dense.read_dense(config, qkv_bias=bias, output_bias=bias, mlp_bias=config.flag("mlp_bias", False))
    return dense.decoder_graph(model, weights, options)
