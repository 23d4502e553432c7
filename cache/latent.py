"""LatentCache: what a decoder remembers, as an immutable value over tensors of one graph."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Self

from lazygraph import dims, nn, ops
from lazygraph.cache.fitting import buffers_given, cast_to_slots, check_room, check_step, listed, rows_given
from lazygraph.cache.layout import CacheLayout, layout
from lazygraph.cache.reading import CacheStep, Mix
from lazygraph.cache.state import State, graph_of, row_index, zeros
from lazygraph.dims import Size, SizeLike
from lazygraph.dtypes import DTypeLike, float32
from lazygraph.errors import (
    CacheError,
    CacheLayerError,
    CacheStepError,
)
from lazygraph.memory import Lowering, Memory
from lazygraph.ops.shaping import sizes_tensor
from lazygraph.tensor import Graph, Shape, Tensor
from lazygraph.whole import whole


class LatentCache:
    """An N-slot decode cache: per layer an ordered list of slots, each ``[max_seq_len, *trailing]``.

    DeepSeek's latent attention is ``slot_trailing=[[kv_lora_rank], [qk_rope_head_dim]]``, a single retained projection
    ``[[width]]``, plain keys and values two equal ones (:class:`KvCache`). A cache is an immutable value: ``append``
    and ``advance_by`` return new ones, an old one stays valid, and two continuations of one cache are both right.

    Args:
        anchor: A tensor of the graph that the cache joins.
        n_layers: Layers, at least 1.
        max_seq_len: Capacity in rows (tokens), at least 1.
        slot_trailing: Per slot, the sizes of one row; an empty list is a row of one number.
        dtype: float32, float64, float16, bfloat16, int8, uint8 or an fp8 type; or a list, one per slot.
        position: Rows that count already.
        buffers: ``[layer][slot]`` tensors to continue from; zeros (a few bytes in a file) when left out.
        slot_names: Per slot, its name in files.

    Raises:
        CacheError: Fewer than one layer, row or slot; a position outside ``[0, max_seq_len]``.
        SlotShapeError: A trailing size below 1, or a buffer of another shape.
    """

    def __init__(
        self,
        anchor: Tensor | Graph,
        n_layers: int,
        max_seq_len: int,
        slot_trailing: Sequence[Sequence[int]],
        dtype: DTypeLike | Sequence[DTypeLike] = float32,
        *,
        position: int = 0,
        buffers: Sequence[Sequence[Tensor]] | None = None,
        slot_names: Sequence[str] | None = None,
    ) -> None:
        declared = layout(n_layers, max_seq_len, slot_trailing, dtype, slot_names)
        start = whole(position)
        if start is None or not 0 <= start <= declared.max_seq_len:
            raise CacheError(
                f"position {position!r} of {declared.max_seq_len} rows",
                op="LatentCache",
                expected=f"an int in [0, {declared.max_seq_len}]",
                wanted=declared.max_seq_len,
                got=position,
            )
        graph = graph_of(anchor)
        filled = zeros(graph, declared) if buffers is None else buffers_given(graph, declared, buffers)
        self._state = State(declared, filled, start, (0,) * declared.n_layers, None, False, "buffer")

    @classmethod
    def inputs(
        cls,
        anchor: Tensor | Graph,
        n_layers: int,
        max_seq_len: int,
        slot_trailing: Sequence[Sequence[int]],
        dtype: DTypeLike | Sequence[DTypeLike] = float32,
        position: str = "past_len",
        *,
        slot_names: Sequence[str] | None = None,
        lowering: Lowering = "buffer",
    ) -> Self:
        """Return a cache whose buffers and position are graph inputs: one graph for every step and chunking.

        Inputs are ``past.<layer>.<slot>`` and the position, ``int64 ()``; :meth:`outputs` names what comes back as
        ``present.<layer>.<slot>``. Keeping the position in bounds is the duty of whoever runs the graph.

        Args:
            anchor: A tensor of the graph that the cache joins.
            n_layers: Layers.
            max_seq_len: Capacity in rows.
            slot_trailing: Per slot, the sizes of one row.
            dtype: Element type, or one per slot.
            position: Name of the input that holds the rows that count already.
            slot_names: Per slot, its name in files.
            lowering: ``buffer`` binds whole buffers ``[max_seq_len, ...]`` and slices the rows that count; ``view``
                leaves the number of rows bound to the caller (at least the rows that count after the step), who saves
                the slice; rows beyond are masked (:meth:`causal_mask`).
        """
        declared = layout(n_layers, max_seq_len, slot_trailing, dtype, slot_names)
        graph = graph_of(anchor)
        ops.size_input(position, graph, 0, declared.max_seq_len)
        length = graph.size(position)
        rows = declared.max_seq_len if lowering == "buffer" else graph.size(dims.size("rows", 1, declared.max_seq_len))
        buffers = tuple(
            tuple(
                graph.input(f"past.{layer}.{name}", kept, (rows, *sizes))
                for name, kept, sizes in zip(declared.slot_names, declared.dtypes, declared.trailing, strict=True)
            )
            for layer in range(declared.n_layers)
        )
        return cls._of(State(declared, buffers, length, (0,) * declared.n_layers, None, True, lowering))

    @classmethod
    def _of(cls, state: State) -> Self:
        cache = cls.__new__(cls)
        cache._state = state
        return cache

    # ---- what it is ----

    @property
    def layout(self) -> CacheLayout:
        """The declaration: layers, capacity, slots, dtype, bytes."""
        return self._state.layout

    @property
    def n_layers(self) -> int:
        """Layers."""
        return self.layout.n_layers

    @property
    def n_slots(self) -> int:
        """Slots per layer."""
        return self.layout.n_slots

    @property
    def max_seq_len(self) -> int:
        """Capacity, in rows."""
        return self.layout.max_seq_len

    @property
    def current_seq_len(self) -> Size:
        """Rows that count: those advanced over. An int, or a named size when the position comes at run time."""
        return self._state.length

    @property
    def lowering(self) -> Lowering:
        """How the buffers are bound."""
        return self._state.lowering

    def slot_trailing(self, slot: int) -> tuple[int, ...]:
        """Return the sizes of one row of the slot."""
        return self.layout.trailing[self.layout.check_slot("slot_trailing", slot)]

    def __repr__(self) -> str:
        declared = self.layout
        length = str(self.current_seq_len)
        slots = " + ".join(
            f"{name} {list(sizes)}" for name, sizes in zip(declared.slot_names, declared.trailing, strict=True)
        )
        return (
            f"{type(self).__name__}({declared.n_layers} layers x ({slots}) {declared.dtype}, "
            f"{f'({length})' if ' ' in length else length}/{declared.max_seq_len} rows, {declared.nbytes:,} bytes)"
        )

    # ---- writing ----

    def append(self, layer: int, slots: Sequence[Tensor]) -> Self:
        """Return the cache with rows written to one layer at the current position; call once per layer and step.

        Args:
            layer: The layer, from 0.
            slots: One tensor per slot, ``T (seqlen_new, *trailing)``. Zero rows return an equal cache.

        Raises:
            CacheLayerError: No such layer.
            SlotCountError: Not one tensor per slot.
            SlotShapeError: A tensor is not ``[seqlen_new, *trailing]``.
            SeqLenMismatchError: The slots bring different numbers of rows.
            SlotDTypeError: Another element type.
            SlotGraphError: Another graph.
            CacheStepError: The layer has rows of this step already.
            CacheOverflowError: No room, or room that cannot be decided.

        Spec: ai.onnx::ScatterND, one per slot.
        """
        state = self._state
        layer = state.layout.check_layer("append", layer)
        given = listed(self, state.layout, layer, slots)
        count = rows_given(self, state.layout, state.buffers[0][0].graph, layer, given)
        if count == 0:
            return self
        check_step(self, state.pending, layer, count)
        self._check_room("append", layer, count)

        index = state.index if state.index is not None else row_index(state, count)
        written = self._written(layer, given, index)
        return self._of(
            replace(
                state,
                buffers=(*state.buffers[:layer], written, *state.buffers[layer + 1 :]),
                pending=(*state.pending[:layer], count, *state.pending[layer + 1 :]),
                index=index,
            )
        )

    def _written(self, layer: int, given: Sequence[Tensor], index: Tensor) -> tuple[Tensor, ...]:
        old = self._state.buffers[layer]
        return tuple(ops.scatter_nd(buffer, index, new) for buffer, new in zip(old, given, strict=True))

    def advance_by(self, n: SizeLike, layers: Sequence[int] | None = None) -> Self:
        """Return the cache with the rows of this step counted; call once per step, after the last layer.

        Args:
            n: Rows, exactly what every layer (or each of ``layers``) was given since the last advance; 0 changes
                nothing.
            layers: The layers that take part, where some share or skip; the others must have nothing pending.

        Raises:
            CacheStepError: A layer was given another number of rows, or ``n`` is negative.
            CacheLayerError: No such layer.
            CacheOverflowError: The rows would pass the end.
        """
        state = self._state
        count = self._step_size(n)
        if count == 0:
            return self
        taking_part = self._taking_part(layers)
        for layer in range(self.n_layers):
            wanted = count if layer in taking_part else 0
            if dims.equal(state.pending[layer], wanted) is not True:
                raise CacheStepError(
                    f"layer {layer} was given {state.pending[layer]} rows since the last advance, not {wanted}",
                    op="advance_by",
                    operands={"cache": repr(self), "n": count},
                    expected="every layer appended exactly n rows"
                    if layers is None
                    else "each of `layers` appended exactly n rows, the others none",
                    layer=layer,
                    wanted=wanted,
                    got=state.pending[layer],
                )
        if not taking_part:
            raise CacheStepError(
                "no layer takes part", op="advance_by", expected="at least one layer", wanted=count, got=0
            )
        self._check_room("advance_by", None, count)
        return self._of(replace(state, length=dims.add(state.length, count), pending=(0,) * self.n_layers, index=None))

    # ---- attention ----

    def step(self, n: SizeLike) -> CacheStep:
        """Return what all layers of a step of ``n`` new rows share; call once, before the step's first layer.

        Args:
            n: New rows, exactly what each layer will be given.
        """
        mask = nn.additive_mask(self.causal_mask(n))
        return CacheStep(self.positions(n), (mask,) * self.n_layers)

    def attend(self, layer: int, slots: Sequence[Tensor], step: CacheStep, mix: Mix) -> tuple[Tensor, Self]:
        """Return one layer's attention over what it remembers and its new rows, and the cache with those rows.

        This is all that a model calls: it knows neither the kind of cache, nor its lowering, nor what rows are kept in.

        Args:
            layer: The layer, from 0.
            slots: The new rows, one tensor per slot, ``T (n, *trailing)`` in the type that attention computes in; they
                are kept in the cache's own.
            step: What the step's layers share (:meth:`step`).
            mix: Called once with the rows of every slot, in the type of ``slots``, and the mask of their columns:
                ``lambda rows, mask: nn.attention(q, rows[0], rows[1], mask, scale)``. A slot's rows come as one
                tensor, or as several that follow each other; :func:`lazygraph.nn.attention` and latent attention take
                both.

        Raises:
            CacheError: As for :meth:`append`.
        """
        given = listed(self, self.layout, layer, slots)
        after = self.append(layer, cast_to_slots(self.layout, given))
        rows = [after.slot(layer, slot, include_pending=True).astype(tensor.dtype) for slot, tensor in enumerate(given)]
        return mix(rows, step.masks[layer]), after

    # ---- reading ----

    def slot(self, layer: int, slot: int, include_pending: bool = False) -> Tensor:
        """Return the rows of a slot that count, at least one: ``T (rows, *trailing)``.

        The one row of an empty cache keeps the result a proper tensor; mask it, never attend it.

        Args:
            layer: The layer.
            slot: The slot.
            include_pending: Give the rows appended but not yet advanced too: what attention in the same step wants.

        Raises:
            CacheLayerError: No such layer or slot.

        Spec: ai.onnx::Slice ``[0:rows]`` on axis 0; lowered as view, the bound rows themselves.
        """
        state = self._state
        buffer = self.slot_buffer_full(layer, slot)
        if state.lowering == "view":
            return buffer
        pending = state.pending[int(layer)] if include_pending else 0
        rows = dims.largest(1, dims.add(state.length, pending))
        if rows == state.layout.max_seq_len:
            return buffer
        ends = sizes_tensor("slot", [rows], buffer)
        trailing: Shape = buffer.shape[1:]
        graph = buffer.graph
        # Emitted with the shape that the contract promises: that the rows stay within the capacity is checked before
        # (integer position) or by whoever runs the graph, and needs no min() in every size downstream.
        operands = (buffer, graph.ints((0,)), ends, graph.ints((0,)))
        return graph.emit("Slice", operands, {}, [(buffer.dtype, (rows, *trailing))])[0]

    def slot_buffer_full(self, layer: int, slot: int) -> Tensor:
        """Return the whole buffer of a slot, ``T (max_seq_len, *trailing)``; rows beyond the length mean nothing.

        Raises:
            CacheLayerError: No such layer or slot.
        """
        layer = self.layout.check_layer("slot", layer)
        return self._state.buffers[layer][self.layout.check_slot("slot", slot)]

    def causal_mask(self, n: SizeLike) -> Tensor:
        """Return which rows each of ``n`` new rows may attend, ``bool (n, rows)``; True where visible.

        Row ``j`` is visible to new row ``i`` iff ``j <= length + i``, with the length before this step. The rows are
        those that ``slot(..., include_pending=True)`` gives after ``n`` rows were appended.
        """
        state = self._state
        buffer = state.buffers[0][0]
        count = buffer.graph.size(n)
        rows = buffer.shape[0] if state.lowering == "view" else dims.largest(1, dims.add(state.length, count))
        columns = ops.arange(0, rows, anchor=buffer)  # (rows,)
        last = ops.arange(state.length, dims.add(state.length, count), anchor=buffer)  # (n,)
        return columns <= ops.unsqueeze(last, 1)

    def positions(self, n: SizeLike) -> Tensor:
        """Return the positions of the next ``n`` rows, ``int64 (n,)``: ``length, length + 1, ...``."""
        buffer = self._state.buffers[0][0]
        length = self._state.length
        return ops.arange(length, dims.add(length, buffer.graph.size(n)), anchor=buffer)

    def outputs(self) -> dict[str, Tensor]:
        """Return every buffer under its output name, ``present.<layer>.<slot>``, for saving beside the results."""
        return {
            f"present.{layer}.{name}": buffer
            for layer, buffers in enumerate(self._state.buffers)
            for name, buffer in zip(self.layout.slot_names, buffers, strict=True)
        }

    def memory(self) -> tuple[Memory, ...]:
        """Return what whoever runs the graph must keep between two runs: every slot of every layer."""
        return self.layout.memory()

    # ---- checks ----

    def _check_room(self, op: str, layer: int | None, count: Size) -> None:
        state = self._state
        check_room(self, op, layer, state.length, count, self.max_seq_len, state.runtime)

    def _taking_part(self, layers: Sequence[int] | None) -> list[int]:
        if layers is None:
            return list(range(self.n_layers))
        if not isinstance(layers, Iterable):
            raise CacheLayerError(
                f"layers is {layers!r}", op="advance_by", expected="a list of layers, or None for all", got=layers
            )
        return sorted({self.layout.check_layer("advance_by", layer) for layer in layers})

    def _step_size(self, n: SizeLike) -> Size:
        number = whole(n)
        if isinstance(n, bool) or (number is not None and number < 0):
            raise CacheStepError(
                f"advance by {n!r} rows", op="advance_by", expected="a size of at least 0", wanted=0, got=n
            )
        return self._state.buffers[0][0].graph.size(n)
