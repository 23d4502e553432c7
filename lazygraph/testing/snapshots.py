"""Graphs as text beside the tests: what they were is compared with what they are."""

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lazygraph.export.loading import load
from lazygraph.printing import to_text
from lazygraph.tensor import Tensor

if TYPE_CHECKING:
    from lazygraph.export.subject import Given


class Snapshots:
    """The snapshots of one test.

    Args:
        folder: Where they lie.
        name: The test's name.
        update: Write what is found instead of comparing.
    """

    def __init__(self, folder: Path, name: str, update: bool) -> None:
        self.folder, self.name, self.update = folder, name, update
        self._count = 0

    def __call__(self, outputs_or_file: Given, name: str = "") -> None:
        """Require that a graph is what it was when its snapshot was written.

        Args:
            outputs_or_file: Tensors by output name as for ``lg.save``, an .onnx file, or a model.
            name: Tells several snapshots of one test apart; they are numbered where it is left out.

        Raises:
            AssertionError: The graph has changed (the message is a diff), or there is no snapshot yet.
        """
        __tracebackhide__ = True
        self._count += 1
        suffix = f".{name}" if name else f".{self._count}" if self._count > 1 else ""
        file = self.folder / f"{self.name}{suffix}.txt"
        text = snapshot_text(outputs_or_file) + "\n"
        if self.update:
            if not file.is_file() or file.read_text(encoding="utf-8") != text:
                self.folder.mkdir(parents=True, exist_ok=True)
                file.write_text(text, encoding="utf-8", newline="\n")
            return
        if not file.is_file():
            raise AssertionError(f"there is no snapshot {file} yet: run pytest with --lazygraph-update to write it")
        before = file.read_text(encoding="utf-8")
        if before != text:
            lines = difflib.unified_diff(before.splitlines(), text.splitlines(), "snapshot", "graph", "", "", 2, "")
            raise AssertionError(
                "\n".join([f"the graph is not its snapshot {file}", *lines, "(--lazygraph-update takes the new one)"])
            )


def snapshot_text(given: Given) -> str:
    """Return the text that is kept of a graph (see ``lg.to_text``)."""
    if isinstance(given, Tensor):
        return to_text(given)
    if isinstance(given, Mapping):
        plain: dict[str, Any] = {n: value[0] if isinstance(value, tuple) else value for n, value in given.items()}
        return to_text(plain)
    if isinstance(given, (str, os.PathLike)):
        path = Path(given)
        return to_text(load(path / "model.onnx" if path.is_dir() else path).outputs)
    return to_text(load(given).outputs)


__all__ = ["Snapshots", "snapshot_text"]
