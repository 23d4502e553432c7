"""Ops that move elements without computing: reshape, transpose, squeeze, concat, split, expand, and the shape itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast as typed

from lazygraph import dims
from lazygraph.dims import Dim, Size, SizeLike
from lazygraph.dtypes import int64
from lazygraph.errors import IndexRangeError, OperandError, ShapeError
from lazygraph.ops.checks import axes_of, axis_of, exactly, meet, refuse_meeting, rows, same_dtype
from lazygraph.ops.core import Attrs, Inputs, Results, apply, apply_all, as_tensor, known_ints, rule
from lazygraph.ops.elementwise import cast
from lazygraph.tensor import Operand, Shape, Tensor, describe, shape_text

# ---- sizes as tensors ----


@rule("Shape")
def _shape_rule(op: str, inputs: Inputs, attrs: Attrs) -> Results:
    x = _first(op, inputs)
    shape = x.known_shape
    return [(int64, None if shape is None else (len(shape[attrs.get("start", 0) : attrs.get("end")]),))]


@rule("Size")
def _size_rule(op: str, inputs: Inputs, attrs: Attrs) -> Results:
    _first(op, inputs)
    return [(int64, ())]


def shape(x: Tensor, start: int = 0, end: int | None = None) -> Tensor:
    """Return the sizes of ``x`` from axis ``start`` to ``end`` as ``int64 (n,)``. Spec: ai.onnx::Shape."""
    attrs = {**({"start": start} if start else {}), **({} if end is None else {"end": end})}
    return apply("Shape", x, **attrs)


def size_tensor(size: SizeLike, anchor: Tensor) -> Tensor:
    """Return a size as an ``int64 ()`` tensor, computed from the shape of an input that has it.

    Raises:
        ShapeError: No input of the graph has an axis of that name.
    """
    size = anchor.graph.size(size)
    if isinstance(size, int):
        return as_tensor("size_tensor", size, anchor, int64)
    if size in anchor.graph.size_tensors:
        return anchor.graph.size_tensors[size]

    total: Tensor | None = None
    for monomial, coefficient in size.terms.items():
        term: Tensor | None = None
        for atom in monomial:
            factor = _atom_tensor(atom, anchor)
            term = factor if term is None else apply("Mul", term, factor)
        if term is None:
            term = as_tensor("size_tensor", coefficient, anchor, int64)
        elif coefficient != 1:
            term = apply("Mul", term, as_tensor("size_tensor", coefficient, anchor, int64))
        total = term if total is None else apply("Add", total, term)
    result = typed(Tensor, total)
    anchor.graph.size_tensors[size] = result
    return result


def _atom_tensor(atom: dims.Atom, anchor: Tensor) -> Tensor:
    if atom.args:
        parts = [size_tensor(arg, anchor) for arg in atom.args]
        op = {"floor": "Div", "mod": "Mod", "min": "Min", "max": "Max"}[atom.kind]
        result = apply(op, *parts[:2])
        for part in parts[2:]:
            result = apply(op, result, part)
        return result
    name = Dim({(atom,): 1})
    for source in [*anchor.graph.inputs.values(), anchor]:
        for axis, size in enumerate(source.known_shape or ()):
            if size == name:
                return apply("Squeeze", shape(source, axis, axis + 1), anchor.graph.ints((0,)))
    raise ShapeError(
        f"no input has an axis of size {atom.text}",
        op="size_tensor",
        operands={"anchor": describe(anchor)},
        expected="a size that an input of this graph has as an axis of its own",
    )


def sizes_tensor(op: str, sizes: Sequence[SizeLike], anchor: Tensor) -> Tensor:
    """Return sizes as one ``int64 (n,)`` tensor, a constant where all are known."""
    known = [size if isinstance(size, int) and size < 0 else anchor.graph.size(size) for size in sizes]
    if all(isinstance(size, int) for size in known):
        return anchor.graph.ints(typed("list[int]", known))
    parts: list[Tensor] = []
    run: list[int] = []
    for size in known:
        if isinstance(size, int):
            run.append(size)
            continue
        if run:
            parts.append(anchor.graph.ints(run))
            run = []
        parts.append(unsqueeze(size_tensor(size, anchor), 0))
    if run:
        parts.append(anchor.graph.ints(run))
    return parts[0] if len(parts) == 1 else concat(parts, 0)


# ---- reshape ----


@rule("Reshape")
def _reshape_rule(op: str, inputs: Inputs, attrs: Attrs) -> Results:
    x, target = exactly(op, inputs, 2)
    wanted = known_ints(target)
    if wanted is None:
        rank = target.known_shape[0] if target.known_shape else None
        sizes = None if not isinstance(rank, int) else tuple(_fresh(op, x, i) for i in range(rank))
        return [(x.dtype, sizes)]
    return [(x.dtype, _reshaped(op, x, wanted, bool(attrs.get("allowzero", 0))))]


def _reshaped(op: str, x: Tensor, wanted: Sequence[Size], allowzero: bool) -> Shape | None:
    source = x.known_shape
    if source is None:
        return None
    sizes: list[Size] = []
    for i, size in enumerate(wanted):
        if size == 0 and not allowzero:
            if i >= len(source):
                _refuse_reshape(op, x, wanted, f"0 at place {i} copies an axis that the tensor does not have")
            size = source[i]
        sizes.append(size)
    if sum(size == -1 for size in sizes) > 1:
        _refuse_reshape(op, x, wanted, "more than one size is -1")
    if any(isinstance(size, int) and size < -1 for size in sizes):
        _refuse_reshape(op, x, wanted, "a size is below -1")

    elements = dims.product(source)
    if -1 not in sizes:
        if dims.equal(elements, dims.product(sizes)) is False or (
            dims.equal(elements, dims.product(sizes)) is None and not _may_match(elements, sizes)
        ):
            _refuse_reshape(op, x, wanted, f"{elements} elements do not make {dims.product(sizes)}")
        return tuple(sizes)

    place = sizes.index(-1)
    rest = dims.product(sizes[:place] + sizes[place + 1 :])
    if rest == 0:
        _refuse_reshape(op, x, wanted, "-1 beside a size of 0 has no single answer")
    solved = dims.exact_quotient(dims.known(elements), dims.known(rest))
    if solved is None:
        if isinstance(elements, int) and isinstance(rest, int):
            _refuse_reshape(op, x, wanted, f"{elements} elements do not divide by {rest}")
        solved = dims.floordiv(elements, rest)
    sizes[place] = solved
    return tuple(sizes)


def _may_match(elements: Size, sizes: Sequence[Size]) -> bool:
    """Return whether only the run can tell: a size comes from data, or a declared size may turn out right."""
    product = dims.product(sizes)
    if dims.is_unknown(elements) or dims.is_unknown(product):
        return True
    # One named size against numbers (seq elements as 4 x 8) is a claim that the run checks; two names never meet silently.
    return not (isinstance(elements, Dim) and isinstance(product, Dim))


def _refuse_reshape(op: str, x: Tensor, wanted: Sequence[Size], why: str) -> None:
    raise ShapeError(
        why,
        op=op,
        operands={"x": describe(x), "shape": shape_text(wanted)},
        expected="as many elements after as before; at most one -1",
    )


def reshape(x: Tensor, shape: Sequence[SizeLike] | SizeLike | Tensor) -> Tensor:
    """Return the elements of ``x`` in another shape; one size may be -1 and is solved, named sizes included.

    Args:
        x: ``T``.
        shape: The sizes (0 means a size of 0), or an ``int64 (n,)`` tensor in ONNX's terms.

    Raises:
        ShapeError: The elements do not fill the shape.

    Spec: ai.onnx::Reshape.
    """
    if isinstance(shape, Tensor):
        return apply("Reshape", x, shape)
    given = [shape] if isinstance(shape, (int, str, Dim)) else list(shape)
    sizes = [size if size == -1 and isinstance(size, int) else x.graph.size(size) for size in given]
    result = _reshaped("reshape", x, sizes, allowzero=True)

    # At most one named size: it becomes the -1, and no arithmetic on sizes is left in the graph. A size that stands
    # where it stood before is ONNX's 0.
    target: list[Size] = list(sizes)
    source = x.known_shape or ()
    free = [i for i, size in enumerate(target) if isinstance(size, Dim)]
    if -1 not in target and free and all(size != 0 for size in target):
        target[free[0]] = -1
        free = free[1:]
    for i in free:
        if 0 not in sizes and i < len(source) and source[i] == target[i]:
            target[i] = 0
    allow = {"allowzero": 1} if 0 in sizes else {}
    if all(isinstance(size, int) for size in target):
        made = x.graph.emit(
            "Reshape", (x, x.graph.ints(typed("list[int]", target))), allow, [(x.dtype, result)]
        )[0]
        if x.value is not None and result is not None and not any(isinstance(size, Dim) for size in result):
            made.value = x.value.reshape(result)
        return made
    return apply("Reshape", x, sizes_tensor("reshape", target, x), **allow)


@rule("Flatten")
def _flatten_rule(op: str, inputs: Inputs, attrs: Attrs) -> Results:
    x = _first(op, inputs)
    if x.known_shape is None:
        return [(x.dtype, (_fresh(op, x, 0), _fresh(op, x, 1)))]
    axis = attrs.get("axis", 1)
    rank = len(x.shape)
    if not -rank <= axis <= rank:
        raise IndexRangeError(
            f"axis {axis} of a tensor with {rank} axes", op=op, operands=rows({"x": x}), expected=f"axis in [{-rank}, {rank}]"
        )
    axis = axis + rank if axis < 0 else axis
    return [(x.dtype, (dims.product(x.shape[:axis]), dims.product(x.shape[axis:])))]


def flatten(x: Tensor, axis: int = 1) -> Tensor:
    """Return ``x`` as a matrix: axes before ``axis`` become rows, the others columns. Spec: ai.onnx::Flatten."""
    return apply("Flatten", x, axis=axis)


# ---- axes ----


@rule("Transpose")
def _transpose_rule(op: str, inputs: Inputs, attrs: Attrs) -> Results:
    x = _first(op, inputs)
    if x.known_shape is None:
        return [(x.dtype, None)]
    perm = attrs.get("perm")
    if perm is None:
        return [(x.dtype, x.shape[::-1])]
    if sorted(perm) != list(range(len(x.shape))):
        raise ShapeError(
            f"perm {list(perm)} does not name every axis of {len(x.shape)} once",
            op=op,
            operands=rows({"x": x}),
            expected="each axis from 0 on exactly once",
        )
    return [(x.dtype, tuple([x.shape[axis] for axis in perm]))]


def transpose(x: Tensor, perm: Sequence[int] | None = None) -> Tensor:
    """Return ``x`` with its axes in the order ``perm``, reversed when None.

    Raises:
        ShapeError: ``perm`` does not name every axis once.

    Spec: ai.onnx::Transpose.
    """
    if perm is None:
        return apply("Transpose", x)
    rank = len(x.shape)
    order = [axis_of("transpose", axis, rank, "perm", {"x": x}) for axis in perm]
    return apply("Transpose", x, perm=order)


@rule("Squeeze")
def _squeeze_rule(op: str, inputs: Inputs, attrs: Attrs) -> Results:
    x, axes = [*inputs, None][:2]
    if x is None:
        raise OperandError("x is missing", op=op)
    if x.known_shape is None:
        return [(x.dtype, None)]
    if axes is None:
        if any(isinstance(size, Dim) for size in x.shape):
            raise ShapeError(
                "without axes, the number of axes left depends on the data",
                op=op,
                operands=rows({"x": x}),
                expected="axes, where a size is not a known number",
            )
        return [(x.dtype, tuple(size for size in x.shape if size != 1))]
    chosen = known_ints(axes)
    if chosen is None:
        return [(x.dtype, None)]
    drop = axes_of(op, typed("list[int]", chosen), len(x.shape), {"x": x})
    for axis in drop:
        if dims.equal(x.shape[axis], 1) is False:
            raise ShapeError(
                f"axis {axis} has size {x.shape[axis]}", op=op, operands=rows({"x": x}), expected="squeezed axes of size 1"
            )
    return [(x.dtype, tuple(size for axis, size in enumerate(x.shape) if axis not in drop))]


def squeeze(x: Tensor, axes: int | Sequence[int] | None = None) -> Tensor:
    """Return ``x`` without the given axes, which must have size 1 (all axes of size 1 when None).

    Raises:
        ShapeError: A named axis is known not to have size 1, or ``axes`` is left out beside named sizes.
        IndexRangeError: An axis lies outside ``[-rank, rank)``.

    Spec: ai.onnx::Squeeze.
    """
    if axes is None:
        return apply("Squeeze", x)
    return apply("Squeeze", x, x.graph.ints(axes_of("squeeze", axes, len(x.shape), {"x": x})))


@rule("Unsqueeze")
def _unsqueeze_rule(op: str, inputs: Inputs, attrs: Attrs) -> Results:
    x, axes = exactly(op, inputs, 2)
    chosen = known_ints(axes)
    if x.known_shape is None or chosen is None:
        return [(x.dtype, None)]
    rank = len(x.shape) + len(chosen)
    new = axes_of(op, typed("list[int]", chosen), rank, {"x": x})
    rest = iter(x.shape)
    return [(x.dtype, tuple([1 if axis in new else next(rest) for axis in range(rank)]))]


def unsqueeze(x: Tensor, axes: int | Sequence[int]) -> Tensor:
    """Return ``x`` with new axes of size 1 at these places of the result. Spec: ai.onnx::Unsqueeze."""
    given = [axes] if isinstance(axes, int) else list(axes)
    return apply("Unsqueeze", x, x.graph.ints(axes_of("unsqueeze", given, len(x.shape) + len(given), {"x": x})))


# ---- joining and cutting ----


@rule("Concat")
def _concat_rule(op: str, inputs: Inputs, attrs: Attrs) -> Results:
    labelled = {f"operand {i}": tensor for i, tensor in enumerate(inputs)}
    dtype = same_dtype(op, **labelled)
    given = typed("tuple[Tensor, ...]", inputs)
    if any(tensor.known_shape is None for tensor in given):
        return [(dtype, None)]
    first = given[0].shape
    if "axis" not in attrs:
        raise OperandError("axis is missing", op=op, expected="axis=<int>")
    axis = axis_of(op, attrs["axis"], len(first), operands=labelled)
    total: Size = 0
    sizes = list(first)
    for tensor in given:
        if len(tensor.shape) != len(first):
            raise ShapeError(
                f"ranks differ: {' and '.join(str(len(t.shape)) for t in given)}",
                op=op,
                operands=rows(labelled),
                expected="operands with the same number of axes",
            )
        total = dims.add(total, tensor.shape[axis])
        for i, size in enumerate(tensor.shape):
            if i != axis and size is not sizes[i]:
                met = meet(sizes[i], size)
                if met is None:
                    refuse_meeting(op, sizes[i], size, labelled, f"equal sizes on every axis but {axis}")
                sizes[i] = met
    sizes[axis] = total
    return [(dtype, tuple(sizes))]


def concat(tensors: Sequence[Operand], axis: int) -> Tensor:
    """Return the tensors joined along ``axis``; its size is their sum, named sizes included.

    Raises:
        ShapeError: Ranks or the other sizes differ.

    Spec: ai.onnx::Concat.
    """
    like = next((tensor for tensor in tensors if isinstance(tensor, Tensor)), None)
    if like is None:
        raise OperandError("no tensor among the operands", op="concat", expected="at least one tensor")
    return apply("Concat", *[as_tensor("concat", tensor, like) for tensor in tensors], axis=axis)


def stack(tensors: Sequence[Tensor], axis: int = 0) -> Tensor:
    """Return the tensors joined along a new axis. Composed of Unsqueeze and Concat."""
    return concat([unsqueeze(tensor, axis) for tensor in tensors], axis)


@rule("Split")
def _split_rule(op: str, inputs: Inputs, attrs: Attrs) -> Results:
    x, sizes = [*inputs, None][:2]
    if x is None:
        raise OperandError("x is missing", op=op)
    count = attrs.get("num_outputs")
    if (sizes is None) == (count is None):
        raise OperandError(
            "split sizes and num_outputs exclude each other", op=op, operands=rows({"x": x}), expected="exactly one"
        )
    if x.known_shape is None:
        known = None if sizes is None else known_ints(sizes)
        parts = count if count is not None else len(known or ())
        return [(x.dtype, None)] * parts
    axis = axis_of(op, attrs.get("axis", 0), len(x.shape), operands={"x": x})
    pieces = _even_pieces(op, x, axis, count) if count is not None else _given_pieces(op, x, axis, typed(Tensor, sizes))
    return [(x.dtype, (*x.shape[:axis], piece, *x.shape[axis + 1 :])) for piece in pieces]


def _even_pieces(op: str, x: Tensor, axis: int, count: int) -> list[Size]:
    if count < 1:
        raise OperandError(f"num_outputs is {count}", op=op, expected="at least 1")
    size = x.shape[axis]
    piece = dims.floordiv(dims.add(size, count - 1), count)
    last = dims.subtract(size, dims.multiply(piece, count - 1))
    even = dims.exact_quotient(size, count) is not None
    if not even and dims.at_most(0, last) is not True:
        raise ShapeError(
            f"{size} into {count} parts of {piece} leaves {last} for the last",
            op=op,
            operands=rows({"x": x}),
            expected="parts of the size rounded up, and a last one that is not negative",
            hint="give the sizes: lg.split(x, [2, 1, 1, 1])",
        )
    return [piece] * (count - 1) + [last]


def _given_pieces(op: str, x: Tensor, axis: int, sizes: Tensor) -> list[Size]:
    pieces = known_ints(sizes)
    if pieces is None:
        raise ShapeError("split sizes must be known", op=op, operands=rows({"x": x, "split": sizes}))
    if any(dims.at_most(0, piece) is False for piece in pieces):
        raise ShapeError(f"sizes {pieces} include a negative one", op=op, operands=rows({"x": x}), expected="sizes >= 0")
    total: Size = 0
    for piece in pieces:
        total = dims.add(total, piece)
    if meet(total, x.shape[axis]) is None:
        raise ShapeError(
            f"sizes {pieces} sum to {total}, axis {axis} has {x.shape[axis]}",
            op=op,
            operands=rows({"x": x}),
            expected="sizes that sum to the axis's",
        )
    return pieces


def split(x: Tensor, parts: int | Sequence[SizeLike], axis: int = 0) -> tuple[Tensor, ...]:
    """Return ``x`` cut along ``axis``.

    Args:
        x: ``T``.
        parts: The sizes of the pieces, or their number (each rounded up, the last what is left).
        axis: The axis to cut.

    Raises:
        ShapeError: The sizes do not sum to the axis's, or the last piece would be negative.

    Spec: ai.onnx::Split.
    """
    axis = axis_of("split", axis, len(x.shape), operands={"x": x})
    if isinstance(parts, int):
        size = x.shape[axis]
        pieces = _even_pieces("split", x, axis, parts)
        if isinstance(size, int):  # sizes as an operand: the form of opset 13 on
            return apply_all("Split", (x, x.graph.ints(typed("list[int]", pieces))), {"axis": axis})
        return apply_all("Split", (x, None), {"axis": axis, "num_outputs": parts})
    return apply_all("Split", (x, sizes_tensor("split", list(parts), x)), {"axis": axis})


@rule("Expand")
def _expand_rule(op: str, inputs: Inputs, attrs: Attrs) -> Results:
    x, target = exactly(op, inputs, 2)
    wanted = known_ints(target)
    if x.known_shape is None or wanted is None:
        return [(x.dtype, None)]
    sizes: list[Size] = []
    rank = max(len(x.shape), len(wanted))
    mine = (1,) * (rank - len(x.shape)) + x.shape
    theirs = [1] * (rank - len(wanted)) + wanted
    for a, b in zip(mine, theirs, strict=True):
        met = b if a == 1 else a if b == 1 else meet(a, b)
        if met is None:
            refuse_meeting(op, a, b, {"x": x, "shape": target}, "sizes that broadcast")
        sizes.append(met)
    return [(x.dtype, tuple(sizes))]


def expand(x: Tensor, shape: Sequence[SizeLike] | Tensor) -> Tensor:
    """Return ``x`` broadcast against ``shape`` (a size of 1 there keeps the tensor's own). Spec: ai.onnx::Expand."""
    target = shape if isinstance(shape, Tensor) else sizes_tensor("expand", shape, x)
    return apply("Expand", x, target)


@rule("Tile")
def _tile_rule(op: str, inputs: Inputs, attrs: Attrs) -> Results:
    x, repeats = exactly(op, inputs, 2)
    counts = known_ints(repeats)
    if x.known_shape is None:
        return [(x.dtype, None)]
    if counts is None:
        return [(x.dtype, tuple(_fresh(op, x, i) for i in range(len(x.shape))))]
    if len(counts) != len(x.shape):
        raise ShapeError(
            f"{len(counts)} repeats for {len(x.shape)} axes", op=op, operands=rows({"x": x}), expected="one per axis"
        )
    return [(x.dtype, tuple(dims.multiply(a, b) for a, b in zip(x.shape, counts, strict=True)))]


def tile(x: Tensor, repeats: Sequence[SizeLike] | Tensor) -> Tensor:
    """Return ``x`` repeated so many times along each axis. Spec: ai.onnx::Tile."""
    return apply("Tile", x, repeats if isinstance(repeats, Tensor) else sizes_tensor("tile", repeats, x))


def _first(op: str, inputs: Inputs) -> Tensor:
    if not inputs or inputs[0] is None:
        raise OperandError("x is missing", op=op)
    return inputs[0]


def _fresh(op: str, x: Tensor, place: int) -> Dim:
    """Return a size that only the run can tell, named after the op that makes it."""
    return dims.unknown(f"{op.lower()}_{x.graph.next_serial()}_{place}")


__all__ = [
    "cast",
    "concat",
    "expand",
    "flatten",
    "reshape",
    "shape",
    "size_tensor",
    "sizes_tensor",
    "split",
    "squeeze",
    "stack",
    "tile",
    "transpose",
    "unsqueeze",
]
