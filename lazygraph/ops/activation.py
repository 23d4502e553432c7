"""Activations: functions of one number between linear layers, and the softmax family along an axis."""

from __future__ import annotations

import math

from lazygraph.errors import OperandError
from lazygraph.ops.checks import FLOAT, SIGNED, WIDE, axis_of, broadcast_into, dtype_among, exactly, int_of, same_dtype
from lazygraph.ops.core import Attrs, Inputs, Results, apply, as_tensor, has_op, operands, rule
from lazygraph.ops.elementwise import maximum
from lazygraph.tensor import Operand, Tensor


@rule("Softmax", "LogSoftmax", "Hardmax", "LpNormalization")
def _softmax_rule(op: str, inputs: Inputs, attrs: Attrs) -> Results:
    (x,) = exactly(op, inputs, 1)
    dtype_among(op, "x", x, FLOAT)
    if x.known_shape is not None:
        axis_of(op, attrs.get("axis", -1), len(x.shape), operands={"x": x})
    return [(x.dtype, x.known_shape)]


@rule("PRelu")
def _prelu_rule(op: str, inputs: Inputs, attrs: Attrs) -> Results:
    x, slope = exactly(op, inputs, 2)
    dtype_among(op, "x", x, WIDE)
    dtype = same_dtype(op, x=x, slope=slope)
    broadcast_into(op, x, slope=slope)
    return [(dtype, x.known_shape)]


@rule("SwiGLU")
def _swiglu_rule(op: str, inputs: Inputs, attrs: Attrs) -> Results:
    a, b = exactly(op, inputs, 2)
    dtype_among(op, "a", a, FLOAT)
    dtype = same_dtype(op, a=a, b=b)
    broadcast_into(op, a, b=b)
    return [(dtype, a.known_shape)]


def softmax(x: Tensor, axis: int = -1) -> Tensor:
    """Return ``exp(x) / sum(exp(x))`` along an axis, without overflow.

    Args:
        x: ``T: float``.
        axis: The axis whose elements then sum to 1.

    Raises:
        IndexRangeError: The axis lies outside ``[-rank, rank)``.

    Spec: ai.onnx::Softmax.
    """
    return apply("Softmax", x, axis=int_of("Softmax", axis, "axis"))


def log_softmax(x: Tensor, axis: int = -1) -> Tensor:
    """Return the logarithm of ``softmax``. ``T: float``. Spec: ai.onnx::LogSoftmax."""
    return apply("LogSoftmax", x, axis=int_of("LogSoftmax", axis, "axis"))


def hardmax(x: Tensor, axis: int = -1) -> Tensor:
    """Return 1 at the first maximum along an axis and 0 elsewhere. ``T: float``. Spec: ai.onnx::Hardmax."""
    return apply("Hardmax", x, axis=int_of("Hardmax", axis, "axis"))


def relu(x: Tensor) -> Tensor:
    """Return ``max(x, 0)``. ``T: signed number``. Spec: ai.onnx::Relu; ai.onnx::Max of what it is rarely used for."""
    # onnxruntime 1.32 fails to load a Relu before a Clip of other types: its fusion of the two knows only these.
    if x.dtype.name in ("float32", "float16", "bfloat16"):
        return apply("Relu", x)
    dtype_among("Relu", "x", x, SIGNED)
    return maximum(x, 0)


def sigmoid(x: Tensor) -> Tensor:
    """Return ``1 / (1 + exp(-x))``. ``T: float``. Spec: ai.onnx::Sigmoid."""
    return apply("Sigmoid", x)


def gelu(x: Tensor, approximate: str = "none") -> Tensor:
    """Return ``x`` times the normal distribution's mass below it.

    Args:
        x: ``T: float``.
        approximate: ``none`` (exact, by erf) or ``tanh``.

    Raises:
        OperandError: Another ``approximate``.

    Spec: ai.onnx::Gelu; composed of Erf or Tanh in graphs of an opset before 20.
    """
    if approximate not in ("none", "tanh"):
        raise OperandError(f"approximate is {approximate!r}", op="gelu", expected="none or tanh")
    if has_op(x, 20):
        return apply("Gelu", x, **({} if approximate == "none" else {"approximate": approximate}))
    if approximate == "none":
        inner = apply("Erf", x * math.sqrt(0.5))
    else:
        inner = apply("Tanh", (x + x * x * x * 0.044715) * math.sqrt(2 / math.pi))
    return x * 0.5 * (inner + 1.0)


def silu(x: Tensor) -> Tensor:
    """Return ``x * sigmoid(x)``. ``T: float``. Composed of Sigmoid and Mul."""
    return apply("Mul", x, apply("Sigmoid", x))


def swish(x: Tensor, alpha: float = 1.0) -> Tensor:
    """Return ``x * sigmoid(alpha * x)``. ``T: float``. Composed of Sigmoid and Mul."""
    return silu(x) if alpha == 1.0 else apply("Mul", x, apply("Sigmoid", apply("Mul", x, as_tensor("swish", alpha, x))))


def softplus(x: Tensor) -> Tensor:
    """Return ``log(1 + exp(x))``. ``T: float``. Spec: ai.onnx::Softplus."""
    return apply("Softplus", x)


def softsign(x: Tensor) -> Tensor:
    """Return ``x / (1 + |x|)``. ``T: float``. Spec: ai.onnx::Softsign."""
    return apply("Softsign", x)


def elu(x: Tensor, alpha: float = 1.0) -> Tensor:
    """Return ``x`` above 0 and ``alpha * (exp(x) - 1)`` below. ``T: float``. Spec: ai.onnx::Elu."""
    return apply("Elu", x, alpha=float(alpha))


def celu(x: Tensor, alpha: float = 1.0) -> Tensor:
    """Return ``max(0, x) + min(0, alpha * (exp(x / alpha) - 1))``. ``T: float``. Spec: ai.onnx::Celu."""
    return apply("Celu", x, alpha=float(alpha))


def selu(x: Tensor, alpha: float = 1.67326319217681884765625, gamma: float = 1.05070102214813232421875) -> Tensor:
    """Return ``gamma * elu(x, alpha)``. ``T: float``. Spec: ai.onnx::Selu."""
    return apply("Selu", x, alpha=float(alpha), gamma=float(gamma))


def leaky_relu(x: Tensor, alpha: float = 0.01) -> Tensor:
    """Return ``x`` above 0 and ``alpha * x`` below. ``T: float``. Spec: ai.onnx::LeakyRelu."""
    return apply("LeakyRelu", x, alpha=float(alpha))


def thresholded_relu(x: Tensor, alpha: float = 1.0) -> Tensor:
    """Return ``x`` above ``alpha`` and 0 elsewhere. ``T: float``. Spec: ai.onnx::ThresholdedRelu."""
    return apply("ThresholdedRelu", x, alpha=float(alpha))


def hard_sigmoid(x: Tensor, alpha: float = 0.2, beta: float = 0.5) -> Tensor:
    """Return ``alpha * x + beta`` held in ``[0, 1]``. ``T: float``. Spec: ai.onnx::HardSigmoid."""
    return apply("HardSigmoid", x, alpha=float(alpha), beta=float(beta))


def hard_swish(x: Tensor) -> Tensor:
    """Return ``x * hard_sigmoid(x, 1/6, 0.5)``. ``T: float``. Spec: ai.onnx::HardSwish."""
    return apply("HardSwish", x)


def mish(x: Tensor) -> Tensor:
    """Return ``x * tanh(softplus(x))``. ``T: float``. Spec: ai.onnx::Mish; composed in graphs of an opset before 18."""
    return apply("Mish", x) if has_op(x, 18) else apply("Mul", x, apply("Tanh", apply("Softplus", x)))


def prelu(x: Tensor, slope: Operand) -> Tensor:
    """Return ``x`` above 0 and ``slope * x`` below; ``slope`` broadcasts to ``x``. Spec: ai.onnx::PRelu."""
    a, b = operands("PRelu", x, slope)
    return apply("PRelu", a, b)


__all__ = [
    "celu",
    "elu",
    "gelu",
    "hard_sigmoid",
    "hard_swish",
    "hardmax",
    "leaky_relu",
    "log_softmax",
    "mish",
    "prelu",
    "relu",
    "selu",
    "sigmoid",
    "silu",
    "softmax",
    "softplus",
    "softsign",
    "swish",
    "thresholded_relu",
]
