"""KvCache: keys and values, the two-equal-slots case."""

from __future__ import annotations

from typing import Self

from lazygraph.cache.latent import LatentCache
from lazygraph.dtypes import DTypeLike, float32
from lazygraph.memory import Lowering
from lazygraph.tensor import Graph, Tensor


class KvCache(LatentCache):
    """A cache of per-head keys and values: slots ``k`` and ``v``, each ``[max_seq_len, n_kv_heads, head_size]``.

    Args:
        anchor: A tensor of the graph that the cache joins.
        n_layers: Layers.
        max_seq_len: Capacity in rows (tokens).
        n_kv_heads: Heads of keys and values.
        head_size: Numbers per head.
        dtype: Element type.
        position: Rows that count already.
    """

    def __init__(
        self,
        anchor: Tensor | Graph,
        n_layers: int,
        max_seq_len: int,
        n_kv_heads: int,
        head_size: int,
        dtype: DTypeLike = float32,
        *,
        position: int = 0,
    ) -> None:
        row = [n_kv_heads, head_size]
        super().__init__(anchor, n_layers, max_seq_len, [row, row], dtype, position=position, slot_names=("k", "v"))

    @classmethod
    def head_inputs(
        cls,
        anchor: Tensor | Graph,
        n_layers: int,
        max_seq_len: int,
        n_kv_heads: int,
        head_size: int,
        dtype: DTypeLike = float32,
        position: str = "past_len",
        *,
        lowering: Lowering = "buffer",
    ) -> Self:
        """Return a cache of heads whose buffers and position are graph inputs (see ``LatentCache.inputs``)."""
        row = [n_kv_heads, head_size]
        return cls.inputs(
            anchor, n_layers, max_seq_len, [row, row], dtype, position, slot_names=("k", "v"), lowering=lowering
        )

    def k(self, layer: int, include_pending: bool = False) -> Tensor:
        """Return the keys that count, ``T (rows, n_kv_heads, head_size)``."""
        return self.slot(layer, 0, include_pending)

    def v(self, layer: int, include_pending: bool = False) -> Tensor:
        """Return the values that count, ``T (rows, n_kv_heads, head_size)``."""
        return self.slot(layer, 1, include_pending)
