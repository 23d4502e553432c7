"""One decode step of a mixture of experts at DeepSeek-V2-Lite widths, against dense experts of the same size.

64 experts of 1,408 in a model of 2,048, 6 chosen by a softmax router, random weights. The mixture as models use it
(com.microsoft.MoE) and by ai.onnx operators alone (--portable) read 6 experts' weights per token, so they are compared
with one dense feed-forward that is 6 experts wide. Every step reads another token, whose experts are others; rounds are
interleaved. Router, choice and weighing are part of the mixture's time. With --cpu the process's own CPU time is
counted, on one thread only: others on the machine disturb it less than the wall clock.

    python benchmarks/moe_step.py [--rounds 40] [--folder DIR] [--cpu]

The export takes 4.5 GB in a temporary folder (or in --folder).
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import onnxruntime as ort

import lazygraph as lg
from lazygraph.arrays import LazyArray
from lazygraph.export.session import open_session
from lazygraph.models.checkpoint import WeightsUse
from lazygraph.models.experts import Routing, shared_and_routed
from lazygraph.models.linears import feed_forward
from lazygraph.models.parameters import Parameters
from lazygraph.models.program import Precision

HIDDEN, INNER, EXPERTS, CHOSEN = 2048, 1408, 64, 6
LIMIT = 1.4
# Steps before those that count: every expert is chosen once, and its weights are then mapped into memory.
WARM_UP = 40

MIXTURE, PORTABLE, DENSE = "com.microsoft.MoE", "portable", f"{CHOSEN} dense experts"


class RandomWeights:
    """A checkpoint of random numbers, made when they are read."""

    def __init__(self, shapes: dict[str, tuple[int, ...]]) -> None:
        self.shapes = shapes

    def names(self) -> Sequence[str]:
        return list(self.shapes)

    def array(self, name: str) -> LazyArray:
        shape = self.shapes[name]

        def numbers() -> np.ndarray:
            random = np.random.default_rng(zlib.crc32(name.encode()))
            return random.standard_normal(shape, np.float32) * np.float32(0.02)

        return LazyArray("float32", shape, numbers, name)


def checkpoint() -> Parameters:
    shapes: dict[str, tuple[int, ...]] = {"moe.gate.weight": (EXPERTS, HIDDEN)}
    modules = {f"moe.experts.{expert}": INNER for expert in range(EXPERTS)} | {"dense": CHOSEN * INNER}
    for module, inner in modules.items():
        shapes |= {f"{module}.{part}_proj.weight": (inner, HIDDEN) for part in ("gate", "up")}
        shapes[f"{module}.down_proj.weight"] = (HIDDEN, inner)
    return Parameters(WeightsUse(RandomWeights(shapes)), Precision())


def export(folder: Path, case: str) -> Path:
    parameters = checkpoint()
    h = lg.input("h", lg.float32, ["n", HIDDEN])
    if case == DENSE:
        y = feed_forward(parameters, "dense", h, CHOSEN * INNER, False, h)
    else:
        routing = Routing(
            n_experts=EXPERTS,
            n_chosen=CHOSEN,
            scores="softmax",
            biased=False,
            n_groups=1,
            n_chosen_groups=1,
            group_score=1,
            normalised=False,
            factor=1.0,
        )
        y = shared_and_routed(routing, parameters, "moe", h, INNER, 0, h, case == PORTABLE)
    path = folder / case.replace(" ", "-") / "model.onnx"
    path.parent.mkdir(parents=True, exist_ok=True)
    lg.save({"y": y}, path, external=True)
    return path


class Step:
    """A session whose input and output stay bound."""

    def __init__(self, path: Path, threads: int) -> None:
        self.session: ort.InferenceSession = open_session(path, "cpu", threads)
        self.h, self.y = np.zeros((1, HIDDEN), np.float32), np.zeros((1, HIDDEN), np.float32)
        self.binding = self.session.io_binding()
        for bind, name, array in ((self.binding.bind_input, "h", self.h), (self.binding.bind_output, "y", self.y)):
            bind(name, "cpu", 0, np.float32, array.shape, array.ctypes.data)

    def run(self, token: np.ndarray, clock: Callable[[], float]) -> float:
        """Return the milliseconds of a step."""
        self.h[:] = token
        began = clock()
        self.session.run_with_iobinding(self.binding)
        return (clock() - began) * 1e3


def shown(values: list[float]) -> str:
    return f"{statistics.median(values):8.2f}  ({min(values):.2f} to {max(values):.2f})"


def measure(folder: Path, rounds: int, cpu: bool) -> None:
    cases = (MIXTURE, PORTABLE, DENSE)
    paths = {case: export(folder, case) for case in cases}
    random = np.random.default_rng(0)
    clock = time.process_time if cpu else time.perf_counter
    unit = "ms of CPU time" if cpu else "ms"
    print(
        f"{EXPERTS} experts, {CHOSEN} chosen, {HIDDEN} x {INNER}, one token; {unit}, median (least to most) of {rounds}"
    )
    for threads in (1,) if cpu else (1, 2):
        steps = {case: Step(paths[case], threads) for case in cases}
        spent: dict[str, list[float]] = {case: [] for case in cases}
        tokens = random.standard_normal((rounds + WARM_UP, 1, HIDDEN)).astype(np.float32)
        for token in tokens:
            for case, step in steps.items():
                spent[case].append(step.run(token, clock))
            largest = float(np.abs(steps[MIXTURE].y - steps[PORTABLE].y).max())
            assert largest < 1e-4, f"the two mixtures differ by {largest}"
        del steps
        spent = {case: values[WARM_UP:] for case, values in spent.items()}
        print()
        for case in cases:
            print(f"{threads} thread{'s' if threads > 1 else ' '}  {case:<18} {shown(spent[case])}")
        for case in (MIXTURE, PORTABLE):
            ratios = [mixed / dense for mixed, dense in zip(spent[case], spent[DENSE], strict=True)]
            least = min(spent[case]) / min(spent[DENSE])
            print(
                f"           {case} against {DENSE}: {statistics.median(ratios):.2f} x by rounds, "
                f"{least:.2f} x by the least; at most {LIMIT} is wanted"
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--cpu", action="store_true", help="count CPU time, not the wall clock; one thread only")
    parser.add_argument("--folder", type=Path, help="where to write the graphs (a temporary folder when left out)")
    options = parser.parse_args()
    if options.folder is not None:
        options.folder.mkdir(parents=True, exist_ok=True)
        measure(options.folder, options.rounds, options.cpu)
        return
    with tempfile.TemporaryDirectory() as folder:
        measure(Path(folder), options.rounds, options.cpu)


if __name__ == "__main__":
    main()
