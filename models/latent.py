"""The decoder that DeepSeek V2 and V3 share: latent attention, dense first layers, then mixtures of experts.

The cache keeps, per token and layer, the latent after its norm (slot ``c_kv``) and the shared rotary key after
rotation (slot ``k_pe``). The rotary parts of queries and keys are kept in the half layout, whatever the checkpoint
has: adjacent pairs are brought into it by reordering the rows of the weights that make them, queries and keys alike,
    so scores are
unchanged.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from lazygraph import latent, nn, ops
from lazygraph.attending import Rows
from lazygraph.cache import CacheStep, Code
from lazygraph.models.checkpoint import WeightsUse
from lazygraph.models.experts import Routing, shared_and_routed
from lazygraph.models.linears import Part, feed_forward, head, projection
from lazygraph.models.parameters import Numbers, Parameters
from lazygraph.models.program import BuildOptions, DecoderGraph
from lazygraph.models.rope import Rope
from lazygraph.models.step import Cache, rotation, tokens_and_cache, wanted_rows
from lazygraph.scopes import scope
from lazygraph.tensor import Tensor

Order = np.ndarray[Any, np.dtype[np.int64]]

# The norms inside attention have an epsilon of their own in the reference, whatever rms_norm_eps is.
INNER_EPS = 1e-6


@dataclass(frozen=True)
class LatentDecoder:
    """What a config says, checked.

    Attributes:
        hidden_size: Numbers per token between layers.
        n_layers: Layers.
        n_heads: Heads.
        q_rank: Rank of the queries' own compression; None for none.
        kv_rank: Numbers of a latent.
        nope: Numbers per query head that meet latents.
        rope_dim: Numbers per query head that rotate.
        v: Numbers per value head.
        intermediate_size: Inside the dense layers' feed-forward.
        expert_size: Inside an expert.
        n_shared: Shared experts.
        first_dense: Layers before the first mixture.
        routing: How tokens choose experts; None where all layers are dense.
        vocab_size: Tokens.
        eps: Added to the mean of squares in norms.
        rope: The rotation.
        interleaved: Whether the checkpoint rotates adjacent pairs.
        scale: Multiplies scores.
        bias: Whether attention's outer projections add biases.
        mlp_bias: Whether feed-forwards add biases.
        tied: Whether the config ties head and embedding.
        max_position: Longest sequence of the training, in tokens.
    """

    hidden_size: int
    n_layers: int
    n_heads: int
    q_rank: int | None
    kv_rank: int
    nope: int
    rope_dim: int
    v: int
    intermediate_size: int
    expert_size: int
    n_shared: int
    first_dense: int
    routing: Routing | None
    vocab_size: int
    eps: float
    rope: Rope
    interleaved: bool
    scale: float
    bias: bool
    mlp_bias: bool
    tied: bool
    max_position: int


def decoder_graph(model: LatentDecoder, weights: WeightsUse, options: BuildOptions) -> DecoderGraph:
    """Return the decoder's graph.

    Args:
        model: What the config says.
        weights: The checkpoint's tensors, under Hugging Face's names.
        options: What the user chose.

    Raises:
        WeightsError: A tensor has another shape. Missing ones are reported by ``weights.finish()``.
    """
    parameters, precision, capacity = Parameters(weights, options.precision), options.precision, options.max_seq_len
    slots = {"c_kv": [model.kv_rank], "k_pe": [model.rope_dim]}
    ids, tokens, cache = tokens_and_cache(model.n_layers, slots, options)
    logits_from = ops.size_input("logits_from", ids, 0, capacity)
    table = parameters.kept(ids, parameters.array("model.embed_tokens.weight", (model.vocab_size, model.hidden_size)))
    with scope("step"):
        reading = cache.step("n")
        cos, sin = rotation(reading, model.rope, precision.compute)
        many = None
        if options.mla == "auto":
            from_tokens = latent.cheaper_expanded_from(model.kv_rank, model.nope, model.v)
            many = ops.size_tensor(ids.shape[-1], ids) >= min(from_tokens, capacity + 1)
    step = Step(cos, sin, reading, options.mla, many, options.portable)

    x = ops.gather(table, tokens).astype(precision.compute)  # (tokens, hidden)
    for layer in range(model.n_layers):
        with scope(f"layers.{layer}"):
            x, cache = _attention(model, parameters, layer, x, cache, step)
            x = _feed_forward(model, parameters, layer, x, step)

    with scope("head"):
        logits, note = head(parameters, wanted_rows(x, ids, logits_from), table, model.eps, model.tied)
    expanded = model.n_heads * (model.nope + model.rope_dim + model.v)
    kept = model.kv_rank + model.rope_dim
    of = options.kept.dtype if isinstance(options.kept, Code) else options.kept
    held = [f"{count:,} ({of.nbytes(count):,} bytes)" for count in (kept, expanded)]
    size_note = f"numbers in the cache per token and layer: {held[0]}; expanded it would be {held[1]}"
    return DecoderGraph(
        logits, cache.advance_by("n"), model.vocab_size, model.max_position, (note, size_note), options.batch
    )


@dataclass(frozen=True)
class Step:
    """What all layers of a step share.

    Attributes:
        cos: ``T (n, 1, rope)``.
        sin: The same; negative in its first half.
        reading: Which rows each token may attend.
        mla: How latent attention computes.
        many: For ``auto``, whether the new tokens are so many that the expanded form is cheaper: ``bool ()``.
        portable: Whether experts use ai.onnx operators only.
    """

    cos: Tensor
    sin: Tensor
    reading: CacheStep
    mla: str
    many: Tensor | None
    portable: bool


def _attention(
    model: LatentDecoder, parameters: Parameters, layer: int, x: Tensor, cache: Cache, step: Step
) -> tuple[Tensor, Cache]:
    """Return ``x``, ``(n, hidden)``, with one layer's attention added, and the cache with its new rows."""
    prefix = f"model.layers.{layer}"
    attn = f"{prefix}.self_attn"
    heads, nope, turning = model.n_heads, model.nope, model.rope_dim
    h = nn.rms_norm(x, parameters.vector(x, f"{prefix}.input_layernorm.weight", model.hidden_size), model.eps)

    halves = _half_layout(turning) if model.interleaved else np.arange(turning)
    q_order = _head_rows(heads, nope, halves)
    kv_order = np.concatenate([np.arange(model.kv_rank), model.kv_rank + halves])
    kv = Part(f"{attn}.kv_a_proj_with_mqa", model.kv_rank + turning, model.bias, kv_order)
    q_size = heads * (nope + turning)
    if model.q_rank is None:
        both = projection(parameters, h, [Part(f"{attn}.q_proj", q_size, False, q_order), kv])
        q, c_kv, k_pe = ops.split(both, [q_size, model.kv_rank, turning], axis=-1)
    else:
        both = projection(parameters, h, [Part(f"{attn}.q_a_proj", model.q_rank, model.bias), kv])
        q_a, c_kv, k_pe = ops.split(both, [model.q_rank, model.kv_rank, turning], axis=-1)
        q_a = nn.rms_norm(q_a, parameters.vector(x, f"{attn}.q_a_layernorm.weight", model.q_rank), INNER_EPS)
        q = projection(parameters, q_a, [Part(f"{attn}.q_b_proj", q_size, False, q_order)])

    c_kv = nn.rms_norm(c_kv, parameters.vector(x, f"{attn}.kv_a_layernorm.weight", model.kv_rank), INNER_EPS)
    q_nope, q_pe = ops.split(ops.reshape(q, [-1, heads, nope + turning]), [nope, turning], axis=-1)
    rotated = nn.rotary(ops.concat([q_pe, ops.unsqueeze(k_pe, 1)], axis=1), step.cos, step.sin)  # (n, heads + 1, rope)
    q_pe, k_pe = ops.split(rotated, [heads, 1], axis=1)
    w_uk, w_uv = _up_projections(model, parameters, x, f"{attn}.kv_b_proj.weight")

    def mix(rows: Sequence[Rows], mask: Tensor) -> Tensor:
        turned = ops.transpose(q_pe, [1, 0, 2])
        query = latent.LatentQuery(ops.transpose(q_nope, [1, 0, 2]), turned, w_uk, w_uv, mask, model.scale)
        if step.many is not None:
            return latent.chosen(query, rows[0], rows[1], step.many)  # (n, heads * v)
        return (latent.absorbed if step.mla == "absorbed" else latent.expanded)(query, rows[0], rows[1])

    mixed, cache = cache.attend(layer, [c_kv, ops.squeeze(k_pe, 1)], step.reading, mix)
    return projection(parameters, mixed, [Part(f"{attn}.o_proj", model.hidden_size, model.bias)], x), cache


def _up_projections(model: LatentDecoder, parameters: Parameters, anchor: Tensor, name: str) -> tuple[Tensor, Tensor]:
    """Return what makes keys and values of latents: ``(heads, nope, rank)`` and ``(heads, rank, v)``."""
    heads, nope, v, rank = model.n_heads, model.nope, model.v, model.kv_rank
    both = parameters.array(name, (heads * (nope + v), rank))

    def by_head() -> Numbers:
        numbers: Numbers = both.read().reshape(heads, nope + v, rank)
        return numbers

    stem = name.removesuffix(".weight")
    w_uk = parameters.made(anchor, f"{stem}.k.weight", (heads, nope, rank), lambda: by_head()[:, :nope])
    w_uv = parameters.made(anchor, f"{stem}.v.weight", (heads, rank, v), lambda: by_head()[:, nope:].transpose(0, 2, 1))
    return w_uk, w_uv


def _half_layout(dim: int) -> Order:
    """Return the order that brings adjacent pairs into halves: 0, 2, 4, ..., 1, 3, 5, ..."""
    return np.concatenate([np.arange(0, dim, 2), np.arange(1, dim, 2)])


def _head_rows(heads: int, nope: int, halves: Order) -> Order:
    """Return the order of a query projection's rows, each head's rotary part in halves."""
    one = np.concatenate([np.arange(nope), nope + halves])
    return np.concatenate([head * len(one) + one for head in range(heads)])


def _feed_forward(model: LatentDecoder, parameters: Parameters, layer: int, x: Tensor, step: Step) -> Tensor:
    """Return ``x``, ``(n, hidden)``, with one layer's feed-forward or mixture added."""
    prefix = f"model.layers.{layer}"
    name = f"{prefix}.post_attention_layernorm.weight"
    h = nn.rms_norm(x, parameters.vector(x, name, model.hidden_size), model.eps)
    if model.routing is None or layer < model.first_dense:
        return feed_forward(parameters, f"{prefix}.mlp", h, model.intermediate_size, model.mlp_bias, x)
    return shared_and_routed(
        model.routing, parameters, f"{prefix}.mlp", h, model.expert_size, model.n_shared, x, step.portable
    )
