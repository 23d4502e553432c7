"""Constant operands followed eagerly: small integers and sizes through the ops that shape arithmetic is made of.

``Shape -> Gather -> Mul -> Concat -> Reshape`` stays exact this way, named sizes included. A value is an int64 or bool
array, or an object array whose elements are ints and Dims. None means: not known.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from lazygraph import dims
from lazygraph.dims import Dim
from lazygraph.tensor import SMALL, Tensor

Value = np.ndarray[Any, Any]

_BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "Add": dims.add,
    "Sub": dims.subtract,
    "Mul": dims.multiply,
    "Min": dims.smallest,
    "Max": dims.largest,
}


def follow(op: str, inputs: tuple[Tensor | None, ...], attrs: dict[str, Any], output: Tensor) -> Value | None:
    """Return what the node's one output holds, when its operands are known and it is small; else None."""
    follower = _FOLLOWERS.get(op)
    if follower is None:
        return None
    values: list[Value | None] = []
    for tensor in inputs:
        if tensor is not None and tensor.value is None and op not in ("Shape", "Size"):
            return None
        values.append(None if tensor is None else tensor.value)
    result = follower(op, values, attrs, inputs)
    if result is None or result.size > SMALL:
        return None
    settled = _settled(result, output)
    shape = output.known_shape
    if settled is None or shape is None or any(isinstance(size, Dim) for size in shape):
        return None
    return settled.reshape(shape)


def _settled(value: Value, output: Tensor) -> Value | None:
    """Return the value in the output's type; object arrays only where a named size is left."""
    if value.dtype == object:
        if any(isinstance(x, Dim) for x in value.ravel()):
            return value if output.dtype.name == "int64" else None
        numbers = [int(x) for x in value.ravel()]
        bits = output.dtype.bits
        low, high = (0, 2**bits - 1) if output.dtype.kind == "u" else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
        if any(not low <= x <= high for x in numbers):
            return None  # wraps around at run time: not our business
        return np.array(numbers, dtype=output.dtype.numpy).reshape(value.shape)
    return value.astype(output.dtype.numpy)


def _objects(value: Value | None) -> Value:
    """Return the array with Python ints in place of numpy's, so that Dim arithmetic never meets an np.int64."""
    if value is None:
        raise ValueError("operand not known")
    if value.dtype == object:
        return value
    out = np.empty(value.shape, dtype=object)
    flat = out.reshape(-1)
    flat[:] = value.reshape(-1).tolist()
    return out


def _shape(
    op: str, values: list[Value | None], attrs: dict[str, Any], inputs: tuple[Tensor | None, ...]
) -> Value | None:
    shape = None if inputs[0] is None else inputs[0].known_shape
    if shape is None:
        return None
    cut = shape[slice(attrs.get("start", 0), attrs.get("end"))]
    return _listed(list(cut))


def _size(
    op: str, values: list[Value | None], attrs: dict[str, Any], inputs: tuple[Tensor | None, ...]
) -> Value | None:
    shape = None if inputs[0] is None else inputs[0].known_shape
    return None if shape is None else _scalar(dims.product(shape))


def _listed(items: list[Any]) -> Value:
    out = np.empty(len(items), dtype=object)
    for i, item in enumerate(items):
        out[i] = item
    return out


def _binary(
    op: str, values: list[Value | None], attrs: dict[str, Any], inputs: tuple[Tensor | None, ...]
) -> Value | None:
    a, b = np.broadcast_arrays(*[_objects(value) for value in values[:2]])
    out = np.empty(a.shape, dtype=object)
    pairs = [_BINARY[op](x, y) for x, y in zip(a.ravel(), b.ravel(), strict=True)]
    out.reshape(-1)[:] = _listed(pairs)
    return out if len(values) == 2 else None


def _divide(
    op: str, values: list[Value | None], attrs: dict[str, Any], inputs: tuple[Tensor | None, ...]
) -> Value | None:
    a, b = np.broadcast_arrays(*[_objects(value) for value in values])
    results: list[Any] = []
    for x, y in zip(a.ravel(), b.ravel(), strict=True):
        # ONNX divides towards zero, floor division does not: the same where neither is negative.
        if y == 0 or dims.at_most(0, x) is not True or dims.at_most(0, y) is not True:
            return None
        results.append(dims.floordiv(x, y) if op == "Div" else dims.modulo(x, y))
    out = np.empty(a.shape, dtype=object)
    out.reshape(-1)[:] = _listed(results)
    return out


def _negate(
    op: str, values: list[Value | None], attrs: dict[str, Any], inputs: tuple[Tensor | None, ...]
) -> Value | None:
    a = _objects(values[0])
    out = np.empty(a.shape, dtype=object)
    out.reshape(-1)[:] = _listed([dims.multiply(x, -1) for x in a.ravel()])
    return out


def _gather(
    op: str, values: list[Value | None], attrs: dict[str, Any], inputs: tuple[Tensor | None, ...]
) -> Value | None:
    a, index = _objects(values[0]), values[1]
    if index is None or index.dtype == object or a.ndim == 0:
        return None
    taken = np.take(a, index, axis=attrs.get("axis", 0))
    return taken if isinstance(taken, np.ndarray) and taken.dtype == object else _scalar(taken)


def _scalar(item: Any) -> Value:
    out = np.empty((), dtype=object)
    out[()] = item
    return out


def _concat(
    op: str, values: list[Value | None], attrs: dict[str, Any], inputs: tuple[Tensor | None, ...]
) -> Value | None:
    return np.concatenate([_objects(value) for value in values], axis=attrs["axis"])


def _slice(
    op: str, values: list[Value | None], attrs: dict[str, Any], inputs: tuple[Tensor | None, ...]
) -> Value | None:
    a = _objects(values[0])
    if any(value is not None and value.dtype == object for value in values[1:]):
        return None
    starts, ends, *rest = [None if value is None else value.tolist() for value in values[1:]]
    axes = rest[0] if rest and rest[0] is not None else list(range(len(starts or [])))
    steps = rest[1] if len(rest) > 1 and rest[1] is not None else [1] * len(axes)
    cut = [slice(None)] * a.ndim
    for start, end, axis, step in zip(starts or [], ends or [], axes, steps, strict=True):
        size = a.shape[axis]
        backwards_past_front = step < 0 and end < -size
        cut[axis] = slice(start, None if backwards_past_front else end, step)
    return a[tuple(cut)]


def _reshaped(
    op: str, values: list[Value | None], attrs: dict[str, Any], inputs: tuple[Tensor | None, ...]
) -> Value | None:
    return None if values[0] is None else _objects(values[0]).reshape(-1)


def _same(
    op: str, values: list[Value | None], attrs: dict[str, Any], inputs: tuple[Tensor | None, ...]
) -> Value | None:
    return values[0]


def _range(
    op: str, values: list[Value | None], attrs: dict[str, Any], inputs: tuple[Tensor | None, ...]
) -> Value | None:
    if any(value is None or value.dtype == object for value in values):
        return None
    start, limit, delta = (int(value.item()) for value in values)  # type: ignore[union-attr]
    return np.arange(start, limit, delta) if delta and abs((limit - start) // delta) <= SMALL else None


_FOLLOWERS: dict[str, Callable[..., Value | None]] = {
    "Shape": _shape,
    "Size": _size,
    "Add": _binary,
    "Sub": _binary,
    "Mul": _binary,
    "Min": _binary,
    "Max": _binary,
    "Div": _divide,
    "Mod": _divide,
    "Neg": _negate,
    "Gather": _gather,
    "Concat": _concat,
    "Slice": _slice,
    "Reshape": _reshaped,
    "Squeeze": _reshaped,
    "Unsqueeze": _reshaped,
    "Identity": _same,
    "Cast": _same,
    "Range": _range,
}
