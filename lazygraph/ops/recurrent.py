"""Rules of the operators that carry a state from step to step: causal convolution and linear attention."""

from __future__ import annotations

from typing import cast as typed

from lazygraph import dims
from lazygraph.errors import ShapeError
from lazygraph.ops.checks import FLOAT, between, dtype_among, exact_rank, rows, same_dtype, same_size
from lazygraph.ops.core import Attrs, Inputs, Results, rule
from lazygraph.tensor import Tensor


@rule("CausalConvWithState")
def _causal_conv_rule(op: str, inputs: Inputs, attrs: Attrs) -> Results:
    x, w, bias, past = between(op, inputs, 2, 4)
    x, w = typed(Tensor, x), typed(Tensor, w)
    labelled = {"input": x, "weight": w, "bias": bias, "past_state": past}
    dtype = same_dtype(op, **labelled)
    dtype_among(op, "input", x, FLOAT)
    exact_rank(op, "input", x, 3)
    exact_rank(op, "weight", w, 3)
    if x.known_shape is None or w.known_shape is None:
        return [(dtype, x.known_shape), (dtype, None)]
    batch, channels, _ = x.shape
    same_size(op, labelled, "one filter per channel", w.shape[0], channels)
    same_size(op, labelled, "a weight of (channels, 1, k)", w.shape[1], 1)
    state = (batch, channels, dims.subtract(w.shape[2], 1))
    if past is not None and past.known_shape is not None:
        exact_rank(op, "past_state", past, 3)
        for have, want in zip(past.shape, state, strict=True):
            same_size(op, labelled, "a past_state of (batch, channels, k - 1)", have, want)
    return [(dtype, x.shape), (dtype, state)]


@rule("LinearAttention")
def _linear_attention_rule(op: str, inputs: Inputs, attrs: Attrs) -> Results:
    query, key, value, past, decay, beta = between(op, inputs, 3, 6)
    query, key, value = typed(Tensor, query), typed(Tensor, key), typed(Tensor, value)
    labelled = {"query": query, "key": key, "value": value, "past_state": past}
    dtype = same_dtype(op, query=query, key=key, value=value, decay=decay, beta=beta)
    state_dtype = dtype if past is None else past.dtype
    heads, kv_heads = attrs["q_num_heads"], attrs["kv_num_heads"]
    if kv_heads < 1 or heads < 1 or heads % kv_heads:
        raise ShapeError(
            f"{heads} query heads over {kv_heads}", op=op, expected="a multiple of kv_num_heads query heads"
        )
    for label, tensor in (("query", query), ("key", key), ("value", value)):
        exact_rank(op, label, tensor, 3)
    if query.known_shape is None or value.known_shape is None:
        return [(dtype, None), (state_dtype, None)]
    for label, size, count in (("query", query.shape[2], heads), ("value", value.shape[2], kv_heads)):
        if isinstance(size, int) and size % count:
            raise ShapeError(
                f"{label} of {size} in {count} heads", op=op, operands=rows(labelled), expected="sizes that divide"
            )
    d_k, d_v = dims.floordiv(query.shape[2], heads), dims.floordiv(value.shape[2], kv_heads)
    state = (query.shape[0], kv_heads, d_k, d_v)
    return [(dtype, (*query.shape[:2], dims.multiply(d_v, heads))), (state_dtype, state)]
