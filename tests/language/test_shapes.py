"""Shape rules against numpy on random shapes, zero sizes and rank 0 included; named sizes against their numbers."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import lazygraph as lg
from lazygraph import dims
from lazygraph.evaluate import realize
from lazygraph.ops.slicing import TO_THE_END, TO_THE_FRONT, clamped_start, sliced_size

SHAPES = hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4)
QUICK = settings(max_examples=150, deadline=None)
RUN = settings(max_examples=40, deadline=None)


def shown(x: lg.Tensor) -> tuple[object, ...]:
    """Return the sizes, to be compared with names and numbers."""
    return tuple(x.shape)


def _named(shape: tuple[int, ...], label: str) -> list[int | str]:
    """Return a name for every size above 1: ``d3``; one name per number, so that equal sizes may meet."""
    return [f"d{size}" if size > 1 else size for size in shape] if label else list(shape)


def _real(shape: tuple[Any, ...]) -> tuple[int, ...]:
    sizes = {f"d{n}": n for n in range(64)}
    return tuple(size if isinstance(size, int) else dims.evaluate(size, sizes) for size in shape)


@given(shapes=hnp.mutually_broadcastable_shapes(num_shapes=2, max_dims=4, min_side=0, max_side=4), named=st.booleans())
@QUICK
def test_broadcast_is_numpys(shapes: hnp.BroadcastableShapes, named: bool) -> None:
    a, b = shapes.input_shapes
    x = lg.input("x", "float32", _named(a, "named" if named else ""))
    y = lg.input("y", "float32", _named(b, "named" if named else ""), anchor=x)
    assert _real((x + y).shape) == shapes.result_shape


@given(a=SHAPES, b=SHAPES)
@QUICK
def test_what_numpy_does_not_broadcast_is_refused(a: tuple[int, ...], b: tuple[int, ...]) -> None:
    try:
        expected = np.broadcast_shapes(a, b)
    except ValueError:
        expected = None
    x = lg.input("x", "float32", a)
    y = lg.input("y", "float32", b, anchor=x)
    if expected is None:
        with pytest.raises(lg.ShapeError):
            x + y
    else:
        assert (x + y).shape == expected


@given(shape=SHAPES, target=st.lists(st.integers(-1, 6), max_size=4), named=st.booleans())
@QUICK
def test_reshape_is_numpys(shape: tuple[int, ...], target: list[int], named: bool) -> None:
    try:
        expected = np.zeros(shape).reshape(target).shape
    except ValueError:
        with pytest.raises(lg.ShapeError):
            lg.input("x", "float32", shape).reshape(target)
        return
    x = lg.input("x", "float32", _named(shape, "named" if named else ""))
    assert _real(x.reshape(target).shape) == expected


@given(data=st.data(), shape=hnp.array_shapes(min_dims=1, max_dims=4, min_side=0, max_side=4))
@RUN
def test_reshape_to_named_sizes_runs(data: st.DataObject, shape: tuple[int, ...]) -> None:
    order = data.draw(st.permutations(range(len(shape))))
    x = lg.input("x", "float32", [f"s{i}" for i in range(len(shape))])
    assume(sum(size == 0 for size in shape) == 0 or list(order) == sorted(order))
    y = x.reshape([f"s{i}" for i in order])
    value = np.arange(np.prod(shape, dtype=int), dtype=np.float32).reshape(shape)
    np.testing.assert_array_equal(realize(y, {"x": value}), value.reshape([shape[i] for i in order]))


@pytest.mark.parametrize("step", [-3, -2, -1, 1, 2, 3])
def test_slice_counts_as_python_for_every_bound_and_size(step: int) -> None:
    n = dims.size("n")
    for start in [*range(-14, 15), None]:
        for stop in [*range(-14, 15), None]:
            first = (0 if step > 0 else TO_THE_END) if start is None else start
            last = (TO_THE_END if step > 0 else TO_THE_FRONT) if stop is None else stop
            named = sliced_size(n, first, last, step)
            begin = clamped_start(n, start, step)
            for size in range(13):
                taken = range(size)[start:stop:step]
                sizes = {"n": size}
                assert (named if isinstance(named, int) else dims.evaluate(named, sizes)) == len(taken)
                assert sliced_size(size, first, last, step) == len(taken)
                if taken:
                    assert (begin if isinstance(begin, int) else dims.evaluate(begin, sizes)) == taken[0]


@given(data=st.data(), shape=SHAPES, named=st.booleans())
@settings(max_examples=80, deadline=None)
def test_basic_indexing_is_numpys(data: st.DataObject, shape: tuple[int, ...], named: bool) -> None:
    key = data.draw(hnp.basic_indices(shape, allow_newaxis=True, max_dims=6))
    value = np.arange(np.prod(shape, dtype=int), dtype=np.float32).reshape(shape)
    x = lg.input("x", "float32", _named(shape, "named" if named else ""))
    y = x[key]
    assert _real(y.shape) == value[key].shape
    np.testing.assert_array_equal(realize(y + 0.0, {"x": value}), value[key])


@st.composite
def _advanced(draw: st.DrawFn) -> tuple[tuple[int, ...], tuple[Any, ...]]:
    shape = draw(hnp.array_shapes(min_dims=1, max_dims=4, min_side=1, max_side=4))
    common = draw(hnp.array_shapes(min_dims=1, max_dims=2, min_side=1, max_side=3))
    key: list[Any] = []
    for size in shape[: draw(st.integers(1, len(shape)))]:
        kind = draw(st.sampled_from(["array", "slice", "int", "narrow"]))
        if kind == "slice":
            key.append(draw(st.slices(size)))
        elif kind == "int":
            key.append(draw(st.integers(-size, size - 1)))
        else:
            sides = common if kind == "array" else (1, *common[1:])
            key.append(draw(hnp.arrays(np.int64, sides, elements=st.integers(-size, size - 1))))
        if draw(st.booleans()) and len(key) < 3:
            key.append(None)
    return shape, tuple(key)


@given(case=_advanced(), named=st.booleans())
@settings(max_examples=80, deadline=None)
def test_advanced_indexing_is_numpys(case: tuple[tuple[int, ...], tuple[Any, ...]], named: bool) -> None:
    shape, key = case
    value = np.arange(np.prod(shape, dtype=int), dtype=np.float32).reshape(shape)
    x = lg.input("x", "float32", _named(shape, "named" if named else ""))
    y = x[key]
    assert _real(y.shape) == value[key].shape
    np.testing.assert_array_equal(realize(y + 0.0, {"x": value}), value[key])


@given(case=_advanced(), named=st.booleans(), add=st.booleans())
@settings(max_examples=80, deadline=None)
def test_updates_are_numpys(case: tuple[tuple[int, ...], tuple[Any, ...]], named: bool, add: bool) -> None:
    shape, whole = case
    key = tuple(item for item in whole if item is not None)
    value = np.arange(np.prod(shape, dtype=int), dtype=np.float32).reshape(shape)
    counted = np.zeros(shape, int)
    np.add.at(counted, key, 1)
    assume(add or counted.max() <= 1)
    part = np.asarray(100.0 + np.arange(value[key].size), np.float32).reshape(value[key].shape)
    expected = value.copy()
    x = lg.input("x", "float32", _named(shape, "named" if named else ""))
    with ExitStack() as assumed:
        for size in {size for size in shape if size > 1 and named}:
            assumed.enter_context(lg.assume_equal(f"d{size}", size))
        y = x.at[key].add(part) if add else x.at[key].set(part)
    if add:
        np.add.at(expected, key, part)
    else:
        expected[key] = part
    np.testing.assert_array_equal(realize(y + 0.0, {"x": value}), expected)


@given(mask=hnp.arrays(np.bool_, hnp.array_shapes(min_dims=1, max_dims=3, max_side=4)), extra=st.booleans())
@RUN
def test_masks_are_numpys(mask: np.ndarray[Any, Any], extra: bool) -> None:
    shape = (*mask.shape, 2) if extra else mask.shape
    value = np.arange(np.prod(shape, dtype=int), dtype=np.float32).reshape(shape)
    x = lg.input("x", "float32", shape)
    m = lg.input("m", "bool", mask.shape, anchor=x)
    got = realize([x[m], x[mask], x.at[m].set(-1.0)], {"x": value, "m": mask})
    replaced = value.copy()
    replaced[mask] = -1
    for array, expected in zip(got, (value[mask], value[mask], replaced), strict=True):
        np.testing.assert_array_equal(array, expected)


@given(
    shapes=st.lists(st.integers(0, 4), min_size=1, max_size=4),
    rest=hnp.array_shapes(min_dims=0, max_dims=2, min_side=0, max_side=3),
    named=st.booleans(),
)
@QUICK
def test_concat_adds_sizes(shapes: list[int], rest: tuple[int, ...], named: bool) -> None:
    tensors: list[lg.Tensor] = []
    for i, size in enumerate(shapes):
        shape = _named((size, *rest), "named" if named else "")
        tensors.append(lg.input(f"x{i}", "float32", shape, anchor=tensors[0] if tensors else None))
    assert _real(lg.concat(tensors, 0).shape) == (sum(shapes), *rest)


@given(size=st.integers(0, 20), parts=st.integers(1, 6))
@QUICK
def test_split_into_parts_rounds_up_and_never_below_0(size: int, parts: int) -> None:
    piece = -(-size // parts)
    last = size - piece * (parts - 1)
    x = lg.input("x", "float32", [size])
    if last < 0:
        with pytest.raises(lg.ShapeError):
            lg.split(x, parts)
    else:
        assert [y.shape for y in lg.split(x, parts)] == [(piece,)] * (parts - 1) + [(last,)]


@given(a=st.integers(0, 9), b=st.integers(0, 9), c=st.integers(0, 9))
@QUICK
def test_split_sizes_must_sum(a: int, b: int, c: int) -> None:
    x = lg.input("x", "float32", [a + b])
    if c == b:
        assert [y.shape for y in lg.split(x, [a, c])] == [(a,), (c,)]
    else:
        with pytest.raises(lg.ShapeError):
            lg.split(x, [a, c])


@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize("size", [0, 1, 2, 5, 8])
def test_a_named_size_splits_in_two(size: int, named: bool) -> None:
    x = lg.input("x", "float32", ["n" if named else size])
    value = np.arange(size, dtype=np.float32)
    first, second = realize(list(lg.split(x, 2)), {"x": value})
    half = (size + 1) // 2
    np.testing.assert_array_equal(first, value[:half])
    np.testing.assert_array_equal(second, value[half:])


def test_shape_arithmetic_stays_exact() -> None:
    x = lg.input("x", "float32", ["batch", "seq", 64])
    sizes = lg.shape(x)
    heads = lg.concat([sizes[:2], sizes[2:] // 16, x.const([16])], 0)
    assert shown(x.reshape(heads)) == ("batch", "seq", 4, 16)
    assert shown(lg.expand(x[:, :, :1], sizes)) == ("batch", "seq", 64)
    assert shown(lg.arange(0, sizes[1])) == ("seq",)
    assert shown(lg.zeros(["seq", "seq + batch"], anchor=x)) == ("seq", "batch + seq")


def test_a_named_size_comes_from_an_axis_that_holds_a_sum() -> None:
    x = lg.input("x", "float32", ["past + seq"])
    y = lg.input("y", "float32", ["seq"], anchor=x)
    z = lg.size_tensor("past", x)
    feeds = {"x": np.zeros(7, np.float32), "y": np.zeros(3, np.float32)}
    assert realize([z, lg.size_tensor("past // 2", x), y.sum()], feeds)[:2] == [4, 2]


@pytest.mark.parametrize("n", [0, 1, 5])
def test_bounds_from_tensors_and_sizes(n: int) -> None:
    x = lg.input("x", "float32", ["n"])
    start = lg.input("start", "int64", [], anchor=x)
    value = np.arange(n, dtype=np.float32)
    for at in (0, 1, 3, -2):
        got = realize([x[start:], x[: start + 1], x[x.shape[0] // 2 :]], {"x": value, "start": np.int64(at)})
        for array, expected in zip(got, (value[at:], value[: at + 1 or None], value[n // 2 :]), strict=True):
            if at != -1:
                np.testing.assert_array_equal(array, expected)


def test_a_computed_size_of_zero_is_no_copy() -> None:
    x = lg.input("x", "int64", ["a", "b"])
    y = lg.repeat(x, 2, 0)  # (a, 2, b) to (2 * a, b): ONNX reads a 0 for b as the 2 that stood there
    for shape in [(1, 0), (0, 3), (0, 0), (2, 3)]:
        value = np.ones(shape, np.int64)
        np.testing.assert_array_equal(realize(y, {"x": value}), np.repeat(value, 2, 0))


@pytest.mark.parametrize("shape", [[3, 2], ["a", "b"]])
def test_expand_to_nothing_survives_the_runtime(shape: list[int | str]) -> None:
    x = lg.input("x", "float32", shape)
    value = np.ones((3, 2), np.float32)
    assert realize(lg.repeat(x, 0, 1), {"x": value}).shape == (3, 0)
    empty = lg.expand(lg.unsqueeze(x, -1), [1, 1, 0])
    assert shown(lg.reduce_sum(empty, 2)) == shown(x)
    np.testing.assert_array_equal(realize(lg.reduce_sum(empty, 2), {"x": value}), np.zeros((3, 2)))


def test_squeeze_of_no_axes_keeps_all() -> None:
    x = lg.input("x", "float32", ["a", 1])
    y = lg.squeeze(x, ()) + 1.0
    assert realize(y, {"x": np.zeros((1, 1), np.float32)}).shape == (1, 1)


@pytest.mark.parametrize("axis", [0, -1])
def test_one_hot_of_one_index(axis: int) -> None:
    i = lg.input("i", "int64", [])
    y = lg.one_hot(i, 4, axis=axis)
    assert y.shape == (4,)
    np.testing.assert_array_equal(realize(y, {"i": np.array(2)}), np.eye(4)[2])


def test_a_tensor_of_computed_sizes_has_that_shape() -> None:
    x = lg.input("x", "int64", ["n"])
    part = x[-1:1:3]
    made = lg.ones((*part.shape, 2), anchor=x)
    assert shown(made) == (*part.shape, 2)
    for size in range(4):
        value = np.zeros(size, np.int64)
        assert realize(made, {"x": value}).shape == (*value[-1:1:3].shape, 2)


@pytest.mark.parametrize("key", [slice(-2, None, -1), slice(-5, -5, -1), slice(-2, -9, -2), slice(-3, 0, -1)])
def test_a_backward_slice_from_before_the_front_is_empty(key: slice) -> None:
    named = lg.input("x", "float32", ["n"])[key]
    for size in range(6):
        value = np.arange(size, dtype=np.float32)
        fixed = lg.input("x", "float32", [size])[key]
        assert fixed.shape == value[key].shape
        for y in (named, fixed):
            np.testing.assert_array_equal(realize(y + 0.0, {"x": value}), value[key])


def test_one_named_size_beside_a_copied_zero() -> None:
    x = lg.input("x", "float32", ["a", "b", 2])
    y = x.reshape(["a", "2 * b"])
    for shape in [(0, 3, 2), (3, 0, 2), (2, 3, 2)]:
        value = np.ones(shape, np.float32)
        np.testing.assert_array_equal(realize(y, {"x": value}), value.reshape(shape[0], 2 * shape[1]))


_BOUNDS = [TO_THE_FRONT, -9, -4, -2, -1, 0, 2, 4, 9, TO_THE_END]


@pytest.mark.parametrize("step", [1, -1, 2, -2])
@pytest.mark.parametrize("named", [False, True])
def test_the_operator_slice_counts_as_onnxruntime_does(step: int, named: bool) -> None:
    x = lg.input("x", "float32", ["n" if named else 4])
    cuts = {f"{a}:{b}": lg.op.Slice(x, [a], [b], [0], [step]) for a in _BOUNDS for b in _BOUNDS}
    for size in (4, 0, 1) if named else (4,):
        found = realize(dict(cuts), {"x": np.arange(size, dtype=np.float32)})
        for name, cut in cuts.items():
            left_to_the_run = dims.is_unknown(cut.shape[0])
            assert left_to_the_run == (step < 0 and name.endswith(f":{TO_THE_END}"))
            if not left_to_the_run:
                assert dims.evaluate(cut.shape[0], {"n": size}) == len(found[name]), name


def test_a_backward_slice_to_a_named_end_is_pythons() -> None:
    x = lg.input("x", "float32", ["n"])
    other = lg.input("m", "float32", ["m"], anchor=x)
    y = x[-4 : other.shape[0] : -1]
    for n in range(8):
        for m in range(5):
            value, end = np.arange(n, dtype=np.float32), np.zeros(m, np.float32)
            np.testing.assert_array_equal(realize(y, {"x": value, "m": end}), value[-4:m:-1])
    with pytest.raises(lg.ShapeError, match="whether m - 2 counts from the front or the end is not known"):
        x[-4 : other.shape[0] - 2 : -1]


def test_a_named_size_comes_from_a_multiple_of_it() -> None:
    x = lg.input("x", "float32", ["2*n + 1"])
    y = lg.zeros(["n"], anchor=x)
    assert realize(y, {"x": np.zeros(7, np.float32)}).shape == (3,)


def test_two_names_that_only_their_sum_tells_are_refused() -> None:
    x = lg.input("x", "float32", ["past + seq"])
    with pytest.raises(lg.ShapeError, match="no input has an axis of size past"):
        lg.zeros(["past"], anchor=x)
