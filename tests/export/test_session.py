"""Opening models: typed errors, the user's line, and nothing imported before it is needed."""

from __future__ import annotations

import builtins
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

import lazygraph as lg
from lazygraph.export import Session, kernels, open_session, save, targets, to_onnx
from lazygraph.export.session import run_bound, traced
from lazygraph.where import Where

F32 = lg.float32


def test_importing_lazygraph_export_loads_neither_onnx_nor_onnxruntime() -> None:
    code = (
        "import sys, lazygraph, lazygraph.export, lazygraph.evaluate\n"
        "print([m for m in ('onnx', 'onnxruntime', 'ml_dtypes') if m in sys.modules])"
    )
    root = Path(lg.__file__).parents[1]
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=root)
    assert done.stdout.strip() == "[]"


def test_a_model_opens_from_a_path_from_bytes_and_from_memory(tmp_path: Path) -> None:
    x = lg.input("x", F32, ["n"])
    model = save(x + 1.0, tmp_path / "m.onnx")
    for source in (tmp_path / "m.onnx", str(tmp_path / "m.onnx"), model, model.SerializeToString()):
        assert open_session(source).run(None, {"x": np.ones(1, np.float32)})[0].tolist() == [2.0]


def test_threads_and_options_reach_onnxruntime() -> None:
    x = lg.input("x", F32, ["n"])
    session = open_session(to_onnx(x + 1.0), threads=1, options={"session.intra_op.allow_spinning": "0"})
    assert session.get_session_options().intra_op_num_threads == 1


@pytest.mark.parametrize(
    ("content", "message"), [(None, "there is no model file"), (b"\x0a\xff\xff", "is no ONNX model|onnxruntime failed")]
)
def test_what_is_no_model_is_refused(tmp_path: Path, content: bytes | None, message: str) -> None:
    path = tmp_path / "m.onnx"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(lg.ExportError, match=message):
        open_session(path)


def test_a_provider_that_is_not_there_is_refused() -> None:
    model = to_onnx(lg.input("x", F32, [1]) + 1.0)
    with pytest.raises(lg.OperandError, match="provider 'tpu'"):
        open_session(model, "tpu")
    if "CUDAExecutionProvider" not in onnxruntime.get_available_providers():
        with pytest.raises(lg.UnsupportedError, match=r"(?s)no CUDAExecutionProvider.*pip install lazygraph\[gpu\]"):
            open_session(model, "cuda")


def test_without_onnxruntime_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *rest: Any, **named: Any) -> Any:
        if name.partition(".")[0] == "onnxruntime":
            raise ImportError(name)
        return real(name, *rest, **named)

    x = lg.input("x", F32, [1])
    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(lg.ExportError, match=r"pip install lazygraph\[cpu\], or pip install lazygraph\[gpu\]"):
        lg.realize(x, {"x": [1.0]})


def test_a_session_names_types_and_runs_a_choice_of_outputs() -> None:
    x = lg.input("x", lg.bfloat16, ["n"])
    session = Session(open_session(to_onnx({"a": x.astype(F32), "b": x})))
    assert session.inputs == {"x": lg.bfloat16}
    assert session.outputs == {"a": F32, "b": lg.bfloat16}
    assert list(session.run({"x": np.ones(2, lg.bfloat16.numpy)}, ["b"])) == ["b"]


def test_run_bound_reads_and_writes_arrays_in_place() -> None:
    x = lg.input("x", F32, [2])
    session = open_session(to_onnx({"y": x * 3.0}))
    out = np.zeros(2, np.float32)
    run_bound(session, session.io_binding(), {"x": np.array([1, 2], np.float32)}, {"y": out})
    assert out.tolist() == [3.0, 6.0]


MESSAGES = [
    "Non-zero status code returned while running Gather node. Name:'layers.0/gather_1' Status Message: out of bounds",
    "Could not find an implementation for MatMul(13) node with name 'layers.0/gather_1'",
    "Node (layers.0/gather_1) Op (Gather) [ShapeInferenceError] bad",
    "running FusedMatMul node. Name:'layers.0/gather_1/MatmulTransposeFusion/' Status Message: bad",
]


@pytest.mark.parametrize("message", MESSAGES)
def test_every_way_in_which_onnxruntime_names_a_node_is_understood(message: str) -> None:
    lines = {"layers.0/gather_1": ("Gather", Where("train.py", 14)), "layers.0/gather": ("Add", Where("no.py", 1))}
    error = traced(RuntimeError(message), lines, "run")
    assert (error.op, str(error.at)) == ("gather", "train.py:14")


def test_a_failure_without_a_known_node_keeps_the_runtimes_words() -> None:
    assert "onnxruntime failed: odd" in str(traced(RuntimeError("odd"), {}, "run"))


# ---- what a target runs ----


def narrow() -> lg.Tensor:
    return lg.input("x", lg.bfloat16, ["n", 4])


def ints(x: lg.Tensor, *values: int) -> lg.Tensor:
    return x.const(np.array(values))


CAN: dict[str, Callable[[lg.Tensor], lg.Tensor]] = {
    "Cast": lambda x: x.astype(F32),
    "Identity": lambda x: lg.identity(x),
    "Reshape": lambda x: lg.reshape(x, [-1]),
    "Transpose": lambda x: x.T,
    "ScatterND": lambda x: lg.scatter_nd(x, x.const(np.array([[0]])), x.const(np.ones((1, 4), lg.bfloat16.numpy))),
    "ScatterElements": lambda x: lg.scatter_elements(
        x, x.const(np.zeros((1, 4), np.int64)), x.const(np.ones((1, 4), lg.bfloat16.numpy)), axis=0
    ),
    "Gather": lambda x: lg.gather(x, ints(x, 0, 1)),
    "Concat": lambda x: lg.concat([x, x], 0),
    "Slice": lambda x: x[:, 1:3],
    "Split": lambda x: lg.split(x, 2, axis=1)[0],
    "Squeeze": lambda x: lg.squeeze(lg.unsqueeze(x, 0), 0),
    "Unsqueeze": lambda x: lg.unsqueeze(x, 0),
    "Flatten": lambda x: lg.flatten(x),
}
CANNOT: dict[str, Callable[[lg.Tensor], lg.Tensor]] = {
    "MatMul": lambda x: x @ x.T,
    "Add": lambda x: x + x,
    "Mul": lambda x: x * 2.0,
    "Where": lambda x: lg.where(x.const(True), x, x),
    "Expand": lambda x: lg.expand(x, [3, 1, 1]),
    "Sigmoid": lambda x: lg.sigmoid(x),
    "Softmax": lambda x: lg.softmax(x, axis=-1),
    "ReduceMean": lambda x: lg.reduce_mean(x),
}


def opens(tensor: lg.Tensor) -> bool:
    try:
        open_session(to_onnx(tensor), severity=4)
    except lg.ExportError:
        return False
    return True


@pytest.mark.parametrize("op", CAN)
def test_the_cpu_takes_bfloat16_where_it_only_moves(op: str) -> None:
    y = CAN[op](narrow())
    to_onnx(y, target="cpu")
    assert opens(y)


@pytest.mark.parametrize("op", CANNOT)
def test_the_cpu_refuses_to_compute_in_bfloat16_before_a_file_is_written(op: str, tmp_path: Path) -> None:
    y = CANNOT[op](narrow())
    with pytest.raises(lg.UnsupportedError) as caught:
        save({"y": y}, tmp_path / "m.onnx")
    text = str(caught.value)
    assert "CPUExecutionProvider cannot run it on" in text
    assert "bfloat16" in text
    assert "test_session.py:" in text
    assert list(tmp_path.iterdir()) == []
    assert not opens(y)
    save({"y": y}, tmp_path / "m.onnx", target=None)
    to_onnx(y, target="cuda")


@pytest.mark.parametrize("op", CANNOT)
@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_the_cpu_computes_in_float16_and_float32(op: str, dtype: str) -> None:
    y = CANNOT[op](lg.input("x", dtype, ["n", 4]))
    to_onnx(y, target="cpu")
    assert opens(y)


@pytest.mark.parametrize("dtype", ["float32", "float16", "float64", "bfloat16"])
def test_operators_with_a_body_are_judged_by_loading_them(dtype: str) -> None:
    x = lg.input("x", dtype, ["n", 4])
    y = x.graph.emit("Gelu", (x,), {}, [(x.dtype, x.shape)])[0]
    try:
        to_onnx(y, target="cpu")
        accepted = True
    except lg.UnsupportedError:
        accepted = False
    assert accepted is opens(y)


def test_the_opset_rises_to_the_first_at_which_the_target_runs_it() -> None:
    x = lg.input("x", lg.float8_e4m3fn, [4])
    y = lg.reshape(x, [2, 2])
    assert [to_onnx(y, target=target).opset_import[0].version for target in (None, "cpu")] == [19, 21]
    assert [opens(y), open_session(to_onnx(y, target="cpu")) is not None] == [False, True]
    with pytest.raises(lg.UnsupportedError, match="cannot run it on float8_e4m3fn"):
        to_onnx(y, target="cpu", opset=19)


def test_copies_of_outputs_are_judged_too() -> None:
    x = lg.input("x", lg.int4, [2])
    with pytest.raises(lg.UnsupportedError, match="identity"):
        to_onnx({"y": x}, target="cpu")


def test_an_unknown_target_is_refused() -> None:
    with pytest.raises(lg.OperandError, match="target 'tpu'"):
        to_onnx(lg.input("x", F32, [1]) + 1.0, target="tpu")
    assert targets.TARGETS == ("cpu", "cuda")


@pytest.mark.skipif(not onnxruntime.__version__.startswith("1.32"), reason="the table is that of onnxruntime 1.32")
def test_the_kernel_table_is_what_onnxruntime_says() -> None:
    from onnxruntime.capi import onnxruntime_pybind11_state as state

    from lazygraph.export.kernels_cpu import TABLE

    assert TABLE.strip("\n") == kernels.written(state.get_all_opkernel_def())
    assert kernels.cpu_kernels("MatMul")[0].types == {"T": "dfklwx"}


def test_the_table_knows_every_tensor_type_of_onnx() -> None:
    named = {
        kind
        for schema in onnx.defs.get_all_schemas()
        for limit in schema.type_constraints
        for kind in limit.allowed_type_strs
    }
    plain = {kind[7:-1] for kind in named if kind.startswith("tensor(")}
    assert plain - {"float6e2m3", "float6e3m2"} <= set(kernels.LETTERS)
