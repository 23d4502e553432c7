"""numpy's products of tensors beside ``matmul`` and ``einsum``."""

from __future__ import annotations

from collections.abc import Sequence

from lazygraph import dims
from lazygraph.errors import ShapeError
from lazygraph.ops.checks import axes_of, rows
from lazygraph.ops.core import operands
from lazygraph.ops.elementwise import mul
from lazygraph.ops.linear import matmul
from lazygraph.ops.shaping import reshape, transpose
from lazygraph.tensor import Operand, Tensor


def dot(a: Operand, b: Operand) -> Tensor:
    """Return the sum of products over the last axis of ``a`` and the second-to-last (or only) one of ``b``.

    Of vectors and matrices this is ``lg.matmul``; a scalar multiplies.

    Args:
        a: ``T (..., k)``.
        b: ``T (..., k, m)`` or ``(k,)``.

    Raises:
        ShapeError: The two sizes differ.
        DTypeError: The element types differ.
    """
    left, right = operands("dot", a, b)
    if not left.shape or not right.shape:
        return mul(left, right)
    if len(right.shape) <= 2:
        return matmul(left, right)
    return tensordot(left, right, ([-1], [-2]))


def outer(a: Operand, b: Operand) -> Tensor:
    """Return every product of an element of ``a`` and one of ``b``, ``T (size of a, size of b)``."""
    left, right = operands("outer", a, b)
    return mul(reshape(left, [-1, 1]), reshape(right, [1, -1]))


def tensordot(a: Operand, b: Operand, axes: int | tuple[Sequence[int] | int, Sequence[int] | int] = 2) -> Tensor:
    """Return the sum of products over axes of ``a`` and ``b``; the others follow, those of ``a`` first.

    Args:
        a: ``T``.
        b: ``T``.
        axes: So many last axes of ``a`` and first axes of ``b``; or the axes of each, pair by pair.

    Raises:
        ShapeError: Not as many axes of each, one named twice, or sizes of a pair that differ.
        IndexRangeError: An axis lies outside ``[-rank, rank)``.

    Spec: ai.onnx::MatMul.
    """
    left, right = operands("tensordot", a, b)
    both = {"a": left, "b": right}
    if isinstance(axes, int):
        given: tuple[Sequence[int] | int, Sequence[int] | int] = (
            [axis - axes for axis in range(axes)],
            list(range(axes)),
        )
    else:
        given = axes
    of_a = axes_of("tensordot", given[0], len(left.shape), both)
    of_b = axes_of("tensordot", given[1], len(right.shape), both)
    if len(of_a) != len(of_b) or any(
        dims.equal(left.shape[i], right.shape[j]) is not True for i, j in zip(of_a, of_b, strict=True)
    ):
        raise ShapeError(
            f"axes {list(of_a)} of a against {list(of_b)} of b",
            op="tensordot",
            operands=rows(both),
            expected="as many axes of each, of equal sizes pair by pair",
        )
    free_a = [axis for axis in range(len(left.shape)) if axis not in of_a]
    free_b = [axis for axis in range(len(right.shape)) if axis not in of_b]
    inner = dims.product(left.shape[axis] for axis in of_a)
    kept_a, kept_b = [left.shape[axis] for axis in free_a], [right.shape[axis] for axis in free_b]
    matrix_a = reshape(transpose(left, [*free_a, *of_a]), [dims.product(kept_a), inner])
    matrix_b = reshape(transpose(right, [*of_b, *free_b]), [inner, dims.product(kept_b)])
    return reshape(matmul(matrix_a, matrix_b), [*kept_a, *kept_b])
