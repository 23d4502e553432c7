"""Block-scaled fp8 checkpoints: each block of a weight has one scale, kept in a tensor beside it.

Source: DeepSeek-V3's checkpoints; ``quantization_config`` with ``weight_block_size``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from lazygraph.arrays import LazyArray
from lazygraph.dtypes import float32
from lazygraph.errors import UnsupportedError, WeightsError
from lazygraph.models.checkpoint import Weights
from lazygraph.models.config import Config

SCALE = "_scale_inv"


def readable(weights: Weights, config: Config) -> Weights:
    """Return the weights as float arrays: themselves, or dequantised as the config's ``quantization_config`` says.

    Raises:
        UnsupportedError: A quantisation that is not served.
    """
    quantization = config.get("quantization_config")
    if quantization is None:
        return weights
    if not isinstance(quantization, Mapping) or quantization.get("quant_method") != "fp8":
        method = quantization.get("quant_method") if isinstance(quantization, Mapping) else quantization
        raise config.unsupported("quantization_config", f"quantisation {method!r}", "none, or block-scaled fp8")
    block = quantization.get("weight_block_size")
    if quantization.get("fmt", "e4m3") != "e4m3" or not isinstance(block, list) or not _is_block(block):
        raise config.unsupported(
            "quantization_config",
            f"fp8 of format {quantization.get('fmt')!r} in blocks of {block!r}",
            "format e4m3 and weight_block_size of two sizes",
        )
    return BlockScaled(weights, (int(block[0]), int(block[1])))


def _is_block(block: list[Any]) -> bool:
    return len(block) == 2 and all(type(size) is int and size > 0 for size in block)


class BlockScaled:
    """A checkpoint's tensors with the block-scaled ones multiplied out to float32 as they are read.

    Args:
        weights: The reader.
        block: Rows and columns of one block; the last blocks of a weight may be partial.
    """

    def __init__(self, weights: Weights, block: tuple[int, int]) -> None:
        self._weights = weights
        self._block = block
        self._all = frozenset(weights.names())

    def names(self) -> tuple[str, ...]:
        """Return the tensors' names, without the scales'."""
        return tuple(n for n in self._weights.names() if not (n.endswith(SCALE) and n.removesuffix(SCALE) in self._all))

    def array(self, name: str) -> LazyArray:
        """Return one tensor, unread.

        Raises:
            WeightsError: Its scales do not have one number per block.
            UnsupportedError: It is fp8 and has no scales, or has scales and is not fp8.
        """
        stored = self._weights.array(name)
        scale_name = name + SCALE
        if scale_name not in self._all:
            if stored.dtype.bits == 8 and stored.dtype.is_float:
                raise UnsupportedError(
                    f"tensor {name!r} is {stored.dtype} without scales", op="weights", expected=scale_name
                )
            return stored

        if stored.dtype.bits != 8 or not stored.dtype.is_float:
            # Multiplied out already, perhaps: multiplying again would be silently wrong.
            raise UnsupportedError(
                f"tensor {name!r} is {stored.dtype} and has scales", op="weights", expected=f"fp8, or no {scale_name}"
            )
        scales = self._weights.array(scale_name)
        rows, columns = self._block
        wanted = (-(-stored.shape[0] // rows), -(-stored.shape[1] // columns)) if len(stored.shape) == 2 else None
        if scales.shape != wanted:
            raise WeightsError(
                f"tensor {scale_name!r} is {scales.shape}, and {name!r} {stored.shape} has {wanted} blocks",
                op="weights",
                expected="one scale per block",
            )

        def dequantised() -> np.ndarray[Any, Any]:
            numbers: np.ndarray[Any, Any] = stored.read().astype(np.float32)
            factors = scales.read().astype(np.float32)
            spread = np.repeat(np.repeat(factors, rows, axis=0), columns, axis=1)
            numbers *= spread[: numbers.shape[0], : numbers.shape[1]]
            return numbers

        return LazyArray(float32, stored.shape, dequantised, name=name, key=(stored.key, scales.key))
