"""``mistral``: Mistral 7B and other checkpoints of the same architecture."""

from __future__ import annotations

from lazygraph.models import dense
from lazygraph.models.checkpoint import WeightsUse
from lazygraph.models.config import Config
from lazygraph.models.program import DecoderGraph


def build(config: Config, weights: WeightsUse, max_seq_len: int) -> DecoderGraph:
    """Return the decoder's graph (see :func:`lazygraph.models.dense.decoder_graph`).

    Raises:
        UnsupportedError: The sliding window is smaller than the cache.

    Source: transformers ``models/mistral/modeling_mistral.py``.
    """
    dense.refuse_window(config, config.get("sliding_window"), max_seq_len)
    return dense.decoder_graph(dense.read_dense(config, qkv_bias=False, output_bias=False), weights, max_seq_len)
