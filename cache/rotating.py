"""RotatingCache: layers that remember a sliding window of the text."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Self

from lazygraph import dims, nn, ops
from lazygraph.cache.fitting import cast_to_slots
from lazygraph.cache.latent import LatentCache
from lazygraph.cache.layout import layout
from lazygraph.cache.reading import CacheStep, Mix
from lazygraph.cache.ring import Ring, after_reading, declared_ring, positions_held, rows_written, visible
from lazygraph.cache.rows import first_rows
from lazygraph.cache.state import input_state
from lazygraph.dims import Size, SizeLike
from lazygraph.dtypes import DTypeLike, float32
from lazygraph.errors import CacheError
from lazygraph.memory import Lowering, Memory
from lazygraph.tensor import Graph, Tensor


class RotatingCache(LatentCache):
    """A cache that keeps the last ``window`` rows of a text, and perhaps its first ``sinks``; memory does not grow.

    Position ``p`` lies in row ``p`` where it is a sink, and in row ``sinks + (p - sinks) mod window`` after those. A
    token sees itself, ``window - 1`` tokens before it, and the sinks; positions are those of the text.

    The contract is that of ``LatentCache``, with two differences. A chunk of several rows overwrites rows that its
    own first tokens still see, so attention is asked of ``attend``, which reads what was kept before the chunk and
    the chunk itself, and writes after that. And ``slot`` gives the rows that are kept, in the order of the ring.

    Args:
        anchor: A tensor of the graph that the cache joins.
        n_layers: Layers, at least 1.
        max_seq_len: The longest text, in tokens; capacity of the layers that do not slide.
        slot_trailing: Per slot, the sizes of one row.
        dtype: Element type, or one per slot.
        window: Rows that a sliding layer keeps, at least 1.
        sinks: First rows of the text that it keeps for good.
        layers: The layers that slide, all when left out.
        position: Rows that count already.
        buffers: ``[layer][slot]`` tensors to continue from, ``(sinks + window, *trailing)`` of a sliding layer.
        slot_names: Per slot, its name in files.

    Raises:
        CacheError: As for ``LatentCache``; or a window below 1, or sinks below 0.
        CacheLayerError: ``layers`` names one that there is not.

    Source: Longformer, Beltagy et al. 2020 (the window); Efficient Streaming Language Models, Xiao et al. 2023 (sinks).
    """

    def __init__(
        self,
        anchor: Tensor | Graph,
        n_layers: int,
        max_seq_len: int,
        slot_trailing: Sequence[Sequence[int]],
        dtype: DTypeLike | Sequence[DTypeLike] = float32,
        *,
        window: int,
        sinks: int = 0,
        layers: Collection[int] | None = None,
        position: int = 0,
        buffers: Sequence[Sequence[Tensor]] | None = None,
        slot_names: Sequence[str] | None = None,
    ) -> None:
        declared = layout(n_layers, max_seq_len, slot_trailing, dtype, slot_names)
        self._state = self._fixed(
            anchor, declared, position, buffers, declared_ring("RotatingCache", declared, window, sinks, layers)
        )

    @classmethod
    def inputs(  # type: ignore[override]  # a window has no default
        cls,
        anchor: Tensor | Graph,
        n_layers: int,
        max_seq_len: int,
        slot_trailing: Sequence[Sequence[int]],
        dtype: DTypeLike | Sequence[DTypeLike] = float32,
        position: str = "past_len",
        *,
        window: int,
        sinks: int = 0,
        layers: Collection[int] | None = None,
        slot_names: Sequence[str] | None = None,
        lowering: Lowering = "buffer",
    ) -> Self:
        """Return a cache whose buffers and position are graph inputs: one graph for every step and chunking.

        Args:
            anchor: A tensor of the graph that the cache joins.
            n_layers: Layers.
            max_seq_len: The longest text, in tokens.
            slot_trailing: Per slot, the sizes of one row.
            dtype: Element type, or one per slot.
            position: Name of the input that holds the tokens that count already.
            window: Rows that a sliding layer keeps.
            sinks: First rows that it keeps for good.
            layers: The layers that slide, all when left out.
            slot_names: Per slot, its name in files.
            lowering: Of a sliding layer: ``buffer`` binds the whole ring, ``[sinks + window, ...]``; ``view`` its first
                rows, at least ``min(past_len + n, sinks + window)``, those that hold nothing zero; ``concat`` takes the
                rows kept, oldest first, ``[min(past_len, sinks + window), ...]``, and gives them back after the step.

        Raises:
            CacheError: No such lowering; else as for the constructor.
        """
        declared = layout(n_layers, max_seq_len, slot_trailing, dtype, slot_names)
        return cls._of(
            input_state(
                anchor, declared, position, lowering, declared_ring("RotatingCache", declared, window, sinks, layers)
            )
        )

    # ---- what it is ----

    @property
    def window(self) -> int:
        """Rows that a sliding layer keeps beside its sinks."""
        return self._ring.window

    @property
    def sinks(self) -> int:
        """First rows of the text that a sliding layer keeps for good."""
        return self._ring.sinks

    @property
    def _ring(self) -> Ring:
        ring = self._state.ring
        if ring is None:  # every constructor gives one
            raise CacheError("a rotating cache without a window", op="RotatingCache")
        return ring

    def slides(self, layer: int) -> bool:
        """Return whether a layer keeps a window only.

        Raises:
            CacheLayerError: No such layer.
        """
        return self.layout.check_layer("slides", layer) in self._ring.layers

    def memory(self) -> tuple[Memory, ...]:
        """Return what whoever runs the graph must keep between two runs: every slot of every layer."""
        return self._ring.memory(super().memory())

    def __repr__(self) -> str:
        declared, length = self.layout, str(self.current_seq_len)
        nbytes = sum(slot.nbytes for slot in self.memory())
        return (
            f"{type(self).__name__}({declared.n_layers} layers x ({declared.slots_text}) {declared.dtype}, "
            f"{self._ring.text(declared.n_layers)}, {f'({length})' if ' ' in length else length}/"
            f"{declared.max_seq_len} rows, {nbytes:,} bytes)"
        )

    # ---- writing ----

    def _index(self, count: Size) -> tuple[Tensor, ...]:
        if self.lowering == "concat":
            return ()
        every = super()._index(count) if len(self._ring.layers) < self.n_layers else ()
        return (*rows_written(self._ring, self._state.length, count, self._state.buffers[0][0]), *every)

    def _written(self, layer: int, old: Tensor, new: Tensor, index: tuple[Tensor, ...], read: Tensor | None) -> Tensor:
        if layer not in self._ring.layers:
            return super()._written(layer, old, new, index[2:], read)
        if self.lowering == "concat":
            ring, both = self._ring, ops.concat([old, new], axis=0)
            if not ring.sinks:
                return both[-ring.window :]
            return ops.concat([both[: ring.sinks], both[ring.sinks :][-ring.window :]], axis=0)
        chosen, places = index[:2]
        # Where every new row is known to be kept, none is chosen.
        every = not self.sinks and dims.at_most(new.shape[0], self.window) is True
        rows = new if every else ops.gather(new, chosen)
        return ops.scatter_nd(old, places if read is None else after_reading(places, read), rows)

    # ---- attention ----

    def step(self, n: SizeLike) -> CacheStep:
        """Return what all layers of a step of ``n`` new rows share; call once, before the step's first layer.

        Args:
            n: New rows, exactly what each layer will be given.
        """
        kinds = {self.slides(layer): layer for layer in reversed(range(self.n_layers))}
        masks = {kind: nn.additive_mask(self.causal_mask(n, layer)) for kind, layer in sorted(kinds.items())}
        return CacheStep(self.positions(n), tuple(masks[self.slides(layer)] for layer in range(self.n_layers)))

    def attend(self, layer: int, slots: Sequence[Tensor], step: CacheStep, mix: Mix) -> tuple[Tensor, Self]:
        """Return one layer's attention over what it remembers and its new rows, and the cache with those rows.

        A sliding layer's rows come in two parts: those kept before, and the new ones. They are written only when
        attention is done, so that the write may go to the memory of the rows it replaces.

        Args:
            layer: The layer, from 0.
            slots: The new rows, one tensor per slot, ``T (n, *trailing)`` in the type that attention computes in.
            step: What the step's layers share (``step``).
            mix: Attention over the rows of every slot, as for ``LatentCache.attend``.

        Raises:
            CacheError: As for ``append``.
        """
        if not self.slides(layer):
            return super().attend(layer, slots, step, mix)
        wanted = tuple(slots) if isinstance(slots, Sequence) else ()
        kept_as = cast_to_slots(self.layout, wanted) if wanted else slots
        number, kept, count = self._checked(layer, kept_as)
        rows = []
        for slot, (tensor, new) in enumerate(zip(wanted, kept, strict=True)):
            before = self._before(number, slot)
            places = [new] if before is None else [before, new]
            rows.append([place.astype(tensor.dtype) for place in places])
        result = mix(rows, step.masks[number])
        return result, self._with_rows(number, kept, count, result)

    def _before(self, layer: int, slot: int) -> Tensor | None:
        """Return the rows that a sliding layer keeps; None of an empty cache, where that is known."""
        state = self._state
        buffer = state.buffers[layer][slot]
        if state.length == 0:
            return None
        return first_rows(buffer, self._kept(0)) if state.lowering == "buffer" else buffer

    def _kept(self, pending: Size) -> Size:
        """Return how many rows a sliding layer keeps, with those of this step or without."""
        return dims.smallest(dims.add(self._state.length, pending), self._ring.capacity)

    # ---- reading ----

    def slot(self, layer: int, slot: int, include_pending: bool = False) -> Tensor:
        """Return the rows of a slot that are kept, at least one: ``T (rows, *trailing)``.

        A sliding layer's come in the order of the ring (lowered as concat, oldest first), and the rows that a pending
        append has overwritten are gone: ask attention of the same step of ``attend``.

        Args:
            layer: The layer.
            slot: The slot.
            include_pending: Give the rows appended but not yet advanced too.

        Raises:
            CacheLayerError: No such layer or slot.

        Spec: ai.onnx::Slice; lowered as view, the bound rows themselves.
        """
        if not self.slides(layer):
            return super().slot(layer, slot, include_pending)
        buffer = self.slot_buffer_full(layer, slot)
        if self.lowering != "buffer":
            return buffer
        pending = self._state.pending[int(layer)] if include_pending else 0
        return first_rows(buffer, dims.largest(1, self._kept(pending)))

    def causal_mask(self, n: SizeLike, layer: int = 0) -> Tensor:
        """Return which rows each of ``n`` new rows may attend, ``bool (n, rows)``; True where visible.

        The columns are those that ``attend`` gives attention: of a sliding layer the rows kept before the step,
        then the new rows.

        Args:
            n: New rows.
            layer: The layer.

        Raises:
            CacheLayerError: No such layer.
        """
        if not self.slides(layer):
            return self._visible(n, int(layer))
        state = self._state
        anchor, new = state.buffers[int(layer)][0], self.positions(n)
        if state.length == 0:
            return visible(self._ring, new[:0], new, new)
        rows = self._kept(0) if state.lowering == "buffer" else anchor.shape[0]
        held = positions_held(self._ring, state.length, rows, state.lowering, anchor)
        return visible(self._ring, held, new, new)


__all__ = ["RotatingCache"]
