"""What the decoder adds to a step: the whole of a step against onnxruntime's run alone, for 60 slots.

A graph of 30 layers with keys and values, each slot appended to and attended, is run one token at a time: by
``Decoder.append``, and by ``run_with_iobinding`` alone on what the decoder bound. Prints microseconds, by lowering, in
interleaved rounds; the difference is what Python, checks and binding cost.

    python benchmarks/decoder_binding.py
"""

from __future__ import annotations

import statistics
import tempfile
import time
from pathlib import Path

import numpy as np

import lazygraph as lg
from lazygraph import nn
from lazygraph.memory import Lowering

LAYERS, HEADS, WIDTH, VOCAB, CAPACITY = 30, 4, 64, 64, 2048
LOWERINGS: tuple[Lowering, ...] = ("view", "buffer", "concat")
ROUNDS, RUNS = 7, 30


def export(folder: Path, lowering: Lowering) -> Path:
    """Write a decoder of 60 slots."""
    ids = lg.input("input_ids", "int64", [lg.size("n", min=1, max=CAPACITY)])
    cache = lg.KvCache.head_inputs(ids, LAYERS, CAPACITY, HEADS, WIDTH, lowering=lowering)
    random = np.random.default_rng(0)
    x = lg.gather(ids.const(random.normal(size=(VOCAB, HEADS * WIDTH)).astype(np.float32), "table"), ids)
    w = x.const((random.normal(size=(HEADS * WIDTH, HEADS * WIDTH)) / 16).astype(np.float32), "w")
    step = cache.step("n")

    for layer in range(LAYERS):
        q = lg.reshape(x @ w, ["n", HEADS, WIDTH])
        mixed, cache = cache.attend(
            layer,
            [q * 0.5, q],
            step,
            lambda rows, mask, q=q: nn.attention(q, rows[0], rows[1], mask, WIDTH**-0.5),  # type: ignore[misc]
        )
        x = x + mixed
    start = lg.input("logits_from", "int64", [], anchor=ids)
    head = x.const(random.normal(size=(HEADS * WIDTH, VOCAB)).astype(np.float32), "head")
    logits = lg.slice(x @ head, lg.reshape(start, [1]), [2**31], axes=[0])
    lg.save_decoder(logits, cache.advance_by("n"), folder)
    return folder


def main() -> None:
    """Print the table."""
    with tempfile.TemporaryDirectory() as scratch:
        decoders = {name: lg.Decoder.open(export(Path(scratch) / name, name), threads=1) for name in LOWERINGS}
        whole: dict[str, list[float]] = {name: [] for name in LOWERINGS}
        alone: dict[str, list[float]] = {name: [] for name in LOWERINGS}
        for decoder in decoders.values():
            decoder.append([1] * 512)
        for _ in range(ROUNDS):
            for name, decoder in decoders.items():
                began = time.perf_counter()
                for _ in range(RUNS):
                    decoder.append([1])
                whole[name].append((time.perf_counter() - began) / RUNS * 1e6)
                runner = decoder._runner
                which = 1 - runner.memory.now.flip % 2 if name == "concat" else 0
                binding = runner._bindings._bindings[which]
                began = time.perf_counter()
                for _ in range(RUNS):
                    runner.session.run_with_iobinding(binding)
                alone[name].append((time.perf_counter() - began) / RUNS * 1e6)
    print(f"one token, {2 * LAYERS} slots, one thread, microseconds per step: median of {ROUNDS} rounds")
    for name in LOWERINGS:
        step, run = statistics.median(whole[name]), statistics.median(alone[name])
        share = 100 * (step - run) / step
        print(f"{name:<8} step {step:8.0f}  run alone {run:8.0f}  the decoder's share {share:5.1f} %")


if __name__ == "__main__":
    main()
