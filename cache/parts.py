"""What one layer may remember: rows that grow or rotate, a state that is replaced, tensors that are filled once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, TypeAlias

from lazygraph import dims
from lazygraph.cache.layout import CacheLayout, layout
from lazygraph.cache.ring import check_window
from lazygraph.dims import Dim, Size
from lazygraph.dtypes import DTypeLike, float32
from lazygraph.errors import CacheError, SlotCountError
from lazygraph.memory import Kind
from lazygraph.tensor import Shape
from lazygraph.whole import whole

Slots: TypeAlias = "Mapping[str, Sequence[int]]"


@dataclass(frozen=True)
class Rows:
    """Slots to which every token adds a row: keys and values, latents.

    Attributes:
        slots: Per slot, its name in files and the sizes of one row.
        dtype: Element type.
    """

    slots: Slots
    dtype: DTypeLike = float32
    kind: ClassVar[Kind] = "rows"
    verb: ClassVar[str] = "append"

    def layout(self, max_seq_len: int) -> CacheLayout:
        """Return the checked declaration; raises as ``lazygraph.cache.layout.layout`` does."""
        return _layout(self, max_seq_len)

    def shape(self, rows: Size, sizes: tuple[int, ...]) -> Shape:
        """Return the shape of a slot whose rows have these sizes, ``rows`` of them bound."""
        return (rows, *sizes)


@dataclass(frozen=True)
class Window:
    """Slots that keep the last rows of a text only, and perhaps its first (see ``RotatingCache``).

    Attributes:
        slots: Per slot, its name in files and the sizes of one row.
        window: How many last rows are kept, at least 1; a token sees itself and ``window - 1`` before it.
        sinks: How many first rows are kept for good.
        dtype: Element type.
    """

    slots: Slots
    window: int
    sinks: int = 0
    dtype: DTypeLike = float32
    kind: ClassVar[Kind] = "window"
    verb: ClassVar[str] = "append"

    def layout(self, max_seq_len: int) -> CacheLayout:
        """Return the checked declaration; its capacity is that of a text.

        Raises:
            CacheError: A window below 1, or sinks below 0.
        """
        check_window("Window", self.window, self.sinks)
        return _layout(self, max_seq_len)

    def shape(self, rows: Size, sizes: tuple[int, ...]) -> Shape:
        """Return the shape of a slot whose rows have these sizes, ``rows`` of them bound."""
        return (rows, *sizes)


@dataclass(frozen=True)
class State:
    """Slots that each step replaces as a whole: the tail of a convolution, a recurrent state. They begin as zeros.

    Attributes:
        slots: Per slot, its name in files and all its sizes.
        dtype: Element type.
    """

    slots: Slots
    dtype: DTypeLike = float32
    kind: ClassVar[Kind] = "state"
    verb: ClassVar[str] = "replace"

    def layout(self, max_seq_len: int) -> CacheLayout:
        """Return the checked declaration; its capacity is 1: a state does not grow."""
        return _layout(self, 1)

    def shape(self, rows: Size, sizes: tuple[int, ...]) -> Shape:
        """Return the shape of a slot of these sizes."""
        return sizes


@dataclass(frozen=True)
class Once:
    """Slots that are filled once and then only read: keys and values of what a decoder attends across.

    Attributes:
        slots: Per slot, its name in files and the sizes of one row.
        rows: How many rows there are: an int, or a size with a greatest value, ``lg.size("frames", max=1500)``.
        dtype: Element type.
    """

    slots: Slots
    rows: int | Dim
    dtype: DTypeLike = float32
    kind: ClassVar[Kind] = "once"
    verb: ClassVar[str] = "fill"

    def layout(self, max_seq_len: int) -> CacheLayout:
        """Return the checked declaration; its capacity is the most rows that there may be.

        Raises:
            CacheError: The number of rows is not at least 1, or has no greatest value.
        """
        most = whole(self.rows)
        if most is None and isinstance(self.rows, Dim):
            most = dims.bounds(self.rows)[1]
        if most is None or most < 1:
            raise CacheError(
                f"rows is {self.rows!r}",
                op="Once",
                expected='an int of at least 1, or a size with a greatest value: lg.size("frames", max=1500)',
                wanted=1,
                got=self.rows,
            )
        return _layout(self, most)

    def shape(self, rows: Size, sizes: tuple[int, ...]) -> Shape:
        """Return the shape of a slot whose rows have these sizes."""
        return (self.rows, *sizes)


Part: TypeAlias = "Rows | Window | State | Once"


def _layout(part: Part, capacity: int) -> CacheLayout:
    if not isinstance(part.slots, Mapping) or not all(isinstance(name, str) for name in part.slots):
        raise SlotCountError(
            f"slots is {part.slots!r}",
            op=type(part).__name__,
            expected='the sizes of each slot by its name: {"k": [2, 64], "v": [2, 64]}',
            got=part.slots,
        )
    return layout(1, capacity, list(part.slots.values()), part.dtype, list(part.slots))


__all__ = ["Once", "Part", "Rows", "State", "Window"]
