"""A decoder of 60 layers as 60 calls of one function against the same inlined: what its file holds, and its speed.

Structure is what a file holds beside the weights: nodes (a function's counted once) and bytes. Speed is that of one
decode step in onnxruntime, which inlines functions when it loads a file; the two sessions run in turns.
"""

from __future__ import annotations

import argparse
import statistics
import time
from typing import Any

import numpy as np

import lazygraph as lg
from lazygraph import nn
from lazygraph.export import open_session

HIDDEN, HEADS, SIZE, INNER, ROWS = 64, 4, 16, 128, 64


def decoder(layers: int) -> dict[str, lg.Tensor]:
    """Return the outputs of a decoder with rotary attention over a cache and a gated feed-forward."""
    random = np.random.default_rng(0)
    x = lg.input("x", lg.float32, [lg.size("n", min=1, max=ROWS), HIDDEN])
    cache = lg.KvCache.head_inputs(x, layers, ROWS, HEADS, SIZE)
    frequencies = x.const((10000.0 ** -(np.arange(0, SIZE, 2) / SIZE)).astype(np.float32), "frequencies")
    cos, sin = nn.rotary_tables(cache.positions("n"), frequencies)
    mask = nn.additive_mask(cache.causal_mask("n"))

    def weight(name: str, *shape: int) -> lg.Tensor:
        return x.const((random.normal(size=shape) / shape[0] ** 0.5).astype(np.float32), name)

    @lg.function
    def layer(x: lg.Tensor, cache: lg.KvCache, k: int) -> tuple[lg.Tensor, lg.KvCache]:
        with lg.scope(f"layers.{k}"):
            h = nn.rms_norm(x, weight(f"layers.{k}.norm1", HIDDEN))
            q, key, value = (
                lg.reshape(h @ weight(f"layers.{k}.{part}", HIDDEN, HIDDEN), [-1, HEADS, SIZE]) for part in "qkv"
            )
            cache = cache.append(k, [nn.rotary(key, cos, sin), value])
            rows = cache.k(k, include_pending=True), cache.v(k, include_pending=True)
            mixed = nn.attention(nn.rotary(q, cos, sin), *rows, mask, SIZE**-0.5)
            x = x + mixed @ weight(f"layers.{k}.o", HIDDEN, HIDDEN)
            h = nn.rms_norm(x, weight(f"layers.{k}.norm2", HIDDEN))
            gate = h @ weight(f"layers.{k}.gate", HIDDEN, INNER)
            up = h @ weight(f"layers.{k}.up", HIDDEN, INNER)
            return x + lg.silu(gate) * up @ weight(f"layers.{k}.down", INNER, HIDDEN), cache

    y = x
    for k in range(layers):
        y, cache = layer(y, cache, k)
    return {"y": y, **cache.advance_by("n").outputs()}


def structure(model: Any) -> tuple[int, int]:
    """Return the nodes that a file holds, and its bytes beside the weights."""
    nodes = len(model.graph.node) + sum(len(function.node) for function in model.functions)
    weights = sum(len(tensor.raw_data) for tensor in model.graph.initializer)
    return nodes, model.ByteSize() - weights


def main() -> None:
    """Print the comparison."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--layers", type=int, default=60)
    parser.add_argument("--rounds", type=int, default=15)
    given = parser.parse_args()

    outputs = decoder(given.layers)
    models = {"functions": lg.to_onnx(outputs), "inlined": lg.to_onnx(outputs, functions=False)}
    print(f"{given.layers} layers: {len(models['functions'].functions)} functions")
    for name, model in models.items():
        nodes, nbytes = structure(model)
        print(f"{name:<10} {nodes:>6} nodes {nbytes:>9,} bytes beside the weights")
    shares = [a / b for a, b in zip(structure(models["functions"]), structure(models["inlined"]), strict=True)]
    print(f"share      {shares[0]:.1%} of the nodes, {shares[1]:.1%} of the bytes")

    sessions, opened = {}, {}
    for name, model in models.items():
        start = time.perf_counter()
        sessions[name] = open_session(model, threads=1)
        opened[name] = time.perf_counter() - start
    feeds = {"x": np.ones((1, HIDDEN), np.float32), "past_len": np.array(20)}
    for k in range(given.layers):
        feeds |= {f"past.{k}.{slot}": np.zeros((ROWS, HEADS, SIZE), np.float32) for slot in "kv"}
    times: dict[str, list[float]] = {name: [] for name in sessions}
    for turn in range(given.rounds + 2):
        for name, session in sessions.items():
            start = time.perf_counter()
            for _ in range(5):
                session.run(None, feeds)
            if turn >= 2:
                times[name].append((time.perf_counter() - start) / 5 * 1e3)
    for name, found in times.items():
        step = f"a step {statistics.median(found):.2f} ms ({min(found):.2f} to {max(found):.2f})"
        print(f"{name:<10} opened in {opened[name]:.2f} s; {step}")
    ratios = [a / b for a, b in zip(times["functions"], times["inlined"], strict=True)]
    print(f"ratio      {statistics.median(ratios):.3f} ({min(ratios):.3f} to {max(ratios):.3f})")


if __name__ == "__main__":
    main()
