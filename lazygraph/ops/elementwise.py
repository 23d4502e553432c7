"""Ops that work element by element: arithmetic and functions of one number."""

from __future__ import annotations

from lazygraph.errors import DTypeError, OperandError
from lazygraph.ops.checks import (
    FLOAT,
    NUMBER,
    SIGNED,
    Types,
    broadcast,
    dtype_among,
    exactly,
    rows,
    same_dtype,
)
from lazygraph.ops.core import Attrs, Inputs, Results, apply, as_tensor, operands, rule
from lazygraph.tensor import Operand, Tensor

# What an operator takes, by its spec name.
_UNARY = {
    **dict.fromkeys(
        [
            "Acos",
            "Acosh",
            "Asin",
            "Asinh",
            "Atan",
            "Atanh",
            "Ceil",
            "Cos",
            "Cosh",
            "Elu",
            "Erf",
            "Exp",
            "Floor",
            "Gelu",
            "HardSigmoid",
            "HardSwish",
            "LeakyRelu",
            "Log",
            "Mish",
            "Reciprocal",
            "Round",
            "Selu",
            "Sigmoid",
            "Sin",
            "Sinh",
            "Softplus",
            "Softsign",
            "Sqrt",
            "Tan",
            "Tanh",
            "ThresholdedRelu",
            "Celu",
            "Swish",
        ],
        FLOAT,
    ),
    **dict.fromkeys(["Abs", "Sign"], NUMBER),
    **dict.fromkeys(["Neg", "Relu"], SIGNED),
}
_POWER = Types("floating-point, int32 or int64", FLOAT.names | {"int32", "int64"})
_BINARY = {
    **dict.fromkeys(["Add", "Sub", "Mul", "Div"], NUMBER),
    "Mod": NUMBER,
}


@rule(*_UNARY)
def _unary_rule(op: str, inputs: Inputs, attrs: Attrs) -> Results:
    (x,) = exactly(op, inputs, 1)
    dtype_among(op, "x", x, _UNARY[op])
    return [(x.dtype, x.known_shape)]


@rule(*_BINARY)
def _binary_rule(op: str, inputs: Inputs, attrs: Attrs) -> Results:
    a, b = exactly(op, inputs, 2)
    if a.dtype is not b.dtype:
        same_dtype(op, a=a, b=b)
    allowed = _BINARY[op]
    if a.dtype.name not in allowed.names:
        dtype_among(op, "a", a, allowed)
    shape = a.known_shape
    if shape is b.known_shape or shape == b.known_shape:
        return [(a.dtype, shape)]
    return [(a.dtype, broadcast(op, {"a": a, "b": b}))]


@rule("Pow")
def _pow_rule(op: str, inputs: Inputs, attrs: Attrs) -> Results:
    base, exponent = exactly(op, inputs, 2)
    dtype_among(op, "base", base, _POWER)
    dtype_among(op, "exponent", exponent, NUMBER)
    return [(base.dtype, broadcast(op, {"base": base, "exponent": exponent}))]


@rule("Min", "Max", "Sum", "Mean")
def _variadic_rule(op: str, inputs: Inputs, attrs: Attrs) -> Results:
    given = exactly(op, inputs, len(inputs))
    labelled = {f"operand {i}": tensor for i, tensor in enumerate(given)}
    dtype = same_dtype(op, **labelled)
    dtype_among(op, "operand 0", given[0], NUMBER if op in ("Min", "Max") else FLOAT)
    return [(dtype, broadcast(op, labelled))]


@rule("Clip")
def _clip_rule(op: str, inputs: Inputs, attrs: Attrs) -> Results:
    x, *limits = inputs
    if x is None:
        raise OperandError("x is missing", op=op)
    low, high = [*limits, None, None][:2]
    for label, limit in (("min", low), ("max", high)):
        if limit is not None and limit.known_shape:
            raise OperandError(f"{label} is not a scalar", op=op, operands=rows({label: limit}), expected="shape ()")
    dtype_among(op, "x", x, NUMBER)
    return [(same_dtype(op, x=x, min=low, max=high), x.known_shape)]


@rule("Identity")
def _identity_rule(op: str, inputs: Inputs, attrs: Attrs) -> Results:
    (x,) = exactly(op, inputs, 1)
    return [(x.dtype, x.known_shape)]


# ---- arithmetic ----


def add(a: Operand, b: Operand) -> Tensor:
    """Return ``a + b``, broadcast. ``T: number``. Spec: ai.onnx::Add."""
    a, b = operands("add", a, b)
    return apply("Add", a, b)


def sub(a: Operand, b: Operand) -> Tensor:
    """Return ``a - b``, broadcast. ``T: number``. Spec: ai.onnx::Sub."""
    a, b = operands("sub", a, b)
    return apply("Sub", a, b)


def mul(a: Operand, b: Operand) -> Tensor:
    """Return ``a * b``, broadcast. ``T: number``. Spec: ai.onnx::Mul."""
    a, b = operands("mul", a, b)
    return apply("Mul", a, b)


def div(a: Operand, b: Operand) -> Tensor:
    """Return ``a / b``, broadcast; integers are divided towards zero. ``T: number``. Spec: ai.onnx::Div."""
    a, b = operands("div", a, b)
    return apply("Div", a, b)


def true_divide(a: Operand, b: Operand) -> Tensor:
    """Return ``a / b`` of floating-point operands: what ``/`` means.

    Raises:
        DTypeError: The operands are integers, for which numpy's ``/`` would change the type.

    Spec: ai.onnx::Div.
    """
    a, b = operands("div", a, b)
    if a.dtype.is_integer:
        raise DTypeError(
            f"/ of {a.dtype} tensors",
            op="div",
            operands=rows({"a": a, "b": b}),
            expected="floating-point operands",
            hint="a // b rounds down, lg.div(a, b) towards zero; or a.astype(lg.float32)",
        )
    return apply("Div", a, b)


def floor_divide(a: Operand, b: Operand) -> Tensor:
    """Return ``floor(a / b)`` as numpy's ``//``, negative operands included.

    Composed of Div and Mod: ``(a - a % b) / b`` is whole, so that rounding cannot go astray as in ``floor(1.0 / 0.1)``.
    """
    a, b = operands("floor_divide", a, b)
    if a.dtype.is_float:
        return apply("Round", apply("Div", apply("Sub", a, _remainder(a, b)), b))
    if a.dtype.kind == "u" or (_never_negative(a) and _never_negative(b)):
        return apply("Div", a, b)
    # Mod takes the divisor's sign, so a - mod(a, b) is an exact multiple and truncation cannot hurt.
    return apply("Div", apply("Sub", a, apply("Mod", a, b)), b)


def remainder(a: Operand, b: Operand) -> Tensor:
    """Return ``a % b`` with the divisor's sign, as numpy's ``%``. Spec: ai.onnx::Mod."""
    a, b = operands("mod", a, b)
    return _remainder(a, b) if a.dtype.is_float else apply("Mod", a, b)


def _remainder(a: Tensor, b: Tensor) -> Tensor:
    """Return the floating-point remainder with the divisor's sign: C's fmod, and ``b`` more where the signs differ."""
    rest = apply("Mod", a, b, fmod=1)
    zero = as_tensor("mod", 0.0, a)
    other_sign = apply("Less", apply("Mul", apply("Sign", rest), apply("Sign", b)), zero)
    return apply("Where", other_sign, apply("Add", rest, b), rest)


def mod(a: Operand, b: Operand, fmod: bool = False) -> Tensor:
    """Return the remainder: with the divisor's sign for integers, with the dividend's (C's fmod) for ``fmod``.

    Raises:
        DTypeError: Floating-point operands without ``fmod``.

    Spec: ai.onnx::Mod.
    """
    a, b = operands("mod", a, b)
    if a.dtype.is_float and not fmod:
        raise DTypeError("Mod of floating-point tensors", op="mod", operands=rows({"a": a}), expected="fmod=True, or %")
    return apply("Mod", a, b, fmod=1) if fmod else apply("Mod", a, b)


def pow(base: Operand, exponent: Operand) -> Tensor:
    """Return ``base ** exponent`` in the base's type, broadcast. Spec: ai.onnx::Pow."""
    base, exponent = operands("pow", base, exponent)
    return apply("Pow", base, exponent)


def minimum(a: Operand, b: Operand) -> Tensor:
    """Return the smaller of each pair, broadcast. ``T: number``. Spec: ai.onnx::Min."""
    a, b = operands("minimum", a, b)
    return apply("Min", a, b)


def maximum(a: Operand, b: Operand) -> Tensor:
    """Return the larger of each pair, broadcast. ``T: number``. Spec: ai.onnx::Max."""
    a, b = operands("maximum", a, b)
    return apply("Max", a, b)


def clip(x: Tensor, min: Operand | None = None, max: Operand | None = None) -> Tensor:
    """Return ``x`` held between ``min`` and ``max``, scalars either of which may be left out. Spec: ai.onnx::Clip."""
    low = None if min is None else as_tensor("clip", min, x)
    high = None if max is None else as_tensor("clip", max, x)
    return apply("Clip", x, low, high)


def _never_negative(x: Tensor) -> bool:
    return x.value is not None and x.value.dtype != object and bool((x.value >= 0).all())


# ---- one operand ----


def abs(x: Tensor) -> Tensor:
    """Return absolute values. ``T: number``. Spec: ai.onnx::Abs."""
    return apply("Abs", x)


def neg(x: Tensor) -> Tensor:
    """Return ``-x``. ``T: signed number``. Spec: ai.onnx::Neg."""
    return apply("Neg", x)


def sign(x: Tensor) -> Tensor:
    """Return -1, 0 or 1 by sign. ``T: number``. Spec: ai.onnx::Sign."""
    return apply("Sign", x)


def reciprocal(x: Tensor) -> Tensor:
    """Return ``1 / x``. ``T: float``. Spec: ai.onnx::Reciprocal."""
    return apply("Reciprocal", x)


def sqrt(x: Tensor) -> Tensor:
    """Return square roots. ``T: float``. Spec: ai.onnx::Sqrt."""
    return apply("Sqrt", x)


def rsqrt(x: Tensor) -> Tensor:
    """Return ``1 / sqrt(x)``. ``T: float``. Composed of Sqrt and Reciprocal."""
    return apply("Reciprocal", apply("Sqrt", x))


def square(x: Tensor) -> Tensor:
    """Return ``x * x``. ``T: number``. Spec: ai.onnx::Mul."""
    return apply("Mul", x, x)


def exp(x: Tensor) -> Tensor:
    """Return ``e ** x``. ``T: float``. Spec: ai.onnx::Exp."""
    return apply("Exp", x)


def log(x: Tensor) -> Tensor:
    """Return natural logarithms. ``T: float``. Spec: ai.onnx::Log."""
    return apply("Log", x)


def floor(x: Tensor) -> Tensor:
    """Return the largest whole number below or at each element. ``T: float``. Spec: ai.onnx::Floor."""
    return apply("Floor", x)


def ceil(x: Tensor) -> Tensor:
    """Return the smallest whole number above or at each element. ``T: float``. Spec: ai.onnx::Ceil."""
    return apply("Ceil", x)


def round(x: Tensor) -> Tensor:
    """Return the nearest whole number, halves to even. ``T: float``. Spec: ai.onnx::Round."""
    return apply("Round", x)


def sin(x: Tensor) -> Tensor:
    """Return sines of radians. ``T: float``. Spec: ai.onnx::Sin."""
    return apply("Sin", x)


def cos(x: Tensor) -> Tensor:
    """Return cosines of radians. ``T: float``. Spec: ai.onnx::Cos."""
    return apply("Cos", x)


def tan(x: Tensor) -> Tensor:
    """Return tangents of radians. ``T: float``. Spec: ai.onnx::Tan."""
    return apply("Tan", x)


def asin(x: Tensor) -> Tensor:
    """Return inverse sines in radians. ``T: float``. Spec: ai.onnx::Asin."""
    return apply("Asin", x)


def acos(x: Tensor) -> Tensor:
    """Return inverse cosines in radians. ``T: float``. Spec: ai.onnx::Acos."""
    return apply("Acos", x)


def atan(x: Tensor) -> Tensor:
    """Return inverse tangents in radians. ``T: float``. Spec: ai.onnx::Atan."""
    return apply("Atan", x)


def sinh(x: Tensor) -> Tensor:
    """Return hyperbolic sines. ``T: float``. Spec: ai.onnx::Sinh."""
    return apply("Sinh", x)


def cosh(x: Tensor) -> Tensor:
    """Return hyperbolic cosines. ``T: float``. Spec: ai.onnx::Cosh."""
    return apply("Cosh", x)


def asinh(x: Tensor) -> Tensor:
    """Return inverse hyperbolic sines. ``T: float``. Spec: ai.onnx::Asinh."""
    return apply("Asinh", x)


def acosh(x: Tensor) -> Tensor:
    """Return inverse hyperbolic cosines. ``T: float``. Spec: ai.onnx::Acosh."""
    return apply("Acosh", x)


def atanh(x: Tensor) -> Tensor:
    """Return inverse hyperbolic tangents. ``T: float``. Spec: ai.onnx::Atanh."""
    return apply("Atanh", x)


def tanh(x: Tensor) -> Tensor:
    """Return hyperbolic tangents. ``T: float``. Spec: ai.onnx::Tanh."""
    return apply("Tanh", x)


def erf(x: Tensor) -> Tensor:
    """Return the error function. ``T: float``. Spec: ai.onnx::Erf."""
    return apply("Erf", x)


def identity(x: Tensor) -> Tensor:
    """Return the same values as a new tensor. Spec: ai.onnx::Identity."""
    return apply("Identity", x)
