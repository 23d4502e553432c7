"""What a decoder remembers between two runs, as named tensors: caches declare it, runtimes bind by it."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Literal, TypeAlias

from lazygraph.dtypes import as_dtype

# rows: one row per token, appended. window: the last rows only, each written at its position modulo the window.
# state: replaced as a whole on each run. once: filled once, then only read.
Kind: TypeAlias = Literal["rows", "window", "state", "once"]
Lowering: TypeAlias = Literal["buffer", "view", "concat"]


@dataclass(frozen=True)
class Memory:
    """One slot of one layer: a graph input that the run's output replaces.

    Attributes:
        source: Name of the input, ``past.<layer>.<slot>``.
        target: Name of the output, ``present.<layer>.<slot>``; empty where the run only reads it.
        layer: The layer.
        slot: The slot's name.
        kind: How it is written.
        dtype: Element type's name.
        trailing: The sizes of one row; of a state, all its sizes.
        capacity: Rows it has room for: ``max_seq_len``, or ``sinks + window``; 1 for a state.
        window: Of a window, how many last rows are kept beside the sinks; else 0.
        sinks: Of a window, first rows of the text that are kept for good.
    """

    source: str
    target: str
    layer: int
    slot: str
    kind: Kind
    dtype: str
    trailing: tuple[int, ...]
    capacity: int
    window: int = 0
    sinks: int = 0

    @property
    def bytes_per_row(self) -> int:
        """Bytes of one row (of a state, of all of it)."""
        return as_dtype(self.dtype).nbytes(prod(self.trailing))

    @property
    def nbytes(self) -> int:
        """Bytes at full capacity, per batch row."""
        return self.bytes_per_row * self.capacity

    def kept_rows(self, length: int) -> int:
        """Return the rows that a text of so many tokens has in it; a state is one."""
        return 1 if self.kind == "state" else min(self.capacity, length)


def shares(slot: Memory, lowering: Lowering) -> bool:
    """Return whether a slot's output may have its input's memory as far as its sizes go: both are equally large."""
    return slot.target != "" and (lowering != "concat" or slot.kind == "state")


def described(memory: tuple[Memory, ...]) -> str:
    """Return what is remembered, in one line for people: ``3 layers x (k [2, 12] float32 + v [2, 12] float32)``."""
    layers: dict[int, list[str]] = {}
    for slot in memory:
        kept = "" if slot.kind == "rows" else f" {slot.kind}" + (f" of {slot.window}" if slot.window else "")
        sinks = f" and {slot.sinks} sinks" if slot.sinks else ""
        text = f"{slot.slot} {list(slot.trailing)} {slot.dtype}{kept}{sinks}"
        layers.setdefault(slot.layer, []).append(text)
    alike: dict[str, int] = {}
    for slots in layers.values():
        text = " + ".join(slots)
        alike[text] = alike.get(text, 0) + 1
    return ", ".join(f"{count} layers x ({text})" for text, count in alike.items())
