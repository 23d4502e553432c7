"""``lazygraph export``: a checkpoint becomes a folder with an .onnx in it."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from lazygraph.conversion import convert
from lazygraph.export.manifest import Manifest
from lazygraph.memory import described

if TYPE_CHECKING:
    from rich.progress import Progress as RichProgress
    from rich.progress import TaskID


def export(options: argparse.Namespace) -> int:
    """Run the command; return its exit code."""
    notes: list[str] = []
    began = time.perf_counter()
    with Bars(quiet=options.quiet) as bars:
        manifest = convert(
            options.model,
            options.out,
            max_seq_len=options.max_seq_len,
            precision=options.precision,
            store=options.store,
            provider=options.provider,
            mla=options.mla,
            lowering=options.lowering,
            portable=options.portable,
            batch=options.batch,
            cache_dtype=options.cache_dtype,
            ignore_keys=options.ignore_key,
            source_lines=options.source_lines,
            warn=notes.append,
            progress=bars.update,
        )
    if not options.quiet:
        for note in notes:
            print(f"note: {note}", file=sys.stderr)
        print(summary(manifest, Path(options.out), time.perf_counter() - began))
    return 0


def summary(manifest: Manifest, folder: Path, seconds: float) -> str:
    """Return what was built, for people."""
    rows = {
        "model": f"{manifest.model_type}, from {manifest.source}",
        "graph": f"{manifest.nodes:,} nodes",
        "weights": f"{manifest.parameters:,} numbers, {size(manifest.weight_bytes)}",
        "cache": f"{described(manifest.memory)}: {manifest.bytes_per_token:,} bytes per token, "
        f"{size(manifest.cache_bytes)} at {manifest.max_seq_len:,} tokens",
        "in place": "every slot" if not manifest.copied else f"all but {len(manifest.copied)} slots",
        "files": f"in {folder}: " + ", ".join(sorted(file.name for file in folder.iterdir())),
        "took": f"{seconds:.1f} s",
    }
    return "\n".join(f"{label:<9} {text}" for label, text in rows.items())


def size(nbytes: int) -> str:
    """Return a number of bytes in the unit that suits it."""
    amount = float(nbytes)
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if amount < 1024 or unit == "GiB":
            break
        amount /= 1024
    return f"{amount:,.0f} {unit}" if unit == "bytes" else f"{amount:,.1f} {unit}"


class Bars:
    """A progress bar on stderr; nothing where stderr is no terminal.

    Args:
        quiet: Show nothing.
    """

    def __init__(self, quiet: bool) -> None:
        self._bars: RichProgress | None = None
        self._task: TaskID | None = None
        if quiet or not sys.stderr.isatty():
            return
        from rich.console import Console
        from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

        self._bars = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            DownloadColumn(binary_units=True),
            TimeRemainingColumn(),
            console=Console(stderr=True),
            transient=True,
        )

    def __enter__(self) -> Self:
        if self._bars is not None:
            self._bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bars is not None:
            self._bars.stop()

    def update(self, weight: str, done: int, total: int) -> None:
        """Show how much is written, in bytes."""
        if self._bars is None:
            return
        if self._task is None:
            self._task = self._bars.add_task("writing weights", total=total)
        self._bars.update(self._task, completed=done, total=total)
