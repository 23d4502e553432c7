"""An exported decoder's files: the model and the manifest that ``lazygraph.Decoder`` opens."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from lazygraph.dtypes import DType, dtype_of_onnx, float32, int64
from lazygraph.errors import ExportError, OperandError
from lazygraph.export import files
from lazygraph.export.alias import shared_memory_faults
from lazygraph.export.manifest import FILE, MODEL, Manifest, fingerprint
from lazygraph.export.saving import save
from lazygraph.export.weights import Progress
from lazygraph.memory import Lowering, Memory, shares
from lazygraph.tensor import Tensor, describe
from lazygraph.version import VERSION
from lazygraph.whole import whole

if TYPE_CHECKING:
    from onnx import ModelProto


class Remembers(Protocol):
    """What a decoder's cache tells of itself: every cache of ``lazygraph.cache`` does."""

    @property
    def max_seq_len(self) -> int:
        """The longest text, in tokens."""

    @property
    def lowering(self) -> Lowering:
        """How slots of rows are bound."""

    def memory(self) -> tuple[Memory, ...]:
        """Return every slot."""

    def outputs(self) -> dict[str, Tensor]:
        """Return what the next step needs, by name."""


def save_decoder(
    logits: Tensor,
    cache: Remembers,
    folder: str | os.PathLike[str],
    *,
    model_type: str = "hand-made",
    source: str = "",
    max_position: int | None = None,
    stop_ids: Sequence[int] = (),
    compute: DType = float32,
    external: bool | None = None,
    target: str = "cpu",
    source_lines: bool = False,
    progress: Progress | None = None,
) -> Manifest:
    """Write a decoder that was built by hand, so that ``lazygraph.Decoder`` runs it; return its manifest.

    The graph's inputs are ``input_ids``, ``int64 (n,)``; ``past_len``, which the cache made; ``logits_from``,
    ``int64 ()``: the first of the n tokens whose logits are wanted; and the cache's slots. A batch has ``input_ids``,
    ``int64 (batch, n)``, and ``new_len`` beside ``past_len``; then ``lazygraph.BatchDecoder`` runs it.

    Args:
        logits: ``float32 (n - logits_from, vocab_size)``; of a batch, ``(batch, n - logits_from, vocab_size)``.
        cache: The cache after the step, made by its ``inputs``.
        folder: Where ``model.onnx``, its weights file and ``manifest.json`` go; made where it is missing.
        model_type: What it is, for people.
        source: Where it comes from, for people.
        max_position: The longest text that the model was trained for, in tokens; that of the cache when None.
        stop_ids: Token ids that end a text.
        compute: Element type of the arithmetic, for people.
        external: As for ``lazygraph.save``.
        target: The provider that must be able to run it.
        source_lines: As for ``lazygraph.save``.
        progress: As for ``lazygraph.save``.

    Raises:
        OperandError: Logits of another shape or type, inputs that a decoder does not feed, or a cache as it was before
            the step; nothing is written.
        ExportError, UnsupportedError: As for ``lazygraph.save``.
    """
    batch = _checked(logits, cache)
    place, memory = Path(folder), cache.memory()
    try:
        place.mkdir(exist_ok=True)
    except OSError as error:
        raise ExportError(f"{place} cannot be made: {error.strerror}", op="save_decoder") from error
    outputs = {"logits": logits, **cache.outputs()}
    model = save(outputs, place / MODEL, external=external, target=target, source_lines=source_lines, progress=progress)
    vocab_size = whole(logits.shape[-1])
    assert vocab_size is not None  # checked
    manifest = Manifest(
        model_type=model_type,
        source=source,
        vocab_size=vocab_size,
        max_seq_len=cache.max_seq_len,
        compute=compute.name,
        max_position=cache.max_seq_len if max_position is None else max_position,
        memory=memory,
        lowering=cache.lowering,
        stop_ids=tuple(stop_ids),
        nodes=len(model.graph.node),
        parameters=sum(prod(tensor.dims) for tensor in model.graph.initializer),
        weight_bytes=sum(dtype_of_onnx(t.data_type).nbytes(prod(t.dims)) for t in model.graph.initializer),
        fingerprint=fingerprint(place / MODEL),
        version=VERSION,
        batch=batch,
        copied=_copied(model, memory, cache.lowering),
    )
    with files.draft(place / FILE) as draft:
        draft.file.write(manifest.to_json().encode())
        draft.settle()
        draft.publish()
    return manifest


def _copied(model: ModelProto, memory: Sequence[Memory], lowering: Lowering) -> dict[str, str]:
    shared: Mapping[str, str] = {slot.source: slot.target for slot in memory if shares(slot, lowering)}
    return shared_memory_faults(model, shared)


def _checked(logits: Tensor, cache: Remembers) -> bool:
    """Return whether the graph runs several texts at once.

    Raises:
        OperandError: A decoder could not run it.
    """
    shape = logits.known_shape if isinstance(logits, Tensor) else None
    if shape is None or logits.dtype is not float32 or len(shape) not in (2, 3) or whole(shape[-1]) is None:
        raise OperandError(
            "logits of another type or shape",
            op="save_decoder",
            operands={"logits": describe(logits) if isinstance(logits, Tensor) else repr(logits)},
            expected="float32 (n - logits_from, vocab_size), of a batch with its axis before them",
        )
    batch = len(shape) == 3
    each = 1 if batch else 0
    wanted = {"input_ids": 1 + each, "past_len": each, "logits_from": 0, **({"new_len": 1} if batch else {})}
    slots = {slot.source for slot in cache.memory()}
    inputs = logits.graph.inputs
    for name, axes in wanted.items():
        given = inputs.get(name)
        if given is None or given.dtype is not int64 or given.known_shape is None or given.ndim != axes:
            raise OperandError(
                f"no input {name!r}" if given is None else f"another input {name!r}",
                op="save_decoder",
                operands={} if given is None else {name: describe(given)},
                expected=f"int64, {axes} axes" if axes else "one int64",
                hint=_HINTS.get(name, ""),
            )
    if missing := sorted(slots - inputs.keys()):
        raise OperandError(
            f"{missing[0]} is no input of the graph",
            op="save_decoder",
            operands={"cache": cache},
            expected="a cache whose slots are inputs",
            hint="make it with .inputs(...)",
        )
    if others := sorted(inputs.keys() - slots - wanted.keys()):
        raise OperandError(
            f"the graph has an input {others[0]!r} that no decoder feeds",
            op="save_decoder",
            operands={others[0]: describe(inputs[others[0]])},
            expected="no inputs but " + ", ".join(wanted) + " and the cache's",
        )
    before = {id(given) for given in inputs.values()}
    for name, tensor in cache.outputs().items():
        other = tensor.graph is not logits.graph
        if other or id(tensor) in before:
            raise OperandError(
                f"{name} belongs to another graph" if other else f"{name} is what it was before the step",
                op="save_decoder",
                operands={"cache": cache},
                expected="the cache that attend, append or replace returned, after the last layer",
            )
    return batch


_HINTS = {
    "logits_from": 'lg.input("logits_from", "int64", [], anchor=ids): the first token whose logits are wanted',
    "new_len": "logits (batch, n, vocab_size) are of lg.BatchCache, which makes it",
    "past_len": "the cache's .inputs(...) makes it",
}

__all__ = ["Remembers", "save_decoder"]
