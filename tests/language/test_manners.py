"""How tensors behave in Python: operators from both sides, truth, length, iteration, hashing, scalars."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import lazygraph as lg
from lazygraph.evaluate import realize


def _x(*shape: int | str, dtype: Any = "float32") -> lg.Tensor:
    return lg.input("x", dtype, shape)


@pytest.mark.parametrize("symbol", ["+", "-", "*", "/", "//", "%", "**", "@", "<", "<=", ">", ">=", "==", "!="])
def test_operator_from_either_side_equals_numpy(symbol: str) -> None:
    left = np.array([[1.5, 2], [3, 4]], np.float32)
    right = np.array([[2, 3], [0.5, 4]], np.float32)
    x = _x(2, 2)
    for expression, values in (("t s a", {"t": x, "a": right}), ("a s t", {"t": x, "a": right})):
        y = eval(expression.replace("s", symbol), dict(values))
        assert isinstance(y, lg.Tensor)
        expected = eval(expression.replace("s", symbol), {"t": left, "a": right})
        np.testing.assert_allclose(realize(y, {"x": left}), expected, rtol=1e-6)


@pytest.mark.parametrize("symbol", ["&", "|", "^"])
@pytest.mark.parametrize("dtype", [np.int64, np.bool_])
def test_bit_operator_from_either_side_equals_numpy(symbol: str, dtype: Any) -> None:
    left, right = np.array([1, 0, 1, 0], dtype), np.array([1, 1, 0, 0], dtype)
    x = _x(4, dtype=left.dtype)
    for a, b, values in (("t", "a", (left, right)), ("a", "t", (right, left))):
        y = eval(f"{a} {symbol} {b}", {"t": x, "a": right})
        np.testing.assert_array_equal(
            realize(y, {"x": left}), eval(f"p {symbol} q", dict(zip("pq", values, strict=True)))
        )


def test_unary_operators_equal_numpy() -> None:
    value = np.array([-1.5, 2], np.float32)
    x = _x(2)
    for y, expected in ((-x, -value), (+x, value), (abs(x), abs(value)), (~(x > 0), ~(value > 0))):
        np.testing.assert_array_equal(realize(y, {"x": value}), expected)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "float64", "int8", "int64", "uint8"])
def test_a_scalar_takes_the_tensors_dtype(dtype: str) -> None:
    x = _x(3, dtype=dtype)
    for y in (x + 1, 1 + x, x * 2, 2 - x, lg.maximum(x, 0), lg.clip(x, 0, 5), lg.where(x > 0, x, 0)):
        assert y.dtype == dtype


def test_a_bool_tensor_takes_no_number() -> None:
    with pytest.raises(lg.DTypeError, match="a number 1 with a bool tensor"):
        _x(3, dtype="bool") == 1  # noqa: B015


def test_truth_explains_itself() -> None:
    with pytest.raises(lg.DTypeError, match=r"lg\.where"):
        bool(_x(3))
    with pytest.raises(lg.DTypeError, match="the truth of a tensor"):
        if _x() > 0:
            pass


def test_membership_explains_itself() -> None:
    with pytest.raises(lg.DTypeError, match="what a tensor contains"):
        3 in _x(3)  # noqa: B015


def test_numpy_gets_no_numbers() -> None:
    with pytest.raises(lg.DTypeError, match=r"lg\.realize"):
        np.asarray(_x(3))
    with pytest.raises(lg.DTypeError):
        np.array([_x(3), 1], dtype=np.float32)


def test_iteration_over_a_known_size_gives_the_rows() -> None:
    value = np.arange(6, dtype=np.float32).reshape(3, 2)
    first, second, third = _x(3, 2)
    np.testing.assert_array_equal(realize([first, second, third], {"x": value}), value)


def test_iteration_over_a_named_size_explains_itself() -> None:
    with pytest.raises(lg.ShapeError, match="first size is a known number"):
        list(_x("n", 2))
    with pytest.raises(lg.ShapeError, match="first size is a known number"):
        list(_x())


def test_length_and_sizes() -> None:
    x = _x(3, "seq")
    assert len(x) == 3
    assert x.ndim == 2
    assert x.size == "3*seq"
    assert int(x.shape[0]) == 3
    with pytest.raises(lg.ShapeError, match="known by name only"):
        int(x.shape[1])
    with pytest.raises(lg.ShapeError, match="no length"):
        len(_x())


def test_equality_compares_elements_and_hashing_is_by_identity() -> None:
    x = _x(2)
    y = x.const(np.zeros(2, np.float32))
    assert (x == y).dtype == "bool"
    assert len({x, y, x}) == 2
    assert {x: 1}[x] == 1


def test_scalar_constants_are_shared_but_zero_keeps_its_sign() -> None:
    x = _x(2)
    assert (x + 1.0).origin.inputs[1] is (x * 1.0).origin.inputs[1]  # type: ignore[union-attr]
    y = realize([1 / (x * 0.0), 1 / (x * -0.0)], {"x": np.ones(2, np.float32)})
    assert [math.copysign(1, float(v[0])) for v in y] == [1, -1]


def test_tensors_are_immutable_values() -> None:
    x = _x(2)
    with pytest.raises(TypeError):
        x[0] = 1.0  # type: ignore[index]
    y = x.at[0].set(9.0)
    np.testing.assert_array_equal(realize([x * 1.0, y], {"x": np.ones(2, np.float32)}), [[1, 1], [9, 1]])


def test_a_constant_keeps_its_numbers_when_the_array_changes() -> None:
    array = np.ones(2, np.float32)
    x = _x(2)
    y = x + x.const(array)
    array[:] = 7
    np.testing.assert_array_equal(realize(y, {"x": np.zeros(2, np.float32)}), [1, 1])


def test_repr_says_dtype_shape_and_line() -> None:
    assert repr(_x(3, "seq")) == "<Tensor float32 (3, seq) from input 'x'>"


def test_methods_are_the_ops() -> None:
    value = np.arange(6, dtype=np.float32).reshape(2, 3)
    x = _x(2, 3)
    for y, expected in (
        (x.T, value.T),
        (x.reshape(3, 2), value.reshape(3, 2)),
        (x.reshape([6]), value.reshape(6)),
        (x.transpose(1, 0), value.T),
        (x.sum(0), value.sum(0)),
        (x.mean(), value.mean()),
        (x.max(-1, keepdims=True), value.max(-1, keepdims=True)),
        (x.min(), value.min()),
        (x.astype("int32"), value.astype(np.int32)),
    ):
        np.testing.assert_array_equal(realize(y, {"x": value}), expected)
