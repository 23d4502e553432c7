"""Where graphs begin: inputs, constants, and tensors made of a shape."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from lazygraph import dims
from lazygraph.arrays import LazyArray
from lazygraph.dims import Dim, Size, SizeLike
from lazygraph.dtypes import DTypeLike, as_dtype, float32, int64
from lazygraph.errors import DTypeError, OperandError, ShapeError
from lazygraph.ops.checks import FLOAT, Types, dtype_among, exactly, rows, same_dtype
from lazygraph.ops.core import Attrs, Inputs, Results, apply, as_tensor, graph_of, known_ints, rule
from lazygraph.ops.sizes import sizes_tensor
from lazygraph.tensor import Constant, Graph, Scalar, Tensor

_RANGED = Types("floating-point, int16, int32 or int64", FLOAT.names | {"int16", "int32", "int64"})


def input(
    name: str,
    dtype: DTypeLike,
    shape: Sequence[SizeLike] | None = None,
    anchor: Tensor | Graph | None = None,
    opset: int | None = None,
) -> Tensor:
    """Return a new graph input; without an anchor it opens a new graph.

    Args:
        name: Its name in the file.
        dtype: Element type.
        shape: Sizes: ints, names (``"seq"``), arithmetic over names (``"past + seq"``), ``lg.size("seq", max=16)``.
            None for a sequence or an optional.
        anchor: A tensor of the graph that it joins.
        opset: Fixes the ai.onnx opset of a new graph; None writes the lowest that means the same.

    Raises:
        OperandError: The name is taken, or ``opset`` is given together with an anchor.
        ShapeError: A size is negative or no size.
    """
    if opset is not None and anchor is not None:
        raise OperandError("the opset is the graph's", op="input", expected="opset with the first input only")
    if opset is not None and opset < 13:
        raise OperandError(f"opset {opset}", op="input", expected="opset 13 or later")
    return graph_of(anchor, opset).input(name, dtype, shape)


def constant(
    array: object, name: str | None = None, dtype: DTypeLike | None = None, anchor: Tensor | Graph | None = None
) -> Tensor:
    """Return a constant; without an anchor it opens a new graph.

    Args:
        array: A numpy array, a scalar, a nested list, or a LazyArray.
        name: Its name in the file, unique in the graph.
        dtype: Element type; by default the array's own, float32 for Python floats and int64 for ints.
        anchor: A tensor of the graph that it joins.
    """
    return graph_of(anchor).constant(array, name, dtype)


@rule("ConstantOfShape")
def _constant_of_shape_rule(op: str, inputs: Inputs, attrs: Attrs) -> Results:
    target = inputs[0]
    if target is None:
        raise OperandError("the shape is missing", op=op)
    value = attrs.get("value")
    dtype = float32 if value is None else as_dtype(value.dtype)
    sizes = known_ints(target)
    if sizes is None:
        return [(dtype, None)]
    if any(dims.at_most(0, size) is False for size in sizes):
        raise ShapeError(f"sizes {sizes} include a negative one", op=op, expected="sizes of at least 0")
    return [(dtype, tuple(sizes))]


def full(
    shape: Sequence[SizeLike], value: Scalar, dtype: DTypeLike = float32, anchor: Tensor | Graph | None = None
) -> Tensor:
    """Return a tensor of one repeated number, a few bytes in the file whatever its size.

    Spec: ai.onnx::ConstantOfShape.
    """
    graph = graph_of(anchor)
    wanted = as_dtype(dtype)
    like = anchor if isinstance(anchor, Tensor) else graph.ints(())
    if isinstance(value, (np.generic, np.ndarray)) and np.size(value) == 1:
        value = value.item()
    if not isinstance(value, (bool, int, float)):
        raise OperandError(f"{value!r} is no number", op="full", expected="a Python or numpy scalar")
    number = as_tensor("full", value, like, wanted)
    target = sizes_tensor("full", list(shape), like)
    return apply("ConstantOfShape", target, value=_one_element(number))


def _one_element(number: Tensor) -> np.ndarray[tuple[int, ...], np.dtype[np.generic]]:
    origin = number.origin
    return origin.read().reshape(1)  # type: ignore[union-attr]


def zeros(shape: Sequence[SizeLike], dtype: DTypeLike = float32, anchor: Tensor | Graph | None = None) -> Tensor:
    """Return zeros of the shape (see ``full``)."""
    wanted = as_dtype(dtype)
    return full(shape, False if wanted.kind == "b" else 0, wanted, anchor)


def ones(shape: Sequence[SizeLike], dtype: DTypeLike = float32, anchor: Tensor | Graph | None = None) -> Tensor:
    """Return ones of the shape (see ``full``)."""
    wanted = as_dtype(dtype)
    return full(shape, True if wanted.kind == "b" else 1, wanted, anchor)


def full_like(x: Tensor, value: Scalar, dtype: DTypeLike | None = None) -> Tensor:
    """Return one repeated number in the shape of ``x``, and of its element type unless another is given."""
    return full(x.shape, value, x.dtype if dtype is None else dtype, x)


def zeros_like(x: Tensor, dtype: DTypeLike | None = None) -> Tensor:
    """Return zeros in the shape of ``x`` (see ``full_like``)."""
    return zeros(x.shape, x.dtype if dtype is None else dtype, x)


def ones_like(x: Tensor, dtype: DTypeLike | None = None) -> Tensor:
    """Return ones in the shape of ``x`` (see ``full_like``)."""
    return ones(x.shape, x.dtype if dtype is None else dtype, x)


@rule("Range")
def _range_rule(op: str, inputs: Inputs, attrs: Attrs) -> Results:
    start, limit, delta = exactly(op, inputs, 3)
    dtype = same_dtype(op, start=start, limit=limit, delta=delta)
    dtype_among(op, "start", start, _RANGED)
    for label, tensor in (("start", start), ("limit", limit), ("delta", delta)):
        if tensor.known_shape:
            raise ShapeError(f"{label} is not a scalar", op=op, operands=rows({label: tensor}), expected="shape ()")
    return [(dtype, (_range_size(start, limit, delta),))]


def _range_size(start: Tensor, limit: Tensor, delta: Tensor) -> Size:
    ends = [known_ints(tensor) for tensor in (start, limit, delta)]
    if ends[2] == [0]:
        raise ShapeError("delta is 0", op="Range", expected="a delta other than 0")
    floats = [_known_float(tensor) for tensor in (start, limit, delta)]
    if all(number is not None for number in floats):
        low, high, width = [number for number in floats if number is not None]
        if width == 0:
            raise ShapeError("delta is 0.0", op="Range", expected="a delta other than 0")
        return max(0, math.ceil((high - low) / width))
    if ends[0] is None or ends[1] is None or ends[2] is None or not isinstance(ends[2][0], int):
        return dims.unknown(f"range_{start.graph.next_serial()}")
    first, last, step = ends[0][0], ends[1][0], ends[2][0]
    span = dims.subtract(last, first) if step > 0 else dims.subtract(first, last)
    return dims.largest(0, dims.floordiv(dims.add(span, abs(step) - 1), abs(step)))


def _known_float(tensor: Tensor) -> float | None:
    """Return the number in a constant of floating-point type, None where there is no such."""
    origin = tensor.origin
    if tensor.dtype.kind != "f" or not isinstance(origin, Constant) or isinstance(origin.array, LazyArray):
        return None
    return float(origin.array.item())


def arange(
    start: SizeLike | float | Tensor,
    stop: SizeLike | float | Tensor | None = None,
    step: int | float = 1,
    dtype: DTypeLike | None = None,
    anchor: Tensor | Graph | None = None,
) -> Tensor:
    """Return ``start, start + step, ...`` up to before ``stop``; one bound alone counts from 0.

    Args:
        start: An int, float, size or scalar tensor.
        stop: The same.
        step: A number other than 0.
        dtype: By default int64, float32 when a bound is a float, a tensor's own where one is a tensor.
        anchor: A tensor of the graph that it joins; needed where no bound is a tensor of it.

    Spec: ai.onnx::Range.
    """
    first, last = (0, start) if stop is None else (start, stop)
    tensors = [value for value in (first, last) if isinstance(value, Tensor)]
    graph = tensors[0].graph if tensors else graph_of(anchor)
    like = tensors[0] if tensors else anchor if isinstance(anchor, Tensor) else graph.ints(())
    if dtype is not None:
        wanted = as_dtype(dtype)
    elif tensors:
        wanted = tensors[0].dtype
    else:
        wanted = float32 if any(isinstance(value, float) for value in (first, last, step)) else int64
    parts = [_bound(value, like, graph, wanted) for value in (first, last, step)]
    if (
        all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in (first, last, step))
        and not step
    ):
        raise ShapeError("step is 0", op="arange", expected="a step other than 0")
    return apply("Range", *[as_tensor("arange", part, like, wanted) for part in parts])


def linspace(
    start: float, stop: float, num: int, dtype: DTypeLike = float32, anchor: Tensor | Graph | None = None
) -> Tensor:
    """Return ``num`` evenly spaced numbers from ``start`` to ``stop``, both included, as a constant.

    Raises:
        ShapeError: ``num`` is negative.
    """
    if num < 0:
        raise ShapeError(f"num is {num}", op="linspace", expected="num of at least 0")
    return graph_of(anchor).constant(np.linspace(start, stop, num).astype(as_dtype(dtype).numpy))


def _bound(value: object, like: Tensor, graph: Graph, dtype: object) -> Tensor | Scalar | Dim:
    if isinstance(value, str):
        return graph.size(value)
    if isinstance(value, (Tensor, int, float, Dim)):
        return value
    raise DTypeError(f"{value!r} is no bound", op="arange", expected="a number, a size or a scalar tensor")


@rule("EyeLike")
def _eye_like_rule(op: str, inputs: Inputs, attrs: Attrs) -> Results:
    x = inputs[0]
    if x is None:
        raise OperandError("x is missing", op=op)
    if x.known_shape is not None and len(x.shape) != 2:
        raise ShapeError(f"{len(x.shape)} axes", op=op, operands=rows({"x": x}), expected="a matrix")
    return [(attrs.get("dtype", x.dtype), x.known_shape)]


def eye(
    n: SizeLike, m: SizeLike | None = None, k: int = 0, dtype: DTypeLike = float32, anchor: Tensor | Graph | None = None
) -> Tensor:
    """Return ``(n, m)`` with ones on diagonal ``k`` and zeros elsewhere. Spec: ai.onnx::EyeLike."""
    return apply("EyeLike", zeros([n, n if m is None else m], dtype, anchor), k=int(k))
