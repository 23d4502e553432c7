"""The user's lines in saved files: written when asked for, kept by other tools, read by all that shows a file."""

from __future__ import annotations

import inspect
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper, inliner, version_converter

import lazygraph as lg
from lazygraph.errors import ExportError
from lazygraph.export.checking import check_file, check_model
from lazygraph.export.comparing import compare_models
from lazygraph.export.outline import outline_of_file
from lazygraph.export.session import Session, open_session
from lazygraph.export.source_lines import KEY, FileLines
from lazygraph.testing import assert_matches

F = onnx.TensorProto.FLOAT
HERE = "tests/export/test_source_lines.py"


def line() -> int:
    """The line that calls this."""
    frame = inspect.currentframe()
    assert frame is not None and frame.f_back is not None
    return frame.f_back.f_lineno


def told(model: onnx.ModelProto) -> dict[str, str]:
    """By call, its line as a text, as the model itself tells it."""
    return {name: str(at) for name, (_, at) in FileLines.of_model(model).by_name(model.graph).items()}


def text(model: onnx.ModelProto) -> dict[str, dict[str, dict[str, int]]]:
    """The text of the lines in a model."""
    (found,) = [entry.value for entry in model.metadata_props if entry.key == KEY]
    read: dict[str, dict[str, dict[str, int]]] = json.loads(found)
    return read


BODY = line() + 5


@lg.function
def square_plus_one(x: lg.Tensor) -> lg.Tensor:
    y = x * x
    return y + 1.0


PROGRAM = """import sys, numpy as np, lazygraph as lg
{comment}
x = lg.input("x", lg.float32, ["n", 4])
with lg.scope("layer.0"):
    y = lg.relu(x @ x.const(np.ones((4, 4), np.float32), "w"))
lg.save({{"y": y}}, sys.argv[1], source_lines=len(sys.argv) > 2)
"""


def saved(folder: Path, comment: str, *options: str) -> bytes:
    """The file that a program writes which stands in ``tools/make.py`` below the current folder."""
    (folder / "tools").mkdir(exist_ok=True)
    (folder / "tools" / "make.py").write_text(PROGRAM.format(comment=comment))
    command = [sys.executable, "tools/make.py", "made.onnx", *options]
    where = {"PYTHONPATH": str(Path(lg.__file__).parents[1]), "PATH": ""}
    subprocess.run(command, cwd=folder, check=True, timeout=120, env=where)
    return (folder / "made.onnx").read_bytes()


def test_lines_are_written_when_asked_for_and_no_path_of_the_machine(tmp_path: Path) -> None:
    plain, moved = saved(tmp_path, ""), saved(tmp_path, "\n# a comment\n")
    assert plain == moved
    assert KEY.encode() not in plain

    with_lines = saved(tmp_path, "", "lines")
    model = onnx.load_from_string(with_lines)
    assert text(model) == {"tools/make.py": {"layer.0": {"matmul_0": 5, "relu_1": 5}}}
    assert str(tmp_path).encode() not in with_lines
    assert model.ir_version == onnx.load_from_string(plain).ir_version
    del model.metadata_props[:]
    assert model.SerializeToString(deterministic=True) == plain


def test_bodies_and_functions_have_their_own_lines() -> None:
    x = lg.input("x", lg.float32, ["n"])
    here = line()
    (chosen,) = lg.op.If(
        lg.reduce_sum(x) > 0,
        then_branch=lambda: x * 2.0,
        else_branch=lambda: lg.exp(x),
    )
    y = square_plus_one(chosen)
    model = lg.to_onnx({"y": y}, source_lines=True)
    by_op = {op: str(at) for op, at in FileLines.of_model(model).by_name(model.graph).values()}
    assert by_op["Mul"] == f"{HERE}:{here + 3}"
    assert by_op["Exp"] == f"{HERE}:{here + 4}"
    assert by_op["square_plus_one"] == f"{HERE}:{here + 6}"

    (function,) = model.functions
    inside = text(model)[HERE][f"{function.domain}::{function.name}"]
    calls = {node.name: node.op_type for node in function.node}
    assert {calls[name]: at for name, at in inside.items()} == {"Mul": BODY, "Add": BODY + 1}


def test_a_loaded_file_keeps_its_lines_and_new_calls_have_theirs() -> None:
    x = lg.input("x", lg.float32, ["n"])
    y, made = square_plus_one(lg.exp(x)), line()
    again = lg.load(lg.to_onnx({"y": y}, source_lines=True))
    kept = lg.to_onnx(again.outputs)
    ops = {op: str(at) for op, at in FileLines.of_model(kept).by_name(kept.graph).values()}
    assert ops["Exp"] == f"{HERE}:{made}"
    assert (ops["Mul"], ops["Add"]) == (f"{HERE}:{BODY}", f"{HERE}:{BODY + 1}")

    more, new = {"y": lg.relu(again.outputs["y"])}, line()
    assert "Relu" not in {op for op, _ in FileLines.of_model(lg.to_onnx(more)).by_name(lg.to_onnx(more).graph).values()}
    both = lg.to_onnx(more, source_lines=True)
    ops = {op: str(at) for op, at in FileLines.of_model(both).by_name(both.graph).values()}
    assert (ops["Exp"], ops["Relu"]) == (f"{HERE}:{made}", f"{HERE}:{new}")
    assert KEY not in {entry.key for entry in lg.to_onnx(lg.load(lg.to_onnx({"y": y})).outputs).metadata_props}


def test_an_edit_keeps_the_lines_of_what_it_builds_again() -> None:
    x = lg.input("x", lg.float32, ["n", 2])
    made = line() + 1
    y = lg.exp(x)
    loaded = lg.load(lg.to_onnx({"y": y}, source_lines=True)).with_sizes({"n": 3})
    assert set(told(lg.to_onnx(loaded.outputs)).values()) == {f"{HERE}:{made}"}


def dense() -> tuple[onnx.ModelProto, int]:
    x = lg.input("x", lg.float32, ["n", 4])
    made = line() + 1
    y = lg.relu(x @ x.const(np.ones((4, 4), np.float32), "w") + x.const(np.ones(4, np.float32), "b"))
    return lg.to_onnx({"y": y + 0.0 * x}, source_lines=True), made


def test_what_onnxruntime_onnx_and_onnxscript_leave_of_the_graph_still_has_its_lines(tmp_path: Path) -> None:
    model, made = dense()
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    options.optimized_model_filepath = str(tmp_path / "optimised.onnx")
    onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    optimised = onnx.load(tmp_path / "optimised.onnx")
    fused = [node for node in optimised.graph.node if node.op_type in ("Gemm", "FusedGemm")]
    assert fused  # it did optimise
    lines = FileLines.of_model(optimised)
    assert {str(lines.of(node)) for node in fused} == {f"{HERE}:{made}"}

    converted = version_converter.convert_version(model, 21)
    assert f"{HERE}:{made}" in told(converted).values()
    optimizer = pytest.importorskip("onnxscript.optimizer")
    assert f"{HERE}:{made}" in told(optimizer.optimize(model)).values()


def test_inlined_functions_are_known_by_what_the_model_says_of_their_calls() -> None:
    x = lg.input("x", lg.float32, ["n"])
    made = line() + 1
    y = lg.relu(lg.exp(square_plus_one(x)))
    inlined = inliner.inline_local_functions(lg.to_onnx({"y": y}, source_lines=True))
    by_op = {op: str(at) for op, at in FileLines.of_model(inlined).by_name(inlined.graph).values()}
    assert by_op == {"Exp": f"{HERE}:{made}", "Relu": f"{HERE}:{made}"}  # and none for what was in the function


def from_torch() -> onnx.ModelProto:
    """A model with what torch's exporter writes beside its nodes."""
    node = helper.make_node("MatMul", ["x", "w"], ["h"], name="node_linear")
    trace = (
        'File "/home/me/train.py", line 96, in forward\n    return self.net(x)\n'
        '  File "/opt/lib/python3.12/site-packages/torch/nn/container.py", line 250, in forward\n    input = m(x)'
    )
    for key, value in (
        ("pkg.torch.onnx.stack_trace", trace),
        ("pkg.torch.onnx.name_scopes", "['', 'net', 'net.0', 'linear']"),
    ):
        node.metadata_props.add(key=key, value=value)
    last = helper.make_node("Relu", ["h"], ["y"], name="node_relu")
    last.metadata_props.add(key="namespace", value=": __main__.M/net: a.Seq/net.1: a.ReLU/relu: aten.relu.default")
    weight = onnx.numpy_helper.from_array(np.ones((4, 4), np.float32), "w")
    x, y = (helper.make_tensor_value_info(name, F, ["n", 4]) for name in "xy")
    graph = helper.make_graph([node, last], "main_graph", [x], [y], [weight])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)


def test_torchs_lines_and_modules_are_read(tmp_path: Path) -> None:
    onnx.save(from_torch(), tmp_path / "torch.onnx")
    calls = {call.op: call for call in outline_of_file(tmp_path / "torch.onnx").calls}
    assert calls["MatMul"].line == "/home/me/train.py:96"
    assert calls["MatMul"].scope == ("net", "0")
    assert calls["Relu"].scope == ("net", "1")
    assert calls["Relu"].line == ""
    again = lg.to_onnx(lg.load(tmp_path / "torch.onnx").outputs, source_lines=True)
    assert list(text(again)) == ["train.py"]


@settings(max_examples=200)
@given(st.text() | st.recursive(st.integers() | st.text(), lambda x: st.dictionaries(st.text(), x)).map(json.dumps))
def test_a_damaged_text_tells_nothing_and_breaks_nothing(damaged: str) -> None:
    FileLines({KEY: damaged}).told()
    model = from_torch()
    model.metadata_props.add(key=KEY, value=damaged)
    assert lg.load(model).outputs


def test_findings_and_changes_name_the_line() -> None:
    x = lg.input("x", lg.float32, ["n"])
    y, made = lg.exp(x), line()
    model = lg.to_onnx({"y": lg.relu(y), "other": y * 2.0}, source_lines=True)
    del model.graph.output[1]
    (finding,) = check_model(model).findings
    assert (finding.rule, str(finding.at)) == ("node-unused", f"{HERE}:{made + 1}")

    z, new = lg.relu(lg.exp(x) + x), line()
    before = lg.to_onnx({"y": lg.relu(y)}, source_lines=True)
    after = lg.to_onnx({"y": z}, source_lines=True)
    changes = compare_models(before, after)
    assert {change.line for change in changes if change.how == "added"} == {f"{HERE}:{new}"}
    assert not [change for change in changes if change.what == "metadata"]  # that lines moved is no change


def test_a_file_that_departs_names_the_line_of_the_first_node(tmp_path: Path) -> None:
    x = lg.input("x", lg.float32, [4])
    wrong, made = lg.exp(x), line()
    lg.save({"y": lg.relu(wrong)}, tmp_path / "wrong.onnx", source_lines=True)
    with pytest.raises(AssertionError, match=f"made at    : {HERE}:{made + 1}\n"):
        assert_matches(
            tmp_path / "wrong.onnx",
            lambda x: np.maximum(np.cos(x), 0),
            {"x": np.array([0, 1, 2, 3], np.float32)},
        )


def test_a_run_of_a_file_that_fails_names_the_line(tmp_path: Path) -> None:
    x = lg.input("x", lg.float32, ["n"])
    y, made = lg.op.Reshape(x, x.const(np.array([2, 3]))), line()
    lg.save({"y": y}, tmp_path / "model.onnx", source_lines=True)
    session = Session(open_session(tmp_path / "model.onnx"))
    with pytest.raises(ExportError, match="onnxruntime failed") as caught:
        session.run({"x": np.zeros(5, np.float32)})
    assert str(caught.value.at) == f"{HERE}:{made}"


def test_a_file_that_cannot_be_opened_names_the_line(tmp_path: Path) -> None:
    x = lg.input("x", lg.float32, ["n"])
    y, made = lg.exp(x), line()
    model = lg.to_onnx({"y": y}, source_lines=True)
    model.graph.node[0].op_type = "Exq"
    onnx.save(model, tmp_path / "model.onnx")
    with pytest.raises(ExportError, match="onnxruntime failed") as caught:
        open_session(tmp_path / "model.onnx")
    assert str(caught.value.at) == f"{HERE}:{made}"


def test_a_rule_that_a_loaded_file_breaks_is_told_with_its_line(tmp_path: Path) -> None:
    x = lg.input("x", lg.float32, [4])
    y, made = lg.exp(x), line()
    lg.save({"y": y}, tmp_path / "model.onnx", source_lines=True)
    (call,) = outline_of_file(tmp_path / "model.onnx").calls
    assert call.line == f"{HERE}:{made}"
    assert check_file(tmp_path / "model.onnx").findings == ()


def test_models_of_one_folder_have_their_lines_too(tmp_path: Path) -> None:
    x = lg.input("x", lg.float32, ["n"])
    y, made = lg.exp(x), line()
    lg.save_all({"a.onnx": {"y": y}, "b.onnx": {"y": lg.relu(y)}}, tmp_path, source_lines=True)
    for name in ("a.onnx", "b.onnx"):
        assert f"{HERE}:{made}" in told(onnx.load(tmp_path / name)).values()
