"""``lazygraph export`` as a process and in one: what it prints where, its exit codes, what it leaves behind."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from lazygraph.cli import main
from lazygraph.export.decoder import Decoder
from lazygraph.export.files import Draft
from tests.support.checkpoints import random_tensors, shapes, small_config, write_folder

Run = Callable[..., "subprocess.CompletedProcess[str]"]
SUMMARY = ["model", "graph", "weights", "cache", "in place", "files", "took"]


def _snapshot(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in sorted(folder.iterdir())}


def _refused(code: int, stderr: str, stdout: str, *parts: str) -> None:
    assert stdout == ""
    assert "Traceback" not in stderr
    assert stderr.startswith("lazygraph: ")
    assert "  at " not in stderr  # no line of ours is the user's
    for part in parts:
        assert part in stderr
    assert code in (1, 2)


# --- what it prints and writes ---


@pytest.mark.parametrize("model", ["llama", "llama_tied", "qwen3"])
def test_a_golden_is_exported_and_summed_up(lazygraph: Run, goldens: Path, tmp_path: Path, model: str) -> None:
    done = lazygraph("export", goldens / model, "-o", "deep/er/out")
    assert done.returncode == 0
    assert [line[:9].strip() for line in done.stdout.splitlines()] == SUMMARY
    assert f"{'qwen3' if model == 'qwen3' else 'llama'}, from {model} (safetensors float32)" in done.stdout
    assert "bytes per token" in done.stdout
    assert all(line.startswith("note: ") for line in done.stderr.splitlines())
    assert "note: no tokenizer is exported: the folder has no tokenizer.json" in done.stderr

    out = tmp_path / "deep" / "er" / "out"
    names = sorted(file.name for file in out.iterdir())
    assert names[0] == "manifest.json"
    assert names[2] == "model.onnx"
    assert re.fullmatch(r"model-[0-9a-f]{12}\.onnx\.data", names[1])
    assert sorted(out.parent.iterdir()) == [out]
    golden = load_file(goldens / model / "golden.safetensors")
    np.testing.assert_allclose(Decoder.open(out).append(golden["tokens"][:32]), golden["logits"], rtol=0, atol=1e-4)


def test_a_batch_is_exported_when_asked_for(lazygraph: Run, goldens: Path, tmp_path: Path) -> None:
    done = lazygraph("export", goldens / "llama", "-o", tmp_path / "out", "--batch")
    assert done.returncode == 0, done.stderr
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert manifest["batch"] is True
    assert "[batch, n]" in manifest["inputs"]["input_ids"] and "new_len" in manifest["inputs"]


@pytest.mark.parametrize("kept", ["fp16", "int8", "fp8"])
def test_the_bytes_of_a_smaller_cache_are_told(lazygraph: Run, goldens: Path, tmp_path: Path, kept: str) -> None:
    config = json.loads((goldens / "llama" / "config.json").read_text())
    width = config["num_key_value_heads"] * config.get(
        "head_dim", config["hidden_size"] // config["num_attention_heads"]
    )
    each = 2 * width if kept == "fp16" else width + 4
    done = lazygraph("export", goldens / "llama", "-o", tmp_path / "out", "--cache-dtype", kept)
    assert done.returncode == 0, done.stderr
    assert f"{config['num_hidden_layers'] * 2 * each:,} bytes per token" in done.stdout


def test_quiet_prints_nothing(capfd: pytest.CaptureFixture[str], goldens: Path, tmp_path: Path) -> None:
    assert main(["export", str(goldens / "llama"), "-o", str(tmp_path / "out"), "--quiet"]) == 0
    assert capfd.readouterr() == ("", "")


def test_the_installed_script_is_the_same_program(goldens: Path, tmp_path: Path, environment: dict[str, str]) -> None:
    script = shutil.which("lazygraph", path=os.path.dirname(sys.executable))
    if script is None:
        pytest.skip("the package is not installed in this environment")
    done = subprocess.run([script, "--version"], capture_output=True, text=True, env=environment, check=True)
    assert re.fullmatch(r"lazygraph \d+\.\d+\.\d+\n", done.stdout)


def test_a_tokenizer_goes_along(talker: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", str(talker), "-o", str(tmp_path / "out")]) == 0
    assert "tokenizer" not in capsys.readouterr().err
    assert {"tokenizer.json", "tokenizer_config.json"} <= {file.name for file in (tmp_path / "out").iterdir()}


def test_an_old_export_is_replaced_and_other_files_are_kept(
    goldens: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    assert main(["export", str(goldens / "llama"), "-o", str(out)]) == 0
    (out / "notes.txt").write_text("mine")
    (out / "sub").mkdir()
    (out / "sub" / "x").write_text("mine too")
    old = set(out.glob("*.data"))

    assert main(["export", str(goldens / "qwen3"), "-o", str(out)]) == 0

    assert (out / "notes.txt").read_text() == "mine"
    assert (out / "sub" / "x").read_text() == "mine too"
    assert json.loads((out / "manifest.json").read_text())["model_type"] == "qwen3"
    assert len(set(out.glob("*.data"))) == 1
    assert not old & set(out.glob("*.data"))
    assert sorted(tmp_path.iterdir()) == [out]


def test_through_a_link_the_folder_it_points_to_is_replaced(
    goldens: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    for model in ("llama", "qwen3"):
        assert main(["export", str(goldens / model), "-o", str(tmp_path / "link")]) == 0
    assert (tmp_path / "link").is_symlink()
    assert json.loads((tmp_path / "real" / "manifest.json").read_text())["model_type"] == "qwen3"


def test_a_window_is_exported_and_its_memory_is_its_rows(
    capfd: pytest.CaptureFixture[str], goldens: Path, tmp_path: Path
) -> None:
    assert main(["export", str(goldens / "mistral_sliding"), "-o", str(tmp_path / "out")]) == 0
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text(encoding="utf-8"))
    assert {(slot["kind"], slot["window"]) for slot in manifest["memory"]} == {("window", 6)}
    assert "window of 6" in capfd.readouterr().out


def test_a_long_cache_is_noted(goldens: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", str(goldens / "llama"), "-o", str(tmp_path / "out"), "--max-seq-len", "1000"]) == 0
    assert (
        "note: a cache of 1,000 tokens is longer than the 256 that the model was trained for" in capsys.readouterr().err
    )


# --- what it refuses ---


def _config(changes: dict[str, Any]) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps({**config, **changes}))

    return change


def _file(name: str, content: bytes) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        (folder / name).write_bytes(content)

    return change


def _truncate(folder: Path) -> None:
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-100])


BROKEN: dict[str, tuple[Callable[[Path], None], int, tuple[str, ...]]] = {
    "no config": (lambda folder: (folder / "config.json").unlink(), 2, ("no config.json", "a Hugging Face folder")),
    "config is no JSON": (
        _file("config.json", b"{"),
        2,
        ("config.json is not JSON",),
    ),
    "config is a list": (_file("config.json", b"[]"), 2, ("holds a list",)),
    "no weights": (lambda folder: (folder / "model.safetensors").unlink(), 2, ("no safetensors file",)),
    "truncated weights": (_truncate, 2, ("the file is truncated", "an interrupted download")),
    "empty weights": (
        _file("model.safetensors", b""),
        2,
        ("not a whole safetensors",),
    ),
    "unknown model type": (
        _config({"model_type": "gpt2"}),
        1,
        ("'gpt2' is not served", "llama", "mistral", "qwen2", "qwen3"),
    ),
    "no model type": (_config({"model_type": None}), 1, ("llama",)),
    "unknown rope type": (_config({"rope_parameters": {"rope_type": "swirl"}}), 1, ("rope type 'swirl'", "llama3")),
    "unknown key": (_config({"logit_scale": 0.5}), 1, ("logit_scale", "--ignore-key KEY")),
    "wrong number": (_config({"num_hidden_layers": "3"}), 2, ("num_hidden_layers is '3'", "whole number")),
    "another size": (
        _config({"intermediate_size": 81}),
        2,
        ("tensor 'model.layers.0.mlp.gate_proj.weight' is (80, 48)",),
    ),
    "too many layers": (_config({"num_hidden_layers": 4}), 2, ("9 tensors are missing", "model.layers.3.")),
    "huge position limit": (_config({"max_position_embeddings": -1}), 2, ("max_position_embeddings is -1",)),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_checkpoint_is_refused_and_nothing_is_left(
    goldens: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], case: str
) -> None:
    damage, wanted, parts = BROKEN[case]
    shutil.copytree(goldens / "llama", tmp_path / "in")
    (tmp_path / "in" / "golden.safetensors").unlink()
    damage(tmp_path / "in")
    code = main(["export", str(tmp_path / "in"), "-o", str(tmp_path / "out")])
    out, err = capsys.readouterr()
    _refused(code, err, out, *parts)
    assert code == wanted
    assert sorted(file.name for file in tmp_path.iterdir()) == ["in"]


def test_a_missing_model_is_refused_as_a_process(lazygraph: Run, tmp_path: Path) -> None:
    done = lazygraph("export", "nowhere", "-o", "out")
    _refused(done.returncode, done.stderr, done.stdout, "no such file or folder", "nowhere")
    assert done.returncode == 2
    hub = lazygraph("export", "meta-llama/Llama-3.2-1B", "-o", "out")
    assert hub.returncode == 2
    assert "hf download meta-llama/Llama-3.2-1B" in hub.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_key_can_be_vouched_for(goldens: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copytree(goldens / "llama", tmp_path / "in")
    _config({"logit_scale": 0.5, "odd": [1]})(tmp_path / "in")
    arguments = ["export", str(tmp_path / "in"), "-o", str(tmp_path / "out"), "--ignore-key", "logit_scale"]
    assert main(arguments) == 1
    assert "odd" in capsys.readouterr().err
    assert main([*arguments, "--ignore-key", "odd"]) == 0


def test_a_place_that_cannot_be_replaced_is_refused(
    goldens: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("precious")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.txt").write_text("precious")
    monkeypatch.chdir(tmp_path / "full")
    for out, part in (
        (tmp_path / "file", "is a file"),
        (tmp_path / "full", "holds other files and no export"),
        (tmp_path / "file" / "below", "cannot be made"),
        (Path("/proc/lazygraph"), "cannot be written"),
    ):
        if out.parts[1] == "proc" and not out.parent.is_dir():
            continue
        assert main(["export", str(goldens / "llama"), "-o", str(out)]) == 1
        _refused(1, *reversed(capsys.readouterr()), part)
    assert (tmp_path / "file").read_text() == "precious"
    assert (tmp_path / "full" / "thesis.txt").read_text() == "precious"


def test_the_current_folder_is_not_taken_away(
    goldens: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    assert main(["export", str(goldens / "llama"), "-o", "."]) == 1
    _refused(1, *reversed(capsys.readouterr()), "the current folder")
    assert Path.cwd().is_dir()


@pytest.mark.parametrize(
    ("options", "part"),
    [
        (["--max-seq-len", "0"], "'0' is not a whole number of at least 1"),
        (["--max-seq-len", "-3"], "'-3' is not a whole number of at least 1"),
        (["--max-seq-len", "many"], "'many' is not a whole number"),
        (["--max-seq-len", "1.5"], "'1.5' is not a whole number"),
        (["--precision", "fp7"], "invalid choice: 'fp7'"),
        (["--mla", "sideways"], "invalid choice: 'sideways'"),
        (["--no-such-option"], "unrecognized arguments"),
    ],
)
def test_options_that_cannot_be_read_end_with_two(
    goldens: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], options: list[str], part: str
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["export", str(goldens / "llama"), "-o", str(tmp_path / "out"), *options])
    assert ended.value.code == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert part in err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("arguments", [[], ["export"], ["export", "x"], ["nonsense"], ["run"], ["run", "x"]])
def test_a_request_with_parts_missing_ends_with_two(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    assert "usage: lazygraph" in capsys.readouterr().err


# --- when it is stopped ---


def _large_checkpoint(folder: Path) -> Path:
    """Write a checkpoint of some 200 MB that takes a second to export; the file is all holes, so it costs nothing."""
    config = small_config(hidden_size=512, vocab_size=48_000, intermediate_size=512, tie_word_embeddings=False)
    write_folder(folder, config, {})
    header: dict[str, Any] = {}
    end = 0
    for name, sizes in shapes(config).items():
        nbytes = 4 * int(np.prod(sizes))
        header[name] = {"dtype": "F32", "shape": sizes, "data_offsets": [end, end + nbytes]}
        end += nbytes
    text = json.dumps(header).encode()
    with (folder / "model.safetensors").open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        file.truncate(8 + len(text) + end)
    return folder


def test_ctrl_c_leaves_the_old_export_whole_and_nothing_else(
    goldens: Path, tmp_path: Path, environment: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    large, place = _large_checkpoint(tmp_path / "large"), tmp_path / "place"
    assert main(["export", str(goldens / "llama"), "-o", str(place / "out")]) == 0
    before = _snapshot(place / "out")

    process = subprocess.Popen(
        [sys.executable, "-m", "lazygraph", "export", str(large), "-o", str(place / "out")],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    deadline = time.monotonic() + 60
    while not list(place.glob(".out-*/export/.*.tmp")) and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.002)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)

    assert process.returncode == 130, err
    assert err == "\ninterrupted\n"
    assert out == ""
    assert _snapshot(place / "out") == before
    assert list(place.iterdir()) == [place / "out"]


def test_a_full_disk_leaves_the_old_export_whole(
    goldens: Path, tmp_path: Path, environment: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    place = tmp_path / "place"
    assert main(["export", str(goldens / "llama"), "-o", str(place / "out")]) == 0
    before = _snapshot(place / "out")
    # A file may not grow past 100 KiB: what a full disk does, on any machine.
    command = f"ulimit -f 100; exec {sys.executable} -m lazygraph export {goldens / 'qwen3'} -o {place / 'out'}"
    done = subprocess.run(["bash", "-c", command], env=environment, capture_output=True, text=True, timeout=60)
    _refused(done.returncode, "lazygraph: " + done.stderr.split("lazygraph: ", 1)[-1], done.stdout, "cannot be written")
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert _snapshot(place / "out") == before
    assert list(place.iterdir()) == [place / "out"]


@pytest.mark.parametrize("name", ["manifest.json", "tokenizer.json"])
def test_a_disk_that_fills_at_the_end_leaves_the_old_export_whole(
    talker: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    out = tmp_path / "out"
    assert main(["export", str(talker), "-o", str(out)]) == 0
    before = _snapshot(out)
    whole, settle = Path.write_text, Draft.settle

    def full(self: Path, *arguments: Any, **options: Any) -> int:
        if self.name == name:
            raise OSError(28, "No space left on device")
        return whole(self, *arguments, **options)

    def full_draft(self: Draft) -> None:
        if self.place.name == name:
            raise OSError(28, "No space left on device")
        settle(self)

    monkeypatch.setattr(Path, "write_text", full)
    monkeypatch.setattr(Draft, "settle", full_draft)
    capsys.readouterr()
    assert main(["export", str(talker), "-o", str(out), "--max-seq-len", "9"]) == 1
    _refused(1, *reversed(capsys.readouterr()), "No space left on device", "what was there before is unchanged")
    assert _snapshot(out) == before
    assert list(tmp_path.iterdir()) == [out]


@pytest.mark.parametrize("failing", [1, 2, 3])
def test_an_interrupt_while_the_folders_are_swapped_loses_nothing(
    goldens: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, failing: int
) -> None:
    # Whichever step Ctrl-C follows, one whole export is there afterwards, with the user's own file in it.
    out = tmp_path / "out"
    assert main(["export", str(goldens / "llama"), "-o", str(out)]) == 0
    (out / "notes.txt").write_text("mine")
    whole, calls = Path.rename, 0

    def interrupted(self: Path, target: str | Path) -> Path:
        nonlocal calls
        moved = whole(self, target)
        calls += 1
        if calls == failing:
            raise KeyboardInterrupt
        return moved

    monkeypatch.setattr(Path, "rename", interrupted)
    code = main(["export", str(goldens / "qwen3"), "-o", str(out)])
    monkeypatch.undo()
    assert code == (130 if calls >= failing else 0)
    assert (out / "notes.txt").read_text() == "mine"
    assert list(tmp_path.iterdir()) == [out]
    Decoder.open(out).append([1, 2, 3])


def test_a_reader_that_goes_away_is_no_error(goldens: Path, tmp_path: Path, environment: dict[str, str]) -> None:
    for command in (f"export {goldens / 'llama'} -o {tmp_path / 'out'}", "--help", "export --help"):
        done = subprocess.run(
            ["bash", "-c", f"{sys.executable} -m lazygraph {command} | true; exit ${{PIPESTATUS[0]}}"],
            env=environment,
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == 0, done.stderr
        assert "Error" not in done.stderr
        assert "Exception ignored" not in done.stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_an_output_that_is_full_is_an_error_without_a_traceback(environment: dict[str, str]) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "lazygraph", "--help"],
            env=environment,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
        )
    assert done.returncode == 1
    assert done.stderr == "lazygraph: [Errno 28] No space left on device\n"


def test_a_bar_appears_on_a_terminal_and_only_there(
    lazygraph: Run, tmp_path: Path, environment: dict[str, str]
) -> None:
    import pty

    config = small_config()
    write_folder(tmp_path / "in", config, random_tensors(config))
    arguments = ["export", str(tmp_path / "in"), "-o", str(tmp_path / "out")]
    assert "writing weights" not in lazygraph(*arguments).stderr

    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "lazygraph", *arguments],
        env=environment | {"TERM": "xterm"},
        stdout=subprocess.PIPE,
        stderr=theirs,
        text=True,
    )
    os.close(theirs)
    shown = b""
    while True:
        try:
            part = os.read(ours, 65536)
        except OSError:  # Linux says so when the other side has closed
            break
        if not part:
            break
        shown += part
    os.close(ours)
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    assert b"writing weights" in shown
    assert b"note: " in shown
    assert [line[:9].strip() for line in out.splitlines()] == SUMMARY


@pytest.mark.parametrize("lowering", ["buffer", "view", "concat"])
def test_the_lowering_is_what_the_command_line_says(
    lazygraph: Run, goldens: Path, tmp_path: Path, lowering: str
) -> None:
    done = lazygraph("export", goldens / "mistral_sliding", "-o", tmp_path / "out", "--lowering", lowering)
    assert done.returncode == 0, done.stderr
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text(encoding="utf-8"))
    assert manifest["lowering"] == lowering
    assert {slot["capacity"] for slot in manifest["memory"]} == {6}
