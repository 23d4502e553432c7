"""``lazygraph diff``: what changed from one model file to another."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lazygraph.errors import LazyGraphError

if TYPE_CHECKING:
    from lazygraph.export.comparing import Change

SHOWN = 20  # changes of one kind that a terminal shows; --all and --json show every one
_STYLE = {"added": "green", "removed": "red", "changed": "yellow"}
_SIGN = {"added": "+", "removed": "-", "changed": "~"}


def add_diff(commands: Any) -> None:
    """Add the command to the command line."""
    parser = commands.add_parser(
        "diff",
        help="show what changed between two .onnx files",
        description="Compare two .onnx files (or export folders): nodes, shapes, inputs and outputs, opsets, metadata, "
        "and weights. Nodes are matched by what they compute, so a new name alone is no change.",
        epilog="Exit codes: 0 nothing changed, 1 something changed, 2 a file cannot be read.",
    )
    parser.add_argument("before", metavar="A", help="the model as it was")
    parser.add_argument("after", metavar="B", help="the model as it is")
    parser.add_argument(
        "--rtol", type=_tolerance, default=0.0, metavar="R", help="weights may differ by R of their size"
    )
    parser.add_argument(
        "--atol", type=_tolerance, default=0.0, metavar="T", help="and by T absolutely (default: equal)"
    )
    parser.add_argument("--all", action="store_true", help=f"show more than {SHOWN} changes of a kind")
    parser.add_argument("--json", action="store_true", help="one JSON object for other programs")
    parser.set_defaults(command=diff)


def _tolerance(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0 <= number < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of at least 0")
    return number


def diff(options: argparse.Namespace) -> int:
    """Run the command; return its exit code."""
    from lazygraph.export.comparing import compare_files

    try:
        changes = compare_files(_file(options.before), _file(options.after), options.rtol, options.atol)
    except LazyGraphError as error:
        print(f"lazygraph: diff: {error.what}", file=sys.stderr)
        return 2
    if options.json:
        import json
        from dataclasses import asdict

        listed = [asdict(change) for change in changes]
        print(json.dumps({"before": options.before, "after": options.after, "changes": listed}, indent=2))
    else:
        _print(changes, None if options.all else SHOWN)
    return 1 if changes else 0


def _file(text: str) -> Path:
    place = Path(text)
    return place / "model.onnx" if place.is_dir() else place


def _print(changes: list[Change], most: int | None) -> None:
    from rich.console import Console
    from rich.text import Text

    console = Console(highlight=False, soft_wrap=True)
    if not changes:
        console.print("nothing changed")
    for what in dict.fromkeys(change.what for change in changes):
        group = [change for change in changes if change.what == what]
        console.print(Text(f"{what}: {len(group)}", "bold"))
        for change in group[:most]:
            line = Text("  ").append(f"{_SIGN[change.how]} ", _STYLE[change.how]).append(change.name)
            line.append(f"  {change.text}", "default").append(f"  {change.line}" if change.line else "", "dim")
            console.print(line)
        if most is not None and len(group) > most:
            console.print(Text(f"  and {len(group) - most} more (--all)", "dim"))


__all__ = ["add_diff", "diff"]
