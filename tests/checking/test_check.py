"""What ``check`` finds in broken models, and that what it says of other people's models is true."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import lazygraph as lg
from lazygraph.export.checking import RULES, check_file, check_folder, check_model
from lazygraph.export.session import open_session
from tests.support.round_trips import files

F = TensorProto.FLOAT
Model = onnx.ModelProto


def model(
    *nodes: onnx.NodeProto,
    weights: tuple[str, ...] = (),
    opset: int = 17,
    domain: str = "",
    rank: tuple[None, ...] | None = (None, None),
) -> Model:
    x, y = helper.make_tensor_value_info("x", F, ["n", 4]), helper.make_tensor_value_info("y", F, rank)
    arrays = [numpy_helper.from_array(np.ones((4, 4), np.float32), name) for name in weights]
    graph = helper.make_graph(list(nodes), "g", [x], [y], arrays)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid(domain, opset)], ir_version=8)


def call(op: str, inputs: str, output: str = "y", name: str = "", **attributes: Any) -> onnx.NodeProto:
    return helper.make_node(op, inputs.split(), output.split(), name=name, **attributes)


def constant(name: str, array: np.ndarray) -> onnx.NodeProto:
    return call("Constant", "", name, value=numpy_helper.from_array(array))


def rules(made: Model, target: str | None = None) -> set[str]:
    return {finding.rule for finding in check_model(made, target).findings}


def two_domains(made: Model) -> Model:
    made.opset_import.add(domain="", version=17)
    return made


def ir(made: Model) -> Model:
    made.ir_version = 99
    return made


def broken_weight(made: Model) -> Model:
    made.graph.initializer[0].raw_data = b"1234"
    return made


def body(name: str, made: str) -> onnx.GraphProto:
    return helper.make_graph(
        [call("Neg", "x", made, f"{name}.neg")], name, [], [helper.make_tensor_value_info(made, F, None)]
    )


BROKEN: dict[str, Callable[[], Model]] = {
    "ir-version": lambda: ir(model(call("Relu", "x"))),
    "opset-missing": lambda: model(call("Relu", "x"), domain="com.example"),
    "opset-twice": lambda: two_domains(model(call("Relu", "x"))),
    "opset-unknown": lambda: model(call("Relu", "x"), opset=999),
    "operator-unknown": lambda: model(call("Relux", "x")),
    "operator-deprecated": lambda: model(call("Upsample", "x w"), weights=("w",)),
    "call-signature": lambda: model(call("Add", "x")),
    "name-missing": lambda: model(call("Add", "x nobody")),
    "name-order": lambda: model(call("Relu", "a"), call("Neg", "x", "a")),
    "name-twice": lambda: model(call("Neg", "x", "a"), call("Abs", "x", "a"), call("Relu", "a")),
    "name-node-twice": lambda: model(call("Neg", "x", "a", "same"), call("Relu", "a", name="same")),
    "name-initializer-twice": lambda: model(call("MatMul", "x w"), weights=("w", "w")),
    "name-hides": lambda: model(
        call("Neg", "x", "a"),
        constant("yes", np.array(True)),
        call("If", "yes", then_branch=body("then", "a"), else_branch=body("else", "b")),
    ),
    "node-unused": lambda: model(call("Relu", "x"), call("Neg", "x", "a")),
    "weight-unused": lambda: model(call("Relu", "x"), weights=("w",)),
    "weight-broken": lambda: broken_weight(model(call("MatMul", "x w"), weights=("w",))),
    "shape-inference": lambda: model(constant("s", np.ones((3, 5), np.float32)), call("MatMul", "x s")),
    "onnx-checker": lambda: model(call("Relu", "x"), rank=None),
}


@pytest.mark.parametrize("rule", BROKEN)
def test_a_broken_model_breaks_its_rule(rule: str) -> None:
    found = check_model(BROKEN[rule]()).findings
    assert rule in [finding.rule for finding in found]
    assert all(finding.message for finding in found)


def test_a_split_that_leaves_a_negative_piece_is_found_though_onnx_takes_it() -> None:
    five = constant("five", np.ones((5, 6), np.float32))
    made = model(five, call("Split", "five", "a b c y", num_outputs=4, axis=0), opset=18)
    onnx.checker.check_model(made, full_check=True)
    assert [f.rule for f in check_model(made).at_least("warning")] == ["shape-doubt"]


def test_every_finding_names_the_node() -> None:
    (finding,) = check_model(BROKEN["name-order"]()).at_least("error")
    assert (finding.rule, finding.node, finding.severity) == ("name-order", "y", "error")
    assert finding.message == "it reads 'a', which 'a' makes further down"


def test_all_faults_are_found_at_once() -> None:
    made = model(call("Add", "x"), call("Relu", "nobody", "a"), call("Nothing", "a", "b"))
    assert {"call-signature", "name-missing", "operator-unknown"} <= rules(made)


def test_a_provider_that_has_no_kernel_is_named() -> None:
    x = lg.input("x", "bfloat16", [4, 4])
    made = lg.to_onnx(lg.matmul(x, x))
    assert rules(made) == set()
    (finding,) = check_model(made, "cpu").findings
    assert finding.rule == "provider-kernel"
    assert "CPUExecutionProvider" in finding.message
    assert rules(made, "cuda") == set()


def test_an_opset_above_the_allowed_one_is_found() -> None:
    made = model(call("Relu", "x"), opset=17)
    assert [finding.rule for finding in check_model(made, opset=16).findings] == ["opset-too-new"]
    assert check_model(made, opset=17).findings == ()


# ---- weights in files -----------------------------------------------------------------------------------------------


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    x = lg.input("x", lg.float32, ["n", 8])
    folder = tmp_path / "model"
    folder.mkdir()
    lg.save(x @ x.const(np.ones((8, 4096), np.float32), "w"), folder / "m.onnx", external=True)
    return folder / "m.onnx"


def entry(path: Path, key: str, value: str) -> None:
    made = onnx.load(path, load_external_data=False)
    for item in made.graph.initializer[0].external_data:
        if item.key == key:
            item.value = value
    path.write_bytes(made.SerializeToString())


def data_of(path: Path) -> Path:
    return next(path.parent.glob("*.data"))


def only_rule(path: Path) -> str:
    (finding,) = check_file(path).findings
    return finding.rule


def test_a_whole_file_is_fine(saved: Path) -> None:
    assert check_file(saved, "cpu").findings == ()


@pytest.mark.parametrize("place", ["../secret", "/etc/passwd", "", "C:\\data", "a/../../b"])
def test_weights_outside_the_folder_are_found(saved: Path, place: str) -> None:
    entry(saved, "location", place)
    assert only_rule(saved) == "data-escapes"


def test_missing_short_and_ill_fitting_weights_files_are_found(saved: Path) -> None:
    data = data_of(saved)
    whole = data.read_bytes()
    data.write_bytes(whole[:-1])
    assert only_rule(saved) == "data-short"
    data.unlink()
    assert only_rule(saved) == "data-missing"
    data.write_bytes(whole)
    entry(saved, "length", "12")
    assert only_rule(saved) == "data-length"


def test_links_out_of_the_folder_and_hard_links_are_found(saved: Path, tmp_path: Path) -> None:
    data = data_of(saved)
    os.link(data, tmp_path / "second")
    assert only_rule(saved) == "data-linked-twice"
    data.unlink()
    data.symlink_to(tmp_path / "second")
    assert only_rule(saved) == "data-link"
    with pytest.raises(lg.ExportError):
        open_session(saved)


def test_a_hub_of_links_is_fine(saved: Path, tmp_path: Path) -> None:
    view = tmp_path / "snapshot"
    view.mkdir()
    for file in saved.parent.iterdir():
        (view / file.name).symlink_to(file)
    assert check_file(view / "m.onnx").findings == ()
    open_session(view / "m.onnx")


def test_weights_that_share_a_part_of_their_bytes_are_found(tmp_path: Path) -> None:
    x = lg.input("x", lg.float32, ["n", 64])
    two = [x.const(np.full((64, 64), float(i), np.float32), f"w{i}") for i in range(2)]
    lg.save(x @ two[0] @ two[1], tmp_path / "m.onnx", external=True)
    made = onnx.load(tmp_path / "m.onnx", load_external_data=False)
    for item in made.graph.initializer[1].external_data:
        if item.key == "offset":
            item.value = "64"
    (tmp_path / "m.onnx").write_bytes(made.SerializeToString())
    assert only_rule(tmp_path / "m.onnx") == "data-overlap"


# ---- the cache ------------------------------------------------------------------------------------------------------


def step(read_again: bool) -> Model:
    n = lg.size("n", min=1, max=8)
    x = lg.input("x", lg.float32, [n, 4])
    cache = lg.LatentCache.inputs(x, 1, 8, [[4]], slot_names=["k"])
    before = cache.slot_buffer_full(0, 0)
    after = cache.append(0, [x]).advance_by("n")
    extra = {"sum": before.sum()} if read_again else {}
    return lg.to_onnx({"y": x, **after.outputs(), **extra})


def test_a_cache_that_is_read_after_its_write_must_not_share_memory() -> None:
    pair = {"past.0.k": "present.0.k"}
    assert check_model(step(False), in_place=pair).at_least("warning") == ()
    (finding,) = check_model(step(True), in_place=pair).at_least("error")
    assert finding.rule == "in-place"
    assert "may run after the write" in finding.message


def test_a_present_of_another_type_is_found() -> None:
    x = lg.input("past.0.k", lg.float32, ["n", 4])
    made = lg.to_onnx({"present.0.k": x.astype(lg.float64)})
    assert rules(made) == {"cache-pair"}


@pytest.fixture(scope="module")
def export(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("export") / "out"
    lg.convert(Path(__file__).parents[1] / "goldens" / "llama", folder, warn=lambda text: None)
    return folder


def test_an_export_keeps_its_contract(export: Path) -> None:
    assert check_folder(export, "cpu").at_least("warning") == ()


def test_a_manifest_that_lies_is_found(export: Path, tmp_path: Path) -> None:
    for file in export.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    manifest = tmp_path / "manifest.json"
    honest = manifest.read_text()

    def found(text: str) -> list[str]:
        manifest.write_text(text)
        return [finding.rule for finding in check_folder(tmp_path).at_least("warning")]

    assert found(honest) == []
    assert found(honest.replace('"vocab_size": 160', '"vocab_size": 161')) == ["manifest-model"]
    assert found(honest.replace("past.1.", "past.7.")) == ["manifest-model"]
    assert found("{") == ["manifest-broken"]
    manifest.write_text(honest)
    path = tmp_path / "model.onnx"
    made = onnx.load(path, load_external_data=False)
    made.producer_name = "somebody else"
    path.write_bytes(made.SerializeToString())
    assert found(honest) == ["manifest-fingerprint"]


# ---- other people's models ------------------------------------------------------------------------------------------

# Models that onnxruntime opens only where the system has the language they name.
_LOCALE = "Failed to construct locale"


@pytest.mark.slow
def test_every_model_that_onnx_ships_is_judged_as_onnxruntime_judges_it() -> None:
    judged = 0
    for file in files():
        found = check_file(file, "cpu").at_least("error")
        try:
            open_session(file, severity=4)
        except (lg.ExportError, lg.UnsupportedError) as error:
            assert found or _LOCALE in str(error), file
        else:
            assert not found, (file, found)
        judged += 1
    assert judged > 100


def test_every_rule_says_what_must_be_true() -> None:
    assert len(RULES) > 30
    for name, rule in RULES.items():
        assert name == name.lower()
        assert rule.text.endswith(".")
