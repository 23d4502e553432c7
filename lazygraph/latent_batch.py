"""Latent attention of a batch: several texts, each over latents of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lazygraph import dims, ops
from lazygraph.attending import masked_softmax
from lazygraph.dims import Size
from lazygraph.tensor import Tensor

if TYPE_CHECKING:
    from lazygraph.latent import LatentQuery


def absorbed_batch(query: LatentQuery, c_kv: Tensor, k_pe: Tensor) -> Tensor:
    """Return latent attention with the projections absorbed into query and output, text by text.

    Args:
        query: What the new tokens bring: of ``batch * n`` tokens, text by text, with a mask ``(batch, n, rows)``.
        c_kv: ``T (batch, rows, rank)``: normed latents.
        k_pe: ``T (batch, rows, rope)``: rotated keys, shared by all heads.

    Returns:
        ``T (heads, batch * n, v)``.

    Source: DeepSeek-V2, 2024, section 2.1.2.
    """
    heads, (batch, n, count) = query.q_nope.shape[0], query.mask.shape
    both = dims.multiply(heads, n)
    # Scaled before the product: in half precision a score could overflow before it is scaled.
    q_latent = ops.reshape(_by_text(ops.matmul(query.q_nope * query.scale, query.w_uk), batch, n), [batch, both, -1])
    turned = ops.reshape(_by_text(query.q_pe * query.scale, batch, n), [batch, both, -1])
    # The rows come first, as in the form for one text: the queries are the smaller operand.
    by_row = ops.matmul(c_kv, ops.transpose(q_latent, [0, 2, 1])) + ops.matmul(k_pe, ops.transpose(turned, [0, 2, 1]))
    by_head = ops.reshape(ops.transpose(by_row, [0, 2, 1]), [batch, heads, n, count])
    weights = masked_softmax(by_head, ops.unsqueeze(query.mask, 1)).astype(c_kv.dtype)
    mixed = ops.matmul(ops.reshape(weights, [batch, both, count]), c_kv)  # (batch, heads * n, rank)
    return ops.matmul(_by_head(ops.reshape(mixed, [batch, heads, n, c_kv.shape[2]])), query.w_uv)


def expanded_batch(query: LatentQuery, c_kv: Tensor, k_pe: Tensor) -> Tensor:
    """Return latent attention with every head's keys and values made from the latents, text by text.

    Args:
        query: What the new tokens bring: of ``batch * n`` tokens, text by text, with a mask ``(batch, n, rows)``.
        c_kv: ``T (batch, rows, rank)``: normed latents.
        k_pe: ``T (batch, rows, rope)``: rotated keys, shared by all heads.

    Returns:
        ``T (heads, batch * n, v)``.

    Source: DeepSeek-V2, 2024, section 2.1.2.
    """
    batch, n, _ = query.mask.shape
    latents = ops.unsqueeze(c_kv, 1)  # (batch, 1, rows, rank)
    keys = ops.matmul(query.w_uk, ops.transpose(latents, [0, 1, 3, 2]))  # (batch, heads, nope, rows)
    near = ops.matmul(_by_text(query.q_nope * query.scale, batch, n), keys)  # (batch, heads, n, rows)
    turning = ops.transpose(ops.unsqueeze(k_pe, 1), [0, 1, 3, 2])  # (batch, 1, rope, rows)
    scores = near + ops.matmul(_by_text(query.q_pe * query.scale, batch, n), turning)
    weights = masked_softmax(scores, ops.unsqueeze(query.mask, 1)).astype(c_kv.dtype)
    return _by_head(ops.matmul(weights, ops.matmul(latents, query.w_uv)))


def _by_text(x: Tensor, batch: Size, n: Size) -> Tensor:
    """Return ``(heads, batch * n, d)`` as ``(batch, heads, n, d)``."""
    return ops.transpose(ops.reshape(x, [x.shape[0], batch, n, x.shape[2]]), [1, 0, 2, 3])


def _by_head(x: Tensor) -> Tensor:
    """Return ``(batch, heads, n, d)`` as ``(heads, batch * n, d)``."""
    batch, heads, n, width = x.shape
    return ops.reshape(ops.transpose(x, [1, 0, 2, 3]), [heads, dims.multiply(batch, n), width])


__all__ = ["absorbed_batch", "expanded_batch"]
