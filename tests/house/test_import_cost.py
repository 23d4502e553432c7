"""What ``import lazygraph`` loads. The exact cost is measured by benchmarks/import_cost.py."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def _fresh(program: str) -> str:
    """Return what a program prints in a process that has imported nothing, from the root of the repository."""
    where = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": where},
        check=True,
    )
    return done.stdout


def _loaded(statement: str) -> set[str]:
    return set(_fresh(f"{statement}; import sys; print(*sorted(sys.modules))").split())


def test_import_loads_numpy_and_the_standard_library_only() -> None:
    new = _loaded("import lazygraph") - _loaded("import numpy")
    tops = {name.split(".")[0] for name in new}
    strangers = {top for top in tops if top != "numpy" and top not in sys.stdlib_module_names}
    assert strangers == {"lazygraph"}


def test_building_a_graph_loads_no_library_either() -> None:
    new = _loaded(
        "import lazygraph as lg; x = lg.input('x', 'float32', ['n', 4]); y = lg.softmax(x @ x.const([[1.0]*4]*4))"
    )
    for library in ("onnx", "onnxruntime", "ml_dtypes", "rich", "tokenizers", "sympy", "safetensors", "gguf", "jinja2"):
        assert library not in new


def test_import_does_not_load_the_cache_the_export_or_the_models() -> None:
    new = _loaded("import lazygraph")
    assert not {"lazygraph.cache", "lazygraph.export", "lazygraph.models", "lazygraph.cli"} & new


def test_import_costs_little_beside_numpy() -> None:
    # Lenient, so that a busy machine does not fail it; the figure that is promised, 1.6, is the benchmark's.
    timed = "import time; a = time.process_time(); import {}; print(time.process_time() - a)"
    times: dict[str, list[float]] = {"numpy": [], "lazygraph": []}
    for _ in range(5):
        for module, taken in times.items():
            taken.append(float(_fresh(timed.format(module))))
    assert min(times["lazygraph"]) < 2.2 * min(times["numpy"])


def test_help_and_version_of_the_command_line_load_no_library() -> None:
    new = _loaded("from lazygraph.cli import main\ntry: main(['--version'])\nexcept SystemExit: pass\npass")
    for library in ("onnx", "onnxruntime", "rich", "tokenizers"):
        assert library not in new
