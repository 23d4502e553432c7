"""The dense decoder that the Llama family shares: grouped-query attention, rotation, gated feed-forward.

A model file reads its config into ``DenseDecoder`` and calls ``build``.
"""

from __future__ import annotations

from dataclasses import dataclass

from lazygraph import nn, ops
from lazygraph.cache import CacheStep
from lazygraph.errors import WeightsError
from lazygraph.models.checkpoint import WeightsUse
from lazygraph.models.config import Config
from lazygraph.models.linears import Part, feed_forward, head, projection
from lazygraph.models.parameters import Parameters
from lazygraph.models.program import BuildOptions, DecoderGraph
from lazygraph.models.rope import Rope, read_rope
from lazygraph.models.step import Cache, Window, rotation, tokens_and_cache, wanted_rows
from lazygraph.scopes import scope
from lazygraph.tensor import Tensor


@dataclass(frozen=True)
class DenseDecoder:
    """What a config says, checked.

    Attributes:
        hidden_size: Numbers per token between layers.
        n_layers: Layers.
        n_heads: Query heads.
        n_kv_heads: Key and value heads; divides ``n_heads``.
        head_dim: Numbers per head.
        intermediate_size: Numbers per token inside the feed-forward.
        vocab_size: Tokens.
        eps: Added to the mean of squares in norms.
        rope: The rotation.
        max_position: Longest sequence of the training, in tokens.
        tied: Whether the config wants the output head to be the embedding.
        qkv_bias: Whether the query, key and value projections add a bias.
        output_bias: Whether the attention's output projection adds a bias.
        mlp_bias: Whether the feed-forward's projections add biases.
        qk_norm: Whether each query and key head is normed before rotation.
        window: Which layers slide, and over what; None for none.
    """

    hidden_size: int
    n_layers: int
    n_heads: int
    n_kv_heads: int
    head_dim: int
    intermediate_size: int
    vocab_size: int
    eps: float
    rope: Rope
    max_position: int
    tied: bool
    qkv_bias: bool
    output_bias: bool
    mlp_bias: bool
    qk_norm: bool
    window: Window | None


def read_dense(
    config: Config,
    *,
    qkv_bias: bool,
    output_bias: bool,
    mlp_bias: bool = False,
    qk_norm: bool = False,
    window: Window | None = None,
) -> DenseDecoder:
    """Return what a config of the family says. Keys are Hugging Face's own.

    Raises:
        WeightsError: A key is missing or of the wrong kind.
        UnsupportedError: A key asks for something else than this family computes.
    """
    hidden = config.integer("hidden_size")
    n_heads = config.integer("num_attention_heads")
    n_kv_heads = config.integer("num_key_value_heads", n_heads)
    if n_heads % n_kv_heads:
        raise WeightsError(
            f"{n_heads} query heads over {n_kv_heads} key heads",
            op=f"config of {config.model_type}",
            expected="num_key_value_heads that divides num_attention_heads",
        )
    if config.get("head_dim") is None and hidden % n_heads:
        raise WeightsError(
            f"hidden_size {hidden} over {n_heads} heads", op=f"config of {config.model_type}", expected="head_dim"
        )
    head_dim = config.integer("head_dim", hidden // n_heads)
    config.only("hidden_act", "silu")
    return DenseDecoder(
        hidden_size=hidden,
        n_layers=config.integer("num_hidden_layers"),
        n_heads=n_heads,
        n_kv_heads=n_kv_heads,
        head_dim=head_dim,
        intermediate_size=config.integer("intermediate_size"),
        vocab_size=config.integer("vocab_size"),
        eps=config.number("rms_norm_eps", 1e-6),
        rope=read_rope(config, head_dim),
        max_position=config.integer("max_position_embeddings", 2048),
        tied=config.flag("tie_word_embeddings", False),
        qkv_bias=qkv_bias,
        output_bias=output_bias,
        mlp_bias=mlp_bias,
        qk_norm=qk_norm,
        window=window,
    )


def every_layer(window: int | None, n_layers: int) -> Window | None:
    """Return a window that every layer slides over; None for None."""
    return None if window is None else Window(window, tuple(range(n_layers)))


def qwen_window(config: Config) -> Window | None:
    """Return which of Qwen's layers slide, and over how many tokens; None where none does.

    ``layer_types`` says it where it is given. Else, where ``use_sliding_window`` is set, the layers from
    ``max_window_layers`` on slide.

    Raises:
        UnsupportedError: A layer of another kind.
        WeightsError: ``layer_types`` is not one kind per layer, or a number is none.
    """
    n_layers = config.integer("num_hidden_layers")
    kinds = config.get("layer_types", [])
    if not isinstance(kinds, list) or not set(map(str, kinds)) <= {"full_attention", "sliding_attention"}:
        served = "a list of full_attention, sliding_attention"
        raise config.unsupported("layer_types", f"layer_types is {kinds!r}", served)
    if kinds and len(kinds) != n_layers:
        raise WeightsError(
            f"layer_types names {len(kinds)} layers of {n_layers}",
            op=f"config of {config.model_type}",
            expected="one kind per layer",
        )
    first = config.integer("max_window_layers", 28, least=0)
    used = config.flag("use_sliding_window", False)
    if kinds:
        sliding = [layer for layer, kind in enumerate(kinds) if kind == "sliding_attention"]
    else:
        sliding = list(range(first, n_layers)) if used else []
    config.get("sliding_window")  # counts as read though it is not used
    # Transformers takes 4,096 where a window is used and the key is absent; null says that there is none.
    if not sliding or config.values.get("sliding_window", 4096) is None:
        return None
    return Window(config.integer("sliding_window", 4096), tuple(sliding))


def decoder_graph(model: DenseDecoder, weights: WeightsUse, options: BuildOptions) -> DecoderGraph:
    """Return the decoder's graph.

    Args:
        model: What the config says.
        weights: The checkpoint's tensors, under Hugging Face's names.
        options: What the user chose.

    Raises:
        WeightsError: A tensor has another shape. Missing ones are reported by ``weights.finish()``.
    """
    parameters, precision, capacity = Parameters(weights, options.precision), options.precision, options.max_seq_len
    row = [model.n_kv_heads, model.head_dim]
    ids, tokens, cache = tokens_and_cache(model.n_layers, {"k": row, "v": row}, options, model.window)
    logits_from = ops.size_input("logits_from", ids, 0, capacity)
    table = parameters.kept(ids, parameters.array("model.embed_tokens.weight", (model.vocab_size, model.hidden_size)))
    with scope("step"):
        reading = cache.step("n")
        step = Step(*rotation(reading, model.rope, precision.compute), reading)

    x = ops.gather(table, tokens).astype(precision.compute)  # (tokens, hidden)
    for layer in range(model.n_layers):
        with scope(f"layers.{layer}"):
            x, cache = _attention(model, parameters, layer, x, cache, step)
            x = _feed_forward(model, parameters, layer, x)

    with scope("head"):
        logits, note = head(parameters, wanted_rows(x, ids, logits_from), table, model.eps, model.tied)
    return DecoderGraph(logits, cache.advance_by("n"), model.vocab_size, model.max_position, (note,), options.batch)


@dataclass(frozen=True)
class Step:
    """What all layers of a step share.

    Attributes:
        cos: ``T (n, 1, head_dim)``.
        sin: The same; negative in its first half.
        reading: Which rows each token may attend.
    """

    cos: Tensor
    sin: Tensor
    reading: CacheStep


def _attention(
    model: DenseDecoder, parameters: Parameters, layer: int, x: Tensor, cache: Cache, step: Step
) -> tuple[Tensor, Cache]:
    """Return ``x``, ``(n, hidden)``, with one layer's attention added, and the cache with its new rows."""
    prefix = f"model.layers.{layer}"
    attn = f"{prefix}.self_attn"
    heads, kv_heads, width = model.n_heads, model.n_kv_heads, model.head_dim

    h = nn.rms_norm(x, parameters.vector(x, f"{prefix}.input_layernorm.weight", model.hidden_size), model.eps)
    sizes = {"q_proj": heads * width, "k_proj": kv_heads * width, "v_proj": kv_heads * width}
    qkv = projection(parameters, h, [Part(f"{attn}.{name}", size, model.qkv_bias) for name, size in sizes.items()])
    by_head = ops.reshape(qkv, [-1, heads + 2 * kv_heads, width])  # (n, all heads, head_dim)
    qk, v = ops.split(by_head, [heads + kv_heads, kv_heads], axis=1)
    if model.qk_norm:
        q, k = ops.split(qk, [heads, kv_heads], axis=1)
        q = nn.rms_norm(q, parameters.vector(x, f"{attn}.q_norm.weight", width), model.eps)
        k = nn.rms_norm(k, parameters.vector(x, f"{attn}.k_norm.weight", width), model.eps)
        qk = ops.concat([q, k], axis=1)
    q, k = ops.split(nn.rotary(qk, step.cos, step.sin), [heads, kv_heads], axis=1)

    scale = width**-0.5
    mixed, cache = cache.attend(
        layer, [k, v], step.reading, lambda rows, mask: nn.attention(q, rows[0], rows[1], mask, scale)
    )
    return projection(parameters, mixed, [Part(f"{attn}.o_proj", model.hidden_size, model.output_bias)], x), cache


def _feed_forward(model: DenseDecoder, parameters: Parameters, layer: int, x: Tensor) -> Tensor:
    """Return ``x``, ``(n, hidden)``, with one layer's feed-forward added."""
    prefix = f"model.layers.{layer}"
    name = f"{prefix}.post_attention_layernorm.weight"
    h = nn.rms_norm(x, parameters.vector(x, name, model.hidden_size), model.eps)
    return feed_forward(parameters, f"{prefix}.mlp", h, model.intermediate_size, model.mlp_bias, x)
