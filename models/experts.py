"""Mixture of experts: which experts a token goes to, and their feed-forwards without touching the others.

Source: DeepSeek-V2, 2024, section 2.2; DeepSeek-V3, 2024, section 2.1.2; transformers for how ties and zeros resolve.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from lazygraph import nn, ops
from lazygraph.dtypes import float32
from lazygraph.models.linears import feed_forward
from lazygraph.models.parameters import Numbers, Parameters
from lazygraph.ops import microsoft
from lazygraph.tensor import Tensor

# Below every score: what is masked never wins over what is not, even when that is zero or negative.
LOWEST = -1e30

# A chosen weight is taken to be at least LEAST, whose logarithm is -69: far above UNCHOSEN, which float16 can hold too.
LEAST = 1e-30
UNCHOSEN = -1e4

# Numbers in a piece of an expert's matrix. Gather copies what it takes: of this size the copy stays in the processor's
# cache until it is multiplied, where a whole expert would go to memory and back.
PIECE = 2**20


@dataclass(frozen=True)
class Routing:
    """How tokens choose experts.

    Attributes:
        n_experts: Routed experts.
        n_chosen: Experts per token.
        scores: ``softmax`` or ``sigmoid`` of the router's logits.
        biased: Whether a correction bias is added for choosing (never for weighing).
        n_groups: Groups of experts; 1 for none.
        n_chosen_groups: Groups that a token may choose from.
        group_score: Experts whose scores sum to a group's score.
        normalised: Whether the chosen weights are divided by their sum.
        factor: Multiplies the weights.
    """

    n_experts: int
    n_chosen: int
    scores: Literal["softmax", "sigmoid"]
    biased: bool
    n_groups: int
    n_chosen_groups: int
    group_score: int
    normalised: bool
    factor: float


def route(routing: Routing, logits: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor]:
    """Return each token's experts and their weights.

    Args:
        routing: How tokens choose.
        logits: ``float32 (n, experts)``.
        bias: ``float32 (experts,)``, added for choosing only, or None.

    Returns:
        ``int64 (n, chosen)`` and ``float32 (n, chosen)``.
    """
    # Not ops.sigmoid: onnxruntime's is exact to 6e-8 only and 0 below -18, and scores may be divided by their sum.
    scores = ops.softmax(logits, axis=-1) if routing.scores == "softmax" else 1.0 / (1.0 + ops.exp(-logits))
    choice = scores if bias is None else scores + bias
    if routing.n_chosen_groups < routing.n_groups:
        choice = ops.where(_in_chosen_groups(routing, choice), choice, LOWEST)
    _, experts = ops.topk(choice, routing.n_chosen, axis=-1)
    weights = ops.gather_elements(scores, experts, axis=1)
    if routing.normalised:
        weights = weights / (ops.reduce_sum(weights, -1, keepdims=True) + 1e-20)
    return experts, weights * routing.factor if routing.factor != 1.0 else weights


def _in_chosen_groups(routing: Routing, choice: Tensor) -> Tensor:
    """Return which experts belong to a token's best groups, ``bool (n, experts)``."""
    groups, members = routing.n_groups, routing.n_experts // routing.n_groups
    by_group = ops.reshape(choice, [-1, groups, members])
    best, _ = ops.topk(by_group, routing.group_score, axis=-1)
    group_scores = ops.reduce_sum(best, -1)  # (n, groups)
    _, chosen = ops.topk(group_scores, routing.n_chosen_groups, axis=-1)  # (n, chosen groups)
    # A token's group is chosen where any of its choices is that group's number.
    numbers = ops.arange(0, groups, anchor=choice)  # (groups,)
    hits = ops.unsqueeze(chosen, 2) == numbers  # (n, chosen groups, groups)
    allowed = ops.reduce_max(ops.cast(hits, "int32"), 1) > 0  # (n, groups)
    spread = ops.expand(ops.unsqueeze(allowed, 2), [choice.shape[0], groups, members])
    return ops.reshape(spread, [-1, routing.n_experts])


@dataclass(frozen=True)
class Experts:
    """A layer's routed experts, or their pieces: as many to each expert, of as many rows.

    Attributes:
        gate_up: ``T (experts, 2 * inner, hidden)``: rows of gate and up in turns; ``(experts * pieces, rows, hidden)``.
        down: ``T (experts, hidden, inner)``; ``(experts * pieces, rows, inner)``.
    """

    gate_up: Tensor
    down: Tensor


def read_experts(
    parameters: Parameters, anchor: Tensor, prefix: str, count: int, inner: int, in_pieces: bool = False
) -> Experts:
    """Return a layer's routed experts, stacked as they stream into the export.

    Args:
        parameters: The checkpoint.
        anchor: A tensor of the graph, ``(n, hidden)``.
        prefix: The modules' name: ``model.layers.1.mlp.experts``.
        count: Experts.
        inner: Numbers per token inside an expert.
        in_pieces: Give pieces, for ``portable_mixture``; whole experts, for ``mixture``, when left out.
    """
    hidden = int(anchor.shape[-1])
    wide, tall = (inner, hidden), (hidden, inner)
    gates = [parameters.array(f"{prefix}.{expert}.gate_proj.weight", wide) for expert in range(count)]
    ups = [parameters.array(f"{prefix}.{expert}.up_proj.weight", wide) for expert in range(count)]
    downs = [parameters.array(f"{prefix}.{expert}.down_proj.weight", tall) for expert in range(count)]

    def gates_and_ups_in_turns() -> Numbers:
        stacked = np.empty((count, inner, 2, hidden), np.float32)
        for expert in range(count):
            stacked[expert, :, 0] = gates[expert].read()
            stacked[expert, :, 1] = ups[expert].read()
        return stacked.reshape(count, 2 * inner, hidden)

    def stacked_downs() -> Numbers:
        return np.stack([down.read() for down in downs])

    def shape(rows: int, width: int) -> tuple[int, int, int]:
        pieces = _pieces(rows, width) if in_pieces else 1
        return count * pieces, rows // pieces, width

    up_shape, down_shape = shape(2 * inner, hidden), shape(hidden, inner)
    gate_up = parameters.made(
        anchor, f"{prefix}.gate_proj+up_proj.weight", up_shape, lambda: gates_and_ups_in_turns().reshape(up_shape)
    )
    down = parameters.made(
        anchor, f"{prefix}.down_proj.weight", down_shape, lambda: stacked_downs().reshape(down_shape)
    )
    return Experts(gate_up, down)


def _pieces(rows: int, width: int) -> int:
    """Return into how many equal pieces to cut a matrix: the fewest that are no larger than ``PIECE``."""
    return next(n for n in range(1, rows + 1) if rows % n == 0 and (rows // n * width <= PIECE or n == rows))


def mixture(routing: Routing, experts: Experts, h: Tensor, chosen: Tensor, weights: Tensor) -> Tensor:
    """Return the weighted sum of the chosen experts' outputs, ``float32 (n, hidden)``.

    Args:
        routing: How tokens chose.
        experts: The layer's experts.
        h: ``float32 (n, hidden)``.
        chosen: ``int64 (n, chosen)``.
        weights: ``float32 (n, chosen)``.

    Spec: com.microsoft::MoE-1. It chooses by itself, and normalises: it is given the logarithms of the weights, so
        that it
    finds the same experts and the same proportions, and its result is multiplied by what the weights sum to.
    """
    floor = ops.expand(ops.constant(UNCHOSEN, dtype=float32, anchor=h), [h.shape[0], routing.n_experts])
    router = ops.scatter_elements(floor, chosen, ops.log(ops.maximum(weights, LEAST)), axis=1)
    mixed = microsoft.moe(h, router.astype(h.dtype), experts.gate_up, experts.down, k=routing.n_chosen)
    return mixed * ops.reduce_sum(weights, -1, keepdims=True).astype(h.dtype)


def portable_mixture(routing: Routing, experts: Experts, h: Tensor, chosen: Tensor, weights: Tensor) -> Tensor:
    """Return the same as ``mixture`` by ai.onnx operators: piece after piece, so that only chosen experts are read.

    Spec: ai.onnx::Scan.
    """
    hidden, inner = int(h.shape[-1]), int(experts.down.shape[2])
    per_choice = ops.expand(ops.unsqueeze(h, 1), [h.shape[0], routing.n_chosen, hidden])
    which = ops.reshape(chosen, [-1])  # (n * chosen,)
    both = _through_chosen(routing, experts.gate_up, which, ops.reshape(per_choice, [-1, hidden]))
    gate, up = ops.split(ops.reshape(both, [-1, inner, 2]), [1, 1], axis=2)
    acted = ops.squeeze(nn.swiglu(gate, up), 2)  # (n * chosen, inner)
    outputs = ops.reshape(_through_chosen(routing, experts.down, which, acted), [h.shape[0], routing.n_chosen, hidden])
    return ops.reduce_sum(outputs * ops.unsqueeze(weights, 2).astype(outputs.dtype), 1)


def _through_chosen(routing: Routing, matrices: Tensor, which: Tensor, x: Tensor) -> Tensor:
    """Return each row through its expert's matrix, ``T (m, outputs)``.

    Args:
        routing: How many experts there are.
        matrices: ``T (experts * pieces, outputs / pieces, inputs)``.
        which: ``int64 (m,)``: the expert of each row.
        x: ``T (m, inputs)``.
    """
    count, rows, _ = (int(size) for size in matrices.shape)
    pieces = count // routing.n_experts
    m = which.shape[0]
    parts = ops.unsqueeze(which, 1) * pieces + ops.arange(0, pieces, anchor=x)  # (m, pieces)
    numbers = ops.expand(ops.unsqueeze(ops.arange(0, m, anchor=x), 1), [m, pieces])

    def one_piece(part: Tensor, row: Tensor) -> tuple[list[Tensor], list[Tensor]]:
        column = ops.unsqueeze(ops.gather(x, row), 1)  # (inputs, 1): onnxruntime is slow with a flat vector
        return [], [ops.squeeze(ops.matmul(ops.gather(matrices, part), column), 1)]

    _, (products,) = ops.scan(one_piece, [], [ops.reshape(parts, [-1]), ops.reshape(numbers, [-1])])
    return ops.reshape(products, [-1, pieces * rows])


def shared_and_routed(
    routing: Routing,
    parameters: Parameters,
    prefix: str,
    h: Tensor,
    inner: int,
    n_shared: int,
    residual: Tensor,
    portable: bool,
) -> Tensor:
    """Return ``residual`` with a layer's mixture added: its routed experts and, beside them, those that all tokens
    share.

    Args:
        routing: How tokens choose.
        parameters: The checkpoint.
        prefix: The module's name: ``model.layers.1.mlp``.
        h: ``float32 (n, hidden)``, normed.
        inner: Numbers per token inside an expert.
        n_shared: Shared experts; they are stored as one that is so many times as wide.
        residual: ``float32 (n, hidden)``.
        portable: Use ai.onnx operators only.
    """
    hidden = int(h.shape[-1])
    # The router is kept in float32 whatever the rest is: it decides between scores that are close.
    gate = parameters.array(f"{prefix}.gate.weight", (routing.n_experts, hidden))
    logits = ops.gemm(h.astype(float32), h.const(gate, gate.name), trans_b=True)
    bias = None
    if routing.biased:
        correction = parameters.array(f"{prefix}.gate.e_score_correction_bias", (routing.n_experts,))
        bias = h.const(correction, correction.name)
    chosen, strengths = route(routing, logits, bias)
    experts = read_experts(parameters, h, f"{prefix}.experts", routing.n_experts, inner, in_pieces=portable)
    mix = portable_mixture if portable else mixture
    x = residual + mix(routing, experts, h, chosen, strengths)
    if not n_shared:
        return x
    return feed_forward(parameters, f"{prefix}.shared_experts", h, inner * n_shared, False, x)
