"""``lazygraph bench``: how fast a model runs here, and how two compare."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lazygraph.command_show import named_size
from lazygraph.errors import OperandError

if TYPE_CHECKING:
    from lazygraph.speed import Point


def add_bench(commands: Any) -> None:
    """Add the command to the command line."""
    parser = commands.add_parser(
        "bench",
        help="measure how fast a model runs here",
        description="Measure an export folder (prefill and decode, tokens per second by length) or any .onnx file "
        "(time of a run on random inputs). With a second model, print the ratios too.",
        epilog="Exit codes: 0 measured, 1 it cannot run, 2 the file cannot be read. Measure on an idle machine.",
    )
    parser.add_argument("model", metavar="X", help="an .onnx file or an export folder")
    parser.add_argument("other", metavar="Y", nargs="?", help="a second one of the same kind, to compare")
    parser.add_argument("--lengths", default="64,512", metavar="N,N", help="tokens, of a decoder (default 64,512)")
    parser.add_argument("--size", action="append", default=[], type=named_size, metavar="NAME=N", help="a named size")
    parser.add_argument("--repeats", type=int, default=10, metavar="N", help="runs of each (default 10)")
    parser.add_argument("--threads", type=int, metavar="N", help="threads to compute with")
    parser.add_argument("--provider", choices=["cpu", "cuda"], default="cpu", help="where to run")
    parser.add_argument("--json", action="store_true", help="print everything as JSON")
    parser.set_defaults(command=bench)


def bench(options: argparse.Namespace) -> int:
    """Run the command; return its exit code."""
    if options.repeats < 1:
        raise OperandError(f"repeats is {options.repeats}", op="bench", expected="a number of at least 1")
    lengths = _lengths(options.lengths)
    first = _measured(options.model, options, lengths)
    second = _measured(options.other, options, lengths) if options.other else []
    if second and [(p.what, p.length) for p in first] != [(p.what, p.length) for p in second]:
        raise OperandError("a decoder and a plain model cannot be compared", op="bench", expected="two of one kind")
    if options.json:
        models = {options.model: first} | ({options.other: second} if options.other else {})
        listed = {name: [asdict(p) | {"per_second": p.per_second} for p in points] for name, points in models.items()}
        ratios = [a.seconds / b.seconds for a, b in zip(first, second, strict=False)]
        print(json.dumps({"models": listed, "ratios": ratios}, indent=1))
        return 0
    _print(options.model, first, options.other, second)
    return 0


def _lengths(text: str) -> list[int]:
    parts = text.split(",")
    if not all(part.strip().isdecimal() and int(part) > 0 for part in parts):
        raise OperandError(f"lengths is {text!r}", op="bench", expected="numbers such as 64,512")
    return [int(part) for part in parts]


def _measured(model: str, options: argparse.Namespace, lengths: list[int]) -> list[Point]:
    from lazygraph.export.decoder import Decoder
    from lazygraph.export.outline import is_export
    from lazygraph.speed import decode_points, prefill_points, run_point

    if not is_export(model):
        return [run_point(Path(model), dict(options.size), options.provider, options.threads, options.repeats)]
    decoder = Decoder.open(model, options.provider, options.threads)
    prefill = prefill_points(decoder, lengths, max(1, options.repeats // 3))
    return prefill + decode_points(decoder, lengths, options.repeats)


def _print(name: str, first: list[Point], other: str | None, second: list[Point]) -> None:
    for place, point in enumerate(first):
        label = f"{point.what} {point.length:,} tokens" if point.length else point.what
        line = f"{label:<22} {_figures(point)}"
        if second:
            line += f"   {other}: {_figures(second[place])}   {point.seconds / second[place].seconds:.2f} x"
        print(line)
    if second:
        print(f"x: how many times longer {name} takes")


def _figures(point: Point) -> str:
    unit = "runs/s" if point.what == "run" else "tokens/s"
    spread = f"{point.low * 1e3:.3g} to {point.high * 1e3:.3g}"
    return f"{point.seconds * 1e3:9.3f} ms ({spread}) {point.per_second:10,.1f} {unit}"
