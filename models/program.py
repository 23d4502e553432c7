"""A decoder's graph as a model file returns it: what to save, and what whoever runs it must know."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from lazygraph.cache import Code, LatentCache, QuantisedCache
from lazygraph.dtypes import DType, float32
from lazygraph.memory import Lowering
from lazygraph.tensor import Tensor


@dataclass(frozen=True)
class Precision:
    """Element types of an export.

    Attributes:
        compute: What is computed in. Sums of squares, softmax and routing are computed in float32 in any case.
        stored: What weights and cache slots are kept in; they are cast to ``compute`` where they are used.
    """

    compute: DType = float32
    stored: DType = float32


@dataclass(frozen=True)
class BuildOptions:
    """What a user chooses of an export.

    Attributes:
        max_seq_len: Capacity of the cache, in tokens.
        mla: How latent attention computes: ``absorbed`` (cheapest for few new tokens), ``expanded`` (for many), or
            ``auto`` (both, chosen by the number of new tokens on each run).
        portable: Use ai.onnx operators only, none of onnxruntime's own.
        precision: Element types.
        batch: Run several texts at once, each with a position of its own.
        cache_dtype: What rows of the cache are kept in: an element type, or a code; as weights when None.
        lowering: How the cache is bound: ``view`` (the rows that count, in place), ``buffer`` (all of it, in place) or
            ``concat`` (past in, present out).
    """

    max_seq_len: int
    mla: Literal["absorbed", "expanded", "auto"] = "auto"
    portable: bool = False
    precision: Precision = Precision()
    batch: bool = False
    cache_dtype: DType | Code | None = None
    lowering: Lowering = "view"

    @property
    def kept(self) -> DType | Code:
        """What rows of the cache are kept in."""
        return self.cache_dtype or self.precision.stored


@dataclass(frozen=True)
class DecoderGraph:
    """One graph for prefill, every decode step and any chunking.

    Inputs are ``input_ids`` int64 ``(n,)``, ``past_len`` int64 ``()``, ``logits_from`` int64 ``()`` (the first of the n
    rows whose logits are wanted) and the cache's ``past.*``; outputs are ``logits`` and ``present.*``. A batch has
    ``input_ids`` ``(batch, n)``, padded on the left, ``past_len`` ``(batch,)`` and ``new_len`` ``(batch,)``.

    Attributes:
        logits: ``float32 (n - logits_from, vocab)``; of a batch, ``(batch, n - logits_from, vocab)``.
        cache: The cache after the step.
        vocab_size: Token ids are in ``[0, vocab_size)``.
        max_position: The longest sequence that the model was trained for, in tokens.
        notes: What a user should know: tied embeddings, ignored layers and the like.
        batch: Whether the graph runs several texts at once.
    """

    logits: Tensor
    cache: LatentCache | QuantisedCache
    vocab_size: int
    max_position: int
    notes: tuple[str, ...] = field(default=())
    batch: bool = False

    def outputs(self) -> dict[str, Tensor]:
        """Return everything to save, by name."""
        return {"logits": self.logits, **self.cache.outputs()}
