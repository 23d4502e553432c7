"""Attention over DeepSeek's latents: absorbed, which never builds a per-head key or value, and expanded, which does."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from lazygraph import dims, ops
from lazygraph.attending import Rows, count_rows, joined_scores, masked_softmax, parts, split_weights
from lazygraph.dims import Size
from lazygraph.dtypes import float32
from lazygraph.errors import OperandError, ShapeError
from lazygraph.latent_batch import absorbed_batch, expanded_batch
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
        mask: ``float32 (n, rows)``, added to the scores, or ``bool``, True where visible (see
            ``lazygraph.nn.masked_softmax``).
        scale: Multiplies the scores.
    """

    q_nope: Tensor
    q_pe: Tensor
    w_uk: Tensor
    w_uv: Tensor
    mask: Tensor
    scale: float


def latent_attention(
    query: LatentQuery, c_kv: Rows, k_pe: Rows, form: Literal["absorbed", "expanded", "auto"] = "auto"
) -> Tensor:
    """Return attention over latents, in the form that is asked for.

    Args:
        query: What the new tokens bring.
        c_kv: ``T (rows, rank)``: normed latents; or several such, that follow each other.
        k_pe: ``T (rows, rope)``: rotated keys, shared by all heads; in as many parts.
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
            return chosen(query, c_kv, k_pe, ops.size_tensor(n, query.q_nope) >= from_tokens)
        form = "expanded" if n >= from_tokens else "absorbed"
    return (absorbed if form == "absorbed" else expanded)(query, c_kv, k_pe)


def absorbed(query: LatentQuery, c_kv: Rows, k_pe: Rows) -> Tensor:
    """Return latent attention with the key and value projections absorbed into query and output.

    Cost by ``n x rows x (2 rank + rope)`` per head: cheapest for few new tokens.

    Args:
        query: What the new tokens bring.
        c_kv: ``T (rows, rank)``: normed latents; or several such, that follow each other.
        k_pe: ``T (rows, rope)``: rotated keys, shared by all heads; in as many parts.

    Returns:
        ``T (n, heads * v)``.

    Raises:
        ShapeError: Sizes do not fit.

    Source: DeepSeek-V2, 2024, section 2.1.2.
    """
    latents, turning = _fitting("absorbed", query, c_kv, k_pe)
    if len(latents[0].shape) == 3:
        return _joined(absorbed_batch(query, latents, turning))
    heads, n, rank = query.q_nope.shape[0], query.q_nope.shape[1], latents[0].shape[1]

    # One matrix of all heads' queries against one matrix of rows: the rows are read once, where they lie. In half
    # precision a score could overflow before it is scaled: there the queries are scaled instead.
    q_nope, q_pe, scale = query.q_nope, query.q_pe, query.scale
    if q_nope.dtype is not float32:
        q_nope, q_pe, scale = q_nope * scale, q_pe * scale, 1.0
    q_latent = ops.reshape(ops.matmul(q_nope, query.w_uk), [heads * n, rank])
    turned = ops.reshape(q_pe, [heads * n, q_pe.shape[2]])

    # The rows come first and the scores are transposed: onnxruntime copies a product's second operand into a layout of
    # its own, and the queries are the small one.
    scores = []
    for rows_c, rows_k in zip(latents, turning, strict=True):
        near = ops.gemm(rows_c, q_latent, alpha=scale, trans_b=True)
        scores.append(ops.gemm(rows_k, turned, near, alpha=scale, trans_b=True))  # (rows_i, heads * n)
    by_row = joined_scores(scores, axis=0)
    by_head = ops.reshape(ops.transpose(by_row), [heads, n, count_rows(latents)])
    weights = masked_softmax(by_head, query.mask).astype(by_row.dtype)

    mixed = None
    for weight, rows_c in zip(split_weights(weights, latents), latents, strict=True):
        product = ops.matmul(ops.reshape(weight, [heads * n, rows_c.shape[0]]), rows_c)  # (heads * n, rank)
        mixed = product if mixed is None else mixed + product
    assert mixed is not None
    return _joined(ops.matmul(ops.reshape(mixed, [heads, n, rank]), query.w_uv))


def expanded(query: LatentQuery, c_kv: Rows, k_pe: Rows) -> Tensor:
    """Return latent attention with every head's keys and values made from the latents: cheapest for many new tokens.

    Cost by ``rows x rank x (nope + v)`` for making them, and ``n x rows x (nope + rope + v)``, per head.

    Args:
        query: What the new tokens bring.
        c_kv: ``T (rows, rank)``: normed latents; or several such, that follow each other.
        k_pe: ``T (rows, rope)``: rotated keys, shared by all heads; in as many parts.

    Returns:
        ``T (n, heads * v)``.

    Raises:
        ShapeError: Sizes do not fit.

    Source: DeepSeek-V2, 2024, section 2.1.2.
    """
    latents, turning = _fitting("expanded", query, c_kv, k_pe)
    if len(latents[0].shape) == 3:
        return _joined(expanded_batch(query, latents, turning))
    # Scaled before the product: in half precision a score could overflow before it is scaled.
    q_nope, q_pe = query.q_nope * query.scale, query.q_pe * query.scale
    scores, values = [], []
    for rows_c, rows_k in zip(latents, turning, strict=True):
        keys = ops.matmul(query.w_uk, ops.transpose(rows_c))  # (heads, nope, rows_i)
        values.append(ops.matmul(rows_c, query.w_uv))  # (heads, rows_i, v)
        scores.append(ops.matmul(q_nope, keys) + ops.matmul(q_pe, ops.transpose(rows_k)))  # (heads, n, rows_i)
    joined = joined_scores(scores)
    weights = masked_softmax(joined, query.mask).astype(joined.dtype)

    mixed = None
    for weight, value in zip(split_weights(weights, latents), values, strict=True):
        product = ops.matmul(weight, value)  # (heads, n, v)
        mixed = product if mixed is None else mixed + product
    assert mixed is not None
    return _joined(mixed)


def chosen(query: LatentQuery, c_kv: Rows, k_pe: Rows, many: Tensor) -> Tensor:
    """Return latent attention in the form that is cheaper for this run: one graph, one copy of the weights, two forms.

    Args:
        query: What the new tokens bring.
        c_kv: ``T (rows, rank)``: normed latents; or several such, that follow each other.
        k_pe: ``T (rows, rope)``: rotated keys; in as many parts.
        many: ``bool ()``: whether there are so many new tokens that the expanded form is cheaper
            (see ``cheaper_expanded_from``).

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


def _joined(by_head: Tensor) -> Tensor:
    """Return ``(heads, n, v)`` as ``(n, heads * v)``."""
    heads, n, v = by_head.shape
    return ops.reshape(ops.transpose(by_head, [1, 0, 2]), [n, dims.multiply(heads, v)])


def _fitting(op: str, query: LatentQuery, c_kv: Rows, k_pe: Rows) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
    """Return latents and rotated keys in their parts, which fit each other and the query."""
    latents, turning = parts(c_kv), parts(k_pe)
    pairs: list[tuple[Size, Size, str]] = [
        (len(latents), len(turning), "the numbers of parts of c_kv and k_pe"),
    ]
    for rows_c, rows_k in zip(latents, turning, strict=False):
        pairs += [
            (query.w_uk.shape[2], rows_c.shape[-1], "the last size of w_uk and the rank of c_kv"),
            (query.w_uv.shape[1], rows_c.shape[-1], "the middle size of w_uv and the rank of c_kv"),
            (query.q_pe.shape[2], rows_k.shape[-1], "the last sizes of q_pe and k_pe"),
            (rows_c.shape[-2], rows_k.shape[-2], "the rows of c_kv and k_pe"),
        ]
    for a, b, what in pairs:
        if meet(a, b) is None:
            raise ShapeError(
                f"{a} and {b} differ: {what}",
                op=op,
                operands=rows({"q_nope": query.q_nope, "q_pe": query.q_pe, "c_kv": latents[0], "k_pe": turning[0]}),
                expected="equal sizes",
            )
    return latents, turning
