"""The user's own line: which file and line outside lazygraph asked for something."""

from __future__ import annotations

import os
import sys
from typing import NamedTuple


class Where(NamedTuple):
    """A line of the user's program; ``str()`` shows it as ``train.py:14``."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{_short(self.file)}:{self.line}"


def user_line() -> Where | None:
    """Return the innermost line that is not lazygraph's own, or None when every frame is.

    Model files (``lazygraph.models``) are programs written in the language, so their lines count as a user's.
    A line of ``<stdin>``, ``exec`` or a notebook cell counts too: frames are told apart by module, not by file.
    """
    frame = sys._getframe(1)
    while frame is not None:
        module = frame.f_globals.get("__name__") or ""
        own = _own.get(module)
        if own is None:
            own = _own[module] = module.startswith("lazygraph.") and not module.startswith("lazygraph.models.")
        if not own:
            return tuple.__new__(Where, (frame.f_code.co_filename, frame.f_lineno))
        frame = frame.f_back  # type: ignore[assignment]
    return None


# By module name: whether its lines are lazygraph's own. Asked some ten times for every node.
_own: dict[str, bool] = {}


def _short(file: str) -> str:
    if file.startswith("<"):
        return file
    try:
        relative = os.path.relpath(file)
    except ValueError:  # another drive on Windows
        return file
    return file if relative.startswith("..") else relative
