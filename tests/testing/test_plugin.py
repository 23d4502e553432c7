"""The pytest plugin in pytest runs of its own: snapshots, matrices, and what loading it costs."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

pytest_plugins = ["pytester"]
ROOT = Path(__file__).parents[2]


@pytest.fixture
def run(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")])))
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    return pytester


def outcome(pytester: pytest.Pytester, *arguments: str) -> pytest.RunResult:
    return pytester.runpytest_subprocess("-p", "lazygraph.testing.plugin", "-p", "no:cacheprovider", *arguments)


SNAPSHOT = """
import lazygraph as lg

def test_graph(graph_snapshot):
    x = lg.input("x", lg.float32, ["n", 4])
    graph_snapshot({{"y": lg.relu(x){}}})
    graph_snapshot({{"z": (-x, ["n", 4])}}, "negated")
"""


def test_a_snapshot_is_written_when_asked_and_compared_ever_after(run: pytest.Pytester) -> None:
    run.makepyfile(test_it=SNAPSHOT.format(""))
    first = outcome(run)
    first.assert_outcomes(failed=1)
    first.stdout.fnmatch_lines(["*there is no snapshot *run pytest with --lazygraph-update*"])

    outcome(run, "--lazygraph-update").assert_outcomes(passed=1)
    folder = run.path / "__snapshots__" / "test_it"
    assert sorted(file.name for file in folder.iterdir()) == ["test_graph.negated.txt", "test_graph.txt"]
    assert "relu = Relu(x): float32 (n, 4)" in (folder / "test_graph.txt").read_text()
    outcome(run).assert_outcomes(passed=1)

    run.makepyfile(test_it=SNAPSHOT.format(" * 2.0"))
    changed = outcome(run)
    changed.assert_outcomes(failed=1)
    changed.stdout.fnmatch_lines(["*the graph is not its snapshot*", "*+  mul = Mul(relu, 2.0)*"])
    outcome(run, "--lazygraph-update").assert_outcomes(passed=1)
    outcome(run).assert_outcomes(passed=1)


def test_a_matrix_runs_for_every_opset_and_provider(run: pytest.Pytester) -> None:
    run.makeini("[pytest]\nlazygraph_opsets = 13 17\n")
    run.makepyfile(
        """
        import lazygraph as lg, pytest
        from lazygraph.testing import assert_valid

        def graph():
            return lg.relu(lg.input("x", lg.float32, [2]))

        def test_default(lazygraph_opset, lazygraph_provider):
            assert_valid(graph(), target=lazygraph_provider, opset=lazygraph_opset)

        @pytest.mark.lazygraph_matrix(opsets=[15, 18, 21], providers=["cpu"])
        def test_own(lazygraph_opset, lazygraph_provider):
            assert lg.to_onnx(graph(), opset=lazygraph_opset).opset_import[0].version == lazygraph_opset

        def test_neither():
            pass
        """
    )
    done = outcome(run, "-v", "--strict-markers")
    done.assert_outcomes(passed=6)
    done.stdout.fnmatch_lines(["*test_default*opset13*", "*test_own*opset21*"])


def test_a_provider_that_is_not_installed_skips(run: pytest.Pytester) -> None:
    run.makepyfile(
        """
        import pytest

        @pytest.mark.lazygraph_matrix(providers=["cpu", "cuda"])
        def test_it(lazygraph_provider):
            assert lazygraph_provider
        """
    )
    import onnxruntime

    here = "CUDAExecutionProvider" in onnxruntime.get_available_providers()
    outcome(run).assert_outcomes(passed=2 if here else 1, skipped=0 if here else 1)


def test_a_marker_of_something_else_is_refused(run: pytest.Pytester) -> None:
    run.makepyfile("import pytest\n\n@pytest.mark.lazygraph_matrix(opset=13)\ndef test_it():\n    pass\n")
    done = outcome(run)
    assert done.ret != 0
    done.stdout.fnmatch_lines(["*lazygraph_matrix takes opsets= and providers=*"])


def test_loading_the_plugin_loads_neither_onnx_nor_onnxruntime_nor_hypothesis() -> None:
    program = (
        "import sys, lazygraph.testing.plugin\n"
        "print(*sorted({m.split('.')[0] for m in sys.modules} & {'onnx', 'onnxruntime', 'hypothesis', 'ml_dtypes'}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.split() == []


def test_installing_is_enough() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    (module,) = project["project"]["entry-points"]["pytest11"].values()
    assert callable(importlib.import_module(module).pytest_addoption)
