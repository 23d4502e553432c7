"""Rows of bytes on a device, shared between decoders until one of them writes.

Rows are kept as plain bytes and bound by address with their element type: bfloat16 and fp8, which numpy does not know,
take the same road as float32, on every device.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, TypeAlias
from weakref import WeakSet

import numpy as np

from lazygraph.dtypes import as_dtype
from lazygraph.memory import Memory

# uint8 [batch, rows, bytes per row]
Content: TypeAlias = "np.ndarray[Any, np.dtype[np.uint8]]"


class Buffer:
    """Zeroed rows.

    Args:
        shape: Batch rows, rows, bytes per row.
        device: ``cpu`` or ``cuda``.
        start: The first rows' content, zeros when left out.

    Attributes:
        shape: As given.
        address: Of the first byte, on the device.
        holders: Who keeps it. With more than one, nobody may write.
    """

    def __init__(self, shape: tuple[int, int, int], device: str, start: Content | None = None) -> None:
        host = np.zeros(shape, np.uint8)  # pages that are never touched take no memory
        if start is not None:
            host[:, : start.shape[1]] = start
        self.shape = shape
        self.holders: WeakSet[object] = WeakSet()
        self._host: Content | None = None
        self._value: Any = None
        if device == "cpu":
            self._host = host
            self.address = host.ctypes.data
        else:
            import onnxruntime as ort

            self._value = ort.OrtValue.ortvalue_from_numpy(host, device, 0)
            self.address = self._value.data_ptr()

    @property
    def reachable(self) -> bool:
        """Whether the host can change a part of it without moving all of it."""
        return self._host is not None

    def content(self) -> Content:
        """Return the memory itself where the host can reach it, else a copy."""
        return self._host if self._host is not None else self._value.numpy()

    def put(self, content: Content) -> None:
        """Take back what ``content`` gave, changed."""
        if self._host is None:
            self._value.update_inplace(content)


@dataclass
class SlotMemory:
    """One slot of one layer in memory.

    Attributes:
        slot: What the graph says of it.
        buffers: What the graph reads and writes: one, or two that change places with each run.
        kind: ONNX's number of the element type.
    """

    slot: Memory
    buffers: list[Buffer]
    kind: int = field(init=False)

    def __post_init__(self) -> None:
        self.kind = as_dtype(self.slot.dtype).onnx

    def read(self, flip: int) -> Buffer:
        """Return what the graph reads after so many changes of place."""
        return self.buffers[flip % len(self.buffers)]

    def written(self, flip: int) -> Buffer:
        """Return what the graph writes then."""
        return self.buffers[(flip + 1) % len(self.buffers)]


__all__ = ["Buffer", "Content", "SlotMemory"]
