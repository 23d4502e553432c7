"""LatentCache: what a decoder remembers, as an immutable value over tensors of one graph."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Self

from lazygraph import dims, nn, ops
from lazygraph.cache import carrying
from lazygraph.cache.fitting import (
    buffers_given,
    cast_to_slots,
    check_advance,
    check_room,
    check_step,
    listed,
    rows_given,
)
from lazygraph.cache.layout import CacheLayout, layout
from lazygraph.cache.reading import CacheStep, Mix
from lazygraph.cache.ring import Ring
from lazygraph.cache.rows import first_rows, row_index
from lazygraph.cache.state import State, graph_of, input_state, zeros
from lazygraph.dims import Size, SizeLike
from lazygraph.dtypes import DTypeLike, float32
from lazygraph.errors import (
    CacheError,
    CacheStepError,
)
from lazygraph.memory import Lowering, Memory
from lazygraph.ops.bodies import Carried
from lazygraph.tensor import Graph, Tensor
from lazygraph.whole import whole


class LatentCache(Carried):
    """An N-slot decode cache: per layer an ordered list of slots, each ``[max_seq_len, *trailing]``.

    DeepSeek's latent attention is ``slot_trailing=[[kv_lora_rank], [qk_rope_head_dim]]``, a single retained projection
    ``[[width]]``, plain keys and values two equal ones (``KvCache``). A cache is an immutable value: ``append``
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
        self._state = self._fixed(
            anchor, layout(n_layers, max_seq_len, slot_trailing, dtype, slot_names), position, buffers
        )

    @staticmethod
    def _fixed(
        anchor: Tensor | Graph,
        declared: CacheLayout,
        position: int,
        buffers: Sequence[Sequence[Tensor]] | None,
        ring: Ring | None = None,
    ) -> State:
        """Return the state of a cache whose position is known: a graph of one step."""
        start = whole(position)
        if start is None or not 0 <= start <= declared.max_seq_len:
            raise CacheError(
                f"position {position!r} of {declared.max_seq_len} rows",
                op="LatentCache",
                expected=f"an int in [0, {declared.max_seq_len}]",
                wanted=declared.max_seq_len,
                got=position,
            )
        graph, count = graph_of(anchor), declared.n_layers
        empty = State(declared, ((),) * count, start, (0,) * count, (), False, "buffer", ring)
        rows = [empty.capacity(layer) for layer in range(count)]
        filled = zeros(graph, declared, rows) if buffers is None else buffers_given(graph, declared, buffers, rows)
        return replace(empty, buffers=filled)

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

        Inputs are ``past.<layer>.<slot>`` and the position, ``int64 ()``; ``outputs`` names what comes back as
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
                the slice; rows beyond are masked (``causal_mask``), and must hold zeros. ``concat`` takes exactly
                the rows that count, ``[past_len, ...]``, and gives back a copy with the new ones, ``[past_len + n,
                ...]``: for runtimes that expect past and present.

        Raises:
            CacheError: No such lowering; else as for the constructor.
        """
        declared = layout(n_layers, max_seq_len, slot_trailing, dtype, slot_names)
        return cls._of(input_state(anchor, declared, position, lowering))

    @classmethod
    def _of(cls, state: State) -> Self:
        cache = cls.__new__(cls)
        cache._state = state
        return cache

    def carried(self) -> tuple[Tensor, ...]:
        """Return the tensors that a loop carries from step to step: all buffers, and the position."""
        return carrying.carried(self, self._state)

    def carrying(self, tensors: Sequence[Tensor]) -> Self:
        """Return the cache that such tensors make up; its position comes at run time."""
        return self._of(carrying.carrying(self._state, tensors))

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
        return (
            f"{type(self).__name__}({declared.n_layers} layers x ({declared.slots_text}) {declared.dtype}, "
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

        Spec: ai.onnx::ScatterND, one per slot; ai.onnx::Concat where lowered so.
        """
        layer, given, count = self._checked(layer, slots)
        return self._with_rows(layer, given, count, None)

    def _checked(self, layer: int, slots: Sequence[Tensor]) -> tuple[int, tuple[Tensor, ...], Size]:
        """Return what an append was given, and how many rows: it keeps every rule, and nothing is emitted yet."""
        state = self._state
        layer = state.layout.check_layer("append", layer)
        given = listed(self, state.layout, layer, slots)
        count = rows_given(self, state.layout, state.buffers[0][0].graph, layer, given)
        if count != 0:
            check_step(self, state.pending, layer, count)
            self._check_room("append", layer, count)
        return layer, given, count

    def _with_rows(self, layer: int, given: tuple[Tensor, ...], count: Size, read: Tensor | None) -> Self:
        """Return the cache with rows written; ``read`` is what was computed from the rows as they were."""
        state = self._state
        if count == 0:
            return self
        index = state.index or self._index(count)
        written = tuple(
            self._written(layer, old, new, index, read) for old, new in zip(state.buffers[layer], given, strict=True)
        )
        return self._of(
            replace(
                state,
                buffers=(*state.buffers[:layer], written, *state.buffers[layer + 1 :]),
                pending=(*state.pending[:layer], count, *state.pending[layer + 1 :]),
                index=index,
            )
        )

    def _index(self, count: Size) -> tuple[Tensor, ...]:
        """Return where the rows of a step go, for all layers: ``_written`` takes it."""
        return () if self.lowering == "concat" else (row_index(self._state.buffers[0][0], self._state.length, count),)

    def _written(self, layer: int, old: Tensor, new: Tensor, index: tuple[Tensor, ...], read: Tensor | None) -> Tensor:
        """Return a slot with rows written."""
        if self.lowering == "concat":
            return ops.concat([old, new], axis=0)
        return ops.scatter_nd(old, index[0], new)

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
        check_advance(self, self.layout, state.pending, count, layers)
        self._check_room("advance_by", None, count)
        return self._of(replace(state, length=dims.add(state.length, count), pending=(0,) * self.n_layers, index=()))

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
            step: What the step's layers share (``step``).
            mix: Called once with the rows of every slot, in the type of ``slots``, and the mask of their columns:
                ``lambda rows, mask: nn.attention(q, rows[0], rows[1], mask, scale)``. A slot's rows come as one
                tensor, or as several that follow each other; ``lazygraph.nn.attention`` and latent attention take
                both.

        Raises:
            CacheError: As for ``append``.
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

        Spec: ai.onnx::Slice ``[0:rows]`` on axis 0. Lowered as view, the bound rows themselves; as concat, all rows
        that there are: none of an empty cache.
        """
        state = self._state
        buffer = self.slot_buffer_full(layer, slot)
        pending = state.pending[int(layer)]
        if state.lowering == "view" or (state.lowering == "concat" and (include_pending or pending == 0)):
            return buffer
        rows = dims.add(state.length, pending if include_pending else 0)
        return first_rows(buffer, rows if state.lowering == "concat" else dims.largest(1, rows))

    def slot_buffer_full(self, layer: int, slot: int) -> Tensor:
        """Return the whole buffer of a slot, ``T (max_seq_len, *trailing)``; rows beyond the length mean nothing.

        Raises:
            CacheLayerError: No such layer or slot.
        """
        layer = self.layout.check_layer("slot", layer)
        return self._state.buffers[layer][self.layout.check_slot("slot", slot, layer)]

    def causal_mask(self, n: SizeLike) -> Tensor:
        """Return which rows each of ``n`` new rows may attend, ``bool (n, rows)``; True where visible.

        Row ``j`` is visible to new row ``i`` iff ``j <= length + i``, with the length before this step. The rows are
        those that ``slot(..., include_pending=True)`` gives after ``n`` rows were appended.
        """
        return self._visible(n, 0)

    def _visible(self, n: SizeLike, layer: int) -> Tensor:
        state = self._state
        buffer = state.buffers[layer][0]
        count = buffer.graph.size(n)
        after = dims.add(state.length, count)
        rows = {"view": buffer.shape[0], "concat": after, "buffer": dims.largest(1, after)}[state.lowering]
        columns = ops.arange(0, rows, anchor=buffer)  # (rows,)
        last = ops.arange(state.length, after, anchor=buffer)  # (n,)
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

    def _step_size(self, n: SizeLike) -> Size:
        number = whole(n)
        if isinstance(n, bool) or (number is not None and number < 0):
            raise CacheStepError(
                f"advance by {n!r} rows", op="advance_by", expected="a size of at least 0", wanted=0, got=n
            )
        return self._state.buffers[0][0].graph.size(n)
