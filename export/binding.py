"""The memory of a decoder's cache, and how it is bound to the graph.

Each slot has one buffer for its whole capacity. Lowered as ``view``, the graph is shown the first rows of it: enough
for those that count, in strides, so that bindings change rarely and a step costs by length, not by capacity.

Buffers are kept as plain bytes and bound by address with their element type: bfloat16 and fp8, which numpy does not
know, take the same road as float32, on every device.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from lazygraph.dtypes import as_dtype
from lazygraph.export.manifest import Manifest
from lazygraph.memory import Memory

if TYPE_CHECKING:
    import onnxruntime as ort

Bytes = np.ndarray[Any, np.dtype[np.uint8]]

# Rows by which the bound part of a buffer grows. Rows bound beyond those that count are masked, which costs less than
# binding anew each step.
STRIDE = 64


class Buffer:
    """Zeroed bytes on a device.

    Args:
        nbytes: How many.
        device: ``cpu`` or ``cuda``.
        start: The first bytes' content, zeros when left out.
    """

    def __init__(self, nbytes: int, device: str, start: Bytes | None = None) -> None:
        import onnxruntime as ort

        host = np.zeros(nbytes, np.uint8)  # pages that are never touched take no memory
        if start is not None:
            host[: start.size] = start
        self._host = host if device == "cpu" else None
        self._value = ort.OrtValue.ortvalue_from_numpy(host, device, 0)
        self.address = host.ctypes.data if device == "cpu" else self._value.data_ptr()

    def clear(self, start: int, end: int) -> bool:
        """Zero the bytes ``[start, end)``; return False where the device's memory cannot be reached from here."""
        if self._host is None:
            return False
        self._host[start:end] = 0
        return True

    def first(self, nbytes: int) -> Bytes:
        """Return a copy of the first bytes."""
        whole = self._host if self._host is not None else self._value.numpy()
        return whole[:nbytes].copy()


@dataclass
class SlotMemory:
    """One slot of one layer.

    Attributes:
        source: The graph's input.
        target: The graph's output.
        slot: What it holds.
        rows: The buffer that holds the rows.
        spare: Where the graph writes, where it must not write to ``rows`` itself; else None.
    """

    source: str
    target: str
    slot: Memory
    rows: Buffer
    spare: Buffer | None


class CacheMemory:
    """The buffers of all slots on one device.

    Args:
        manifest: What the graph expects.
        device: ``cpu`` or ``cuda``.
        start: Per input name, the bytes of its first rows; zeros when left out.
    """

    def __init__(self, manifest: Manifest, device: str, start: dict[str, Bytes] | None = None) -> None:
        self._manifest = manifest
        self._device = device
        self._slots = [self._new(slot, (start or {}).get(slot.source)) for slot in manifest.memory]
        self._bound: int | None = None
        # Rows below which something may have been written.
        self._written = max(
            ((start or {})[memory.source].size // memory.slot.bytes_per_row for memory in self._slots if start),
            default=0,
        )
        self._after = 0  # where the last run was to end
        self._clean = 0  # rows below which the last run found nothing but what counts and zeros

    def _new(self, slot: Memory, start: Bytes | None) -> SlotMemory:
        nbytes = slot.bytes_per_row * self._manifest.max_seq_len
        spare = Buffer(nbytes, self._device) if slot.source in self._manifest.copied else None
        return SlotMemory(slot.source, slot.target, slot, Buffer(nbytes, self._device, start), spare)

    def bind(self, binding: ort.IOBinding, past: int, length: int) -> None:
        """Bind every slot for a run that writes rows ``[past, length)``; output on the input's memory where proven."""
        rows = self._cleaned(past, length, self._rows_to_bind(length))
        if rows == self._bound:
            return
        self._bound = None  # an interrupt half way must not leave a mixture that looks bound
        for memory in self._slots:
            kind = as_dtype(memory.slot.dtype).onnx
            shape = [rows, *memory.slot.trailing]
            written = memory.spare or memory.rows
            binding.bind_input(memory.source, self._device, 0, kind, shape, memory.rows.address)
            binding.bind_output(memory.target, self._device, 0, kind, shape, written.address)
        self._bound = rows

    def _cleaned(self, past: int, length: int, rows: int) -> int:
        """Return how many rows to bind so that none beyond ``length`` holds what was forgotten.

        Such rows are masked, but a mask is no wall: one NaN in them, times a weight of zero, is NaN in every result.
        They are zeroed; where the memory cannot be reached, they are left out.
        """
        first = self._clean if past == self._after else past  # elsewhere: after a truncate, or a run that failed
        start, end = max(first, length), min(rows, self._written)
        self._after, self._clean, self._written = length, past, max(self._written, length)
        if start < end and self._manifest.lowering == "view":
            for memory in self._slots:
                size = memory.slot.bytes_per_row
                if not memory.rows.clear(start * size, end * size):
                    return length
        self._clean = rows
        return rows

    def _rows_to_bind(self, length: int) -> int:
        capacity = self._manifest.max_seq_len
        if self._manifest.lowering == "buffer":
            return capacity
        return min(capacity, max(1, -(-length // STRIDE)) * STRIDE)

    def settle(self) -> None:
        """After a run, let what was written to spare buffers be the rows."""
        for memory in self._slots:
            if memory.spare is not None:
                self._bound = None  # first: an interrupt between the two must not leave the old binding trusted
                memory.rows, memory.spare = memory.spare, memory.rows

    def first_rows(self, rows: int) -> Iterator[tuple[str, Bytes]]:
        """Yield every slot's input name and a copy of the bytes of its first rows."""
        for memory in self._slots:
            yield memory.source, memory.rows.first(memory.slot.bytes_per_row * rows)
