"""QuantisedCache: rows that are kept as codes of one byte, with a scale per row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

from lazygraph.attending import Rows, parts
from lazygraph.cache.codes import Code
from lazygraph.cache.fitting import check_count
from lazygraph.cache.latent import LatentCache
from lazygraph.cache.layout import CacheLayout
from lazygraph.cache.reading import CacheStep, Mix
from lazygraph.dims import Size, SizeLike
from lazygraph.errors import CacheLayerError, SlotCountError, SlotShapeError
from lazygraph.memory import Lowering, Memory
from lazygraph.ops.checks import meet
from lazygraph.tensor import Tensor, describe, shape_text
from lazygraph.whole import whole


class QuantisedCache:
    """A cache that keeps rows in bytes: what is given is encoded, what attention reads is decoded.

    It wraps a cache of any kind, lowering and batch, whose slots are those that the code asks for::

        slots, dtypes = code.slots({"k": [2, 64], "v": [2, 64]})
        kept = lg.LatentCache.inputs(x, 30, 4096, list(slots.values()), dtypes, slot_names=list(slots))
        cache = lg.QuantisedCache(kept, code)

    Args:
        kept: The cache of codes and scales.
        code: How numbers are kept.

    Raises:
        SlotCountError: The slots of ``kept`` are not pairs of codes and scales of this code.
    """

    def __init__(self, kept: LatentCache, code: Code) -> None:
        layout = kept.layout
        pairs = [code.dtype.name, "float32"] * (layout.n_slots // 2)
        if [dtype.name for dtype in layout.dtypes] != pairs or any(layout.trailing[1::2]):
            raise SlotCountError(
                f"slots of {', '.join(dtype.name for dtype in layout.dtypes)}",
                op="QuantisedCache",
                operands={"kept": kept},
                expected=f"per slot, codes ({code.dtype}) and scales (float32, one per row)",
                hint="code.slots({...}) gives them",
                wanted=pairs,
                got=[dtype.name for dtype in layout.dtypes],
            )
        self._kept, self._code = kept, code

    @property
    def kept(self) -> LatentCache:
        """The cache of codes and scales."""
        return self._kept

    @property
    def code(self) -> Code:
        """How numbers are kept."""
        return self._code

    @property
    def layout(self) -> CacheLayout:
        """The declaration of codes and scales: layers, capacity, slots, types, bytes."""
        return self._kept.layout

    @property
    def n_layers(self) -> int:
        """Layers."""
        return self._kept.n_layers

    @property
    def n_slots(self) -> int:
        """Slots per layer, as they are given and read."""
        return self._kept.n_slots // 2

    @property
    def max_seq_len(self) -> int:
        """Capacity, in rows."""
        return self._kept.max_seq_len

    @property
    def current_seq_len(self) -> Size:
        """Rows that count."""
        return self._kept.current_seq_len

    @property
    def lowering(self) -> Lowering:
        """How the buffers are bound."""
        return self._kept.lowering

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._code.name} in {self._kept!r})"

    # ---- writing and reading ----

    def append(self, layer: int, slots: Sequence[Tensor]) -> Self:
        """Return the cache with rows written, encoded (see ``LatentCache.append``).

        Args:
            layer: The layer, from 0.
            slots: One tensor per slot, ``T (n, *trailing)``, of any floating type.

        Raises:
            CacheError: As for ``LatentCache.append``.
        """
        return self._with(self._kept.append(layer, self._encoded(layer, slots)))

    def attend(self, layer: int, slots: Sequence[Tensor], step: CacheStep, mix: Mix) -> tuple[Tensor, Self]:
        """Return one layer's attention and the cache with the new rows (see ``LatentCache.attend``).

        A token attends to itself as it is kept, not as it was given: results do not depend on the chunking.

        Args:
            layer: The layer, from 0.
            slots: The new rows, one tensor per slot.
            step: What the step's layers share (``step``).
            mix: Called once with the decoded rows of every slot, and the mask of their columns.

        Raises:
            CacheError: As for ``append``.
        """
        encoded = self._encoded(layer, slots)

        def decoded(rows: Sequence[Rows], mask: Tensor) -> Tensor:
            pairs = zip(rows[::2], rows[1::2], slots, strict=True)
            return mix([self._decoded(codes, scales, like) for codes, scales, like in pairs], mask)

        mixed, kept = self._kept.attend(layer, encoded, step, decoded)
        return mixed, self._with(kept)

    def slot(self, layer: int, slot: int, include_pending: bool = False) -> Tensor:
        """Return the rows of a slot that count, decoded (see ``LatentCache.slot``): ``float32``.

        Raises:
            CacheLayerError: No such layer or slot.
        """
        number = whole(slot)
        if number is None or not 0 <= number < self.n_slots:
            raise CacheLayerError(
                f"slot {slot!r} of a cache with {self.n_slots}",
                op="slot",
                expected=f"0 <= slot < {self.n_slots}",
                layer=layer,
                slot=slot,
                wanted=range(self.n_slots),
                got=slot,
            )
        codes, scale = (self._kept.slot(layer, 2 * number + part, include_pending) for part in (0, 1))
        return self._code.decode(codes, scale, scale.dtype)

    def step(self, n: SizeLike) -> CacheStep:
        """Return what all layers of a step of ``n`` new rows share (see ``LatentCache.step``)."""
        return self._kept.step(n)

    def advance_by(self, n: SizeLike, layers: Sequence[int] | None = None) -> Self:
        """Return the cache with this step's rows counted (see ``LatentCache.advance_by``)."""
        return self._with(self._kept.advance_by(n, layers))

    def outputs(self) -> dict[str, Tensor]:
        """Return every buffer of codes and scales under its output name."""
        return self._kept.outputs()

    def memory(self) -> tuple[Memory, ...]:
        """Return what whoever runs the graph must keep between two runs: codes and scales of every layer."""
        return self._kept.memory()

    # ---- parts ----

    def _with(self, kept: LatentCache) -> Self:
        return type(self)(kept, self._code)

    def _encoded(self, layer: int, slots: Sequence[Tensor]) -> list[Tensor]:
        layout, given = self._kept.layout, list(slots)
        layout.check_layer("append", layer)
        check_count(self, self.n_slots, layer, given)
        for slot, (rows, sizes) in enumerate(zip(given, layout.trailing[::2], strict=True)):
            shape = rows.known_shape if isinstance(rows, Tensor) else None
            if shape is None or len(shape) != len(sizes) + 1 or None in map(meet, shape[1:], sizes):
                raise SlotShapeError(
                    f"slot {slot} of layer {layer} has another shape",
                    op="append",
                    operands={layout.slot_names[2 * slot]: describe(rows) if isinstance(rows, Tensor) else repr(rows)},
                    expected=f"{shape_text(('n', *sizes))}: [seqlen_new, *trailing]",
                    layer=layer,
                    slot=slot,
                    wanted=("n", *sizes),
                    got=shape,
                )
        return [part for rows in given for part in self._code.encode(rows)]

    def _decoded(self, codes: Rows, scales: Rows, like: Tensor) -> list[Tensor] | Tensor:
        pairs = zip(parts(codes), parts(scales), strict=True)
        rows = [self._code.decode(code, scale, like.dtype) for code, scale in pairs]
        return rows[0] if len(rows) == 1 else rows


__all__ = ["QuantisedCache"]
