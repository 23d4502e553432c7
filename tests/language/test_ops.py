"""Every op with a rule: what onnxruntime computes equals numpy, and the shape known at build is the real one."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, NamedTuple, cast

import numpy as np
import pytest

import lazygraph as lg
from lazygraph import dims
from lazygraph.evaluate import realize

Array = np.ndarray[Any, Any]
_rng = np.random.default_rng(7)


def f32(*shape: int, low: float = -2.0, high: float = 2.0) -> Array:
    return _rng.uniform(low, high, shape).astype(np.float32)


def i64(*shape: int, low: int = -9, high: int = 9) -> Array:
    return _rng.integers(low, high, shape)


def expit(x: Array) -> Array:
    return np.asarray(1 / (1 + np.exp(-x)))


def softmax(x: Array) -> Array:
    e = np.exp(x - x.max(-1, keepdims=True))
    return np.asarray(e / e.sum(-1, keepdims=True))


erf = np.vectorize(math.erf)


class Row(NamedTuple):
    """One op on sample operands beside its oracle."""

    name: str
    build: Callable[..., Any]
    oracle: Callable[..., Any]
    arrays: tuple[Array, ...]


ROWS: list[Row] = []


def row(name: str, build: Callable[..., Any], oracle: Callable[..., Any], *arrays: Array) -> None:
    ROWS.append(Row(name, build, oracle, arrays))


X = f32(3, 4)
POSITIVE = f32(3, 4, low=0.1, high=3)
UNIT = f32(3, 4, low=-0.9, high=0.9)
INTS = i64(3, 4)

# ---- one operand ----

for _name, _oracle, _operand in [
    ("abs", np.abs, X),
    ("neg", np.negative, X),
    ("sign", np.sign, X),
    ("reciprocal", lambda x: 1 / x, POSITIVE),
    ("sqrt", np.sqrt, POSITIVE),
    ("rsqrt", lambda x: 1 / np.sqrt(x), POSITIVE),
    ("square", np.square, X),
    ("exp", np.exp, X),
    ("log", np.log, POSITIVE),
    ("floor", np.floor, X),
    ("ceil", np.ceil, X),
    ("round", np.round, np.array([0.5, 1.5, -2.5, 2.4], np.float32)),
    ("sin", np.sin, X),
    ("cos", np.cos, X),
    ("tan", np.tan, UNIT),
    ("asin", np.arcsin, UNIT),
    ("acos", np.arccos, UNIT),
    ("atan", np.arctan, X),
    ("sinh", np.sinh, X),
    ("cosh", np.cosh, X),
    ("tanh", np.tanh, X),
    ("asinh", np.arcsinh, X),
    ("acosh", np.arccosh, POSITIVE + 1),
    ("atanh", np.arctanh, UNIT),
    ("erf", erf, X),
    ("identity", lambda x: x, X),
    ("isnan", np.isnan, np.array([1, np.nan, np.inf], np.float32)),
    ("isinf", np.isinf, np.array([1, np.nan, -np.inf], np.float32)),
    ("logical_not", np.logical_not, X > 0),
    ("invert", np.invert, INTS),
    ("relu", lambda x: np.maximum(x, 0), X),
    ("sigmoid", expit, X),
    ("silu", lambda x: x * expit(x), X),
    ("gelu", lambda x: x * (1 + erf(x / np.sqrt(2))) / 2, X),
    ("softplus", lambda x: np.log1p(np.exp(x)), X),
    ("softsign", lambda x: x / (1 + np.abs(x)), X),
    ("elu", lambda x: np.where(x > 0, x, np.expm1(x)), X),
    ("celu", lambda x: np.where(x > 0, x, np.expm1(x)), X),
    ("selu", lambda x: 1.0507009873554805 * np.where(x > 0, x, 1.6732632423543772 * np.expm1(x)), X),
    ("leaky_relu", lambda x: np.where(x > 0, x, 0.01 * x), X),
    ("thresholded_relu", lambda x: np.where(x > 1, x, 0), X),
    ("hard_sigmoid", lambda x: np.clip(0.2 * x + 0.5, 0, 1), X),
    ("hard_swish", lambda x: x * np.clip(x / 6 + 0.5, 0, 1), X),
    ("mish", lambda x: x * np.tanh(np.log1p(np.exp(x))), X),
    ("softmax", lambda x: softmax(x), X),
    ("log_softmax", lambda x: np.log(softmax(x)), X),
    ("hardmax", lambda x: np.eye(4)[x.argmax(-1)], X),
    ("non_zero", lambda x: np.array(np.nonzero(x)), np.array([[1, 0], [0, 2]], np.float32)),
    ("flatten", lambda x: x.reshape(2, -1), f32(2, 3, 4)),
    ("det", np.linalg.det, f32(2, 3, 3)),
    ("transpose", np.transpose, f32(2, 3, 4)),
    ("shape", np.shape, f32(2, 3, 4)),
    ("flip", np.flip, X),
    ("any", np.any, X > 1),
    ("all", np.all, X > -1),
    ("sort", np.sort, X),
    ("tril", np.tril, f32(2, 3, 4)),
    ("triu", np.triu, f32(2, 3, 4)),
]:
    row(_name, getattr(lg, _name), cast(Any, _oracle), _operand)

row(
    "tanh gelu",
    lambda x: lg.gelu(x, "tanh"),
    lambda x: 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))),
    X,
)
row("swish", lambda x: lg.swish(x, 1.5), lambda x: x * expit(1.5 * x), X)
row("op.Swish", lambda x: lg.op.Swish(x, alpha=1.5), lambda x: x * expit(1.5 * x), X)
row("op.Size", lambda x: lg.op.Size(x), np.size, X)
row("cast", lambda x: x.astype(lg.int32), lambda x: x.astype(np.int32), X)
row("op.CastLike", lambda x, y: lg.op.CastLike(x, y), lambda x, y: x.astype(y.dtype), X, INTS)
row("clip", lambda x: lg.clip(x, -1.0, 0.5), lambda x: np.clip(x, -1, 0.5), X)
row("clip above", lambda x: lg.clip(x, max=2), lambda x: np.minimum(x, 2), INTS)
row("prelu", lg.prelu, lambda x, s: np.where(x > 0, x, s * x), X, f32(4))

# ---- two operands ----

for _name, _oracle, _pair in [
    ("add", np.add, (X, f32(4))),
    ("sub", np.subtract, (f32(3, 1), f32(4))),
    ("mul", np.multiply, (X, f32(3, 1))),
    ("div", np.divide, (X, POSITIVE)),
    ("pow", np.power, (POSITIVE, X)),
    ("minimum", np.minimum, (X, f32(4))),
    ("maximum", np.maximum, (INTS, i64(4))),
    ("floor_divide", np.floor_divide, (INTS, np.array([3, -2, 5, -7]))),
    ("remainder", np.remainder, (INTS, np.array([3, -2, 5, -7]))),
    ("equal", np.equal, (INTS, i64(4))),
    ("not_equal", np.not_equal, (INTS, i64(4))),
    ("less", np.less, (X, f32(4))),
    ("less_or_equal", np.less_equal, (INTS, i64(4))),
    ("greater", np.greater, (X, f32(4))),
    ("greater_or_equal", np.greater_equal, (INTS, i64(4))),
    ("logical_and", np.logical_and, (X > 0, X > 1)),
    ("logical_or", np.logical_or, (X > 0, X > 1)),
    ("logical_xor", np.logical_xor, (X > 0, X > 1)),
    ("bit_and", np.bitwise_and, (INTS, i64(4))),
    ("bit_or", np.bitwise_or, (INTS, i64(4))),
    ("bit_xor", np.bitwise_xor, (INTS, i64(4))),
    ("matmul", np.matmul, (f32(2, 3, 4), f32(4, 5))),
]:
    row(_name, getattr(lg, _name), _oracle, *_pair)

_FLOATS = (np.array([1.0, -7.5, 7.5, -7.5, 1.0], np.float32), np.array([0.1, 2, -2, -2, 3], np.float32))
row("floor_divide of floats", lg.floor_divide, np.floor_divide, *_FLOATS)
row("remainder of floats", lg.remainder, np.remainder, *_FLOATS)
row("fmod", lambda a, b: lg.mod(a, b, fmod=True), np.fmod, *_FLOATS)
row("truncating div", lg.div, lambda a, b: np.trunc(a / b).astype(np.int64), INTS, np.array([3, -2, 5, -7]))
row(
    "bit_shift",
    lambda a, b: lg.bit_shift(a, b, "LEFT"),
    np.left_shift,
    np.array([1, 2], np.uint8),
    np.array([3, 1], np.uint8),
)
row("where", lg.where, np.where, X > 0, X, f32(4))
row("where scalar", lambda c, x: lg.where(c, x, -1e4), lambda c, x: np.where(c, x, np.float32(-1e4)), X > 0, X)
row("op.Sum", lambda *x: lg.op.Sum(*x), lambda a, b, c: a + b + c, X, f32(4), f32(3, 1))
row("op.Mean", lambda *x: lg.op.Mean(*x), lambda a, b, c: (a + b + c) / 3, X, f32(4), f32(3, 1))
row("vector @ matrix", lg.matmul, np.matmul, f32(3), f32(2, 3, 4))
row("matrix @ vector", lg.matmul, np.matmul, f32(2, 3, 4), f32(4))
row("batched matmul", lg.matmul, np.matmul, f32(2, 1, 3, 4), f32(5, 4, 2))
row(
    "gemm",
    lambda a, b, c: lg.gemm(a, b, c, 0.5, 2.0, trans_b=True),
    lambda a, b, c: 0.5 * a @ b.T + 2 * c,
    X,
    f32(5, 4),
    f32(5),
)
row("einsum", lambda a, b: lg.einsum("bij,bjk->bik", a, b), lambda a, b: a @ b, f32(2, 3, 4), f32(2, 4, 5))
row("einsum ...", lambda a: lg.einsum("...ij->...ji", a), lambda a: np.swapaxes(a, -1, -2), f32(2, 5, 3, 4))
row("einsum implicit", lambda a, b: lg.einsum("ij,j", a, b), lambda a, b: a @ b, X, f32(4))

# ---- reductions ----

for _name, _f in [
    ("reduce_sum", np.sum),
    ("reduce_mean", np.mean),
    ("reduce_max", np.max),
    ("reduce_min", np.min),
    ("reduce_prod", np.prod),
    ("reduce_l1", lambda x, **k: np.abs(x).sum(**k)),
    ("reduce_l2", lambda x, **k: np.sqrt((x * x).sum(**k))),
    ("reduce_log_sum_exp", lambda x, **k: np.log(np.exp(x).sum(**k))),
    ("reduce_sum_square", lambda x, **k: (x * x).sum(**k)),
    ("var", np.var),
    ("std", np.std),
]:
    row(_name, getattr(lg, _name), cast(Any, _f), f32(2, 3, 4))
    row(f"{_name} axes", lambda x, n=_name: getattr(lg, n)(x, (0, -1)), lambda x, f=_f: f(x, axis=(0, 2)), f32(2, 3, 4))
    row(
        f"{_name} keepdims",
        lambda x, n=_name: getattr(lg, n)(x, 1, keepdims=True),
        lambda x, f=_f: f(x, axis=1, keepdims=True),
        f32(2, 3, 4),
    )
    if _name not in ("var", "std"):
        row(f"{_name} of no axes", lambda x, n=_name: getattr(lg, n)(x, ()), lambda x, f=_f: f(x[None], axis=0), X)
row("reduce_log_sum", lambda x: lg.reduce_log_sum(x, 0), lambda x: np.log(x.sum(0)), POSITIVE)
row("reduce_sum of nothing", lambda x: lg.reduce_sum(x, 0), lambda x: x.sum(0), f32(0, 4))
row("any of nothing", lambda x: lg.any(x, 0), lambda x: x.any(0), f32(0, 4) > 0)
row("all of nothing", lambda x: lg.all(x, 0), lambda x: x.all(0), f32(0, 4) > 0)
row("norm", lambda x: lg.norm(x, axis=-1), lambda x: np.linalg.norm(x, axis=-1), X)
row("argmax", lambda x: lg.argmax(x, 1), lambda x: x.argmax(1), X)
row("argmin", lambda x: lg.argmin(x, 0, keepdims=True), lambda x: x.argmin(0)[None], X)
row("argmax flat", lg.argmax, np.argmax, X)
row("cumsum", lambda x: lg.cumsum(x, 1), lambda x: x.cumsum(1), X)
row("cumsum reverse", lambda x: lg.cumsum(x, 0, reverse=True), lambda x: x[::-1].cumsum(0)[::-1], X)
row("topk", lambda x: lg.topk(x, 2), lambda x: (-np.sort(-x)[:, :2], np.argsort(-x)[:, :2]), X)
row("smallest", lambda x: lg.topk(x, 2, 0, largest=False)[0], lambda x: np.sort(x, 0)[:2], X)
row("argsort", lambda x: lg.argsort(x, descending=True), lambda x: np.argsort(-x), X)

# ---- laying out ----

row("reshape", lambda x: lg.reshape(x, [2, -1]), lambda x: x.reshape(2, -1), f32(4, 6))
row("transpose perm", lambda x: x.transpose(1, 2, 0), lambda x: x.transpose(1, 2, 0), f32(2, 3, 4))
row("squeeze", lambda x: lg.squeeze(x, 1), lambda x: x.squeeze(1), f32(3, 1, 4))
row("unsqueeze", lambda x: lg.unsqueeze(x, [0, -1]), lambda x: x[None, ..., None], X)
row("expand", lambda x: lg.expand(x, [2, 1, 4]), lambda x: np.broadcast_to(x, (2, 3, 4)), f32(3, 1))
row("tile", lambda x: lg.tile(x, [2, 3]), lambda x: np.tile(x, (2, 3)), X)
row("tile of one number", lambda x: lg.tile(x, 2), lambda x: np.tile(x, 2), X)
row("tile of more numbers", lambda x: lg.tile(x, (2, 1, 3)), lambda x: np.tile(x, (2, 1, 3)), X)
row("repeat of all", lambda x: lg.repeat(x, 2), lambda x: np.repeat(x, 2), X)
row("cumsum of all", lambda x: lg.cumsum(x, None), lambda x: np.cumsum(x, None), X)
row("sort of all", lambda x: lg.sort(x, None), lambda x: np.sort(x, None), X)
row("argsort of all", lambda x: lg.argsort(x, None), lambda x: np.argsort(x, None), X)
for _order in (None, 0, 1, 2, 3, np.inf, -np.inf):
    row(f"norm {_order}", lambda x, p=_order: lg.norm(x, p, -1), lambda x, p=_order: np.linalg.norm(x, p, -1), X)
row("norm of all", lambda x: lg.norm(x), np.linalg.norm, X)
row("norm of integers", lambda x: lg.norm(x, 1, 0), lambda x: np.linalg.norm(x, 1, 0).astype(x.dtype), INTS)
row("var of a sample", lambda x: lg.var(x, 1, True, 1), lambda x: np.var(x, 1, keepdims=True, ddof=1), X)
row("std of a sample", lambda x: lg.std(x, ddof=1), lambda x: np.std(x, ddof=1), X)
row("std of samples of one", lambda x: lg.std(x, (), ddof=-1), lambda x: np.std(x, (), ddof=-1), X)
row("pad of pairs", lambda x: lg.pad(x, [(1, 0), (2, 3)]), lambda x: np.pad(x, [(1, 0), (2, 3)]), X)
row("pad of one pair", lambda x: lg.pad(x, [(1, 2)]), lambda x: np.pad(x, [(1, 2)]), X)
row("pad of one number", lambda x: lg.pad(x, 2, "reflect"), lambda x: np.pad(x, 2, "reflect"), X)
row("repeat", lambda x: lg.repeat(x, 3, 1), lambda x: np.repeat(x, 3, 1), X)
row("concat", lambda *x: lg.concat(x, 1), lambda *x: np.concatenate(x, 1), X, f32(3, 2), f32(3, 0))
row("stack", lambda *x: lg.stack(x, 1), lambda *x: np.stack(x, 1), X, f32(3, 4))
row("split", lambda x: lg.split(x, 2, 1), lambda x: np.split(x, 2, 1), X)
row("split uneven", lambda x: lg.split(x, 3), lambda x: (x[:4], x[4:8], x[8:]), f32(10))
row("split sizes", lambda x: lg.split(x, [1, 3], -1), lambda x: (x[:, :1], x[:, 1:]), X)
row("slice", lambda x: lg.slice(x, [1, 3], [3, lg.ops.TO_THE_FRONT], steps=[1, -2]), lambda x: x[1:3, 3::-2], X)
row(
    "pad",
    lambda x: lg.pad(x, [1, 0, 2, -1], constant_value=9.0),
    lambda x: np.pad(x, [(1, 2), (0, 0)], constant_values=9)[:, :-1],
    X,
)
row(
    "pad reflect", lambda x: lg.pad(x, [2, 1], "reflect", axes=[1]), lambda x: np.pad(x, [(0, 0), (2, 1)], "reflect"), X
)
row("pad edge", lambda x: lg.pad(x, [2, 1], "edge", axes=[-1]), lambda x: np.pad(x, [(0, 0), (2, 1)], "edge"), X)
row("trilu k", lambda x: lg.trilu(x, 1), lambda x: np.triu(x, 1), f32(4, 4))
row("depth_to_space", lambda x: lg.space_to_depth(lg.depth_to_space(x, 2), 2), lambda x: x, f32(1, 8, 2, 3))
row(
    "depth_to_space alone",
    lambda x: lg.depth_to_space(x, 2),
    lambda x: x.reshape(1, 2, 2, 2, 2, 3).transpose(0, 3, 4, 1, 5, 2).reshape(1, 2, 4, 6),
    f32(1, 8, 2, 3),
)
row(
    "reverse_sequence",
    lambda x: lg.reverse_sequence(x, x.const([1, 3])),
    lambda x: np.stack([x[:, 0], x[::-1, 1]], 1),
    f32(3, 2),
)
row(
    "op.Resize",
    lambda x: lg.op.Resize(x, None, [1.0, 1.0, 2.0, 2.0], mode="nearest"),
    lambda x: x.repeat(2, 2).repeat(2, 3),
    f32(2, 1, 3, 4),
)

# ---- reading and replacing ----

row("gather", lambda x: lg.gather(x, [[0, 2], [-1, 1]], 1), lambda x: np.take(x, [[0, 2], [3, 1]], 1), X)
row(
    "gather_elements",
    lambda x, i: lg.gather_elements(x, i, 1),
    lambda x, i: np.take_along_axis(x, i, 1),
    X,
    i64(3, 2, low=0, high=4),
)
row("gather_nd", lambda x: lg.gather_nd(x, [[0, 1], [2, 3]]), lambda x: x[[0, 2], [1, 3]], X)
row("gather_nd batch", lambda x: lg.gather_nd(x, [[1], [3], [0]], 1), lambda x: x[[0, 1, 2], [1, 3, 0]], X)
row("scatter_nd", lambda x, u: lg.scatter_nd(x, [[2], [0]], u), lambda x, u: np.stack([u[1], x[1], u[0]]), X, f32(2, 4))
row("scatter_rows", lambda x, u: lg.scatter_rows(x, u, 1), lambda x, u: np.concatenate([x[:1], u]), X, f32(2, 4))
row(
    "scatter_elements",
    lambda x: lg.scatter_elements(x, [[1], [0], [3]], [[7.0], [8.0], [9.0]], 1),
    lambda x: np.where(np.eye(4)[[1, 0, 3]] > 0, [[7], [8], [9]], x),
    X,
)
row("compress", lambda x: lg.compress(x, [True, False, True], 0), lambda x: x[[0, 2]], X)
row("compress flat", lambda x, c: lg.compress(x, c), lambda x, c: np.compress(c, x), X, np.array([False, True, True]))
row(
    "unique",
    lg.unique,
    lambda x: np.unique(x, return_index=True, return_inverse=True, return_counts=True),
    np.array([3, 1, 3, 2]),
)
row("one_hot", lambda i: lg.one_hot(i, 5), lambda i: np.eye(5)[i], i64(2, 3, low=0, high=5))
row(
    "at.set",
    lambda x: x.at[1:, ::2].set(7.0),
    lambda x: np.where((np.arange(3) > 0)[:, None] & (np.arange(4) % 2 == 0), 7, x),
    X,
)
row("at.add", lambda x: x.at[[0, 0, 2]].add(1.0), lambda x: x + np.array([[2], [0], [1]]), X)
row("getitem", lambda x: x[..., None, ::-1, 1], lambda x: x[..., None, ::-1, 1], f32(2, 3, 4))
row("mask", lambda x, m: x[m], lambda x, m: x[m], X, X > 0)

# ---- made of a shape ----

row("full", lambda x: lg.full(x.shape, 2.5, anchor=x), lambda x: np.full_like(x, 2.5), X)
row("arange", lambda x: lg.arange(1, x.shape[1], 2, anchor=x), lambda x: np.arange(1, x.shape[1], 2), X)
row("linspace", lambda x: lg.linspace(0.0, 1.0, 5, anchor=x) + x[0, 0], lambda x: np.linspace(0, 1, 5) + x[0, 0], X)
row("eye", lambda x: lg.eye(x.shape[0], x.shape[1], 1, anchor=x), lambda x: np.eye(3, 4, 1), X)

# ---- normalizations ----


def _normalized(x: Array, axes: tuple[int, ...]) -> Array:
    return np.asarray((x - x.mean(axes, keepdims=True)) / np.sqrt(x.var(axes, keepdims=True) + 1e-5))


row("layer_normalization", lg.layer_normalization, lambda x, s, b: _normalized(x, (-1,)) * s + b, X, f32(4), f32(4))
row(
    "layer_normalization axis",
    lambda x, s: lg.layer_normalization(x, s, axis=1),
    lambda x, s: _normalized(x, (1, 2)) * s,
    f32(2, 3, 4),
    f32(3, 4),
)
row(
    "rms_normalization",
    lg.rms_normalization,
    lambda x, s: x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-5) * s,
    X,
    f32(4),
)
row(
    "batch_normalization",
    lg.batch_normalization,
    lambda x, s, b, m, v: (x - m[:, None]) / np.sqrt(v[:, None] + 1e-5) * s[:, None] + b[:, None],
    f32(2, 3, 4),
    *(f32(3, low=0.5) for _ in range(4)),
)
row(
    "instance_normalization",
    lg.instance_normalization,
    lambda x, s, b: _normalized(x, (2,)) * s[:, None] + b[:, None],
    f32(2, 3, 4),
    f32(3),
    f32(3),
)
row(
    "group_normalization",
    lambda x, s, b: lg.group_normalization(x, s, b, 2),
    lambda x, s, b: _normalized(x.reshape(2, 2, 2, 3), (2, 3)).reshape(x.shape) * s[:, None] + b[:, None],
    f32(2, 4, 3),
    f32(4),
    f32(4),
)
row(
    "op.LpNormalization", lambda x: lg.op.LpNormalization(x), lambda x: x / np.linalg.norm(x, axis=-1, keepdims=True), X
)
row(
    "op.MeanVarianceNormalization",
    lambda x: lg.op.MeanVarianceNormalization(x),
    lambda x: (x - x.mean((0, 2, 3), keepdims=True)) / (x.std((0, 2, 3), keepdims=True) + 1e-9),
    f32(2, 3, 4, 5),
)
row("op.LRN", lambda x: lg.op.LRN(x, size=1, alpha=1.0), lambda x: x / (1 + x * x) ** 0.75, f32(2, 3, 4, 5))
row("dropout", lg.dropout, lambda x: x, X)


def _rotated(x: Array, cos: Array, sin: Array) -> Array:
    a, b = np.split(x, 2, -1)
    return np.concatenate([a * cos - b * sin, b * cos + a * sin], -1)


row(
    "rotary_embedding",
    lg.rotary_embedding,
    lambda x, c, s: _rotated(x, c[:, None], s[:, None]),
    f32(2, 3, 5, 4),
    f32(2, 5, 2),
    f32(2, 5, 2),
)
row(
    "rotary_embedding interleaved",
    lambda x, c, s, p: lg.rotary_embedding(x, c, s, p, interleaved=True),
    lambda x, c, s, p: _rotated(x[..., [0, 2, 1, 3]], c[p][:, None], s[p][:, None])[..., [0, 2, 1, 3]],
    f32(2, 3, 5, 4),
    f32(9, 2),
    f32(9, 2),
    i64(2, 5, low=0, high=9),
)


def _attended(q: Array, k: Array, v: Array, mask: Array | float = 0.0) -> Array:
    k, v = (np.repeat(t, q.shape[1] // t.shape[1], 1) for t in (k, v))
    return np.asarray(softmax(q @ np.swapaxes(k, -1, -2) / np.sqrt(q.shape[-1]) + mask) @ v)


row("attention", lg.attention, _attended, f32(2, 4, 3, 8), f32(2, 2, 5, 8), f32(2, 2, 5, 6))
row("attention mask", lg.attention, _attended, f32(2, 4, 3, 8), f32(2, 2, 5, 8), f32(2, 2, 5, 6), f32(3, 5))
row(
    "attention_with_past",
    lg.attention_with_past,
    lambda q, k, v, pk, pv: (
        _attended(q, np.concatenate([pk, k], 2), np.concatenate([pv, v], 2)),
        np.concatenate([pk, k], 2),
        np.concatenate([pv, v], 2),
    ),
    f32(2, 4, 3, 8),
    f32(2, 4, 3, 8),
    f32(2, 4, 3, 6),
    f32(2, 4, 7, 8),
    f32(2, 4, 7, 6),
)

# ---- windows ----


def _windows(x: Array, kernel: tuple[int, ...], steps: int = 1) -> Array:
    axes = tuple(range(2, x.ndim))
    seen = np.lib.stride_tricks.sliding_window_view(x, kernel, axes)
    return seen[(slice(None), slice(None), *[slice(None, None, steps)] * len(axes))]


def _convolved(x: Array, w: Array, b: Array | None = None, steps: int = 1) -> Array:
    y = np.einsum("nchwij,fcij->nfhw", _windows(x, w.shape[2:], steps), w)
    return np.asarray(y if b is None else y + b[:, None, None])


row("conv", lg.conv, _convolved, f32(2, 3, 7, 8), f32(4, 3, 3, 2), f32(4))
row(
    "conv strides",
    lambda x, w: lg.conv(x, w, strides=[2, 2], pads=[1, 1, 1, 1]),
    lambda x, w: _convolved(np.pad(x, [(0, 0), (0, 0), (1, 1), (1, 1)]), w, steps=2),
    f32(2, 3, 7, 8),
    f32(4, 3, 3, 3),
)
row(
    "conv same",
    lambda x, w: lg.conv(x, w, auto_pad="SAME_UPPER"),
    lambda x, w: _convolved(np.pad(x, [(0, 0), (0, 0), (1, 1), (1, 1)]), w),
    f32(2, 3, 7, 8),
    f32(4, 3, 3, 3),
)
row(
    "conv groups",
    lambda x, w: lg.conv(x, w, group=3),
    lambda x, w: np.concatenate([_convolved(x[:, i : i + 1], w[i : i + 1]) for i in range(3)], 1),
    f32(2, 3, 7, 8),
    f32(3, 1, 3, 3),
)
row(
    "conv dilations",
    lambda x, w: lg.conv(x, w, dilations=[2]),
    lambda x, w: sum(w[:, :, i].dot(x[0, :, 2 * i : 2 * i + 5]) for i in range(2))[None],
    f32(1, 3, 7),
    f32(4, 3, 2),
)
row(
    "conv_transpose",
    lambda x, w: lg.conv_transpose(x, w, strides=[2, 2]),
    lambda x, w: np.einsum("nchw,cfij->nfhiwj", x, w).reshape(2, 4, 6, 8),
    f32(2, 3, 3, 4),
    f32(3, 4, 2, 2),
)
row(
    "max_pool",
    lambda x: lg.max_pool(x, [2, 2], strides=[2, 2]),
    lambda x: _windows(x, (2, 2), 2).max((-1, -2)),
    f32(2, 3, 7, 8),
)
row(
    "max_pool ceil",
    lambda x: lg.max_pool(x, [2], strides=[2], ceil_mode=True),
    lambda x: np.pad(x, [(0, 0), (0, 0), (0, 1)], constant_values=-9).reshape(2, 3, 4, 2).max(-1),
    f32(2, 3, 7),
)
row("average_pool", lambda x: lg.average_pool(x, [3, 2]), lambda x: _windows(x, (3, 2)).mean((-1, -2)), f32(2, 3, 7, 8))
row(
    "op.LpPool",
    lambda x: lg.op.LpPool(x, kernel_shape=[2, 2]),
    lambda x: np.sqrt((_windows(x, (2, 2)) ** 2).sum((-1, -2))),
    f32(2, 3, 4, 5),
)
row("global_max_pool", lg.global_max_pool, lambda x: x.max((2, 3), keepdims=True), f32(2, 3, 4, 5))
row("global_average_pool", lg.global_average_pool, lambda x: x.mean((2, 3), keepdims=True), f32(2, 3, 4, 5))
row(
    "op.GlobalLpPool",
    lambda x: lg.op.GlobalLpPool(x),
    lambda x: np.sqrt((x * x).sum((2, 3), keepdims=True)),
    f32(2, 3, 4, 5),
)

# ---- few bits ----

_BYTES = _rng.integers(0, 255, (3, 4)).astype(np.uint8)
row(
    "quantize_linear",
    lambda x: lg.quantize_linear(x, 0.05, x.const(np.uint8(128))),
    lambda x: np.clip(np.round(x / np.float32(0.05)) + 128, 0, 255).astype(np.uint8),
    X,
)
row(
    "dequantize_linear",
    lambda x: lg.dequantize_linear(x, x.const(np.array([0.1, 0.2, 0.3, 0.4], np.float32))),
    lambda x: x * np.array([0.1, 0.2, 0.3, 0.4], np.float32),
    _BYTES,
)
row(
    "dynamic_quantize_linear",
    lambda x: lg.dequantize_linear(*lg.dynamic_quantize_linear(x)) - x < 0.02,
    lambda x: np.ones((3, 4), bool),
    X,
)
row(
    "matmul_integer",
    lambda a, b: lg.matmul_integer(a, b, a.const(np.uint8(3))),
    lambda a, b: (a.astype(np.int32) - 3) @ b.astype(np.int32),
    _BYTES,
    _BYTES.T.copy(),
)
row(
    "op.ConvInteger",
    lambda x, w: lg.op.ConvInteger(x, w),
    lambda x, w: _convolved(x.astype(np.int32), w.astype(np.int32)),
    _BYTES.reshape(1, 1, 3, 4),
    np.ones((2, 1, 2, 2), np.uint8),
)


# ---- the tests ----

# Ops with a rule that onnxruntime's CPU provider cannot run.
NOT_RUN = {"CumProd", "SwiGLU"}
# Ops with a rule and no function of their own: onnx's node cases run them.
BY_NAME_ONLY = {
    "CausalConvWithState",
    "Col2Im",
    "DFT",
    "DeformConv",
    "LinearAttention",
    "MaxUnpool",
    "QLinearConv",
    "STFT",
}


def _inputs(arrays: tuple[Array, ...], named: bool) -> list[lg.Tensor]:
    """Return one input per array; ``named`` gives every size above 1 the name ``d<size>``."""
    tensors: list[lg.Tensor] = []
    for i, array in enumerate(arrays):
        shape = [f"d{size}" if named and size > 1 else size for size in array.shape]
        tensors.append(lg.input(f"in{i}", array.dtype, shape, anchor=tensors[0] if tensors else None))
    return tensors


def _listed(result: Any) -> list[Any]:
    return list(result) if isinstance(result, (tuple, list)) else [result]


def _compare(row: Row, tensors: list[lg.Tensor], sizes: dict[str, int]) -> None:
    outputs = _listed(row.build(*tensors))
    expected = row.oracle(*row.arrays)
    wanted = list(expected) if len(outputs) > 1 else [expected]
    got = realize(outputs, {f"in{i}": array for i, array in enumerate(row.arrays)})
    assert len(got) == len(wanted)
    for output, array, oracle in zip(outputs, got, wanted, strict=True):
        np.testing.assert_allclose(array, oracle, rtol=2e-5, atol=2e-5)
        assert array.dtype == output.dtype.numpy
        _same_shape(output.shape, array.shape, sizes)


def _same_shape(known: tuple[Any, ...], real: tuple[int, ...], sizes: dict[str, int]) -> None:
    assert len(known) == len(real)
    for size, number in zip(known, real, strict=True):
        if dims.is_unknown(size):
            high = dims.bounds(size)[1]
            assert high is None or number <= high
        else:
            assert (size if isinstance(size, int) else dims.evaluate(size, sizes)) == number


@pytest.mark.parametrize("row", ROWS, ids=[row.name for row in ROWS])
def test_op_equals_numpy_with_fixed_sizes(row: Row) -> None:
    _compare(row, _inputs(row.arrays, named=False), {})


# Rows whose parameters are numbers that named sizes must equal: refused unless that was said.
NUMBERED = {
    "split uneven",
    "split sizes",
    "reverse_sequence",
    "scatter_nd",
    "rotary_embedding",
    "rotary_embedding interleaved",
    "conv groups",
    "dequantize_linear",
    "gather_nd batch",
}


@pytest.mark.parametrize("row", ROWS, ids=[row.name for row in ROWS])
def test_op_equals_numpy_with_named_sizes(row: Row) -> None:
    sizes = {f"d{size}": size for array in row.arrays for size in array.shape}
    tensors = _inputs(row.arrays, named=True)
    with ExitStack() as assumptions:
        if row.name in NUMBERED:
            with pytest.raises(lg.ShapeError):
                row.build(*tensors)
            for name, size in sizes.items():
                if size > 1:
                    assumptions.enter_context(lg.assume_equal(name, size))
        _compare(row, tensors, sizes)


def test_every_op_with_a_rule_is_in_the_table() -> None:
    from lazygraph.ops.core import _rules

    seen: set[str] = set()
    for row in ROWS:
        pending = _listed(row.build(*_inputs(row.arrays, named=False)))
        while pending:
            origin = pending.pop().origin
            if isinstance(origin, lg.tensor.Node):
                seen.add(origin.op)
                pending += [tensor for tensor in origin.inputs if tensor is not None]
    ours = {name for domain, name in _rules if not domain}
    assert ours - seen <= NOT_RUN | BY_NAME_ONLY
    assert len(seen & ours) >= 100
