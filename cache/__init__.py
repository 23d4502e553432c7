"""What a decoder remembers, as tensors of the graph."""

from lazygraph.cache.kv import KvCache
from lazygraph.cache.latent import LatentCache
from lazygraph.cache.layout import CacheLayout
from lazygraph.cache.reading import CacheStep
from lazygraph.memory import Lowering

__all__ = ["CacheLayout", "CacheStep", "KvCache", "LatentCache", "Lowering"]
