"""Loops written as Python functions, and the operators that hold parts of a program by their spec names."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lazygraph as lg
from lazygraph import dims

F32 = lg.float32


def _x(*shape: int | str) -> lg.Tensor:
    return lg.input("x", F32, list(shape))


def _refused(error: type[lg.LazyGraphError], message: str, make: Callable[[], object]) -> lg.LazyGraphError:
    with pytest.raises(error, match=message) as caught:
        make()
    assert Path(__file__).name in str(caught.value.at)
    return caught.value


def _line(text: str) -> int:
    """Return the number of this file's only line that ends with a comment."""
    lines = Path(__file__).read_text(encoding="utf-8").splitlines()
    (found,) = [number for number, line in enumerate(lines, 1) if line.endswith(f"# {text}")]
    return found


# --- loop ---


@pytest.mark.parametrize("steps", [0, 1, 4])
def test_a_loop_runs_so_often_and_keeps_what_it_is_asked(steps: int) -> None:
    x = _x(3)
    n = lg.input("n", lg.int64, [], anchor=x)
    for count in (steps, n):
        (last,), (seen, numbers) = lg.loop(lambda i, s: ([s * 0.5 + 1.0], [s, i]), [x], steps=count)
        assert last.shape == (3,)
        assert (seen.shape[0] == steps) is (count is steps)
        got = lg.realize([last, seen, numbers], {"x": [0.0, 4.0, 8.0], **({"n": steps} if count is n else {})})
        state, rows = np.array([0, 4, 8], np.float32), []
        for _ in range(steps):
            rows.append(state)
            state = state * 0.5 + 1
        np.testing.assert_allclose(got[0], state)
        np.testing.assert_allclose(got[1], np.reshape(rows, (steps, 3)))
        assert got[2].tolist() == list(range(steps))


def test_a_named_size_can_count_the_steps_and_is_that_of_what_is_kept() -> None:
    x = _x("n", 2)
    _, (rows,) = lg.loop(lambda i, s: ([s], [lg.gather(x, i)]), [x[0]], steps=x.shape[0])
    assert str(rows.shape) == "(n, 2)"
    numbers = np.arange(6, dtype=np.float32).reshape(3, 2)
    np.testing.assert_array_equal(lg.realize(rows, {"x": numbers}), numbers)


def test_steps_below_none_are_none() -> None:
    x = _x(2)
    (last,), (kept,) = lg.loop(lambda i, s: ([s + 1.0], [s]), [x], steps=-3)
    assert kept.shape == (0, 2)
    assert lg.realize(last, {"x": [1.0, 2.0]}).tolist() == [1, 2]


@pytest.mark.parametrize(("limit", "start"), [(None, 1.0), (3, 1.0), (99, 1.0), (5, 1000.0)])
def test_a_condition_is_asked_before_every_step_and_a_limit_ends_it_too(limit: int | None, start: float) -> None:
    x = _x()
    (last,), (seen,) = lg.loop(lambda i, s: ([s * 2.0], [s]), [x], steps=limit, condition=lambda s: s < 100.0)
    assert isinstance(seen.shape[0], lg.Dim)
    state, rows = start, list[float]()
    while state < 100 and (limit is None or len(rows) < limit):
        rows.append(state)
        state *= 2
    got = lg.realize([last, seen], {"x": np.float32(start)})
    assert got[0] == state
    assert got[1].tolist() == rows


@settings(deadline=None, max_examples=25)
@given(a=st.integers(0, 40), b=st.integers(0, 40))
def test_a_loop_computes_greatest_common_divisors(a: int, b: int) -> None:
    x = lg.input("x", lg.int64, [])
    y = lg.input("y", lg.int64, [], anchor=x)
    one = x.const(1)
    (found, _), _ = lg.loop(
        lambda i, p, q: ([q, lg.remainder(p, lg.maximum(q, one))], []), [x, y], condition=lambda p, q: q > 0
    )
    assert int(lg.realize(found, {"x": a, "y": b})) == np.gcd(a, b)


def test_a_state_may_grow_where_that_is_said() -> None:
    x = _x("n", 2)

    def grow(i: lg.Tensor, rows: lg.Tensor) -> tuple[list[Any], list[Any]]:
        return [lg.concat([rows, rows[:1] + 1.0], 0)], [lg.shape(rows)]

    (grown,), (sizes,) = lg.loop(grow, [x], steps=3, shapes=[[None, 2]])
    assert dims.is_unknown(grown.shape[0])
    assert grown.shape[1] == 2
    assert str(sizes.shape) == "(3, 2)"
    got = lg.realize([grown, sizes], {"x": np.zeros((4, 2), np.float32)})
    assert got[0].shape == (7, 2)
    assert got[1].tolist() == [[4, 2], [5, 2], [6, 2]]
    hint = _refused(
        lg.ShapeError, r"from \(n, 2\) to \(min\(1, n\) \+ n, 2\)", lambda: lg.loop(grow, [x], steps=3)
    ).hint
    assert "shapes=[[None, ...], ...]" in hint


def test_sizes_that_differ_from_step_to_step_are_new_ones_outside() -> None:
    x = _x("n")
    outer = lg.non_zero(x)  # (1, some)

    def body(i: lg.Tensor, s: lg.Tensor) -> tuple[list[Any], list[Any]]:
        return [s], [lg.non_zero(s - 1.0), outer]

    _, (inner, same) = lg.loop(body, [x], steps=2)
    assert same.shape[2] == outer.shape[1]
    assert dims.is_unknown(inner.shape[2])
    assert inner.shape[2] != same.shape[2]


def test_loops_nest_and_close_over_what_is_around() -> None:
    x, w = _x("n", 2), None
    w = lg.input("w", F32, [2], anchor=x)

    def outer(i: lg.Tensor, total: lg.Tensor) -> tuple[list[Any], list[Any]]:
        row = lg.gather(x, i)
        (inner,), _ = lg.loop(lambda j, s: ([s + row * w + lg.cast(i, F32)], []), [total], steps=i + 1)
        return [lg.cond(lg.reduce_sum(inner) > 50.0, lambda: inner * 0.5, lambda: inner)], [inner]

    (last,), (kept,) = lg.loop(outer, [w], steps=x.shape[0])
    numbers, weights = np.arange(6, dtype=np.float32).reshape(3, 2), np.array([1, 3], np.float32)
    total, rows = weights, []
    for i, row in enumerate(numbers):
        for _ in range(i + 1):
            total = total + row * weights + i
        rows.append(total)
        total = total * 0.5 if total.sum() > 50 else total
    got = lg.realize([last, kept], {"x": numbers, "w": weights})
    np.testing.assert_allclose(got[0], total)
    np.testing.assert_allclose(got[1], rows)


def test_a_loop_survives_a_file(tmp_path: Path) -> None:
    x = _x("n", 2)
    (last,), (kept,) = lg.loop(lambda i, s: ([s + x[i % 2]], [s]), [x[0]], steps=x.shape[0])
    lg.save({"last": last, "kept": kept}, tmp_path / "m.onnx")
    again = lg.load(tmp_path / "m.onnx")
    assert str(again.outputs["kept"].shape) == "(n, 2)"
    numbers = np.arange(8, dtype=np.float32).reshape(4, 2)
    for name, tensor in (("last", last), ("kept", kept)):
        np.testing.assert_array_equal(
            lg.realize(again.outputs[name], {"x": numbers}), lg.realize(tensor, {"x": numbers})
        )


# --- what is refused, and where ---


def test_loops_that_do_not_fit_are_refused() -> None:
    x = _x("n", 3)
    p = lg.input("p", lg.bool_, [2], anchor=x)

    def body(i: lg.Tensor, s: lg.Tensor) -> tuple[list[Any], list[Any]]:
        return [s], []

    _refused(lg.OperandError, "nothing ends it", lambda: lg.loop(body, [x]))
    _refused(lg.OperandError, "nothing to begin with", lambda: lg.loop(lambda i: ([], [i]), [], steps=2))
    _refused(lg.OperandError, "body gives nothing", lambda: lg.loop(lambda i: ([], []), [], steps=lg.constant(3)))
    _refused(lg.OperandError, "2 next states for 1", lambda: lg.loop(lambda i, s: ([s, s], []), [x], steps=2))
    _refused(lg.DTypeError, "steps is float32", lambda: lg.loop(body, [x], steps=x[0, 0]))
    _refused(lg.ShapeError, "steps is no scalar", lambda: lg.loop(body, [x], steps=lg.shape(x)))
    _refused(lg.DTypeError, "condition is float32", lambda: lg.loop(body, [x], condition=lambda s: s[0, 0]))
    _refused(lg.ShapeError, "condition is no scalar", lambda: lg.loop(body, [x], condition=lambda s: p))
    _refused(lg.OperandError, "condition returns True", lambda: lg.loop(body, [x], condition=lambda s: True))  # type: ignore[arg-type, return-value]
    _refused(lg.OperandError, "body cannot take 2 operands", lambda: lg.loop(lambda i: ([i], []), [x], steps=1))
    _refused(lg.OperandError, "body is 3", lambda: lg.loop(3, [x], steps=1))  # type: ignore[arg-type]
    _refused(lg.OperandError, "2 shapes for 1", lambda: lg.loop(body, [x], steps=1, shapes=[None, None]))
    _refused(lg.ShapeError, "contradicts", lambda: lg.loop(body, [x], steps=1, shapes=[[None]]))
    other = _x(3)
    _refused(lg.GraphMismatchError, "two different graphs", lambda: lg.loop(lambda i, s: ([other], []), [x], steps=1))


def test_errors_point_into_the_body() -> None:
    x = _x("n", 3)

    def wrong_inside(i: lg.Tensor, s: lg.Tensor) -> tuple[list[Any], list[Any]]:
        return [s @ s], []  # the wrong product

    def narrower(i: lg.Tensor, s: lg.Tensor) -> tuple[list[Any], list[Any]]:
        cast = s.astype(lg.float64)  # the other type
        return [cast], []

    def shorter(s: lg.Tensor, v: lg.Tensor) -> tuple[list[Any], list[Any]]:
        cut = s[:2]  # the other shape
        return [cut], []

    found = _refused(lg.ShapeError, "matmul", lambda: lg.loop(wrong_inside, [x], steps=2))
    assert found.at is not None
    assert found.at.line == _line("the wrong product")
    found = _refused(lg.DTypeError, "from float32 to float64", lambda: lg.loop(narrower, [x], steps=2))
    assert found.at is not None
    assert found.at.line == _line("the other type")
    z = lg.input("z", F32, [3], anchor=x)
    found = _refused(lg.ShapeError, r"from \(3,\) to \(2,\)", lambda: lg.scan(shorter, [z], [x]))
    assert found.at is not None
    assert found.at.line == _line("the other shape")


# --- scan along any axis, either way ---


@settings(deadline=None, max_examples=40)
@given(
    axes=st.tuples(st.integers(-3, 2), st.integers(-2, 1)),
    back=st.tuples(st.booleans(), st.booleans()),
    out=st.tuples(st.integers(-3, 2), st.integers(-1, 0)),
    out_back=st.tuples(st.booleans(), st.booleans()),
)
def test_scan_goes_along_any_axis_either_way(
    axes: tuple[int, int], back: tuple[bool, bool], out: tuple[int, int], out_back: tuple[bool, bool]
) -> None:
    sizes: list[list[int | str]] = [[2, 3], [2]]
    for shape, axis in zip(sizes, axes, strict=True):
        shape.insert(axis if axis >= 0 else len(shape) + 1 + axis, "n")
    x = lg.input("x", F32, sizes[0])
    y = lg.input("y", F32, sizes[1], anchor=x)

    def body(s: Any, a: Any, b: Any) -> tuple[list[Any], list[Any]]:
        return [s * 0.5 + b], [a + s[:, None], (s * b).sum()]

    first = x.const(np.ones(2, np.float32))
    (last,), kept = lg.scan(body, [first], [x, y], list(axes), list(back), list(out), list(out_back))
    random = np.random.default_rng(0)
    feeds = {
        name: random.normal(size=[4 if size == "n" else int(size) for size in shape]).astype(np.float32)
        for name, shape in zip("xy", sizes, strict=True)
    }
    over = [np.moveaxis(array, axis, 0) for array, axis in zip(feeds.values(), axes, strict=True)]
    over = [array[::-1] if turned else array for array, turned in zip(over, back, strict=True)]
    state, rows = np.ones(2, np.float32), []
    for a, b in zip(*over, strict=True):
        rows.append((a + state[:, None], (state * b).sum()))
        state = state * np.float32(0.5) + b
    wanted = [np.stack([row[k] for row in (rows[::-1] if out_back[k] else rows)], out[k]) for k in range(2)]
    got = lg.realize([last, *kept], feeds)
    for found, right, tensor in zip(got, [state, *wanted], [last, *kept], strict=True):
        np.testing.assert_allclose(found, right, rtol=1e-5, atol=1e-6)
        assert [dims.evaluate(size, {"n": 4}) for size in tensor.shape] == list(right.shape)


def test_axes_of_a_scan_that_do_not_fit_are_refused() -> None:
    x = _x("n", 3)

    def body(v: lg.Tensor) -> tuple[list[Any], list[Any]]:
        return [], [v]

    _refused(lg.IndexRangeError, "axis 2 of a tensor with 2 axes", lambda: lg.scan(body, [], [x], axis=2))
    _refused(lg.IndexRangeError, "out_axis 2", lambda: lg.scan(body, [], [x], out_axis=2))
    _refused(lg.OperandError, "2 values of axis for 1", lambda: lg.scan(body, [], [x], axis=[0, 0]))
    _refused(lg.OperandError, "2 values of out_reverse", lambda: lg.scan(body, [], [x], out_reverse=[True, False]))
    _refused(lg.ShapeError, "differ: n and 3", lambda: lg.scan(lambda a, b: ([], [a]), [], [x, x], axis=[0, 1]))


# --- sequences ---


def test_a_function_runs_over_sequences() -> None:
    x = _x("n")
    parts = lg.op.SplitToSequence(x, 1, axis=0)
    scale = lg.input("scale", F32, [1], anchor=x)
    doubled = lg.sequence_map(lambda part, by: part * by, parts, scale)
    both = lg.sequence_map(lambda a, b: (a + b, lg.shape(a)), parts, doubled)
    assert [one.dtype.name for one in both] == ["seq(float32)", "seq(int64)"]
    got = lg.realize([doubled, both[0]], {"x": [1.0, 2.0, 3.0], "scale": [2.0]})
    assert [part.tolist() for part in got[0]] == [[2], [4], [6]]
    assert [part.tolist() for part in got[1]] == [[3], [6], [9]]
    _refused(lg.DTypeError, "it goes over float32", lambda: lg.sequence_map(lambda part: part, x))
    _refused(lg.OperandError, "body returns None", lambda: lg.sequence_map(lambda part: None, parts))  # type: ignore[arg-type, return-value]


# --- by their spec names ---


def test_if_takes_parts_of_any_shape() -> None:
    x = _x("n", 4)
    p = lg.input("p", lg.bool_, [], anchor=x)
    (y, z) = lg.op.If(p, then_branch=lambda: (x, x), else_branch=lambda: [x[0], x[:1]])
    assert y.known_shape is None
    assert z.shape[1] == 4
    assert dims.is_unknown(z.shape[0])
    for flag, shape in ((True, (3, 4)), (False, (4,))):
        assert lg.realize(y, {"x": np.ones((3, 4), np.float32), "p": flag}).shape == shape
    hint = _refused(lg.ShapeError, "then gives", lambda: lg.cond(p, lambda: x, lambda: x[0])).hint
    assert "lg.op.If takes any two shapes" in hint
    _refused(
        lg.DTypeError,
        "then_branch gives float32, else_branch int64",
        lambda: lg.op.If(p, then_branch=lambda: x, else_branch=lambda: lg.shape(x)),
    )
    _refused(
        lg.OperandError, "else_branch gives 2", lambda: lg.op.If(p, then_branch=lambda: x, else_branch=lambda: (x, x))
    )
    _refused(lg.OperandError, "'else_branch' is missing", lambda: lg.op.If(p, then_branch=lambda: x))  # type: ignore[call-arg]


def test_a_state_of_the_loop_operator_may_change_its_shape_and_is_then_known_less_of() -> None:
    x = _x(1, 2)
    calls: list[object] = []

    def body(i: lg.Tensor, going_on: lg.Tensor, rows: lg.Tensor, same: lg.Tensor) -> list[lg.Tensor]:
        calls.append(rows.known_shape)
        named = x.const(np.ones((1, 2), np.float32), "one")  # a name that a second call takes again
        return [going_on, lg.concat([rows, named], 0), same, rows[0]]

    rows, same, kept = lg.op.Loop(3, None, x, x, body=body)
    assert len(calls) == 2
    assert dims.is_unknown(rows.shape[0])
    assert same.shape == (1, 2)
    assert kept.shape == (3, 2)
    assert lg.realize(rows, {"x": np.zeros((1, 2), np.float32)}).tolist() == [[0, 0], [1, 1], [1, 1], [1, 1]]
    _refused(
        lg.DTypeError, "from float32 to int64", lambda: lg.op.Loop(3, None, x, body=lambda i, c, s: (c, lg.shape(s)))
    )
    _refused(lg.OperandError, "body gives 1 tensors", lambda: lg.op.Loop(3, None, x, body=lambda i, c, s: c))
    _refused(lg.DTypeError, "condition is int64", lambda: lg.op.Loop(3, None, x, body=lambda i, c, s: (i, s)))
    _refused(lg.OperandError, "only its condition", lambda: lg.op.Loop(x.const(3), None, body=lambda i, c: c))


def test_scan_and_sequence_map_by_their_names() -> None:
    x = _x(3, "n")
    s = lg.input("s", F32, [3], anchor=x)
    last, kept = lg.op.Scan(s, x, body=lambda c, v: (c + v, c), num_scan_inputs=1, scan_input_axes=[1])
    assert str(kept.shape) == "(n, 3)"
    numbers = np.arange(6, dtype=np.float32).reshape(3, 2)
    got = lg.realize([last, kept], {"x": numbers, "s": [1.0, 1.0, 1.0]})
    assert got[0].tolist() == [2, 6, 10]
    assert got[1].tolist() == [[1, 1, 1], [1, 3, 5]]
    _refused(
        lg.OperandError,
        "num_scan_inputs is 3 of 2",
        lambda: lg.op.Scan(s, x, body=lambda c, v: c, num_scan_inputs=3),
    )
    _refused(
        lg.OperandError,
        "scan_input_axes is",
        lambda: lg.op.Scan(s, x, body=lambda c, v: c, num_scan_inputs=1, scan_input_axes=[1, 1]),
    )
    (parts,) = lg.op.SequenceMap(lg.op.SplitToSequence(s, 1, axis=0), body=lambda part: part + 1.0)
    assert [part.tolist() for part in lg.realize(parts, {"s": [1.0, 2.0, 3.0]})] == [[2], [3], [4]]


def test_the_scores_of_an_attention_may_be_changed_by_a_function() -> None:
    q = lg.input("q", lg.float16, ["batch", 2, "new", 8])
    k = lg.input("k", lg.float16, ["batch", 2, "rows", 8], anchor=q)
    seen: list[lg.Tensor] = []

    def cap(scores: lg.Tensor) -> lg.Tensor:
        seen.append(scores)
        return lg.tanh(scores)

    y = lg.op.preview.FlexAttention(q, k, k, score_mod=cap)
    assert str(y.shape) == "(batch, 2, new, 8)"
    assert (seen[0].dtype.name, str(seen[0].shape)) == ("float32", "(batch, 2, new, rows)")
    onnx.checker.check_model(lg.to_onnx(y, target=None), full_check=True)
    _refused(
        lg.ShapeError,
        "changes its shape",
        lambda: lg.op.preview.FlexAttention(q, k, k, prob_mod=lambda shares: shares[:, :1]),
    )


def test_an_optional_can_be_declared_by_its_type() -> None:
    x = _x(2)
    p = lg.input("p", lg.bool_, [], anchor=x)
    (y,) = lg.op.If(
        p, then_branch=lambda: lg.op.Optional(x), else_branch=lambda: lg.op.Optional(type="float32", anchor=x)
    )
    has = lg.op.OptionalHasElement(y)
    for flag in (True, False):
        assert bool(lg.realize(has, {"x": [1.0, 2.0], "p": flag})) is flag
