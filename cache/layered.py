"""LayeredCache: a decoder whose layers remember different things."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Self

from lazygraph import dims, ops
from lazygraph.cache.fitting import cast_to_slots, check_room, check_step, listed, rows_given
from lazygraph.cache.latent import LatentCache
from lazygraph.cache.layer_rows import fixed_layers, input_layers, memory_of, rows_cache
from lazygraph.cache.layers import (
    Declared,
    Held,
    Layers,
    check_advance,
    layer_of,
    layers_chosen,
    slot_of,
    tensors_given,
)
from lazygraph.cache.parts import Window
from lazygraph.cache.reading import CacheStep, Mix
from lazygraph.dims import Size, SizeLike
from lazygraph.errors import CacheLayerError, CacheStepError
from lazygraph.memory import Kind, Lowering, Memory
from lazygraph.tensor import Graph, Tensor
from lazygraph.whole import whole


class LayeredCache:
    """A cache whose layers declare their own slots, each a part or a list of parts: Rows, Window, State, Once.

    All slots of rows share one position. It keeps the contract of ``LatentCache``: an immutable value, every
    check before anything is emitted.

    Args:
        anchor: A tensor of the graph that the cache joins.
        max_seq_len: Capacity of slots of rows, in rows (tokens), at least 1.
        layers: What each layer remembers.
        position: Rows that count already.
        buffers: Per layer, the tensors to continue from, whole, by slot name; zeros when left out. Slots that are
            filled once may be missing: :meth:`fill` gives them later.

    Raises:
        CacheError: No layer, a capacity below 1, a position outside ``[0, max_seq_len]``.
        SlotCountError: A layer without slots, with two parts of one kind, or with two slots of one name; or buffers
            for other slots.
        SlotShapeError: A size below 1, or a buffer of another shape.
    """

    def __init__(
        self,
        anchor: Tensor | Graph,
        max_seq_len: int,
        layers: Layers,
        *,
        position: int = 0,
        buffers: Sequence[Mapping[str, Tensor]] | None = None,
    ) -> None:
        self._state = fixed_layers(anchor, max_seq_len, layers, position, buffers)

    @classmethod
    def inputs(
        cls,
        anchor: Tensor | Graph,
        max_seq_len: int,
        layers: Layers,
        position: str = "past_len",
        *,
        lowering: Lowering = "buffer",
    ) -> Self:
        """Return a cache whose slots and position are graph inputs: one graph for every step and chunking.

        Inputs are ``past.<layer>.<slot>`` and the position, ``int64 ()``. Slots filled once are inputs too.

        Args:
            anchor: A tensor of the graph that the cache joins.
            max_seq_len: Capacity of slots of rows.
            layers: What each layer remembers.
            position: Name of the input that holds the rows that count already.
            lowering: How slots of rows are bound.

        Raises:
            CacheError: No such lowering; else as for the constructor.
        """
        return cls._of(input_layers(anchor, max_seq_len, layers, position, lowering))

    @classmethod
    def _of(cls, state: Held) -> Self:
        cache = cls.__new__(cls)
        cache._state = state
        return cache

    # ---- what it is ----

    @property
    def n_layers(self) -> int:
        """Layers."""
        return self._state.n_layers

    @property
    def max_seq_len(self) -> int:
        """Capacity of slots of rows, in rows."""
        return self._state.max_seq_len

    @property
    def current_seq_len(self) -> Size:
        """Rows that count: those advanced over. An int, or a named size when the position comes at run time."""
        return self._state.length

    @property
    def lowering(self) -> Lowering:
        """How slots of rows are bound."""
        return self._state.lowering

    def slot_names(self, layer: int) -> tuple[str, ...]:
        """Return the names of a layer's slots, in the order in which they were declared."""
        layer = self._layer("slot_names", layer)
        own = [one.layout for (at, _), one in self._state.declared.items() if at == layer]
        return tuple(name for declared in own for name in declared.slot_names)

    def memory(self) -> tuple[Memory, ...]:
        """Return what a runtime keeps between two runs: an entry per slot of every layer."""
        return tuple(
            memory_of(layer, name, sizes, one)
            for (layer, _), one in self._state.declared.items()
            for name, sizes in zip(one.layout.slot_names, one.layout.trailing, strict=True)
        )

    def __repr__(self) -> str:
        length = str(self.current_seq_len)
        nbytes = sum(memory.nbytes for memory in self.memory())
        return (
            f"{type(self).__name__}({self.n_layers} layers of their own slots, "
            f"{f'({length})' if ' ' in length else length}/{self.max_seq_len} rows, {nbytes:,} bytes)"
        )

    # ---- writing ----

    def append(self, layer: int, slots: Sequence[Tensor]) -> Self:
        """Return the cache with rows written to one layer at the current position; call once per layer and step.

        Args:
            layer: The layer, from 0.
            slots: One tensor per slot of the layer's Rows or Window, ``T (seqlen_new, *trailing)``. Zero rows return an
                equal cache.

        Raises:
            CacheLayerError: No such layer, or it keeps no rows.
            CacheError: As for ``LatentCache.append``.

        Spec: ai.onnx::ScatterND, one per slot; ai.onnx::Concat where lowered so.
        """
        layer, given, count = self._checked(layer, slots)
        return self if count == 0 else self._with_rows(layer, self._rows(layer).append(0, given), count)

    def attend(self, layer: int, slots: Sequence[Tensor], step: CacheStep, mix: Mix) -> tuple[Tensor, Self]:
        """Return one layer's attention over its rows and the new ones, and the cache with them.

        Args:
            layer: The layer, from 0.
            slots: As for ``append``, in the type that attention computes in.
            step: What the step's layers share (``step``).
            mix: Attention over the rows of every slot (see ``LatentCache.attend``).

        Raises:
            CacheError: As for ``append``.
        """
        number, one = self._part("append", layer, self._kind(layer))
        given = listed(self, one.layout, number, slots)
        _, _, count = self._checked(number, cast_to_slots(one.layout, given))
        own = CacheStep(step.positions, (step.masks[number],))
        mixed, after = self._rows(number).attend(0, given, own, mix)
        return mixed, self._with_rows(number, after, count)

    def _checked(self, layer: int, slots: Sequence[Tensor]) -> tuple[int, tuple[Tensor, ...], Size]:
        """Return what an append was given, and how many rows: it keeps every rule, and nothing is emitted yet."""
        state = self._state
        layer, one = self._part("append", layer, self._kind(layer))
        given = listed(self, one.layout, layer, slots)
        count = rows_given(self, one.layout, state.graph, layer, given)
        if count != 0:
            check_step(self, state.pending, layer, count)
            check_room(self, "append", layer, state.length, count, self.max_seq_len, state.runtime)
        return layer, given, count

    def _kind(self, layer: int) -> Kind:
        return "window" if (layer, "window") in self._state.declared else "rows"

    def _rows(self, layer: int) -> LatentCache:
        """Return the rows of one layer as a cache of that layer alone."""
        state, place = self._state, (layer, self._kind(layer))
        counted = (state.length, state.pending[layer])
        return rows_cache(state.declared[place], state.held[place], counted, state.runtime, state.lowering)

    def _with_rows(self, layer: int, after: LatentCache, count: Size) -> Self:
        state, slots = self._state, range(after.n_slots)
        written = tuple(after.slot_buffer_full(0, slot) for slot in slots)
        pending = (*state.pending[:layer], count, *state.pending[layer + 1 :])
        return self._of(replace(state, held={**state.held, (layer, self._kind(layer)): written}, pending=pending))

    def replace(self, layer: int, slots: Sequence[Tensor]) -> Self:
        """Return the cache with one layer's state replaced; call once per layer and step.

        Args:
            layer: The layer, from 0.
            slots: One tensor per slot of the layer's ``State``, ``T`` of the sizes that were declared.

        Raises:
            CacheLayerError: No such layer, or it keeps no state.
            SlotCountError, SlotShapeError, SlotDTypeError, SlotGraphError: Not one fitting tensor per slot.
            CacheStepError: The layer's state was replaced in this step already.
        """
        state = self._state
        layer, one = self._part("replace", layer, "state")
        given = tensors_given(self, one, state.graph, layer, slots)
        if layer in state.replaced:
            raise CacheStepError(
                f"the state of layer {layer} was replaced already in this step",
                op="replace",
                operands={"cache": self},
                expected="one replace per layer between two advances",
                hint="cache.advance_by(n) ends the step, once, after the last layer",
                layer=layer,
            )
        return self._of(replace(state, held={**state.held, (layer, "state"): given}, replaced=state.replaced | {layer}))

    def fill(self, layer: int, slots: Sequence[Tensor]) -> Self:
        """Return the cache with the slots of one layer filled that are filled once.

        Args:
            layer: The layer, from 0.
            slots: One tensor per slot of the layer's ``Once``, ``T (rows, *trailing)``.

        Raises:
            CacheLayerError: No such layer, or it has nothing to fill.
            SlotCountError, SlotShapeError, SlotDTypeError, SlotGraphError: Not one fitting tensor per slot.
            CacheStepError: They are filled already, or they are graph inputs, which whoever runs the graph fills.
        """
        state = self._state
        layer, one = self._part("fill", layer, "once")
        given = tensors_given(self, one, state.graph, layer, slots)
        if (layer, "once") in state.held:
            raise CacheStepError(
                f"layer {layer} is filled already" + (": its slots are graph inputs" if state.runtime else ""),
                op="fill",
                operands={"cache": self},
                expected="slots that are filled once",
                layer=layer,
            )
        return self._of(replace(state, held={**state.held, (layer, "once"): given}))

    def advance_by(self, n: SizeLike, layers: Sequence[int] | None = None) -> Self:
        """Return the cache with this step counted; call once per step, after the last layer.

        Args:
            n: Rows, exactly what every layer that keeps rows was given since the last advance; 0 changes nothing.
            layers: The layers that take part, where some share or skip; the others must have nothing pending.

        Raises:
            CacheStepError: A layer was given another number of rows, the state of one was not replaced, or ``n`` is
                negative.
            CacheLayerError: No such layer.
            CacheOverflowError: The rows would pass the end.
        """
        state = self._state
        number = whole(n)
        if isinstance(n, bool) or (number is not None and number < 0):
            raise CacheStepError(f"advance by {n!r} rows", op="advance_by", expected="a size of at least 0", got=n)
        if (count := state.graph.size(n)) == 0:
            return self
        chosen = layers_chosen(layers, self.n_layers)
        for layer in range(self.n_layers):
            rows = count if layer in chosen and (layer, self._kind(layer)) in state.declared else 0
            due = layer in chosen and (layer, "state") in state.declared
            check_advance(self, layer, rows, state.pending[layer], due, layer in state.replaced)
        check_room(self, "advance_by", None, state.length, count, self.max_seq_len, state.runtime)
        none = (0,) * self.n_layers
        return self._of(replace(state, length=dims.add(state.length, count), pending=none, replaced=frozenset()))

    # ---- reading ----

    def slot(self, layer: int, slot: int | str, include_pending: bool = False) -> Tensor:
        """Return what a slot holds: the rows that count, at least one, or the whole of a state or of what was filled.

        Args:
            layer: The layer.
            slot: The slot's name, or its number in the layer.
            include_pending: Of rows, give those appended and not yet advanced too.

        Returns:
            ``T (rows, *trailing)``; of a state, ``T`` of its sizes. Lowered as concat an empty cache gives no rows.

        Raises:
            CacheLayerError: No such layer or slot.
            CacheStepError: A slot that is filled once, and is not.
        """
        layer, kind, number, buffer = self._buffer(layer, slot)
        return self._rows(layer).slot(0, number, include_pending) if kind in ("rows", "window") else buffer

    def slot_buffer_full(self, layer: int, slot: int | str) -> Tensor:
        """Return the whole tensor of a slot; of rows, those beyond the length mean nothing.

        Raises:
            CacheError: As ``slot``.
        """
        return self._buffer(layer, slot)[3]

    def step(self, n: SizeLike) -> CacheStep:
        """Return what all layers of a step of ``n`` new rows share; call once, before the step's first layer.

        A layer that keeps no rows has another's mask, and has no use for it.

        Raises:
            CacheLayerError: No layer keeps rows.
        """
        first, made = self._first(), dict[tuple[int, int], Tensor]()
        masks = []
        for layer in range(self.n_layers):
            own = layer if (layer, self._kind(layer)) in self._state.declared else first
            part = self._state.declared[own, self._kind(own)].part
            alike = (part.window, part.sinks) if isinstance(part, Window) else (0, 0)
            if alike not in made:
                made[alike] = self._rows(own).step(n).masks[0]
            masks.append(made[alike])
        return CacheStep(self.positions(n), tuple(masks))

    def causal_mask(self, n: SizeLike, layer: int | None = None) -> Tensor:
        """Return which rows each of ``n`` new rows of a layer, or of the first, may attend: ``bool (n, rows)``.

        Raises:
            CacheLayerError: No such layer, or no layer keeps rows.
        """
        number = self._first() if layer is None else self._part("causal_mask", layer, self._kind(layer))[0]
        return self._rows(number).causal_mask(n)

    def positions(self, n: SizeLike) -> Tensor:
        """Return the positions of the next ``n`` rows, ``int64 (n,)``."""
        state = self._state
        anchor = next(tensor for tensors in state.held.values() for tensor in tensors)
        return ops.arange(state.length, dims.add(state.length, state.graph.size(n)), anchor=anchor)

    def outputs(self) -> dict[str, Tensor]:
        """Return what the next step needs, ``present.<layer>.<slot>``; nothing of what is filled once."""
        return {
            f"present.{layer}.{name}": tensor
            for (layer, kind), one in self._state.declared.items()
            if kind != "once"
            for name, tensor in zip(one.layout.slot_names, self._state.held[layer, kind], strict=True)
        }

    # ---- checks ----

    def _layer(self, op: str, layer: int) -> int:
        return layer_of(op, layer, self.n_layers)

    def _part(self, op: str, layer: int, kind: Kind) -> tuple[int, Declared]:
        layer = self._layer(op, layer)
        if (layer, kind) not in self._state.declared:
            verbs = {k: one.part.verb for (at, k), one in self._state.declared.items() if at == layer}
            raise CacheLayerError(
                f"layer {layer} keeps no {kind}",
                op=op,
                operands={"cache": self},
                expected=f"a layer that keeps {kind}",
                hint="it keeps " + ", ".join(f"{k} ({verb})" for k, verb in verbs.items()),
                layer=layer,
            )
        return layer, self._state.declared[layer, kind]

    def _buffer(self, layer: int, slot: int | str) -> tuple[int, Kind, int, Tensor]:
        layer = self._layer("slot", layer)
        name = slot_of(self, layer, slot, self.slot_names(layer))
        kind, number = next(
            (kind, one.layout.slot_names.index(name))
            for (at, kind), one in self._state.declared.items()
            if at == layer and name in one.layout.slot_names
        )
        if (layer, kind) not in self._state.held:
            raise CacheStepError(
                f"{name} of layer {layer} is not filled",
                op="slot",
                operands={"cache": self},
                expected="cache.fill(layer, [...]) before it is read",
                layer=layer,
                slot=slot,
            )
        return layer, kind, number, self._state.held[layer, kind][number]

    def _first(self) -> int:
        for layer, kind in self._state.declared:
            if kind in ("rows", "window"):
                return layer
        raise CacheLayerError(
            "no layer keeps rows", op="causal_mask", operands={"cache": self}, expected="a layer with Rows or a Window"
        )
