"""Tensors of a Hugging Face folder: right numbers, nothing read too early, every broken file named."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from lazygraph.errors import UnsupportedError, WeightsError
from lazygraph.models.safetensors_weights import SafetensorsWeights

_INDEX = "model.safetensors.index.json"


def _write_raw(file: Path, header: object, body: bytes, length: int | None = None) -> None:
    text = json.dumps(header).encode()
    file.write_bytes(struct.pack("<Q", len(text) if length is None else length) + text + body)


def _entry(dtype: str, shape: list[int], begin: int, end: int) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


def _write_index(folder: Path, shard_of: object) -> None:
    (folder / _INDEX).write_text(json.dumps({"weight_map": shard_of}))


def test_every_tensor_of_a_golden_is_what_the_library_reads(goldens: Path) -> None:
    weights = SafetensorsWeights(goldens / "llama")
    oracle = load_file(goldens / "llama" / "model.safetensors")

    assert weights.names() == tuple(sorted(oracle))
    for name, numbers in oracle.items():
        array = weights.array(name)
        assert (array.dtype.name, array.shape) == (numbers.dtype.name, numbers.shape)
        np.testing.assert_array_equal(array.read(), numbers)
    assert weights.main_dtype == "float32"


def test_shards_are_found_through_the_index(goldens: Path) -> None:
    folder = goldens / "deepseek_v2_lite_hub"
    weights = SafetensorsWeights(folder)
    shards = sorted(folder.glob("model-*.safetensors"))
    oracle = {name: numbers for shard in shards for name, numbers in load_file(shard).items()}

    assert len(shards) == 2
    assert weights.names() == tuple(sorted(oracle))
    for name, numbers in oracle.items():
        np.testing.assert_array_equal(weights.array(name).read(), numbers)


def test_a_single_file_of_any_name_is_the_model(tmp_path: Path) -> None:
    save_file({"w": np.arange(3, dtype=np.int64)}, tmp_path / "weights.safetensors")
    assert SafetensorsWeights(tmp_path).array("w").read().tolist() == [0, 1, 2]


def test_links_are_followed_as_in_the_hubs_cache(tmp_path: Path) -> None:
    blobs, snapshot = tmp_path / "blobs", tmp_path / "snapshots" / "abc"
    blobs.mkdir()
    snapshot.mkdir(parents=True)
    save_file({"w": np.arange(3, dtype=np.int64)}, blobs / "f00d")
    (snapshot / "model-1.safetensors").symlink_to("../../blobs/f00d")
    _write_index(snapshot, {"w": "model-1.safetensors"})
    assert SafetensorsWeights(snapshot).array("w").read().tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    ("code", "dtype"),
    [
        ("BOOL", np.bool_),
        ("U8", np.uint8),
        ("I8", np.int8),
        ("I16", np.int16),
        ("U16", np.uint16),
        ("I32", np.int32),
        ("U32", np.uint32),
        ("I64", np.int64),
        ("U64", np.uint64),
        ("F16", np.float16),
        ("F32", np.float32),
        ("F64", np.float64),
        ("C64", np.complex64),
        ("BF16", ml_dtypes.bfloat16),
        ("F8_E4M3", ml_dtypes.float8_e4m3fn),
        ("F8_E5M2", ml_dtypes.float8_e5m2),
        ("F8_E8M0", ml_dtypes.float8_e8m0fnu),
        ("F8_E4M3FNUZ", ml_dtypes.float8_e4m3fnuz),
        ("F8_E5M2FNUZ", ml_dtypes.float8_e5m2fnuz),
    ],
)
def test_each_element_type_comes_as_numpys_or_ml_dtypes(tmp_path: Path, code: str, dtype: Any) -> None:
    numbers = np.array([[0, 1], [1, 0], [1, 1]]).astype(np.float32).astype(dtype)
    body = numbers.tobytes()
    _write_raw(tmp_path / "model.safetensors", {"w": _entry(code, [3, 2], 0, len(body))}, body)

    array = SafetensorsWeights(tmp_path).array("w")
    assert (array.dtype.name, array.shape, array.nbytes) == (np.dtype(dtype).name, (3, 2), len(body))
    assert array.read().dtype == np.dtype(dtype)
    assert array.read().tobytes() == body


def test_block_scaled_float8_is_read_as_stored(goldens: Path) -> None:
    weights = SafetensorsWeights(goldens / "deepseek_v3_fp8")
    weight = weights.array("model.layers.0.mlp.down_proj.weight")
    scale = weights.array("model.layers.0.mlp.down_proj.weight_scale_inv")
    assert weight.read().dtype == ml_dtypes.float8_e4m3fn
    assert np.isfinite(weight.read().astype(np.float32)).all()
    assert scale.read().dtype == np.float32


def test_scalars_and_empty_tensors_keep_their_shapes(tmp_path: Path) -> None:
    save_file({"a": np.array(2.5, np.float32), "b": np.zeros((0, 4), np.float32)}, tmp_path / "model.safetensors")
    weights = SafetensorsWeights(tmp_path)
    assert weights.array("a").read().shape == ()
    assert float(weights.array("a").read()) == 2.5
    assert weights.array("b").read().shape == (0, 4)


def test_nothing_is_read_before_read_and_reading_maps_the_file(tmp_path: Path) -> None:
    file = tmp_path / "model.safetensors"
    save_file({"w": np.arange(4, dtype=np.int32)}, file)
    array = SafetensorsWeights(tmp_path).array("w")

    held = bytearray(file.read_bytes())
    held[-4:] = struct.pack("<i", 77)  # changed after opening, in place
    with file.open("r+b") as stream:
        stream.write(held)
    numbers = array.read()
    assert numbers.tolist() == [0, 1, 2, 77]
    assert not numbers.flags.owndata
    assert not numbers.flags.writeable


def test_an_unaligned_tensor_is_copied_to_alignment(tmp_path: Path) -> None:
    body = b"\x01" + struct.pack("<2i", 5, 6)
    _write_raw(tmp_path / "model.safetensors", {"a": _entry("U8", [1], 0, 1), "w": _entry("I32", [2], 1, 9)}, body)
    numbers = SafetensorsWeights(tmp_path).array("w").read()
    assert numbers.tolist() == [5, 6]
    assert numbers.flags.aligned


def test_equal_keys_mean_the_same_tensor_of_the_same_file(goldens: Path) -> None:
    one, other = SafetensorsWeights(goldens / "llama"), SafetensorsWeights(goldens / "llama")
    name = "model.norm.weight"
    assert one.array(name).key == other.array(name).key
    assert one.array(name).key != SafetensorsWeights(goldens / "qwen3").array(name).key


def test_an_absent_tensor_is_named_with_its_neighbours(goldens: Path) -> None:
    with pytest.raises(WeightsError) as caught:
        SafetensorsWeights(goldens / "llama").array("model.layers.0.self_attn.q_project.weight")
    assert caught.value.missing == ("model.layers.0.self_attn.q_project.weight",)
    assert "model.layers.0.self_attn.q_proj.weight" in str(caught.value)
    assert "test_safetensors_weights.py" in str(caught.value)


def test_packed_four_bit_types_are_listed_and_refused_when_asked_for(tmp_path: Path) -> None:
    header = {"f": _entry("F4", [4], 0, 2), "w": _entry("U8", [1], 2, 3)}
    _write_raw(tmp_path / "model.safetensors", header, b"abc")
    weights = SafetensorsWeights(tmp_path)
    assert weights.names() == ("f", "w")
    assert weights.array("w").read().tolist() == [ord("c")]
    with pytest.raises(UnsupportedError, match="tensor 'f' is F4"):
        weights.array("f")


_GOOD = {"w": _entry("F32", [2], 0, 8)}


@pytest.mark.parametrize(
    ("header", "body", "length", "words"),
    [
        (_GOOD, b"1234", None, "tensor 'w' ends at byte"),  # truncated in the tensor
        (_GOOD, b"", 10**15, "its header claims 1000000000000000 bytes"),
        (_GOOD, b"12345678", 20, "header is not JSON"),  # length too small
        ({"w": _entry("F32", [3], 0, 8)}, b"12345678", None, "invalid shape"),
        (_GOOD, b"123456789abc", None, "not fully covered"),  # bytes that no tensor owns
        ({"w": {"dtype": "F32", "shape": [2]}}, b"12345678", None, "entry of tensor 'w' is malformed"),
        ({"w": _entry("F32", [2], 0, 8), "v": _entry("F32", [2], 4, 12)}, b"123456789abc", None, "invalid offset"),
        ({"w": _entry("F99", [2], 0, 8)}, b"12345678", None, "F99"),
        ([1], b"", None, "not a whole safetensors file"),
    ],
)
def test_a_broken_file_is_refused_when_it_is_opened(
    tmp_path: Path, header: object, body: bytes, length: int | None, words: str
) -> None:
    _write_raw(tmp_path / "model.safetensors", header, body, length)
    with pytest.raises(WeightsError, match=words) as caught:
        SafetensorsWeights(tmp_path)
    assert str(tmp_path / "model.safetensors") in str(caught.value)


@pytest.mark.parametrize("content", [b"", b"1234", b"version https://git-lfs.github.com/spec/v1\noid sha256:00"])
def test_a_file_that_is_something_else_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "model.safetensors").write_bytes(content)
    with pytest.raises(WeightsError, match="not a whole safetensors file"):
        SafetensorsWeights(tmp_path)


def test_a_file_cut_short_after_opening_is_noticed_at_read(tmp_path: Path) -> None:
    file = tmp_path / "model.safetensors"
    save_file({"w": np.arange(1024, dtype=np.int64)}, file)
    array = SafetensorsWeights(tmp_path).array("w")
    file.write_bytes(file.read_bytes()[:100])
    with pytest.raises(WeightsError, match="tensor 'w' cannot be read any more"):
        array.read()


@pytest.mark.parametrize("shard", ["../x.safetensors", "/x.safetensors", "a/../../x", "..\\x", "C:\\x", "", 5, None])
def test_an_index_cannot_lead_out_of_the_folder(tmp_path: Path, shard: object) -> None:
    save_file({"w": np.zeros(1, np.float32)}, tmp_path / "x.safetensors")
    folder = tmp_path / "model"
    folder.mkdir()
    _write_index(folder, {"w": shard})
    with pytest.raises(WeightsError, match="sends tensor 'w' outside its folder"):
        SafetensorsWeights(folder)


def test_an_index_that_names_an_absent_shard_is_refused(tmp_path: Path) -> None:
    _write_index(tmp_path, {"w": "gone.safetensors"})
    with pytest.raises(WeightsError, match=r"shard 'gone.safetensors' of tensor 'w' does not exist"):
        SafetensorsWeights(tmp_path)


def test_a_tensor_that_its_shard_lacks_is_named(tmp_path: Path) -> None:
    save_file({"w": np.zeros(1, np.float32)}, tmp_path / "s.safetensors")
    _write_index(tmp_path, {"w": "s.safetensors", "v": "s.safetensors"})
    with pytest.raises(WeightsError, match="tensor 'v' is not in the shard") as caught:
        SafetensorsWeights(tmp_path)
    assert caught.value.missing == ("v",)


@pytest.mark.parametrize("content", ["{", "[]", '{"weight_map": []}', "{}"])
def test_a_broken_index_is_named(tmp_path: Path, content: str) -> None:
    (tmp_path / _INDEX).write_text(content)
    with pytest.raises(WeightsError, match=r"model\.safetensors\.index\.json"):
        SafetensorsWeights(tmp_path)


def test_an_unclear_or_foreign_folder_says_what_is_there(tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match="no safetensors file"):
        SafetensorsWeights(tmp_path)

    (tmp_path / "pytorch_model.bin").write_bytes(b"")
    with pytest.raises(WeightsError, match=r"pytorch_model\.bin is of a format that is not read"):
        SafetensorsWeights(tmp_path)

    for name in ("a", "b"):
        save_file({name: np.zeros(1, np.float32)}, tmp_path / f"{name}.safetensors")
    with pytest.raises(WeightsError, match="2 files") as caught:
        SafetensorsWeights(tmp_path)
    assert "a.safetensors" in str(caught.value)
    assert "b.safetensors" in str(caught.value)
