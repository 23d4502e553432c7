"""Opening exports and states: what is missing, broken, tampered with or foreign is refused, naming it."""

from __future__ import annotations

import json
import re
import shutil
import struct
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.numpy import load_file

import lazygraph as lg
from lazygraph.export import state
from lazygraph.export.manifest import fingerprint, read_manifest
from lazygraph.memory import Memory

GOLDENS = Path(__file__).parents[1] / "goldens"
CAPACITY = 150
Edit = Callable[[dict[str, Any]], object]


@pytest.fixture(scope="session")
def exports(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("states")
    for name in ("llama", "qwen3"):
        lg.convert(GOLDENS / name, folder / name, max_seq_len=CAPACITY)
    return {name: folder / name for name in ("llama", "qwen3")}


@pytest.fixture
def export(exports: dict[str, Path], tmp_path: Path) -> Path:
    """Return an export that the test may spoil."""
    return Path(shutil.copytree(exports["llama"], tmp_path / "export"))


def opened(folder: Path) -> lg.Decoder:
    return lg.Decoder.open(folder, threads=1)


def refused(folder: Path, what: str) -> lg.ExportError:
    with pytest.raises(lg.ExportError) as caught:
        opened(folder)
    assert type(caught.value) is lg.ExportError and caught.value.op == "open"
    assert re.search(what, caught.value.what), caught.value.what
    return caught.value


# ---- the manifest ----


def test_a_folder_that_is_none_or_holds_no_manifest(export: Path) -> None:
    caught = refused(export / "nowhere", "no manifest.json in ")
    assert str(caught) == (
        f"open: no manifest.json in {export / 'nowhere'}\n"
        "  expected : a folder that `lazygraph export` wrote\n"
        "  hint     : there is no such folder\n"
        f"  at       : {caught.at}"
    )
    (export / "manifest.json").unlink()
    assert refused(export, "no manifest.json in ").hint == ""
    refused(export / "model.onnx", "cannot be read")


@pytest.mark.parametrize(
    "text", ["", "{", '{"format": 1', "[" * 100_000, "\xff\xfe".encode("latin-1"), b"\x00\x01"], ids=range(6)
)
def test_a_manifest_that_is_no_json(export: Path, text: str | bytes) -> None:
    (export / "manifest.json").write_bytes(text if isinstance(text, bytes) else text.encode())
    refused(export, "manifest.json cannot be read: ")


@pytest.mark.parametrize(
    ("text", "shown"),
    [("[]", "'list'"), ("null", "'NoneType'"), ("{}", "None"), ('{"format": 1}', "1"), ('{"format": "2"}', "'2'")],
)
def test_a_manifest_of_another_format(export: Path, text: str, shown: str) -> None:
    (export / "manifest.json").write_text(text)
    caught = refused(export, f"manifest.json is of format {shown}")
    assert caught.expected == "format 2"
    assert ("export it again" in caught.hint) == (shown == "1")


def edited(export: Path, edit: Edit) -> None:
    place = export / "manifest.json"
    listed = json.loads(place.read_text())
    edit(listed)
    place.write_text(json.dumps(listed))


@pytest.mark.parametrize(
    ("edit", "what"),
    [
        (lambda m: m.pop("vocab_size"), "incomplete"),
        (lambda m: m.pop("memory"), "incomplete"),
        (lambda m: m.pop("fingerprint"), "incomplete"),
        (lambda m: m.update(memory=[{"slot": "k"}]), "incomplete"),
        (lambda m: m.update(memory=5), "incomplete"),
        (lambda m: m["memory"][0].update(dtype="float23"), "incomplete"),
        (lambda m: m["memory"][0].update(trailing=["a"]), "incomplete"),
        (lambda m: m["memory"][0].update(capacity=1.5), "incomplete"),
        (lambda m: m["memory"][0].update(source=5), "incomplete"),
        (lambda m: m.update(stop_ids=None), "incomplete"),
        (lambda m: m.update(vocab_size="160"), "vocab_size is '160'"),
        (lambda m: m.update(max_seq_len=0), "max_seq_len is 0"),
        (lambda m: m.update(max_seq_len=1.5), "max_seq_len is 1.5"),
        (lambda m: m.update(lowering="heap"), "lowering is 'heap'"),
        (lambda m: m.update(copied=[]), "copied is \\[\\]"),
        (lambda m: m.update(batch=1), "batch is 1"),
        (lambda m: m.update(memory=[]), "memory is \\[\\]"),
        (lambda m: m["memory"][0].update(trailing=[2, 0]), "memory of past.0.k is "),
        (lambda m: m["memory"][0].update(layer=-1), "memory of past.0.k is "),
        (lambda m: m["memory"][0].update(kind="heap"), "memory of past.0.k is "),
        (lambda m: m["memory"][0].update(capacity=149), "memory of past.0.k is "),
        (lambda m: m["memory"][0].update(target=""), "memory of past.0.k is "),
        (lambda m: m["memory"][0].update(kind="once"), "memory of past.0.k is "),
        (lambda m: m["memory"][0].update(kind="window", window=3, sinks=1, capacity=5), "memory of past.0.k is "),
        # well formed, and not this model's: memory is bound by what the manifest says
        (lambda m: m.update(vocab_size=159), "disagree about logits"),
        (lambda m: m.update(vocab_size=161), "disagree about logits"),
        (lambda m: m["memory"].pop(), "disagree about past.2.v"),
        (lambda m: m["memory"].append({**m["memory"][0], "source": "past.3.k"}), "names present.0.k twice"),
        (lambda m: m["memory"].append(m["memory"][0]), "names past.0.k twice"),
        (lambda m: m["memory"][0].update(trailing=[2, 13]), "disagree about past.0.k"),
        (lambda m: m["memory"][0].update(trailing=[24]), "disagree about past.0.k"),
        (lambda m: m["memory"][1].update(dtype="float16"), "disagree about past.0.v"),
        (lambda m: m["memory"][1].update(source="past.0.w"), "disagree about past.0.w"),
        (lambda m: m["memory"][1].update(target="present.0.w"), "disagree about present.0.w"),
    ],
)
def test_a_manifest_that_does_not_describe_the_model(export: Path, edit: Edit, what: str) -> None:
    edited(export, edit)
    refused(export, what)


def test_an_export_of_several_texts_is_no_decoders(export: Path) -> None:
    edited(export, lambda m: m.update(batch=True))
    with pytest.raises(lg.OperandError) as caught:
        opened(export)
    assert caught.value.what == "the export runs several texts at once"
    assert caught.value.expected == "lg.BatchDecoder for it"


def test_the_message_of_a_manifest_that_does_not_describe_the_model(export: Path) -> None:
    edited(export, lambda m: m["memory"][0].update(trailing=[2, 13]))
    caught = refused(export, "disagree")
    assert str(caught) == (
        "open: the manifest and the model disagree about past.0.k\n"
        "  manifest : float32 [None, 2, 13]\n"
        "  model    : tensor(float) ['rows', 2, 12]\n"
        "  expected : the two files as one export wrote them\n"
        "  hint     : export it again\n"
        f"  at       : {caught.at}"
    )


def test_a_model_that_is_missing_or_was_changed(export: Path) -> None:
    model = export / "model.onnx"
    was = fingerprint(model)
    changed = onnx.load(model, load_external_data=False)
    changed.doc_string = "tampered"
    onnx.save(changed, model)
    caught = refused(export, "model.onnx is not the file that the manifest describes")
    assert (caught.expected, caught.hint) == (f"SHA-256 {was}", "export it again")
    model.write_bytes(model.read_bytes()[:100])
    refused(export, "is not the file that the manifest describes")
    model.unlink()
    refused(export, "no model.onnx in ")


def test_weights_that_are_missing_or_too_short(export: Path) -> None:
    (weights,) = export.glob("*.data")
    content = weights.read_bytes()
    weights.write_bytes(content[:1000])
    refused(export, "is too short")
    weights.unlink()
    refused(export, "is missing")


def test_a_manifest_says_again_what_it_was_made_of(exports: dict[str, Path]) -> None:
    manifest = read_manifest(exports["llama"])
    assert json.loads(manifest.to_json()) == json.loads((exports["llama"] / "manifest.json").read_text())
    assert manifest.memory == tuple(
        Memory(f"past.{i}.{slot}", f"present.{i}.{slot}", i, slot, "rows", "float32", (2, 12), CAPACITY)
        for i in range(3)
        for slot in "kv"
    )
    assert (manifest.vocab_size, manifest.max_seq_len, manifest.max_position, manifest.n_layers) == (
        160,
        CAPACITY,
        256,
        3,
    )
    assert manifest.bytes_per_token == 3 * 2 * 24 * 4 and manifest.copied == {}


# ---- the state ----


@pytest.fixture
def golden() -> dict[str, Any]:
    facts = load_file(GOLDENS / "llama" / "golden.safetensors")
    return {"tokens": facts["tokens"].tolist(), "logits": facts["logits"]}


@pytest.mark.parametrize("length", [0, 1, 9, 20])
def test_a_restored_decoder_goes_on_as_the_saved_one(
    exports: dict[str, Path], golden: dict[str, Any], tmp_path: Path, length: int
) -> None:
    decoder = opened(exports["llama"])
    if length:
        decoder.append(golden["tokens"][:20])
        decoder.truncate(length)
    decoder.save(tmp_path / "state")
    other = lg.Decoder.restore(exports["llama"], tmp_path / "state", threads=1)
    assert other.length == length == decoder.length
    for one in (decoder, other):
        got = one.append(golden["tokens"][length:32])
        np.testing.assert_allclose(got, golden["logits"][length:32], rtol=0, atol=1e-4)
    other.truncate(3)
    np.testing.assert_allclose(other.append(golden["tokens"][3:5]), golden["logits"][3:5], rtol=0, atol=1e-4)
    assert [file.name for file in tmp_path.iterdir()] == ["state"]


def test_a_full_cache_is_saved_whole(exports: dict[str, Path], tmp_path: Path) -> None:
    decoder = opened(exports["llama"])
    decoder.append([3] * CAPACITY)
    decoder.save(tmp_path / "state")
    other = lg.Decoder.restore(exports["llama"], tmp_path / "state")
    assert other.length == CAPACITY
    with pytest.raises(lg.CacheOverflowError):
        other.append([1])
    other.truncate(CAPACITY - 1)
    decoder.truncate(CAPACITY - 1)
    np.testing.assert_allclose(other.append([5]), decoder.append([5]), rtol=0, atol=1e-5)


def test_the_file_is_safetensors_with_the_rows_that_count(exports: dict[str, Path], tmp_path: Path) -> None:
    decoder = opened(exports["llama"])
    decoder.append([1, 2, 3, 4, 5, 6])
    decoder.truncate(4)
    decoder.save(tmp_path / "state")
    tensors = load_file(tmp_path / "state")
    assert sorted(tensors) == sorted(f"past.{layer}.{slot}" for layer in range(3) for slot in "kv")
    assert all(array.shape == (4, 2, 12) and array.dtype == np.float32 and array.any() for array in tensors.values())
    with safe_open(tmp_path / "state", "numpy") as file:
        facts = file.metadata()
    assert facts["length"] == "4" and facts["fingerprint"] == decoder.manifest.fingerprint
    size = (tmp_path / "state").stat().st_size
    assert size < 4 * decoder.manifest.bytes_per_token + 2000


def test_saving_replaces_an_older_state_and_text_paths_will_do(exports: dict[str, Path], tmp_path: Path) -> None:
    decoder = opened(exports["llama"])
    decoder.save(str(tmp_path / "state"))
    decoder.append([1, 2])
    decoder.save(str(tmp_path / "state"))
    assert lg.Decoder.restore(str(exports["llama"]), str(tmp_path / "state"), provider="cpu").length == 2


def test_a_state_that_cannot_be_written_leaves_the_older_one(
    exports: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    decoder = opened(exports["llama"])
    for place in (tmp_path / "nowhere" / "state", tmp_path):
        with pytest.raises(lg.ExportError, match="cannot be written"):
            decoder.save(place)
    place = tmp_path / "state"
    decoder.append([1, 2])
    decoder.save(place)
    before = place.read_bytes()
    decoder.append([3])

    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    def interrupted(handle: int) -> None:
        raise KeyboardInterrupt

    for stop, error in ((full, lg.ExportError), (interrupted, KeyboardInterrupt)):
        monkeypatch.setattr("os.fsync", stop)
        with pytest.raises(error):
            decoder.save(place)
        monkeypatch.undo()
        assert place.read_bytes() == before and [file.name for file in tmp_path.iterdir()] == ["state"]
    assert decoder.length == 3


def restore_refused(folder: Path, place: Path, what: str) -> lg.ExportError:
    before = place.read_bytes() if place.is_file() else b""
    with pytest.raises(lg.ExportError) as caught:
        lg.Decoder.restore(folder, place, threads=1)
    assert type(caught.value) is lg.ExportError and caught.value.op == "restore"
    assert re.search(what, caught.value.what), caught.value.what
    assert (place.read_bytes() if place.is_file() else b"") == before
    return caught.value


def test_the_state_of_another_model_is_refused(exports: dict[str, Path], tmp_path: Path) -> None:
    decoder = opened(exports["qwen3"])
    decoder.append([1, 2])
    decoder.save(tmp_path / "state")
    caught = restore_refused(exports["llama"], tmp_path / "state", "is the state of another model")
    llama, qwen = (read_manifest(exports[name]).fingerprint for name in ("llama", "qwen3"))
    assert str(caught) == (
        f"restore: {tmp_path / 'state'} is the state of another model\n"
        f"  file     : qwen3, model.onnx {qwen}\n"
        f"  folder   : llama, model.onnx {llama}\n"
        "  expected : the export whose decoder was saved\n"
        "  hint     : a new export of the same checkpoint is another model: read the tokens again\n"
        f"  at       : {caught.at}"
    )


def test_a_state_that_is_missing_or_something_else_is_refused(exports: dict[str, Path], tmp_path: Path) -> None:
    folder = exports["llama"]
    restore_refused(folder, tmp_path / "nothing", "cannot be read: No such file")
    restore_refused(folder, tmp_path, "cannot be read: Is a directory")
    restore_refused(folder, GOLDENS / "llama" / "model.safetensors", "is no decoder's state")
    restore_refused(folder, GOLDENS / "llama" / "config.json", "is damaged: it has no header")
    for content, what in (
        (b"", "it has no header"),
        (b"\x00" * 7, "it has no header"),
        (b"\xff" * 8, "it has no header"),
        (struct.pack("<Q", 2) + b"{", "it is too short"),
        (struct.pack("<Q", 2) + b"{]", "its header is not JSON"),
        (struct.pack("<Q", 2) + b"[]", "its header is no table"),
        (struct.pack("<Q", 100_000) + b"[" * 100_000, "its header is not JSON"),
        (struct.pack("<Q", 2) + b"{}", "is no decoder's state"),
    ):
        (tmp_path / "file").write_bytes(content)
        restore_refused(folder, tmp_path / "file", what)


@pytest.fixture(scope="session")
def saved(exports: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("saved") / "state"
    decoder = opened(exports["llama"])
    decoder.append([1, 2, 3, 4, 5])
    decoder.save(place)
    return place


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_damage_is_noticed(exports: dict[str, Path], saved: Path, tmp_path: Path, data: st.DataObject) -> None:
    content = bytearray(saved.read_bytes())
    header = 8 + struct.unpack("<Q", content[:8])[0]
    kind = data.draw(st.sampled_from(["short", "long", "row", "header"]))
    if kind == "short":
        del content[data.draw(st.integers(0, len(content) - 1)) :]
    elif kind == "long":
        content += data.draw(st.binary(min_size=1, max_size=9))
    else:
        low, high = (header, len(content)) if kind == "row" else (0, header)
        place = data.draw(st.integers(low, high - 1))
        content[place] ^= data.draw(st.integers(1, 255))
    spoilt = tmp_path / "spoilt"
    spoilt.write_bytes(content)
    manifest = read_manifest(exports["llama"])
    wanted = state.read_state(saved, manifest)
    try:
        got = state.read_state(spoilt, manifest)
    except lg.ExportError as error:
        assert error.op == "restore"
    else:
        # only a change that says the same: a space, or the name that people read
        assert kind == "header" and (got.lengths, got.held) == (wanted.lengths, wanted.held)
        assert all((got.contents[name] == wanted.contents[name]).all() for name in wanted.contents)


@pytest.mark.parametrize("length", ["-1", "151", "4", "6", "5.0", "x", "", "9" * 30])
def test_a_length_that_does_not_fit_is_damage(
    exports: dict[str, Path], saved: Path, tmp_path: Path, length: str
) -> None:
    content = saved.read_bytes()
    size = struct.unpack("<Q", content[:8])[0]
    header = json.loads(content[8 : 8 + size])
    header["__metadata__"]["length"] = length
    text = json.dumps(header).encode()
    (tmp_path / "file").write_bytes(struct.pack("<Q", len(text)) + text + content[8 + size :])
    restore_refused(exports["llama"], tmp_path / "file", "its header does not fit the model")


def test_states_keep_element_types_that_numpy_lacks(exports: dict[str, Path], tmp_path: Path) -> None:
    memory = (
        Memory("past.0.c", "present.0.c", 0, "c", "rows", "bfloat16", (3,), CAPACITY),
        Memory("past.0.s", "present.0.s", 0, "s", "rows", "float8_e5m2", (), CAPACITY),
    )
    manifest = replace(read_manifest(exports["llama"]), memory=memory)
    rows = {
        "past.0.c": np.arange(12, dtype=np.uint8).reshape(1, 2, 6),
        "past.0.s": np.arange(2, dtype=np.uint8).reshape(1, 2, 1),
    }
    state.write_state(tmp_path / "state", manifest, [2], {}, lambda: [(slot, rows[slot.source]) for slot in memory])
    got = state.read_state(tmp_path / "state", manifest)
    assert got.lengths == (2,) and got.contents.keys() == rows.keys()
    assert all((got.contents[name] == rows[name]).all() for name in rows)
    with safe_open(tmp_path / "state", "numpy") as file:
        assert {name: file.get_slice(name).get_dtype() for name in rows} == {"past.0.c": "BF16", "past.0.s": "F8_E5M2"}
        assert file.get_slice("past.0.c").get_shape() == [2, 3]


def test_restoring_needs_a_whole_export_too(export: Path, saved: Path) -> None:
    (export / "model.onnx").unlink()
    with pytest.raises(lg.ExportError, match=r"no model\.onnx"):
        lg.Decoder.restore(export, saved)
    (export / "manifest.json").unlink()
    with pytest.raises(lg.ExportError, match=r"no manifest\.json"):
        lg.Decoder.restore(export, saved)
