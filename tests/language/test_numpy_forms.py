"""Functions and methods under numpy's names give what numpy gives, for known and for named sizes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lazygraph as lg

Array = np.ndarray[Any, Any]
X = np.random.default_rng(3).normal(size=(3, 4, 5)).astype(np.float32)
M = X[0]
V = X[0, 0]
NAMES = ("a", "b", "c")


def _results(build: Callable[..., Any], arrays: tuple[Array, ...], named: bool) -> list[Array]:
    """Return what the calls give; equal sizes share a name."""
    anchor: lg.Tensor | None = None
    tensors = []
    for k, array in enumerate(arrays):
        shape = [f"n{size}" if named else size for size in array.shape]
        anchor = lg.input(f"x{k}", array.dtype, shape, anchor=anchor)
        tensors.append(anchor)
    made = build(*tensors)
    outputs = list(made) if isinstance(made, tuple) else [made]
    sizes = {f"n{size}": size for array in arrays for size in array.shape}
    found = []
    for tensor in outputs:
        value = np.asarray(lg.realize(tensor, {f"x{k}": array for k, array in enumerate(arrays)}))
        for size, got in zip(tensor.shape, value.shape, strict=True):
            assert lg.dims.is_unknown(size) or lg.dims.evaluate(size, sizes) == got
        found.append(value)
    return found


FORMS: dict[str, tuple[Callable[..., Any], Callable[..., Any], tuple[Array, ...]]] = {
    "sum": (lambda x: lg.sum(x, 1), lambda x: x.sum(1), (X,)),
    "mean": (lambda x: lg.mean(x, (0, 2)), lambda x: x.mean((0, 2)), (X,)),
    "max": (lambda x: lg.max(x), lambda x: x.max(), (X,)),
    "min": (lambda x: lg.min(x, -1, True), lambda x: x.min(-1, keepdims=True), (X,)),
    "prod": (lambda x: lg.prod(x, 0), lambda x: x.prod(0), (X,)),
    "logsumexp": (lambda x: lg.logsumexp(x, 1), lambda x: np.log(np.exp(x).sum(1)), (X,)),
    "expand_dims": (lambda x: lg.expand_dims(x, (0, 2)), lambda x: np.expand_dims(x, (0, 2)), (M,)),
    "broadcast_to": (lambda x: lg.broadcast_to(x, [2, *x.shape]), lambda x: np.broadcast_to(x, (2, 4, 5)), (M,)),
    "moveaxis": (lambda x: lg.moveaxis(x, 0, -1), lambda x: np.moveaxis(x, 0, -1), (X,)),
    "moveaxis of two": (lambda x: lg.moveaxis(x, [0, 1], [-1, 0]), lambda x: np.moveaxis(x, [0, 1], [-1, 0]), (X,)),
    "swapaxes": (lambda x: lg.swapaxes(x, 0, 2), lambda x: x.swapaxes(0, 2), (X,)),
    "ravel": (lg.ravel, np.ravel, (X,)),
    "roll all": (lambda x: lg.roll(x, 7), lambda x: np.roll(x, 7), (X,)),
    "roll one": (lambda x: lg.roll(x, -2, 1), lambda x: np.roll(x, -2, 1), (X,)),
    "roll two": (lambda x: lg.roll(x, (1, -9), (0, 2)), lambda x: np.roll(x, (1, -9), (0, 2)), (X,)),
    "roll by zero": (lambda x: lg.roll(x, 0, 0), lambda x: np.roll(x, 0, 0), (X,)),
    "meshgrid": (lambda x, y: lg.meshgrid(x, y), lambda x, y: np.meshgrid(x, y), (V, V[:3])),
    "meshgrid ij": (
        lambda x, y, z: lg.meshgrid(x, y, z, indexing="ij"),
        lambda x, y, z: np.meshgrid(x, y, z, indexing="ij"),
        (V, V[:3], V[:2]),
    ),
    "meshgrid of three": (lambda *v: lg.meshgrid(*v), lambda *v: np.meshgrid(*v), (V, V[:3], V[:2])),
    "meshgrid of one": (lambda x: lg.meshgrid(x), lambda x: np.meshgrid(x), (V,)),
    "take_along_axis": (
        lambda x: lg.take_along_axis(x, lg.argsort(x, 1), 1),
        lambda x: np.sort(x, 1),
        (X,),
    ),
    "take_along_axis of one row": (
        lambda x, i: lg.take_along_axis(x, i, 0),
        lambda x, i: np.take_along_axis(x, i, 0),
        (M, np.array([[3, 0, 1, 1, -1]])),
    ),
    "take_along_axis row by row": (
        lambda x, i: lg.take_along_axis(x, i, None),
        lambda x, i: np.take_along_axis(x, i, None),
        (M, np.array([19, 0, 7])),
    ),
    "nonzero": (lambda x: lg.nonzero(x), np.nonzero, (np.round(X).astype(np.float32),)),
    "dot of vectors": (lg.dot, np.dot, (V, V)),
    "dot of matrices": (lambda x, y: lg.dot(x, y), np.dot, (M, np.ascontiguousarray(M.T))),
    "dot with many axes": (lg.dot, np.dot, (M, X.transpose(0, 2, 1).copy())),
    "dot of a scalar": (lambda x: lg.dot(x, 2.0), lambda x: x * np.float32(2), (M,)),
    "outer": (lg.outer, np.outer, (V, M)),
    "tensordot": (lg.tensordot, np.tensordot, (X, np.ascontiguousarray(X.transpose(1, 2, 0)))),
    "tensordot of pairs": (
        lambda x, y: lg.tensordot(x, y, ([0, 2], [1, 0])),
        lambda x, y: np.tensordot(x, y, ([0, 2], [1, 0])),
        (X, np.ascontiguousarray(X.transpose(2, 0, 1))),
    ),
    "tensordot of none": (lambda x, y: lg.tensordot(x, y, 0), lambda x, y: np.tensordot(x, y, 0), (V, M)),
    "full_like": (lambda x: lg.full_like(x, 2.5), lambda x: np.full_like(x, 2.5), (X,)),
    "zeros_like": (lambda x: lg.zeros_like(x, lg.int64), lambda x: np.zeros_like(x, np.int64), (X,)),
    "ones_like": (lg.ones_like, np.ones_like, (X,)),
    "x.prod": (lambda x: x.prod(1), lambda x: x.prod(1), (X,)),
    "x.any": (lambda x: (x > 1.0).any(0), lambda x: (x > 1).any(0), (X,)),
    "x.all": (lambda x: (x < 1.0).all(), lambda x: (x < 1).all(), (X,)),
    "x.var": (lambda x: x.var(1, ddof=1), lambda x: x.var(1, ddof=1), (X,)),
    "x.std": (lambda x: x.std(), lambda x: x.std(), (X,)),
    "x.argmax": (lambda x: x.argmax(1), lambda x: x.argmax(1), (X,)),
    "x.argmin": (lambda x: x.argmin(), lambda x: x.argmin(), (X,)),
    "x.cumsum": (lambda x: x.cumsum(1), lambda x: x.cumsum(1), (X,)),
    "x.cumsum of all": (lambda x: x.cumsum(), lambda x: x.cumsum(), (X,)),
    "x.clip": (lambda x: x.clip(-1.0, 0.5), lambda x: x.clip(-1, 0.5), (X,)),
    "x.round": (lambda x: x.round(), lambda x: x.round(), (X,)),
    "round(x)": (round, np.round, (X,)),
    "x.squeeze": (lambda x: x.squeeze(0), lambda x: x.squeeze(0), (X[:1],)),
    "x.flatten": (lambda x: x.flatten(), lambda x: x.flatten(), (X,)),
    "x.ravel": (lambda x: x.ravel(), lambda x: x.ravel(), (X,)),
    "x.swapaxes": (lambda x: x.swapaxes(-1, 0), lambda x: x.swapaxes(-1, 0), (X,)),
}


@pytest.mark.parametrize("named", [False, True], ids=["known", "named"])
@pytest.mark.parametrize("form", FORMS)
def test_a_form_equals_numpy(form: str, named: bool) -> None:
    build, oracle, arrays = FORMS[form]
    wanted = oracle(*arrays)
    for got, want in zip(
        _results(build, arrays, named), wanted if isinstance(wanted, (tuple, list)) else [wanted], strict=True
    ):
        assert got.shape == np.shape(want)
        np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-6)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(-7, 7), min_size=1, max_size=3), st.integers(0, 4), st.booleans())
def test_rolling_any_way_equals_numpy(shifts: list[int], size: int, named: bool) -> None:
    array = np.arange(size * 6, dtype=np.float32).reshape(size, 2, 3)
    axes = list(range(len(shifts)))
    x = lg.input("x", lg.float32, list(NAMES) if named else list(array.shape))
    np.testing.assert_array_equal(lg.realize(lg.roll(x, shifts, axes), {"x": array}), np.roll(array, shifts, axes))


def _x() -> lg.Tensor:
    return lg.input("x", lg.float32, [3, 4])


@pytest.mark.parametrize(
    ("wrong", "kind", "says"),
    [
        (lambda x: lg.broadcast_to(x, [4]), lg.ShapeError, "a shape that x broadcasts into"),
        (lambda x: lg.broadcast_to(x, [3, 5]), lg.ShapeError, "4 and 5"),
        (lambda x: lg.broadcast_to(np.ones(3), [3]), lg.OperandError, "anchor="),
        (lambda x: lg.moveaxis(x, [0, 1], 0), lg.ShapeError, "2 axes and 1 places"),
        (lambda x: lg.moveaxis(x, 2, 0), lg.IndexRangeError, "axis 2 of a tensor with 2 axes"),
        (lambda x: lg.swapaxes(x, 0, 5), lg.IndexRangeError, "axis 5"),
        (lambda x: lg.roll(x, [1, 2], [0]), lg.ShapeError, "2 shifts along 1 axes"),
        (lambda x: lg.roll(x, cast(Any, 1.5), 0), lg.OperandError, "shift is 1.5"),
        (lambda x: lg.meshgrid(x), lg.ShapeError, "expected : vectors"),
        (lambda x: lg.meshgrid(x[0], indexing="yx"), lg.OperandError, "'xy' or 'ij'"),
        (lambda x: lg.meshgrid(), lg.OperandError, "no vector"),
        (lambda x: lg.take_along_axis(x, x.const(np.array([0])), 0), lg.ShapeError, "indices of the rank of x"),
        (lambda x: lg.take_along_axis(x, x.const(np.array([[3]])), 0), lg.IndexRangeError, "index 3"),
        (lambda x: lg.tensordot(x, x, 1), lg.ShapeError, "axes [1] of a against [0] of b"),
        (lambda x: lg.tensordot(x, x, ([0, 1], [0])), lg.ShapeError, "as many axes of each"),
        (lambda x: lg.dot(x, x), lg.ShapeError, "inner sizes differ"),
    ],
)
def test_a_form_refuses_what_numpy_refuses_on_the_users_line(
    wrong: Callable[[lg.Tensor], object], kind: type[Exception], says: str
) -> None:
    with pytest.raises(kind) as caught:
        wrong(_x())
    assert says in str(caught.value)
    assert f"{__name__.rsplit('.', 1)[-1]}.py:" in str(caught.value)


def test_an_axis_of_two_names_tells_their_sum_and_no_more() -> None:
    x = lg.input("x", lg.float32, ["past + seq", 8])
    array = np.arange(56, dtype=np.float32).reshape(7, 8)
    total = x.shape[0]
    for size, rows in ((total // 2, 3), (total - 2, 5), (2 * total - 9, 5), ((total + 1) // 3, 2)):
        np.testing.assert_array_equal(lg.realize(x[:size], {"x": array}), array[:rows])
    assert len(lg.realize(lg.arange("2*past + 2*seq + 1", anchor=x), {"x": array})) == 15
    with pytest.raises(lg.ShapeError, match="no input has an axis of size past"):
        lg.arange("past", anchor=x)
