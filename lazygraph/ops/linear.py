"""Products of matrices and of whatever an equation says."""

from __future__ import annotations

from typing import cast as typed

from lazygraph.dims import Size
from lazygraph.errors import OperandError, ShapeError
from lazygraph.ops.checks import (
    FLOAT,
    NUMBER,
    WIDE,
    assume_hint,
    between,
    broadcast,
    broadcast_into,
    dtype_among,
    exactly,
    meet,
    rank_at_least,
    refuse_meeting,
    rows,
    same_dtype,
    same_size,
)
from lazygraph.ops.core import Attrs, Inputs, Results, apply, operands, rule
from lazygraph.tensor import Operand, Shape, Tensor, describe


@rule("MatMul")
def _matmul_rule(op: str, inputs: Inputs, attrs: Attrs) -> Results:
    a, b = exactly(op, inputs, 2)
    if a.dtype is not b.dtype:
        same_dtype(op, a=a, b=b)
    dtype_among(op, "a", a, WIDE)
    return [(a.dtype, product_shape(op, a, b))]


def product_shape(op: str, a: Tensor, b: Tensor) -> Shape | None:
    """Return the shape of ``a @ b``, None where a rank is not known.

    Raises:
        ShapeError: An operand has no axes, the inner sizes differ, or the batch axes do not broadcast.
    """
    left, right = a.known_shape, b.known_shape
    if left is None or right is None:
        return None
    if not left or not right:
        rank_at_least(op, "a", a, 1)
        rank_at_least(op, "b", b, 1)
    inner_a, inner_b = left[-1], right[-2] if len(right) > 1 else right[0]
    if inner_a is not inner_b and meet(inner_a, inner_b) is None:
        raise ShapeError(
            f"inner sizes differ: {inner_a} in a and {inner_b} in b",
            op=op,
            operands=rows({"a": a, "b": b}),
            expected="last size of a equals " + ("second-to-last of b" if len(right) > 1 else "size of b"),
            hint=assume_hint(inner_a, inner_b),
            sizes=(inner_a, inner_b),
        )
    if len(right) == 2 and len(left) >= 2:
        if right[1] is left[-1]:
            return left
        return (*left[:-1], right[-1])
    rows_out: Shape = left[-2:-1]
    columns: Shape = right[-1:] if len(right) > 1 else ()
    return (*_batch(op, a, b, left[:-2], right[:-2]), *rows_out, *columns)


def _batch(op: str, a: Tensor, b: Tensor, left: Shape, right: Shape) -> Shape:
    if left == right:
        return left
    batch_a = Tensor(a.graph, a.dtype, left, a.origin, a.index)
    batch_b = Tensor(b.graph, b.dtype, right, b.origin, b.index)
    try:
        return broadcast(op, {"a": batch_a, "b": batch_b}) or ()
    except ShapeError as error:
        error.operands = {"a": describe(a), "b": describe(b)}  # the whole shapes, not the batch axes alone
        raise


def matmul(a: Operand, b: Operand) -> Tensor:
    """Return the matrix product, batched and broadcast as numpy's ``@``.

    Args:
        a: ``T (..., m, k)`` or ``T (k,)``.
        b: ``T (..., k, n)`` or ``T (k,)``.

    Raises:
        ShapeError: The inner sizes differ, or the batch axes do not broadcast.
        DTypeError: Element types differ.

    Spec: ai.onnx::MatMul.
    """
    a, b = operands("matmul", a, b)
    return apply("MatMul", a, b)


@rule("Gemm")
def _gemm_rule(op: str, inputs: Inputs, attrs: Attrs) -> Results:
    a, b, c = between(op, inputs, 2, 3)
    a, b = typed(Tensor, a), typed(Tensor, b)
    dtype = same_dtype(op, a=a, b=b, c=c)
    dtype_among(op, "a", a, WIDE)
    for label, tensor in (("a", a), ("b", b)):
        if tensor.known_shape is not None and len(tensor.shape) != 2:
            raise ShapeError(
                f"{label} has {len(tensor.shape)} axes", op=op, operands=rows({"a": a, "b": b}), expected="matrices"
            )
    if a.known_shape is None or b.known_shape is None:
        return [(dtype, None)]
    m, k = a.shape[::-1] if attrs.get("transA") else a.shape
    k_b, n = b.shape[::-1] if attrs.get("transB") else b.shape
    if meet(k, k_b) is None:
        raise ShapeError(
            f"inner sizes differ: {k} in a and {k_b} in b",
            op=op,
            operands=rows({"a": a, "b": b}),
            expected="columns of a (transposed if transA) equal rows of b (transposed if transB)",
            hint=assume_hint(k, k_b),
            sizes=(k, k_b),
        )
    result = (m, n)
    if c is not None:
        broadcast_into(op, Tensor(a.graph, dtype, result, a.origin, a.index), c=c)
    return [(dtype, result)]


def gemm(
    a: Tensor,
    b: Tensor,
    c: Tensor | None = None,
    alpha: float = 1.0,
    beta: float = 1.0,
    trans_a: bool = False,
    trans_b: bool = False,
) -> Tensor:
    """Return ``alpha * a' @ b' + beta * c``, the primes meaning transposed if asked.

    Args:
        a: ``T (m, k)``, or ``(k, m)`` with ``trans_a``.
        b: ``T (k, n)``, or ``(n, k)`` with ``trans_b``.
        c: ``T`` that broadcasts to ``(m, n)``, or None.

    Raises:
        ShapeError: Not matrices, or sizes that do not fit.

    Spec: ai.onnx::Gemm.
    """
    attrs: Attrs = {}
    if alpha != 1.0:
        attrs["alpha"] = float(alpha)
    if beta != 1.0:
        attrs["beta"] = float(beta)
    if trans_a:
        attrs["transA"] = 1
    if trans_b:
        attrs["transB"] = 1
    return apply("Gemm", a, b, *([c] if c is not None else []), **attrs)


# ---- einsum ----


def _labels(op: str, equation: str, count: int) -> tuple[list[str], str | None]:
    """Return the terms of an equation, blanks gone and ``...`` written as ``.``, and the result's term if given."""
    left, arrow, right = equation.replace(" ", "").replace("...", ".").partition("->")
    terms = left.split(",")
    for term in [*terms, right]:
        if term.count(".") > 1 or not (term.replace(".", "") or "a").isalpha():
            raise OperandError(f"{equation!r} is no equation", op=op, expected="letters, commas, ... and one ->")
    if len(terms) != count:
        raise OperandError(f"{equation!r} has {len(terms)} terms for {count} operands", op=op, expected="one term each")
    return terms, right if arrow else None


@rule("Einsum")
def _einsum_rule(op: str, inputs: Inputs, attrs: Attrs) -> Results:
    if not inputs:
        raise OperandError("no operand", op=op, expected="at least one")
    given = exactly(op, inputs, len(inputs))
    labelled: dict[str, Tensor | None] = {f"operand {i}": tensor for i, tensor in enumerate(given)}
    dtype = same_dtype(op, **labelled)
    dtype_among(op, "operand 0", given[0], NUMBER)
    equation = attrs.get("equation")
    if not isinstance(equation, str):
        raise OperandError("equation is missing", op=op, expected="equation='ij,jk->ik'")
    terms, result = _labels(op, equation, len(given))
    if any(tensor.known_shape is None for tensor in given):
        return [(dtype, None)]

    sizes: dict[str, Size] = {}
    dots: list[Tensor] = []
    for tensor, term in zip(given, terms, strict=True):
        spare = len(tensor.shape) - (len(term) - ("." in term))
        if spare < 0 or (spare and "." not in term):
            raise ShapeError(
                f"term {term.replace('.', '...')!r} for {len(tensor.shape)} axes",
                op=op,
                operands=rows(labelled),
                expected="a letter per axis",
            )
        at = term.find(".")
        if at >= 0:
            dots.append(Tensor(tensor.graph, dtype, tensor.shape[at : at + spare], tensor.origin, tensor.index))
        named = [*tensor.shape[:at], *tensor.shape[at + spare :]] if at >= 0 else tensor.shape
        for letter, size in zip(term.replace(".", ""), named, strict=True):
            before = sizes.get(letter, size)
            met = size if before == 1 else before if size == 1 else meet(before, size)
            if met is None:
                refuse_meeting(op, before, size, labelled, f"one size for {letter!r}")
            sizes[letter] = met
    middle = (broadcast(op, {f"operand {i}": tensor for i, tensor in enumerate(dots)}) or ()) if dots else ()

    if result is None:
        counted = "".join(terms).replace(".", "")
        result = ("." if dots else "") + "".join(sorted(x for x in set(counted) if counted.count(x) == 1))
    unknown = [letter for letter in result if letter != "." and letter not in sizes]
    if unknown:
        raise OperandError(f"{equation!r} makes {unknown[0]!r} of nothing", op=op, expected="letters of the operands")
    if len(set(result)) != len(result):
        raise OperandError(f"{equation!r} names one letter of the result twice", op=op, expected="each letter once")
    shape: list[Size] = []
    for letter in result:
        shape += middle if letter == "." else [sizes[letter]]
    return [(dtype, tuple(shape))]


def einsum(equation: str, *tensors: Operand) -> Tensor:
    """Return the sum of products that an equation such as ``"bij,bjk->bik"`` describes.

    Args:
        equation: A term of letters per operand, ``...`` for axes that broadcast, ``->`` and the result's term.
        tensors: ``T: number``.

    Raises:
        OperandError: No equation, or not one term per operand.
        ShapeError: A term does not have a letter per axis, or one letter has two sizes.

    Spec: ai.onnx::Einsum.
    """
    return apply("Einsum", *operands("Einsum", *tensors), equation=equation)


@rule("Det")
def _det_rule(op: str, inputs: Inputs, attrs: Attrs) -> Results:
    (x,) = exactly(op, inputs, 1)
    dtype_among(op, "x", x, FLOAT)
    if x.known_shape is None:
        return [(x.dtype, None)]
    rank_at_least(op, "x", x, 2)
    same_size(op, {"x": x}, "square matrices", x.shape[-2], x.shape[-1])
    return [(x.dtype, x.shape[:-2])]


def det(x: Tensor) -> Tensor:
    """Return determinants of the matrices in the last two axes. ``T: float``. Spec: ai.onnx::Det."""
    return apply("Det", x)


__all__ = ["det", "einsum", "gemm", "matmul", "product_shape"]
