"""A network that is no decoder: a small image classifier, any batch and any image size, beside the same in numpy.

Sizes stay symbolic all the way: (batch, 3, height, width) becomes (batch, 10), and the file serves every image.
"""

import itertools
import sys
import tempfile

import numpy as np
import onnxruntime

import lazygraph as lg

CHANNELS, CLASSES = (3, 8, 16), 10
random = np.random.default_rng(0)
weights = {
    f"stage{i}": (random.normal(size=(out, into, 3, 3)) / (3 * into**0.5)).astype(np.float32)
    for i, (into, out) in enumerate(itertools.pairwise(CHANNELS))
}
weights["head"] = (random.normal(size=(CHANNELS[-1], CLASSES)) / 4).astype(np.float32)


def classifier(image: lg.Tensor) -> lg.Tensor:
    x = image
    for stage in range(2):
        with lg.scope(f"stage{stage}"):
            x = lg.relu(lg.conv(x, image.const(weights[f"stage{stage}"], f"stage{stage}.weight"), pads=[1, 1, 1, 1]))
            x = lg.max_pool(x, [2, 2], strides=[2, 2])
            print(f"after stage {stage}: {x.shape}")
    features = lg.reduce_mean(x, [2, 3])  # (batch, channels)
    return lg.softmax(features @ image.const(weights["head"], "head.weight"))


def by_numpy(x: np.ndarray) -> np.ndarray:
    for stage in range(2):
        padded = np.pad(x, [(0, 0), (0, 0), (1, 1), (1, 1)])
        windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(2, 3))
        x = np.maximum(np.einsum("bihwyx,oiyx->bohw", windows, weights[f"stage{stage}"]), 0)
        batch, channels, height, width = x.shape
        x = x[:, :, : height // 2 * 2, : width // 2 * 2]
        x = x.reshape(batch, channels, height // 2, 2, width // 2, 2).max((3, 5))
    scores = np.exp(x.mean((2, 3)) @ weights["head"])
    return scores / scores.sum(-1, keepdims=True)


sizes = ["batch", 3, lg.size("height", min=4), lg.size("width", min=4)]
classes = classifier(lg.input("image", lg.float32, sizes))
path = sys.argv[1] if len(sys.argv) > 1 else f"{tempfile.mkdtemp()}/cnn.onnx"
lg.save({"classes": (classes, ["batch", CLASSES])}, path)

session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
for batch, height, width in ((1, 32, 32), (4, 28, 45)):
    image = random.normal(size=(batch, 3, height, width)).astype(np.float32)
    difference = np.abs(session.run(None, {"image": image})[0] - by_numpy(image)).max()
    print(f"{batch} of {height} x {width}: largest difference {difference:.1e}")
