"""Ops that work element by element: arithmetic, comparison, logic, choice, conversion."""

from __future__ import annotations

from lazygraph.dtypes import DType, DTypeLike, as_dtype, bool_
from lazygraph.errors import DTypeError, OperandError
from lazygraph.ops.checks import broadcast, dtype_among, exactly, rows, same_dtype
from lazygraph.ops.core import Attrs, Inputs, Results, apply, as_tensor, operands, rule
from lazygraph.tensor import Operand, Tensor

# What an operator takes, by its spec name: the kinds of DType, and how a message calls them.
_FLOAT = ("f", "floating-point")
_NUMBER = ("fiu", "number")
_SIGNED = ("fi", "signed number")
_INTEGER = ("iu", "integer")
_BOOL = ("b", "bool")

_UNARY = {
    **dict.fromkeys(
        "Acos Acosh Asin Asinh Atan Atanh Ceil Cos Cosh Elu Erf Exp Floor Gelu HardSigmoid HardSwish LeakyRelu Log Mish "
        "Reciprocal Round Selu Sigmoid Sin Sinh Softplus Softsign Sqrt Tan Tanh ThresholdedRelu Celu Swish".split(),
        _FLOAT,
    ),
    **dict.fromkeys(["Abs", "Sign"], _NUMBER),
    **dict.fromkeys(["Neg", "Relu"], _SIGNED),
    "Not": _BOOL,
    "BitwiseNot": _INTEGER,
}
_BINARY = {
    **dict.fromkeys(["Add", "Sub", "Mul", "Div"], _NUMBER),
    "Mod": _NUMBER,
    **dict.fromkeys(["BitwiseAnd", "BitwiseOr", "BitwiseXor"], _INTEGER),
    "BitShift": ("u", "unsigned integer"),
    **dict.fromkeys(["And", "Or", "Xor"], _BOOL),
}
_COMPARE = {
    "Equal": ("fiubs", "comparable"),
    **dict.fromkeys(["Greater", "GreaterOrEqual", "Less", "LessOrEqual"], _NUMBER),
}


@rule(*_UNARY)
def _unary_rule(op: str, inputs: Inputs, attrs: Attrs) -> Results:
    (x,) = exactly(op, inputs, 1)
    kinds, what = _UNARY[op]
    dtype_among(op, "x", x, kinds, what)
    return [(x.dtype, x.known_shape)]


@rule("IsNaN", "IsInf")
def _float_test_rule(op: str, inputs: Inputs, attrs: Attrs) -> Results:
    (x,) = exactly(op, inputs, 1)
    dtype_among(op, "x", x, "f", "floating-point")
    return [(bool_, x.known_shape)]


@rule(*_BINARY)
def _binary_rule(op: str, inputs: Inputs, attrs: Attrs) -> Results:
    a, b = exactly(op, inputs, 2)
    if a.dtype is not b.dtype:
        same_dtype(op, a=a, b=b)
    kinds, what = _BINARY[op]
    if a.dtype.kind not in kinds:
        dtype_among(op, "a", a, kinds, what)
    if a.known_shape == b.known_shape:
        return [(a.dtype, a.known_shape)]
    return [(a.dtype, broadcast(op, {"a": a, "b": b}))]


@rule(*_COMPARE)
def _compare_rule(op: str, inputs: Inputs, attrs: Attrs) -> Results:
    a, b = exactly(op, inputs, 2)
    same_dtype(op, a=a, b=b)
    kinds, what = _COMPARE[op]
    dtype_among(op, "a", a, kinds, what)
    return [(bool_, broadcast(op, {"a": a, "b": b}))]


@rule("Pow")
def _pow_rule(op: str, inputs: Inputs, attrs: Attrs) -> Results:
    base, exponent = exactly(op, inputs, 2)
    dtype_among(op, "base", base, "fi", "signed number")
    dtype_among(op, "exponent", exponent, "fiu", "number")
    return [(base.dtype, broadcast(op, {"base": base, "exponent": exponent}))]


@rule("PRelu")
def _prelu_rule(op: str, inputs: Inputs, attrs: Attrs) -> Results:
    x, slope = exactly(op, inputs, 2)
    return [(same_dtype(op, x=x, slope=slope), x.known_shape)]


@rule("Min", "Max", "Sum", "Mean")
def _variadic_rule(op: str, inputs: Inputs, attrs: Attrs) -> Results:
    given = exactly(op, inputs, len(inputs))
    labelled = {f"operand {i}": tensor for i, tensor in enumerate(given)}
    dtype = same_dtype(op, **labelled)
    dtype_among(op, "operand 0", given[0], "fiu" if op in ("Min", "Max") else "f", "number")
    return [(dtype, broadcast(op, labelled))]


@rule("Where")
def _where_rule(op: str, inputs: Inputs, attrs: Attrs) -> Results:
    condition, x, y = exactly(op, inputs, 3)
    dtype_among(op, "condition", condition, "b", "bool")
    return [(same_dtype(op, x=x, y=y), broadcast(op, {"condition": condition, "x": x, "y": y}))]


@rule("Clip")
def _clip_rule(op: str, inputs: Inputs, attrs: Attrs) -> Results:
    x, *limits = inputs
    if x is None:
        raise OperandError("x is missing", op=op)
    low, high = [*limits, None, None][:2]
    for label, limit in (("min", low), ("max", high)):
        if limit is not None and limit.known_shape:
            raise OperandError(f"{label} is not a scalar", op=op, operands=rows({label: limit}), expected="shape ()")
    return [(same_dtype(op, x=x, min=low, max=high), x.known_shape)]


@rule("Cast")
def _cast_rule(op: str, inputs: Inputs, attrs: Attrs) -> Results:
    (x,) = exactly(op, inputs, 1)
    to: DType = attrs["to"]
    if (to.kind == "c") != (x.dtype.kind == "c"):
        raise DTypeError(f"{x.dtype} cannot become {to}", op=op, operands=rows({"x": x}), expected="no complex type")
    return [(to, x.known_shape)]


@rule("CastLike")
def _cast_like_rule(op: str, inputs: Inputs, attrs: Attrs) -> Results:
    x, like = exactly(op, inputs, 2)
    return [(like.dtype, x.known_shape)]


@rule("Identity")
def _identity_rule(op: str, inputs: Inputs, attrs: Attrs) -> Results:
    (x,) = exactly(op, inputs, 1)
    return [(x.dtype, x.known_shape)]


@rule("Dropout")
def _dropout_rule(op: str, inputs: Inputs, attrs: Attrs) -> Results:
    x = inputs[0]
    if x is None:
        raise OperandError("x is missing", op=op)
    return [(x.dtype, x.known_shape), (bool_, x.known_shape)]


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
    """Return ``floor(a / b)`` as numpy's ``//``, negative operands included. Composed of Div, Mod and Sub or Floor."""
    a, b = operands("floor_divide", a, b)
    if a.dtype.is_float:
        return apply("Floor", apply("Div", a, b))
    if a.dtype.kind == "u" or (_never_negative(a) and _never_negative(b)):
        return apply("Div", a, b)
    # Mod takes the divisor's sign, so a - mod(a, b) is an exact multiple and truncation cannot hurt.
    return apply("Div", apply("Sub", a, apply("Mod", a, b)), b)


def remainder(a: Operand, b: Operand) -> Tensor:
    """Return ``a % b`` with the divisor's sign, as numpy's ``%``. Spec: ai.onnx::Mod."""
    a, b = operands("mod", a, b)
    if not a.dtype.is_float:
        return apply("Mod", a, b)
    return apply("Sub", a, apply("Mul", b, apply("Floor", apply("Div", a, b))))


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


def tanh(x: Tensor) -> Tensor:
    """Return hyperbolic tangents. ``T: float``. Spec: ai.onnx::Tanh."""
    return apply("Tanh", x)


def erf(x: Tensor) -> Tensor:
    """Return the error function. ``T: float``. Spec: ai.onnx::Erf."""
    return apply("Erf", x)


def identity(x: Tensor) -> Tensor:
    """Return the same values as a new tensor. Spec: ai.onnx::Identity."""
    return apply("Identity", x)


def isnan(x: Tensor) -> Tensor:
    """Return where ``x`` is not a number, as bool. ``T: float``. Spec: ai.onnx::IsNaN."""
    return apply("IsNaN", x)


def isinf(x: Tensor) -> Tensor:
    """Return where ``x`` is infinite, as bool. ``T: float``. Spec: ai.onnx::IsInf."""
    return apply("IsInf", x)


# ---- comparison and logic ----


def equal(a: Operand, b: Operand) -> Tensor:
    """Return where ``a == b``, as bool, broadcast. Spec: ai.onnx::Equal."""
    a, b = operands("equal", a, b)
    return apply("Equal", a, b)


def not_equal(a: Operand, b: Operand) -> Tensor:
    """Return where ``a != b``, as bool, broadcast. Composed of Equal and Not."""
    return apply("Not", equal(a, b))


def less(a: Operand, b: Operand) -> Tensor:
    """Return where ``a < b``, as bool, broadcast. ``T: number``. Spec: ai.onnx::Less."""
    a, b = operands("less", a, b)
    return apply("Less", a, b)


def less_or_equal(a: Operand, b: Operand) -> Tensor:
    """Return where ``a <= b``, as bool, broadcast. ``T: number``. Spec: ai.onnx::LessOrEqual."""
    a, b = operands("less_or_equal", a, b)
    return apply("LessOrEqual", a, b)


def greater(a: Operand, b: Operand) -> Tensor:
    """Return where ``a > b``, as bool, broadcast. ``T: number``. Spec: ai.onnx::Greater."""
    a, b = operands("greater", a, b)
    return apply("Greater", a, b)


def greater_or_equal(a: Operand, b: Operand) -> Tensor:
    """Return where ``a >= b``, as bool, broadcast. ``T: number``. Spec: ai.onnx::GreaterOrEqual."""
    a, b = operands("greater_or_equal", a, b)
    return apply("GreaterOrEqual", a, b)


def logical_not(x: Tensor) -> Tensor:
    """Return ``not x``. ``T: bool``. Spec: ai.onnx::Not."""
    return apply("Not", x)


def logical_and(a: Operand, b: Operand) -> Tensor:
    """Return ``a and b``, broadcast. ``T: bool``. Spec: ai.onnx::And."""
    a, b = operands("logical_and", a, b)
    return apply("And", a, b)


def logical_or(a: Operand, b: Operand) -> Tensor:
    """Return ``a or b``, broadcast. ``T: bool``. Spec: ai.onnx::Or."""
    a, b = operands("logical_or", a, b)
    return apply("Or", a, b)


def logical_xor(a: Operand, b: Operand) -> Tensor:
    """Return where exactly one of ``a`` and ``b`` holds, broadcast. ``T: bool``. Spec: ai.onnx::Xor."""
    a, b = operands("logical_xor", a, b)
    return apply("Xor", a, b)


def invert(x: Tensor) -> Tensor:
    """Return ``~x``: Not of bool, BitwiseNot of integers."""
    return apply("Not" if x.dtype is bool_ else "BitwiseNot", x)


def bit_and(a: Operand, b: Operand) -> Tensor:
    """Return ``a & b``, broadcast: And of bool, BitwiseAnd of integers."""
    a, b = operands("and", a, b)
    return apply("And" if a.dtype is bool_ else "BitwiseAnd", a, b)


def bit_or(a: Operand, b: Operand) -> Tensor:
    """Return ``a | b``, broadcast: Or of bool, BitwiseOr of integers."""
    a, b = operands("or", a, b)
    return apply("Or" if a.dtype is bool_ else "BitwiseOr", a, b)


def bit_xor(a: Operand, b: Operand) -> Tensor:
    """Return ``a ^ b``, broadcast: Xor of bool, BitwiseXor of integers."""
    a, b = operands("xor", a, b)
    return apply("Xor" if a.dtype is bool_ else "BitwiseXor", a, b)


# ---- choice and conversion ----


def where(condition: Tensor, x: Operand, y: Operand) -> Tensor:
    """Return ``x`` where the condition holds and ``y`` elsewhere, broadcast.

    Args:
        condition: ``bool``.
        x: ``T``, or a scalar that takes ``y``'s type.
        y: ``T``, or a scalar that takes ``x``'s type.

    Raises:
        OperandError: Neither ``x`` nor ``y`` is a tensor or array: their type would be a guess.

    Spec: ai.onnx::Where.
    """
    if not isinstance(x, Tensor) and hasattr(x, "dtype"):
        x = as_tensor("where", x, condition)
    if not isinstance(y, Tensor) and hasattr(y, "dtype"):
        y = as_tensor("where", y, condition)
    x, y = operands("where", x, y)
    return apply("Where", condition, x, y)


def cast(x: Tensor, to: DTypeLike) -> Tensor:
    """Return ``x`` in another element type, itself when it has that type already.

    Spec: ai.onnx::Cast.
    """
    dtype = as_dtype(to)
    return x if x.dtype is dtype else apply("Cast", x, to=dtype)
