"""What a cache is made of: layers, slots, trailing sizes; declared once, checked once, shared by every value."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from lazygraph.dtypes import DType, DTypeLike, as_dtype
from lazygraph.errors import CacheError, CacheLayerError, DTypeError, SlotCountError, SlotShapeError
from lazygraph.memory import Memory
from lazygraph.whole import whole

_DTYPES = (
    "float32",
    "float64",
    "float16",
    "bfloat16",
    "int8",
    "uint8",
    "float8_e4m3fn",
    "float8_e4m3fnuz",
    "float8_e5m2",
    "float8_e5m2fnuz",
)


@dataclass(frozen=True)
class CacheLayout:
    """The declaration of a cache.

    Attributes:
        n_layers: Layers, each with the same slots.
        max_seq_len: Capacity of every slot, in rows (tokens).
        trailing: Per slot, the sizes of one row; ``()`` is a row of one number.
        dtypes: Per slot, its element type.
        slot_names: Per slot, its name in files.
    """

    n_layers: int
    max_seq_len: int
    trailing: tuple[tuple[int, ...], ...]
    dtypes: tuple[DType, ...]
    slot_names: tuple[str, ...]

    @property
    def dtype(self) -> DType:
        """Element type of the slots, or of the first where they differ."""
        return self.dtypes[0]

    @property
    def n_slots(self) -> int:
        """Slots per layer."""
        return len(self.trailing)

    @property
    def numbers_per_token(self) -> int:
        """Numbers that one token takes in one layer."""
        return sum(prod(sizes) for sizes in self.trailing)

    @property
    def bytes_per_token(self) -> int:
        """Bytes that one token takes over all layers."""
        rows = zip(self.dtypes, self.trailing, strict=True)
        return self.n_layers * sum(dtype.nbytes(prod(sizes)) for dtype, sizes in rows)

    @property
    def slots_text(self) -> str:
        """The slots and the sizes of their rows, as a ``repr`` says them: ``k [2, 64] + v [2, 64]``."""
        return " + ".join(f"{name} {list(sizes)}" for name, sizes in zip(self.slot_names, self.trailing, strict=True))

    @property
    def nbytes(self) -> int:
        """Bytes of all buffers at full capacity."""
        return self.bytes_per_token * self.max_seq_len

    def memory(self) -> tuple[Memory, ...]:
        """Return every slot of every layer as whoever runs the graph must know it."""
        rows = self.max_seq_len
        return tuple(
            Memory(f"past.{layer}.{name}", f"present.{layer}.{name}", layer, name, "rows", dtype.name, sizes, rows)
            for layer in range(self.n_layers)
            for name, dtype, sizes in zip(self.slot_names, self.dtypes, self.trailing, strict=True)
        )

    def check_layer(self, op: str, layer: int) -> int:
        """Return the layer.

        Raises:
            CacheLayerError: It is not in ``[0, n_layers)``; negative numbers are refused too.
        """
        number = whole(layer)
        if number is None or not 0 <= number < self.n_layers:
            raise CacheLayerError(
                f"layer {layer!r} of a cache with {self.n_layers}",
                op=op,
                expected=f"0 <= layer < {self.n_layers}",
                layer=layer,
                wanted=range(self.n_layers),
                got=layer,
            )
        return number

    def check_slot(self, op: str, slot: int, layer: int | None = None) -> int:
        """Return the slot; ``layer`` is where it was asked for.

        Raises:
            CacheLayerError: It is not in ``[0, n_slots)``.
        """
        number = whole(slot)
        if number is None or not 0 <= number < self.n_slots:
            raise CacheLayerError(
                f"slot {slot!r} of a cache with {self.n_slots}",
                op=op,
                expected=f"0 <= slot < {self.n_slots}",
                layer=layer,
                slot=slot,
                wanted=range(self.n_slots),
                got=slot,
            )
        return number


def layout(
    n_layers: int,
    max_seq_len: int,
    slot_trailing: Sequence[Sequence[int]],
    dtype: DTypeLike | Sequence[DTypeLike],
    slot_names: Sequence[str] | None = None,
) -> CacheLayout:
    """Return a checked declaration; ``dtype`` is one for all slots, or a list with one per slot.

    Raises:
        CacheError: Fewer than one layer or row.
        SlotCountError: No slot, or not one name or element type per slot.
        SlotShapeError: A trailing size is not an int of at least 1.
        DTypeError: An element type that no cache keeps.
    """
    layers = _at_least_one("n_layers", n_layers)
    capacity = _at_least_one("max_seq_len", max_seq_len)
    trailing = tuple(_trailing(i, sizes) for i, sizes in enumerate(_listed("slot_trailing", slot_trailing)))
    if not trailing:
        raise SlotCountError("a cache without slots", op="LatentCache", expected="at least one slot", wanted=1, got=0)

    names: tuple[Any, ...] = (
        tuple(slot_names) if slot_names is not None else tuple(f"slot{i}" for i in range(len(trailing)))
    )
    if len(names) != len(trailing) or len(set(names)) != len(names):
        raise SlotCountError(
            f"{len(names)} names {list(names)} for {len(trailing)} slots",
            op="LatentCache",
            expected="one name per slot, each different",
            wanted=len(trailing),
            got=len(names),
        )
    if wrong := [name for name in names if not isinstance(name, str) or not name]:
        raise SlotCountError(
            f"a slot is named {wrong[0]!r}",
            op="LatentCache",
            expected="names as they will stand in files: past.0.<name>",
            wanted=str,
            got=wrong[0],
        )
    each: list[Any] = list(dtype) if isinstance(dtype, (list, tuple)) else [dtype] * len(trailing)
    if len(each) != len(trailing):
        raise SlotCountError(
            f"{len(each)} element types for {len(trailing)} slots",
            op="LatentCache",
            expected="one element type, or one per slot",
            wanted=len(trailing),
            got=len(each),
        )
    kept = tuple(as_dtype(one) for one in each)
    for one in kept:
        if one.name not in _DTYPES:
            raise DTypeError(f"a cache of {one}", op="LatentCache", expected="one of " + ", ".join(_DTYPES))
    return CacheLayout(layers, capacity, trailing, kept, names)


def _at_least_one(name: str, value: Any) -> int:
    number = whole(value)
    if number is None or number < 1:
        raise CacheError(
            f"{name} is {value!r}", op="LatentCache", expected=f"{name} an int of at least 1", wanted=1, got=value
        )
    return number


def _listed(name: str, value: Any) -> list[Any]:
    if not isinstance(value, Iterable):
        raise SlotShapeError(
            f"{name} is {value!r}",
            op="LatentCache",
            expected="a list of trailing sizes per slot, such as [[512], [64]]",
            got=value,
        )
    return list(value)


def _trailing(slot: int, sizes: Any) -> tuple[int, ...]:
    given = list(sizes) if isinstance(sizes, Iterable) else None
    numbers = [whole(size) for size in given] if given is not None else [None]
    kept = tuple(number for number in numbers if number is not None and number >= 1)
    if len(kept) != len(numbers):
        raise SlotShapeError(
            f"slot {slot} has trailing sizes {sizes if given is None else given}",
            op="LatentCache",
            expected="ints of at least 1 (an empty list is a row of one number)",
            hint=f"slot_trailing is a list of lists: [[{sizes}]]" if whole(sizes) is not None else "",
            slot=slot,
            got=sizes if given is None else given,
        )
    return kept
