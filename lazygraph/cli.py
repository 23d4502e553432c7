"""The command line: ``lazygraph export``, ``run``, ``show``, ``bench``, ``doctor``.

Results go to stdout, everything else to stderr. Exit codes: 0 done, 1 it failed, 2 the request cannot be read (a
missing file, a wrong option), 130 Ctrl-C.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import math
import os
import sys
from collections.abc import Sequence

from lazygraph.command_check import add_check
from lazygraph.command_diff import add_diff
from lazygraph.errors import ExportError, LazyGraphError, LoadError, OperandError, WeightsError
from lazygraph.version import VERSION


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; return its exit code."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a model may say what the terminal cannot show
    try:
        try:
            options = _parser().parse_args(arguments)
            code: int = options.command(options)
        finally:
            if sys.stdout is not None:
                sys.stdout.flush()
    except KeyboardInterrupt:
        print("\ninterrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:  # the reader went away: not an error, but nothing more can be written
        _drop_output()
        return 0
    except LazyGraphError as error:
        error.at = None  # on the command line no line of the program is the user's own
        print(f"lazygraph: {error}", file=sys.stderr)
        return 2 if _unreadable(error) else 1
    except (OSError, MemoryError) as error:
        print(f"lazygraph: {error or type(error).__name__}", file=sys.stderr)
        _drop_output()
        return 1
    return code


def _unreadable(error: LazyGraphError) -> bool:
    """Return whether the request itself could not be read: a missing or broken file, an empty prompt."""
    asked = isinstance(error, (ExportError, OperandError)) and error.op in ("open", "run", "show", "bench")
    return asked or isinstance(error, (WeightsError, LoadError))


def _drop_output() -> None:
    """Send what stdout still holds nowhere, so that the interpreter's own last flush cannot fail."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="lazygraph", description="Decoders on ONNX Runtime: export a checkpoint, run the export."
    )
    parser.add_argument("--version", action="version", version=f"lazygraph {VERSION}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    export = commands.add_parser(
        "export",
        help="make an .onnx with its cache out of a checkpoint",
        description="Export a checkpoint (a GGUF file or a Hugging Face folder): graph, weights, manifest, tokenizer.",
    )
    export.add_argument("model", metavar="MODEL", help="a .gguf file or a Hugging Face folder")
    export.add_argument("-o", "--out", required=True, metavar="OUT", help="the folder to write")
    export.add_argument("--max-seq-len", type=_count, metavar="N", help="capacity of the cache in tokens")
    kinds = ["fp32", "fp16", "bf16"]
    export.add_argument("--precision", choices=kinds, default="fp32", help="what is computed in (default fp32)")
    export.add_argument("--store", choices=kinds, help="what weights and cache are kept in; as --precision if left out")
    export.add_argument("--provider", choices=["cpu", "cuda"], default="cpu", help="where it is to run")
    export.add_argument(
        "--mla",
        choices=["absorbed", "expanded", "auto"],
        default="auto",
        help="how latent attention computes; auto (default) chooses by the number of new tokens on each run",
    )
    export.add_argument(
        "--lowering",
        choices=["buffer", "view", "concat"],
        default="view",
        help="how the cache is bound: view (default) and buffer are written in place, concat is copied on each run",
    )
    export.add_argument("--portable", action="store_true", help="ai.onnx operators only, none of onnxruntime's own")
    export.add_argument(
        "--cache-dtype",
        choices=[*kinds, "int8", "fp8"],
        help="what the cache is kept in, int8 and fp8 with a scale per row; as --store if left out",
    )
    export.add_argument("--batch", action="store_true", help="run several texts at once, each at its own position")
    export.add_argument(
        "--ignore-key",
        action="append",
        default=[],
        metavar="KEY",
        help="a config key that changes nothing (repeatable)",
    )
    export.add_argument(
        "--source-lines", action="store_true", help="also write which line of which file made each call"
    )
    export.add_argument("--quiet", action="store_true", help="print nothing but errors")
    export.set_defaults(command=_export)

    run = commands.add_parser(
        "run", help="ask an exported model", description="Generate text with an exported decoder, streamed to stdout."
    )
    run.add_argument("folder", metavar="OUT", help="what `lazygraph export` wrote")
    run.add_argument("prompt", help="the prompt; - reads it from stdin")
    run.add_argument("--max-new-tokens", type=_count, default=256, metavar="N", help="default 256")
    run.add_argument(
        "--temperature", type=_temperature, default=0.0, metavar="T", help="0 (default) takes the likeliest token"
    )
    run.add_argument(
        "--top-p", type=_share, default=1.0, metavar="P", help="draw from the likeliest tokens of this much"
    )
    run.add_argument("--top-k", type=_whole, default=0, metavar="K", help="draw from so many of the likeliest tokens")
    run.add_argument("--seed", type=_whole, metavar="S", help="makes draws repeatable")
    run.add_argument("--raw", action="store_true", help="the prompt as it is, without the chat template")
    run.add_argument("--stats", action="store_true", help="print times and sizes afterwards")
    run.add_argument("--threads", type=_count, metavar="N", help="threads to compute with")
    run.add_argument("--provider", choices=["cpu", "cuda"], default="cpu", help="where to run")
    run.set_defaults(command=_run)

    from lazygraph.command_bench import add_bench
    from lazygraph.command_doctor import add_doctor
    from lazygraph.command_show import add_show

    add_show(commands)
    add_bench(commands)
    add_doctor(commands)
    add_check(commands)
    add_diff(commands)
    return parser


def _export(options: argparse.Namespace) -> int:
    from lazygraph.command_export import export

    return export(options)


def _run(options: argparse.Namespace) -> int:
    from lazygraph.command_run import run

    return run(options)


def _count(text: str) -> int:
    """Return a whole number of at least 1."""
    return _at_least(1, text)


def _whole(text: str) -> int:
    """Return a whole number of at least 0."""
    return _at_least(0, text)


def _at_least(least: int, text: str) -> int:
    try:
        number = int(text)
    except ValueError:
        number = least - 1
    if number < least:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least {least}")
    return number


def _temperature(text: str) -> float:
    """Return a finite number of at least 0."""
    number = _float(text)
    if not 0 <= number < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of at least 0")
    return number


def _share(text: str) -> float:
    """Return a number above 0, at most 1."""
    number = _float(text)
    if not 0 < number <= 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0 and at most 1")
    return number


def _float(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan
