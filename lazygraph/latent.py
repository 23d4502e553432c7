"""Attention over DeepSeek's latents: absorbed, which never builds a per-head key or value, and expanded, which does."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from lazygraph import dims, ops
from lazygraph.dtypes import float32
from lazygraph.errors import OperandError, ShapeError
from lazygraph.ops.checks import meet, rows
from lazygraph.tensor import Tensor


@dataclass(frozen=True)
class LatentQuery:
    """What the new tokens bring to latent attention.

    Attributes:
        q_nope: ``T (heads, n, nope)``: the part that meets latents.
        q_pe: ``T (heads, n, rope)``: the rotated part.
        w_uk: ``T (heads, nope, rank)``: makes keys of latents.
        w_uv: ``T (heads, rank, v)``: makes values of latents.
        mask: ``float32 (n, rows)``, added to the scores.
        scale: Multiplies the scores.
    """

    q_nope: Tensor
    q_pe: Tensor
    w_uk: Tensor
    w_uv: Tensor
    mask: Tensor
    scale: float


def latent_attention(
    query: LatentQuery, c_kv: Tensor, k_pe: Tensor, form: Literal["absorbed", "expanded", "auto"] = "auto"
) -> Tensor:
    """Return attention over latents, in the form that is asked for.

    Args:
        query: What the new tokens bring.
        c_kv: ``T (rows, rank)``: normed latents.
        k_pe: ``T (rows, rope)``: rotated keys, shared by all heads.
        form: ``absorbed`` (cheapest for few new tokens), ``expanded`` (for many), or ``auto``: the cheaper one, chosen
            now where the number of new tokens is known, on each run where it is not.

    Returns:
        ``T (n, heads * v)``.

    Raises:
        OperandError: No such form.
        ShapeError: Sizes do not fit.

    Source: DeepSeek-V2, 2024, section 2.1.2.
    """
    if form not in ("absorbed", "expanded", "auto"):
        raise OperandError(f"form is {form!r}", op="latent_attention", expected="absorbed, expanded or auto")
    n = query.q_nope.shape[1]
    if form == "auto":
        _, nope, rank = query.w_uk.shape
        from_tokens = cheaper_expanded_from(int(rank), int(nope), int(query.w_uv.shape[2]))
        if not isinstance(n, int):
            return chosen(query, c_kv, k_pe, ops.size_tensor(n, c_kv) >= from_tokens)
        form = "expanded" if n >= from_tokens else "absorbed"
    return (absorbed if form == "absorbed" else expanded)(query, c_kv, k_pe)


def absorbed(query: LatentQuery, c_kv: Tensor, k_pe: Tensor) -> Tensor:
    """Return latent attention with the key and value projections absorbed into query and output.

    Cost by ``n x rows x (2 rank + rope)`` per head: cheapest for few new tokens.

    Args:
        query: What the new tokens bring.
        c_kv: ``T (rows, rank)``: normed latents.
        k_pe: ``T (rows, rope)``: rotated keys, shared by all heads.

    Returns:
        ``T (n, heads * v)``.

    Raises:
        ShapeError: Sizes do not fit.

    Source: DeepSeek-V2, 2024, section 2.1.2.
    """
    _fitting("absorbed", query, c_kv, k_pe)
    heads, n, rank = query.q_nope.shape[0], query.q_nope.shape[1], c_kv.shape[1]
    count = c_kv.shape[0]

    # One matrix of all heads' queries against one matrix of rows: the rows are read once, where they lie. In half
    # precision a score could overflow before it is scaled: there the queries are scaled instead.
    q_nope, q_pe, scale = query.q_nope, query.q_pe, query.scale
    if q_nope.dtype is not float32:
        q_nope, q_pe, scale = q_nope * scale, q_pe * scale, 1.0
    q_latent = ops.reshape(ops.matmul(q_nope, query.w_uk), [heads * n, rank])
    # The rows come first and the scores are transposed: onnxruntime copies a product's second operand into a layout of
    # its own, and the queries are the small one.
    near = ops.gemm(c_kv, q_latent, alpha=scale, trans_b=True)
    turned = ops.reshape(q_pe, [heads * n, k_pe.shape[1]])
    by_row = ops.gemm(k_pe, turned, near, alpha=scale, trans_b=True)  # (rows, heads * n)
    weights = _softmax(ops.reshape(ops.transpose(by_row), [heads, n, count]), query.mask)
    mixed = ops.matmul(ops.reshape(weights, [heads * n, count]), c_kv)  # (heads * n, rank)
    return _joined(ops.matmul(ops.reshape(mixed, [heads, n, rank]), query.w_uv))


def expanded(query: LatentQuery, c_kv: Tensor, k_pe: Tensor) -> Tensor:
    """Return latent attention with every head's keys and values made from the latents: cheapest for many new tokens.

    Cost by ``rows x rank x (nope + v)`` for making them, and ``n x rows x (nope + rope + v)``, per head.

    Args:
        query: What the new tokens bring.
        c_kv: ``T (rows, rank)``: normed latents.
        k_pe: ``T (rows, rope)``: rotated keys, shared by all heads.

    Returns:
        ``T (n, heads * v)``.

    Raises:
        ShapeError: Sizes do not fit.

    Source: DeepSeek-V2, 2024, section 2.1.2.
    """
    _fitting("expanded", query, c_kv, k_pe)
    keys = ops.matmul(query.w_uk, ops.transpose(c_kv))  # (heads, nope, rows)
    values = ops.matmul(c_kv, query.w_uv)  # (heads, rows, v)
    # Scaled before the product: in half precision a score could overflow before it is scaled.
    near = ops.matmul(query.q_nope * query.scale, keys)  # (heads, n, rows)
    scores = near + ops.matmul(query.q_pe * query.scale, ops.transpose(k_pe))
    return _joined(ops.matmul(_softmax(scores, query.mask), values))


def chosen(query: LatentQuery, c_kv: Tensor, k_pe: Tensor, many: Tensor) -> Tensor:
    """Return latent attention in the form that is cheaper for this run: one graph, one copy of the weights, two forms.

    Args:
        query: What the new tokens bring.
        c_kv: ``T (rows, rank)``: normed latents.
        k_pe: ``T (rows, rope)``: rotated keys.
        many: ``bool ()``: whether there are so many new tokens that the expanded form is cheaper
            (see :func:`cheaper_expanded_from`).

    Returns:
        ``T (n, heads * v)``.

    Raises:
        ShapeError: Sizes do not fit.

    Spec: ai.onnx::If.
    """
    return ops.cond(many, lambda: expanded(query, c_kv, k_pe), lambda: absorbed(query, c_kv, k_pe))


def cheaper_expanded_from(rank: int, nope: int, v: int) -> int:
    """Return the number of new tokens from which the expanded form takes less arithmetic.

    It is ``rank (nope + v) / (2 rank - nope - v)``; more than ever come where that form never takes less: where a
    latent is no larger than half of what one head makes of it.
    """
    saved = 2 * rank - nope - v
    return max(1, -(-rank * (nope + v) // saved)) if saved > 0 else 2**31 - 1


def _softmax(scores: Tensor, mask: Tensor) -> Tensor:
    return ops.softmax(scores.astype(float32) + mask, axis=-1).astype(scores.dtype)


def _joined(by_head: Tensor) -> Tensor:
    """Return ``(heads, n, v)`` as ``(n, heads * v)``."""
    heads, n, v = by_head.shape
    return ops.reshape(ops.transpose(by_head, [1, 0, 2]), [n, dims.multiply(heads, v)])


def _fitting(op: str, query: LatentQuery, c_kv: Tensor, k_pe: Tensor) -> None:
    pairs = [
        (query.w_uk.shape[2], c_kv.shape[1], "the last size of w_uk and the rank of c_kv"),
        (query.w_uv.shape[1], c_kv.shape[1], "the middle size of w_uv and the rank of c_kv"),
        (query.q_pe.shape[2], k_pe.shape[1], "the last sizes of q_pe and k_pe"),
        (c_kv.shape[0], k_pe.shape[0], "the rows of c_kv and k_pe"),
    ]
    for a, b, what in pairs:
        if meet(a, b) is None:
            raise ShapeError(
                f"{a} and {b} differ: {what}",
                op=op,
                operands=rows({"q_nope": query.q_nope, "q_pe": query.q_pe, "c_kv": c_kv, "k_pe": k_pe}),
                expected="equal sizes",
            )
