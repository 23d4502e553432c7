"""``mistral``: Mistral 7B and other checkpoints of the same architecture."""

from __future__ import annotations

from lazygraph.models import dense
from lazygraph.models.checkpoint import WeightsUse
from lazygraph.models.config import Config
from lazygraph.models.program import BuildOptions, DecoderGraph


def build(config: Config, weights: WeightsUse, options: BuildOptions) -> DecoderGraph:
    """Return the decoder's graph (see ``lazygraph.models.dense.decoder_graph``).

    Source: transformers ``models/mistral/modeling_mistral.py``.
    """
    # Transformers takes 4,096 where the key is absent; only null says that there is no window.
    slides = config.values.get("sliding_window", 4096) is not None
    size = config.integer("sliding_window", 4096) if slides else None
    window = dense.every_layer(size, config.integer("num_hidden_layers"))
    model = dense.read_dense(config, qkv_bias=False, output_bias=False, window=window)
    return dense.decoder_graph(model, weights, options)
