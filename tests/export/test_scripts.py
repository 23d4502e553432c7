"""onnxscript's functions as calls in our graphs: values, shapes, attributes, refusals."""

# mypy: disable-error-code="no-untyped-call,no-untyped-def,misc,arg-type,type-arg"

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
import onnxruntime
import pytest
from onnxscript import opset18 as op
from onnxscript import script

import lazygraph as lg

F32 = lg.float32


@script()
def joined(x, axis: int = 0):
    return op.Concat(x, x, axis=axis)


@script()
def gated(x, w, alpha: float = 0.5, axis: int = 1):
    y = op.MatMul(x, w) * alpha
    total = op.ReduceSum(y, keepdims=0)
    if total > 0.0:  # noqa: SIM108
        chosen = op.Relu(y)
    else:
        chosen = op.Neg(y)
    return joined(chosen, axis=axis)


@script()
def halves(x, size: int):
    left, right = op.Split(x, num_outputs=2, axis=1)
    return left, right


def _wanted(x: np.ndarray, w: np.ndarray, alpha: float, axis: int) -> np.ndarray:
    y = x @ w * alpha
    return np.concatenate([np.maximum(y, 0) if y.sum() > 0 else -y] * 2, axis)


def test_a_script_with_a_branch_and_another_script_in_it_computes_what_numpy_does() -> None:
    rng = np.random.default_rng(0)
    w = rng.normal(size=(4, 3)).astype(np.float32)
    x = lg.input("x", F32, ["n", 4])
    y = lg.call(gated, x, x.const(w, "w"))
    z = lg.call(gated, x * 2.0, x.const(w[::-1].copy(), "v"), alpha=-2.0, axis=0)
    assert isinstance(y, lg.Tensor) and isinstance(z, lg.Tensor)
    assert [str(size) for size in y.shape] == ["n", "6"]
    assert [str(size) for size in z.shape] == ["2*n", "3"]

    model = lg.to_onnx({"y": y, "z": z})
    onnx.checker.check_model(model)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    for sign in (1, -1):
        feed = (rng.normal(size=(2, 4)) * sign).astype(np.float32)
        one, two = session.run(None, {"x": feed})
        np.testing.assert_allclose(one, _wanted(feed, w, 0.5, 1), rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(two, _wanted(feed * 2, w[::-1], -2.0, 0), rtol=1e-5, atol=1e-6)


def test_calls_with_equal_attributes_are_calls_of_one_function() -> None:
    x = lg.input("x", F32, ["n", 4])
    h = x
    for i in range(3):
        made = lg.call(gated, h, x.const(np.full((4, 2), i + 1, np.float32), f"w.{i}"))
        assert isinstance(made, lg.Tensor)
        h = made
    model = lg.to_onnx({"y": h})
    assert [function.name for function in model.functions if function.name.startswith("gated")] == ["gated"]
    assert [node.op_type for node in model.graph.node] == ["gated"] * 3
    assert not lg.to_onnx({"y": h}, functions=False).functions


def test_several_results_are_a_tuple() -> None:
    x = lg.input("x", F32, ["n", 6])
    left, right = lg.call(halves, x, size=3)
    assert left.shape[1] == right.shape[1] == 3
    feed = np.arange(12, dtype=np.float32).reshape(2, 6)
    assert lg.realize(right, {"x": feed}).tolist() == feed[:, 3:].tolist()


def test_what_does_not_fit_is_refused_on_the_users_line() -> None:
    x = lg.input("x", F32, ["n", 4])
    cases: list[tuple[Callable[[], object], str]] = [
        (lambda: lg.call(gated, x), "1 operands given to gated"),
        (lambda: lg.call(gated, x, x, beta=1.0), "gated has no attribute beta"),
        (lambda: lg.call(halves, x), "attribute size of halves is missing"),
        (lambda: lg.call(halves, x, size=object()), "attribute size is <object"),
        (lambda: lg.call(len, x), "'len' is no function of onnxscript"),
    ]
    for asked, what in cases:
        with pytest.raises(lg.OperandError, match=what) as caught:
            asked()
        assert "test_scripts.py" in str(caught.value)
    other = lg.input("other", F32, ["n", 4])
    with pytest.raises(lg.GraphMismatchError):
        lg.call(gated, x, other)
    with pytest.raises(lg.LazyGraphError, match=r"(?s)matmul.*test_scripts\.py"):
        lg.call(gated, x, x.const(np.zeros((5, 3), np.float32)))
