"""A sliding window with an attention sink: memory for so many rows, whatever the length of the text.

The same layer as ever: it gives its new rows to `attend` and takes attention back. Only the cache knows of the window.
"""

import sys
import tempfile

import numpy as np
import onnxruntime

import lazygraph as lg
from lazygraph import nn

HEADS, SIZE, WINDOW, SINKS, LONGEST = 2, 8, 6, 1, 1_000_000
HIDDEN = HEADS * SIZE
random = np.random.default_rng(0)
weights = {name: (random.normal(size=(HIDDEN, HIDDEN)) / HIDDEN**0.5).astype(np.float32) for name in "qkvo"}

x = lg.input("x", lg.float32, [lg.size("n", min=1, max=LONGEST), HIDDEN])
cache = lg.RotatingCache.inputs(
    x, 1, LONGEST, [[HEADS, SIZE], [HEADS, SIZE]], window=WINDOW, sinks=SINKS, slot_names=["k", "v"], lowering="buffer"
)
step = cache.step("n")  # positions and masks, for all layers
q, k, v = (lg.reshape(x @ x.const(weights[name], name), ["n", HEADS, SIZE]) for name in "qkv")
mixed, cache = cache.attend(
    0, [k, v], step, lambda rows, mask: nn.attention(q, rows[0], rows[1], mask, scale=SIZE**-0.5)
)
y = x + mixed @ x.const(weights["o"], "o")
path = sys.argv[1] if len(sys.argv) > 1 else f"{tempfile.mkdtemp()}/sliding_window.onnx"
lg.save({"y": y, **(cache := cache.advance_by("n")).outputs()}, path)
print(f"{sum(slot.nbytes for slot in cache.memory()):,} bytes for up to {LONGEST:,} tokens")

session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
tokens = random.normal(size=(20, HIDDEN)).astype(np.float32)
for pieces in ([20], [9, 1, 1, 7, 2], [1] * 20):  # longer than the window, across its wrap, one by one
    past = {slot.source: np.zeros((slot.capacity, *slot.trailing), np.float32) for slot in cache.memory()}
    done, found = 0, []
    for n in pieces:
        made, *kept = session.run(None, {"x": tokens[done : done + n], "past_len": np.array(done), **past})
        past, done, found = dict(zip(past, kept, strict=True)), done + n, [*found, made]
    whole = np.concatenate(found) if pieces[1:] else (first := found[0])
    print(f"{pieces}: largest difference {np.abs(whole - first).max():.1e}")
