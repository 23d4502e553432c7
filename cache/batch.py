"""BatchCache: several texts at once, each row of the batch with a position of its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from lazygraph import dims, nn, ops
from lazygraph.cache.fitting import cast_to_slots, listed
from lazygraph.cache.latent import LatentCache
from lazygraph.cache.layout import layout
from lazygraph.cache.reading import CacheStep, Mix
from lazygraph.cache.state import State
from lazygraph.dims import Size, SizeLike
from lazygraph.dtypes import DTypeLike, float32, int64
from lazygraph.errors import CacheError, CacheOverflowError, CacheStepError, ShapeError, UnsupportedError
from lazygraph.memory import Lowering
from lazygraph.ops.checks import rows as described
from lazygraph.tensor import Tensor


@dataclass(frozen=True, eq=False, repr=False)
class Places:
    """Where the tokens of one step of a batch stand.

    Attributes:
        batch: Texts.
        n: Tokens that each brings, padding included.
        past: ``int64 (batch,)``: rows that count before the step.
        new: ``int64 (batch,)``: how many of the n tokens are no padding; they come last.
        positions: ``int64 (batch, n)``: where each token stands in its text; 0 for padding.
        real: ``int64 (tokens,)``: which of the ``batch * n`` tokens are no padding.
        index: ``int64 (tokens, 2)``: text and row to which each of those is written. No place is named twice.
    """

    batch: Size
    n: Size
    past: Tensor
    new: Tensor
    positions: Tensor
    real: Tensor
    index: Tensor


@dataclass(frozen=True, eq=False, repr=False)
class BatchState(State):
    """One value of a batch's cache: a ``State`` whose buffers are ``(batch, rows, *trailing)``."""

    places: Places


class BatchCache(LatentCache):
    """A cache of several texts, each with a position of its own and with as many new tokens as it likes.

    Tokens come as ``(batch, n)``, padded on the left: text ``b`` brings its last ``new_len[b]`` ones, perhaps none.
    Padding is never written, never attended. What is computed per token is computed over ``batch * n`` rows, text
    by text, so a model's code is the same as for one text.

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
            slot_names: Per slot, its name in files.
            lowering: ``view``, or ``buffer``: then attention looks at all ``max_seq_len`` rows.

        Raises:
            ShapeError: ``ids`` is not ``(batch, n)``.
            UnsupportedError: The lowering is ``concat``: texts of different lengths have no common end to add to.
        """
        shape = ids.known_shape
        if shape is None or len(shape) != 2:
            raise ShapeError("no batch", op="BatchCache", operands=described({"ids": ids}), expected="ids (batch, n)")
        if lowering == "concat":
            raise UnsupportedError(
                "a batch lowered as concat",
                op="BatchCache",
                expected="view or buffer",
                hint="texts end at rows of their own",
            )
        declared = layout(n_layers, max_seq_len, slot_trailing, dtype, slot_names)
        graph, (batch, n) = ids.graph, shape
        past, count = graph.input(position, int64, (batch,)), graph.input(new, int64, (batch,))
        capacity = declared.max_seq_len
        rows = capacity if lowering == "buffer" else graph.size(dims.size("rows", 1, capacity))
        buffers = tuple(
            tuple(
                graph.input(f"past.{layer}.{name}", kept, (batch, rows, *sizes))
                for name, kept, sizes in zip(declared.slot_names, declared.dtypes, declared.trailing, strict=True)
            )
            for layer in range(declared.n_layers)
        )
        pending, places = (0,) * declared.n_layers, _places(batch, n, past, count)
        return cls._of(BatchState(declared, buffers, 0, pending, (), True, lowering, None, places))

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
        return places.past if self._state.length == 0 else places.past + places.new

    def __repr__(self) -> str:
        declared, places = self.layout, self._state.places
        return (
            f"{type(self).__name__}({places.batch} x {declared.n_layers} layers x ({declared.slots_text}) "
            f"{declared.dtype}, {declared.max_seq_len} rows, {declared.nbytes:,} bytes each)"
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

        Spec: ai.onnx::ScatterND, one per slot.
        """
        if self._state.length != 0:
            raise CacheStepError(
                "the step is over", op="append", operands={"cache": self}, expected="one step per graph of a batch"
            )
        return super().append(layer, slots)

    def _index(self, count: Size) -> tuple[Tensor, ...]:
        return (self._state.places.index,)

    def _written(self, layer: int, old: Tensor, new: Tensor, index: tuple[Tensor, ...], read: Tensor | None) -> Tensor:
        return ops.scatter_nd(old, index[0], ops.gather(new, self._state.places.real, axis=0))

    def _check_room(self, op: str, layer: int | None, count: Size) -> None:
        state = self._state
        if dims.at_most(state.places.n, self.max_seq_len) is False:
            raise CacheOverflowError(
                f"{state.places.n} rows pass the end at {self.max_seq_len}",
                op=op,
                operands={"cache": self},
                expected=f"n <= {self.max_seq_len}",
                layer=layer,
                wanted=self.max_seq_len,
                got=state.places.n,
            )

    def _step_size(self, n: SizeLike) -> Size:
        return dims.multiply(self._state.places.batch, super()._step_size(n))

    # ---- reading ----

    def step(self, n: SizeLike) -> CacheStep:
        """Return what all layers share: positions, ``int64 (batch * n,)``; mask, ``float32 (batch, n, rows)``.

        Args:
            n: New tokens of each text, padding included.
        """
        positions = ops.reshape(self._state.places.positions, [-1])
        return CacheStep(positions, (nn.additive_mask(self.causal_mask(n)),) * self.n_layers)

    def attend(self, layer: int, slots: Sequence[Tensor], step: CacheStep, mix: Mix) -> tuple[Tensor, Self]:
        """Return one layer's attention and the cache with the new rows (see ``LatentCache.attend``).

        Args:
            layer: The layer, from 0.
            slots: The new rows, one tensor per slot, ``T (batch * n, *trailing)``, text by text.
            step: What the step's layers share (``step``).
            mix: Called once with the rows of every slot, ``T (batch, rows, *trailing)``, and their mask.

        Raises:
            CacheError: As for ``append``.
        """
        given = listed(self, self.layout, layer, slots)
        after = self.append(layer, cast_to_slots(self.layout, given))
        return mix([after._counting(layer, slot, new) for slot, new in enumerate(given)], step.masks[layer]), after

    def _counting(self, layer: int, slot: int, like: Tensor) -> Tensor:
        """Return a slot, ``T (batch, rows, *trailing)``; rows that do not count are zeros, whatever they held."""
        buffer, places = self.slot_buffer_full(layer, slot), self._state.places
        counting = ops.unsqueeze(ops.arange(0, buffer.shape[1], anchor=buffer), 0) < ops.unsqueeze(
            places.past + places.new, 1
        )  # (batch, rows)
        if not buffer.dtype.is_float:  # any whole number times a zero is zero
            return buffer
        shaped = ops.unsqueeze(counting, list(range(2, len(buffer.shape)))) if len(buffer.shape) > 2 else counting
        return ops.where(shaped, buffer.astype(like.dtype), ops.constant(0.0, dtype=like.dtype, anchor=buffer))

    def slot(self, layer: int, slot: int, include_pending: bool = False) -> Tensor:
        """Return all rows of a slot, ``T (batch, rows, *trailing)``; those beyond a text's length mean nothing.

        Raises:
            CacheLayerError: No such layer or slot.
        """
        return self.slot_buffer_full(layer, slot)

    def causal_mask(self, n: SizeLike) -> Tensor:
        """Return which rows of its own text each token may attend, ``bool (batch, n, rows)``; padding row 0."""
        places, buffer = self._state.places, self._state.buffers[0][0]
        columns = ops.arange(0, buffer.shape[1], anchor=buffer)  # (rows,)
        return columns <= ops.unsqueeze(places.positions, 2)

    def positions(self, n: SizeLike) -> Tensor:
        """Return where each token stands in its text, ``int64 (batch, n)``; 0 for padding."""
        return self._state.places.positions


def _places(batch: Size, n: Size, past: Tensor, new: Tensor) -> Places:
    column = ops.unsqueeze(ops.arange(0, n, anchor=past), 0)  # (1, n)
    turn = column - ops.unsqueeze(ops.size_tensor(n, past) - new, 1)  # (batch, n): which of the text's new tokens
    is_real = turn >= 0
    positions = ops.where(is_real, ops.unsqueeze(past, 1) + turn, ops.constant(0, dtype=int64, anchor=past))
    text = ops.unsqueeze(ops.arange(0, batch, anchor=past), 1) + column * 0  # (batch, n)
    real = ops.nonzero(ops.reshape(is_real, [-1]))[0]
    both = ops.stack([ops.reshape(text, [-1]), ops.reshape(positions, [-1])], axis=1)  # (batch * n, 2)
    return Places(batch, n, past, new, positions, real, ops.gather(both, real, axis=0))


__all__ = ["BatchCache", "Places"]
