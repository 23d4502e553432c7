"""Bugs that other tools were reported for: slices, splits, squeezes, names, scalars and scatters that must be right."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import lazygraph as lg
from lazygraph.evaluate import realize
from lazygraph.tensor import Constant, Node

INT64_MIN = -(2**63)

SLICES = [
    slice(None, None, -1),
    slice(-1, None, -1),
    slice(3, -1, -1),
    slice(5, 9),
    slice(0, -10),
    slice(-3, None, 2),
    slice(-1, 2**31 - 1, -1),
    slice(None, 2**63 - 1, -1),
    slice(2**70, -(2**70), -1),
    slice(0, 1),
]


def shown(*tensors: lg.Tensor) -> tuple[object, ...]:
    """Return the sizes of a tensor, or those of each, to be compared with names and numbers."""
    shapes = tuple(tensor.shape for tensor in tensors)
    return shapes[0] if len(shapes) == 1 else shapes


@pytest.mark.parametrize("cut", SLICES, ids=str)
@pytest.mark.parametrize("size", [0, 1, 2, 3, 4, 5])
@pytest.mark.parametrize("named", [False, True])
def test_slice_is_pythons(cut: slice, size: int, named: bool) -> None:
    value = np.arange(size, dtype=np.float32)
    x = lg.input("x", "float32", ["N" if named else size])
    y = x[cut] + 0.0
    np.testing.assert_array_equal(realize(y, {"x": value}), value[cut])
    if not named:
        assert y.shape == value[cut].shape


def test_reversal_to_the_front_ends_at_int64_min() -> None:
    y = lg.input("x", "float32", ["N", 4])[::-1]
    assert isinstance(y.origin, Node)
    ends = y.origin.inputs[2]
    assert ends is not None
    assert isinstance(ends.origin, Constant)
    assert ends.origin.read().tolist() == [INT64_MIN]


def test_slices_keep_the_other_names_and_full_slices_their_own() -> None:
    x = lg.input("x", "float32", ["B", "S", 4])
    assert x[:, 0:1].shape[0] == "B"
    assert x[:].shape == x.shape
    assert shown(x[:, ::-1]) == ("B", "S", 4)


def test_split_never_leaves_a_negative_piece() -> None:
    with pytest.raises(lg.ShapeError, match="5 into 4 parts of 2 leaves -1"):
        lg.split(lg.input("x", "float32", [5, 6]), 4, axis=0)
    assert [y.shape for y in lg.split(lg.input("x", "float32", [10]), 3)] == [(4,), (4,), (2,)]
    assert [y.shape for y in lg.split(lg.input("x", "float32", [3]), 4)] == [(1,), (1,), (1,), (0,)]


def test_split_takes_sizes_or_a_number_never_both() -> None:
    x = lg.input("x", "float32", [6])
    assert [y.shape for y in lg.split(x, [1, 2, 3])] == [(1,), (2,), (3,)]
    with pytest.raises(lg.ShapeError, match="sum to 6, axis 0 has 7"):
        lg.split(lg.input("x", "float32", [7]), [1, 2, 3])
    for sizes, count in (([3, 3], 2), (None, None)):
        with pytest.raises(lg.OperandError, match="exclude each other"):
            lg.op.Split(x, sizes, num_outputs=count)


def test_squeeze_asks_for_axes_beside_names() -> None:
    x = lg.input("x", "float32", ["B", 1, "S"])
    with pytest.raises(lg.ShapeError, match="the number of axes left depends on the data"):
        lg.squeeze(x)
    assert shown(lg.squeeze(x, [1])) == ("B", "S")
    with pytest.raises(lg.ShapeError, match="axis 0 has size 2"):
        lg.squeeze(lg.input("z", "float32", [2, 1, 4]), [0])
    with pytest.raises(lg.IndexRangeError, match="axis 5"):
        lg.squeeze(x, [5])
    with pytest.raises(lg.ShapeError, match="one axis twice"):
        lg.squeeze(x, [0, -3])


def test_two_names_are_never_merged() -> None:
    a = lg.input("a", "float32", ["B", 1, "T"])
    b = lg.input("b", "float32", ["B2", "S", "T"], anchor=a)
    with pytest.raises(lg.ShapeError, match="sizes B and B2 meet"):
        a + b
    with lg.assume_equal("B", "B2"):
        y = a + b
    assert shown(y)[1:] == ("S", "T")
    assert shown(a, b) == (("B", 1, "T"), ("B2", "S", "T"))


def test_concat_adds_names() -> None:
    past = lg.input("past", "float32", ["B", "P", 8])
    new = lg.input("new", "float32", ["B", "S", 8], anchor=past)
    joined = lg.concat([past, new], axis=1)
    assert joined.shape[1] == "P + S"
    assert joined.shape[1] == "S + P"
    with pytest.raises(lg.ShapeError):
        joined + past


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_scalars_take_the_tensors_type(dtype: str) -> None:
    x = lg.input("x", dtype, ["N"])
    for y in (x * 2, 2 - x, x + 1e-6, lg.where(x > 0, x, -1e4), lg.clip(x, 0, 1), x**2):
        assert y.dtype == dtype


def test_a_float_scalar_never_becomes_an_int() -> None:
    with pytest.raises(lg.DTypeError, match=r"the float 0\.5 with an int64 tensor"):
        lg.input("i", "int64", ["N"]) * 0.5


@pytest.mark.parametrize("value", [1e5, -1e9, 1e-8])
def test_what_float16_cannot_hold_is_refused(value: float) -> None:
    with pytest.raises(lg.DTypeError, match="float16 cannot hold"):
        lg.input("x", "float16", ["N"]) + value


def test_arrays_of_another_type_are_refused_on_the_line() -> None:
    with pytest.raises(lg.DTypeError, match="element types differ: float16 and float32"):
        lg.input("x", "float16", ["N"]) + np.ones(1, np.float32)


@pytest.mark.parametrize("indices", [[[1], [1]], [[0], [-3]]], ids=["plain", "negative"])
def test_a_place_written_twice_is_refused(indices: Any) -> None:
    x = lg.input("x", "float32", [3, 2])
    updates = np.ones((2, 2), np.float32)
    with pytest.raises(lg.ShapeError, match="written twice"):
        lg.scatter_nd(x, indices, updates)
    y = lg.scatter_nd(x, indices, updates, reduction="add")
    got = realize(y, {"x": np.zeros((3, 2), np.float32)})
    assert got.sum() == 4
    with pytest.raises(lg.ShapeError, match="written twice"):
        x.at[[i[0] for i in indices]].set(1.0)


@pytest.mark.parametrize("dtype", ["int32", "int64", "float64", "float32", "float16"])
def test_a_relu_before_a_clip_loads_in_every_type(dtype: str) -> None:
    """onnxruntime's fusion of the two fails while the model is loaded where it does not know the type."""
    x = lg.input("x", dtype, [4])
    array = np.array([-3, -1, 0, 5], dtype)
    assert lg.realize(lg.clip(lg.relu(x), -3, 2), {"x": array}).tolist() == [0, 0, 0, 2]
