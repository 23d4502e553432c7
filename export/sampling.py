"""Choosing the next token from logits."""

from __future__ import annotations

from typing import Any

import numpy as np

from lazygraph.errors import OperandError

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
        if not (temperature >= 0 and np.isfinite(temperature)):
            raise OperandError(f"temperature is {temperature}", op="generate", expected="a finite number of at least 0")
        if not 0 < top_p <= 1:
            raise OperandError(f"top_p is {top_p}", op="generate", expected="a number in (0, 1]")
        if top_k < 0:
            raise OperandError(f"top_k is {top_k}", op="generate", expected="0 for all, or a number of tokens")
        if seed is not None and seed < 0:
            raise OperandError(f"seed is {seed}", op="generate", expected="a whole number of at least 0")
        self.temperature = float(temperature)
        self.top_p = float(top_p)
        self.top_k = int(top_k)
        self._random = np.random.default_rng(seed)

    def pick(self, logits: Row) -> int:
        """Return the next token id, given ``float32 (vocab,)``.

        Raises:
            OperandError: The logits are not numbers: there is nothing to choose from.
        """
        if np.isnan(logits).any() or not np.isfinite(logits).any():
            raise OperandError("the logits hold no number to choose by", op="generate", expected="finite logits")
        if self.temperature == 0:
            return int(np.argmax(logits))

        # In float64, shifted by the maximum: exact for any temperature, and no overflow.
        scaled = logits.astype(np.float64) / self.temperature
        order = np.argsort(-scaled, kind="stable")
        if self.top_k:
            order = order[: self.top_k]
        weights = np.exp(scaled[order] - scaled[order[0]])
        cumulative = np.cumsum(weights / weights.sum())
        kept = int(np.searchsorted(cumulative, self.top_p)) + 1 if self.top_p < 1 else len(order)
        kept = min(kept, len(order))
        draw = self._random.random() * cumulative[kept - 1]
        return int(order[min(int(np.searchsorted(cumulative[:kept], draw, side="right")), kept - 1)])
