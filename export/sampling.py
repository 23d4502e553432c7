"""Choosing the next token from logits."""

from __future__ import annotations

from typing import Any

import numpy as np

from lazygraph.errors import OperandError
from lazygraph.whole import whole

Row = np.ndarray[Any, np.dtype[np.float32]]


class Sampler:
    """Chooses token ids: the most likely one, or a draw from the likeliest.

    Args:
        temperature: 0 takes the most likely token; larger numbers draw, flatter the larger.
        top_p: Draw from the smallest set of tokens whose probabilities sum to at least this; 1 is all.
        top_k: Draw from so many of the likeliest; 0 is all.
        seed: Two samplers of one seed draw the same; None draws anew each time.

    Raises:
        OperandError: A number outside its range.
    """

    def __init__(self, temperature: float = 0.0, top_p: float = 1.0, top_k: int = 0, seed: int | None = None) -> None:
        self.temperature = _number("temperature", temperature, "a finite number of at least 0")
        if not 0 <= self.temperature < np.inf:
            raise OperandError(f"temperature is {temperature}", op="generate", expected="a finite number of at least 0")
        self.top_p = _number("top_p", top_p, "a number in (0, 1]")
        if not 0 < self.top_p <= 1:
            raise OperandError(f"top_p is {top_p}", op="generate", expected="a number in (0, 1]")
        self.top_k = _count("top_k", top_k, "0 for all, or a number of tokens")
        start = None if seed is None else _count("seed", seed, "a whole number of at least 0")
        self._random = np.random.default_rng(start)

    def pick(self, logits: Row) -> int:
        """Return the next token id, given ``float32 (vocab,)``. Of equal logits the lower id counts as the likelier.

        Raises:
            OperandError: The logits are not numbers: there is nothing to choose from.
        """
        highest = logits.max()  # NaN where one is
        if not np.isfinite(highest):
            raise OperandError("the logits hold no number to choose by", op="generate", expected="finite logits")
        if self.temperature == 0:
            return int(np.argmax(logits))

        # In float64, shifted by the maximum before anything else: exact for any temperature, and no overflow.
        with np.errstate(over="ignore", under="ignore"):
            scaled = (logits.astype(np.float64) - float(highest)) / self.temperature
            order = np.argsort(-scaled, kind="stable")
            if self.top_k:
                order = order[: self.top_k]
            weights = np.exp(scaled[order])
            cumulative = np.cumsum(weights / weights.sum())
        kept = int(np.searchsorted(cumulative, self.top_p)) + 1 if self.top_p < 1 else len(order)
        kept = min(kept, len(order))
        draw = self._random.random() * cumulative[kept - 1]
        return int(order[min(int(np.searchsorted(cumulative[:kept], draw, side="right")), kept - 1)])


def _number(name: str, value: Any, expected: str) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float, np.integer, np.floating)):
        raise OperandError(f"{name} is {value!r}", op="generate", expected=expected)
    return float(value)


def _count(name: str, value: Any, expected: str) -> int:
    number = whole(value)
    if number is None or number < 0:
        raise OperandError(f"{name} is {value!r}", op="generate", expected=expected)
    return number
