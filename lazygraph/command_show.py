"""``lazygraph show``: a model as a tree of scopes, with shapes, weights and costs; or as a page for a browser."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lazygraph.errors import UnsupportedError

if TYPE_CHECKING:
    from rich.tree import Tree

    from lazygraph.export.outline import Call, Outline


def add_show(commands: Any) -> None:
    """Add the command to the command line."""
    parser = commands.add_parser(
        "show",
        help="look at a model: its scopes, shapes, weights and costs",
        description="Show any .onnx file, or what `lazygraph export` wrote, as a tree of scopes with what each costs: "
        "parameters, operations and bytes moved per run. Runs of scopes that are alike are one line.",
        epilog="Exit codes: 0 shown, 2 the file cannot be read.",
    )
    parser.add_argument("model", metavar="X", help="an .onnx file or an export folder")
    parser.add_argument("--depth", type=int, default=1, metavar="N", help="levels to unfold (default 1)")
    parser.add_argument(
        "--size",
        action="append",
        default=[],
        type=named_size,
        metavar="NAME=N",
        help="the number of a named size (repeatable; 1 where left out; of a decoder n=1 and past_len=512)",
    )
    parser.add_argument("--json", action="store_true", help="print everything as JSON")
    parser.add_argument("--html", metavar="FILE", help="write a page that opens in any browser, offline")
    parser.add_argument("--measure", action="store_true", help="with --html: time decode steps of an export folder")
    parser.set_defaults(command=show)


def named_size(text: str) -> tuple[str, int]:
    """Return a name and its number."""
    name, sign, number = text.rpartition("=")
    if not sign or not name or not number.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=N, such as seq=128")
    return name, int(number)


def show(options: argparse.Namespace) -> int:
    """Run the command; return its exit code."""
    from lazygraph.export.outline import outline_of_file

    outline = outline_of_file(options.model, dict(options.size))
    if options.html:
        _write(outline, options)
    elif options.json:
        print(json.dumps(as_json(outline), indent=1))
    else:
        _print(outline, options.depth)
    return 0


def _write(outline: Outline, options: argparse.Namespace) -> None:
    from lazygraph.export.decoder import Decoder
    from lazygraph.picture import page, write_page
    from lazygraph.speed import Point, decode_points

    points: list[Point] = []
    if options.measure:
        if outline.manifest is None:
            raise UnsupportedError(f"{options.model} is no export folder", op="show", hint="leave --measure out")
        decoder = Decoder.open(options.model)
        lengths = [length for length in (16, 128, 256, 512, 1024, 2048) if length + 8 <= decoder.max_seq_len]
        points = decode_points(decoder, lengths)
    write_page(page(outline, points), Path(options.html))
    print(options.html)


def as_json(outline: Outline) -> dict[str, Any]:
    """Return all that is shown, for other programs."""
    manifest = outline.manifest
    return {
        "title": outline.title,
        "sizes": outline.sizes,
        "assumed_sizes": list(outline.assumed),
        "parameters": outline.parameters,
        "weight_bytes": outline.weight_bytes,
        "flops": sum(map(outline.flops, outline.calls)),
        "bytes_moved": sum(map(outline.moved, outline.calls)),
        "unknown_cost": outline.unknown(),
        "cache_bytes_per_token": None if manifest is None else manifest.bytes_per_token,
        "inputs": {name: outline.types[name] for name in outline.inputs},
        "outputs": {name: outline.types.get(name, "") for name in outline.outputs},
        "weights": {name: {"type": outline.types[name], "bytes": w.nbytes} for name, w in outline.weights.items()},
        "calls": [
            {
                "name": call.name,
                "op": call.op,
                "scope": "/".join(call.scope),
                "inputs": list(call.inputs),
                "outputs": {name: outline.types[name] for name in call.outputs if name},
                "line": call.line,
                "parameters": call.parameters,
                "flops": outline.flops(call),
                "bytes_moved": outline.moved(call),
                "flops_formula": None if call.cost.flops is None else str(call.cost.flops),
            }
            for call in outline.calls
        ],
        "notes": list(outline.notes),
    }


@dataclass
class Scope:
    """A scope: what stands in it in program order, and the sums of what that costs."""

    name: str
    children: dict[str, Scope | Call] = field(default_factory=dict)
    calls: int = 0
    parameters: int = 0
    flops: int = 0
    moved: int = 0

    def figures(self, times: int = 1) -> tuple[int, int, int]:
        """Return parameters, operations and bytes moved."""
        return self.parameters * times, self.flops * times, self.moved * times

    def pattern(self) -> tuple[object, ...]:
        """Return what scopes that are alike have in common."""
        inner = [c.pattern() if isinstance(c, Scope) else c.op for c in self.children.values()]
        return self.parameters, self.flops, *inner


def scopes_of(outline: Outline) -> Scope:
    """Return the calls as a tree."""
    top = Scope(outline.title)
    for call in outline.calls:
        walk = [top]
        for part in call.scope:
            inner = walk[-1].children.get(f"scope {part}")
            if not isinstance(inner, Scope):
                inner = walk[-1].children[f"scope {part}"] = Scope(part)
            walk.append(inner)
        walk[-1].children[f"call {call.name}"] = call
        for scope in walk:
            scope.calls += 1
            scope.parameters += call.parameters
            scope.flops += outline.flops(call)
            scope.moved += outline.moved(call)
    return top


def _print(outline: Outline, depth: int) -> None:
    try:
        from rich.console import Console
        from rich.text import Text
        from rich.tree import Tree
    except ImportError as error:
        raise UnsupportedError(
            "the tree is drawn with rich, which is not installed",
            op="show",
            hint="pip install rich; --json and --html do without it",
        ) from error
    from lazygraph.picture import amount, said_sizes

    console = Console(highlight=False, soft_wrap=True)
    top = scopes_of(outline)
    head = Text.assemble((outline.title, "bold"), (f"  {top.calls:,} calls  {_figures(*top.figures())}", "dim"))
    tree = Tree(head)
    _grow(tree, top, outline, depth)
    console.print(tree)
    for kind, names in (("input", outline.inputs), ("output", outline.outputs)):
        for name in names[:8]:
            console.print(f"{kind:<8}", name, Text(outline.types.get(name, ""), "cyan"))
        if len(names) > 8:
            console.print(f"{kind:<8}", Text(f"and {len(names) - 8:,} more", "dim"))
    console.print("weights ", f"{outline.parameters:,} numbers, {amount(outline.weight_bytes, 'B')}")
    manifest = outline.manifest
    if manifest is not None:
        room = amount(manifest.cache_bytes, "B")
        per = amount(manifest.bytes_per_token, "B")
        console.print("cache   ", f"{manifest.n_layers} layers, {per} per token, {room} at {manifest.max_seq_len:,}")
    console.print("costs   ", said_sizes(outline))
    if outline.unknown():
        console.print("unknown ", f"what these cost, or not in full: {', '.join(outline.unknown())}")
    for note in outline.notes:
        print(f"note: {note}", file=sys.stderr)


def _grow(tree: Tree, scope: Scope, outline: Outline, depth: int) -> None:
    from rich.text import Text

    if depth < 1:
        return
    for run in _runs(list(scope.children.values())):
        first = run[0]
        if isinstance(first, Scope):
            last = run[-1]
            assert isinstance(last, Scope)  # runs are of one kind
            name = first.name if len(run) == 1 else f"{first.name} to {last.name}"
            count = "" if len(run) == 1 else f"{len(run)} alike, each "
            said = f"  {count}{first.calls:,} calls  {_figures(*first.figures())}"
            branch = tree.add(Text.assemble((name, "bold"), (said, "dim")))
            _grow(branch, first, outline, depth - 1)
        else:
            shapes = ", ".join(outline.types[name] for name in first.outputs if name)
            figures = _figures(first.parameters, outline.flops(first), outline.moved(first))
            line = f"  {first.line}" if first.line else ""
            own = first.name.split("/")[-1]
            tree.add(Text.assemble((first.op, "green"), f" {own} ", (shapes, "cyan"), (f"  {figures}{line}", "dim")))


def _runs(children: list[Scope | Call]) -> Iterator[list[Scope | Call]]:
    """Yield what is shown in one line: scopes side by side that are alike, everything else alone."""
    run: list[Scope | Call] = []
    for child in children:
        first = run[0] if run else None
        if isinstance(child, Scope) and isinstance(first, Scope) and child.pattern() == first.pattern():
            run.append(child)
            continue
        if run:
            yield run
        run = [child]
    if run:
        yield run


def _figures(parameters: int, flops: int, moved: int) -> str:
    from lazygraph.picture import amount

    parts = [f"{amount(parameters)} parameters"] if parameters else []
    parts += [f"{amount(flops)} FLOPs"] if flops else []
    parts += [amount(moved, "B")] if moved else []
    return ", ".join(parts)
