"""``qwen3``: Qwen 3, dense: query and key heads are normed before rotation."""

from __future__ import annotations

from lazygraph.models import dense
from lazygraph.models.checkpoint import WeightsUse
from lazygraph.models.config import Config
from lazygraph.models.program import BuildOptions, DecoderGraph


def build(config: Config, weights: WeightsUse, options: BuildOptions) -> DecoderGraph:
    """Return the decoder's graph (see ``lazygraph.models.dense.decoder_graph``).

    Raises:
        UnsupportedError: ``layer_types`` names another kind of layer.

    Source: transformers ``models/qwen3/modeling_qwen3.py``.
    """
    window = dense.qwen_window(config)
    bias = config.flag("attention_bias", False)
    model = dense.read_dense(config, qkv_bias=bias, output_bias=bias, qk_norm=True, window=window)
    return dense.decoder_graph(model, weights, options)
