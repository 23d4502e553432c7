"""Projections from a checkpoint: weights in float32, transposed and joined as they stream into the export."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from lazygraph import nn, ops
from lazygraph.arrays import LazyArray
from lazygraph.dtypes import float32
from lazygraph.models.parameters import Numbers, Parameters
from lazygraph.tensor import Tensor


@dataclass(frozen=True, eq=False)
class Part:
    """One of a checkpoint's linear modules.

    Attributes:
        name: The module's name: it has a ``.weight`` ``(outputs, inputs)`` and perhaps a ``.bias`` ``(outputs,)``.
        outputs: Its number of outputs.
        bias: Whether it adds a bias.
        order: The order in which its outputs are wanted, ``int64 (outputs,)``; None for the checkpoint's own.
    """

    name: str
    outputs: int
    bias: bool = False
    order: np.ndarray[Any, np.dtype[np.int64]] | None = None


def projection(parameters: Parameters, x: Tensor, parts: Sequence[Part], residual: Tensor | None = None) -> Tensor:
    """Return ``x`` through one or several linear modules side by side, as one product.

    Args:
        parameters: The checkpoint.
        x: ``T (n, inputs)``.
        parts: The modules.
        residual: What the result is added to, ``T (n, total)``, or None.

    Returns:
        ``T (n, total)``, total the sum of the modules' outputs.

    Raises:
        WeightsError: A tensor has another shape.
    """
    inputs = int(x.shape[-1])
    total = sum(part.outputs for part in parts)
    sources = [parameters.array(f"{part.name}.weight", (part.outputs, inputs)) for part in parts]
    weight = parameters.made(
        x,
        _joined(parts, "weight"),
        (inputs, total),
        lambda: np.concatenate([_ordered(part, source) for part, source in zip(parts, sources, strict=True)]).T,
    )
    if not any(part.bias for part in parts):
        return nn.linear(x, weight, None, residual)

    biases = [parameters.array(f"{part.name}.bias", (part.outputs,)) if part.bias else None for part in parts]
    bias = parameters.made(
        x,
        _joined(parts, "bias"),
        (total,),
        lambda: np.concatenate([_ordered(part, source) for part, source in zip(parts, biases, strict=True)]),
    )
    return nn.linear(x, weight, bias, residual)


def _ordered(part: Part, source: LazyArray | None) -> Numbers:
    if source is None:
        return np.zeros(part.outputs, np.float32)
    return source.read() if part.order is None else source.read()[part.order]


def _joined(parts: Sequence[Part], kind: str) -> str:
    """Return one name for several modules' tensors: ``model.layers.0.self_attn.q_proj+k_proj+v_proj.weight``."""
    first, *others = [part.name for part in parts]
    return ".".join(["+".join([first, *(name.rsplit(".", 1)[-1] for name in others)]), kind])


def feed_forward(parameters: Parameters, prefix: str, h: Tensor, inner: int, bias: bool, residual: Tensor) -> Tensor:
    """Return ``residual`` with a gated feed-forward of ``h`` added."""
    both = projection(parameters, h, [Part(f"{prefix}.gate_proj", inner, bias), Part(f"{prefix}.up_proj", inner, bias)])
    gate, up = ops.split(both, [inner, inner], axis=-1)
    down = Part(f"{prefix}.down_proj", int(residual.shape[-1]), bias)
    return projection(parameters, nn.swiglu(gate, up), [down], residual)


def head(parameters: Parameters, x: Tensor, table: Tensor, eps: float, tied: bool) -> tuple[Tensor, str]:
    """Return the logits, ``float32 (..., vocab)``, and a note on which matrix made them.

    The checkpoint decides: a head of its own is used where there is one (one matrix is stored when both are equal);
    without one, the embedding serves where the config ties them.

    Args:
        parameters: The checkpoint.
        x: ``T (..., hidden)``, after the last layer: the rows that want logits.
        table: The embedding as it is kept, ``(vocab, hidden)``.
        eps: Of the last norm.
        tied: Whether the config ties head and embedding.
    """
    x = nn.rms_norm(x, parameters.vector(x, "model.norm.weight", int(x.shape[-1])), eps)
    name = "lm_head.weight"
    if name in parameters or not tied:
        matrix = parameters.kept(x, parameters.array(name, (int(table.shape[0]), int(table.shape[1]))))
        note = "the output head is a matrix of its own" + (
            ", though the config ties it to the embedding" if tied else ""
        )
    else:
        matrix, note = table, "the output head is the embedding, stored once"
    rows = ops.reshape(x, [-1, x.shape[-1]]) if len(x.shape) > 2 else x
    logits = ops.gemm(rows, matrix.astype(x.dtype), trans_b=True).astype(float32)
    return (ops.reshape(logits, [*x.shape[:-1], logits.shape[1]]) if rows is not x else logits), note
