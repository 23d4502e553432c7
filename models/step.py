"""What all layers of a step share, whatever the family: rotation tables and the mask."""

from __future__ import annotations

from lazygraph import nn
from lazygraph.cache import LatentCache
from lazygraph.dtypes import DType
from lazygraph.models.rope import Rope
from lazygraph.tensor import Tensor


def rotation_and_mask(anchor: Tensor, cache: LatentCache, rope: Rope, compute: DType) -> tuple[Tensor, Tensor, Tensor]:
    """Return the step's cosines and sines, ``compute (n, 1, dim)``, and its mask, ``float32 (n, rows)``.

    Args:
        anchor: A tensor of the graph.
        cache: The cache before the step.
        rope: The rotation.
        compute: What is computed in; the tables are made in float32.
    """
    inv_freq = anchor.const(rope.inv_freq, "rotary.inv_freq")
    cos, sin = nn.rotary_tables(cache.positions("n"), inv_freq, rope.magnitude)
    return cos.astype(compute), sin.astype(compute), nn.additive_mask(cache.causal_mask("n"))
