"""What ``import lazygraph`` costs: CPU seconds beside ``import numpy``, and the modules that it brings.

Interleaved runs in fresh processes, the best of each: ``python benchmarks/import_cost.py [RUNS]``.
"""

from __future__ import annotations

import subprocess
import sys

# Printed by the child, so that starting Python is in neither figure.
_TIMED = "import time; a = time.process_time(); import {}; print(time.process_time() - a)"
_LOADED = "import sys; import {}; print(' '.join(sorted({{name.split('.')[0] for name in sys.modules}})))"


def cpu_seconds(module: str) -> float:
    """Return the CPU time of one import in a fresh process."""
    return float(_child(_TIMED.format(module)))


def best_of(runs: int, *modules: str) -> dict[str, float]:
    """Return the least CPU time of each module's import, the runs interleaved."""
    times: dict[str, list[float]] = {module: [] for module in modules}
    for _ in range(runs):
        for module in modules:
            times[module].append(cpu_seconds(module))
    return {module: min(seconds) for module, seconds in times.items()}


def loaded(module: str) -> set[str]:
    """Return the top-level modules that an import brings."""
    return set(_child(_LOADED.format(module)).split())


def _child(program: str) -> str:
    return subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout


def main() -> None:
    """Print the figures."""
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 15
    best = best_of(runs, "numpy", "lazygraph")
    extra = sorted(loaded("lazygraph") - loaded("numpy") - set(sys.stdlib_module_names))
    print(f"import numpy      {best['numpy'] * 1e3:6.1f} ms CPU")
    ratio = best["lazygraph"] / best["numpy"]
    print(f"import lazygraph  {best['lazygraph'] * 1e3:6.1f} ms CPU, {ratio:.2f} x (at most 1.6)")
    print(f"beyond numpy and the standard library: {', '.join(extra)}")


if __name__ == "__main__":
    main()
