"""Seconds of ``lazygraph check`` and ``lazygraph diff`` on a file of 20,201 nodes, as processes from start to end.

The file is the decoder of build_nodes.py with 66 layers, its weights in a file beside it. ``diff`` compares it with
itself, with all inner names changed, and with one node more. Each figure is the least of the rounds; ``cpu`` is the
process's own time, which a busy machine disturbs less. The bound is 3 seconds.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from build_nodes import lazygraph_program, weights

import lazygraph as lg

BOUND = 3.0


def made(folder: Path, layers: int) -> tuple[Path, Path]:
    """Write the model, and beside it the same with other names and one node more; return both."""
    import onnx

    path = folder / "model.onnx"
    model = lg.save(lazygraph_program(layers, weights(layers)), path, external=True)
    nodes = model.graph.node
    middle = nodes[len(nodes) // 2]
    outputs = {value.name for value in model.graph.output}
    new: dict[str, str] = {middle.output[0]: "more"}
    for place, node in enumerate(nodes):
        node.name = f"call{place}"
        for i, name in enumerate(node.input):
            node.input[i] = new.get(name, name)
        for i, name in enumerate(node.output):
            if name not in outputs and name not in new:
                new[name] = node.output[i] = f"call{place}.{i}"
    place = len(nodes) // 2 + 1
    nodes.insert(place, onnx.helper.make_node("Neg", [middle.output[0]], ["more"], "one more"))
    other = folder / "other.onnx"
    other.write_bytes(model.SerializeToString())
    return path, other


def timed(*arguments: object) -> tuple[float, float, int]:
    """Return seconds, CPU seconds and the exit code of one run."""
    before = os.times()
    start = time.perf_counter()
    done = subprocess.run([sys.executable, "-m", "lazygraph", *map(str, arguments)], capture_output=True, check=False)
    wall = time.perf_counter() - start
    after = os.times()
    return (
        wall,
        after.children_user + after.children_system - before.children_user - before.children_system,
        (done.returncode),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--layers", type=int, default=66)
    parser.add_argument("--repeat", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path, other = made(Path(folder), options.layers)
        runs = {
            "check": ("check", path),
            "check --target cpu": ("check", path, "--target", "cpu"),
            "diff, the same": ("diff", path, path),
            "diff, renamed and one node more": ("diff", path, other),
        }
        print(f"{'':<34} {'seconds':>8} {'cpu':>8} {'exit':>5}")
        for label, arguments in runs.items():
            rounds = [timed(*arguments) for _ in range(options.repeat)]
            wall, cpu, code = min(rounds)
            print(f"{label:<34} {wall:8.2f} {cpu:8.2f} {code:5}" + ("" if wall < BOUND else f"  over {BOUND:.0f} s"))


if __name__ == "__main__":
    main()
