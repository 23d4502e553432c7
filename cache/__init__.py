"""What a decoder remembers, as tensors of the graph."""

from lazygraph.cache.batch import BatchCache
from lazygraph.cache.codes import Code
from lazygraph.cache.kv import KvCache
from lazygraph.cache.latent import LatentCache
from lazygraph.cache.layered import LayeredCache
from lazygraph.cache.layout import CacheLayout
from lazygraph.cache.parts import Once, Rows, State, Window
from lazygraph.cache.quantised import QuantisedCache
from lazygraph.cache.reading import CacheStep
from lazygraph.cache.rotating import RotatingCache
from lazygraph.memory import Lowering

__all__ = [
    "BatchCache",
    "CacheLayout",
    "CacheStep",
    "Code",
    "KvCache",
    "LatentCache",
    "LayeredCache",
    "Lowering",
    "Once",
    "QuantisedCache",
    "RotatingCache",
    "Rows",
    "State",
    "Window",
]
