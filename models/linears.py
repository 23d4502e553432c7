"""Projections from a checkpoint: weights in float32, transposed and joined as they stream into the export."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from lazygraph import nn, ops
from lazygraph.arrays import LazyArray
from lazygraph.dtypes import float32
from lazygraph.errors import DTypeError
from lazygraph.models.checkpoint import WeightsUse
from lazygraph.tensor import Tensor


def as_float32(array: LazyArray) -> LazyArray:
    """Return the weight in float32, converted as it streams.

    Raises:
        DTypeError: It holds no floating-point numbers.
    """
    if array.dtype is float32:
        return array
    if not array.dtype.is_float:
        raise DTypeError(f"weight {array.name!r} is {array.dtype}", op="weights", expected="floating-point numbers")
    return array.map(array.name, float32, array.shape, lambda numbers: numbers.astype(np.float32))


def vector(weights: WeightsUse, anchor: Tensor, name: str, size: int) -> Tensor:
    """Return a norm's weight or a bias, ``float32 (size,)``, under its checkpoint name."""
    return anchor.const(as_float32(weights.take(name, (size,))), name)


def projection(
    weights: WeightsUse,
    x: Tensor,
    names: Sequence[str],
    outputs: Sequence[int],
    bias: bool,
    residual: Tensor | None = None,
) -> Tensor:
    """Return ``x`` through one or several projections side by side, as one product: ``float32 (n, sum(outputs))``.

    Args:
        weights: The checkpoint.
        x: ``float32 (n, inputs)``.
        names: The modules' names: each has a ``.weight`` ``(outputs, inputs)`` and perhaps a ``.bias``.
        outputs: Their numbers of outputs.
        bias: Whether each adds a bias.
        residual: What the result is added to, ``float32 (n, sum(outputs))``, or None.

    Raises:
        WeightsError: A tensor has another shape.
    """
    inputs = int(x.shape[-1])
    parts = [as_float32(weights.take(f"{name}.weight", (size, inputs))) for name, size in zip(names, outputs, strict=True)]
    total = sum(outputs)
    joined = LazyArray(
        float32,
        (inputs, total),
        lambda: np.concatenate([part.read() for part in parts]).T,
        name=_joined(names, "weight"),
        key=("transposed", *(part.key for part in parts)),
    )
    weight = x.const(joined, joined.name)
    if not bias:
        return nn.linear(x, weight, None, residual)

    biases = [as_float32(weights.take(f"{name}.bias", (size,))) for name, size in zip(names, outputs, strict=True)]
    added = LazyArray(
        float32,
        (total,),
        lambda: np.concatenate([part.read() for part in biases]),
        name=_joined(names, "bias"),
        key=("joined", *(part.key for part in biases)),
    )
    return nn.linear(x, weight, x.const(added, added.name), residual)


def _joined(names: Sequence[str], kind: str) -> str:
    """Return one name for several modules' tensors: ``model.layers.0.self_attn.q_proj+k_proj+v_proj.weight``."""
    first, *others = names
    return ".".join(["+".join([first, *(name.rsplit(".", 1)[-1] for name in others)]), kind])


def head(x: Tensor, table: Tensor, weights: WeightsUse, tied: bool) -> tuple[Tensor, str]:
    """Return the logits, ``float32 (n, vocab)``, and a note on which matrix made them.

    The checkpoint decides: a head of its own is used where there is one (one matrix is stored when both are equal);
    without one, the embedding serves where the config ties them.

    Args:
        x: ``float32 (n, hidden)``, normed.
        table: The embedding, ``float32 (vocab, hidden)``.
        weights: The checkpoint.
        tied: Whether the config ties head and embedding.
    """
    name = "lm_head.weight"
    if name in weights or not tied:
        own = as_float32(weights.take(name, (int(table.shape[0]), int(table.shape[1]))))
        matrix = x.const(own, name)
        note = "the output head is a matrix of its own" + (", though the config ties it to the embedding" if tied else "")
    else:
        matrix, note = table, "the output head is the embedding, stored once"
    return ops.gemm(x, matrix, trans_b=True), note
