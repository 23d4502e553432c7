"""A streaming recogniser: frames of sound come in pieces of any size, and the answer never waits for the rest.

The convolution remembers its last frames (a state, replaced on each step); attention remembers a row per frame.
"""

import sys
import tempfile

import numpy as np
import onnxruntime

import lazygraph as lg
from lazygraph import nn

BANDS, HIDDEN, HEADS, WORDS, WIDTH, CAPACITY = 16, 32, 4, 10, 5, 64
random = np.random.default_rng(0)


def weight(x: lg.Tensor, name: str, *sizes: int) -> lg.Tensor:
    return x.const((random.normal(size=sizes) / np.prod(sizes[1:]) ** 0.5).astype(np.float32), name)


def convolved(x: lg.Tensor, cache: lg.LayeredCache) -> tuple[lg.Tensor, lg.LayeredCache]:
    sound = lg.concat([cache.slot(0, "tail"), x], axis=0)  # (WIDTH - 1 + n, BANDS): the frames before, and the new ones
    y = lg.relu(lg.conv(lg.unsqueeze(sound.T, 0), weight(x, "conv", HIDDEN, BANDS, WIDTH)))
    return lg.transpose(lg.squeeze(y, 0)), cache.replace(0, [sound[1 - WIDTH :]])  # (n, HIDDEN)


def attended(x: lg.Tensor, cache: lg.LayeredCache) -> tuple[lg.Tensor, lg.LayeredCache]:
    size = HIDDEN // HEADS
    q, k, v = (lg.reshape(x @ weight(x, name, HIDDEN, HIDDEN), [-1, HEADS, size]) for name in "qkv")
    mask, cache = nn.additive_mask(cache.causal_mask("n")), cache.append(1, [k, v])
    rows_k, rows_v = (cache.slot(1, name, include_pending=True) for name in "kv")
    return x + nn.attention(q, rows_k, rows_v, mask, scale=size**-0.5), cache


x = lg.input("frames", lg.float32, [lg.size("n", min=1, max=CAPACITY), BANDS])
row = [HEADS, HIDDEN // HEADS]
layers = [lg.State({"tail": [WIDTH - 1, BANDS]}), lg.Rows({"k": row, "v": row})]
cache = lg.LayeredCache.inputs(x, CAPACITY, layers)
memory = cache.memory()
y, cache = attended(*convolved(x, cache))
outputs = {"words": y @ weight(y, "head", HIDDEN, WORDS), **cache.advance_by("n").outputs()}
path = sys.argv[1] if len(sys.argv) > 1 else f"{tempfile.mkdtemp()}/streaming.onnx"
lg.save(outputs, path)
print(", ".join(f"{one.slot}: {one.kind}, {one.nbytes:,} bytes" for one in memory))
session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
sound, at_once = random.normal(size=(24, BANDS)).astype(np.float32), None
for pieces in ([24], [1] * 24, [7, 2, 1, 9, 5]):
    held = {one.source: np.zeros((*[one.capacity][one.kind == "state" :], *one.trailing), np.float32) for one in memory}
    done, found = 0, []
    for n in pieces:
        words, *kept = session.run(
            list(outputs), {"frames": sound[done : done + n], "past_len": np.array(done), **held}
        )
        held, done, found = dict(zip(held, kept, strict=True)), done + n, [*found, words]
    at_once = found[0] if at_once is None else at_once
    print(f"{pieces}: largest difference {np.abs(np.concatenate(found) - at_once).max():.1e}")
