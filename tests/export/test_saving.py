"""Files are written whole or not at all, weights beside the model, and the pair works wherever it is moved."""

from __future__ import annotations

import errno
import os
import resource
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest

import lazygraph as lg
from lazygraph.export import open_session, save, to_onnx
from lazygraph.export.weights import LARGE, LINE, PAGE

X = np.ones((1, 512), np.float32)


def program(value: float, load: Callable[[], np.ndarray] | None = None) -> lg.Tensor:
    """Return a program that multiplies by a weight of 1 MiB: every result is 512 times ``value``."""
    x = lg.input("x", lg.float32, ["n", 512])
    array = lg.LazyArray("float32", (512, 512), load or (lambda: np.full((512, 512), value, np.float32)), name="w")
    bias = x.const(lg.LazyArray("float32", (512,), lambda: np.zeros(512, np.float32)), "bias")
    return x @ x.const(array, "w") + bias


def result(path: Path) -> float:
    return float(open_session(path).run(None, {"x": X})[0][0, 0])


def files(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir())


def weights_file(folder: Path) -> Path:
    (found,) = folder.glob("*.data")
    return found


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A saved pair that multiplies by 2."""
    path = tmp_path / "model.onnx"
    save({"y": program(2.0)}, path, external=True)
    assert len(files(tmp_path)) == 2
    return path


# ---- where weights go ----


def test_small_models_are_one_file(tmp_path: Path) -> None:
    save(program(3.0), tmp_path / "model.onnx")
    assert files(tmp_path) == ["model.onnx"]
    assert result(tmp_path / "model.onnx") == 3 * 512


def test_weights_that_sum_to_more_than_50_mb_go_to_one_file_of_their_own(tmp_path: Path) -> None:
    x = lg.input("x", lg.float32, ["n", 512])
    y = x
    for k in range(60):  # 1 MiB each
        array = np.zeros((512, 512), np.float32)
        array[0, 0] = k + 1
        y = y @ x.const(array, f"w{k}")
    save(y, tmp_path / "model.onnx")
    assert len(files(tmp_path)) == 2
    assert weights_file(tmp_path).stat().st_size == 60 * 2**20
    shutil.rmtree(tmp_path / "none", ignore_errors=True)
    (tmp_path / "inside").mkdir()
    save(y, tmp_path / "inside" / "model.onnx", external=False)
    assert files(tmp_path / "inside") == ["model.onnx"]


def test_the_returned_model_is_the_one_in_the_file(tmp_path: Path) -> None:
    written = save(program(1.0), tmp_path / "model.onnx", external=True)
    assert written == onnx.load(tmp_path / "model.onnx", load_external_data=False)
    onnx.checker.check_model(tmp_path / "model.onnx", full_check=True)


def test_offsets_are_aligned_and_small_weights_stay_inside(tmp_path: Path) -> None:
    x = lg.input("x", lg.float32, ["n", 300])
    sizes = [300, 300 * 300, 301, 5, 300 * 299]
    parts = [x.const(np.arange(size, dtype=np.float32) + k, f"w{k}") for k, size in enumerate(sizes)]
    total = x
    for part in parts:
        total = total + lg.reduce_sum(part, keepdims=False)
    written = save(total, tmp_path / "model.onnx", external=True)
    inside = {t.name for t in written.graph.initializer if t.data_location != onnx.TensorProto.EXTERNAL}
    assert "w3" in inside
    for tensor in written.graph.initializer:
        entries = {entry.key: entry.value for entry in tensor.external_data}
        if entries:
            assert entries["location"] == weights_file(tmp_path).name
            assert int(entries["offset"]) % (PAGE if int(entries["length"]) >= LARGE else LINE) == 0
    loaded = {t.name: onnx.numpy_helper.to_array(t) for t in onnx.load(tmp_path / "model.onnx").graph.initializer}
    for k, size in enumerate(sizes):
        assert (loaded[f"w{k}"] == np.arange(size, dtype=np.float32) + k).all()


def test_equal_weights_are_stored_once_in_the_file(tmp_path: Path) -> None:
    x = lg.input("x", lg.float32, ["n", 512])
    same = [lg.LazyArray("float32", (512, 512), lambda: np.eye(512, dtype=np.float32)) for _ in range(3)]
    y = x
    for k, array in enumerate(same):
        y = y @ x.const(array, f"w{k}")
    written = save(y, tmp_path / "model.onnx", external=True)
    assert weights_file(tmp_path).stat().st_size == 2**20
    assert [tensor.name for tensor in written.graph.initializer] == ["w0"]
    assert open_session(tmp_path / "model.onnx").run(None, {"x": X})[0].tolist() == X.tolist()


@pytest.mark.parametrize(
    "dtype",
    [
        "bfloat16",
        "float8_e4m3fn",
        "float8_e5m2",
        "int4",
        "uint4",
        "int2",
        "uint2",
        "float4_e2m1fn",
        "bool",
        "complex64",
    ],
)
@pytest.mark.parametrize("external", [False, True])
def test_every_element_type_is_stored_as_onnx_reads_it(tmp_path: Path, dtype: str, external: bool) -> None:
    kind = np.dtype(getattr(ml_dtypes, dtype, None) or dtype)
    low = -1 if dtype.startswith("int") else 0
    array = (np.arange(8193) % 2 + low).astype(kind) if kind.kind != "b" else np.arange(8193) % 3 == 0
    x = lg.input("x", lg.float32, [1])
    save({"y": x, "w": x.const(array, "weight")}, tmp_path / "m.onnx", external=external, target=None)
    tensor = next(t for t in onnx.load(tmp_path / "m.onnx").graph.initializer if t.name == "weight")
    assert tuple(tensor.dims) == array.shape
    stored = onnx.numpy_helper.to_array(tensor)
    assert (stored.astype(np.complex64) == array.astype(np.complex64)).all()


def test_texts_are_stored(tmp_path: Path) -> None:
    x = lg.input("x", lg.string, [2])
    y = lg.equal(x, x.const(np.array(["ä", "b"], object), "names"))
    save(y, tmp_path / "m.onnx", external=True)
    found = open_session(tmp_path / "m.onnx").run(None, {"x": np.array(["ä", "c"], object)})[0]
    assert found.tolist() == [True, False]


def test_a_graph_without_large_weights_has_no_weights_file(tmp_path: Path) -> None:
    x = lg.input("x", lg.float32, [1])
    save(x + 1.0, tmp_path / "m.onnx", external=True)
    assert files(tmp_path) == ["m.onnx"]


# ---- the name of the weights file ----


@pytest.mark.parametrize(
    "location",
    ["", ".", "..", "../evil.data", "/abs/x", "sub/x", "sub\\x", "C:\\x", "C:x", "model.onnx", "MODEL.onnx", "a\0b"],
)
def test_a_weights_file_outside_the_folder_is_refused(tmp_path: Path, location: str) -> None:
    with pytest.raises(lg.OperandError, match="cannot be the weights file"):
        save(program(1.0), tmp_path / "model.onnx", external=location)
    assert files(tmp_path) == []


def test_a_plain_name_is_taken(tmp_path: Path) -> None:
    save(program(4.0), tmp_path / "model.onnx", external="weights.bin")
    assert files(tmp_path) == ["model.onnx", "weights.bin"]
    save(program(4.0), tmp_path / "model.onnx", external="weights.bin")
    assert result(tmp_path / "model.onnx") == 4 * 512


def test_a_given_name_that_exists_with_other_content_is_refused(tmp_path: Path) -> None:
    save(program(4.0), tmp_path / "model.onnx", external="weights.bin")
    with pytest.raises(lg.OperandError, match="exists with other content"):
        save(program(5.0), tmp_path / "model.onnx", external="weights.bin")
    assert files(tmp_path) == ["model.onnx", "weights.bin"]
    assert result(tmp_path / "model.onnx") == 4 * 512


def test_links_are_replaced_and_never_followed(tmp_path: Path, model: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kept.onnx").write_bytes(b"kept")
    link = tmp_path / "link.onnx"
    link.symlink_to(outside / "kept.onnx")
    save(program(3.0), link)
    assert not link.is_symlink()
    assert (outside / "kept.onnx").read_bytes() == b"kept"
    with pytest.raises(lg.OperandError):
        (tmp_path / "w.bin").symlink_to(outside / "kept.onnx")
        save(program(3.0), link, external="w.bin")
    assert (outside / "kept.onnx").read_bytes() == b"kept"


# ---- wherever it is ----


def test_the_pair_runs_from_any_folder_and_after_a_move(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir("/")
    assert result(model) == 2 * 512
    moved = model.parent.with_name("moved")
    model.parent.rename(moved)
    assert result(moved / "model.onnx") == 2 * 512
    monkeypatch.chdir(moved)
    assert result(Path("model.onnx")) == 2 * 512
    save(program(6.0), "model.onnx", external=True)
    assert result(Path("model.onnx")) == 6 * 512


def test_a_missing_weights_file_is_named_with_its_model(model: Path) -> None:
    data = weights_file(model.parent)
    data.unlink()
    with pytest.raises(lg.ExportError) as caught:
        open_session(model)
    assert str(model) in str(caught.value)
    assert str(data) in str(caught.value)
    assert "is missing" in str(caught.value)


def test_a_weights_file_that_is_too_short_is_named(model: Path) -> None:
    os.truncate(weights_file(model.parent), 1000)
    with pytest.raises(lg.ExportError, match="is too short"):
        open_session(model)


# ---- whole or not at all ----


def test_saving_again_replaces_the_pair_and_removes_the_old_weights(model: Path) -> None:
    before = weights_file(model.parent).name
    save(program(3.0), model, external=True)
    assert weights_file(model.parent).name != before
    assert result(model) == 3 * 512
    save(program(1.0), model)
    assert files(model.parent) == ["model.onnx"]


def test_a_weights_file_of_another_model_is_left_alone(model: Path) -> None:
    other = model.with_name("model2.onnx")
    save(program(2.0), other, external=True)
    save(program(3.0), model, external=True)
    assert result(other) == 2 * 512


class Stop(BaseException):
    pass


def _raise(error: BaseException) -> Callable[..., Any]:
    def fail(*_: Any, **__: Any) -> Any:
        raise error

    return fail


FULL = OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize("external", [True, False])
@pytest.mark.parametrize("error", [RuntimeError("bad disk"), KeyboardInterrupt(), Stop(), FileNotFoundError("gone")])
def test_a_weight_that_cannot_be_read_leaves_the_old_pair(model: Path, error: BaseException, external: bool) -> None:
    before = files(model.parent)
    expected = lg.WeightsError if isinstance(error, OSError) else type(error)
    with pytest.raises(expected):
        save(program(9.0, _raise(error)), model, external=external)
    assert files(model.parent) == before
    assert result(model) == 2 * 512


@pytest.mark.parametrize("call", ["fsync", "replace"])
@pytest.mark.parametrize("nth", [1, 2])
@pytest.mark.parametrize("error", [FULL, KeyboardInterrupt(), Stop()])
def test_a_failure_of_the_disk_leaves_the_old_pair(
    model: Path, monkeypatch: pytest.MonkeyPatch, call: str, nth: int, error: BaseException
) -> None:
    before = files(model.parent)
    real, count = getattr(os, call), [0]

    def failing(*args: Any) -> Any:
        count[0] += 1
        if count[0] == nth:
            raise error
        return real(*args)

    with monkeypatch.context() as patched:
        patched.setattr(os, call, failing)
        with pytest.raises(lg.ExportError if error is FULL else type(error)):
            save(program(9.0), model, external=True)
    assert files(model.parent) == before
    assert result(model) == 2 * 512


def test_a_full_disk_is_an_error_that_names_the_file(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", _raise(FULL))
    with pytest.raises(lg.ExportError, match=r"model\.onnx.* cannot be written: No space left on device"):
        save(program(9.0), model, external=True)


def test_a_progress_callback_that_raises_stops_the_save(model: Path) -> None:
    before = files(model.parent)
    with pytest.raises(Stop):
        save(program(9.0), model, external=True, progress=_raise(Stop()))
    assert files(model.parent) == before


def test_progress_counts_bytes(tmp_path: Path) -> None:
    seen: list[tuple[str, int, int]] = []
    save(program(1.0), tmp_path / "m.onnx", external=True, progress=lambda *step: seen.append(step))
    assert [name for name, _, _ in seen] == ["bias", "w"] or [name for name, _, _ in seen] == ["w", "bias"]
    assert seen[-1][1:] == (2**20 + 2048, 2**20 + 2048)


def test_a_source_that_breaks_its_promise_is_refused(tmp_path: Path) -> None:
    with pytest.raises(lg.WeightsError, match="promised float32 and holds float64"):
        save(program(1.0, lambda: np.zeros((512, 512))), tmp_path / "m.onnx", external=True)
    assert files(tmp_path) == []


def test_no_folder_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(lg.ExportError, match="cannot be written: No such file"):
        save(program(1.0), tmp_path / "none" / "m.onnx")
    with pytest.raises(lg.OperandError, match="names no file"):
        save(program(1.0), tmp_path)


# ---- 2 GiB ----

ROWS = 2**19  # of 1,024 float32: 2 GiB


def _huge() -> lg.Tensor:
    x = lg.input("x", lg.int64, ["n"])
    parts = []
    for k in range(4):

        def load(k: int = k) -> np.ndarray:
            array = np.zeros((ROWS // 4 + 1, 1024), np.float32)
            array[:, 0] = k
            return array

        parts.append(lg.gather(x.const(lg.LazyArray("float32", (ROWS // 4 + 1, 1024), load), f"w{k}"), x))
    return parts[0] + parts[1] + parts[2] + parts[3]


@pytest.mark.parametrize("write", [lambda p: to_onnx(_huge()), lambda p: save(_huge(), p, external=False)])
def test_more_than_2_gib_in_one_message_is_refused_before_anything_is_written(
    tmp_path: Path, write: Callable[[Path], object]
) -> None:
    with pytest.raises(lg.ExportError, match=r"2,147,500,032 bytes of weights in one message"):
        write(tmp_path / "m.onnx")
    assert files(tmp_path) == []


@pytest.mark.slow
def test_more_than_2_gib_streams_one_weight_at_a_time(tmp_path: Path) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    save(_huge(), tmp_path / "m.onnx")
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 2**10
    assert grown < 900, f"{grown:.0f} MiB more at the peak, for weights of 512 MiB each"
    found = open_session(tmp_path / "m.onnx").run(None, {"x": np.array([5])})[0]
    assert found[0, :2].tolist() == [0 + 1 + 2 + 3, 0]
