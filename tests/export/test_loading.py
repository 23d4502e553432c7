"""A loaded model keeps what its file said, goes on as a graph, and leaves its weights on disk until they are used."""

from __future__ import annotations

import mmap
import os
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper, parser

import lazygraph as lg
from lazygraph.export import open_session

Array = np.ndarray[Any, Any]

TEXT = """<ir_version: 8, opset_import: ["" : 17], doc_string: "of the model">
scorer (float[batch, 4] x) => (float[batch, 2] scores)
<float[4, 2] w = {1, 2, 3, 4, 5, 6, 7, 8}>
{
    [project] hidden = MatMul (x, w)
    [act] scores = Relu (hidden)
}"""


def model(text: str = TEXT) -> onnx.ModelProto:
    return parser.parse_model(text)


def run(proto: onnx.ModelProto, **feeds: Array) -> Array:
    found: Array = open_session(proto).run(None, feeds)[0]
    return found


# ---- what the file said -----------------------------------------------------------------------------------------


def test_names_texts_and_versions_are_kept() -> None:
    before = model()
    for node in before.graph.node:
        node.ClearField("domain")  # an empty text and none mean the same
    before.graph.node[0].doc_string = "the projection"
    before.graph.node[0].metadata_props.add(key="layer", value="3")
    before.graph.doc_string = "two calls"
    before.graph.input[0].doc_string = "one row per example"
    before.metadata_props.add(key="author", value="somebody")
    entry = before.graph.quantization_annotation.add(tensor_name="hidden")
    entry.quant_parameter_tensor_names.add(key="SCALE_TENSOR", value="w")

    after = lg.to_onnx(lg.load(before).outputs)
    assert [node.SerializeToString() for node in after.graph.node] == [
        node.SerializeToString() for node in before.graph.node
    ]
    assert [t.name for t in after.graph.initializer] == ["w"]
    assert list(after.graph.input) == list(before.graph.input)
    assert list(after.graph.output) == list(before.graph.output)
    assert list(after.graph.quantization_annotation) == [entry]
    assert (after.graph.name, after.graph.doc_string) == ("scorer", "two calls")
    assert list(after.metadata_props) == list(before.metadata_props)
    assert (after.ir_version, after.opset_import) == (8, before.opset_import)


def test_a_second_round_trip_changes_no_byte() -> None:
    once = lg.to_onnx(lg.load(model()).outputs)
    assert lg.to_onnx(lg.load(once).outputs).SerializeToString() == once.SerializeToString()


def test_an_old_opset_stays_as_it_is() -> None:
    old = model("""<ir_version: 4, opset_import: ["" : 9]>
        g (float[1, 3, 1] x) => (float[3] y) { y = Squeeze <axes = [0, 2]> (x) }""")
    after = lg.to_onnx(lg.load(old).outputs, target="cpu")
    assert after.opset_import[0].version == 9
    assert after.graph.node[0].attribute[0].name == "axes"
    x = np.arange(3, dtype=np.float32).reshape(1, 3, 1)
    assert np.array_equal(run(after, x=x), x.ravel())


def test_another_opset_is_converted_to_or_refused_by_name() -> None:
    old = model("""<ir_version: 4, opset_import: ["" : 9]>
        g (float[1, 3, 1] x) => (float[3] y) { y = Squeeze <axes = [0, 2]> (x) }""")
    loaded = lg.load(old, opset=17)
    assert loaded.graph.opset == 17
    x = np.arange(3, dtype=np.float32).reshape(1, 3, 1)
    assert np.array_equal(run(lg.to_onnx(loaded.outputs), x=x), x.ravel())
    with pytest.raises(lg.UnsupportedError, match="from opset 9 to 999"):
        lg.load(old, opset=999)


def test_an_operator_that_nobody_knows_passes_through_with_what_the_file_declares() -> None:
    text = """<ir_version: 8, opset_import: ["" : 17, "acme.ops" : 3]>
        g (float[n, 4] x) => (float[n, 7] y)
        <float[n, 9] h>
        { h = acme.ops.Widen <factor = 2> (x)  y = acme.ops.Narrow (h) }"""
    loaded = lg.load(model(text))
    assert [str(size) for size in loaded["h"].shape] == ["n", "9"]
    after = lg.to_onnx(loaded.outputs, target="cpu")
    assert [(node.domain, node.op_type) for node in after.graph.node] == [("acme.ops", "Widen"), ("acme.ops", "Narrow")]
    assert {entry.domain: entry.version for entry in after.opset_import}["acme.ops"] == 3


def test_an_operator_of_which_nothing_is_known_at_all_passes_through() -> None:
    text = """<ir_version: 8, opset_import: ["" : 17, "acme.ops" : 3]>
        g (float[n, 4] x) => (float[n, 4] y) { h = acme.ops.Widen (x)  k = Relu (h)  y = acme.ops.Narrow (k) }"""
    loaded = lg.load(model(text))
    assert loaded["h"].dtype == "untold"
    after = lg.to_onnx(loaded.outputs)
    assert [node.op_type for node in after.graph.node] == ["Widen", "Relu", "Narrow"]


def test_a_default_of_an_input_stays_one(tmp_path: Path) -> None:
    text = """<ir_version: 8, opset_import: ["" : 17]>
        g (float[2] x, float[2] scale, float[2] shift) => (float[2] y)
        <float[2] scale = {2, 3}, float[2] shift = {2, 3}>
        { h = Mul (x, scale)  y = Add (h, shift) }"""
    loaded = lg.load(model(text))
    after = lg.to_onnx(loaded.outputs)
    assert [value.name for value in after.graph.input] == ["x", "scale", "shift"]
    assert sorted(t.name for t in after.graph.initializer) == ["scale", "shift"]
    one = np.ones(2, np.float32)
    assert run(after, x=one).tolist() == [4, 6]
    assert run(after, x=one, scale=one).tolist() == [3, 4]
    assert lg.realize(loaded.outputs["y"], {"x": one}).tolist() == [4, 6]
    assert lg.realize(loaded.outputs["y"], {"x": one, "shift": one}).tolist() == [3, 4]


def test_before_ir_version_4_an_initialiser_is_an_input_because_it_must() -> None:
    old = model()
    old.ir_version = 3
    old.graph.input.append(helper.make_tensor_value_info("w", TensorProto.FLOAT, [4, 2]))
    assert list(lg.load(old).inputs) == ["x"]


def test_a_sparse_weight_is_read_as_an_ordinary_one() -> None:
    sparse = helper.make_sparse_tensor(
        numpy_helper.from_array(np.array([5, 7], np.float32), "w"),
        numpy_helper.from_array(np.array([0, 7], np.int64), "places"),
        [4, 2],
    )
    proto = model()
    del proto.graph.initializer[:]
    proto.graph.sparse_initializer.append(sparse)
    x = np.ones((1, 4), np.float32)
    assert lg.realize(lg.load(proto).outputs["scores"], {"x": x}).tolist() == [[5, 7]]


def test_names_of_bodies_are_kept() -> None:
    text = """<ir_version: 8, opset_import: ["" : 17]>
        g (float[n, 2] xs, float[2] start) => (float[2] last, float[n, 2] sums) {
          last, sums = Scan <num_scan_inputs = 1, body = step (float[2] total, float[2] row)
            => (float[2] after, float[2] kept) {
              after = Add (total, row)
              kept = Identity (after)
          }> (start, xs)
        }"""
    before = model(text)
    loaded = lg.load(before)
    body = lg.to_onnx(loaded.outputs).graph.node[0].attribute
    (graph,) = [attribute.g for attribute in body if attribute.HasField("g")]
    assert [value.name for value in graph.input] == ["total", "row"]
    assert [node.output[0] for node in graph.node] == ["after", "kept"]
    xs, start = np.arange(6, dtype=np.float32).reshape(3, 2), np.ones(2, np.float32)
    found = lg.realize(loaded.outputs, {"xs": xs, "start": start})
    assert np.array_equal(found["sums"], start + np.cumsum(xs, axis=0))


def test_local_functions_give_what_they_gave() -> None:
    text = """<ir_version: 8, opset_import: ["" : 17, "own" : 1]>
        g (float[n] x) => (float[n] y) { h = own.twice (x)  y = own.twice (h) }
        <opset_import: ["" : 17], domain: "own">
        twice (a) => (b) { b = Add (a, a) }"""
    loaded = lg.load(model(text))
    assert lg.realize(loaded.outputs["y"], {"x": np.ones(3, np.float32)}).tolist() == [4, 4, 4]


# ---- sizes ----------------------------------------------------------------------------------------------------------


def test_names_of_sizes_that_meet_are_taken_for_equal_and_noted() -> None:
    text = """<ir_version: 8, opset_import: ["" : 17]>
        g (float[batch, 4] a, float[N, 4] b) => (float[M, 4] y) { y = Add (a, b) }"""
    loaded = lg.load(model(text))
    assert loaded.equal_sizes == [("N", "batch")]
    assert [str(t.shape[0]) for t in loaded.inputs.values()] == ["batch", "N"]
    after = lg.to_onnx(loaded.outputs)
    assert [value.type.tensor_type.shape.dim[0].dim_param for value in after.graph.input] == ["batch", "N"]
    assert loaded["y"] is loaded.outputs["y"]


def test_arithmetic_over_the_names_of_inputs_is_read_as_such() -> None:
    x = lg.input("x", lg.float32, ["seq", 4])
    past = lg.input("past", lg.float32, ["past", 4], anchor=x)
    loaded = lg.load(lg.to_onnx({"y": lg.concat([past, x], 0)}))
    assert str(loaded.outputs["y"].shape[0]) == "past + seq"
    odd = model("""<ir_version: 8, opset_import: ["" : 17]> g (float x) => (float y) { y = Relu (x) }""")
    odd.graph.input[0].CopyFrom(helper.make_tensor_value_info("x", TensorProto.FLOAT, ["time-steps", "a b"]))
    odd.graph.output[0].ClearField("type")
    odd.graph.output[0].type.CopyFrom(odd.graph.input[0].type)
    assert [str(size) for size in lg.load(odd)["y"].shape] == ["time-steps", "a b"]


def test_a_wrong_shape_of_an_output_is_noted_and_put_right() -> None:
    proto = model()
    proto.graph.output[0].type.tensor_type.shape.dim[1].dim_value = 9
    loaded = lg.load(proto)
    assert loaded.notes == ("output 'scores' is declared (batch, 9), and is (batch, 2)",)
    assert lg.to_onnx(loaded.outputs).graph.output[0].type.tensor_type.shape.dim[1].dim_value == 2


# ---- going on -------------------------------------------------------------------------------------------------------


def test_building_goes_on_from_any_value() -> None:
    loaded = lg.load(model())
    best = lg.argmax(loaded["hidden"] * 2.0, 1)
    after = lg.to_onnx({**loaded.outputs, "best": best})
    assert [value.name for value in after.graph.output] == ["scores", "best"]
    found = lg.realize(best, {"x": np.ones((3, 4), np.float32)})
    assert found.ravel().tolist() == [1, 1, 1]
    with pytest.raises(lg.OperandError, match="did you mean 'hidden'"):
        loaded["hiden"]


def test_a_part_is_replaced_and_what_comes_behind_is_checked_again() -> None:
    loaded = lg.load(model())
    doubled = loaded.replace({loaded["hidden"]: loaded["hidden"] * 2.0})
    x = np.ones((1, 4), np.float32)
    assert lg.realize(doubled.outputs["scores"], {"x": x}).tolist() == [[32, 40]]
    assert lg.realize(loaded.outputs["scores"], {"x": x}).tolist() == [[16, 20]]
    assert doubled["w"] is loaded["w"]
    narrow = lg.load(
        model("""<ir_version: 8, opset_import: ["" : 17]>
        g (float[2, 3] x) => (float[6] y) <int64[1] flat = {6}> { h = Relu (x)  y = Reshape (h, flat) }""")
    )
    with pytest.raises(lg.ShapeError, match="reshape") as caught:
        narrow.replace({narrow["h"]: narrow["x"][:, :2]})
    assert "Reshape 'y'" in str(caught.value) or "in" in caught.value.operands


def test_weights_are_listed_and_swapped() -> None:
    loaded = lg.load(model())
    assert list(loaded.weights) == ["w"]
    other = loaded.replace_weight("w", np.zeros((4, 2), np.float32))
    assert lg.realize(other.outputs["scores"], {"x": np.ones((1, 4), np.float32)}).tolist() == [[0, 0]]
    assert [t.name for t in lg.to_onnx(other.outputs).graph.initializer] == ["w"]
    with pytest.raises(lg.ShapeError, match=r"'w' is \(4, 2\), and \(2, 4\) is given"):
        loaded.replace_weight("w", np.zeros((2, 4), np.float32))
    with pytest.raises(lg.DTypeError, match="'w' is float32, and float64 is given"):
        loaded.replace_weight("w", np.zeros((4, 2)))
    with pytest.raises(lg.OperandError, match="'v' is no weight"):
        loaded.replace_weight("v", np.zeros((4, 2), np.float32))


# ---- weights in other files -----------------------------------------------------------------------------------------


@pytest.fixture
def pair(tmp_path: Path) -> Path:
    """A model of 4 MB with its weights beside it."""
    x = lg.input("x", lg.float32, ["n", 1024])
    w = x.const(np.full((1024, 1024), 0.5, np.float32), "w")
    lg.save({"y": x @ w}, tmp_path / "model.onnx", external="weights.bin")
    return tmp_path / "model.onnx"


def test_weights_stay_on_disk_until_they_are_used(pair: Path) -> None:
    loaded = lg.load(pair)
    array = loaded.weights["w"]
    assert isinstance(array, lg.LazyArray)
    read = array.read()
    owner: object = read
    while isinstance(owner, np.ndarray) and owner.base is not None:
        owner = owner.base
    assert isinstance(owner, mmap.mmap)
    assert read.shape == (1024, 1024) and (read == 0.5).all()


def test_a_model_works_from_any_folder_and_after_a_move(pair: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir("/")
    moved = pair.parent.rename(f"{pair.parent}_moved")
    found = lg.realize(lg.load(moved / "model.onnx").outputs["y"], {"x": np.ones((1, 1024), np.float32)})
    assert found[0, 0] == 512


def test_a_model_is_saved_over_itself(pair: Path) -> None:
    loaded = lg.load(pair)
    lg.save(loaded.outputs, pair)
    lg.save(loaded.replace_weight("w", np.zeros((1024, 1024), np.float32)).outputs, pair)
    assert lg.realize(lg.load(pair).outputs["y"], {"x": np.ones((1, 1024), np.float32)})[0, 0] == 0
    assert lg.realize(loaded.outputs["y"], {"x": np.ones((1, 1024), np.float32)})[0, 0] == 512


@pytest.mark.skipif(os.name != "posix", reason="links")
def test_a_hub_cache_made_of_links_works(pair: Path, tmp_path: Path) -> None:
    blobs, snapshot = tmp_path / "blobs", tmp_path / "snapshots" / "abc"
    blobs.mkdir()
    snapshot.mkdir(parents=True)
    (tmp_path / "model.onnx").rename(blobs / "1234")
    (tmp_path / "weights.bin").rename(blobs / "5678")
    (snapshot / "model.onnx").symlink_to("../../blobs/1234")
    (snapshot / "weights.bin").symlink_to("../../blobs/5678")
    loaded = lg.load(snapshot / "model.onnx")
    assert lg.realize(loaded.outputs["y"], {"x": np.ones((1, 1024), np.float32)})[0, 0] == 512


def test_a_model_in_memory_is_told_where_its_weights_are(pair: Path) -> None:
    content = pair.read_bytes()
    with pytest.raises(lg.LoadError, match="a model in memory has no folder") as caught:
        lg.load(content)
    assert "folder=" in caught.value.hint
    assert lg.load(content, folder=pair.parent).weights["w"].shape == (1024, 1024)


@pytest.mark.parametrize("location", ["../evil.data", "/etc/passwd", "", "a/../../b", "C:\\x", "..\\x", "."])
def test_a_file_cannot_send_the_reader_out_of_its_folder(pair: Path, location: str) -> None:
    proto = onnx.load(pair, load_external_data=False)
    proto.graph.initializer[0].external_data[0].value = location
    (pair.parent / "sent.onnx").write_bytes(proto.SerializeToString())
    with pytest.raises(lg.LoadError) as caught:
        lg.load(pair.parent / "sent.onnx")
    assert repr(location) in str(caught.value) and "outside" in caught.value.what
    assert caught.value.operands["file"].endswith("sent.onnx")


def test_a_missing_weights_file_is_named_with_the_place_where_it_was_looked_for(pair: Path) -> None:
    (pair.parent / "weights.bin").unlink()
    with pytest.raises(lg.LoadError, match=r"the weights file 'weights\.bin' does not exist") as caught:
        lg.load(pair)
    assert caught.value.operands["looked at"] == str(pair.parent / "weights.bin")
    assert caught.value.operands["file"] == str(pair)


def test_a_weights_file_that_is_too_short_is_refused(pair: Path) -> None:
    file = pair.parent / "weights.bin"
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(lg.LoadError, match=r"weights\.bin is too short: 4194303 bytes, and 'w' ends at byte 4194304"):
        lg.load(pair)


def test_packed_types_are_read_as_they_were_written() -> None:
    import ml_dtypes

    arrays = {
        "bf16": np.arange(5).astype(ml_dtypes.bfloat16),
        "i4": np.arange(-3, 4).astype(ml_dtypes.int4),
        "u2": np.arange(4).astype(ml_dtypes.uint2),
        "f8": np.arange(3).astype(ml_dtypes.float8_e4m3fn),
        "texts": np.array(["a", "bc", ""], object),
        "flags": np.array([True, False]),
        "empty": np.zeros((0, 3), np.float32),
    }
    x = lg.input("x", lg.float32, ["n"])
    outputs = {f"{name}_out": x.const(array, name) for name, array in arrays.items()}
    loaded = lg.load(lg.to_onnx(outputs))
    for name, array in arrays.items():
        found = loaded.weights[name]
        assert isinstance(found, np.ndarray) and found.dtype == array.dtype and found.shape == array.shape
        assert found.tolist() == array.tolist()


def test_a_large_model_is_changed_in_one_place_without_reading_all_of_it(tmp_path: Path) -> None:
    """64 MiB in 16 weights: at the peak, resaving holds less than two of them, and loading none."""
    x = y = lg.input("x", lg.float32, ["n", 1024])
    for k in range(16):
        y = y @ x.const(np.full((1024, 1024), np.float32(k + 1) / 2**13, np.float32), f"w{k}")
    lg.save({"y": y * x.const(np.full(1024, 3, np.float32), "scale")}, tmp_path / "large.onnx", external=True)

    tracemalloc.start()
    loaded = lg.load(tmp_path / "large.onnx")
    changed = loaded.replace_weight("scale", np.full(1024, 6, np.float32))
    after_loading = tracemalloc.get_traced_memory()[1]
    lg.save(changed.outputs, tmp_path / "changed.onnx", external=True)
    after_saving = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert after_loading < 2**22  # numpy tells tracemalloc of what it holds; what is mapped is not held
    assert after_saving < 2**23
    feed = {"x": np.ones((1, 1024), np.float32)}
    before, after = (open_session(tmp_path / name).run(None, feed)[0] for name in ("large.onnx", "changed.onnx"))
    np.testing.assert_allclose(after, 2 * before, rtol=1e-5)


@pytest.mark.skipif(os.name != "posix", reason="sparse files and links")
@pytest.mark.slow
def test_a_model_above_2_gib_is_loaded_changed_checked_and_saved(tmp_path: Path) -> None:
    """One weight of 2 GiB and 4 KiB, of zeros that take no room on the disk, and one of a few numbers."""
    rows = 2**19 + 1
    proto = model("""<ir_version: 8, opset_import: ["" : 17]>
        g (int64[n] x) => (float[n, 1024] y) <float[2] shift = {1, 1}> { h = Gather (table, x)  y = Add (h, one) }""")
    del proto.graph.initializer[:]
    table = proto.graph.initializer.add(name="table", data_type=TensorProto.FLOAT, dims=[rows, 1024])
    table.data_location = TensorProto.EXTERNAL
    for key, value in (("location", "table.bin"), ("offset", "0"), ("length", str(rows * 4096))):
        table.external_data.add(key=key, value=value)
    proto.graph.initializer.append(numpy_helper.from_array(np.ones(1024, np.float32), "one"))
    with (tmp_path / "table.bin").open("wb") as file:
        file.truncate(rows * 4096)
    (tmp_path / "huge.onnx").write_bytes(proto.SerializeToString())

    loaded = lg.load(tmp_path / "huge.onnx")
    changed = loaded.replace_weight("one", np.full(1024, 7, np.float32))
    with pytest.raises(lg.ExportError, match="bytes of weights in one message"):
        lg.to_onnx(changed.outputs)
    lg.save(changed.outputs, tmp_path / "again.onnx")
    found = open_session(tmp_path / "again.onnx").run(None, {"x": np.array([rows - 1])})[0]
    assert found.tolist() == [[7.0] * 1024]


@pytest.mark.skipif(os.name != "posix", reason="links")
def test_a_weights_file_with_a_second_name_is_read(pair: Path) -> None:
    """Stores that keep one copy of equal files make hard links; onnx refuses them, onnxruntime and lazygraph do not."""
    os.link(pair.parent / "weights.bin", pair.parent / "store.bin")
    assert lg.realize(lg.load(pair).outputs["y"], {"x": np.ones((1, 1024), np.float32)})[0, 0] == 512


@pytest.mark.skipif(os.name != "posix", reason="links")
def test_a_link_in_the_models_folder_is_somebodys_own_doing_and_the_file_cannot_make_one(pair: Path) -> None:
    """Hubs keep weights as links. A model file names files only, and plain ones: it cannot lead out by itself."""
    away = pair.parent / "elsewhere"
    away.mkdir()
    (pair.parent / "weights.bin").rename(away / "weights.bin")
    (pair.parent / "weights.bin").symlink_to(away / "weights.bin")
    assert lg.realize(lg.load(pair).outputs["y"], {"x": np.ones((1, 1024), np.float32)})[0, 0] == 512
    (away / "weights.bin").unlink()
    with pytest.raises(lg.LoadError, match=r"'weights\.bin' does not exist") as caught:
        lg.load(pair)
    assert caught.value.operands["looked at"] == str(pair.parent / "weights.bin")
