"""Scaled dot-product attention, as the operator has it."""

from __future__ import annotations

from typing import cast as typed

from lazygraph import dims
from lazygraph.dims import Size
from lazygraph.errors import OperandError, ShapeError
from lazygraph.ops.checks import (
    FLOAT,
    INT64,
    NUMBER,
    Operands,
    Types,
    between,
    dtype_among,
    exact_rank,
    meet,
    rows,
    same_dtype,
    same_size,
)
from lazygraph.ops.core import Attrs, Inputs, Results, apply_all, rule
from lazygraph.ops.neural import per_head
from lazygraph.tensor import Shape, Tensor

_MASK = Types("number or bool", NUMBER.names | {"bool"})


@rule("Attention")
def _attention_rule(op: str, inputs: Inputs, attrs: Attrs) -> Results:
    q, k, v, mask, past_key, past_value, lengths = between(op, inputs, 3, 7)
    q, k, v = typed(Tensor, q), typed(Tensor, k), typed(Tensor, v)
    labelled: Operands = {"q": q, "k": k, "v": v, "attn_mask": mask, "past_key": past_key, "past_value": past_value}
    dtype_among(op, "q", q, FLOAT)
    dtype_among(op, "v", v, FLOAT)
    same_dtype(op, q=q, k=k, past_key=past_key)
    same_dtype(op, v=v, past_value=past_value)
    if (past_key is None) != (past_value is None):
        raise OperandError(
            "past_key and past_value go together", op=op, operands=rows(labelled), expected="both or none"
        )
    if mask is not None:
        dtype_among(op, "attn_mask", mask, _MASK)
    if lengths is not None:
        dtype_among(op, "nonpad_kv_seqlen", lengths, INT64)
        if past_key is not None:
            raise OperandError(
                "nonpad_kv_seqlen beside past_key", op=op, operands=rows(labelled), expected="a cache inside or outside"
            )
    if q.known_shape is None or k.known_shape is None or v.known_shape is None:
        return [(q.dtype, None), (q.dtype, None), (v.dtype, None), (q.dtype, None)]

    batch, q_heads, q_tokens, head_size = _by_head(op, labelled, "q", q, attrs.get("q_num_heads", 0))
    k_batch, kv_heads, kv_tokens, k_size = _by_head(op, labelled, "k", k, attrs.get("kv_num_heads", 0))
    v_batch, v_heads, v_tokens, v_size = _by_head(op, labelled, "v", v, attrs.get("kv_num_heads", 0))
    for what, a, b in (
        ("one batch", batch, k_batch),
        ("one batch", batch, v_batch),
        ("heads of equal size in q and k", head_size, k_size),
        ("as many heads in k as in v", kv_heads, v_heads),
        ("as many tokens in k as in v", kv_tokens, v_tokens),
    ):
        same_size(op, labelled, what, a, b)
    if isinstance(q_heads, int) and isinstance(kv_heads, int) and (kv_heads == 0 or q_heads % kv_heads):
        raise ShapeError(
            f"{q_heads} heads in q, {kv_heads} in k",
            op=op,
            operands=rows(labelled),
            expected="heads of q that divide by k's",
        )

    total: Size = kv_tokens
    if past_key is not None and past_value is not None:
        for label, past, size in (("past_key", past_key, head_size), ("past_value", past_value, v_size)):
            exact_rank(op, label, past, 4)
            if past.known_shape is not None:
                for what, a, b in (("batch", batch, 0), ("heads", kv_heads, 1), ("head size", size, 3)):
                    same_size(op, labelled, f"{label} of the same {what}", a, past.shape[b])
        total = dims.add(past_key.shape[2], kv_tokens)
    _mask_fits(op, labelled, mask, (batch, q_heads, q_tokens, total))

    y: Shape = (batch, q_heads, q_tokens, v_size)
    if len(q.shape) == 3:
        y = (batch, q_tokens, dims.multiply(q_heads, v_size))
    return [
        (q.dtype, y),
        (q.dtype, (batch, kv_heads, total, head_size)),
        (v.dtype, (batch, kv_heads, total, v_size)),
        (q.dtype, (batch, q_heads, q_tokens, total)),
    ]


def _by_head(op: str, operands: Operands, label: str, x: Tensor, heads: int) -> tuple[Size, Size, Size, Size]:
    """Return batch, heads, tokens and head size."""
    if len(x.shape) == 4:
        batch, count, tokens, size = x.shape
        return batch, count, tokens, size
    if len(x.shape) != 3 or not heads:
        raise ShapeError(
            f"{label} has {len(x.shape)} axes" + ("" if len(x.shape) != 3 else " and its number of heads is not given"),
            op=op,
            operands=rows(operands),
            expected="(batch, heads, tokens, head_size), or (batch, tokens, hidden) with q_num_heads and kv_num_heads",
        )
    return x.shape[0], heads, x.shape[1], per_head(op, operands, label, x.shape[2], heads)


def _mask_fits(op: str, operands: Operands, mask: Tensor | None, wanted: Shape) -> None:
    if mask is None or mask.known_shape is None:
        return
    if len(mask.shape) > 4:
        exact_rank(op, "attn_mask", mask, 4)
    for place in range(1, len(mask.shape) + 1):
        size, whole = mask.shape[-place], wanted[-place]
        # The last axis may be shorter: what is missing is masked.
        if size != 1 and meet(size, whole) is None and not (place == 1 and dims.at_most(size, whole)):
            same_size(op, operands, "attn_mask that broadcasts to (batch, heads, tokens, total tokens)", size, whole)


def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    attn_mask: Tensor | None = None,
    nonpad_kv_seqlen: Tensor | None = None,
    is_causal: bool = False,
    scale: float | None = None,
    softcap: float = 0.0,
    q_num_heads: int = 0,
    kv_num_heads: int = 0,
) -> Tensor:
    """Return ``softmax(q k' * scale + mask) v``, head by head; a row with no key left is 0.

    Args:
        q: ``T (batch, q_heads, tokens, head_size)``, or ``(batch, tokens, q_heads * head_size)``.
        k: ``T (batch, kv_heads, kv_tokens, head_size)``, or three axes alike; ``q_heads`` divides by ``kv_heads``.
        v: ``T (batch, kv_heads, kv_tokens, v_head_size)``, or three axes alike.
        attn_mask: bool (True takes part) or ``T`` (added), broadcast to ``(batch, q_heads, tokens, kv_tokens)``.
        nonpad_kv_seqlen: ``int64 (batch,)``, the keys that count where the cache is kept outside (opset 24).
        is_causal: A query sees keys up to its own place.
        scale: By default ``1 / sqrt(head_size)``.
        softcap: Scores are held in ``(-softcap, softcap)`` by tanh; 0 leaves them.
        q_num_heads: Heads of a three-axis ``q``.
        kv_num_heads: Heads of three-axis ``k`` and ``v``.

    Raises:
        ShapeError: Batches, heads, tokens or head sizes do not fit.
        DTypeError: Element types do not fit.

    Spec: ai.onnx::Attention.
    """
    inputs: Inputs = (q, k, v, attn_mask)
    if nonpad_kv_seqlen is not None:
        inputs = (*inputs, None, None, nonpad_kv_seqlen)
    elif attn_mask is None:
        inputs = (q, k, v)
    return apply_all("Attention", inputs, _attrs(is_causal, scale, softcap, q_num_heads, kv_num_heads))[0]


def attention_with_past(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    past_key: Tensor,
    past_value: Tensor,
    attn_mask: Tensor | None = None,
    is_causal: bool = False,
    scale: float | None = None,
    softcap: float = 0.0,
    q_num_heads: int = 0,
    kv_num_heads: int = 0,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return attention over past and new keys, and both caches grown by the new ones (see ``attention``).

    Args:
        q: As in ``attention``.
        k: As in ``attention``; the new keys only.
        v: As in ``attention``; the new values only.
        past_key: ``T (batch, kv_heads, past_tokens, head_size)``.
        past_value: ``T (batch, kv_heads, past_tokens, v_head_size)``.
        attn_mask: As in ``attention``, over past and new keys.
        is_causal: A query sees the past and new keys up to its own place.
        scale: By default ``1 / sqrt(head_size)``.
        softcap: As in ``attention``.
        q_num_heads: Heads of a three-axis ``q``.
        kv_num_heads: Heads of three-axis ``k`` and ``v``.

    Raises:
        ShapeError: Batches, heads, tokens or head sizes do not fit.
        DTypeError: Element types do not fit.

    Spec: ai.onnx::Attention.
    """
    attrs = _attrs(is_causal, scale, softcap, q_num_heads, kv_num_heads)
    y, present_key, present_value, _ = apply_all("Attention", (q, k, v, attn_mask, past_key, past_value), attrs)
    return y, present_key, present_value


def _attrs(is_causal: bool, scale: float | None, softcap: float, q_num_heads: int, kv_num_heads: int) -> Attrs:
    attrs: Attrs = {"is_causal": 1} if is_causal else {}
    if scale is not None:
        attrs["scale"] = float(scale)
    if softcap:
        attrs["softcap"] = float(softcap)
    if q_num_heads:
        attrs["q_num_heads"] = int(q_num_heads)
    if kv_num_heads:
        attrs["kv_num_heads"] = int(kv_num_heads)
    return attrs


__all__ = ["attention", "attention_with_past"]
