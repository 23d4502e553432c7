"""What a decoder remembers, as tensors of the graph."""

from lazygraph.cache.kv import KvCache
from lazygraph.cache.latent import LatentCache, Lowering
from lazygraph.cache.layout import CacheLayout

__all__ = ["CacheLayout", "KvCache", "LatentCache", "Lowering"]
