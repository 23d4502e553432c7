"""Attention over rows that may lie in several places: scores are joined, rows are never copied together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from lazygraph import ops
from lazygraph.dims import Size, add
from lazygraph.dtypes import bool_, float32
from lazygraph.errors import ShapeError
from lazygraph.ops.checks import rows
from lazygraph.tensor import Tensor

# Rows in one place, or in several that follow each other: ``T (rows_i, ...)`` each.
Rows: TypeAlias = "Tensor | Sequence[Tensor]"


def parts(given: Rows) -> tuple[Tensor, ...]:
    """Return the places of rows, in order; one where the rows are a tensor."""
    return (given,) if isinstance(given, Tensor) else tuple(given)


def count_rows(given: Sequence[Tensor], axis: int = 0) -> Size:
    """Return how many rows all places hold together."""
    total: Size = given[0].shape[axis]
    for tensor in given[1:]:
        total = add(total, tensor.shape[axis])
    return total


def additive_mask(visible: Tensor) -> Tensor:
    """Return ``float32``: 0 where ``visible`` (bool) holds, and a number that no score outweighs elsewhere.

    It is added to float32 scores: far from their overflow, and a visible score of any size that a model makes wins.
    """
    return ops.where(visible, ops.constant(0.0, dtype=float32, anchor=visible), -1e30)


def masked_softmax(scores: Tensor, mask: Tensor) -> Tensor:
    """Return weights over the last axis, ``float32``, whatever type the scores have.

    Args:
        scores: ``T (..., n, rows)``.
        mask: ``bool``, True where visible: others weigh exactly 0, and a row that sees nothing has weights of 0. Or
            ``float32``, added to the scores (see ``additive_mask``): cheaper, for rows that all see something; one
            that sees nothing weighs all alike.

    Spec: ai.onnx::Softmax.
    """
    wide = scores.astype(float32)
    if mask.dtype is not bool_:
        return ops.softmax(wide + mask, axis=-1)
    # One choice before, so that masked scores cannot matter, and one after, so that they weigh nothing at all.
    lowest = ops.where(mask, wide, -1e30)
    return ops.where(mask, ops.softmax(lowest, axis=-1), ops.constant(0.0, dtype=float32, anchor=scores))


def attention(q: Tensor, k: Rows, v: Rows, mask: Tensor, scale: float) -> Tensor:
    """Return grouped-query attention: every query head over its group's keys and values.

    Args:
        q: ``T (n, heads, d)``.
        k: ``T (rows, kv_heads, d)``; ``kv_heads`` divides ``heads``. Or several such, that follow each other. Of a
            batch, ``T (batch, rows, kv_heads, d)``; then ``q`` is ``T (batch * n, heads, d)``, text by text, the mask
            ``(batch, n, rows)``, and the result ``T (batch * n, heads * d_v)``.
        v: ``T (rows, kv_heads, d_v)``, in as many parts.
        mask: ``float32 (n, rows)``, added to the scores (see ``additive_mask``), or ``bool``, True where visible:
            a token that sees nothing then gets zeros. Of rows in several parts, all columns in order.
        scale: Multiplies the scores.

    Returns:
        ``T (n, heads * d_v)``.

    Raises:
        ShapeError: Sizes do not fit, or ``kv_heads`` does not divide ``heads``.

    Source: Attention Is All You Need, Vaswani et al. 2017; GQA, Ainslie et al. 2023.
    """
    keys, values = parts(k), parts(v)
    heads, kv_heads = int(q.shape[1]), int(keys[0].shape[-2])
    if heads % kv_heads:
        raise ShapeError(
            f"{heads} query heads over {kv_heads} key heads",
            op="attention",
            operands=rows({"q": q, "k": keys[0]}),
            expected="key heads that divide the query heads",
        )
    if len(keys) != len(values):
        raise ShapeError(
            f"keys in {len(keys)} parts, values in {len(values)}",
            op="attention",
            operands=rows({"k": keys[0], "v": values[0]}),
            expected="as many parts of values as of keys",
        )
    group, batched = heads // kv_heads, len(keys[0].shape) == 4
    texts: list[Size] = [keys[0].shape[0], mask.shape[1]] if batched else [q.shape[0]]
    lead = len(texts) - 1  # axes before those of one text

    # Every query head is a matrix of its own; its group's keys are broadcast, not repeated. onnxruntime reads keys and
    # values where they lie: it takes the transposes into the products.
    by_token = ops.reshape(q, [*texts, kv_heads, group, q.shape[2]])
    by_head = ops.transpose(by_token, _order(lead, 1, 2, 0, 3))  # (kv, group, n, d)
    if q.dtype is not float32:  # a half-precision score could overflow before it is scaled
        by_head, scale = by_head * scale, 1.0
    scores = [_scores(by_head, part, scale, lead) for part in keys]  # (kv, group, n, rows_i) each
    seen = ops.unsqueeze(mask, [1, 2]) if batched else mask
    weights = split_weights(masked_softmax(joined_scores(scores), seen).astype(values[0].dtype), values, lead)
    mixed = None
    for weight, part in zip(weights, values, strict=True):
        turned = ops.transpose(ops.unsqueeze(part, lead + 2), _order(lead, 1, 2, 0, 3))  # (kv, 1, rows_i, d_v)
        product = ops.matmul(weight, turned)  # (kv, group, n, d_v)
        mixed = product if mixed is None else mixed + product
    assert mixed is not None
    return ops.reshape(ops.transpose(mixed, _order(lead, 2, 0, 1, 3)), [q.shape[0], heads * int(values[0].shape[-1])])


def _order(lead: int, *axes: int) -> list[int]:
    """Return an order of axes, those before one text's left where they are."""
    return [*range(lead), *(lead + axis for axis in axes)]


def _scores(by_head: Tensor, k: Tensor, scale: float, lead: int) -> Tensor:
    keys = ops.transpose(ops.unsqueeze(k, lead + 2), _order(lead, 1, 2, 3, 0))  # (kv, 1, d, rows)
    product = ops.matmul(by_head, keys)
    return product if scale == 1.0 else product * scale  # one node in onnxruntime


def joined_scores(scores: Sequence[Tensor], axis: int = -1) -> Tensor:
    """Return the scores of all parts along the axis of rows."""
    return scores[0] if len(scores) == 1 else ops.concat(list(scores), axis=axis)


def split_weights(weights: Tensor, rows_of: Sequence[Tensor], axis: int = 0) -> list[Tensor]:
    """Return the weights of each part, ``(..., rows_i)``; ``axis`` is that of the rows in the parts."""
    if len(rows_of) == 1:
        return [weights]
    return list(ops.split(weights, [part.shape[axis] for part in rows_of], axis=-1))
