"""What all layers of a step share, whatever the family: rotation tables, and where attention reads."""

from __future__ import annotations

from lazygraph import nn
from lazygraph.cache import CacheStep
from lazygraph.dtypes import DType
from lazygraph.models.rope import Rope
from lazygraph.tensor import Tensor


def rotation(step: CacheStep, rope: Rope, compute: DType) -> tuple[Tensor, Tensor]:
    """Return the step's cosines and sines, ``compute (n, 1, dim)``.

    Args:
        step: Where the step's rows stand.
        rope: The rotation.
        compute: What is computed in; the tables are made in float32.
    """
    inv_freq = step.positions.const(rope.inv_freq, "rotary.inv_freq")
    cos, sin = nn.rotary_tables(step.positions, inv_freq, rope.magnitude)
    return cos.astype(compute), sin.astype(compute)
