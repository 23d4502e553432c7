"""The rules that many ops share: equal element types, broadcasting, axes in range. Each raises on the user's line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NoReturn

from lazygraph import dims
from lazygraph.dims import Dim, Size
from lazygraph.dtypes import DType
from lazygraph.errors import DTypeError, IndexRangeError, OperandError, ShapeError
from lazygraph.tensor import Shape, Tensor, describe, shape_text

Operands = Mapping[str, "Tensor | None"]


def rows(operands: Operands) -> dict[str, str]:
    """Return the message rows of the operands that are present."""
    return {label: describe(tensor) for label, tensor in operands.items() if tensor is not None}


def same_dtype(op: str, **operands: Tensor | None) -> DType:
    """Return the one element type of all the operands.

    Raises:
        DTypeError: They have more than one.
    """
    found: DType | None = None
    for tensor in operands.values():
        if tensor is None or tensor.dtype is found:
            continue
        if found is not None:
            types = [str(t.dtype) for t in operands.values() if t is not None]
            raise DTypeError(
                f"element types differ: {' and '.join(dict.fromkeys(types))}",
                op=op,
                operands=rows(operands),
                expected="one element type; nothing is promoted silently",
                hint="x.astype(...) converts",
            )
        found = tensor.dtype
    if found is None:
        raise OperandError("no operand", op=op)
    return found


def dtype_among(op: str, label: str, tensor: Tensor, kinds: str, what: str) -> None:
    """Require an element type of these kinds (see :class:`lazygraph.dtypes.DType`).

    Raises:
        DTypeError: It is of another kind.
    """
    if tensor.dtype.kind not in kinds:
        raise DTypeError(
            f"{label} is {tensor.dtype}", op=op, operands={label: describe(tensor)}, expected=f"{label} of {what} type"
        )


def axis_of(op: str, axis: int, rank: int, label: str = "axis", operands: Operands | None = None) -> int:
    """Return the axis counted from the front.

    Raises:
        IndexRangeError: It lies outside ``[-rank, rank)``.
        OperandError: It is no int.
    """
    if isinstance(axis, bool) or not hasattr(axis, "__index__"):
        raise OperandError(f"{label} is {axis!r}", op=op, operands=rows(operands or {}), expected=f"{label} an int")
    axis = int(axis)
    if not -rank <= axis < rank:
        raise IndexRangeError(
            f"{label} {axis} of a tensor with {rank} axes",
            op=op,
            operands=rows(operands or {}),
            expected=f"{label} in [{-rank}, {rank})",
        )
    return axis + rank if axis < 0 else axis


def axes_of(op: str, axes: Sequence[int] | int, rank: int, operands: Operands | None = None) -> tuple[int, ...]:
    """Return the axes counted from the front, in the order given.

    Raises:
        IndexRangeError: One lies outside ``[-rank, rank)``.
        ShapeError: One is named twice.
    """
    given = [axes] if hasattr(axes, "__index__") else list(axes)  # type: ignore[arg-type]
    found = tuple(axis_of(op, axis, rank, operands=operands) for axis in given)  # type: ignore[arg-type]
    if len(set(found)) != len(found):
        raise ShapeError(
            f"axes {given} name one axis twice", op=op, operands=rows(operands or {}), expected="each axis once"
        )
    return found


def meet(a: Size, b: Size) -> Size | None:
    """Return the size of a place where ``a`` and ``b`` must agree, or None where they are not known to.

    What a data-dependent op gave (an unknown size) agrees with anything: only the run can tell.
    """
    if a is b or a == b:
        return a
    answer = dims.equal(a, b)
    if answer:
        return a if isinstance(a, int) or isinstance(b, Dim) else b
    if answer is None:
        if dims.is_unknown(a):
            return b
        if dims.is_unknown(b):
            return a
    return None


def broadcast(op: str, operands: Operands) -> Shape | None:
    """Return numpy's broadcast of the operands' shapes; None when the rank of one is not known.

    Raises:
        ShapeError: Two sizes meet that are not known to be equal, and neither is 1.
    """
    result: Shape | None = None
    for tensor in operands.values():
        if tensor is None:
            continue
        shape = tensor.known_shape
        if shape is None:
            return None
        if result is None or not result:
            result = shape
        elif shape and shape is not result and shape != result:
            result = _joined(op, result, shape, operands)
    return result


def _joined(op: str, a: Shape, b: Shape, operands: Operands) -> Shape:
    if len(a) < len(b):
        a = (1,) * (len(b) - len(a)) + a
    elif len(b) < len(a):
        b = (1,) * (len(a) - len(b)) + b
    joined: list[Size] = []
    for x, y in zip(a, b, strict=True):
        if x is y or y == 1:
            joined.append(x)
        elif x == 1:
            joined.append(y)
        else:
            size = meet(x, y)
            if size is None:
                refuse_meeting(op, x, y, operands)
            joined.append(size)
    return tuple(joined)


def refuse_meeting(op: str, x: Size, y: Size, operands: Operands, expected: str = "") -> NoReturn:
    """Raise the error of two sizes that meet and are not known to be equal."""
    named = isinstance(x, Dim) or isinstance(y, Dim)
    never = dims.equal(x, y) is False
    raise ShapeError(
        f"sizes {x} and {y} meet" + ("" if never or not named else ", and are not known to be equal"),
        op=op,
        operands=rows(operands),
        expected=expected or "equal sizes, or a size of 1",
        hint=f"lg.assume_equal('{x}', '{y}') if they always are" if named and not never else "",
        sizes=(x, y),
    )


def rank_at_least(op: str, label: str, tensor: Tensor, rank: int) -> Shape:
    """Return the tensor's shape, which must have so many axes or more.

    Raises:
        ShapeError: It has fewer.
    """
    if len(tensor.shape) < rank:
        raise ShapeError(
            f"{label} has {len(tensor.shape)} axes: {shape_text(tensor.shape)}",
            op=op,
            operands={label: describe(tensor)},
            expected=f"{label} with at least {rank} axes",
        )
    return tensor.shape


def exactly(op: str, inputs: Sequence[Tensor | None], count: int) -> tuple[Tensor, ...]:
    """Return the operands, of which there must be ``count`` with none left out.

    Raises:
        OperandError: There are more, fewer, or one is None.
    """
    if len(inputs) != count or any(tensor is None for tensor in inputs):
        given = {f"operand {i}": "left out" if t is None else describe(t) for i, t in enumerate(inputs)}
        raise OperandError(
            f"{len(inputs)} operands given", op=op, operands=given, expected=f"exactly {count}, none left out"
        )
    return tuple(inputs)  # type: ignore[arg-type]
