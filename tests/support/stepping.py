"""Running an exported step by hand: what the manifest says of inputs and outputs is all that is known here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime

from lazygraph.dtypes import as_dtype
from lazygraph.memory import Lowering, Memory

Array = np.ndarray[Any, Any]


@lru_cache(maxsize=4)
def _session(model: Path, written: int) -> onnxruntime.InferenceSession:
    """Return a session of a file as it was at that time: runners of one file share it."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def ring_rows(slot: Memory, positions: Array) -> Array:
    """Return the rows of a slot in which positions of a text lie."""
    if slot.kind == "rows":
        return positions
    return np.where(positions < slot.sinks, positions, slot.sinks + (positions - slot.sinks) % slot.window)


def kept_positions(slot: Memory, length: int) -> Array:
    """Return the positions that a slot keeps after so many tokens, oldest first."""
    everything = np.arange(length)
    if slot.kind == "rows":
        return everything
    return np.concatenate([everything[: slot.sinks], everything[slot.sinks :][-slot.window :]])


class Runner:
    """Keeps the memory of an exported step and runs it, in the memory's own place or beside it.

    Args:
        model: The file.
        memory: What it remembers.
        lowering: How it is bound.
        in_place: Bind outputs to the memory of their inputs (not for concat).
        poison: What rows that hold nothing are filled with where the graph must not look at them.
        spare: Rows bound beyond those needed, lowered as view.
    """

    def __init__(
        self,
        model: Path,
        memory: Sequence[Memory],
        lowering: Lowering,
        *,
        in_place: bool = False,
        poison: float = 0.0,
        spare: int = 0,
    ) -> None:
        self.session = _session(model, model.stat().st_mtime_ns)
        self.memory, self.lowering, self.in_place, self.spare = memory, lowering, in_place, spare
        self.length = 0
        # Lowered as view, rows beyond those that count must hold zeros.
        start = 0.0 if lowering == "view" else poison
        self.held = {
            slot.source: np.full((slot.capacity, *slot.trailing), start, as_dtype(slot.dtype).numpy) for slot in memory
        }

    def _rows(self, slot: Memory, length: int, new: int) -> int:
        if self.lowering == "buffer":
            return slot.capacity
        if self.lowering == "concat":
            return min(length, slot.capacity)
        return min(slot.capacity, length + new + self.spare)

    def run(self, inputs: Mapping[str, Array], n: int, results: Mapping[str, tuple[int, ...]]) -> dict[str, Array]:
        """Run a step of ``n`` rows; return the results, ``float32`` (or as their inputs) of these shapes."""
        binding = self.session.io_binding()
        names = {value.name for value in self.session.get_inputs()}
        for name, array in {**inputs, "past_len": np.array(self.length)}.items():
            if name in names:
                binding.bind_cpu_input(name, np.array(array, order="C"))
        written: dict[str, Array] = {}
        for slot in self.memory:
            kind = as_dtype(slot.dtype).onnx
            rows = self._rows(slot, self.length, n)
            old = self.held[slot.source]
            after = min(self.length + n, slot.capacity) if self.lowering == "concat" else rows
            new = old if self.in_place else np.empty((max(after, slot.capacity), *slot.trailing), old.dtype)
            if slot.source in names:
                shape = [rows, *slot.trailing]
                binding.bind_input(slot.source, "cpu", 0, kind, shape, old.ctypes.data)
            binding.bind_output(slot.target, "cpu", 0, kind, [after, *slot.trailing], new.ctypes.data)
            if not self.in_place and self.lowering == "view":
                new[rows:] = old[rows:]
            written[slot.source] = new
        for name in results:
            binding.bind_output(name, "cpu")
        self.session.run_with_iobinding(binding)
        found = {}
        order = [slot.target for slot in self.memory] + list(results)
        for name, value in zip(order, binding.get_outputs(), strict=True):
            if name in results:
                found[name] = value.numpy()
                assert found[name].shape == results[name]
        self.held = written
        self.length += n
        return found


def decode(folder: Path, tokens: Array, chunks: Sequence[int], **how: Any) -> tuple[Array, Runner]:
    """Return an exported decoder's logits after each token, the tokens read in chunks, and its runner."""
    from lazygraph.export.manifest import read_manifest

    manifest = read_manifest(folder)
    runner = Runner(folder / "model.onnx", manifest.memory, manifest.lowering, **how)
    rows, start = [], 0
    for n in chunks:
        inputs = {"input_ids": tokens[start : start + n], "logits_from": np.array(0)}
        rows.append(runner.run(inputs, n, {"logits": (n, manifest.vocab_size)})["logits"])
        start += n
    return np.concatenate(rows), runner
