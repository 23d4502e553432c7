"""Ops that lay elements out anew: reshape, flatten, transpose, squeeze, unsqueeze, expand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast as typed

from lazygraph import dims
from lazygraph.dims import Dim, Size, SizeLike
from lazygraph.errors import IndexRangeError, OperandError, ShapeError
from lazygraph.ops.checks import axes_of, axis_of, exactly, first, fresh, meet, refuse_meeting, rows
from lazygraph.ops.core import Attrs, Inputs, Results, apply, has_op, known_ints, rule
from lazygraph.ops.sizes import shape, size_tensor, sizes_tensor
from lazygraph.tensor import Shape, Tensor, describe, shape_text

# ---- reshape ----


@rule("Reshape")
def _reshape_rule(op: str, inputs: Inputs, attrs: Attrs) -> Results:
    x, target = exactly(op, inputs, 2)
    wanted = known_ints(target)
    if wanted is None:
        rank = target.known_shape[0] if target.known_shape else None
        sizes = None if not isinstance(rank, int) else tuple(fresh(op, x, i) for i in range(rank))
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
    # Named sizes against numbers (seq as 4 x 8) are a claim that the run checks; two names never meet silently.
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

    # A size that stands where it stood before is ONNX's 0; then one named size can be the -1, and no arithmetic on
    # sizes is left in the graph. But -1 beside a size that is 0 at run time has no answer, and a 0 that was computed
    # reads as a copy: where that may happen, every size is computed.
    target: list[Size] = list(sizes)
    source = x.known_shape or ()
    if 0 not in sizes:
        target = [0 if isinstance(b, Dim) and i < len(source) and source[i] == b else b for i, b in enumerate(target)]
        free = [i for i, size in enumerate(target) if isinstance(size, Dim)]
        if -1 not in target and free:
            others = [size for i, size in enumerate(sizes) if isinstance(size, Dim) and i != free[0]]
            computed = _all_computed(x, sizes) if any(map(_may_be_zero, others)) else None
            if computed is not None:
                return apply("Reshape", x, computed, allowzero=1)
            target[free[0]] = -1
    allow: Attrs = {"allowzero": 1} if 0 in sizes else {}
    if all(isinstance(size, int) for size in target):
        made = x.graph.emit("Reshape", (x, x.graph.ints(typed("list[int]", target))), allow, [(x.dtype, result)])[0]
        if x.value is not None and result is not None and not any(isinstance(size, Dim) for size in result):
            made.value = x.value.reshape(result)
        return made
    return apply("Reshape", x, sizes_tensor("reshape", target, x), **allow)


def _may_be_zero(size: Size) -> bool:
    low = dims.bounds(size)[0]
    return low is None or low < 1


def _all_computed(x: Tensor, sizes: Sequence[Size]) -> Tensor | None:
    """Return all sizes as numbers of the run, None where the graph cannot compute one."""
    if not has_op(x, 14) or any(map(dims.is_unknown, sizes)):
        return None
    try:
        return sizes_tensor("reshape", sizes, x)
    except ShapeError:
        return None


@rule("Flatten")
def _flatten_rule(op: str, inputs: Inputs, attrs: Attrs) -> Results:
    x = first(op, inputs)
    if x.known_shape is None:
        return [(x.dtype, (fresh(op, x, 0), fresh(op, x, 1)))]
    axis = attrs.get("axis", 1)
    rank = len(x.shape)
    if not -rank <= axis <= rank:
        raise IndexRangeError(
            f"axis {axis} of a tensor with {rank} axes",
            op=op,
            operands=rows({"x": x}),
            expected=f"axis in [{-rank}, {rank}]",
        )
    axis = axis + rank if axis < 0 else axis
    return [(x.dtype, (dims.product(x.shape[:axis]), dims.product(x.shape[axis:])))]


def flatten(x: Tensor, axis: int = 1) -> Tensor:
    """Return ``x`` as a matrix: axes before ``axis`` become rows, the others columns. Spec: ai.onnx::Flatten."""
    return apply("Flatten", x, axis=axis)


# ---- axes ----


@rule("Transpose")
def _transpose_rule(op: str, inputs: Inputs, attrs: Attrs) -> Results:
    x = first(op, inputs)
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
                f"axis {axis} has size {x.shape[axis]}",
                op=op,
                operands=rows({"x": x}),
                expected="squeezed axes of size 1",
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
    places = axes_of("squeeze", axes, len(x.shape), {"x": x})
    return apply("Squeeze", x, x.graph.ints(places)) if places else x  # onnxruntime reads no axes as all


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


def declare_shape(x: Tensor, shape: Sequence[SizeLike]) -> Tensor:
    """Return ``x`` with sizes that you know and the graph does not (unknown rank, sizes that come from data).

    Args:
        x: ``T``.
        shape: One size per axis; the run does not check it.

    Raises:
        ShapeError: What is known contradicts it.

    Spec: ai.onnx::Identity.
    """
    sizes = tuple([x.graph.size(size) for size in shape])
    known = x.known_shape
    if known is not None and (
        len(known) != len(sizes) or None in [_agree(a, b) for a, b in zip(known, sizes, strict=True)]
    ):
        raise ShapeError(
            f"{shape_text(sizes)} contradicts {shape_text(known)}",
            op="declare_shape",
            operands=rows({"x": x}),
            expected="sizes that can be those of x",
        )
    return x.graph.emit("Identity", (x,), {}, [(x.dtype, sizes)])[0]


def _agree(a: Size, b: Size) -> bool | None:
    return meet(a, b) is not None or None


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
    if isinstance(shape, Tensor):
        return apply("Expand", x, shape)
    target = sizes_tensor("expand", shape, x)
    # onnxruntime removes an Expand whose sizes are 1 or 0 as one that changes nothing: a 1 becomes a 0 beforehand.
    pairs = zip(range(-1, -len(shape) - 1, -1), reversed(x.known_shape or ()), reversed(shape), strict=False)
    emptied = [axis for axis, own, wanted in pairs if isinstance(own, int) and own == 1 and wanted == 0]
    if emptied:
        none = x.graph.ints([0] * len(emptied))
        x = apply("Slice", x, none, none, x.graph.ints(emptied))
    return apply("Expand", x, target)


__all__ = [
    "declare_shape",
    "expand",
    "flatten",
    "reshape",
    "shape",
    "size_tensor",
    "sizes_tensor",
    "squeeze",
    "transpose",
    "unsqueeze",
]
