"""Attention with two projections: a layer keeps one vector per token, which serves as key and as value.

A cache is a list of slots of any size, so this one has a single slot. Change what a row holds, and how it is read.
"""

import sys
import tempfile

import numpy as np
import onnxruntime

import lazygraph as lg
from lazygraph import nn

LAYERS, HIDDEN, HEADS, CAPACITY = 2, 32, 4, 24
random = np.random.default_rng(0)


def weight(x: lg.Tensor, name: str) -> lg.Tensor:
    return x.const((random.normal(size=(HIDDEN, HIDDEN)) / HIDDEN**0.5).astype(np.float32), name)


def layer(number: int, x: lg.Tensor, cache: lg.LatentCache, mask: lg.Tensor) -> tuple[lg.Tensor, lg.LatentCache]:
    with lg.scope(f"layers.{number}"):
        h = nn.rms_norm(x, x.const(np.ones(HIDDEN, np.float32)))
        queries = h @ weight(x, f"layers.{number}.q")
        cache = cache.append(number, [h @ weight(x, f"layers.{number}.kept")])  # the one thing that is remembered
        kept = cache.slot(number, 0, include_pending=True)  # (rows, hidden)

        size = HIDDEN // HEADS
        by_head = lg.reshape(kept, [kept.shape[0], HEADS, size])
        mixed = nn.attention(lg.reshape(queries, ["n", HEADS, size]), by_head, by_head, mask, scale=size**-0.5)
        return x + mixed, cache


x = lg.input("x", lg.float32, [lg.size("n", min=1, max=CAPACITY), HIDDEN])
cache = lg.LatentCache.inputs(x, LAYERS, CAPACITY, slot_trailing=[[HIDDEN]], slot_names=["kept"])
mask, y = nn.additive_mask(cache.causal_mask("n")), x
for number in range(LAYERS):
    y, cache = layer(number, y, cache, mask)
path = sys.argv[1] if len(sys.argv) > 1 else f"{tempfile.mkdtemp()}/two_projection.onnx"
lg.save({"y": y, **cache.advance_by("n").outputs()}, path)
print(f"a token costs {cache.layout.nbytes // CAPACITY} bytes; keys and values apart would cost twice that")

session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
tokens = random.normal(size=(9, HIDDEN)).astype(np.float32)
for pieces in ([9], [4, 1, 1, 3], [1] * 9):
    past = {f"past.{number}.kept": np.zeros((CAPACITY, HIDDEN), np.float32) for number in range(LAYERS)}
    done, found = 0, []
    for n in pieces:
        made, *kept = session.run(None, {"x": tokens[done : done + n], "past_len": np.array(done), **past})
        past, done, found = dict(zip(past, kept, strict=True)), done + n, [*found, made]
    whole = np.concatenate(found) if pieces[1:] else (first := found[0])
    print(f"{pieces}: largest difference {np.abs(whole - first).max():.1e}")
