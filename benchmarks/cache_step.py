"""What a step costs by capacity and by length: microseconds per append, per attention step, and bytes copied.

One layer of 16 heads over one latent row of 512 + 64 float32, as DeepSeek keeps it, one thread, in turns. Lowered
as ``view`` the rows that count are bound, as ``buffer`` the whole buffer, as ``concat`` past and present are two
memories. Bytes copied are those of rows that were there before and are written again: none in place, all of the past
for ``concat``; ``buffer`` copies the rows that count into the slice that attention reads.

    python benchmarks/cache_step.py
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort

import lazygraph as lg
from lazygraph import nn

HEADS, LATENT, ROPE = 16, 512, 64
WIDTH = LATENT + ROPE
CAPACITIES, LENGTHS = (1_024, 8_192, 131_072), (512, 4_000)


def graph(folder: Path, capacity: int, lowering: str, attends: bool) -> ort.InferenceSession:
    rows = lg.input("rows", "float32", [lg.size("n", min=1, max=capacity), WIDTH])
    cache = lg.LatentCache.inputs(rows, 1, capacity, [[WIDTH]], lowering=lowering)  # type: ignore[arg-type]
    outputs: dict[str, lg.Tensor] = {}
    if attends:
        q = lg.input("q", "float32", ["n", HEADS, WIDTH], anchor=rows)

        def mix(kept: Any, mask: Any) -> lg.Tensor:
            held = kept[0] if isinstance(kept[0], lg.Tensor) else lg.concat(list(kept[0]), 0)
            scores = lg.reshape(lg.reshape(q, [-1, WIDTH]) @ lg.transpose(held), ["n", HEADS, -1])
            added = nn.additive_mask(mask) if mask.dtype is lg.bool_ else mask
            wide = scores * float(WIDTH**-0.5) + lg.unsqueeze(added, 1)
            return lg.reshape(lg.softmax(wide), [-1, held.shape[0]]) @ held

        outputs["mixed"], cache = cache.attend(0, [rows], cache.step("n"), mix)
    else:
        cache = cache.append(0, [rows])
    path = folder / f"{capacity}-{lowering}-{attends}.onnx"
    lg.save({**outputs, **cache.advance_by("n").outputs()}, path)
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    return ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def step(
    session: ort.InferenceSession, capacity: int, length: int, lowering: str
) -> tuple[Callable[[], None], list[Any]]:
    """Return one run after ``length - 1`` rows, everything bound, and what must stay alive."""
    value = ort.OrtValue.ortvalue_from_numpy
    past = length - 1
    before = {"view": -(-length // 64) * 64, "buffer": capacity, "concat": past}[lowering]
    buffer = value(np.zeros((before, WIDTH), np.float32))
    written = value(np.zeros((length, WIDTH), np.float32)) if lowering == "concat" else buffer
    binding = session.io_binding()
    given = {"past.0.slot0": buffer, "rows": value(np.ones((1, WIDTH), np.float32)), "past_len": value(np.array(past))}
    if any(one.name == "q" for one in session.get_inputs()):
        given["q"] = value(np.ones((1, HEADS, WIDTH), np.float32))
        binding.bind_output("mixed", "cpu")
    for name in {one.name for one in session.get_inputs()} & given.keys():
        binding.bind_ortvalue_input(name, given[name])
    binding.bind_ortvalue_output("present.0.slot0", written)
    return lambda: session.run_with_iobinding(binding), [given, written, binding]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=9)
    given = parser.parse_args()
    cases: dict[tuple[str, int, int, bool], Callable[[], None]] = {}
    alive: list[Any] = []
    with tempfile.TemporaryDirectory() as name:
        for lowering in ("view", "buffer", "concat"):
            for capacity in CAPACITIES:
                sessions = {attends: graph(Path(name), capacity, lowering, attends) for attends in (False, True)}
                for length in LENGTHS:
                    if length > capacity:
                        continue
                    for attends, session in sessions.items():
                        run, kept = step(session, capacity, length, lowering)
                        cases[lowering, capacity, length, attends] = run
                        alive.append(kept)
        times: dict[tuple[str, int, int, bool], list[float]] = {case: [] for case in cases}
        for _ in range(given.rounds):
            for case, run in cases.items():
                runs = 5 if case[3] or case[0] == "concat" else 40
                run()
                began = time.perf_counter()
                for _ in range(runs):
                    run()
                times[case].append((time.perf_counter() - began) / runs * 1e6)

    print(f"median microseconds (least to most) of {given.rounds} rounds, one thread")
    print("lowering  capacity  length  append                     attention step             bytes copied")
    for (lowering, capacity, length, attends), spread in times.items():
        if attends:
            continue
        row = WIDTH * 4
        copied = {"view": 0, "buffer": length * row, "concat": (length - 1) * row}[lowering]
        both = [_spread(spread), _spread(times[lowering, capacity, length, True])]
        print(f"{lowering:<8} {capacity:>9,} {length:>7,}  {both[0]:<26} {both[1]:<26} {copied:>12,}")
    for length in LENGTHS:
        for lowering in ("view", "buffer"):
            found = [statistics.median(times[lowering, c, length, False]) for c in CAPACITIES if c >= length]
            print(
                f"append, {lowering}, {length:,} rows: largest capacity against smallest {found[-1] / found[0]:.2f} x"
            )


def _spread(found: list[float]) -> str:
    return f"{statistics.median(found):,.1f} ({min(found):,.1f} to {max(found):,.1f})"


if __name__ == "__main__":
    main()
