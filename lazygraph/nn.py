"""Blocks that decoders are made of, each a few ops: norms, rotation, attention, gated feed-forward.

In half precision what sums or exponentiates many numbers does so in float32: norms and softmax cannot overflow.
"""

from __future__ import annotations

from lazygraph import ops
from lazygraph.dtypes import float32
from lazygraph.errors import ShapeError
from lazygraph.ops.checks import meet, rows
from lazygraph.tensor import Tensor


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return ``x @ weight + bias``.

    Args:
        x: ``T (..., inputs)``.
        weight: ``T (inputs, outputs)``: the transpose of what most checkpoints store.
        bias: ``T (outputs,)`` or None.

    Raises:
        ShapeError: Sizes do not fit.

    Spec: ai.onnx::MatMul, ai.onnx::Add.
    """
    y = ops.matmul(x, weight)
    return y if bias is None else y + bias


def rms_norm(x: Tensor, weight: Tensor, eps: float = 1e-6) -> Tensor:
    """Return ``x / sqrt(mean(x * x, last axis) + eps) * weight``, computed in float32.

    Args:
        x: ``T (..., n)``.
        weight: ``T (n,)``.
        eps: Added to the mean of squares.

    Raises:
        ShapeError: ``weight`` is not ``(n,)``.

    Source: Root Mean Square Layer Normalization, Zhang and Sennrich 2019; transformers' LlamaRMSNorm.
    """
    if len(weight.shape) != 1 or not x.shape or meet(x.shape[-1], weight.shape[0]) is None:
        raise ShapeError(
            "the weight does not fit the last axis",
            op="rms_norm",
            operands=rows({"x": x, "weight": weight}),
            expected="weight of shape (n,), n the last size of x",
        )
    wide = x.astype(float32)
    mean = ops.reduce_mean(wide * wide, -1, keepdims=True)
    normed = wide / ops.sqrt(mean + eps)
    return normed.astype(x.dtype) * weight


def rotary(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Return ``x`` with its last axis rotated in pairs ``(i, i + d/2)``: the half layout of Llama checkpoints.

    Args:
        x: ``T (n, heads, d)``, d even.
        cos: ``T (n, 1, d/2)``.
        sin: ``T (n, 1, d/2)``.

    Raises:
        ShapeError: d is odd, or the tables do not fit.

    Source: RoFormer, Su et al. 2021, section 3.4.2.
    """
    size = x.shape[-1]
    if not isinstance(size, int) or size % 2:
        raise ShapeError(
            f"the last size is {size}", op="rotary", operands=rows({"x": x}), expected="an even number: pairs rotate"
        )
    first, second = ops.split(x, [size // 2, size // 2], axis=-1)
    return ops.concat([first * cos - second * sin, second * cos + first * sin], axis=-1)


def rotary_tables(positions: Tensor, inv_freq: Tensor) -> tuple[Tensor, Tensor]:
    """Return cosines and sines of ``positions x inv_freq``, each ``float32 (n, 1, d/2)``.

    Args:
        positions: ``int64 (n,)``.
        inv_freq: ``float32 (d/2,)``, radians per position.
    """
    angles = ops.unsqueeze(positions.astype(float32), [1, 2]) * inv_freq
    return ops.cos(angles), ops.sin(angles)


def swiglu(gate: Tensor, up: Tensor) -> Tensor:
    """Return ``silu(gate) * up``. Source: GLU Variants Improve Transformer, Shazeer 2020."""
    return gate * ops.sigmoid(gate) * up


def additive_mask(visible: Tensor) -> Tensor:
    """Return ``float32``: 0 where ``visible`` (bool) holds, and a number that no score outweighs elsewhere.

    It is added to float32 scores: far from their overflow, and a visible score of any size that a model makes wins.
    """
    return ops.where(visible, ops.constant(0.0, dtype=float32, anchor=visible), -1e30)


def attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor, scale: float) -> Tensor:
    """Return grouped-query attention: every query head over its group's keys and values.

    Args:
        q: ``T (n, heads, d)``.
        k: ``T (rows, kv_heads, d)``; ``kv_heads`` divides ``heads``.
        v: ``T (rows, kv_heads, d_v)``.
        mask: ``float32 (n, rows)``, added to the scores (see :func:`additive_mask`).
        scale: Multiplies the scores.

    Returns:
        ``T (n, heads * d_v)``.

    Raises:
        ShapeError: Sizes do not fit, or ``kv_heads`` does not divide ``heads``.

    Source: Attention Is All You Need, Vaswani et al. 2017; GQA, Ainslie et al. 2023.
    """
    heads, kv_heads = int(q.shape[1]), int(k.shape[1])
    if heads % kv_heads:
        raise ShapeError(
            f"{heads} query heads over {kv_heads} key heads",
            op="attention",
            operands=rows({"q": q, "k": k}),
            expected="key heads that divide the query heads",
        )
    group, n, count, width, out = heads // kv_heads, q.shape[0], k.shape[0], int(q.shape[2]), int(v.shape[2])

    # The queries of one group share keys and values: they become rows of one matrix, so nothing is repeated.
    grouped = ops.transpose(ops.reshape(q * scale, [n, kv_heads, group, width]), [1, 2, 0, 3])  # (kv, group, n, d)
    folded = ops.reshape(grouped, [kv_heads, group * n, width])
    scores = ops.matmul(folded, ops.transpose(k, [1, 2, 0]))  # (kv, group * n, rows)
    masked = ops.reshape(scores, [kv_heads, group, n, count]).astype(float32) + mask
    weights = ops.softmax(masked, axis=-1).astype(v.dtype)
    mixed = ops.matmul(ops.reshape(weights, [kv_heads, group * n, count]), ops.transpose(v, [1, 0, 2]))  # (kv, g * n, d_v)
    unfolded = ops.transpose(ops.reshape(mixed, [kv_heads, group, n, out]), [2, 0, 1, 3])  # (n, kv, group, d_v)
    return ops.reshape(unfolded, [n, heads * out])
