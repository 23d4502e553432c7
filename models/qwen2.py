"""``qwen2``: Qwen 2 and 2.5, dense."""

from __future__ import annotations

from lazygraph.models import dense
from lazygraph.models.checkpoint import WeightsUse
from lazygraph.models.config import Config
from lazygraph.models.program import BuildOptions, DecoderGraph


def build(config: Config, weights: WeightsUse, options: BuildOptions) -> DecoderGraph:
    """Return the decoder's graph (see ``lazygraph.models.dense.decoder_graph``).

    Raises:
        UnsupportedError: ``layer_types`` names another kind of layer.

    Source: transformers ``models/qwen2/modeling_qwen2.py``.
    """
    window = dense.qwen_window(config)
    model = dense.read_dense(config, qkv_bias=True, output_bias=False, window=window)
    return dense.decoder_graph(model, weights, options)
