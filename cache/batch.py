"""BatchCache: several texts at once, each row of the batch with a position of its own."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Self

from lazygraph import dims, nn, ops
from lazygraph.cache.fitting import cast_to_slots, check_batch_room, listed
from lazygraph.cache.latent import LatentCache
from lazygraph.cache.layout import layout
from lazygraph.cache.places import Places, place_inputs
from lazygraph.cache.reading import CacheStep, Mix
from lazygraph.cache.ring import declared_ring
from lazygraph.cache.state import State, check_lowering
from lazygraph.cache.texts import EveryRow, LastRows, given_rows, text_slots
from lazygraph.dims import Size, SizeLike
from lazygraph.dtypes import DTypeLike, float32
from lazygraph.errors import CacheError, CacheStepError, OperandError
from lazygraph.memory import Lowering, Memory
from lazygraph.tensor import Tensor


@dataclass(frozen=True, eq=False, repr=False)
class BatchState(State):
    """One value of a batch's cache: a ``State`` whose buffers are ``(batch, rows, *trailing)``.

    Attributes:
        places: Where the step's tokens stand.
        texts: Per layer, how its slots are read and written.
    """

    places: Places
    texts: tuple[EveryRow | LastRows, ...]


class BatchCache(LatentCache):
    """A cache of several texts, each with a position of its own and with as many new tokens as it likes.

    Tokens come as ``(batch, n)``, padded on the left: text ``b`` brings its last ``new_len[b]`` ones, perhaps none.
    Padding is never written, never attended. What is computed per token is computed over ``batch * n`` rows, text
    by text, so a model's code is the same as for one text.

    Rows of a text that do not count are taken as zeros, whatever they hold. Layers that slide keep their window as
    those of a ``RotatingCache`` do, each text its own.

    Make one with ``inputs``; a graph is one step.
    """

    _state: BatchState

    @classmethod
    def inputs(  # type: ignore[override]
        cls,
        ids: Tensor,
        n_layers: int,
        max_seq_len: int,
        slot_trailing: Sequence[Sequence[int]],
        dtype: DTypeLike | Sequence[DTypeLike] = float32,
        position: str = "past_len",
        *,
        new: str = "new_len",
        window: int | None = None,
        sinks: int = 0,
        layers: Collection[int] | None = None,
        slot_names: Sequence[str] | None = None,
        lowering: Lowering = "view",
    ) -> Self:
        """Return a cache whose buffers, positions and counts are graph inputs.

        Inputs are ``past.<layer>.<slot>``, ``(batch, rows, *trailing)``; the positions and the counts, each
        ``int64 (batch,)``. Keeping each ``past_len + new_len`` within the rows is the duty of whoever runs the graph.

        Args:
            ids: ``T (batch, n)``: the step's tokens.
            n_layers: Layers.
            max_seq_len: Capacity in rows, of each text.
            slot_trailing: Per slot, the sizes of one row.
            dtype: Element type, or one per slot.
            position: Name of the input that holds the rows that count already, per text.
            new: Name of the input that holds how many of a text's tokens are no padding.
            window: Last rows that a sliding layer keeps; None where every row is kept.
            sinks: First rows that it keeps for good.
            layers: The layers that slide, all when left out.
            slot_names: Per slot, its name in files.
            lowering: ``view`` binds at least as many rows as the longest text has after the step, ``buffer`` all
                ``max_seq_len``, and attention looks at all that are bound. ``concat`` takes as many rows as the longest
                text has before the step, or more, and gives back a copy with as many as it has after it, or as many as
                came where that is more. Every text's rows begin at row 0 of its own, in all three; of a sliding layer
                they lie as a ``RotatingCache`` says.

        Raises:
            ShapeError: ``ids`` is not ``(batch, n)``.
            OperandError: ``sinks`` or ``layers`` without a window.
            CacheError: As for ``RotatingCache``; or no such lowering.
        """
        declared = layout(n_layers, max_seq_len, slot_trailing, dtype, slot_names)
        check_lowering(lowering)
        if window is None and (sinks or layers is not None):
            raise OperandError(
                f"sinks={sinks!r}, layers={layers!r} of no window", op="BatchCache", expected="a window beside them"
            )
        ring = None if window is None else declared_ring("BatchCache", declared, window, sinks, layers)
        places, graph = place_inputs("BatchCache", ids, position, new, declared.max_seq_len), ids.graph
        kinds = [ring if ring is not None and layer in ring.layers else None for layer in range(declared.n_layers)]
        most = {own: declared.max_seq_len if own is None else own.capacity for own in kinds}
        rows = {own: given_rows(graph, own, most[own], lowering) for own in most}
        buffers = tuple(
            tuple(
                graph.input(f"past.{layer}.{name}", kept, (places.batch, rows[own], *sizes))
                for name, kept, sizes in zip(declared.slot_names, declared.dtypes, declared.trailing, strict=True)
            )
            for layer, own in enumerate(kinds)
        )
        made = {own: text_slots(places, own, rows[own], most[own], lowering) for own in most}
        texts = tuple(made[own] for own in kinds)
        none = (0,) * declared.n_layers
        return cls._of(BatchState(declared, buffers, 0, none, (), True, lowering, ring, places, texts))

    @property
    def current_seq_len(self) -> Size:
        """Not one number: see ``lengths``.

        Raises:
            CacheError: Always.
        """
        raise CacheError(
            "each text of a batch has a length of its own", op="BatchCache", hint="cache.lengths is int64 (batch,)"
        )

    @property
    def lengths(self) -> Tensor:
        """Rows of each text that count: ``int64 (batch,)``."""
        places = self._state.places
        return places.past if self._state.length == 0 else places.after

    def memory(self) -> tuple[Memory, ...]:
        """Return what whoever runs the graph must keep between two runs: every slot of every layer, per text."""
        ring, slots = self._state.ring, super().memory()
        return slots if ring is None else ring.memory(slots)

    def __repr__(self) -> str:
        declared, places, ring = self.layout, self._state.places, self._state.ring
        nbytes = sum(slot.nbytes for slot in self.memory())
        return (
            f"{type(self).__name__}({places.batch} x {declared.n_layers} layers x ({declared.slots_text}) "
            f"{declared.dtype}, {'' if ring is None else f'{ring.text(declared.n_layers)}, '}"
            f"{declared.max_seq_len} rows, {nbytes:,} bytes each)"
        )

    # ---- writing ----

    def append(self, layer: int, slots: Sequence[Tensor]) -> Self:
        """Return the cache with each text's rows written at its own position.

        Args:
            layer: The layer, from 0.
            slots: One tensor per slot, ``T (batch * n, *trailing)``, text by text; those of padding are left out.

        Raises:
            CacheStepError: The graph's one step is over, or the layer has rows already.
            CacheError: As for ``LatentCache.append``.

        Spec: ai.onnx::ScatterND, one per slot; of a window lowered as concat, ai.onnx::GatherND.
        """
        return super().append(layer, slots)

    def _checked(self, layer: int, slots: Sequence[Tensor]) -> tuple[int, tuple[Tensor, ...], Size]:
        if self._state.length != 0:
            raise CacheStepError(
                "the step is over", op="append", operands={"cache": self}, expected="one step per graph of a batch"
            )
        return super()._checked(layer, slots)

    def _index(self, count: Size) -> tuple[Tensor, ...]:
        return ()  # what slots of one kind share is made with the cache

    def _written(self, layer: int, old: Tensor, new: Tensor, index: tuple[Tensor, ...], read: Tensor | None) -> Tensor:
        return self._state.texts[layer].written(old, new, read)

    def _check_room(self, op: str, layer: int | None, count: Size) -> None:
        check_batch_room(self, op, layer, self._state.places.n, self.max_seq_len)

    def _step_size(self, n: SizeLike) -> Size:
        return dims.multiply(self._state.places.batch, super()._step_size(n))

    # ---- reading ----

    def step(self, n: SizeLike) -> CacheStep:
        """Return what all layers share: positions, ``int64 (batch * n,)``; masks, ``float32 (batch, n, rows)``.

        Args:
            n: New tokens of each text, padding included.
        """
        texts = self._state.texts
        masks = {one: nn.additive_mask(one.mask()) for one in dict.fromkeys(texts)}
        return CacheStep(ops.reshape(self._state.places.positions, [-1]), tuple(masks[one] for one in texts))

    def attend(self, layer: int, slots: Sequence[Tensor], step: CacheStep, mix: Mix) -> tuple[Tensor, Self]:
        """Return one layer's attention and the cache with the new rows (see ``LatentCache.attend``).

        Args:
            layer: The layer, from 0.
            slots: The new rows, one tensor per slot, ``T (batch * n, *trailing)``, text by text.
            step: What the step's layers share (``step``).
            mix: Called once with the rows of every slot, ``T (batch, rows, *trailing)``, and their mask; those of a
                sliding layer come in two parts, the rows kept before and the new ones.

        Raises:
            CacheError: As for ``append``.
        """
        given = listed(self, self.layout, layer, slots)
        number, kept, count = self._checked(layer, cast_to_slots(self.layout, given))
        texts, before = self._state.texts[number], self._state.buffers[number]
        if isinstance(texts, EveryRow):
            after = self._with_rows(number, kept, count, None)
            rows = [texts.read(*both) for both in zip(after._state.buffers[number], given, strict=True)]
            return mix(rows, step.masks[number]), after
        # A chunk writes over rows that its own first tokens still see: it is written when attention is done.
        parts = [texts.read(*three) for three in zip(before, kept, given, strict=True)]
        result = mix(parts, step.masks[number])
        return result, self._with_rows(number, kept, count, result)

    def slot(self, layer: int, slot: int, include_pending: bool = False) -> Tensor:
        """Return all rows of a slot, ``T (batch, rows, *trailing)``; those that do not count mean nothing.

        Raises:
            CacheLayerError: No such layer or slot.
        """
        return self.slot_buffer_full(layer, slot)

    def causal_mask(self, n: SizeLike, layer: int = 0) -> Tensor:
        """Return which rows of its own text each token may attend, ``bool (batch, n, rows)``.

        The columns are those that ``attend`` gives attention: of a sliding layer the rows kept before the step,
        then the new ones. What padding may attend means nothing.

        Args:
            n: New tokens of each text, padding included.
            layer: The layer.

        Raises:
            CacheLayerError: No such layer.
        """
        return self._state.texts[self.layout.check_layer("causal_mask", layer)].mask()

    def positions(self, n: SizeLike) -> Tensor:
        """Return where each token stands in its text, ``int64 (batch, n)``; 0 for padding."""
        return self._state.places.positions


__all__ = ["BatchCache", "BatchState"]
