"""What onnxruntime's fused operators give, for those that decoders use: ``lg.op.microsoft.Name`` with its shapes.

A test runs each and compares. What a rule is not sure of it leaves to the run.
"""

from __future__ import annotations

from typing import cast as typed

from lazygraph import dims
from lazygraph.dims import Size
from lazygraph.dtypes import DType, float32
from lazygraph.errors import ShapeError
from lazygraph.ops.checks import axis_of, exact_rank, rank_at_least, rows, same_dtype, same_size
from lazygraph.ops.core import Attrs, Inputs, Results, known_ints, rule
from lazygraph.ops.linear import product_shape
from lazygraph.ops.microsoft import DOMAIN
from lazygraph.tensor import Shape, Tensor


def _padded(inputs: Inputs, count: int) -> list[Tensor | None]:
    return [*inputs, *[None] * count][:count]


# ---- of one shape ----


@rule("Gelu", "QuickGelu", "Inverse", "Trilu", "RotaryEmbedding", "QMoE", domain=DOMAIN)
def _same_rule(op: str, inputs: Inputs, attrs: Attrs) -> Results:
    x = typed(Tensor, inputs[0])
    return [(x.dtype, x.known_shape)]


@rule("FastGelu", "BiasGelu", domain=DOMAIN)
def _bias_gelu_rule(op: str, inputs: Inputs, attrs: Attrs) -> Results:
    x, bias = _padded(inputs, 2)
    x = typed(Tensor, x)
    dtype = same_dtype(op, x=x, bias=bias)
    if bias is not None:
        exact_rank(op, "bias", bias, 1)
    if bias is not None and bias.known_shape is not None and x.known_shape is not None:
        shape = rank_at_least(op, "x", x, 1)
        same_size(op, {"x": x, "bias": bias}, "a bias for each element of the last axis", shape[-1], bias.shape[0])
    return [(dtype, x.known_shape)]


@rule("SkipLayerNormalization", "SkipSimplifiedLayerNormalization", domain=DOMAIN)
def _skip_rule(op: str, inputs: Inputs, attrs: Attrs) -> Results:
    x, skip, gamma, *rest = _padded(inputs, 5)
    x = typed(Tensor, x)
    dtype = same_dtype(op, input=x, skip=skip, gamma=gamma, beta_or_bias=rest[0], bias=rest[1])
    shape = x.known_shape
    if shape is None:
        return [(dtype, None), (float32, None), (float32, None), (dtype, None)]
    if len(shape) not in (2, 3):
        raise ShapeError(
            f"input has {len(shape)} axes", op=op, operands=rows({"input": x}), expected="input of 2 or 3 axes"
        )
    for label, vector in (("gamma", gamma), ("beta or bias", rest[0]), ("bias", rest[1])):
        if vector is not None:
            exact_rank(op, label, vector, 1)
        if vector is not None and vector.known_shape is not None:
            same_size(op, {"input": x, label: vector}, f"{label} as wide as input", shape[-1], vector.shape[0])
    one: Shape = (*shape[:-1], 1)
    return [(dtype, shape), (float32, one), (float32, one), (dtype, shape)]


# ---- products ----


@rule("FusedMatMul", "TransposeMatMul", domain=DOMAIN)
def _fused_matmul_rule(op: str, inputs: Inputs, attrs: Attrs) -> Results:
    a, b = typed(Tensor, inputs[0]), typed(Tensor, inputs[1])
    dtype = same_dtype(op, a=a, b=b)
    if attrs.get("transBatchA") or attrs.get("transBatchB"):
        return [(dtype, None)]
    left, right = _turned(a, attrs.get("transA", 0)), _turned(b, attrs.get("transB", 0))
    return [(dtype, product_shape(op, left, right))]


def _turned(x: Tensor, turn: int) -> Tensor:
    """Return a stand-in for the matrices with their last two axes exchanged; vectors stay as they are."""
    shape = x.known_shape
    if not turn or shape is None or len(shape) < 2:
        return x
    return Tensor(x.graph, x.dtype, (*shape[:-2], shape[-1], shape[-2]), x.origin, x.index)


@rule("MatMulNBits", "MatMulBnb4", domain=DOMAIN)
def _packed_matmul_rule(op: str, inputs: Inputs, attrs: Attrs) -> Results:
    a = typed(Tensor, inputs[0])
    if a.known_shape is None or not attrs.get("transB", 1):
        return [(a.dtype, None)]
    shape = rank_at_least(op, "A", a, 1)
    same_size(op, {"A": a}, "K equals the last size of A", shape[-1], attrs["K"])
    return [(a.dtype, (*shape[:-1], attrs["N"]))]


@rule("MatMulIntegerToFloat", "DynamicQuantizeMatMul", domain=DOMAIN)
def _quantized_matmul_rule(op: str, inputs: Inputs, attrs: Attrs) -> Results:
    a, b, scale = (typed(Tensor, tensor) for tensor in inputs[:3])
    return [(scale.dtype, product_shape(op, a, b))]


@rule("GatherBlockQuantized", domain=DOMAIN)
def _gather_rule(op: str, inputs: Inputs, attrs: Attrs) -> Results:
    table, indices, scales = (typed(Tensor, tensor) for tensor in inputs[:3])
    if table.known_shape is None or indices.known_shape is None:
        return [(scales.dtype, None)]
    shape = list(rank_at_least(op, "data", table, 1))
    axis = axis_of(op, attrs.get("gather_axis", 0), len(shape), "gather_axis", {"data": table})
    if table.dtype.name == "uint8":  # several elements to a byte, along the last axis
        shape[-1] = dims.multiply(shape[-1], 8 // attrs.get("bits", 4))
    return [(scales.dtype, (*shape[:axis], *indices.shape, *shape[axis + 1 :]))]


# ---- attention ----


@rule("MultiHeadAttention", domain=DOMAIN)
def _multi_head_rule(op: str, inputs: Inputs, attrs: Attrs) -> Results:
    query, key, value, _, _, _, past_key, past_value, past_length, _ = _padded(inputs, 10)
    query = typed(Tensor, query)
    dtype = query.dtype
    unknown: Results = [(dtype, None)] * 4
    heads = attrs["num_heads"]
    q = query.known_shape
    k = None if key is None else key.known_shape
    v = None if value is None else value.known_shape
    if q is None or k is None or v is None or 5 in (len(q), len(k)):  # packed, which CPU kernels do not take
        return unknown
    if len(q) != 3 or len(k) != len(v) or len(k) not in (3, 4):
        raise ShapeError(
            f"query has {len(q)} axes, key {len(k)}, value {len(v)}",
            op=op,
            operands=rows({"query": query, "key": key, "value": value}),
            expected="query of 3 axes, key and value of 3 or 4",
        )
    batch, seq = q[:2]
    if len(k) == 3:
        size = _per_head(op, "query", query, q[2], heads)
        new, width = k[1], _per_head(op, "value", typed(Tensor, value), v[2], heads)
    else:  # (batch, heads, rows, size)
        new, size, width = k[2], k[3], v[3]
    output: Shape = (batch, seq, dims.multiply(heads, width))
    if past_length is not None or (past_key is not None and past_key.known_shape is None):
        shapes = [None if past is None else past.known_shape for past in (past_key, past_value)]
        return [(dtype, output), (dtype, shapes[0]), (dtype, shapes[1]), (dtype, None)]
    if past_key is not None:
        exact_rank(op, "past_key", past_key, 4)
    total = new if past_key is None else dims.add(past_key.shape[2], new)
    return [
        (dtype, output),
        (dtype, (batch, heads, total, size)),
        (dtype, (batch, heads, total, width)),
        (dtype, (batch, heads, seq, total)),
    ]


def _per_head(op: str, label: str, tensor: Tensor, size: Size, heads: int) -> Size:
    """Return the size that each head has of a last axis.

    Raises:
        ShapeError: The axis is known not to divide by the heads.
    """
    whole = dims.exact_quotient(size, heads)
    if whole is None and isinstance(size, int):
        raise ShapeError(
            f"{size} into {heads} heads", op=op, operands=rows({label: tensor}), expected="a size that divides"
        )
    return dims.floordiv(size, heads) if whole is None else whole


@rule("GroupQueryAttention", domain=DOMAIN)
def _group_query_rule(op: str, inputs: Inputs, attrs: Attrs) -> Results:
    query, key, _, past_key, _, _, total = _padded(inputs, 7)
    query = typed(Tensor, query)
    dtype = query.dtype
    cache: DType = dtype if past_key is None else past_key.dtype
    unknown: Results = [(dtype, None), (cache, None), (cache, None), (dtype, None)]
    if query.known_shape is None or (key is not None and key.known_shape is None):
        return unknown
    exact_rank(op, "query", query, 3)
    batch, seq, wide = query.shape
    heads, shared = attrs["num_heads"], attrs["kv_num_heads"]
    size = _per_head(op, "query", query, wide, heads + 2 * shared if key is None else heads)
    output: Shape = (batch, seq, dims.multiply(heads, size))
    if past_key is not None and past_key.known_shape is not None:
        exact_rank(op, "past_key", past_key, 4)
    rows_ = _present_rows(op, past_key, typed(Tensor, total))
    if attrs.get("kv_cache_bit_width") or attrs.get("sliding_window_cache") or rows_ is None:
        return [(dtype, output), *unknown[1:]]
    present: Shape = (batch, shared, rows_, size)
    return [(dtype, output), (cache, present), (cache, present), (dtype, None)]


def _present_rows(op: str, past: Tensor | None, total: Tensor) -> Size | None:
    """Return the rows of a cache: those that were there, or all that are counted where those are more."""
    counted = known_ints(total)
    before: Size | None = 0
    if past is not None:
        before = None if past.known_shape is None else past.shape[2]
    if before is None or counted is None or len(counted) != 1:
        return None
    return dims.largest(before, counted[0])


@rule("Attention", domain=DOMAIN)
def _attention_rule(op: str, inputs: Inputs, attrs: Attrs) -> Results:
    x, weights, _, _, past, _, past_length = _padded(inputs, 7)
    x, weights = typed(Tensor, x), typed(Tensor, weights)
    dtype = same_dtype(op, input=x, weights=weights)
    if x.known_shape is None or weights.known_shape is None:
        return [(dtype, None), (dtype, None)]
    exact_rank(op, "input", x, 3)
    exact_rank(op, "weights", weights, 2)
    same_size(op, {"input": x, "weights": weights}, "weights for each input element", x.shape[2], weights.shape[0])
    sizes = attrs.get("qkv_hidden_sizes")
    heads = attrs["num_heads"]
    width: Size = sizes[2] if sizes else _per_head(op, "weights", weights, weights.shape[1], 3)
    output: Shape = (x.shape[0], x.shape[1], width)
    if past_length is not None or (past is not None and past.known_shape is None):
        return [(dtype, output), (dtype, None if past is None else past.known_shape)]
    if past is not None:
        exact_rank(op, "past", past, 5)
    total = x.shape[1] if past is None else dims.add(past.shape[3], x.shape[1])
    return [(dtype, output), (dtype, (2, x.shape[0], heads, total, _per_head(op, "weights", weights, width, heads)))]


__all__: list[str] = []
