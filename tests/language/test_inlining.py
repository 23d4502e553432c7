"""A loaded model is built again on other tensors: sizes follow them, names stay apart, results are the model's."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from onnx import parser

import lazygraph as lg

WEIGHT = np.arange(8, dtype=np.float32).reshape(4, 2)
X = np.array([[1, -2, 3, -4], [0.5, 0, 0, 1]], np.float32)


@pytest.fixture
def scorer(tmp_path: Path) -> lg.Loaded:
    """``y = relu(x @ w)`` and how many rows there are, from a file."""
    x = lg.input("x", lg.float32, ["batch", 4])
    y = lg.relu(x @ x.const(WEIGHT, "w"))
    lg.save({"y": y, "rows": lg.size_tensor("batch", x)}, tmp_path / "scorer.onnx")
    return lg.load(tmp_path / "scorer.onnx")


def test_a_model_goes_on_where_a_tensor_ends(scorer: lg.Loaded) -> None:
    a = lg.input("a", lg.float32, ["N", 4])
    found = lg.inline(scorer, x=a * 2.0)
    assert list(found) == ["y", "rows"]
    assert [str(size) for size in found["y"].shape] == ["N", "2"]
    assert found["y"].graph is a.graph
    np.testing.assert_allclose(lg.realize(found["y"], {"a": X}), np.maximum(2 * X @ WEIGHT, 0))
    assert lg.realize(found["rows"], {"a": X}) == 2


def test_two_models_are_one(scorer: lg.Loaded, tmp_path: Path) -> None:
    h = lg.input("h", lg.float32, ["n", 2])
    lg.save({"z": h @ h.const(WEIGHT.T.copy(), "w")}, tmp_path / "second.onnx")
    x = lg.input("x", lg.float32, ["rows", 4])
    y = lg.inline(scorer, x=x)["y"]
    z = lg.inline(lg.load(tmp_path / "second.onnx"), h=y)["z"]
    model = lg.to_onnx({"z": z}, target="cpu")
    assert sorted(t.name for t in model.graph.initializer) == ["w", "w_1"]
    np.testing.assert_allclose(lg.realize(z, {"x": X}), np.maximum(X @ WEIGHT, 0) @ WEIGHT.T, rtol=1e-6)


def test_a_model_inlined_often_keeps_its_weights_once_and_every_name_apart(scorer: lg.Loaded) -> None:
    y = lg.input("x", lg.float32, ["n", 4])
    made = [lg.inline(scorer, {"x": y}, prefix=f"copy{k}/")["y"] for k in range(3)]
    model = lg.to_onnx({f"y{k}": tensor for k, tensor in enumerate(made)})
    assert len(model.graph.initializer) == 1
    names = [name for node in model.graph.node for name in node.output]
    assert len(set(names)) == len(names) == 6
    assert {node.name.split("/")[0] for node in model.graph.node} == {"copy0", "copy1", "copy2"}


def test_the_loaded_model_is_as_before(scorer: lg.Loaded) -> None:
    before = lg.to_onnx(scorer.outputs).SerializeToString()
    lg.inline(scorer, x=lg.input("a", lg.float32, [7, 4]))
    assert lg.to_onnx(scorer.outputs).SerializeToString() == before


def test_a_known_size_becomes_known_behind_it(scorer: lg.Loaded) -> None:
    found = lg.inline(scorer, x=lg.input("a", lg.float32, [7, 4]))
    assert found["y"].shape == (7, 2)


def test_a_sum_of_sizes_is_checked_by_what_the_others_tell(tmp_path: Path) -> None:
    past = lg.input("past", lg.float32, ["p", 3])
    new = lg.input("new", lg.float32, ["n", 3], anchor=past)
    mask = lg.input("mask", lg.float32, ["n + p"], anchor=past)
    lg.save({"y": lg.concat([past, new], 0) + lg.unsqueeze(mask, 1)}, tmp_path / "m.onnx")
    model = lg.load(tmp_path / "m.onnx")
    a = lg.input("a", lg.float32, [5, 3])
    b, m = lg.input("b", lg.float32, ["k", 3], anchor=a), lg.input("m", lg.float32, ["k + 5"], anchor=a)
    assert [str(size) for size in lg.inline(model, past=a, new=b, mask=m)["y"].shape] == ["k + 5", "3"]
    with pytest.raises(lg.ShapeError, match=r"axis 0 of mask is n \+ p, and 9 is given"):
        lg.inline(model, past=a, new=a, mask=lg.input("w", lg.float32, [9], anchor=a))


def test_a_body_closes_over_what_is_given(tmp_path: Path) -> None:
    x = lg.input("x", lg.float32, ["n"])
    flag = lg.input("flag", lg.bool_, [], anchor=x)
    lg.save({"y": lg.cond(flag, lambda: x + 1.0, lambda: x * 2.0)}, tmp_path / "m.onnx")
    a = lg.input("a", lg.float32, ["k"])
    y = lg.inline(lg.load(tmp_path / "m.onnx"), x=a - 1.0, flag=lg.reduce_sum(a) > 0.0)["y"]
    assert lg.realize(y, {"a": np.array([3, 4], np.float32)}).tolist() == [3, 4]
    assert lg.realize(y, {"a": np.array([-3, 1], np.float32)}).tolist() == [-8, 0]


@pytest.mark.parametrize(
    ("wrong", "kind", "says"),
    [
        (lambda m, a: lg.inline(m, y=a), lg.OperandError, "'y' is no input"),
        (lambda m, a: lg.inline(m, xx=a), lg.OperandError, "did you mean 'x'?"),
        (lambda m, a: lg.inline(m, x=a.astype(lg.float16)), lg.DTypeError, "x is float32, and float16 is given"),
        (lambda m, a: lg.inline(m, x=a[0]), lg.ShapeError, "x has 2 axes, and 1 are given"),
        (lambda m, a: lg.inline(m, x=a.T), lg.ShapeError, "axis 1 of x is 4, and N is given"),
        (lambda m, a: lg.inline(m), lg.OperandError, "no tensor is given"),
        (lambda m, a: lg.inline(m, x=cast(Any, X)), lg.OperandError, "x is ndarray"),
        (lambda m, a: lg.inline(cast(Any, "scorer.onnx"), x=a), lg.OperandError, "what lg.load(path) returns"),
    ],
)
def test_what_does_not_fit_is_refused_on_the_users_line(
    scorer: lg.Loaded, wrong: Callable[..., Any], kind: type[Exception], says: str
) -> None:
    with pytest.raises(kind) as caught:
        wrong(scorer, lg.input("a", lg.float32, ["N", 4]))
    assert says in str(caught.value)
    assert "test_inlining.py:" in str(caught.value)


def test_an_input_that_is_left_out_is_named(tmp_path: Path) -> None:
    x = lg.input("x", lg.float32, [2])
    lg.save({"s": x + lg.input("y", lg.float32, [2], anchor=x)}, tmp_path / "m.onnx")
    model = lg.load(tmp_path / "m.onnx")
    with pytest.raises(lg.OperandError, match="y is missing"):
        lg.inline(model, x=lg.input("a", lg.float32, [2]))
    a, b = lg.input("a", lg.float32, [2]), lg.input("b", lg.float32, [2])
    with pytest.raises(lg.GraphMismatchError, match="of different graphs"):
        lg.inline(model, x=a, y=b)


# ---- versions -------------------------------------------------------------------------------------------------------


def text(content: str) -> lg.Loaded:
    return lg.load(parser.parse_model(content))


def test_a_call_keeps_the_meaning_that_it_has_in_its_files_opset() -> None:
    """RoiAlign-16 measures half a pixel elsewhere, and no attribute, operand or type shows it."""
    model = text("""<ir_version: 8, opset_import: ["" : 15]>
        g (float[1, 1, 4, 4] x, float[2, 4] rois, int64[2] batch) => (float[2, 1, 2, 2] y)
        { y = RoiAlign <output_height = 2, output_width = 2, sampling_ratio = 2> (x, rois, batch) }""")
    feeds = {
        "x": np.arange(16, dtype=np.float32).reshape(1, 1, 4, 4) ** 2,
        "rois": np.array([[0, 0, 2.5, 3], [1, 0.5, 3, 3]], np.float32),
        "batch": np.zeros(2, np.int64),
    }
    x = lg.input("x", lg.float32, [1, 1, 4, 4])
    others = {name: lg.input(name, t.dtype, t.shape, anchor=x) for name, t in model.inputs.items() if name != "x"}
    y = lg.inline(model, {"x": x, **others})["y"]
    assert lg.to_onnx({"y": y}).opset_import[0].version <= 15
    np.testing.assert_array_equal(lg.realize(y, feeds), lg.realize(model.outputs["y"], feeds))


def test_a_call_that_means_the_same_in_a_newer_opset_goes_along() -> None:
    model = text("""<ir_version: 8, opset_import: ["" : 13]>
        g (float[n] x) => (float[n] y) { h = Relu (x)  y = Identity (h) }""")
    y = lg.op.Gelu(lg.inline(model, x=lg.input("a", lg.float32, ["n"]))["y"])
    assert lg.to_onnx({"y": y}).opset_import[0].version == 20


def test_signatures_that_no_opset_has_together_are_refused_with_the_way_out() -> None:
    content = """<ir_version: 8, opset_import: ["" : 17]>
        g (float[n, 4] x) => (float[n, 1] y) { y = ReduceMean <axes = [1]> (x) }"""
    a = lg.input("a", lg.float32, ["n", 4])
    y = lg.op.Gelu(lg.inline(text(content), x=a)["y"])
    with pytest.raises(lg.UnsupportedError, match=r"(?s)opset 17 or earlier.*needs 20.*lg\.load\(path, opset="):
        lg.to_onnx({"y": y})
    newer = lg.load(parser.parse_model(content), opset=20)
    y = lg.op.Gelu(lg.inline(newer, x=a)["y"])
    assert lg.realize(y, {"a": np.full((1, 4), 30, np.float32)}).tolist() == [[30]]


def test_an_opset_before_13_is_converted_first() -> None:
    """Softmax-11 flattens its operand; an inlined call must not become Softmax-13, which does not."""
    content = """<ir_version: 6, opset_import: ["" : 11]>
        g (float[2, 3, 4] x) => (float[2, 3, 4] y) { y = Softmax (x) }"""
    old = text(content)
    a = lg.input("a", lg.float32, [2, 3, 4])
    with pytest.raises(lg.UnsupportedError, match=r"(?s)opset 11.*lg\.load\(path, opset=13\)"):
        lg.inline(old, x=a)
    x = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    y = lg.inline(lg.load(parser.parse_model(content), opset=13), x=a)["y"]
    np.testing.assert_allclose(lg.realize(y, {"a": x}), lg.realize(old.outputs["y"], {"x": x}), rtol=1e-6)


def test_an_unknown_domain_keeps_its_version_and_cannot_have_two() -> None:
    def wide(version: int) -> lg.Loaded:
        return text(f"""<ir_version: 8, opset_import: ["" : 17, "acme.ops" : {version}]>
            g (float[n, 4] x) => (float[n, 4] y) {{ y = acme.ops.Widen (x) }}""")

    a = lg.input("a", lg.float32, ["n", 4])
    y = lg.inline(wide(3), x=a)["y"]
    imported = {entry.domain: entry.version for entry in lg.to_onnx({"y": y}, target=None).opset_import}
    assert imported["acme.ops"] == 3
    both = {"y": y, "z": lg.inline(wide(2), x=a)["y"]}
    with pytest.raises(lg.UnsupportedError, match="opset 2 or earlier, and the graph needs 3"):
        lg.to_onnx(both, target=None)


# ---- sizes that no tensor tells -------------------------------------------------------------------------------------


def test_sizes_that_only_the_run_can_tell_stay_apart() -> None:
    model = text("""<ir_version: 8, opset_import: ["" : 17]>
        g (float[n] x) => (float[k] y) { keep = Cast <to = 9> (x)  y = Compress (x, keep) }""")
    a = lg.input("a", lg.float32, ["n"])
    b = lg.input("b", lg.float32, ["m"], anchor=a)
    first, second = lg.inline(model, x=a)["y"], lg.inline(model, x=b)["y"]
    assert first.shape != second.shape
    joined = lg.concat([first, second], 0)
    found = lg.realize(joined, {"a": np.array([0, 1, 2], np.float32), "b": np.array([3, 0], np.float32)})
    assert found.tolist() == [1, 2, 3]


def test_sizes_that_the_file_took_for_equal_cannot_become_different_ones() -> None:
    model = text("""<ir_version: 8, opset_import: ["" : 17]>
        g (float[N, 4] x, float[M, 4] z) => (float[N, 4] y) { y = Add (x, z) }""")
    assert model.equal_sizes == [("M", "N")]
    a = lg.input("a", lg.float32, [3, 4])
    with pytest.raises(lg.ShapeError, match=r"(?s)sizes 3 and 2 meet.*test_inlining\.py:"):
        lg.inline(model, x=a, z=lg.input("b", lg.float32, [2, 4], anchor=a))
    with pytest.raises(lg.ShapeError, match="sizes 3 and 2 meet"):
        model.with_sizes({"N": 3, "M": 2})
    assert model.with_sizes({"N": 3}).outputs["y"].shape == (3, 4)


def test_a_call_that_loading_passed_over_is_passed_over_again() -> None:
    """A branch that does not fit is one that is never taken: sizes elsewhere are no reason to refuse it now."""
    model = text("""<ir_version: 8, opset_import: ["" : 17]>
        g (float[n, 4] x, bool[] flag) => (float[n, 4] y) {
          y = If (flag) <
            then_branch = a () => (float[p, 4] t) { t = Relu (x) },
            else_branch = b () => (float[q, 4] e)
            <int64[1] axes = {5}> { h = Squeeze (x, axes)  e = Identity (h) }>
        }""")
    assert model.notes
    a = lg.input("a", lg.float32, ["k", 4])
    y = lg.inline(model, x=a, flag=lg.input("flag", lg.bool_, [], anchor=a))["y"]
    assert [node.op_type for node in lg.to_onnx({"y": y}, target=None).graph.node] == ["If"]


# ---- graphs of this program -----------------------------------------------------------------------------------------


def test_outputs_that_were_built_here_are_inlined_like_a_file() -> None:
    x = lg.input("x", lg.float32, [lg.size("rows", min=1, max=8), 4])
    model = lg.Loaded.of({"y": lg.relu(x @ x.const(WEIGHT, "w"))})
    assert list(model.inputs) == ["x"]
    assert list(model.values) == ["x", "w", "y"]
    a = lg.input("a", lg.float32, [2, 4])
    y = lg.inline(model, x=a)["y"]
    assert y.shape == (2, 2)
    np.testing.assert_array_equal(lg.realize(y, {"a": X}), np.maximum(X @ WEIGHT, 0))
    assert [t.name for t in lg.to_onnx({"z": y}).graph.initializer] == ["w"]


def test_bounds_of_a_size_hold_where_the_model_is_inlined() -> None:
    x = lg.input("x", lg.float32, [lg.size("rows", min=1, max=8), 4])
    model = lg.Loaded.of({"y": lg.relu(x)})
    with pytest.raises(lg.ShapeError, match=r"axis 0 of x is rows within \[1, 8\], and 9 is given"):
        lg.inline(model, x=lg.input("a", lg.float32, [9, 4]))
    with pytest.raises(lg.ShapeError, match=r"and n is given"):
        lg.inline(model, x=lg.input("a", lg.float32, ["n", 4]))
    within = lg.input("a", lg.float32, [lg.size("n", min=2, max=8), 4])
    assert [str(size) for size in lg.inline(model, x=within)["y"].shape] == ["n", "4"]


def test_outputs_that_are_none_or_of_two_graphs_are_no_model() -> None:
    x, y = lg.input("x", lg.float32, [2]), lg.input("y", lg.float32, [2])
    with pytest.raises(lg.OperandError, match="are no outputs"):
        lg.Loaded.of({})
    with pytest.raises(lg.OperandError, match="are no outputs"):
        lg.Loaded.of({"y": cast(Any, X)})
    with pytest.raises(lg.GraphMismatchError, match="two different graphs"):
        lg.Loaded.of({"x": x, "y": y})
