"""The rules that many ops share: equal element types, broadcasting, axes in range. Each raises on the user's line."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, NoReturn

from lazygraph import dims
from lazygraph.dims import Dim, Size
from lazygraph.dtypes import DType
from lazygraph.errors import DTypeError, IndexRangeError, OperandError, ShapeError
from lazygraph.tensor import Shape, Tensor, describe, shape_text

Operands = Mapping[str, "Tensor | None"]


class Types(NamedTuple):
    """The element types that an operand may have, and how a message calls them."""

    what: str
    names: frozenset[str]

    def __or__(self, other: Types) -> Types:
        return Types(f"{self.what} or {other.what}", self.names | other.names)


def types(what: str, names: str) -> Types:
    """Return the element types of these names, which a message calls ``what``."""
    return Types(what, frozenset(names.split()))


FLOAT = types("floating-point", "float16 bfloat16 float32 float64")
SIGNED_INTEGER = types("signed integer", "int8 int16 int32 int64")
UNSIGNED_INTEGER = types("unsigned integer", "uint8 uint16 uint32 uint64")
INTEGER = Types("integer", SIGNED_INTEGER.names | UNSIGNED_INTEGER.names)
NUMBER = Types("number", FLOAT.names | INTEGER.names)
SIGNED = Types("signed number", FLOAT.names | SIGNED_INTEGER.names)
WIDE = Types("floating-point or 32/64-bit integer", FLOAT.names | frozenset(["int32", "int64", "uint32", "uint64"]))
BOOL = types("bool", "bool")
INDEX = types("int32 or int64", "int32 int64")
INT64 = types("int64", "int64")
COMPLEX = types("complex", "complex64 complex128")
# What ops that only move elements took before the 8-bit floats came.
PLAIN = Types("plain", NUMBER.names | BOOL.names | COMPLEX.names | {"string"})


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


def dtype_among(op: str, label: str, tensor: Tensor, allowed: Types) -> None:
    """Require an element type among the allowed ones.

    Raises:
        DTypeError: It is another.
    """
    if tensor.dtype.name not in allowed.names:
        raise DTypeError(
            f"{label} is {tensor.dtype}",
            op=op,
            operands={label: describe(tensor)},
            expected=f"{label} of {allowed.what} type",
        )


def axis_of(op: str, axis: int, rank: int, label: str = "axis", operands: Operands | None = None) -> int:
    """Return the axis counted from the front.

    Raises:
        IndexRangeError: It lies outside ``[-rank, rank)``.
        OperandError: It is no int.
    """
    if type(axis) is not int:
        axis = int_of(op, axis, label, operands)
    if not -rank <= axis < rank:
        raise IndexRangeError(
            f"{label} {axis} of a tensor with {rank} axes",
            op=op,
            operands=rows(operands or {}),
            expected=f"{label} in [{-rank}, {rank})",
        )
    return axis + rank if axis < 0 else axis


def int_of(op: str, value: object, label: str, operands: Operands | None = None) -> int:
    """Return the value as a Python int.

    Raises:
        OperandError: It is none.
    """
    try:
        if not isinstance(value, bool):
            return operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        pass
    raise OperandError(f"{label} is {value!r}", op=op, operands=rows(operands or {}), expected=f"{label} an int")


def axes_of(op: str, axes: Sequence[int] | int, rank: int, operands: Operands | None = None) -> tuple[int, ...]:
    """Return the axes counted from the front, in the order given.

    Raises:
        IndexRangeError: One lies outside ``[-rank, rank)``.
        ShapeError: One is named twice.
    """
    given = list(axes) if isinstance(axes, Iterable) else [axes]
    found = tuple([axis_of(op, axis, rank, operands=operands) for axis in given])
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
            dims.note_meeting(a, b)
            return b
        if dims.is_unknown(b):
            dims.note_meeting(a, b)
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
    hint = assume_hint(x, y)
    raise ShapeError(
        f"sizes {x} and {y} meet" + (", and are not known to be equal" if hint else ""),
        op=op,
        operands=rows(operands),
        expected=expected or "equal sizes, or a size of 1",
        hint=hint,
        sizes=(x, y),
    )


def assume_hint(x: Size, y: Size) -> str:
    """Return the way out where two sizes may be equal but are not known to be; nothing where they never are."""
    if dims.equal(x, y) is False:
        return ""
    return f"lg.assume_equal({_quoted(x)}, {_quoted(y)}) if they always are"


def _quoted(size: Size) -> str:
    return str(size) if isinstance(size, int) else f"'{size}'"


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
    whole = len(inputs) == count
    for tensor in inputs:
        if tensor is None:
            whole = False
    if not whole:
        given = {f"operand {i}": "left out" if t is None else describe(t) for i, t in enumerate(inputs)}
        raise OperandError(
            f"{len(inputs)} operands given", op=op, operands=given, expected=f"exactly {count}, none left out"
        )
    return tuple(inputs)  # type: ignore[arg-type]


def between(op: str, inputs: Sequence[Tensor | None], least: int, most: int) -> list[Tensor | None]:
    """Return the operands filled up with None to ``most``; the first ``least`` must be there.

    Raises:
        OperandError: There are more than ``most``, or one of the first ``least`` is left out.
    """
    if len(inputs) > most or len(inputs) < least or any(tensor is None for tensor in inputs[:least]):
        given = {f"operand {i}": "left out" if t is None else describe(t) for i, t in enumerate(inputs)}
        raise OperandError(
            f"{len(inputs)} operands given",
            op=op,
            operands=given,
            expected=f"{least} to {most} operands, the first {least} not left out",
        )
    return [*inputs, *[None] * (most - len(inputs))]


def first(op: str, inputs: Sequence[Tensor | None]) -> Tensor:
    """Return the first operand.

    Raises:
        OperandError: It is left out.
    """
    if not inputs or inputs[0] is None:
        raise OperandError("the first operand is left out", op=op, expected="at least one operand")
    return inputs[0]


def fresh(op: str, x: Tensor, place: int, high: int | None = None) -> Dim:
    """Return a size that only the run can tell, named after the op that makes it."""
    return dims.unknown(f"{op.lower()}_{x.graph.next_serial()}_{place}", high)


def broadcast_into(op: str, x: Tensor, **smaller: Tensor | None) -> None:
    """Require that the operands broadcast to the shape of ``x`` and no further.

    Raises:
        ShapeError: One has more axes, or a size that neither is 1 nor equals that of ``x``.
    """
    if x.known_shape is None:
        return
    for label, tensor in smaller.items():
        if tensor is None or tensor.known_shape is None:
            continue
        mine = x.shape[len(x.shape) - len(tensor.shape) :]
        fits = len(tensor.shape) <= len(x.shape) and all(
            b == 1 or meet(a, b) is not None for a, b in zip(mine, tensor.shape, strict=True)
        )
        if not fits:
            raise ShapeError(
                f"{label} {shape_text(tensor.shape)} does not broadcast to {shape_text(x.shape)}",
                op=op,
                operands=rows({"x": x, label: tensor}),
                expected=f"each size of {label}, counted from the last, 1 or that of x",
            )


def exact_rank(op: str, label: str, tensor: Tensor, rank: int) -> None:
    """Require so many axes, where the number of axes is known.

    Raises:
        ShapeError: It has more or fewer.
    """
    if tensor.known_shape is not None and len(tensor.shape) != rank:
        raise ShapeError(
            f"{label} has {len(tensor.shape)} axes: {shape_text(tensor.shape)}",
            op=op,
            operands={label: describe(tensor)},
            expected=f"{label} with {rank} axes",
        )


def same_size(op: str, operands: Operands, what: str, a: Size, b: Size) -> Size:
    """Return the one size that ``a`` and ``b`` must be.

    Raises:
        ShapeError: They are not known to be equal.
    """
    met = meet(a, b)
    if met is None:
        refuse_meeting(op, a, b, operands, what)
    return met
