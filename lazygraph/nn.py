"""Blocks that decoders are made of, each a few ops: norms, rotation, attention, gated feed-forward.

In half precision what sums or exponentiates many numbers does so in float32: norms and softmax cannot overflow.
"""

from __future__ import annotations

from lazygraph import ops
from lazygraph.attending import additive_mask, attention, masked_softmax
from lazygraph.dtypes import float32
from lazygraph.errors import ShapeError
from lazygraph.latent import LatentQuery, latent_attention
from lazygraph.ops.checks import meet, rows
from lazygraph.tensor import Tensor

__all__ = [
    "LatentQuery",
    "additive_mask",
    "attention",
    "latent_attention",
    "linear",
    "masked_softmax",
    "rms_norm",
    "rotary",
    "rotary_tables",
    "swiglu",
]


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None, residual: Tensor | None = None) -> Tensor:
    """Return ``x @ weight + bias + residual``.

    Args:
        x: ``T (..., inputs)``.
        weight: ``T (inputs, outputs)``: the transpose of what most checkpoints store.
        bias: ``T (outputs,)`` or None.
        residual: ``T (..., outputs)``, what the result is added to, or None.

    Raises:
        ShapeError: Sizes do not fit.

    Spec: ai.onnx::MatMul, ai.onnx::Add; ai.onnx::Gemm where a matrix is added to.
    """
    if residual is not None and len(x.shape) == 2:  # one node: the product is accumulated onto the residual
        y = ops.gemm(x, weight, residual)
        residual = None
    else:
        y = ops.matmul(x, weight)
    for added in (bias, residual):
        y = y if added is None else y + added
    return y


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
    # Spelt as onnxruntime recognises it: these six nodes become one, which x * x or Reciprocal would not.
    wide = x.astype(float32)
    spread = ops.sqrt(ops.reduce_mean(ops.pow(wide, 2.0), -1, keepdims=True) + eps)
    return (wide / spread).astype(x.dtype) * weight


def rotary(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Return ``x`` with its last axis rotated in pairs ``(i, i + d/2)``: the half layout of Llama checkpoints.

    Args:
        x: ``T (n, heads, d)``, d even.
        cos: ``T (n, 1, d)`` (see ``rotary_tables``).
        sin: ``T (n, 1, d)``, negative in its first half.

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
    return x * cos + ops.concat([second, first], axis=-1) * sin


def rotary_tables(positions: Tensor, inv_freq: Tensor, magnitude: float = 1.0) -> tuple[Tensor, Tensor]:
    """Return cosines and sines for ``rotary``, each ``float32 (n, 1, d)``.

    The sines of the first half are negative: the rotation's one minus sign, paid once per step instead of per layer.

    Args:
        positions: ``int64 (n,)``.
        inv_freq: ``float32 (d/2,)``, radians per position.
        magnitude: Multiplies both (yarn's attention factor).
    """
    angles = ops.unsqueeze(positions.astype(float32), [1, 2]) * inv_freq  # (n, 1, d/2)
    cos, sin = ops.cos(angles), ops.sin(angles)
    if magnitude != 1.0:
        cos, sin = cos * magnitude, sin * magnitude
    return ops.concat([cos, cos], axis=-1), ops.concat([-sin, sin], axis=-1)


def swiglu(gate: Tensor, up: Tensor) -> Tensor:
    """Return ``silu(gate) * up``. Source: GLU Variants Improve Transformer, Shazeer 2020."""
    return gate * ops.sigmoid(gate) * up
