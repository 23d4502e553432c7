"""Edits of a loaded model give another model that onnxruntime runs; the one before is as it was."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from onnx import parser

import lazygraph as lg
from lazygraph.export import open_session

Array = np.ndarray[Any, Any]
RNG = np.random.default_rng(5)
W1, W2 = RNG.normal(size=(4, 200)).astype(np.float32), RNG.normal(size=(200, 3)).astype(np.float32)
B1 = RNG.normal(size=200).astype(np.float32)
X = RNG.normal(size=(5, 4)).astype(np.float32)


def hidden(x: Array) -> Array:
    h: Array = x @ W1 + B1
    return np.asarray(h / (1 + np.exp(-h)), np.float32)


@pytest.fixture
def model(tmp_path: Path) -> lg.Loaded:
    """``y = silu(x @ w1 + b1) @ w2`` with the activation spelt out, from a file."""
    x = lg.input("x", lg.float32, ["batch", 4])
    h = x @ x.const(W1, "w1") + x.const(B1, "b1")
    y = (h * lg.sigmoid(h)) @ x.const(W2, "w2")
    lg.save({"y": y, "x2": x * 2.0}, tmp_path / "m.onnx")
    return lg.load(tmp_path / "m.onnx")


def run(model: lg.Loaded, **feeds: Array) -> dict[str, Array]:
    session = open_session(lg.to_onnx(model.outputs, target="cpu"))
    return dict(zip(model.outputs, session.run(None, feeds), strict=True))


def ops(model: lg.Loaded) -> list[str]:
    return [node.op_type for node in lg.to_onnx(model.outputs).graph.node]


# ---- a part of it -----------------------------------------------------------------------------------------------


def test_the_part_between_values_is_a_model(model: lg.Loaded) -> None:
    product = next(name for name, tensor in model.values.items() if str(tensor).find("from Add") > 0)
    part = model.extract([product], ["y"])
    assert list(part.inputs) == [product]
    assert list(part.outputs) == ["y"]
    assert list(part.weights) == ["w2"]
    h = (X @ W1 + B1).astype(np.float32)
    np.testing.assert_allclose(run(part, **{product: h})["y"], hidden(X) @ W2, rtol=1e-5, atol=1e-5)


def test_an_output_may_be_a_value_on_the_way_and_inputs_stay_named(model: lg.Loaded) -> None:
    name = next(name for name, tensor in model.values.items() if str(tensor).find("from Mul") > 0 and name != "x2")
    part = model.extract(["x"], [name])
    np.testing.assert_allclose(run(part, x=X)[name], hidden(X), rtol=1e-5, atol=1e-5)
    assert "w2" not in part.weights


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (lambda m: m.extract([], ["y"]), "the outputs need x too"),
        (lambda m: m.extract(["x"], ["z"]), "'z' is no value"),
        (lambda m: m.extract(["x"], []), "no output"),
    ],
)
def test_a_part_that_cannot_be_is_refused(model: lg.Loaded, wrong: Callable[[lg.Loaded], Any], says: str) -> None:
    with pytest.raises(lg.OperandError) as caught:
        wrong(model)
    assert says in str(caught.value)
    assert "test_edits.py:" in str(caught.value)


# ---- names ------------------------------------------------------------------------------------------------------


def test_everything_can_have_another_name(model: lg.Loaded) -> None:
    call = lg.to_onnx(model.outputs).graph.node[0].name
    other = model.renamed({"x": "tokens", "y": "logits", "w1": "up.weight", call: "first"})
    proto = lg.to_onnx(other.outputs)
    assert [value.name for value in proto.graph.input] == ["tokens"]
    assert [value.name for value in proto.graph.output] == ["logits", "x2"]
    assert {t.name for t in proto.graph.initializer} >= {"up.weight", "b1", "w2"}
    assert proto.graph.node[0].name == "first"
    assert other["up.weight"].shape == (4, 200)
    np.testing.assert_allclose(run(other, tokens=X)["logits"], run(model, x=X)["y"])


def test_names_may_be_exchanged(model: lg.Loaded) -> None:
    other = model.renamed({"y": "x2", "x2": "y"})
    np.testing.assert_array_equal(run(other, x=X)["y"], 2 * X)


@pytest.mark.parametrize(
    ("names", "says"),
    [({"q": "r"}, "'q' is nothing's name"), ({"x": "y"}, "'y' cannot be a name"), ({"x": "a", "y": "a"}, "two things")],
)
def test_names_that_do_not_fit_are_refused(model: lg.Loaded, names: dict[str, str], says: str) -> None:
    with pytest.raises(lg.OperandError, match=says):
        model.renamed(names)


# ---- sizes ------------------------------------------------------------------------------------------------------


def test_a_named_size_becomes_a_number_and_a_number_a_name(model: lg.Loaded) -> None:
    fixed = model.with_sizes({"batch": 5})
    assert fixed.inputs["x"].shape == (5, 4)
    assert fixed.outputs["y"].shape == (5, 3)
    np.testing.assert_allclose(run(fixed, x=X)["y"], run(model, x=X)["y"])
    loose = fixed.with_shapes({"x": ["rows", 4]})
    assert [str(size) for size in loose.outputs["y"].shape] == ["rows", "3"]
    np.testing.assert_allclose(run(loose, x=X[:2])["y"], run(model, x=X[:2])["y"])


def test_a_size_may_become_arithmetic(model: lg.Loaded) -> None:
    other = model.with_sizes({"batch": "2*pairs"})
    assert [str(size) for size in other.outputs["y"].shape] == ["2*pairs", "3"]


def test_a_number_that_the_model_holds_on_to_stays(tmp_path: Path) -> None:
    x = lg.input("x", lg.float32, [2, 6])
    lg.save({"y": lg.op.Reshape(x, x.const(np.array([4, 3])))}, tmp_path / "m.onnx")
    model = lg.load(tmp_path / "m.onnx")
    with pytest.raises(lg.ShapeError, match="Reshape"):
        model.with_shapes({"x": [3, 6]})
    with pytest.raises(lg.ShapeError, match=r"(?s)holds on to the number that is now n.*Reshape.*test_edits\.py:"):
        model.with_shapes({"x": ["n", 6]})
    (shape,) = model.weights
    loose = model.replace_weight(shape, np.array([-1, 3])).with_shapes({"x": ["n", 6]})
    assert [str(size) for size in loose.outputs["y"].shape] == ["2*n", "3"]
    assert run(loose, x=np.zeros((5, 6), np.float32))["y"].shape == (10, 3)


@pytest.mark.parametrize(
    ("wrong", "kind", "says"),
    [
        (lambda m: m.with_sizes({"batsh": 2}), lg.OperandError, "did you mean 'batch'"),
        (lambda m: m.with_sizes({"batch": -1}), lg.ShapeError, "cannot be -1"),
        (lambda m: m.with_shapes({"y": [1]}), lg.OperandError, "'y' is no input"),
        (lambda m: m.with_shapes({"x": [1]}), lg.ShapeError, "1 sizes for 2 axes"),
        (lambda m: m.with_shapes({"x": ["n", 5]}), lg.ShapeError, "inner sizes differ"),
    ],
)
def test_sizes_that_cannot_be_are_refused(
    model: lg.Loaded, wrong: Callable[[lg.Loaded], Any], kind: type[Exception], says: str
) -> None:
    with pytest.raises(kind) as caught:
        wrong(model)
    assert says in str(caught.value)


# ---- how weights are stored -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("dtype", "error"), [("float16", 1e-3), ("bfloat16", 1e-2)])
def test_weights_are_stored_small_and_computed_as_before(model: lg.Loaded, dtype: str, error: float) -> None:
    small = model.stored_as(dtype, keep=["w2"])
    stored = {t.name: t.data_type for t in lg.to_onnx(small.outputs).graph.initializer}
    assert stored["w1"] == {"float16": 10, "bfloat16": 16}[dtype]
    assert stored["w2"] == 1  # kept
    assert stored["b1"] == 1  # 800 bytes: not worth a cast
    assert small.outputs["y"].dtype is lg.float32
    np.testing.assert_allclose(run(small, x=X)["y"], run(model, x=X)["y"], atol=20 * error)
    assert not np.array_equal(run(small, x=X)["y"], run(model, x=X)["y"])


def test_weights_are_kept_by_pattern_and_by_operator() -> None:
    x = lg.input("x", lg.float32, ["n", 300])
    ones = np.ones(300, np.float32)
    y, *_ = lg.op.LayerNormalization(x, x.const(ones, "norm.scale"), x.const(ones + 1, "norm.bias"))
    model = lg.Loaded.of({"y": y * x.const(ones + 2, "gain")})

    def stored(small: lg.Loaded) -> set[str]:
        return {t.name for t in lg.to_onnx(small.outputs).graph.initializer if t.data_type == 10}

    assert stored(model.stored_as("float16")) == {"norm.scale", "norm.bias", "gain"}
    assert stored(model.stored_as("float16", keep=["norm.*"])) == {"gain"}
    assert stored(model.stored_as("float16", keep_ops=["LayerNormalization"])) == {"gain"}
    assert stored(model.stored_as("float16", keep=["*"])) == set()
    with pytest.raises(lg.OperandError, match="no 'Gemm' reads a weight"):
        model.stored_as("float16", keep_ops=["Gemm"])


def test_weights_that_are_read_late_are_narrowed_late(model: lg.Loaded, tmp_path: Path) -> None:
    lg.save(model.outputs, tmp_path / "big.onnx", external=True)
    small = lg.load(tmp_path / "big.onnx").stored_as("float16")
    lg.save(small.outputs, tmp_path / "small.onnx", external=True)
    files = {file.name.split("-")[0]: file.stat().st_size for file in tmp_path.glob("*.data")}
    assert files["small"] < 0.6 * files["big"]
    session = open_session(tmp_path / "small.onnx")
    np.testing.assert_allclose(session.run(["y"], {"x": X})[0], hidden(X) @ W2, rtol=1e-2, atol=5e-2)


def test_a_number_too_large_for_the_type_is_refused_by_name(model: lg.Loaded) -> None:
    big = model.replace_weight("w1", np.full((4, 200), 1e6, np.float32))
    with pytest.raises(lg.WeightsError, match=r"(?s)'w1' holds 1e\+06, too large for float16.*keep=\['w1'\]"):
        big.stored_as("float16")
    big.stored_as("float16", keep=["w1"])
    with pytest.raises(lg.DTypeError, match="float16 or bfloat16"):
        model.stored_as("int8")
    with pytest.raises(lg.OperandError, match="'w9' is no weight"):
        model.stored_as("float16", keep=["w9"])


# ---- patterns ---------------------------------------------------------------------------------------------------


def silu(h: lg.Tensor) -> lg.Tensor:
    return lg.sigmoid(h) * h  # the other way round than the model has it


def test_a_pattern_is_found_and_replaced(model: lg.Loaded) -> None:
    assert model.count(silu) == 1
    other = model.rewrite(silu, lambda h: lg.op.microsoft.QuickGelu(h, alpha=1.0))
    assert ops(other).count("QuickGelu") == 1
    assert "Sigmoid" not in ops(other)
    assert ops(model).count("Sigmoid") == 1  # the one before is as it was
    np.testing.assert_allclose(run(other, x=X)["y"], run(model, x=X)["y"], rtol=1e-5, atol=1e-5)


def test_several_parts_one_behind_the_other_are_all_replaced() -> None:
    x = lg.input("x", lg.float32, ["n"])
    y = x
    for _ in range(4):
        y = lg.exp(lg.neg(y))
    model = lg.load(lg.to_onnx({"y": y}))
    other = model.rewrite(lambda v: lg.exp(lg.neg(v)), lambda v: lg.reciprocal(lg.exp(v)))
    assert ops(other) == ["Exp", "Reciprocal"] * 4
    array = np.array([0.5, 1], np.float32)
    np.testing.assert_allclose(run(other, x=array)["y"], run(model, x=array)["y"], rtol=1e-5)


def test_constants_and_attributes_must_be_the_patterns() -> None:
    x = lg.input("x", lg.float32, ["n", 3])
    model = lg.load(lg.to_onnx({"a": lg.softmax(x * 2.0, axis=0), "b": lg.softmax(x * 3.0, axis=1)}))
    assert model.count(lambda v: lg.softmax(v * 2.0, axis=0)) == 1
    assert model.count(lambda v: lg.softmax(v * 3.0, axis=0)) == 0
    assert model.count(lambda v: lg.softmax(v * 3.0)) == 1  # axis -1 is axis 1 here
    assert model.count(lambda v, w: lg.softmax(v * w, axis=0)) == 1
    assert model.count(lambda v: lg.op.Softmax(v)) == 1


def test_one_parameter_in_two_places_is_one_tensor() -> None:
    x = lg.input("x", lg.float32, ["n"])
    y = lg.input("y", lg.float32, ["n"], anchor=x)
    model = lg.load(lg.to_onnx({"a": x * x, "b": x * y}))
    assert model.count(lambda v: v * v) == 1
    assert model.count(lambda v, w: v * w) == 2
    assert model.count(lambda v, w: v - w) == 0


def test_a_part_whose_middle_is_read_elsewhere_is_left_alone() -> None:
    x = lg.input("x", lg.float32, ["n"])
    middle = lg.exp(x)
    model = lg.load(lg.to_onnx({"y": lg.log(middle), "z": middle + 1.0}))
    assert model.count(lambda v: lg.log(lg.exp(v))) == 0
    assert model.count(lambda v: lg.log(v)) == 1
    given = lg.load(lg.to_onnx({"y": lg.log(middle), "middle": middle}))
    assert given.count(lambda v: lg.log(lg.exp(v))) == 0


def test_a_replacement_is_checked_like_everything() -> None:
    x = lg.input("x", lg.float32, ["n", 3])
    model = lg.load(lg.to_onnx({"y": lg.relu(x) @ x.const(np.ones((3, 2), np.float32))}))
    with pytest.raises(lg.ShapeError, match="replaced by one of another shape"):
        model.rewrite(lambda v: lg.relu(v), lambda v: lg.transpose(v[:2]))
    with pytest.raises(lg.ShapeError, match="replaced by one of another shape"):
        model.rewrite(lambda v: lg.relu(v), lambda v: v[:, :2])
    with pytest.raises(lg.DTypeError, match="float32 is replaced by float16"):
        model.rewrite(lambda v: lg.relu(v), lambda v: v.astype(lg.float16))


@pytest.mark.parametrize(
    ("pattern", "replacement", "says"),
    [
        (lambda v: v, lambda v: v, "calls operators"),
        (lambda v: cast(Any, 3), lambda v: v, "the pattern gives int"),
        (lambda v: lg.sigmoid(v), lambda v, w: w, "the replacement takes"),
        (lambda v: lg.sigmoid(v), lambda v: cast(Any, None), "the replacement gives NoneType"),
    ],
)
def test_a_pattern_that_is_none_is_refused(
    model: lg.Loaded, pattern: Callable[..., Any], replacement: Callable[..., Any], says: str
) -> None:
    with pytest.raises(lg.OperandError, match=says):
        model.rewrite(pattern, replacement)


def rms_norm(x: lg.Tensor, weight: lg.Tensor, epsilon: lg.Tensor) -> lg.Tensor:
    return x / lg.sqrt(lg.reduce_mean(x * x, -1, keepdims=True) + epsilon) * weight


@pytest.mark.parametrize("rank", [2, 3])
def test_a_pattern_may_ask_for_axes(rank: int) -> None:
    x = lg.input("x", lg.float32, [*"ab"[: rank - 1], 4])
    weight = x.const(np.arange(1, 5, dtype=np.float32), "weight")
    model = lg.Loaded.of({"y": rms_norm(x, weight, x.const(np.float32(1e-5))) + 1.0})
    assert model.count(rms_norm) == 1
    assert model.count(lambda x, w, e: x / lg.sqrt(lg.reduce_mean(x * x, 0, keepdims=True) + e) * w) == 0
    other = model.rewrite(rms_norm, lambda x, w, e: lg.op.RMSNormalization(x, w, axis=-1, epsilon=1e-5))
    assert ops(other) == ["RMSNormalization", "Add"]
    feed = RNG.normal(size=(3, 2, 4)[-rank:]).astype(np.float32)
    np.testing.assert_allclose(run(other, x=feed)["y"], run(model, x=feed)["y"], rtol=1e-5)


def test_an_axis_is_another_where_there_are_more_axes() -> None:
    x = lg.input("x", lg.float32, ["a", "b", "c"])
    y = lg.input("y", lg.float32, ["a", "b"], anchor=x)
    model = lg.load(lg.to_onnx({"p": lg.reduce_sum(x, 1), "q": lg.reduce_sum(y, 1)}))
    assert model.count(lambda v: lg.reduce_sum(v, -1)) == 1
    assert model.count(lambda v: lg.reduce_sum(v, 1)) == 2
    assert model.count(lambda v: lg.reduce_sum(v, 2)) == 0


def test_axes_of_an_older_opset_and_counted_from_the_back_are_found() -> None:
    for opset, call in ((17, "ReduceMean <axes = [-1]> (x)"), (18, "ReduceMean (x, last)")):
        text = f"""<ir_version: 8, opset_import: ["" : {opset}]>
            g (float[n, 4] x) => (float[n, 1] y) <int64[1] last = {{-1}}> {{ y = {call} }}"""
        model = lg.load(parser.parse_model(text))
        assert model.count(lambda v: lg.reduce_mean(v, 1, keepdims=True)) == 1
        assert model.count(lambda v: lg.reduce_mean(v, 0, keepdims=True)) == 0


def test_a_number_is_found_however_many_axes_of_one_it_has_and_however_it_was_rounded() -> None:
    x = lg.input("x", lg.float32, ["n", 4])
    near = np.nextafter(np.float32(np.sqrt(0.5)), np.float32(1))
    model = lg.load(lg.to_onnx({"y": x * x.const(near.reshape(1, 1)), "z": x * x.const(np.float32(0.7072))}))
    assert model.count(lambda v: v * 0.5**0.5) == 1
    wide = lg.load(lg.to_onnx({"y": x[0] * x.const(near.reshape(1, 1))}))
    assert wide.count(lambda v: v * 0.5**0.5) == 0  # that number adds an axis


def test_what_operands_stand_for_is_tried_in_every_order() -> None:
    x = lg.input("x", lg.float32, ["n"])
    y = lg.input("y", lg.float32, ["n"], anchor=x)
    for made in (x * y + y, y * x + y, y + x * y, y + y * x):
        model = lg.load(lg.to_onnx({"out": made}))
        other = model.rewrite(lambda v, w: v * w + v, lambda v, w: v * (w + 1.0))
        assert sorted(ops(other)) == ["Add", "Mul"]
        a, b = np.array([2, 3], np.float32), np.array([5, 7], np.float32)
        assert run(other, x=a, y=b)["out"].tolist() == [15, 28]


def test_a_parameter_has_the_type_that_is_said_of_it() -> None:
    ids = lg.input("ids", lg.int64, ["n"])
    table = ids.const(np.ones((5, 3), np.float32), "table")
    model = lg.load(lg.to_onnx({"y": lg.gather(table, ids) * 2.0}))

    def embed(table: lg.Tensor, ids: lg.Tensor) -> lg.Tensor:
        return lg.gather(table, ids) * 2.0

    assert model.count(embed, {"ids": lg.int64}) == 1
    assert model.count(embed, {"ids": lg.int32}) == 0
    assert model.count(embed, {"ids": lg.int64, "table": (lg.float32, ["rows", 3])}) == 1
    assert model.count(embed, {"ids": lg.int64, "table": (lg.float32, ["rows", 4])}) == 0
    with pytest.raises(lg.OperandError, match="did you mean 'ids'"):
        model.count(embed, {"idx": lg.int64})
    with pytest.raises(lg.DTypeError, match="indices is float32"):
        model.count(embed)


def test_a_part_inside_a_branch_is_replaced() -> None:
    x = lg.input("x", lg.float32, ["n"])
    flag = lg.input("flag", lg.bool_, [], anchor=x)
    model = lg.load(lg.to_onnx({"y": lg.cond(flag, lambda: lg.exp(lg.neg(x)), lambda: x)}))
    other = model.rewrite(lambda v: lg.exp(lg.neg(v)), lambda v: lg.reciprocal(lg.exp(v)))
    (branch,) = [a.g for a in lg.to_onnx(other.outputs).graph.node[0].attribute if a.name == "then_branch"]
    assert [node.op_type for node in branch.node] == ["Exp", "Reciprocal"]
    found = run(other, x=np.array([1], np.float32), flag=np.array(True))["y"]
    np.testing.assert_allclose(found, np.exp([-1.0]), rtol=1e-6)


# ---- graphs of this program -----------------------------------------------------------------------------------------


def test_a_graph_that_was_just_built_is_edited_in_the_same_way() -> None:
    x = lg.input("x", lg.float32, ["batch", 4])
    h = x @ x.const(W1, "w1") + x.const(B1, "b1")
    built = lg.Loaded.of({"y": (h * lg.sigmoid(h)) @ x.const(W2, "w2")}, values={"h": h})
    want = (hidden(X) @ W2).astype(np.float32)
    part = built.extract(["h"], ["y"])
    np.testing.assert_allclose(run(part, h=(X @ W1 + B1).astype(np.float32))["y"], want, rtol=1e-4, atol=1e-4)
    assert list(built.weights) == ["w1", "b1", "w2"]
    assert built.with_sizes({"batch": 2}).outputs["y"].shape == (2, 3)
    assert built.renamed({"x": "rows"}).inputs["rows"].dtype is lg.float32
    small = built.stored_as("bfloat16")
    assert {t.data_type for t in lg.to_onnx(small.outputs).graph.initializer} == {1, 16}
    assert built.count(silu) == 1
    other = built.rewrite(silu, lambda v: lg.op.microsoft.QuickGelu(v, alpha=1.0))
    np.testing.assert_allclose(run(other, x=X)["y"], want, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(run(built, x=X)["y"], want, rtol=1e-4, atol=1e-4)
