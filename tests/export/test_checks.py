"""The second opinion at export: it agrees with right graphs, and it can fail."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, checker, helper, shape_inference

import lazygraph as lg
from lazygraph.export import open_session, to_onnx
from lazygraph.export.checks import FAULTS

F32 = lg.float32


def emit(
    op: str, inputs: Sequence[lg.Tensor], results: list[tuple[Any, Any]], domain: str = "", **attrs: Any
) -> lg.Tensor:
    return inputs[0].graph.emit(op, tuple(inputs), attrs, results, domain)[0]


@pytest.mark.parametrize(
    ("results", "what"),
    [
        ([(F32, (2, 5))], "axis 1 has 5 by lazygraph, 3 by onnx"),
        ([(F32, (2, 3, 1))], "3 axes by lazygraph, 2 by onnx"),
        ([(lg.float64, (2, 3))], "Y cannot be|another type than|float64"),
    ],
    ids=["size", "rank", "type"],
)
@pytest.mark.parametrize("last", [True, False], ids=["output", "intermediate"])
def test_a_wrong_answer_of_ours_is_found_and_both_answers_are_shown(
    results: list[tuple[Any, Any]], what: str, last: bool
) -> None:
    x = lg.input("x", F32, [2, 4])
    y = emit("MatMul", [x, x.const(np.ones((4, 3), np.float32), "w")], results)
    with pytest.raises(lg.ExportError, match=what) as caught:
        to_onnx(y if last else emit("Shape", [y], [(lg.int64, (2,))]))
    assert caught.value.op == "matmul"
    assert "test_checks.py:" in str(caught.value)


def test_the_message_names_value_line_and_both_answers() -> None:
    x = lg.input("x", F32, ["n", 4])
    w = x.const(np.ones((4, 3), np.float32), "w")
    with lg.scope("layers.0"):
        y = emit("MatMul", [x, w], [(F32, (x.shape[0], 5))])
    with pytest.raises(lg.ExportError) as caught:
        to_onnx({"y": emit("Neg", [y], [(F32, y.shape)])})
    at = str(y.origin.at)
    assert str(caught.value).split("\n") == [
        "matmul: two answers: axis 1 has 5 by lazygraph, 3 by onnx",
        "  operand 0 : float32 (n, 4) from input 'x'",
        f"  operand 1 : float32 (4, 3) from const 'w' at {w.origin.at}",
        "  lazygraph : float32 (n, 5)",
        "  onnx      : float32 (n, 3)",
        "  value     : layers.0/matmul_0",
        "  expected  : one shape and type; one of the two rules is wrong",
        f"  at        : {at}",
    ]


def test_what_onnx_refuses_outright_is_an_error_on_the_users_line() -> None:
    x = lg.input("x", F32, [2, 4])
    y = emit("Concat", [x, lg.input("z", F32, [3, 3], anchor=x)], [(F32, (2, 7))], axis=1)
    with pytest.raises(lg.ExportError, match=r"(?s)concat: onnx refuses it: .*concat_0.*at .*test_checks\.py:\d+"):
        to_onnx(y)


def test_a_size_that_only_the_run_can_tell_is_no_disagreement() -> None:
    x = lg.input("x", F32, ["n", 4])
    y = emit("Reshape", [x, x.const(np.array([2, -1]))], [(F32, (2, lg.size("m")))])
    assert to_onnx(y).graph.output[0].type.tensor_type.shape.dim[1].dim_param == "m"


def test_nodes_behind_a_contrib_operator_are_checked_all_the_same() -> None:
    x = lg.input("x", F32, [1, 4])
    y = emit("FusedMatMul", [x, x], [(F32, (1, 1))], "com.microsoft", transB=1)
    wrong = emit("Transpose", [y], [(F32, (1, 2))])
    with pytest.raises(lg.ExportError, match="axis 1 has 2 by lazygraph, 1 by onnx"):
        to_onnx({"y": wrong})
    assert to_onnx({"y": y + 1.0, "contrib": y}).graph.output[1].name == "contrib"


def test_weights_are_not_read_for_the_check() -> None:
    def load() -> np.ndarray:
        raise AssertionError("read")

    x = lg.input("x", F32, ["n", 2**16])
    w = x.const(lg.LazyArray("float32", (2**16, 2**15), load), "w")
    from lazygraph.export.program import collect
    from lazygraph.export.saving import checked_model

    model = checked_model(collect(x @ w), "cpu")
    assert not model.graph.initializer


# ---- declared shapes ----


@pytest.mark.parametrize("shape", [["batch", 8], ("batch", 8)])
def test_a_declared_shape_that_the_graph_gives_is_written(shape: Any) -> None:
    x = lg.input("x", F32, ["batch", 8])
    dims = to_onnx({"y": (x + 1.0, shape)}).graph.output[0].type.tensor_type.shape.dim
    assert [dim.dim_param or dim.dim_value for dim in dims] == ["batch", 8]


@pytest.mark.parametrize(
    ("shape", "what"),
    [
        (["batch", 9], "axis 1 is declared as 9, and is 8"),
        (["batch"], "1 axes declared, 2 given"),
        (["other", 8], "axis 0 is declared as other, and is batch"),
        ([4, 8], "axis 0 is declared as 4, and is batch"),
        (["batch", "eight"], "axis 1 is declared as eight, and is 8"),
    ],
)
def test_a_declared_shape_that_the_graph_contradicts_is_refused(shape: list[Any], what: str) -> None:
    x = lg.input("x", F32, ["batch", 8])
    with pytest.raises(lg.ShapeError, match=f"output 'y': {what}"):
        to_onnx({"y": (x + 1.0, shape)})


def test_a_declared_shape_may_name_what_only_the_run_can_tell() -> None:
    x = lg.input("x", F32, ["n"])
    found = emit("NonZero", [x], [(lg.int64, (1, lg.dims.unknown("hits")))])
    dims = to_onnx({"y": (found, [1, "hits_at_run"])}).graph.output[0].type.tensor_type.shape.dim
    assert dims[1].dim_param == "hits_at_run"


# ---- onnx's own faults, each shown with the onnx that is installed ----


def test_every_fault_in_the_table_has_a_test_here() -> None:
    assert set(FAULTS) == {("", "STFT"), ("", "MeanVarianceNormalization")}


def test_fault_mean_variance_normalization_is_rejected_by_strict_inference() -> None:
    node = helper.make_node("MeanVarianceNormalization", ["x"], ["y"])
    value = helper.make_tensor_value_info
    shape = [1, 1, 1, 2]
    graph = helper.make_graph([node], "g", [value("x", 1, shape)], [value("y", 1, shape)])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)])
    checker.check_model(model)
    with pytest.raises(shape_inference.InferenceError):
        shape_inference.infer_shapes(model, strict_mode=True)

    x = lg.input("x", F32, shape)
    y = emit("MeanVarianceNormalization", [x], [(F32, tuple(shape))])
    result = open_session(to_onnx(y + 1.0)).run(None, {"x": np.array([1, 3], np.float32).reshape(shape)})[0]
    assert np.allclose(result.ravel(), [0, 2], atol=1e-4)


def test_fault_stft_bins_are_inferred_wrongly() -> None:
    value = helper.make_tensor_value_info
    weights = [
        helper.make_tensor("step", TensorProto.INT64, [], [4]),
        helper.make_tensor("length", TensorProto.INT64, [], [8]),
    ]
    node = helper.make_node("STFT", ["x", "step", "", "length"], ["y"])
    graph = helper.make_graph([node], "g", [value("x", 1, [1, 32, 1])], [value("y", 1, None)], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    inferred = onnx.shape_inference.infer_shapes(model, data_prop=True).graph.output[0].type.tensor_type.shape.dim
    real = open_session(model).run(None, {"x": np.ones((1, 32, 1), np.float32)})[0].shape
    assert real == (1, 7, 5, 2)
    assert [dim.dim_value for dim in inferred] != list(real)

    x = lg.input("x", F32, [1, 32, 1])
    y = x.graph.emit("STFT", (x, x.const(4), None, x.const(8)), {}, [(F32, real)])[0]
    assert open_session(to_onnx(y)).run(None, {"x": np.ones((1, 32, 1), np.float32)})[0].shape == real


def test_integers_from_a_relu_into_a_clip_are_refused_for_cpu_as_onnxruntime_cannot_join_them() -> None:
    x = lg.input("x", lg.int64, ["n"])
    raw = lg.op.Clip(lg.op.Relu(x), 0, 3)
    with pytest.raises(lg.UnsupportedError, match="clip: onnxruntime's CPUExecutionProvider cannot run it"):
        lg.to_onnx(raw, target="cpu")
    model = lg.to_onnx(raw, target=None)
    with pytest.raises(Exception, match="Unexpected data type for Clip"):  # the fault itself, should it be mended
        open_session(model, severity=4)
    floats = lg.input("f", lg.float32, ["n"], anchor=x)
    assert lg.realize(lg.clip(lg.relu(floats), 0.0, 3.0), {"f": [-1.0, 5.0]}).tolist() == [0, 3]
    assert lg.realize(lg.clip(lg.relu(x), 0, 3), {"x": [-1, 5]}).tolist() == [0, 3]
