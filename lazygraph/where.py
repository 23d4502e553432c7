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
        return f"{_short(self.file)}:{self.line}"


def user_line(above: int = 1) -> Where | None:
    """Return the innermost line that is not lazygraph's own, or None when every frame is.

    Model files (``lazygraph.models``) are programs written in the language, so their lines count as a user's.
    A line of ``<stdin>``, ``exec`` or a notebook cell counts too: frames are told apart by module, not by file.

    Args:
        above: How many callers up the search starts; those in between are lazygraph's own.
    """
    frame: FrameType | None = sys._getframe(above)
    own = _own
    while frame is not None:
        code = frame.f_code
        if id(code) not in own:
            module = frame.f_globals.get("__name__") or ""
            if not module.startswith("lazygraph.") or module.startswith("lazygraph.models."):
                return _line(frame, code)
            own[id(code)] = code
        frame = frame.f_back
    return None


def _line(frame: FrameType, code: CodeType) -> Where:
    """Return where a frame stands. Python counts a line from the start of its code, so what was counted is kept."""
    place = frame.f_lasti
    found = _places.get(id(code))
    if found is None:
        if len(_places) >= _MOST:
            _places.clear()
        found = _places[id(code)] = code, {}
    at = found[1].get(place)
    if at is None:
        at = found[1][place] = Where(code.co_filename, frame.f_lineno)
    return at


# By its id, every code of lazygraph's own that was met: asked some ten times for every node. A code that is held here
# shares its id with no other.
_own: dict[int, CodeType] = {}
# By its id, a user's code and the line of each of its instructions that asked for something.
_places: dict[int, tuple[CodeType, dict[int, Where]]] = {}
_MOST = 10_000


def _short(file: str) -> str:
    if file.startswith("<"):
        return file
    try:
        relative = os.path.relpath(file)
    except ValueError:  # another drive on Windows
        return file
    return file if relative.startswith("..") else relative
