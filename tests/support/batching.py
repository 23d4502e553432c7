"""Running an exported step of a batch by hand: all that is known here is what the manifest says of its inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from lazygraph.dtypes import as_dtype
from lazygraph.memory import Lowering, Memory
from tests.support.stepping import Array, _session, kept_positions, ring_rows


class BatchRunner:
    """Keeps the memory of several texts and runs their steps; every row that does not count is poisoned before a run.

    Args:
        model: The file.
        memory: What it remembers.
        lowering: How it is bound.
        texts: How many texts.
        in_place: Bind outputs to the memory of their inputs (not for concat).
        poison: What rows that do not count hold; None leaves what is there.
        spare: Rows bound beyond those needed.
    """

    def __init__(
        self,
        model: Path,
        memory: Sequence[Memory],
        lowering: Lowering,
        texts: int,
        *,
        in_place: bool = False,
        poison: float | None = float("nan"),
        spare: int = 0,
    ) -> None:
        self.session = _session(model, model.stat().st_mtime_ns)
        self.memory, self.lowering, self.in_place = memory, lowering, in_place
        self.poison, self.spare = poison, spare
        self.lengths = np.zeros(texts, np.int64)
        self.held = {
            slot.source: np.zeros((texts, slot.capacity, *slot.trailing), as_dtype(slot.dtype).numpy) for slot in memory
        }

    def places(self, slot: Memory, length: int) -> tuple[Array, Array]:
        """Return which positions a slot keeps of a text so long, and the rows in which they lie."""
        positions = kept_positions(slot, length)
        return positions, np.arange(len(positions)) if self.lowering == "concat" else ring_rows(slot, positions)

    def _given(self, slot: Memory, rows: int) -> Array:
        """Return what goes in: as many rows of each text, those that do not count poisoned."""
        held = self.held[slot.source]
        given = np.zeros((len(self.lengths), rows, *slot.trailing), held.dtype)
        if self.poison is not None:
            given[:] = 127 if given.dtype.kind in "iu" else self.poison
        for text, length in enumerate(self.lengths.tolist()):
            _, where = self.places(slot, length)
            given[text, where] = held[text, where]
        return given

    def run(self, inputs: Mapping[str, Array], new: Sequence[int], results: Sequence[str]) -> dict[str, Array]:
        """Run a step that brings so many rows to each text; return the results."""
        binding = self.session.io_binding()
        names = {value.name for value in self.session.get_inputs()}
        after = self.lengths + np.array(new)
        for name, array in {**inputs, "past_len": self.lengths, "new_len": np.array(new)}.items():
            if name in names:
                binding.bind_ortvalue_input(name, _value(array))
        kept: dict[str, Array] = {}
        for slot in self.memory:
            longest = int((self.lengths if self.lowering == "concat" else after).max())
            rows = slot.capacity if self.lowering == "buffer" else min(slot.capacity, longest + self.spare)
            rows_after = max(rows, min(slot.capacity, int(after.max()))) if self.lowering == "concat" else rows
            given = self._given(slot, rows)
            shape = (len(after), rows_after, *slot.trailing)
            written = given if self.in_place else np.full(shape, 99).astype(given.dtype)
            kind = as_dtype(slot.dtype).onnx
            binding.bind_input(slot.source, "cpu", 0, kind, list(given.shape), given.ctypes.data)
            binding.bind_output(slot.target, "cpu", 0, kind, list(shape), written.ctypes.data)
            kept[slot.source] = written
            inputs = {**inputs, f"keep {slot.source}": given}  # until the run is over
        for name in results:
            binding.bind_output(name, "cpu")
        self.session.run_with_iobinding(binding)
        found = dict(zip(results, (value.numpy() for value in binding.get_outputs()[len(self.memory) :]), strict=True))
        self.lengths = after
        for slot in self.memory:
            whole = np.zeros((len(after), slot.capacity, *slot.trailing), kept[slot.source].dtype)
            whole[:, : kept[slot.source].shape[1]] = kept[slot.source]
            self.held[slot.source] = whole
        return found


def _value(array: Array) -> Any:
    import onnxruntime

    return onnxruntime.OrtValue.ortvalue_from_numpy(np.array(array, order="C"))


def padded(new: Sequence[Array], width: int, pad: float) -> Array:
    """Return the new rows of every text, ``(texts, width, ...)``, padded on the left."""
    found = np.full((len(new), width, *new[0].shape[1:]), pad).astype(new[0].dtype)
    for text, rows in zip(found, new, strict=True):
        text[width - len(rows) :] = rows
    return found
