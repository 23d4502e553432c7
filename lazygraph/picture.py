"""A model as one web page that needs nothing else: ``report`` writes it."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from html import escape
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any

from lazygraph.export.files import draft
from lazygraph.export.outline import Outline, outline_of, outline_of_file
from lazygraph.export.program import Outputs
from lazygraph.memory import Memory
from lazygraph.speed import Point
from lazygraph.version import VERSION

_COLOURS = 8


def report(
    outputs: Outputs | str | os.PathLike[str],
    path: str | os.PathLike[str],
    *,
    title: str | None = None,
    sizes: Mapping[str, int] | None = None,
) -> None:
    """Write a web page that shows a graph: its scopes, shapes, weights, costs, and the lines that made it.

    The page is one file, readable offline.

    Args:
        outputs: Tensors, as for ``lazygraph.save``; or the path of an ``.onnx`` file or of an export folder.
        path: The page's file; an older one is replaced.
        title: What stands above it; the source's name when left out.
        sizes: The numbers that named sizes have in costs; 1 where left out.

    Raises:
        OperandError: A size that the graph does not have, or outputs that are none.
        LoadError: The file is no model.
    """
    if isinstance(outputs, (str, os.PathLike)):
        outline = outline_of_file(Path(outputs), sizes)
    else:
        outline = outline_of(outputs, title or "graph", sizes)
    write_page(page(outline, title=title), Path(path))


def write_page(text: str, path: Path) -> None:
    """Write a page whole or not at all."""
    with draft(path) as made:
        made.file.write(text.encode())
        made.settle()
        made.publish()


def page(outline: Outline, points: Sequence[Point] = (), title: str | None = None) -> str:
    """Return the page as HTML.

    Args:
        outline: What to show.
        points: Measured times per token, of a decoder.
        title: What stands above it.
    """
    manifest = outline.manifest
    subtitle = f"{len(outline.calls):,} operator calls, {len(outline.weights):,} weights"
    if manifest is not None:
        subtitle = f"{manifest.model_type}, from {manifest.source}. {subtitle}"
    ends = _ends(outline)
    parts = {
        "title": escape(title or outline.title),
        "subtitle": escape(subtitle),
        "style": _read("report.css"),
        "script": _read("report.js"),
        "body": _tiles(outline) + _speed(points) + _costs(outline) + _cache(outline),
        "graphlead": escape(_lead(outline)),
        "ends": ends,
        "footer": f"Made by lazygraph {VERSION}. {escape(' '.join(outline.notes))}",
        "data": json.dumps(_data(outline), separators=(",", ":"), ensure_ascii=False).replace("</", "<\\/"),
    }
    return Template(_read("report.html")).substitute(parts)


def _read(name: str) -> str:
    return (files("lazygraph") / "page" / name).read_text(encoding="utf-8")


def amount(number: float, unit: str = "") -> str:
    """Return a number with three digits and a letter for its size: ``1.35 G``; bytes count by 1,024."""
    step, letters = (1024, ["B", "KiB", "MiB", "GiB", "TiB"]) if unit == "B" else (1000, ["", "k", "M", "G", "T", "P"])
    place = 0
    while number >= step and place < len(letters) - 1:
        number /= step
        place += 1
    digits = f"{number:.0f}" if not place or number >= 100 else f"{number:.1f}" if number >= 10 else f"{number:.2f}"
    return f"{digits} {letters[place]}".strip()


def _tiles(outline: Outline) -> str:
    flops = sum(map(outline.flops, outline.calls))
    moved = sum(map(outline.moved, outline.calls))
    at = said_sizes(outline)
    tiles = [
        ("Parameters", amount(outline.parameters), f"{amount(outline.weight_bytes, 'B')} of weights"),
        ("Operations per run", amount(flops), at),
        ("Bytes moved per run", amount(moved, "B"), f"{flops / moved:.2g} operations per byte" if moved else ""),
    ]
    manifest = outline.manifest
    if manifest is not None:
        room = f"{amount(manifest.cache_bytes, 'B')} at {manifest.max_seq_len:,} tokens"
        tiles.append(("Cache per token", amount(manifest.bytes_per_token, "B"), room))
    cells = "".join(
        f"<div><dt>{escape(label)}</dt><dd>{escape(value)}<small>{escape(note)}</small></dd></div>"
        for label, value, note in tiles
    )
    return f'<dl class="tiles">{cells}</dl>'


def said_sizes(outline: Outline) -> str:
    """Return the sizes that costs are counted at, in words."""
    hidden = {name for name in outline.sizes if not name.isidentifier() or (name[-1:].isdigit() and "_" in name)}
    if outline.manifest is not None:
        hidden |= {"rows", "logits_from"}
    shown = [f"{name} = {number:,}" for name, number in outline.sizes.items() if name not in hidden]
    return "at " + ", ".join(shown) if shown else "all sizes are known"


def _lead(outline: Outline) -> str:
    said = f"Each scope unfolds. Bars compare what stands side by side, {said_sizes(outline)}."
    if outline.unknown():
        said += f" What these cost is not known, or not in full: {', '.join(outline.unknown())}."
    return said


def _costs(outline: Outline) -> str:
    """Return the shares of the operators in the whole cost."""
    rows, names = [], dict.fromkeys(call.op for call in outline.calls)
    work = {name: [0, 0, 0] for name in names}
    for call in outline.calls:
        for place, number in enumerate((outline.flops(call), outline.moved(call), call.parameters)):
            work[call.op][place] += number
    totals = [sum(cost[place] for cost in work.values()) for place in range(3)]
    if not any(totals[:2]):
        return ""

    def weight(name: str) -> float:
        return sum(work[name][place] / totals[place] for place in range(2) if totals[place])

    order = sorted(names, key=weight, reverse=True)[: _COLOURS - 1]
    for place, label in enumerate(("operations", "bytes moved", "parameters")):
        if not totals[place]:
            continue
        bits = []
        rest = 1.0
        for colour, name in enumerate(order):
            share = work[name][place] / totals[place]
            rest -= share
            if share > 0.0005:
                tip = escape(f"{name}: {share:.1%}")
                bits.append(f'<i style="width:{share:.3%};background:var(--c{colour})" title="{tip}"></i>')
        if rest > 0.0005:
            bits.append(f'<i style="width:{rest:.3%};background:var(--c7)" title="others: {rest:.1%}"></i>')
        said = ", ".join(f"{name} {work[name][place] / totals[place]:.1%}" for name in order[:3])
        rows.append(
            f'<span>{label}</span><div class="stack" role="img" aria-label="{escape(said)}">{"".join(bits)}</div>'
        )
    keys = "".join(f'<li><b style="background:var(--c{i})"></b>{escape(n)}</li>' for i, n in enumerate(order))
    if len(names) > len(order):
        keys += '<li><b style="background:var(--c7)"></b>others</li>'
    return (
        '<section aria-labelledby="cost"><h2 id="cost">Where the cost is</h2><p class="lead">Shares of the operators, '
        f'{escape(said_sizes(outline))}.</p><div class="share">{"".join(rows)}</div>'
        f'<ul class="keys">{keys}</ul></section>'
    )


def _cache(outline: Outline) -> str:
    """Return the cache as slots x layers; each cell is filled as far as it is in use."""
    manifest = outline.manifest
    if manifest is None or not manifest.memory:
        return ""
    used = outline.sizes.get("past_len", 0) + outline.sizes.get("n", 1)
    slots: dict[tuple[object, ...], list[Memory]] = {}
    for slot in manifest.memory:
        slots.setdefault((slot.slot, slot.kind, slot.trailing, slot.dtype, slot.capacity), []).append(slot)
    rows = []
    for colour, alike in enumerate(slots.values()):
        first = alike[0]
        total = sum(slot.nbytes for slot in alike)
        filled = min(1.0, used / first.capacity) if first.kind in ("rows", "window") else 1.0
        cells = "".join(
            f'<i style="--tone:var(--c{colour % 7});--full:{max(filled, 0.02):.0%}" title="layer {slot.layer}, '
            f'{escape(slot.slot)}: {escape(amount(slot.nbytes, "B"))}"></i>'
            for slot in alike
        )
        kind = f"{first.kind} of {first.window}" if first.window else first.kind
        rows.append(
            f'<div class="slot"><code>{escape(first.slot)}</code> {escape(amount(total, "B"))}<small>{escape(kind)}, '
            f'{escape(first.dtype)} {escape(str([first.capacity, *first.trailing]))}</small></div><div class="cells" '
            f'role="img" aria-label="{escape(first.slot)}: {len(alike)} layers, {filled:.0%} full">{cells}</div>'
        )
    said = (
        f"{manifest.n_layers} layers, one cell each; {amount(manifest.bytes_per_token, 'B')} per token, "
        f"{amount(manifest.cache_bytes, 'B')} when full. Filled as after {used:,} of {manifest.max_seq_len:,} tokens; "
        + ("every slot is updated in place." if not manifest.copied else f"{len(manifest.copied)} slots are copied.")
    )
    return (
        f'<section aria-labelledby="cache"><h2 id="cache">Cache</h2><p class="lead">{escape(said)}</p>'
        f'<div class="cache">{"".join(rows)}</div></section>'
    )


def _speed(points: Sequence[Point]) -> str:
    """Return the curve of time per token against length, with its spread and a table of the same."""
    if not points:
        return ""
    width, height, left, bottom = 1000, 300, 56, 34
    far = max(point.length for point in points) or 1
    high = max(point.high for point in points) * 1.1

    def x(length: float) -> float:
        return left + (width - left - 16) * length / far

    def y(seconds: float) -> float:
        return 10 + (height - bottom - 10) * (1 - seconds / high)

    lines = []
    for k in range(5):
        level = high * k / 4
        lines.append(f'<line class="grid" x1="{left}" x2="{width - 16}" y1="{y(level):.1f}" y2="{y(level):.1f}"/>')
        lines.append(f'<text x="{left - 8}" y="{y(level) + 4:.1f}" text-anchor="end">{level * 1e3:.3g}</text>')
    upper = [f"{x(p.length):.1f},{y(p.high):.1f}" for p in points]
    lower = [f"{x(p.length):.1f},{y(p.low):.1f}" for p in reversed(points)]
    curve = " ".join(f"{x(p.length):.1f},{y(p.seconds):.1f}" for p in points)
    dots = []
    for p in points:
        tip = f"{p.length:,} tokens: {p.seconds * 1e3:.2f} ms ({1 / p.seconds:.1f} tokens/s)"
        place = f'cx="{x(p.length):.1f}" cy="{y(p.seconds):.1f}"'
        dots.append(f'<circle class="dot" {place} r="4"><title>{tip}</title></circle>')
        dots.append(f'<text x="{x(p.length):.1f}" y="{height - 10}" text-anchor="middle">{p.length:,}</text>')
    rows = "".join(
        f'<tr><td class="n">{p.length:,}</td><td class="n">{p.seconds * 1e3:.2f}</td><td class="n">'
        f'{p.low * 1e3:.2f} to {p.high * 1e3:.2f}</td><td class="n">{1 / p.seconds:,.1f}</td></tr>'
        for p in points
    )
    return (
        '<section aria-labelledby="speed"><h2 id="speed">Time per token</h2><p class="lead">Milliseconds of one decode '
        "step against the tokens before it, measured on this machine: the median, and the range of all runs.</p>"
        f'<div class="chart"><svg viewBox="0 0 {width} {height}" role="img" aria-label="Time per token in milliseconds '
        f'against length">{"".join(lines)}<polygon class="band" points="{" ".join(upper + lower)}"/>'
        f'<polyline class="curve" points="{curve}"/>{"".join(dots)}</svg></div><details><summary>The numbers</summary>'
        '<table><tr><th class="n">tokens before</th><th class="n">ms</th><th class="n">range</th>'
        f'<th class="n">tokens/s</th></tr>{rows}</table></details></section>'
    )


def _ends(outline: Outline) -> str:
    """Return what goes in and what comes out; of a decoder's cache, one line."""
    cached = (
        {name for slot in outline.manifest.memory for name in (slot.source, slot.target)} if outline.manifest else ()
    )
    rows = []
    for kind, names in (("input", outline.inputs), ("output", outline.outputs)):
        shown = [name for name in names if name not in cached]
        rows += [
            f"<tr><td>{kind}</td><td><code>{escape(name)}</code></td>"
            f"<td><code>{escape(outline.types.get(name, ''))}</code></td></tr>"
            for name in shown
        ]
        if len(shown) < len(names):
            rows.append(f"<tr><td>{kind}</td><td>{len(names) - len(shown)} of the cache</td><td></td></tr>")
    return (
        '<section aria-labelledby="ends"><h2 id="ends">Inputs and outputs</h2><table><tr><th>kind</th><th>name</th>'
        f"<th>type</th></tr>{''.join(rows)}</table></section>"
    )


def _data(outline: Outline) -> dict[str, Any]:
    """Return the calls as the page's script reads them: texts once each, calls as lists."""
    ops, scopes, types, values = _Table(), _Table(), _Table(), _Table()
    calls = [
        [
            call.name,
            ops.place(call.op),
            scopes.place(call.scope),
            [values.place(name) for name in call.inputs if name],
            [values.place(name) for name in call.outputs if name],
            [outline.flops(call), outline.moved(call), call.parameters],
            call.line,
            ", ".join(f"{name}={text}" for name, text in call.attributes),
        ]
        for call in outline.calls
    ]
    named = [[name, types.place(outline.types.get(name, ""))] for name in values.items]
    return {"ops": ops.items, "scopes": scopes.items, "types": types.items, "values": named, "calls": calls}


class _Table:
    """Each different thing once."""

    def __init__(self) -> None:
        self.items: list[Any] = []
        self._places: dict[Any, int] = {}

    def place(self, thing: Any) -> int:
        """Return the place of a thing, a new one where it was not there."""
        found = self._places.get(thing)
        if found is None:
            found = self._places[thing] = len(self.items)
            self.items.append(thing)
        return found


__all__ = ["amount", "page", "report", "said_sizes", "write_page"]
