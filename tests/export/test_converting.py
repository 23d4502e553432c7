"""onnxscript's optimizer and onnx's version converter on our models: equal results, equal faces, refusals by name."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from safetensors.numpy import load_file

import lazygraph as lg

F32 = lg.float32
GOLDENS = (
    "llama",
    "llama_tied",
    "mistral_sliding",
    "qwen3",
    "deepseek_v2",
    "deepseek_v2_lite",
    "deepseek_v2_lite_hub",
    "deepseek_v3",
    "deepseek_v3_fp8",
)


def _rows(name: str) -> int:
    """Return the capacity that a golden is exported with: within the window of the one that has one."""
    return 6 if name == "mistral_sliding" else 16


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory, goldens: Path) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("converting")
    for name in GOLDENS:
        lg.convert(goldens / name, folder / name, max_seq_len=_rows(name))
    return {name: folder / name / "model.onnx" for name in GOLDENS}


def _prefill(path: Path, prompt: np.ndarray[tuple[int], np.dtype[np.int64]], rows: int) -> dict[str, Any]:
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    feeds: dict[str, object] = {}
    for value in session.get_inputs():
        if value.name == "input_ids":
            feeds[value.name] = prompt
        elif not value.shape:
            feeds[value.name] = np.array(0)
        else:
            sizes = [size if isinstance(size, int) else rows for size in value.shape]
            feeds[value.name] = np.zeros(sizes, np.float32)
    names = [value.name for value in session.get_outputs()]
    return dict(zip(names, session.run(names, feeds), strict=True))


def _faces(path: Path) -> list[list[tuple[str, bytes]]]:
    model = onnx.load(path, load_external_data=False)
    return [
        [(value.name, value.type.SerializeToString(deterministic=True)) for value in values]
        for values in (model.graph.input, model.graph.output)
    ]


def _opset(path: Path) -> int:
    model = onnx.load(path, load_external_data=False)
    return int(next(entry.version for entry in model.opset_import if entry.domain == ""))


@pytest.mark.parametrize("change", ["optimize", "opset"])
@pytest.mark.parametrize("name", GOLDENS)
def test_every_golden_gives_the_references_logits_after_the_change(
    exported: dict[str, Path], goldens: Path, tmp_path: Path, name: str, change: str
) -> None:
    golden = load_file(goldens / name / "golden.safetensors")
    loaded = lg.load(exported[name])
    before = _opset(exported[name])
    changed = tmp_path / "changed.onnx"
    wanted = before if change == "optimize" else before + 1
    if change == "optimize":
        lg.save(loaded.outputs, changed, optimize=True)
    else:
        lg.save(loaded.outputs, changed, opset=wanted)

    assert _faces(changed) == _faces(exported[name])
    assert _opset(changed) == wanted
    rows = _rows(name)
    prompt = golden["prompt"][:rows]
    found, plain = _prefill(changed, prompt, rows), _prefill(exported[name], prompt, rows)
    for key, value in plain.items():
        np.testing.assert_allclose(found[key], value, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(found["logits"], golden["logits"][: len(prompt)], rtol=0, atol=1e-4)

    def faults(path: Path) -> dict[str, str]:
        model = onnx.load(path, load_external_data=False)
        pairs = {n: n.replace("past.", "present.") for n, _ in _faces(path)[0] if n.startswith("past.")}
        assert pairs
        return lg.shared_memory_faults(model, pairs)

    assert set(faults(changed)) == set(faults(exported[name]))


def test_the_optimizer_takes_out_what_computes_nothing_and_weights_that_nobody_reads() -> None:
    x = lg.input("x", F32, ["n", 4])
    w = x.const(np.ones((64, 64), np.float32), "unread")
    y = lg.op.Identity(x + 0.0) * 2.0
    z = lg.cond(x.const(np.array(True)), lambda: y, lambda: y + lg.reduce_sum(w))
    plain, small = lg.to_onnx({"z": z}), lg.to_onnx({"z": z}, optimize=True)
    assert len(small.graph.node) < len(plain.graph.node)
    assert "unread" in {tensor.name for tensor in plain.graph.initializer}
    assert "unread" not in {tensor.name for tensor in small.graph.initializer}
    feed = {"x": np.ones((2, 4), np.float32)}
    (found,) = onnxruntime.InferenceSession(small.SerializeToString()).run(None, feed)
    assert found.tolist() == [[2.0] * 4] * 2


def test_a_program_for_a_later_opset_is_converted_to_an_earlier_one() -> None:
    x = lg.input("x", F32, ["n", 4])
    y = lg.op.ReduceMean(x, x.const(np.array([1])), keepdims=0)
    assert next(e.version for e in lg.to_onnx({"y": y}).opset_import) == 18
    model = lg.to_onnx({"y": y}, opset=17)
    assert next(e.version for e in model.opset_import) == 17
    feed = {"x": np.arange(8, dtype=np.float32).reshape(2, 4)}
    (found,) = onnxruntime.InferenceSession(model.SerializeToString()).run(None, feed)
    np.testing.assert_allclose(found, feed["x"].mean(1))


def test_an_operator_that_cannot_be_converted_is_named_and_nothing_is_written(tmp_path: Path) -> None:
    x = lg.input("x", F32, ["n", 4])
    y = lg.op.Gelu(x)
    with pytest.raises(lg.UnsupportedError) as caught:
        lg.save({"y": y}, tmp_path / "m.onnx", opset=15)
    assert str(caught.value).startswith("gelu: opset 15 asked for: ")
    assert "test_converting.py" in str(caught.value) and "/project/" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_an_operator_whose_meaning_changed_between_the_opsets_is_refused() -> None:
    x = lg.input("x", F32, [1, 1, 4, 4], opset=18)
    y = lg.op.AveragePool(x, kernel_shape=[2, 2], ceil_mode=1)
    with pytest.raises(lg.UnsupportedError, match="average_pool: opset 20 asked for: it means something else"):
        lg.to_onnx({"y": y}, opset=20)


def test_without_onnxscript_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    x = lg.input("x", F32, [1])
    cases: list[Callable[[], object]] = [
        lambda: lg.to_onnx({"y": x + 1.0}, optimize=True),
        lambda: lg.call(None, x),  # type: ignore[arg-type]
    ]
    for asked in cases:
        with pytest.raises(lg.ExportError, match=r"pip install lazygraph\[onnxscript\]"):
            asked()
