"""Several models over one weights file: each weight once, every model runs, all the files are written or none."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any, cast

import numpy as np
import onnx
import pytest

import lazygraph as lg
from lazygraph.export import open_session
from lazygraph.export.files import Draft

TRUNK = np.random.default_rng(0).normal(size=(16, 64)).astype(np.float32)
HEADS = [np.random.default_rng(k).normal(size=(64, 8)).astype(np.float32) for k in (1, 2)]
X = np.random.default_rng(3).normal(size=(3, 16)).astype(np.float32)


def heads(scale: float = 1.0) -> dict[str, dict[str, lg.Tensor]]:
    """Two heads on one trunk, built apart: their trunks are different arrays of equal numbers."""
    made = {}
    for name, head in zip(("score.onnx", "rank.onnx"), HEADS, strict=True):
        x = lg.input("x", lg.float32, ["n", 16])
        h = lg.tanh(x @ x.const(TRUNK.copy() * np.float32(scale), "trunk"))
        made[name] = {"y": h @ x.const(head, "head")}
    return made


def run(path: Path) -> np.ndarray[Any, Any]:
    found: np.ndarray[Any, Any] = open_session(path).run(None, {"x": X})[0]
    return found


def listing(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir()}


def test_heads_share_their_trunk_in_one_file(tmp_path: Path) -> None:
    protos = lg.save_all(heads(), tmp_path)
    (data,) = tmp_path.glob("*.data")
    assert sorted(listing(tmp_path)) == sorted([data.name, "rank.onnx", "score.onnx"])
    assert data.name.startswith("shared-")
    assert data.stat().st_size < TRUNK.nbytes + 2 * HEADS[0].nbytes + 3 * 64
    for name, head in zip(("score.onnx", "rank.onnx"), HEADS, strict=True):
        np.testing.assert_allclose(run(tmp_path / name), np.tanh(X @ TRUNK) @ head, rtol=1e-4, atol=1e-4)
        assert onnx.load(tmp_path / name, load_external_data=False) == protos[name]
        onnx.checker.check_model(tmp_path / name, full_check=True)


def test_a_moved_folder_still_runs_from_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a").mkdir()
    lg.save_all(heads(), tmp_path / "a")
    shutil.move(tmp_path / "a", tmp_path / "b")
    monkeypatch.chdir("/")
    assert run(tmp_path / "b" / "rank.onnx").shape == (3, 8)


def test_a_loaded_trunk_is_read_from_its_file_and_stored_once(tmp_path: Path) -> None:
    lg.save(heads()["score.onnx"], tmp_path / "whole.onnx", external=True)
    model = lg.load(tmp_path / "whole.onnx")
    trunk = cast(lg.tensor.Node, model.outputs["y"].origin).inputs[0]
    assert trunk is not None
    lg.save_all({"all.onnx": model.outputs, "trunk.onnx": {"h": trunk}}, tmp_path)
    (data,) = tmp_path.glob("shared-*.data")
    assert data.stat().st_size < TRUNK.nbytes + HEADS[0].nbytes + 2 * 64
    np.testing.assert_allclose(run(tmp_path / "trunk.onnx"), np.tanh(X @ TRUNK), rtol=1e-5, atol=1e-5)


def test_two_weights_of_one_content_in_one_model_are_one(tmp_path: Path) -> None:
    x = lg.input("x", lg.float32, ["n", 16])
    y = x @ x.const(TRUNK, "a") + x @ x.const(TRUNK.copy(), "b")
    lg.save_all({"m.onnx": {"y": y}}, tmp_path)
    assert len(onnx.load(tmp_path / "m.onnx", load_external_data=False).graph.initializer) == 1
    np.testing.assert_allclose(run(tmp_path / "m.onnx"), 2 * X @ TRUNK, rtol=1e-4, atol=1e-4)


def test_models_without_large_weights_have_no_weights_file(tmp_path: Path) -> None:
    x = lg.input("x", lg.float32, ["n", 16])
    lg.save_all({"m.onnx": {"y": x + 1.0}}, tmp_path)
    assert list(listing(tmp_path)) == ["m.onnx"]


def test_saving_again_removes_the_old_weights_that_nobody_else_reads(tmp_path: Path) -> None:
    lg.save_all(heads(), tmp_path)
    (old,) = tmp_path.glob("*.data")
    lg.save_all({"score.onnx": heads(2.0)["score.onnx"]}, tmp_path)
    assert old.exists()  # rank.onnx still reads it
    np.testing.assert_allclose(run(tmp_path / "rank.onnx"), np.tanh(X @ TRUNK) @ HEADS[1], rtol=1e-4, atol=1e-4)
    lg.save_all({"rank.onnx": heads(2.0)["rank.onnx"]}, tmp_path)
    assert not old.exists()
    np.testing.assert_allclose(run(tmp_path / "rank.onnx"), np.tanh(2 * X @ TRUNK) @ HEADS[1], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("fails_at", [0, 1, 2])
def test_a_failure_half_way_leaves_everything_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails_at: int
) -> None:
    lg.save_all(heads(), tmp_path)
    before = listing(tmp_path)
    publish, count = Draft.publish, 0

    def failing(self: Draft, place: Path | None = None) -> None:
        nonlocal count
        count += 1
        if count > fails_at:
            raise OSError(28, "No space left on device")
        publish(self, place)

    monkeypatch.setattr(Draft, "publish", failing)
    with pytest.raises(lg.ExportError, match="No space left"):
        lg.save_all(heads(3.0), tmp_path)
    assert listing(tmp_path) == before


def test_a_model_that_is_refused_writes_none(tmp_path: Path) -> None:
    x = lg.input("x", lg.bfloat16, ["n", 16])
    with pytest.raises(lg.UnsupportedError):
        lg.save_all({**heads(), "third.onnx": {"y": x @ lg.transpose(x)}}, tmp_path)
    assert listing(tmp_path) == {}


@pytest.mark.parametrize("name", ["", "../m.onnx", "/abs.onnx", "sub/m.onnx", ".."])
def test_a_name_outside_the_folder_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(lg.OperandError, match="plain file name"):
        lg.save_all({name: heads()["score.onnx"]}, tmp_path)
    assert os.listdir(tmp_path) == []


def test_what_is_no_set_of_models_is_refused(tmp_path: Path) -> None:
    with pytest.raises(lg.OperandError, match="are no models"):
        lg.save_all({}, tmp_path)
    with pytest.raises(lg.OperandError, match="are no models"):
        lg.save_all(cast(Any, [heads()]), tmp_path)
    with pytest.raises(lg.ExportError, match="is no folder"):
        lg.save_all(heads(), tmp_path / "nowhere")
