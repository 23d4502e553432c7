"""What one append into a cache costs, by capacity: bound in place, and not.

Prints microseconds per run of a graph that appends one row of 576 float32 to one slot, for buffers of 1,024 to 131,072
rows, in interleaved rounds. In place the cost should not grow with the capacity.

    python benchmarks/append_cost.py
"""

from __future__ import annotations

import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort

import lazygraph as lg

WIDTH = 576
CAPACITIES = (1_024, 8_192, 131_072)
ROUNDS, RUNS = 15, 40


def step(folder: Path, capacity: int) -> ort.InferenceSession:
    rows = lg.input("rows", "float32", [1, WIDTH])
    cache = lg.LatentCache.inputs(rows, 1, capacity, [[WIDTH]])
    path = folder / f"{capacity}.onnx"
    lg.save(cache.append(0, [rows]).outputs(), path)
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    return ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def bound(session: ort.InferenceSession, capacity: int, in_place: bool) -> tuple[Any, list[Any]]:
    value = ort.OrtValue.ortvalue_from_numpy
    buffer = value(np.zeros((capacity, WIDTH), np.float32))
    written = buffer if in_place else value(np.zeros((capacity, WIDTH), np.float32))
    kept = [buffer, written, value(np.ones((1, WIDTH), np.float32)), value(np.array(capacity - 5))]
    binding = session.io_binding()
    binding.bind_ortvalue_input("past.0.slot0", buffer)
    binding.bind_ortvalue_input("rows", kept[2])
    binding.bind_ortvalue_input("past_len", kept[3])
    binding.bind_ortvalue_output("present.0.slot0", written)
    return binding, kept


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        cases = []
        for capacity in CAPACITIES:
            session = step(Path(folder), capacity)
            cases += [(capacity, in_place, session, *bound(session, capacity, in_place)) for in_place in (True, False)]
        times: dict[tuple[int, bool], list[float]] = {}
        for _ in range(ROUNDS):
            for capacity, in_place, session, binding, _ in cases:
                runs = RUNS if in_place else 4
                session.run_with_iobinding(binding)
                began = time.perf_counter()
                for _ in range(runs):
                    session.run_with_iobinding(binding)
                times.setdefault((capacity, in_place), []).append((time.perf_counter() - began) / runs * 1e6)

    print(f"one row of {WIDTH} float32, one thread, microseconds per run: median (least to most) of {ROUNDS} rounds")
    for (capacity, in_place), spread in times.items():
        how = "in place" if in_place else "copied  "
        print(
            f"{capacity:>8,} rows  {how}  {statistics.median(spread):>10.1f}  ({min(spread):.1f} to {max(spread):.1f})"
        )
    small, large = times[CAPACITIES[0], True], times[CAPACITIES[-1], True]
    ratio = statistics.median(large) / statistics.median(small)
    print(f"in place, {CAPACITIES[-1]:,} against {CAPACITIES[0]:,} rows: {ratio:.2f} x")


if __name__ == "__main__":
    main()
