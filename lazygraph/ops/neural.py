"""Normalizations, dropout and the rotary embedding."""

from __future__ import annotations

from typing import cast as typed

import numpy as np

from lazygraph import dims
from lazygraph.dims import Dim, Size
from lazygraph.dtypes import bool_, float32
from lazygraph.errors import OperandError, ShapeError, UnsupportedError
from lazygraph.ops.checks import (
    BOOL,
    FLOAT,
    INT64,
    Operands,
    Types,
    axes_of,
    axis_of,
    between,
    broadcast_into,
    dtype_among,
    exact_rank,
    exactly,
    rank_at_least,
    rows,
    same_dtype,
    same_size,
    types,
)
from lazygraph.ops.core import Attrs, Inputs, Results, apply, apply_all, as_tensor, has_op, rule
from lazygraph.ops.logic import cast
from lazygraph.ops.reduce import reduce_mean
from lazygraph.tensor import Shape, Tensor

_ROTATED = types("float32, float16 or bfloat16", "float32 float16 bfloat16")
_DROPPED = Types("floating-point", FLOAT.names | {"float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz"})

# ---- normalizations ----


@rule("LayerNormalization")
def _layer_norm_rule(op: str, inputs: Inputs, attrs: Attrs) -> Results:
    x, scale, bias = between(op, inputs, 2, 3)
    x = typed(Tensor, x)
    dtype_among(op, "x", x, FLOAT)
    dtype = same_dtype(op, x=x, scale=scale, bias=bias)
    if x.known_shape is None:
        return [(dtype, None), (float32, None), (float32, None)]
    axis = axis_of(op, attrs.get("axis", -1), len(x.shape), operands={"x": x})
    broadcast_into(op, x, scale=scale, bias=bias)
    rest: Shape = (*x.shape[:axis], *[1] * (len(x.shape) - axis))
    return [(dtype, x.shape), (float32, rest), (float32, rest)]


def layer_normalization(
    x: Tensor, scale: Tensor, bias: Tensor | None = None, axis: int = -1, epsilon: float = 1e-5
) -> Tensor:
    """Return ``(x - mean) / sqrt(variance + epsilon) * scale + bias``, over the axes from ``axis`` on.

    Args:
        x: ``T: float``.
        scale: ``T``, broadcast to ``x``.
        bias: The same, or None.
        axis: The first axis that is averaged over.
        epsilon: Added to the variance.

    Raises:
        ShapeError: ``scale`` or ``bias`` does not broadcast to ``x``.
        DTypeError: Element types differ, or are not floating-point.

    Spec: ai.onnx::LayerNormalization; composed in graphs of an opset before 17.
    """
    if has_op(x, 17):
        inputs = (x, scale) if bias is None else (x, scale, bias)
        return apply("LayerNormalization", *inputs, axis=axis, epsilon=float(epsilon))
    results = _layer_norm_rule("LayerNormalization", (x, scale, bias), {"axis": axis})
    axes = list(range(len(typed(Shape, results[0][1])))[axis_of("LayerNormalization", axis, len(x.shape)) :])
    centred = x - reduce_mean(x, axes, True)
    scaled = centred * apply("Reciprocal", apply("Sqrt", reduce_mean(centred * centred, axes, True) + epsilon)) * scale
    return scaled if bias is None else scaled + bias


@rule("RMSNormalization")
def _rms_norm_rule(op: str, inputs: Inputs, attrs: Attrs) -> Results:
    x, scale = exactly(op, inputs, 2)
    dtype_among(op, "x", x, FLOAT)
    dtype_among(op, "scale", scale, FLOAT)
    if x.known_shape is not None:
        axis_of(op, attrs.get("axis", -1), len(x.shape), operands={"x": x})
        broadcast_into(op, x, scale=scale)
    return [(scale.dtype, x.known_shape)]


def rms_normalization(x: Tensor, scale: Tensor, axis: int = -1, epsilon: float = 1e-5) -> Tensor:
    """Return ``x / sqrt(mean(x * x) + epsilon) * scale``, over the axes from ``axis`` on.

    Args:
        x: ``T: float``; averaged in float32, whatever the type.
        scale: ``V: float``, broadcast to ``x``; the result has its type.
        axis: The first axis that is averaged over.
        epsilon: Added to the mean square.

    Raises:
        ShapeError: ``scale`` does not broadcast to ``x``.
        DTypeError: Not floating-point.

    Spec: ai.onnx::RMSNormalization; composed in graphs of an opset before 23.
    """
    if has_op(x, 23):
        return apply("RMSNormalization", x, scale, axis=axis, epsilon=float(epsilon))
    _rms_norm_rule("RMSNormalization", (x, scale), {"axis": axis})
    axes = list(range(len(x.shape))[axis_of("RMSNormalization", axis, len(x.shape)) :])
    wide = x if x.dtype.bits == 64 else cast(x, float32)
    mean = reduce_mean(wide * wide, axes, True) + epsilon
    return cast(wide * apply("Reciprocal", apply("Sqrt", mean)), scale.dtype) * scale


@rule("BatchNormalization")
def _batch_norm_rule(op: str, inputs: Inputs, attrs: Attrs) -> Results:
    x, scale, bias, mean, variance = exactly(op, inputs, 5)
    dtype_among(op, "x", x, FLOAT)
    same_dtype(op, scale=scale, bias=bias)
    same_dtype(op, mean=mean, variance=variance)
    labelled = {"scale": scale, "bias": bias, "mean": mean, "variance": variance}
    for label, tensor in labelled.items():
        dtype_among(op, label, tensor, FLOAT)
        exact_rank(op, label, tensor, 1)
        if x.known_shape is not None and tensor.known_shape is not None:
            rank_at_least(op, "x", x, 2)
            same_size(op, {"x": x, label: tensor}, f"{label} of one number per channel", x.shape[1], tensor.shape[0])
    outputs: Results = [(x.dtype, x.known_shape)]
    if attrs.get("training_mode"):
        outputs += [(mean.dtype, mean.known_shape)] * 2
    return outputs


def batch_normalization(
    x: Tensor, scale: Tensor, bias: Tensor, mean: Tensor, variance: Tensor, epsilon: float = 1e-5
) -> Tensor:
    """Return ``(x - mean) / sqrt(variance + epsilon) * scale + bias`` with given statistics, per channel (axis 1).

    Args:
        x: ``T (batch, channels, ...)``.
        scale: ``(channels,)``.
        bias: ``(channels,)``.
        mean: ``(channels,)``.
        variance: ``(channels,)``.
        epsilon: Added to the variance.

    Raises:
        ShapeError: Not one number per channel.

    Spec: ai.onnx::BatchNormalization.
    """
    return apply("BatchNormalization", x, scale, bias, mean, variance, epsilon=float(epsilon))


@rule("InstanceNormalization", "GroupNormalization")
def _channel_norm_rule(op: str, inputs: Inputs, attrs: Attrs) -> Results:
    x, scale, bias = exactly(op, inputs, 3)
    dtype_among(op, "x", x, FLOAT)
    dtype = same_dtype(op, x=x, scale=scale, bias=bias)
    groups = attrs.get("num_groups", 1)
    if x.known_shape is not None:
        rank_at_least(op, "x", x, 2 if op == "GroupNormalization" else 3)
        channels = x.shape[1]
        if isinstance(channels, int) and (groups < 1 or channels % groups):
            raise ShapeError(
                f"{channels} channels in {groups} groups",
                op=op,
                operands=rows({"x": x}),
                expected="channels that divide",
            )
        for label, tensor in (("scale", scale), ("bias", bias)):
            exact_rank(op, label, tensor, 1)
            if tensor.known_shape is not None:
                same_size(op, {"x": x, label: tensor}, f"{label} of one number per channel", channels, tensor.shape[0])
    return [(dtype, x.known_shape)]


def instance_normalization(x: Tensor, scale: Tensor, bias: Tensor, epsilon: float = 1e-5) -> Tensor:
    """Return ``x`` normalized per sample and channel. ``scale``, ``bias``: ``(channels,)``.

    Spec: ai.onnx::InstanceNormalization.
    """
    return apply("InstanceNormalization", x, scale, bias, epsilon=float(epsilon))


def group_normalization(x: Tensor, scale: Tensor, bias: Tensor, num_groups: int, epsilon: float = 1e-5) -> Tensor:
    """Return ``x`` normalized per sample and group of channels. ``scale``, ``bias``: ``(channels,)``.

    Raises:
        ShapeError: The channels do not divide by ``num_groups``, or are not those of ``scale`` and ``bias``.
        UnsupportedError: The graph's opset is before 21, whose ``scale`` means something else.

    Spec: ai.onnx::GroupNormalization-21.
    """
    if not has_op(x, 21):
        raise UnsupportedError("GroupNormalization per channel came with opset 21", op="group_normalization")
    return apply("GroupNormalization", x, scale, bias, num_groups=int(num_groups), epsilon=float(epsilon))


@rule("MeanVarianceNormalization", "LRN")
def _same_shape_rule(op: str, inputs: Inputs, attrs: Attrs) -> Results:
    (x,) = exactly(op, inputs, 1)
    dtype_among(op, "x", x, FLOAT)
    if x.known_shape is not None:
        rank_at_least(op, "x", x, 2 if op == "LRN" else 1)
        axes_of(op, attrs.get("axes", (0, 2, 3)) if op != "LRN" else (), len(x.shape), {"x": x})
    return [(x.dtype, x.known_shape)]


@rule("Dropout")
def _dropout_rule(op: str, inputs: Inputs, attrs: Attrs) -> Results:
    x, ratio, training = between(op, inputs, 1, 3)
    x = typed(Tensor, x)
    dtype_among(op, "x", x, _DROPPED)
    if ratio is not None:
        dtype_among(op, "ratio", ratio, _DROPPED)
    if training is not None:
        dtype_among(op, "training_mode", training, BOOL)
    return [(x.dtype, x.known_shape), (bool_, x.known_shape)]


def dropout(x: Tensor, ratio: float = 0.5, training_mode: bool = False) -> Tensor:
    """Return ``x`` with a random share set to 0 and the rest scaled up; ``x`` as it is unless training.

    Raises:
        OperandError: ``ratio`` lies outside ``[0, 1)``.

    Spec: ai.onnx::Dropout.
    """
    if not 0 <= ratio < 1:
        raise OperandError(f"ratio is {ratio!r}", op="dropout", expected="a ratio in [0, 1)")
    share = as_tensor("dropout", float(ratio), x)
    return apply("Dropout", x, share, x.graph.small(np.array(training_mode)))


# ---- position ----


@rule("RotaryEmbedding")
def _rotary_rule(op: str, inputs: Inputs, attrs: Attrs) -> Results:
    x, cos, sin, positions = between(op, inputs, 3, 4)
    x, cos, sin = typed(Tensor, x), typed(Tensor, cos), typed(Tensor, sin)
    dtype_among(op, "x", x, _ROTATED)
    dtype = same_dtype(op, x=x, cos_cache=cos, sin_cache=sin)
    labelled: Operands = {"x": x, "cos_cache": cos, "sin_cache": sin, "position_ids": positions}
    if positions is not None:
        dtype_among(op, "position_ids", positions, INT64)
        exact_rank(op, "position_ids", positions, 2)
    for label, cache in (("cos_cache", cos), ("sin_cache", sin)):
        exact_rank(op, label, cache, 3 if positions is None else 2)
    if x.known_shape is None:
        return [(dtype, None)]

    heads = attrs.get("num_heads", 0)
    if len(x.shape) not in (3, 4) or (len(x.shape) == 3 and not heads):
        raise ShapeError(
            f"x has {len(x.shape)} axes" + ("" if len(x.shape) != 3 else " and num_heads is not given"),
            op=op,
            operands=rows(labelled),
            expected="x (batch, heads, tokens, head_size), or (batch, tokens, hidden) with num_heads",
        )
    tokens = x.shape[-2]
    head_size = x.shape[3] if len(x.shape) == 4 else per_head(op, labelled, "x", x.shape[2], heads)
    turned = attrs.get("rotary_embedding_dim", 0) or head_size
    if isinstance(turned, int) and (turned % 2 or (isinstance(head_size, int) and turned > head_size)):
        raise ShapeError(
            f"{turned} of {head_size} numbers per head are rotated",
            op=op,
            operands=rows(labelled),
            expected="an even number",
        )
    for cache in (cos, sin):
        if cache.known_shape is not None:
            half = dims.floordiv(turned, 2)
            same_size(op, labelled, "caches of half as many columns as numbers rotated", cache.shape[-1], half)
            if positions is None:
                same_size(op, labelled, "caches of one row per token", cache.shape[1], tokens)
    if cos.known_shape is not None and sin.known_shape is not None:
        same_size(op, labelled, "caches of equal length", cos.shape[0], sin.shape[0])
    if positions is not None and positions.known_shape is not None:
        same_size(op, labelled, "one position per sample and token", positions.shape[0], x.shape[0])
        same_size(op, labelled, "one position per sample and token", positions.shape[1], tokens)
    return [(dtype, x.shape)]


def per_head(op: str, operands: Operands, label: str, hidden: Size, heads: int) -> Size:
    """Return the numbers per head of a last axis that holds them for all heads."""
    size = dims.exact_quotient(hidden, heads) if heads else None
    if size is None and not isinstance(hidden, Dim):
        raise ShapeError(
            f"{label} has {hidden} numbers per token for {heads} heads",
            op=op,
            operands=rows(operands),
            expected=f"a last size of {label} that divides by the heads",
        )
    return dims.floordiv(hidden, heads) if size is None else size


def rotary_embedding(
    x: Tensor,
    cos_cache: Tensor,
    sin_cache: Tensor,
    position_ids: Tensor | None = None,
    interleaved: bool = False,
    num_heads: int = 0,
    rotary_embedding_dim: int = 0,
) -> Tensor:
    """Return ``x`` with pairs of numbers in each head rotated by the angles of their positions.

    Args:
        x: ``T (batch, heads, tokens, head_size)``, or ``(batch, tokens, heads * head_size)`` with ``num_heads``.
        cos_cache: ``T (positions, rotated / 2)``; without ``position_ids`` ``(batch, tokens, rotated / 2)``.
        sin_cache: The same.
        position_ids: ``int64 (batch, tokens)``, each below ``positions``; or None.
        interleaved: Pairs are neighbours; otherwise halves.
        num_heads: Heads of a three-axis ``x``.
        rotary_embedding_dim: How many numbers of each head are rotated; 0 rotates all.

    Raises:
        ShapeError: Sizes do not fit, or an odd number would be rotated.
        DTypeError: Element types differ, or ``position_ids`` is not int64.

    Spec: ai.onnx::RotaryEmbedding-23.
    """
    attrs: Attrs = {"interleaved": 1} if interleaved else {}
    if num_heads:
        attrs["num_heads"] = int(num_heads)
    if rotary_embedding_dim:
        attrs["rotary_embedding_dim"] = int(rotary_embedding_dim)
    inputs = (x, cos_cache, sin_cache) if position_ids is None else (x, cos_cache, sin_cache, position_ids)
    return apply_all("RotaryEmbedding", inputs, attrs)[0]


__all__ = [
    "batch_normalization",
    "dropout",
    "group_normalization",
    "instance_normalization",
    "layer_normalization",
    "per_head",
    "rms_normalization",
    "rotary_embedding",
]
