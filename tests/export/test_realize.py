"""realize: numbers from onnxruntime, feeds checked before anything runs, sessions kept as long as their graph."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import lazygraph as lg
from lazygraph import evaluate
from lazygraph.evaluate import realize

ONES = np.ones((2, 4), np.float32)


def graph() -> tuple[lg.Tensor, lg.Tensor, lg.Tensor]:
    x = lg.input("x", lg.float32, ["n", 4])
    z = lg.input("z", lg.float32, ["n", 4], anchor=x)
    return x, z, x * 2.0 + z


def test_a_tensor_gives_an_array_a_list_a_list_and_a_dict_a_dict() -> None:
    x, z, y = graph()
    feeds = {"x": ONES, "z": ONES}
    single = realize(y, feeds)
    assert isinstance(single, np.ndarray)
    assert single.tolist() == [[3.0] * 4] * 2
    several = realize([y, x, y], feeds)
    assert [array.tolist() for array in several] == [[[3.0] * 4] * 2, ONES.tolist(), [[3.0] * 4] * 2]
    named = realize({"a": z, "b": y}, feeds)
    assert {name: array.tolist() for name, array in named.items()} == {"a": ONES.tolist(), "b": [[3.0] * 4] * 2}


def test_feeds_are_named_or_keyed_by_tensor() -> None:
    x, z, y = graph()
    assert realize(y, {x: ONES, z: ONES}).tolist() == [[3.0] * 4] * 2


def test_inputs_that_nothing_reads_are_accepted_and_not_needed() -> None:
    x, _, _ = graph()
    assert realize(x + 1.0, {"x": ONES}).tolist() == [[2.0] * 4] * 2
    assert realize(x + 1.0, {"x": ONES, "z": ONES}).tolist() == [[2.0] * 4] * 2


def test_lists_and_scalars_take_the_inputs_type() -> None:
    x = lg.input("x", lg.int32, [2])
    s = lg.input("s", lg.float16, [], anchor=x)
    assert realize([x, s], {"x": [1, 2], "s": 3})[0].dtype == np.int32


def test_constants_need_no_feeds() -> None:
    assert realize(lg.constant([1, 2]) + 1).tolist() == [2, 3]


def test_results_named_like_the_users_values_do_not_collide() -> None:
    x = lg.input("result.0", lg.float32, [1])
    y = x + x.const(np.ones(1, np.float32), "result_.0")
    assert realize([y, x], {"result.0": [1.0]})[0].tolist() == [2.0]


@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz"])
def test_types_that_numpy_lacks_come_and_go_as_ml_dtypes(dtype: str) -> None:
    kind = getattr(ml_dtypes, dtype)
    array = np.array([[1, 0.5, -2]], kind)
    x = lg.input("x", dtype, [1, 3])
    wide, back = realize([x.astype(lg.float32), lg.reshape(x, [3])], {"x": array})
    assert wide.tolist() == [[1, 0.5, -2]]
    assert back.dtype == kind
    assert back.astype(np.float32).tolist() == [1, 0.5, -2]


@pytest.mark.parametrize("dtype", ["int4", "uint4"])
def test_sub_byte_types_come_and_go(dtype: str) -> None:
    kind = getattr(ml_dtypes, dtype)
    numbers = [1, 7, 3] if dtype == "uint4" else [-8, 7, -1]
    x = lg.input("x", dtype, [3])
    assert realize(x.astype(lg.float32), {"x": np.array(numbers, kind)}).tolist() == numbers
    f = lg.input("f", lg.float32, [3])
    found = realize(f.astype(dtype), {"f": np.array(numbers, np.float32)})
    assert (found.dtype, found.astype(np.int32).tolist()) == (kind, numbers)


def test_texts_are_taken() -> None:
    x = lg.input("x", lg.string, [2])
    assert realize(lg.equal(x, x.const("a")), {"x": ["a", "b"]}).tolist() == [True, False]
    assert realize(x, {"x": np.array(["a", "b"])}).tolist() == ["a", "b"]


def test_an_empty_result_keeps_its_shape() -> None:
    x = lg.input("x", lg.bfloat16, ["n", 4])
    assert realize(x, {"x": np.zeros((0, 4), ml_dtypes.bfloat16)}).shape == (0, 4)


# ---- feeds that do not fit ----


@pytest.mark.parametrize(
    ("feeds", "error", "message"),
    [
        ({}, lg.OperandError, "no feed for 'x', 'z'"),
        ({"x": ONES}, lg.OperandError, "no feed for 'z'"),
        ({"x": ONES, "z": ONES, "q": ONES}, lg.OperandError, "there is no input 'q'"),
        ({"x": ONES, "z": ONES.astype(np.float64)}, lg.DTypeError, "the feed of 'z' is float64"),
        ({"x": ONES, "z": ONES.astype(np.int64)}, lg.DTypeError, "the feed of 'z' is int64"),
        ({"x": ONES, "z": ["a"]}, lg.DTypeError, "the feed of 'z' is str"),
        ({"x": ONES, "z": ONES[0]}, lg.ShapeError, "the feed of 'z': 1 axes"),
        ({"x": ONES, "z": ONES[:, :3]}, lg.ShapeError, "the feed of 'z': axis 1 is 3"),
        ({"x": ONES, "z": ONES[:1]}, lg.ShapeError, "n is 2 by axis 0 of 'x' and 1 by axis 0 of 'z'"),
    ],
)
def test_feeds_that_do_not_fit_are_refused_before_anything_runs(
    feeds: dict[str, Any], error: type[Exception], message: str
) -> None:
    _, _, y = graph()
    with pytest.raises(error, match=message):
        realize(y, feeds)


def test_arithmetic_sizes_are_checked() -> None:
    past = lg.input("past", lg.float32, ["past"])
    seq = lg.input("seq", lg.float32, ["seq"], anchor=past)
    mask = lg.input("mask", lg.float32, ["past + seq"], anchor=past)
    y = lg.concat([past, seq], 0) + mask
    feeds = {"past": np.ones(2, np.float32), "seq": np.ones(3, np.float32)}
    assert realize(y, {**feeds, "mask": np.ones(5, np.float32)}).tolist() == [2.0] * 5
    with pytest.raises(lg.ShapeError, match=r"axis 0 of 'mask' is 4, and past \+ seq is 5"):
        realize(y, {**feeds, "mask": np.ones(4, np.float32)})


def test_bounds_of_a_size_are_checked() -> None:
    x = lg.input("x", lg.float32, [lg.size("n", min=1, max=3)])
    with pytest.raises(lg.ShapeError, match=r"n is 4, declared within \[1, 3\]"):
        realize(x + x, {"x": np.ones(4, np.float32)})


@pytest.mark.parametrize(
    ("dtype", "value"), [("int64", [0.5]), ("uint8", [300]), ("uint8", [-1]), ("bool", [1]), ("float32", [True])]
)
def test_python_values_that_the_type_cannot_hold_are_refused(dtype: str, value: list[Any]) -> None:
    x = lg.input("x", dtype, [1])
    with pytest.raises(lg.DTypeError, match="the feed of 'x'"):
        realize(x, {"x": value})


def test_what_is_no_output_or_no_feed_is_refused() -> None:
    x, _, y = graph()
    other = lg.input("x", lg.float32, [1])
    with pytest.raises(lg.OperandError, match="no outputs"):
        realize([])
    with pytest.raises(lg.OperandError, match="is no tensor"):
        realize([1])  # type: ignore[list-item]
    with pytest.raises(lg.GraphMismatchError, match="outputs of different graphs"):
        realize([x, other])
    with pytest.raises(lg.GraphMismatchError, match="belongs to another graph"):
        realize(x, {other: ONES})
    with pytest.raises(lg.OperandError, match="a feed's tensor is no input"):
        realize(y, {y: ONES})
    with pytest.raises(lg.OperandError, match=r"(provider|target) 'tpu'"):
        realize(x, {x: ONES}, provider="tpu")


# ---- sessions ----


def test_the_session_is_made_once_per_set_of_outputs() -> None:
    x, z, y = graph()
    realize(y, {"x": ONES, "z": ONES})
    kept = evaluate._sessions[x.graph]
    (first,) = kept.values()
    realize(y, {"x": ONES, "z": ONES})
    assert list(kept.values()) == [first]
    realize([y, z], {"x": ONES, "z": ONES})
    assert len(kept) == 2


def test_sessions_go_with_their_graph() -> None:
    x, _, y = graph()
    realize(y, {"x": ONES, "z": ONES})
    gone = weakref.ref(x.graph)
    del x, _, y
    gc.collect()
    assert gone() is None


def test_at_most_so_many_sessions_are_kept() -> None:
    x = lg.input("x", lg.float32, [1])
    for k in range(20):
        realize(x + float(k), {"x": [0.0]})
    assert len(evaluate._sessions[x.graph]) == 16


def test_large_weights_are_realized_too() -> None:
    x = lg.input("x", lg.float32, ["n", 4096])
    w = x.const(lg.LazyArray("float32", (4096, 4096), lambda: np.eye(4096, dtype=np.float32)), "w")
    assert realize(x @ w, {"x": np.ones((1, 4096), np.float32)}).tolist() == [[1.0] * 4096]


# ---- failures of the run ----


def test_a_failure_at_run_time_names_the_users_line() -> None:
    x = lg.input("x", lg.int64, [2])
    table = x.const(np.ones((3, 4), np.float32), "table")
    with lg.scope("embed"):
        y = lg.gather(table, x)
    with pytest.raises(lg.ExportError, match=r"(?s)^gather: onnxruntime failed: .*test_realize\.py:\d+$") as caught:
        realize(y, {"x": [0, 7]})
    assert caught.value.at == y.origin.at
    assert caught.value.operands == {"node": "embed/gather_0"}
