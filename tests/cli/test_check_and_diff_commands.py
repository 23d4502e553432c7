"""``lazygraph check`` and ``lazygraph diff`` as processes: what they print, in which form, with which exit code."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest

import lazygraph as lg
from lazygraph.export.checking import RULES

Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def good(tmp_path: Path) -> Path:
    x = lg.input("x", lg.float32, ["n", 4])
    lg.save({"y": lg.relu(x @ x.const(np.ones((4, 4), np.float32), "w"))}, tmp_path / "good.onnx")
    return tmp_path / "good.onnx"


@pytest.fixture
def bad(good: Path) -> Path:
    """A model with an error (a missing value) and a note (a weight that nobody reads)."""
    model = onnx.load(good)
    model.graph.node[0].input[1] = "no:body,\n"
    path = good.with_name("bad.onnx")
    path.write_bytes(model.SerializeToString())
    return path


def test_a_good_file_exits_0_and_a_bad_one_1(lazygraph: Run, good: Path, bad: Path) -> None:
    fine = lazygraph("check", good, "--target", "cpu")
    assert (fine.returncode, fine.stderr) == (0, "")
    assert "good.onnx 2 nodes, fine" in fine.stdout
    broken = lazygraph("check", good, bad)
    assert broken.returncode == 1
    assert "error   name-missing" in broken.stdout
    assert "note    weight-unused" in broken.stdout
    assert "Traceback" not in broken.stdout + broken.stderr


def test_what_cannot_be_read_exits_2_and_the_rest_is_checked(lazygraph: Run, bad: Path, tmp_path: Path) -> None:
    (tmp_path / "text.onnx").write_text("this is no model")
    done = lazygraph("check", "nobody.onnx", "text.onnx", bad, "--json")
    assert done.returncode == 2
    told = json.loads(done.stdout)
    assert [entry["file"] for entry in told["unreadable"]] == ["nobody.onnx", "text.onnx"]
    assert [finding["rule"] for finding in told["files"][0]["findings"]] == ["name-missing", "weight-unused"]
    assert done.stderr.count("lazygraph: check: ") == 2


@pytest.mark.parametrize(
    "arguments", [(), ("--ignore", "no-such-rule", "x.onnx"), ("x.onnx", "--in-place", "a"), ("x", "--target", "tpu")]
)
def test_a_request_that_makes_no_sense_exits_2(lazygraph: Run, arguments: tuple[str, ...]) -> None:
    done = lazygraph("check", *arguments)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr


def test_rules_are_ignored_and_the_bar_is_set(lazygraph: Run, bad: Path) -> None:
    assert lazygraph("check", bad, "--ignore", "name-missing").returncode == 0
    assert lazygraph("check", bad, "--ignore", "name-missing", "--fail-on", "note").returncode == 1
    listed = lazygraph("check", "--rules").stdout
    assert all(name in listed for name in RULES)


def test_a_folder_means_every_model_in_it(lazygraph: Run, good: Path, exported: Path, tmp_path: Path) -> None:
    done = lazygraph("check", tmp_path, exported, "--json")
    assert done.returncode == 0
    assert [Path(entry["file"]).name for entry in json.loads(done.stdout)["files"]] == ["good.onnx", "talker"]
    (tmp_path / "empty").mkdir()
    assert lazygraph("check", tmp_path / "empty").returncode == 2


def test_github_reads_the_findings_beside_the_file(lazygraph: Run, bad: Path) -> None:
    first, second = lazygraph("check", bad.name, "--format", "github").stdout.splitlines()
    assert first.startswith("::error file=bad.onnx,title=name-missing::")
    assert "no:body,\\n" in first
    assert second.startswith("::notice file=bad.onnx,title=weight-unused::")


def test_sarif_is_of_version_2_1_0_and_refers_to_its_rules(lazygraph: Run, bad: Path) -> None:
    log = json.loads(lazygraph("check", bad.name, "gone.onnx", "--format", "sarif").stdout)
    assert log["version"] == "2.1.0"
    (run,) = log["runs"]
    rules = run["tool"]["driver"]["rules"]
    assert [result["ruleId"] for result in run["results"]] == ["name-missing", "weight-unused"]
    for result in run["results"]:
        assert rules[result["ruleIndex"]]["id"] == result["ruleId"]
        assert result["level"] in ("error", "warning", "note")
        assert result["message"]["text"]
        (place,) = result["locations"]
        assert place["physicalLocation"]["artifactLocation"]["uri"] == "bad.onnx"
    assert run["invocations"][0]["executionSuccessful"] is False
    assert "gone.onnx" in run["invocations"][0]["toolExecutionNotifications"][0]["message"]["text"]


def test_diff_exits_0_1_and_2(lazygraph: Run, good: Path, tmp_path: Path) -> None:
    same = lazygraph("diff", good, good)
    assert (same.returncode, same.stdout) == (0, "nothing changed\n")
    x = lg.input("x", lg.float32, ["n", 4])
    lg.save({"y": lg.relu(x @ x.const(np.full((4, 4), 1.5, np.float32), "w"))}, tmp_path / "other.onnx")
    changed = lazygraph("diff", good, "other.onnx")
    assert changed.returncode == 1
    assert "~ w  16 of 16 numbers, by up to 0.5 at [0, 0]" in changed.stdout
    assert lazygraph("diff", good, "other.onnx", "--rtol", "0.6").returncode == 0
    told = json.loads(lazygraph("diff", good, "other.onnx", "--json").stdout)
    assert [(change["what"], change["how"], change["name"]) for change in told["changes"]] == [
        ("weight", "changed", "w")
    ]
    gone = lazygraph("diff", good, "gone.onnx")
    assert (gone.returncode, gone.stdout) == (2, "")
    assert lazygraph("diff", good, good, "--rtol", "-1").returncode == 2


def test_help_says_what_the_exit_codes_mean(lazygraph: Run) -> None:
    for command in ("check", "diff"):
        done = lazygraph(command, "--help")
        assert done.returncode == 0
        assert "Exit codes: 0" in " ".join(done.stdout.split())
