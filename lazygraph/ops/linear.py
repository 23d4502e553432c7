"""Matrix products."""

from __future__ import annotations

from lazygraph.errors import OperandError, ShapeError
from lazygraph.ops.checks import broadcast, dtype_among, exactly, meet, rank_at_least, rows, same_dtype
from lazygraph.ops.core import Attrs, Inputs, Results, apply, operands, rule
from lazygraph.tensor import Operand, Shape, Tensor, describe


@rule("MatMul")
def _matmul_rule(op: str, inputs: Inputs, attrs: Attrs) -> Results:
    a, b = exactly(op, inputs, 2)
    if a.dtype is not b.dtype:
        same_dtype(op, a=a, b=b)
    dtype_among(op, "a", a, "fiu", "number")
    left, right = a.known_shape, b.known_shape
    if left is None or right is None:
        return [(a.dtype, None)]
    if not left or not right:
        rank_at_least(op, "a", a, 1)
        rank_at_least(op, "b", b, 1)
    inner_a, inner_b = left[-1], right[-2] if len(right) > 1 else right[0]
    if inner_a != inner_b and meet(inner_a, inner_b) is None:
        raise ShapeError(
            f"inner sizes differ: {inner_a} in a and {inner_b} in b",
            op=op,
            operands=rows({"a": a, "b": b}),
            expected="last size of a equals second-to-last of b" if len(right) > 1 else "last size of a equals size of b",
            sizes=(inner_a, inner_b),
        )
    if len(right) == 2 and len(left) >= 2:
        return [(a.dtype, (*left[:-1], right[-1]))]
    rows_out: Shape = left[-2:-1]
    columns: Shape = right[-1:] if len(right) > 1 else ()
    return [(a.dtype, (*_batch(op, a, b, left[:-2], right[:-2]), *rows_out, *columns))]


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
    a, b, c = [*inputs, None, None][:3]
    if a is None or b is None:
        raise OperandError("a or b is missing", op=op)
    dtype = same_dtype(op, a=a, b=b, c=c)
    dtype_among(op, "a", a, "fiu", "number")
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
        )
    result = (m, n)
    if c is not None and c.known_shape is not None:
        whole = Tensor(a.graph, dtype, result, a.origin, a.index)
        if len(c.shape) > 2 or broadcast(op, {"a @ b": whole, "c": c}) != result:
            raise ShapeError(
                "c does not broadcast to the product", op=op, operands=rows({"a": a, "b": b, "c": c}), expected=f"c within {result}"
            )
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
