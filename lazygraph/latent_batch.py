"""Latent attention of a batch: several texts, each over latents of its own.

Both forms take what the new tokens bring, of ``batch * n`` tokens, text by text, with a mask ``(batch, n, rows)``; and
in one part, or several that follow each other, the normed latents, ``T (batch, rows_i, rank)``, and the rotated keys
that all heads share, ``T (batch, rows_i, rope)``. Both return ``T (heads, batch * n, v)``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from lazygraph import dims, ops
from lazygraph.attending import count_rows, joined_scores, masked_softmax, split_weights
from lazygraph.dims import Size
from lazygraph.tensor import Tensor

if TYPE_CHECKING:
    from lazygraph.latent import LatentQuery


def absorbed_batch(query: LatentQuery, c_kv: Sequence[Tensor], k_pe: Sequence[Tensor]) -> Tensor:
    """Return latent attention with the projections absorbed into query and output, text by text.

    Source: DeepSeek-V2, 2024, section 2.1.2.
    """
    heads, (batch, n, _) = query.q_nope.shape[0], query.mask.shape
    both = dims.multiply(heads, n)
    # Scaled before the product: in half precision a score could overflow before it is scaled.
    q_latent = ops.reshape(_by_text(ops.matmul(query.q_nope * query.scale, query.w_uk), batch, n), [batch, both, -1])
    turned = ops.reshape(_by_text(query.q_pe * query.scale, batch, n), [batch, both, -1])
    columns, turned = ops.transpose(q_latent, [0, 2, 1]), ops.transpose(turned, [0, 2, 1])
    # The rows come first, as in the form for one text: the queries are the smaller operand.
    scores = [ops.matmul(c, columns) + ops.matmul(k, turned) for c, k in zip(c_kv, k_pe, strict=True)]
    by_row = ops.transpose(joined_scores(scores, axis=1), [0, 2, 1])
    by_head = ops.reshape(by_row, [batch, heads, n, count_rows(c_kv, axis=1)])
    weights = masked_softmax(by_head, ops.unsqueeze(query.mask, 1)).astype(c_kv[0].dtype)
    mixed = None
    for weight, rows in zip(split_weights(weights, c_kv, axis=1), c_kv, strict=True):
        product = ops.matmul(ops.reshape(weight, [batch, both, rows.shape[1]]), rows)  # (batch, heads * n, rank)
        mixed = product if mixed is None else mixed + product
    assert mixed is not None
    return ops.matmul(_by_head(ops.reshape(mixed, [batch, heads, n, c_kv[0].shape[2]])), query.w_uv)


def expanded_batch(query: LatentQuery, c_kv: Sequence[Tensor], k_pe: Sequence[Tensor]) -> Tensor:
    """Return latent attention with every head's keys and values made from the latents, text by text.

    Source: DeepSeek-V2, 2024, section 2.1.2.
    """
    batch, n, _ = query.mask.shape
    near = _by_text(query.q_nope * query.scale, batch, n)
    turned = _by_text(query.q_pe * query.scale, batch, n)
    scores, values = [], []
    for rows_c, rows_k in zip(c_kv, k_pe, strict=True):
        latents = ops.unsqueeze(rows_c, 1)  # (batch, 1, rows_i, rank)
        keys = ops.matmul(query.w_uk, ops.transpose(latents, [0, 1, 3, 2]))  # (batch, heads, nope, rows_i)
        turning = ops.transpose(ops.unsqueeze(rows_k, 1), [0, 1, 3, 2])  # (batch, 1, rope, rows_i)
        scores.append(ops.matmul(near, keys) + ops.matmul(turned, turning))  # (batch, heads, n, rows_i)
        values.append(ops.matmul(latents, query.w_uv))  # (batch, heads, rows_i, v)
    weights = masked_softmax(joined_scores(scores), ops.unsqueeze(query.mask, 1)).astype(c_kv[0].dtype)
    mixed = None
    for weight, value in zip(split_weights(weights, c_kv, axis=1), values, strict=True):
        product = ops.matmul(weight, value)  # (batch, heads, n, v)
        mixed = product if mixed is None else mixed + product
    assert mixed is not None
    return _by_head(mixed)


def _by_text(x: Tensor, batch: Size, n: Size) -> Tensor:
    """Return ``(heads, batch * n, d)`` as ``(batch, heads, n, d)``."""
    return ops.transpose(ops.reshape(x, [x.shape[0], batch, n, x.shape[2]]), [1, 0, 2, 3])


def _by_head(x: Tensor) -> Tensor:
    """Return ``(batch, heads, n, d)`` as ``(heads, batch * n, d)``."""
    batch, heads, n, width = x.shape
    return ops.reshape(ops.transpose(x, [1, 0, 2, 3]), [heads, dims.multiply(batch, n), width])


__all__ = ["absorbed_batch", "expanded_batch"]
