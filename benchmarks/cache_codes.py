"""What it costs to read 4,000 rows of 576 numbers from a cache, by what the rows are kept in: ratios to float32.

Each graph decodes a slot and sums its columns, one thread; the sum alone is what float32 takes.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from statistics import median

import numpy as np
import onnxruntime

import lazygraph as lg

ROWS, WIDTH, TURNS = 4000, 576, 15


def session_of(total: lg.Tensor, folder: str) -> onnxruntime.InferenceSession:
    """Return a session of one thread that computes the sum."""
    path = Path(folder) / "read.onnx"
    lg.save({"total": total}, path)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def seconds(session: onnxruntime.InferenceSession, feeds: dict[str, np.ndarray]) -> float:
    """Return the median time of a run, in seconds."""
    bound = {name: onnxruntime.OrtValue.ortvalue_from_numpy(array) for name, array in feeds.items()}
    taken = []
    for _ in range(TURNS):
        began = time.perf_counter()
        session.run_with_ort_values(["total"], bound)
        taken.append(time.perf_counter() - began)
    return median(taken[3:])


def main() -> None:
    """Print a line per kind."""
    random = np.random.default_rng(0)
    base = 0.0
    with tempfile.TemporaryDirectory() as folder:
        for dtype in ("float32", "float16"):
            x = lg.input("x", dtype, ["rows", WIDTH])
            session = session_of(lg.reduce_sum(x.astype(lg.float32), 0), folder)
            taken = seconds(session, {"x": random.normal(size=(ROWS, WIDTH)).astype(dtype)})
            base = base or taken
            print(f"{dtype:<8} {x.dtype.nbytes(WIDTH):5} bytes a row  {taken / base:6.1f} x  {taken * 1e6:9,.0f} us")
        for name in ("int8", "fp8"):
            code = lg.Code(name)
            x = lg.input("x", code.dtype, ["rows", WIDTH])
            scale = lg.input("scale", "float32", ["rows"], anchor=x)
            session = session_of(lg.reduce_sum(code.decode(x, scale, lg.float32), 0), folder)
            codes = random.integers(0, 120, (ROWS, WIDTH)).astype(code.dtype.name)
            taken = seconds(session, {"x": codes, "scale": np.ones(ROWS, np.float32)})
            print(f"{name:<8} {WIDTH + 4:5} bytes a row  {taken / base:6.1f} x  {taken * 1e6:9,.0f} us")


if __name__ == "__main__":
    main()
