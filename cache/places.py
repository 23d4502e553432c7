"""Where the tokens of one step of a batch stand: each text is at a position of its own and brings what it likes."""

from __future__ import annotations

from dataclasses import dataclass

from lazygraph import dims, ops
from lazygraph.cache.ring import NOWHERE
from lazygraph.dims import Size
from lazygraph.dtypes import int64
from lazygraph.errors import ShapeError
from lazygraph.ops.checks import rows as described
from lazygraph.tensor import Tensor


@dataclass(frozen=True, eq=False, repr=False)
class Places:
    """Where the tokens of one step of a batch stand.

    Attributes:
        batch: Texts.
        n: Tokens that each brings, padding included.
        past: ``int64 (batch,)``: rows that count before the step.
        new: ``int64 (batch,)``: how many of the n tokens are no padding; they come last.
        after: ``int64 (batch,)``: rows that count after the step.
        longest: The greatest of those, as a size.
        is_real: ``bool (batch, n)``: which tokens are no padding.
        positions: ``int64 (batch, n)``: where each token stands in its text; 0 for padding.
        as_keys: The same, but nowhere for padding, which no token may attend.
    """

    batch: Size
    n: Size
    past: Tensor
    new: Tensor
    after: Tensor
    longest: Size
    is_real: Tensor
    positions: Tensor
    as_keys: Tensor

    def by_text(self, rows: Tensor) -> Tensor:
        """Return ``T (batch * n, ...)`` as ``(batch, n, ...)``."""
        return ops.reshape(rows, [self.batch, self.n, *rows.shape[1:]])

    def written(self, keep: Tensor | None, row: Tensor) -> tuple[Tensor, Tensor]:
        """Return which tokens are written, and where: none of them twice.

        Args:
            keep: ``bool (batch, n)``; None for all that are no padding.
            row: ``int64 (batch, n)``: the row of its text to which each goes.

        Returns:
            ``int64 (k,)``: which of the ``batch * n`` tokens; ``int64 (k, 2)``: text and row of each.
        """
        kept = self.is_real if keep is None else ops.logical_and(self.is_real, keep)
        chosen = ops.nonzero(ops.reshape(kept, [-1]))[0]
        text = ops.unsqueeze(ops.arange(0, self.batch, anchor=self.past), 1) + row * 0  # (batch, n)
        both = ops.stack([ops.reshape(text, [-1]), ops.reshape(row, [-1])], axis=1)  # (batch * n, 2)
        return chosen, ops.gather(both, chosen, axis=0)


def place_inputs(op: str, ids: Tensor, position: str, new: str, capacity: int) -> Places:
    """Return where a step's tokens stand, the positions and counts of its texts being new inputs of the graph.

    Args:
        op: Shown in messages.
        ids: ``T (batch, n)``: the step's tokens.
        position: Name of the input that holds the rows that count already, ``int64 (batch,)``.
        new: Name of the input that holds how many of a text's tokens are no padding, ``int64 (batch,)``.
        capacity: The most rows of a text.

    Raises:
        ShapeError: ``ids`` is not ``(batch, n)``.
    """
    shape = ids.known_shape
    if shape is None or len(shape) != 2:
        raise ShapeError("no batch", op=op, operands=described({"ids": ids}), expected="ids (batch, n)")
    graph, (batch, n) = ids.graph, shape
    past, count = graph.input(position, int64, (batch,)), graph.input(new, int64, (batch,))
    after = past + count
    longest = dims.unknown(f"longest_{graph.next_serial()}", capacity)
    graph.size_tensors[longest] = ops.reduce_max(after, keepdims=False)
    column = ops.unsqueeze(ops.arange(0, n, anchor=past), 0)  # (1, n)
    turn = column - ops.unsqueeze(ops.size_tensor(n, past) - count, 1)  # (batch, n): which of the text's new tokens
    is_real, standing = turn >= 0, ops.unsqueeze(past, 1) + turn
    positions, as_keys = (
        ops.where(is_real, standing, ops.constant(place, dtype=int64, anchor=past)) for place in (0, NOWHERE)
    )
    return Places(batch, n, past, count, after, longest, is_real, positions, as_keys)


__all__ = ["Places", "place_inputs"]
