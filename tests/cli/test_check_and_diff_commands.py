"""``lazygraph check`` and ``lazygraph diff`` as processes: what they print, in which form, with which exit code."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

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


# By object of a SARIF 2.1.0 log, the properties that must be there, and all that may be, with their kinds.
# Spec: SARIF 2.1.0, sections 3.13 to 3.58; GitHub asks for fullDescription and help of every rule besides.
SARIF: dict[str, tuple[set[str], dict[str, str]]] = {
    "log": ({"version", "runs"}, {"$schema": "uri", "version": "text", "runs": "[run]"}),
    "run": ({"tool"}, {"tool": "tool", "invocations": "[invocation]", "results": "[result]"}),
    "tool": ({"driver"}, {"driver": "component"}),
    "component": ({"name", "version", "rules"}, {"name": "text", "version": "text", "rules": "[rule]"}),
    "rule": (
        {"id", "name", "shortDescription", "fullDescription", "help"},
        {
            "id": "text",
            "name": "name",
            "shortDescription": "message",
            "fullDescription": "message",
            "help": "message",
            "defaultConfiguration": "configuration",
        },
    ),
    "configuration": (set(), {"level": "level"}),
    "message": ({"text"}, {"text": "text"}),
    "invocation": (
        {"executionSuccessful"},
        {"executionSuccessful": "bool", "toolExecutionNotifications": "[notification]"},
    ),
    "notification": ({"message"}, {"message": "message", "level": "level"}),
    "result": (
        {"message", "ruleId", "locations"},
        {
            "message": "message",
            "ruleId": "text",
            "ruleIndex": "index",
            "level": "level",
            "locations": "[location]",
            "relatedLocations": "[location]",
        },
    ),
    "location": ({"physicalLocation"}, {"physicalLocation": "physical", "logicalLocations": "[logical]"}),
    "physical": ({"artifactLocation"}, {"artifactLocation": "artifact", "region": "region"}),
    "logical": ({"name"}, {"name": "text", "kind": "text"}),
    "artifact": ({"uri"}, {"uri": "relative uri"}),
    "region": ({"startLine"}, {"startLine": "line"}),
}
LEAVES: dict[str, Callable[[object], bool]] = {
    "text": lambda found: isinstance(found, str) and bool(found),
    "name": lambda found: isinstance(found, str) and re.fullmatch("([A-Z][a-z0-9]*)+", found) is not None,
    "uri": lambda found: isinstance(found, str) and found.startswith("https://"),
    "relative uri": lambda found: isinstance(found, str) and re.fullmatch(r"[\w./%~-]+", found, re.ASCII) is not None,
    "bool": lambda found: isinstance(found, bool),
    "index": lambda found: type(found) is int and found >= 0,
    "line": lambda found: type(found) is int and found >= 1,
    "level": lambda found: found in ("none", "note", "warning", "error"),
}


def against_sarif(kind: str, found: Any, place: str = "log") -> None:
    """Hold a part of a log against what its object may and must have."""
    if kind.startswith("["):
        assert isinstance(found, list), place
        for i, item in enumerate(found):
            against_sarif(kind[1:-1], item, f"{place}[{i}]")
    elif kind in SARIF:
        must, may = SARIF[kind]
        assert must <= set(found) <= set(may), place
        for name, inner in found.items():
            against_sarif(may[name], inner, f"{place}.{name}")
    else:
        assert LEAVES[kind](found), f"{place}: {found!r} is no {kind}"


def test_sarif_has_what_the_standard_and_github_ask_for(
    lazygraph: Run, bad: Path, traced: Path, tmp_path: Path
) -> None:
    (tmp_path / "a folder, ü").mkdir()
    shutil.copy(bad, tmp_path / "a folder, ü" / "bad one.onnx")
    done = lazygraph("check", bad.name, traced.name, "a folder, ü", "gone.onnx", "--format", "sarif")
    log = json.loads(done.stdout)
    against_sarif("log", log)
    assert len({rule["name"] for rule in log["runs"][0]["tool"]["driver"]["rules"]}) == len(RULES)
    with pytest.raises(AssertionError, match=r"log\.runs\[0\]"):  # the test itself can fail
        against_sarif("log", {**log, "runs": [{**log["runs"][0], "surprise": 1}]})


@pytest.fixture
def traced(tmp_path: Path) -> Path:
    """A model with a finding whose line is in a file that is there, and one in a file that is not."""
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools" / "make it.py").write_text("# a program\n" * 9)
    x = lg.input("x", lg.float32, ["n"])
    model = lg.to_onnx({"y": lg.exp(x), "a": x + 1.0, "b": x * 2.0})
    del model.graph.output[1:]
    lines = {"tools/make it.py": {"": {"add_1": 7}}, "elsewhere.py": {"": {"mul_2": 3}}}
    model.metadata_props.add(key="lazygraph.source_lines", value=json.dumps(lines))
    names = {node.op_type: node for node in model.graph.node}
    names["Add"].name, names["Mul"].name = "add_1", "mul_2"
    onnx.save(model, tmp_path / "traced.onnx")
    return tmp_path / "traced.onnx"


def test_findings_stand_at_the_users_line_where_that_file_is_there(lazygraph: Run, traced: Path) -> None:
    first, second = lazygraph("check", traced.name, "--format", "github").stdout.splitlines()
    assert first == (
        "::notice file=tools/make it.py,line=7,title=node-unused::traced.onnx: add_1: nothing reads what Add makes"
    )
    assert second == "::notice file=traced.onnx,title=node-unused::mul_2: nothing reads what Mul makes"

    log = json.loads(lazygraph("check", traced.name, "--format", "sarif").stdout)
    here, there = log["runs"][0]["results"]
    (place,) = here["locations"]
    assert place["physicalLocation"] == {
        "artifactLocation": {"uri": "tools/make%20it.py"},
        "region": {"startLine": 7},
    }
    assert place["logicalLocations"] == [{"name": "add_1", "kind": "element"}]
    assert here["relatedLocations"][0]["physicalLocation"]["artifactLocation"]["uri"] == "traced.onnx"
    assert there["locations"][0]["physicalLocation"] == {"artifactLocation": {"uri": "traced.onnx"}}

    told = json.loads(lazygraph("check", traced.name, "--json").stdout)
    assert [finding["line"] for finding in told["files"][0]["findings"]] == ["tools/make it.py:7", "elsewhere.py:3"]
    assert "tools/make it.py:7" in lazygraph("check", traced.name).stdout


def test_diff_names_the_line_of_a_new_node(lazygraph: Run, traced: Path, good: Path) -> None:
    done = lazygraph("diff", good.name, traced.name)
    assert done.returncode == 1
    assert "+ add_1  Add(x, " in done.stdout
    assert "tools/make it.py:7" in done.stdout
    changes = json.loads(lazygraph("diff", good.name, traced.name, "--json").stdout)["changes"]
    assert {change["name"]: change["line"] for change in changes if change["name"] == "mul_2"} == {
        "mul_2": "elsewhere.py:3"
    }


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
