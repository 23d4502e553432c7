"""``lazygraph check``: what is wrong with model files, for people, for CI and for other programs."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lazygraph.errors import LazyGraphError

if TYPE_CHECKING:
    from lazygraph.export.checking import Report

_STYLE = {"error": "bold red", "warning": "yellow", "note": "dim"}


def add_check(commands: Any) -> None:
    """Add the command to the command line."""
    parser = commands.add_parser(
        "check",
        help="find what is wrong with .onnx files",
        description="Check .onnx files, export folders, or every .onnx below a folder: structure, names, opsets, "
        "weights files, shapes, what a provider cannot run, and whether the cache may be updated in place.",
        epilog="Exit codes: 0 nothing found, 1 findings, 2 a file cannot be read. Notes do not count as findings "
        "unless --fail-on note says so. `lazygraph check --rules` lists what is looked for.",
    )
    parser.add_argument(
        "files", nargs="*", metavar="FILE", help="an .onnx file, an export folder, or a folder of files"
    )
    parser.add_argument("--target", choices=["cpu", "cuda"], help="also find what that provider cannot run")
    parser.add_argument("--opset", type=int, metavar="N", help="the newest ai.onnx opset that is allowed")
    parser.add_argument(
        "--in-place",
        action="append",
        default=[],
        metavar="IN=OUT",
        help="an input and the output that is to be bound to its memory (repeatable)",
    )
    parser.add_argument(
        "--ignore", action="append", default=[], metavar="RULE", help="a rule to leave out (repeatable)"
    )
    parser.add_argument(
        "--fail-on",
        choices=["error", "warning", "note"],
        default="warning",
        help="exit 1 from this on (default warning)",
    )
    parser.add_argument("--format", choices=["text", "json", "github", "sarif"], default="text", help="default text")
    parser.add_argument("--json", dest="format", action="store_const", const="json", help="the same as --format json")
    parser.add_argument("--rules", action="store_true", help="list the rules and stop")
    parser.set_defaults(command=check)


def check(options: argparse.Namespace) -> int:
    """Run the command; return its exit code."""
    from lazygraph.check_formats import as_github, as_json, as_sarif
    from lazygraph.export.checking import RULES, Report

    if options.rules:
        print("\n".join(f"{rule.severity:<8} {name:<24} {rule.text}" for name, rule in RULES.items()))
        return 0
    unknown = [name for name in options.ignore if name not in RULES]
    asked = dict(pair.partition("=")[::2] for pair in options.in_place)
    wrong = [f"--in-place {source}" for source, target in asked.items() if not source or not target]
    if not options.files or unknown or wrong:
        said = ", ".join([*(f"no rule {name!r} (see --rules)" for name in unknown), *wrong]) or "no FILE is given"
        print(f"lazygraph: check: {said}", file=sys.stderr)
        return 2

    reports: list[Report] = []
    unread: list[tuple[str, str]] = []
    for place in _places(options.files, unread):
        try:
            found = _checked(place, options, asked)
        except LazyGraphError as error:
            unread.append((str(place), error.what))
            continue
        kept = tuple(finding for finding in found.findings if finding.rule not in options.ignore)
        reports.append(Report(found.source, kept, found.nodes))

    failed = any(report.at_least(options.fail_on) for report in reports)
    if options.format == "text":
        _print(reports, options.fail_on)
    else:
        made = {"json": as_json, "github": as_github, "sarif": as_sarif}[options.format](reports, unread)
        print(made, end="\n" if made else "")
    for name, why in unread:
        print(f"lazygraph: check: {name}: {why}", file=sys.stderr)
    return 2 if unread else 1 if failed else 0


def _checked(place: Path, options: argparse.Namespace, in_place: dict[str, str]) -> Report:
    from lazygraph.export.checking import check_file, check_folder

    if place.is_dir():
        return check_folder(place, options.target, options.opset)
    return check_file(place, options.target, options.opset, in_place)


def _places(given: list[str], unread: list[tuple[str, str]]) -> list[Path]:
    """Return the files and export folders that are meant."""
    found: list[Path] = []
    for text in given:
        place = Path(text)
        if not place.is_dir() or (place / "manifest.json").is_file():
            found.append(place)
            continue
        files = sorted(place.rglob("*.onnx"))
        exports = {file.parent for file in files if (file.parent / "manifest.json").is_file()}
        found += [file for file in files if file.parent not in exports] + sorted(exports)
        if not files:
            unread.append((text, "no .onnx file is in it"))
    return found


def _print(reports: list[Report], fail_on: str) -> None:
    from rich.console import Console
    from rich.text import Text

    console = Console(highlight=False, soft_wrap=True)
    for report in reports:
        verdict = "fine" if not report.findings else f"{len(report.findings)} findings"
        console.print(Text(report.source, "bold"), Text(f"{report.nodes:,} nodes, {verdict}", "dim"))
        for finding in report.findings:
            line = Text("  ").append(f"{finding.severity:<8}", _STYLE[finding.severity]).append(finding.rule, "cyan")
            line.append(f"  {finding.node}: " if finding.node else "  ").append(finding.message)
            line.append(f"  {finding.at}" if finding.at else "", "dim")
            console.print(line)


__all__ = ["add_check", "check"]
