"""A loaded model is built again on other tensors: sizes follow them, names stay apart, results are the model's."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

import lazygraph as lg

WEIGHT = np.arange(8, dtype=np.float32).reshape(4, 2)
X = np.array([[1, -2, 3, -4], [0.5, 0, 0, 1]], np.float32)


@pytest.fixture
def scorer(tmp_path: Path) -> lg.Loaded:
    """``y = relu(x @ w)`` and how many rows there are, from a file."""
    x = lg.input("x", lg.float32, ["batch", 4])
    y = lg.relu(x @ x.const(WEIGHT, "w"))
    lg.save({"y": y, "rows": lg.size_tensor("batch", x)}, tmp_path / "scorer.onnx")
    return lg.load(tmp_path / "scorer.onnx")


def test_a_model_goes_on_where_a_tensor_ends(scorer: lg.Loaded) -> None:
    a = lg.input("a", lg.float32, ["N", 4])
    found = lg.inline(scorer, x=a * 2.0)
    assert list(found) == ["y", "rows"]
    assert [str(size) for size in found["y"].shape] == ["N", "2"]
    assert found["y"].graph is a.graph
    np.testing.assert_allclose(lg.realize(found["y"], {"a": X}), np.maximum(2 * X @ WEIGHT, 0))
    assert lg.realize(found["rows"], {"a": X}) == 2


def test_two_models_are_one(scorer: lg.Loaded, tmp_path: Path) -> None:
    h = lg.input("h", lg.float32, ["n", 2])
    lg.save({"z": h @ h.const(WEIGHT.T.copy(), "w")}, tmp_path / "second.onnx")
    x = lg.input("x", lg.float32, ["rows", 4])
    y = lg.inline(scorer, x=x)["y"]
    z = lg.inline(lg.load(tmp_path / "second.onnx"), h=y)["z"]
    model = lg.to_onnx({"z": z}, target="cpu")
    assert sorted(t.name for t in model.graph.initializer) == ["w", "w_1"]
    np.testing.assert_allclose(lg.realize(z, {"x": X}), np.maximum(X @ WEIGHT, 0) @ WEIGHT.T, rtol=1e-6)


def test_a_model_inlined_often_keeps_its_weights_once_and_every_name_apart(scorer: lg.Loaded) -> None:
    y = lg.input("x", lg.float32, ["n", 4])
    made = [lg.inline(scorer, {"x": y}, prefix=f"copy{k}/")["y"] for k in range(3)]
    model = lg.to_onnx({f"y{k}": tensor for k, tensor in enumerate(made)})
    assert len(model.graph.initializer) == 1
    names = [name for node in model.graph.node for name in node.output]
    assert len(set(names)) == len(names) == 6
    assert {node.name.split("/")[0] for node in model.graph.node} == {"copy0", "copy1", "copy2"}


def test_the_loaded_model_is_as_before(scorer: lg.Loaded) -> None:
    before = lg.to_onnx(scorer.outputs).SerializeToString()
    lg.inline(scorer, x=lg.input("a", lg.float32, [7, 4]))
    assert lg.to_onnx(scorer.outputs).SerializeToString() == before


def test_a_known_size_becomes_known_behind_it(scorer: lg.Loaded) -> None:
    found = lg.inline(scorer, x=lg.input("a", lg.float32, [7, 4]))
    assert found["y"].shape == (7, 2)


def test_a_sum_of_sizes_is_checked_by_what_the_others_tell(tmp_path: Path) -> None:
    past = lg.input("past", lg.float32, ["p", 3])
    new = lg.input("new", lg.float32, ["n", 3], anchor=past)
    mask = lg.input("mask", lg.float32, ["n + p"], anchor=past)
    lg.save({"y": lg.concat([past, new], 0) + lg.unsqueeze(mask, 1)}, tmp_path / "m.onnx")
    model = lg.load(tmp_path / "m.onnx")
    a = lg.input("a", lg.float32, [5, 3])
    b, m = lg.input("b", lg.float32, ["k", 3], anchor=a), lg.input("m", lg.float32, ["k + 5"], anchor=a)
    assert [str(size) for size in lg.inline(model, past=a, new=b, mask=m)["y"].shape] == ["k + 5", "3"]
    with pytest.raises(lg.ShapeError, match=r"axis 0 of mask is n \+ p, and 9 is given"):
        lg.inline(model, past=a, new=a, mask=lg.input("w", lg.float32, [9], anchor=a))


def test_a_body_closes_over_what_is_given(tmp_path: Path) -> None:
    x = lg.input("x", lg.float32, ["n"])
    flag = lg.input("flag", lg.bool_, [], anchor=x)
    lg.save({"y": lg.cond(flag, lambda: x + 1.0, lambda: x * 2.0)}, tmp_path / "m.onnx")
    a = lg.input("a", lg.float32, ["k"])
    y = lg.inline(lg.load(tmp_path / "m.onnx"), x=a - 1.0, flag=lg.reduce_sum(a) > 0.0)["y"]
    assert lg.realize(y, {"a": np.array([3, 4], np.float32)}).tolist() == [3, 4]
    assert lg.realize(y, {"a": np.array([-3, 1], np.float32)}).tolist() == [-8, 0]


@pytest.mark.parametrize(
    ("wrong", "kind", "says"),
    [
        (lambda m, a: lg.inline(m, y=a), lg.OperandError, "'y' is no input"),
        (lambda m, a: lg.inline(m, xx=a), lg.OperandError, "did you mean 'x'?"),
        (lambda m, a: lg.inline(m, x=a.astype(lg.float16)), lg.DTypeError, "x is float32, and float16 is given"),
        (lambda m, a: lg.inline(m, x=a[0]), lg.ShapeError, "x has 2 axes, and 1 are given"),
        (lambda m, a: lg.inline(m, x=a.T), lg.ShapeError, "axis 1 of x is 4, and N is given"),
        (lambda m, a: lg.inline(m), lg.OperandError, "no tensor is given"),
        (lambda m, a: lg.inline(m, x=cast(Any, X)), lg.OperandError, "x is ndarray"),
        (lambda m, a: lg.inline(cast(Any, "scorer.onnx"), x=a), lg.OperandError, "what lg.load(path) returns"),
    ],
)
def test_what_does_not_fit_is_refused_on_the_users_line(
    scorer: lg.Loaded, wrong: Callable[..., Any], kind: type[Exception], says: str
) -> None:
    with pytest.raises(kind) as caught:
        wrong(scorer, lg.input("a", lg.float32, ["N", 4]))
    assert says in str(caught.value)
    assert "test_inlining.py:" in str(caught.value)


def test_an_input_that_is_left_out_is_named(tmp_path: Path) -> None:
    x = lg.input("x", lg.float32, [2])
    lg.save({"s": x + lg.input("y", lg.float32, [2], anchor=x)}, tmp_path / "m.onnx")
    model = lg.load(tmp_path / "m.onnx")
    with pytest.raises(lg.OperandError, match="y is missing"):
        lg.inline(model, x=lg.input("a", lg.float32, [2]))
    a, b = lg.input("a", lg.float32, [2]), lg.input("b", lg.float32, [2])
    with pytest.raises(lg.GraphMismatchError, match="of different graphs"):
        lg.inline(model, x=a, y=b)
