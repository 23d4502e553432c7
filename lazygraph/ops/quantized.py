"""Ops on quantized numbers: to and from few bits, integer matrix products."""

from __future__ import annotations

from typing import cast as typed

import numpy as np

from lazygraph.dtypes import DType, float32, int32, uint8
from lazygraph.errors import ShapeError
from lazygraph.ops.checks import (
    Operands,
    axis_of,
    between,
    dtype_among,
    exactly,
    meet,
    rows,
    same_dtype,
    types,
)
from lazygraph.ops.core import Attrs, Inputs, Results, apply, apply_all, rule
from lazygraph.ops.linear import product_shape
from lazygraph.tensor import Tensor

_BYTES = types("int8 or uint8", "int8 uint8")
_REAL = types("float32, float16, bfloat16 or int32", "float32 float16 bfloat16 int32")
_SCALE = types("floating-point", "float32 float16 bfloat16 float8_e8m0fnu")
_FEW_BITS = types(
    "quantized",
    "int8 uint8 int16 uint16 int32 uint4 int4 uint2 int2 "
    "float8_e4m3fn float8_e4m3fnuz float8_e5m2 float8_e5m2fnuz float4_e2m1fn",
)


def _scale_fits(op: str, x: Tensor, scale: Tensor, zero: Tensor | None, attrs: Attrs) -> None:
    operands: Operands = {"x": x, "scale": scale, "zero_point": zero}
    zeros = scale.known_shape if zero is None else zero.known_shape
    scales = scale.known_shape
    one = (), (1,)
    if zeros in one and scales in one:  # onnx's own cases have one of each
        return
    differ = zeros is not None and scales is not None and len(zeros) != len(scales)
    if differ or any(meet(a, b) is None for a, b in zip(zeros or (), scales or (), strict=False)):
        raise ShapeError("scale and zero_point differ", op=op, operands=rows(operands), expected="one shape for both")
    if x.known_shape is None or not scale.known_shape or scale.known_shape == (1,):
        return
    block = attrs.get("block_size", 0)
    axis = axis_of(op, attrs.get("axis", 1), len(x.shape), operands=operands)
    if block:
        if len(scale.shape) != len(x.shape):
            raise ShapeError("scale of blocks", op=op, operands=rows(operands), expected="a scale with the rank of x")
    elif len(scale.shape) != 1 or meet(scale.shape[0], x.shape[axis]) is None:
        raise ShapeError(
            f"scale does not fit axis {axis}",
            op=op,
            operands=rows(operands),
            expected=f"a scalar, or {x.shape[axis]} scales",
        )


@rule("QuantizeLinear")
def _quantize_rule(op: str, inputs: Inputs, attrs: Attrs) -> Results:
    x, scale, zero = between(op, inputs, 2, 3)
    x, scale = typed(Tensor, x), typed(Tensor, scale)
    dtype_among(op, "x", x, _REAL)
    wanted: DType | None = attrs.get("output_dtype") or None
    if zero is not None:
        dtype_among(op, "zero_point", zero, _FEW_BITS)
        wanted = zero.dtype
    _scale_fits(op, x, scale, zero, attrs)
    return [(wanted or uint8, x.known_shape)]


@rule("DequantizeLinear")
def _dequantize_rule(op: str, inputs: Inputs, attrs: Attrs) -> Results:
    x, scale, zero = between(op, inputs, 2, 3)
    x, scale = typed(Tensor, x), typed(Tensor, scale)
    dtype_among(op, "x", x, _FEW_BITS)
    dtype_among(op, "scale", scale, _SCALE)
    same_dtype(op, x=x, zero_point=zero)
    _scale_fits(op, x, scale, zero, attrs)
    return [(attrs.get("output_dtype") or scale.dtype, x.known_shape)]


@rule("DynamicQuantizeLinear")
def _dynamic_rule(op: str, inputs: Inputs, attrs: Attrs) -> Results:
    (x,) = exactly(op, inputs, 1)
    dtype_among(op, "x", x, types("float32", "float32"))
    return [(uint8, x.known_shape), (float32, ()), (uint8, ())]


@rule("MatMulInteger")
def _matmul_integer_rule(op: str, inputs: Inputs, attrs: Attrs) -> Results:
    a, b, zero_a, zero_b = between(op, inputs, 2, 4)
    a, b = typed(Tensor, a), typed(Tensor, b)
    dtype_among(op, "a", a, _BYTES)
    dtype_among(op, "b", b, _BYTES)
    same_dtype(op, a=a, a_zero_point=zero_a)
    same_dtype(op, b=b, b_zero_point=zero_b)
    return [(int32, product_shape(op, a, b))]


def quantize_linear(
    x: Tensor, y_scale: Tensor | float, y_zero_point: Tensor | None = None, axis: int = 1, saturate: bool = True
) -> Tensor:
    """Return ``x / y_scale + y_zero_point``, rounded to even and held in the zero point's type (uint8 without one).

    Args:
        x: ``float32``, ``float16``, ``bfloat16`` or ``int32``.
        y_scale: A scalar, or one scale per place of ``axis``.
        y_zero_point: The element type to come, of the scale's shape; or None.
        axis: The axis that several scales are for.
        saturate: Whether 8-bit floats hold what is too large.

    Raises:
        ShapeError: The scale does not fit.

    Spec: ai.onnx::QuantizeLinear.
    """
    scale = y_scale if isinstance(y_scale, Tensor) else x.graph.small(np.array(y_scale, dtype=x.dtype.numpy))
    attrs: Attrs = {} if saturate else {"saturate": 0}
    if scale.known_shape:
        attrs["axis"] = axis
    return apply("QuantizeLinear", x, scale, *([] if y_zero_point is None else [y_zero_point]), **attrs)


def dequantize_linear(x: Tensor, x_scale: Tensor | float, x_zero_point: Tensor | None = None, axis: int = 1) -> Tensor:
    """Return ``(x - x_zero_point) * x_scale`` in the scale's type (see ``quantize_linear``).

    Raises:
        ShapeError: The scale does not fit.
        DTypeError: The zero point is of another type than ``x``.

    Spec: ai.onnx::DequantizeLinear.
    """
    scale = x_scale if isinstance(x_scale, Tensor) else x.graph.small(np.array(x_scale, dtype=np.float32))
    attrs: Attrs = {"axis": axis} if scale.known_shape else {}
    return apply("DequantizeLinear", x, scale, *([] if x_zero_point is None else [x_zero_point]), **attrs)


def dynamic_quantize_linear(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return ``x`` as uint8, with the scale and zero point that its range needs.

    Spec: ai.onnx::DynamicQuantizeLinear.
    """
    y, scale, zero = apply_all("DynamicQuantizeLinear", (x,), {})
    return y, scale, zero


def matmul_integer(
    a: Tensor, b: Tensor, a_zero_point: Tensor | None = None, b_zero_point: Tensor | None = None
) -> Tensor:
    """Return the ``int32`` matrix product of 8-bit integers, zero points subtracted first.

    Spec: ai.onnx::MatMulInteger.
    """
    inputs: Inputs = (a, b, a_zero_point, b_zero_point)
    while inputs[-1] is None:
        inputs = inputs[:-1]
    return apply("MatMulInteger", *inputs)


__all__ = ["dequantize_linear", "dynamic_quantize_linear", "matmul_integer", "quantize_linear"]
