"""Branches and loops: what they compute, which part of a program lands in which of them, and what is refused."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lazygraph as lg

F32 = lg.float32


def _x(*shape: int | str) -> lg.Tensor:
    return lg.input("x", F32, list(shape))


def _flag(anchor: lg.Tensor, name: str = "p") -> lg.Tensor:
    return lg.input(name, lg.bool_, [], anchor=anchor)


def _graphs(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                yield from _graphs(attribute.g)


def _ops(graph: onnx.GraphProto) -> Counter[str]:
    """Return how often each operator stands in this graph itself."""
    return Counter(node.op_type for node in graph.node)


def _body(graph: onnx.GraphProto, name: str) -> onnx.GraphProto:
    """Return the one body of that name among the graph's own nodes."""
    found: list[onnx.GraphProto] = [a.g for node in graph.node for a in node.attribute if a.name == name]
    assert len(found) == 1
    return found[0]


# --- values ---


@pytest.mark.parametrize("shape", [[], [1]])
def test_cond_gives_what_the_branch_that_runs_gives(shape: list[int]) -> None:
    x = _x("n")
    p = lg.input("p", lg.bool_, shape, anchor=x)
    y = lg.cond(p, lambda: x + 1.0, lambda: x * 3.0)
    for flag, wanted in ((True, [2, 3]), (False, [3, 6])):
        assert lg.realize(y, {"x": [1.0, 2.0], "p": np.full(shape, flag)}).tolist() == wanted


def test_cond_gives_several_tensors_of_several_types() -> None:
    x = _x(3)
    p = _flag(x)
    results = lg.cond(p, lambda: (x, x.astype(lg.int64), x > 0), lambda: [x + 1, lg.shape(x), x > 2])
    assert [y.dtype for y in results] == [lg.float32, lg.int64, lg.bool_]
    (alone,) = lg.cond(p, lambda: [x], lambda: (x,))
    assert alone.shape == (3,)
    for flag in (True, False):
        one, _, three = lg.realize([results[0], results[0], results[2]], {"x": [1.0, 2.0, 3.0], "p": flag})
        assert one.tolist() == ([1, 2, 3] if flag else [2, 3, 4])
        assert three.tolist() == ([True] * 3 if flag else [False, False, True])


def test_branches_may_give_inputs_constants_and_one_tensor_twice(tmp_path: Path) -> None:
    x = _x(2)
    p = _flag(x)
    shared = lg.exp(x)
    c = x.const(np.array([7.0, 8.0], np.float32), "c")
    made = lg.cond(p, lambda: (x, c, shared, shared, x), lambda: (c, c, x, shared, shared))
    names = ("a", "b", "c_", "d", "e")
    lg.save(dict(zip(names, made, strict=True)), tmp_path / "m.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "m.onnx", providers=["CPUExecutionProvider"])
    numbers = np.array([0.5, -1.0], np.float32)
    values = {"x": numbers, "c": np.array([7, 8], np.float32), "s": np.exp(numbers)}
    for flag, picks in ((True, "xcssx"), (False, "ccxss")):
        got = session.run(list(names), {"x": numbers, "p": np.array(flag)})
        for array, pick in zip(got, picks, strict=True):
            np.testing.assert_allclose(array, values[pick], rtol=1e-6)


def test_a_branch_is_not_run_when_the_other_is() -> None:
    # The index is out of range: whoever computed it would fail.
    x = _x("n")
    i = lg.input("i", lg.int64, [], anchor=x)
    y = lg.cond(i < 3, lambda: lg.gather(x, i), lambda: lg.reduce_sum(x))
    feeds = {"x": np.arange(3, dtype=np.float32)}
    assert lg.realize(y, {**feeds, "i": 1}) == 1
    assert lg.realize(y, {**feeds, "i": 99}) == 3


@pytest.mark.parametrize("steps", [1, 2, 5])
def test_scan_carries_a_state_and_keeps_what_is_asked(steps: int) -> None:
    x, s = _x("n", 3), None
    s = lg.input("s", F32, [3], anchor=x)
    (last,), (sums, items, befores) = lg.scan(lambda c, v: ([c * 0.5 + v], [c * 0.5 + v, v, c]), [s], [x])
    assert last.shape == (3,)
    assert str(sums.shape) == str(items.shape) == "(n, 3)"
    numbers, state = np.random.default_rng(0).normal(size=(steps, 3)).astype(np.float32), np.ones(3, np.float32)
    got = lg.realize([last, sums, items, befores], {"x": numbers, "s": state})
    wanted, before = [], []
    for row in numbers:
        before.append(state)
        state = state * np.float32(0.5) + row
        wanted.append(state)
    rights: list[Any] = [state, wanted, numbers, before]
    for found, right in zip(got, rights, strict=True):
        np.testing.assert_allclose(found, right, rtol=1e-6)


def test_scan_without_a_state_and_scan_without_anything_kept() -> None:
    x = _x("n", 2)
    none, (doubled,) = lg.scan(lambda v: ([], [v * 2.0]), [], [x])
    (total,), nothing = lg.scan(lambda c, v: ([c + v], []), [x.const(np.zeros(2, np.float32))], [x])
    assert none == nothing == ()
    numbers = np.arange(6, dtype=np.float32).reshape(3, 2)
    got = lg.realize([doubled, total], {"x": numbers})
    np.testing.assert_array_equal(got[0], 2 * numbers)
    np.testing.assert_array_equal(got[1], numbers.sum(0))


def test_scan_goes_over_several_tensors_and_scalars() -> None:
    x, w = _x("n"), None
    w = lg.input("w", lg.int64, ["n", 2, 2], anchor=x)
    _, (y, z) = lg.scan(lambda a, b: ([], [a + 1.0, b[0]]), [], [x, w])
    assert str(z.shape) == "(n, 2)"
    ints = np.arange(12).reshape(3, 2, 2)
    got = lg.realize([y, z], {"x": [1.0, 2.0, 3.0], "w": ints})
    assert got[0].tolist() == [2, 3, 4]
    assert got[1].tolist() == ints[:, 0].tolist()


def test_a_loop_body_may_give_inputs_constants_outer_tensors_and_duplicates() -> None:
    x, z = _x("n", 2), None
    z = lg.input("z", F32, [2], anchor=x)
    c, outer = x.const(np.array([5.0, 6.0], np.float32)), lg.exp(z)
    (same, swapped), kept = lg.scan(lambda a, b, v: ([b, a], [v, v, z, c, outer, a]), [z, c], [x])
    numbers = np.arange(4, dtype=np.float32).reshape(2, 2)
    values = lg.realize([same, swapped, *kept], {"x": numbers, "z": [1.0, 2.0]})
    assert values[0].tolist() == [1, 2]  # swapped twice
    assert values[1].tolist() == [5, 6]
    assert values[2].tolist() == values[3].tolist() == numbers.tolist()
    assert values[4].tolist() == [[1, 2]] * 2
    assert values[5].tolist() == [[5, 6]] * 2
    np.testing.assert_allclose(values[6], [np.exp([1, 2])] * 2, rtol=1e-6)
    assert values[7].tolist() == [[1, 2], [5, 6]]


def test_no_steps_at_all_are_refused_by_the_runtime_on_the_users_line() -> None:
    x = _x("n", 3)
    _, (y,) = lg.scan(lambda v: ([], [v + 1.0]), [], [x])
    with pytest.raises(lg.ExportError, match="scan") as caught:
        lg.realize(y, {"x": np.ones((0, 3), np.float32)})
    assert Path(__file__).name in str(caught.value.at)


# --- random programs, run twice ---

Statement = tuple[Any, ...]


def _statements(depth: int) -> st.SearchStrategy[list[Statement]]:
    index = st.integers(0, 30)
    plain = st.tuples(st.sampled_from(["add", "mix"]), index, index)
    if depth == 0:
        return st.lists(plain, max_size=3)
    inner = _statements(depth - 1)
    branch = st.tuples(st.just("cond"), st.sampled_from(["p", "q", "sign"]), index, inner, inner)
    loop = st.tuples(st.just("scan"), index, index, inner)
    return st.lists(st.one_of(plain, branch, loop), max_size=4)


class _Words:
    """How a program's statements are carried out: by lazygraph, or by numpy at once."""

    def __init__(self, xs: Any, flags: dict[str, Any], lazy: bool) -> None:
        self.xs, self.flags, self.lazy = xs, flags, lazy

    def run(self, statements: Sequence[Statement], known: list[Any]) -> Any:
        """Return the last value; every statement may use all values so far, and those around it."""
        known = list(known)
        for statement in statements:
            known.append(self._one(statement, known))
        return known[-1]

    def _one(self, statement: Statement, known: list[Any]) -> Any:
        kind = statement[0]

        def pick(i: int) -> Any:
            return known[i % len(known)]

        if kind == "add":
            return pick(statement[1]) * 0.5 + pick(statement[2])
        if kind == "mix":
            tanh = lg.tanh if self.lazy else np.tanh
            return tanh(pick(statement[1])) - pick(statement[2]) * 0.25
        if kind == "cond":
            _, flag, i, then, orelse = statement
            pred = self.flags[flag] if flag != "sign" else self._sum(pick(i)) > 0.0
            branches = [lambda: self.run(then, known), lambda: self.run(orelse, known)]
            if self.lazy:
                return lg.cond(pred, *branches)
            return branches[0 if pred else 1]()
        _, i, j, inner = statement

        def body(state: Any, item: Any) -> tuple[list[Any], list[Any]]:
            following = self.run(inner, [*known, state, item]) * 0.5 + state * 0.25
            return [following], [following + pick(j)]

        if self.lazy:
            (last,), (kept,) = lg.scan(body, [pick(i)], [self.xs])
            return last + lg.reduce_sum(kept, 0) * 0.125
        state, rows = pick(i), []
        for item in self.xs:
            (state,), (row,) = body(state, item)
            rows.append(row)
        return state + np.sum(rows, 0) * 0.125

    def _sum(self, x: Any) -> Any:
        return lg.reduce_sum(x) if self.lazy else x.sum()


@settings(deadline=None, max_examples=60)
@given(program=_statements(3), p=st.booleans(), q=st.booleans(), seed=st.integers(0, 5))
def test_nested_programs_compute_what_numpy_does(program: list[Statement], p: bool, q: bool, seed: int) -> None:
    random = np.random.default_rng(seed)
    x, rows = random.normal(size=3), random.normal(size=(3, 3))
    symbol = _x(3)
    xs = lg.input("xs", F32, ["steps", 3], anchor=symbol)
    flags = {"p": _flag(symbol, "p"), "q": _flag(symbol, "q")}
    y = _Words(xs, flags, lazy=True).run(program, [symbol])
    wanted = _Words(rows, {"p": p, "q": q}, lazy=False).run(program, [x])
    got = lg.realize(y, {"x": x.astype(np.float32), "xs": rows.astype(np.float32), "p": p, "q": q})
    np.testing.assert_allclose(got, wanted, rtol=0, atol=2e-4 * max(1.0, float(np.abs(wanted).max())))

    model = lg.to_onnx({"y": y})
    names = [name for graph in _graphs(model.graph) for node in graph.node for name in node.output if name]
    names += [value.name for graph in _graphs(model.graph) for value in graph.input]
    names += [value.name for value in model.graph.initializer]
    assert len(names) == len(set(names))
    nodes = [node.name for graph in _graphs(model.graph) for node in graph.node]
    assert len(nodes) == len(set(nodes))
    assert model.SerializeToString() == lg.to_onnx({"y": y}).SerializeToString()


def test_cond_in_scan_in_cond_exports_to_a_file_that_runs(tmp_path: Path) -> None:
    x = _x("n", 2)
    p = _flag(x)

    def step(c: lg.Tensor, v: lg.Tensor) -> tuple[list[Any], list[Any]]:
        grown = lg.cond(lg.reduce_sum(v) > 0.0, lambda: c + v, lambda: c - 1.0)
        return [grown], [grown]

    y = lg.cond(p, lambda: lg.scan(step, [x.const(np.zeros(2, np.float32))], [x])[1][0], lambda: -x)
    lg.save({"y": y}, tmp_path / "m.onnx")
    onnx.checker.check_model(onnx.load(tmp_path / "m.onnx"), full_check=True)
    session = onnxruntime.InferenceSession(tmp_path / "m.onnx", providers=["CPUExecutionProvider"])
    numbers = np.array([[1, 2], [-3, 1], [4, 0]], np.float32)
    assert session.run(None, {"x": numbers, "p": np.array(True)})[0].tolist() == [[1, 2], [0, 1], [4, 1]]
    assert session.run(None, {"x": numbers, "p": np.array(False)})[0].tolist() == (-numbers).tolist()


# --- where the parts of a program go ---


def test_what_one_branch_needs_goes_into_it_and_what_both_need_stays_outside() -> None:
    x = _x("n")
    p = _flag(x)
    shared, left, right = lg.exp(x), lg.sin(x), lg.cos(x)  # written before the branches, used in them only
    y = lg.cond(p, lambda: shared + left, lambda: shared * right)
    graph = lg.to_onnx(y).graph
    assert _ops(graph) == {"Exp": 1, "If": 1}
    assert _ops(_body(graph, "then_branch")) == {"Sin": 1, "Add": 1}
    assert _ops(_body(graph, "else_branch")) == {"Cos": 1, "Mul": 1}


def test_what_the_rest_of_the_program_needs_too_stays_outside() -> None:
    x = _x("n")
    left = lg.sin(x)
    y = lg.cond(_flag(x), lambda: left + 1.0, lambda: x)
    graph = lg.to_onnx({"y": y, "z": left * 2.0}).graph
    assert _ops(graph) == {"Sin": 1, "If": 1, "Mul": 1}
    graph = lg.to_onnx({"y": y, "left": left}).graph
    assert _ops(graph) == {"Sin": 1, "If": 1}


def test_what_a_condition_needs_stays_outside() -> None:
    x = _x("n")
    total = lg.reduce_sum(x)
    y = lg.cond(total > 0.0, lambda: x / total, lambda: x)
    graph = lg.to_onnx(y).graph
    assert _ops(graph) == {"ReduceSum": 1, "Greater": 1, "If": 1}


def test_a_part_of_two_branches_of_one_outer_branch_goes_into_the_outer_one() -> None:
    x = _x("n")
    p, q = _flag(x, "p"), _flag(x, "q")
    part = lg.exp(x)
    y = lg.cond(p, lambda: lg.cond(q, lambda: part + 1.0, lambda: part - 1.0), lambda: x)
    graph = lg.to_onnx(y).graph
    outer = _body(graph, "then_branch")
    assert _ops(graph) == {"If": 1}
    assert _ops(outer) == {"Exp": 1, "If": 1}
    assert _ops(_body(outer, "then_branch")) == {"Add": 1}


def test_what_does_not_change_from_step_to_step_is_computed_once() -> None:
    x, w = _x("n", 3), None
    w = lg.input("w", F32, [3, 3], anchor=x)
    _, (y,) = lg.scan(lambda v: ([], [v @ lg.exp(w @ w)]), [], [x])
    graph = lg.to_onnx(y).graph
    assert _ops(graph) == {"MatMul": 1, "Exp": 1, "Scan": 1}
    assert _ops(_body(graph, "body")) == {"MatMul": 1}


def test_what_changes_with_the_outer_loop_only_is_computed_in_the_outer_one() -> None:
    x, w = _x("n", 3), None
    w = lg.input("w", F32, ["m", 3], anchor=x)

    def outer(v: lg.Tensor) -> tuple[list[Any], list[Any]]:
        _, (kept,) = lg.scan(lambda u: ([], [u + lg.exp(v) + lg.sin(w[0])]), [], [w])
        return [], [lg.reduce_sum(kept, 0)]

    _, (y,) = lg.scan(outer, [], [x])
    graph = lg.to_onnx(y).graph
    assert {"Sin", "Gather", "Scan"} >= {op for op in _ops(graph) if op in ("Sin", "Scan", "Exp")}
    assert _ops(graph)["Sin"] == 1
    body = _body(graph, "body")
    assert _ops(body)["Exp"] == 1
    assert _ops(body)["Scan"] == 1
    assert set(_ops(_body(body, "body"))) == {"Add"}
    rows, others = np.random.default_rng(0).normal(size=(2, 4, 3)).astype(np.float32)
    wanted = [(others + np.exp(row) + np.sin(others[0])).sum(0) for row in rows]
    np.testing.assert_allclose(lg.realize(y, {"x": rows, "w": others}), wanted, rtol=2e-5)


def test_a_branch_in_a_loop_keeps_its_work_though_it_does_not_change() -> None:
    # It may never run: lifted out it would be computed in any case.
    x, w = _x("n", 3), None
    w = lg.input("w", F32, [3], anchor=x)
    _, (y,) = lg.scan(lambda v: ([], [lg.cond(lg.reduce_sum(v) > 0.0, lambda: lg.exp(w), lambda: v)]), [], [x])
    graph = lg.to_onnx(y).graph
    assert _ops(graph) == {"Scan": 1}
    assert _ops(_body(_body(graph, "body"), "then_branch")) == {"Exp": 1}


def test_weights_are_held_once_by_the_graph_itself() -> None:
    x = _x("n", 64)
    w = x.const(np.random.default_rng(0).normal(size=(64, 64)).astype(np.float32), "w")
    y = lg.cond(_flag(x), lambda: x @ w, lambda: x @ w @ w)
    model = lg.to_onnx(y)
    assert [value.name for value in model.graph.initializer] == ["w"]
    assert all(not graph.initializer for graph in _graphs(model.graph) if graph is not model.graph)


def test_a_branch_that_reads_a_buffer_keeps_it_from_being_updated_in_place() -> None:
    from lazygraph.export.alias import shared_memory_faults

    x = _x(1, 4)
    cache = lg.LatentCache.inputs(x, 1, 8, [[4]])
    old = cache.slot_buffer_full(0, 0)
    written = cache.append(0, [x]).advance_by(1)
    pairs = {"past.0.slot0": "present.0.slot0"}
    assert shared_memory_faults(lg.to_onnx(written.outputs()), pairs) == {}
    y = lg.cond(_flag(x), lambda: lg.reduce_sum(old), lambda: lg.reduce_sum(x))
    fault = shared_memory_faults(lg.to_onnx({"y": y, **written.outputs()}), pairs)["past.0.slot0"]
    assert "reads past.0.slot0 and may run after the write" in fault


# --- shapes ---


def test_sizes_in_which_branches_differ_are_known_at_run_time_only() -> None:
    x = _x("n", 4)
    p = _flag(x)
    y = lg.cond(p, lambda: x, lambda: x[:2])
    assert y.shape[1] == 4
    assert str(y.shape[0]) not in ("n", "2")
    z = y + y
    for flag, rows in ((True, 3), (False, 2)):
        assert lg.realize(z, {"x": np.ones((3, 4), np.float32), "p": flag}).shape == (rows, 4)


# --- refusals, each with its line ---


def _refused(error: type[lg.LazyGraphError], message: str, make: Callable[[], object]) -> lg.LazyGraphError:
    with pytest.raises(error, match=message) as caught:
        make()
    assert Path(__file__).name in str(caught.value.at)
    return caught.value


def test_conditions_that_are_none_are_refused() -> None:
    x = _x(2)
    _refused(lg.DTypeError, "pred", lambda: lg.cond(x, lambda: x, lambda: x))
    p = lg.input("p", lg.bool_, [2], anchor=x)
    _refused(lg.ShapeError, "pred is no scalar", lambda: lg.cond(p, lambda: x, lambda: x))


def test_branches_that_do_not_fit_each_other_are_refused() -> None:
    x = _x(2)
    p = _flag(x)
    sizes = lg.shape(x)
    caught = _refused(lg.DTypeError, "then gives float32, orelse int64", lambda: lg.cond(p, lambda: x, lambda: sizes))
    assert {"then", "orelse"} <= caught.operands.keys()
    _refused(lg.ShapeError, r"then gives \(2,\), orelse \(1, 2\)", lambda: lg.cond(p, lambda: x, lambda: x[None]))
    _refused(lg.OperandError, "then gives 2 tensors, orelse 1", lambda: lg.cond(p, lambda: (x, x), lambda: [x]))
    _refused(lg.GraphMismatchError, "two different graphs", lambda: lg.cond(p, lambda: x, lambda: _x(2)))
    wrong: list[Any] = [None, 3.0, (), [], (x, None), "xy"]
    for given_back in wrong:
        _refused(lg.OperandError, "then returns", lambda w=given_back: lg.cond(p, lambda: w, lambda: x))  # type: ignore[misc]


def test_loops_that_do_not_fit_are_refused() -> None:
    x = _x("n", 3)
    z = lg.input("z", F32, [3], anchor=x)
    m = lg.input("m", F32, ["m", 3], anchor=x)
    _refused(lg.OperandError, "nothing to go over", lambda: lg.scan(lambda c: ([c], []), [z], []))
    _refused(lg.ShapeError, "sizes to go along differ: n and m", lambda: lg.scan(lambda a, b: ([], [a]), [], [x, m]))
    one = lg.input("one", F32, [], anchor=x)
    _refused(lg.ShapeError, "no axis to go along", lambda: lg.scan(lambda a: ([], [a]), [], [one]))
    _refused(lg.OperandError, "2 next states for 1", lambda: lg.scan(lambda c, v: ([c, c], []), [z], [x]))
    _refused(lg.OperandError, "gives nothing", lambda: lg.scan(lambda v: ([], []), [], [x]))
    _refused(lg.DTypeError, "changes its element type", lambda: lg.scan(lambda c, v: ([c > 0], []), [z], [x]))
    _refused(lg.ShapeError, "changes its shape", lambda: lg.scan(lambda c, v: ([c[:2]], []), [z], [x]))
    _refused(lg.ShapeError, "changes its shape", lambda: lg.scan(lambda c, v: ([c[None]], []), [z], [x]))
    other = _x(3)
    _refused(lg.GraphMismatchError, "two different graphs", lambda: lg.scan(lambda v: ([], [other]), [], [x]))
    _refused(lg.GraphMismatchError, "two different graphs", lambda: lg.scan(lambda c, v: ([other], []), [z], [x]))
    wrong: list[Any] = [None, x, ([], [None]), ([],), ([], [], []), [z], (z, [z])]
    for given_back in wrong:
        _refused(lg.OperandError, "body returns", lambda w=given_back: lg.scan(lambda v: w, [], [x]))  # type: ignore[misc]


@pytest.mark.parametrize("step", [lambda v: v, lambda v: v * 2.0, lambda v: lg.exp(v * 2.0)])
def test_what_leaks_out_of_a_loop_is_refused_where_it_was_made(step: Callable[[lg.Tensor], lg.Tensor]) -> None:
    x = _x("n", 3)
    leaked: list[lg.Tensor] = []

    def body(v: lg.Tensor) -> tuple[list[Any], list[Any]]:
        leaked.append(step(v))
        return [], [leaked[0]]

    _, (y,) = lg.scan(body, [], [x])
    uses: list[Any] = [leaked[0], {"y": y, "leaked": leaked[0]}, {"y": y + leaked[0]}, {"z": leaked[0] + x[0]}]
    for outputs in uses:
        _refused(lg.OperandError, "used outside it", lambda o=outputs: lg.to_onnx(o))  # type: ignore[misc]
        asked = list(outputs.values()) if isinstance(outputs, dict) else outputs
        with pytest.raises(lg.OperandError, match="used outside it"):
            lg.realize(asked, {"x": np.ones((2, 3), np.float32)})
    assert lg.realize(y, {"x": np.zeros((2, 3), np.float32)}).shape == (2, 3)  # the loop itself is fine


def test_what_leaks_from_one_loop_into_another_is_refused() -> None:
    x = _x("n", 3)
    leaked: list[lg.Tensor] = []

    def first(v: lg.Tensor) -> tuple[list[Any], list[Any]]:
        leaked.append(v + 1.0)
        return [], [v]

    lg.scan(first, [], [x])
    _, (y,) = lg.scan(lambda v: ([], [v + leaked[0]]), [], [x])
    _refused(lg.OperandError, "used outside it", lambda: lg.to_onnx(y))


def test_programs_nested_deeper_than_a_file_can_be_are_refused() -> None:
    x = _x(3)
    p = _flag(x)

    def nested(levels: int) -> lg.Tensor:
        return lg.cond(p, lambda: nested(levels - 1) + 1.0 if levels > 1 else x + 1.0, lambda: x)

    assert lg.realize(nested(30), {"x": np.zeros(3, np.float32), "p": True}).tolist() == [30.0] * 3
    _refused(lg.UnsupportedError, "nested 31 deep", lambda: lg.to_onnx(nested(31)))


def test_a_failure_within_a_branch_is_told_on_the_users_line() -> None:
    x = _x("n")
    i = lg.input("i", lg.int64, [], anchor=x)
    y = lg.cond(_flag(x), lambda: lg.gather(x, i), lambda: lg.reduce_sum(x))
    with pytest.raises(lg.ExportError) as caught:
        lg.realize(y, {"x": np.ones(2, np.float32), "i": 5, "p": True})
    assert Path(__file__).name in str(caught.value.at)


# --- size ---


def test_large_programs_with_many_parts_stay_fast() -> None:
    x = _x(4)
    p = _flag(x)
    y, parts = x, 400
    for _ in range(parts):
        for _ in range(10):
            y = y * 0.5 + 0.125
        branch = lg.cond(p, lambda y=y: lg.tanh(y) + 1.0, lambda y=y: y - 1.0)  # type: ignore[misc]
        y = branch
    began = time.process_time()
    model = lg.to_onnx(y)
    spent = time.process_time() - began
    assert sum(len(graph.node) for graph in _graphs(model.graph)) == parts * (20 + 1 + 3)
    assert spent < 10  # some ten thousand nodes


def test_a_loop_with_a_large_body_stays_fast() -> None:
    x = _x("n", 4)
    states = [x.const(np.full(4, k, np.float32)) for k in range(100)]

    def body(*given_: lg.Tensor) -> tuple[list[lg.Tensor], list[lg.Tensor]]:
        *carried, v = given_
        return [lg.tanh((c + v) * 0.5) * 0.25 + c * 0.5 for c in carried], []

    last, _ = lg.scan(body, states, [x])
    began = time.process_time()
    model = lg.to_onnx({f"y{k}": y for k, y in enumerate(last)})
    assert time.process_time() - began < 10
    assert len(_body(model.graph, "body").node) == 600
