"""What changed between two models: matched by what nodes compute, not by what they are called."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lazygraph as lg
from lazygraph.export.comparing import Change, compare_files, compare_models
from lazygraph.export.comparing.numbers import difference

RANDOM = np.random.default_rng(0)
WEIGHTS = [RANDOM.standard_normal((8, 8)).astype(np.float32) for _ in range(3)]


def network(
    extra: bool = False, alpha: float = 0.1, weights: list[np.ndarray] | None = None, size: int = 8
) -> onnx.ModelProto:
    x = lg.input("x", lg.float32, ["n", 8])
    y = x
    for i, weight in enumerate(weights or WEIGHTS):
        y = lg.leaky_relu(y @ x.const(weight, f"w{i}"), alpha=alpha)
        if extra and i == 1:
            y = -y
    return lg.to_onnx({"y": y[:, :size]}, value_info=True)


def rename(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return the model with every inner name another one."""
    made = onnx.ModelProto()
    made.CopyFrom(model)
    kept = {value.name for value in (*made.graph.input, *made.graph.output)}
    new: dict[str, str] = {}

    def name(old: str) -> str:
        return old if old in kept or not old else new.setdefault(old, f"other{len(new)}")

    for tensor in made.graph.initializer:
        tensor.name = name(tensor.name)
    for i, node in enumerate(made.graph.node):
        node.name = f"call{i}"
        given, gives = [name(x) for x in node.input], [name(x) for x in node.output]
        del node.input[:], node.output[:]
        node.input.extend(given)
        node.output.extend(gives)
    for value in made.graph.value_info:
        value.name = name(value.name)
    return made


def said(changes: list[Change]) -> list[tuple[str, str]]:
    return [(change.what, change.how) for change in changes]


def test_the_same_model_has_not_changed_whatever_its_names() -> None:
    assert compare_models(network(), network()) == []
    assert compare_models(network(), rename(network())) == []


def test_a_node_more_is_one_node_more_though_all_names_moved() -> None:
    changes = compare_models(network(), rename(network(extra=True)))
    assert said(changes) == [("node", "added"), ("node", "changed")]
    assert changes[0].text.startswith("Neg(")
    assert changes[1].text.startswith("MatMul: operand 0: ")
    back = compare_models(rename(network(extra=True)), network())
    assert sorted(said(back)) == [("node", "changed"), ("node", "removed")]


def test_an_attribute_that_changed_is_named_with_both_values() -> None:
    changes = compare_models(network(), network(alpha=0.5))
    assert said(changes) == [("node", "changed")] * 3
    assert "alpha: " in changes[0].text
    assert changes[0].text.endswith("-> 0.5")


def test_shapes_inputs_and_outputs_are_compared() -> None:
    changes = compare_models(network(), network(size=4))
    assert ("output", "changed") in said(changes)
    assert next(change.text for change in changes if change.what == "output") == "float32 [n, 8] -> float32 [n, 4]"


def test_opset_and_metadata_are_compared() -> None:
    x = lg.input("x", lg.float32, [2])
    old, new = (lg.to_onnx(lg.relu(x), opset=opset, metadata={"who": str(opset)}) for opset in (13, 17))
    found = compare_models(old, new)
    assert {change.what for change in found} == {"opset", "metadata", "ir-version"}
    assert ("13 -> 17") in [change.text for change in found]


def test_weights_are_compared_to_a_tolerance() -> None:
    moved = [WEIGHTS[0], WEIGHTS[1] + np.float32(1e-3), WEIGHTS[2]]
    (change,) = compare_models(network(), network(weights=moved))
    assert (change.what, change.how, change.name) == ("weight", "changed", "w1")
    assert change.text.startswith("64 of 64 numbers, by up to 0.001")
    assert compare_models(network(), network(weights=moved), atol=2e-3) == []


def test_weights_in_files_are_compared_where_they_lie(tmp_path: Path) -> None:
    for name, shift in (("a", 0.0), ("b", 1.0)):
        (tmp_path / name).mkdir()
        x = lg.input("x", lg.float32, ["n", 64])
        weight = np.zeros((64, 64), np.float32)
        weight[5, 7] = shift
        lg.save(x @ x.const(weight, "w"), tmp_path / name / "m.onnx", external=True)
    (change,) = compare_files(tmp_path / "a" / "m.onnx", tmp_path / "b" / "m.onnx")
    assert change.text == "1 of 4,096 numbers, by up to 1 at [5, 7]"


def test_a_change_inside_a_branch_is_a_change_of_its_node() -> None:
    def choose(value: float) -> onnx.ModelProto:
        x = lg.input("x", lg.float32, [2])
        yes = lg.input("yes", lg.bool_, [], anchor=x)
        return lg.to_onnx(lg.cond(yes, lambda: x * value, lambda: x))

    assert compare_models(choose(2.0), choose(2.0)) == []
    assert [change.what for change in compare_models(choose(2.0), choose(3.0))] != []


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.floats(width=32), min_size=1, max_size=6),
    st.integers(0, 5),
    st.floats(width=32),
    st.sampled_from([0.0, 1e-3]),
)
def test_a_difference_is_what_numpy_calls_one(values: list[float], place: int, other: float, rtol: float) -> None:
    before = np.array(values, np.float32)
    after = before.copy()
    after[place % len(values)] = other
    found = difference(before, after, rtol, 0.0)
    close = np.isclose(after.astype(np.float64), before.astype(np.float64), rtol, 0.0, equal_nan=True)
    assert (0 if found is None else found[0]) == int((~close).sum())


def test_large_integers_are_told_apart() -> None:
    before = np.array([2**60, 2**60], np.int64)
    assert difference(before, before + np.array([0, 1]), 0, 0) is not None
    assert difference(before, before.copy(), 0, 0) is None


def test_what_is_no_model_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.onnx").write_text("no model")
    with pytest.raises(lg.LoadError):
        compare_files(tmp_path / "a.onnx", tmp_path / "a.onnx")
