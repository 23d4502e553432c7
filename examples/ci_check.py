"""What a CI runs over a graph: it is valid, it equals numpy, and what changed since the last release is shown.

Run it as a program here; in a project the three functions are tests that pytest collects, and nothing else is needed.
"""

import sys
import tempfile
from pathlib import Path

import numpy as np

import lazygraph as lg
from lazygraph.export.comparing import compare_files
from lazygraph.testing import assert_matches, assert_valid, feeds

random = np.random.default_rng(0)
W = (random.normal(size=(16, 4)) / 4).astype(np.float32)


def head(weight: np.ndarray = W) -> dict[str, lg.Tensor]:
    x = lg.input("x", lg.float32, ["batch", 16])
    return {"scores": lg.softmax(x @ x.const(weight, "weight"), axis=-1)}


def by_numpy(x: np.ndarray) -> np.ndarray:
    e = np.exp(x @ W)
    return e / e.sum(-1, keepdims=True)


def test_it_is_valid_for_every_opset_we_ship() -> None:
    for opset in (13, 17, 21):
        assert_valid(head(), target="cpu", opset=opset)


def test_it_computes_what_numpy_computes() -> None:
    assert_matches(head(), by_numpy, feeds(head(), max_size=7), max_examples=20)


def test_a_departure_is_told_with_its_line() -> None:
    try:
        assert_matches(head(W * 1.5), by_numpy, {"x": np.ones((1, 16), np.float32)})
    except AssertionError as error:
        print(str(error).splitlines()[1].split(",")[0].strip())


if __name__ == "__main__":
    test_it_is_valid_for_every_opset_we_ship()
    test_it_computes_what_numpy_computes()
    test_a_departure_is_told_with_its_line()
    path = Path(sys.argv[1] if len(sys.argv) > 1 else f"{tempfile.mkdtemp()}/head.onnx")
    released = path.with_name("released.onnx")
    lg.save(head(), released)
    lg.save(head(W * 1.5), path)
    for change in compare_files(released, path, rtol=1e-3):
        print(change.what, change.how, change.name, change.text)
