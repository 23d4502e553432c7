"""The user's own line: which file and line outside lazygraph asked for something."""

from __future__ import annotations

import os
import sys
from types import CodeType, FrameType
from typing import NamedTuple


class Where(NamedTuple):
    """A line of the user's program; ``str()`` shows it as ``train.py:14``."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{shown_file(self.file)}:{self.line}"


def user_line(above: int = 1) -> Where | None:
    """Return the innermost line that is not lazygraph's own, or None when every frame is.

    Model files (``lazygraph.models``) are programs written in the language, so their lines count as a user's.
    A line of ``<stdin>``, ``exec`` or a notebook cell counts too: frames are told apart by module, not by file.

    Args:
        above: How many callers up the search starts; those in between are lazygraph's own.
    """
    frame: FrameType | None = sys._getframe(above)
    own, places = _own, _places
    while frame is not None:
        code = frame.f_code
        key = id(code)
        if key not in own:
            found = places.get(key) or _judged(frame, code)
            if found is not None:  # Python counts a line from the start of its code, so what was counted is kept
                at = found[1].get(frame.f_lasti)
                if at is None:
                    at = found[1][frame.f_lasti] = Where(code.co_filename, frame.f_lineno)
                return at
        frame = frame.f_back
    return None


def _judged(frame: FrameType, code: CodeType) -> tuple[CodeType, dict[int, Where]] | None:
    """Return where the lines of a code are kept that was not met before, or None when it is lazygraph's own."""
    module = frame.f_globals.get("__name__") or ""
    if module.startswith("lazygraph.") and not module.startswith("lazygraph.models."):
        _own[id(code)] = code
        return None
    if len(_places) >= _MOST:
        _places.clear()
    found = _places[id(code)] = code, {}
    return found


# By its id, every code of lazygraph's own that was met: asked some ten times for every node. A code that is held here
# shares its id with no other.
_own: dict[int, CodeType] = {}
# By its id, a user's code and the line of each of its instructions that asked for something.
_places: dict[int, tuple[CodeType, dict[int, Where]]] = {}
_MOST = 10_000


def shown_file(file: str) -> str:
    """Return how people call a file: below the current folder if it lies there; a notebook's cell by its number."""
    if file.startswith("<"):
        return file
    notebook = sys.modules.get("IPython")
    shell = notebook.get_ipython() if notebook is not None else None
    if shell is not None:
        try:
            cell = shell.compile.format_code_name(file)
        except AttributeError:  # an older IPython
            cell = None
        if cell is not None:
            return " ".join(cell)
    try:
        relative = os.path.relpath(file)
    except ValueError:  # another drive on Windows
        return file
    return file if relative.startswith("..") else relative
