"""How a row of numbers is kept in bytes: a code per number, and one scale per row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import log
from typing import Literal, TypeAlias

import numpy as np

from lazygraph import dims, ops
from lazygraph.dtypes import DType, float32, int8, int32, uint8
from lazygraph.errors import DTypeError
from lazygraph.tensor import Tensor

CodeName: TypeAlias = Literal["int8", "fp8"]

# Never 0, so that a row of zeros divides by something; far below any row that says anything.
_LEAST_SCALE = 1e-30
# e4m3fn: four bits of exponent, three of mantissa, no infinity.
_FP8_GREATEST, _FP8_LEAST_EXPONENT, _FP8_NAN = 448.0, -6, 127


@dataclass(frozen=True)
class Code:
    """One way to keep rows in bytes.

    ``int8``: ``round(x / scale)`` with ``scale = max|x| / 127``; a number is wrong by at most ``max|x| / 254``.
    ``fp8``: float8 e4m3fn of ``x / scale`` with ``scale = max|x| / 448``, as its eight bits in ``uint8``, since no
    operator of ONNX writes or slices rows of fp8. A number is wrong by at most a sixteenth of itself, or
    ``max|x| / 448 / 1024`` where it is tiny.

    Attributes:
        name: ``int8`` or ``fp8``.
    """

    name: CodeName

    def __post_init__(self) -> None:
        if self.name not in ("int8", "fp8"):
            raise DTypeError(f"a code of {self.name!r}", op="QuantisedCache", expected="int8 or fp8")

    @property
    def dtype(self) -> DType:
        """Element type of the codes."""
        return int8 if self.name == "int8" else uint8

    def slots(self, slots: Mapping[str, Sequence[int]]) -> tuple[dict[str, list[int]], list[DType]]:
        """Return the slots that keep these: each one's codes and its scales, ``<name>.scale``; and their types."""
        kept: dict[str, list[int]] = {}
        for name, sizes in slots.items():
            kept |= {name: list(sizes), f"{name}.scale": []}
        return kept, [self.dtype, float32] * len(slots)

    def encode(self, rows: Tensor) -> list[Tensor]:
        """Return the codes of rows, of their shape, and the scales, ``float32 (n,)``.

        Args:
            rows: ``T (n, ...)``.
        """
        wide = rows.astype(float32)
        others = list(range(1, len(rows.shape)))
        most = ops.abs(wide) if not others else ops.reduce_max(ops.abs(wide), others)  # (n,)
        scale = ops.maximum(most * (1 / (127 if self.name == "int8" else _FP8_GREATEST)), _LEAST_SCALE)
        ratio = wide / (ops.unsqueeze(scale, others) if others else scale)
        return [ops.round(ratio).astype(int8) if self.name == "int8" else _fp8_bits(ratio), scale]

    def decode(self, codes: Tensor, scale: Tensor, dtype: DType) -> Tensor:
        """Return rows in a type.

        Args:
            codes: ``(rows, ...)``, or ``(batch, rows, ...)``.
            scale: ``float32 (rows,)``, or ``(batch, rows)``.
            dtype: The type wanted.
        """
        lead, shape = len(scale.shape), codes.shape
        count = dims.product(shape[:lead])
        flat = codes if lead == 1 else ops.reshape(codes, [count, *shape[lead:]])
        each = scale if lead == 1 else ops.reshape(scale, [count])
        if self.name == "int8":  # one node that reads each byte once: a Cast and a Mul take three times as long
            rows = ops.dequantize_linear(flat, each, axis=0)
        else:
            table = codes.const(FP8_NUMBERS)
            numbers = ops.gather(table, flat.astype(int32))
            rows = numbers * (ops.unsqueeze(each, list(range(1, len(flat.shape)))) if len(flat.shape) > 1 else each)
        return (rows if lead == 1 else ops.reshape(rows, list(shape))).astype(dtype)


def _fp8_bits(x: Tensor) -> Tensor:
    """Return the bits of float8 e4m3fn of numbers within its range, ``uint8``; to the nearest, ties to even.

    With ``e`` the exponent of ``|x|``, at least the least one, the seven low bits are ``8 (e + 6) + |x| / 2^(e - 3)``:
    exponent and mantissa are one number, and a mantissa that rounds up to the next power of two carries by itself. So
    an exponent that is one too low or high, at the edge of two, gives the same bits.
    """
    size = ops.abs(x)
    exponent = ops.maximum(ops.floor(ops.log(size) * (1 / log(2))), float(_FP8_LEAST_EXPONENT))
    steps = ops.round(size * ops.pow(x.const(np.float32(2.0)), 3.0 - exponent))
    bits = ops.minimum((exponent - _FP8_LEAST_EXPONENT) * 8.0 + steps, float(_FP8_NAN - 1))
    return ops.where(x < 0.0, bits + 128.0, bits).astype(uint8)


def _fp8_numbers() -> np.ndarray[tuple[int], np.dtype[np.float32]]:
    bits = np.arange(256)
    exponent, mantissa = (bits >> 3) & 15, bits & 7
    size = np.where(exponent == 0, mantissa * 2.0**-9, (8 + mantissa) * 2.0 ** (exponent - 10.0))
    size[bits & 127 == _FP8_NAN] = np.nan
    return np.where(bits < 128, size, -size).astype(np.float32)


# The number of every byte.
FP8_NUMBERS = _fp8_numbers()

__all__ = ["FP8_NUMBERS", "Code", "CodeName"]
