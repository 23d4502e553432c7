"""Files written whole or not at all."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
from collections.abc import Iterator
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import BinaryIO

from lazygraph.errors import ExportError, OperandError


class Draft:
    """A file under a temporary name beside its place; ``publish`` puts it there in one step."""

    def __init__(self, place: Path, handle: BinaryIO, temporary: Path) -> None:
        self.place = place
        self.file = handle
        self.temporary = temporary

    def settle(self) -> None:
        """Bring everything written to the disk."""
        self.file.flush()
        os.fsync(self.file.fileno())
        self.file.close()

    def publish(self, place: Path | None = None) -> None:
        """Give the file its name, replacing what has it (a link itself, never what it points to)."""
        os.replace(self.temporary, place or self.place)


@contextlib.contextmanager
def draft(place: Path) -> Iterator[Draft]:
    """Open a draft of the file; what was not published is removed at the end, whatever happened.

    Raises:
        ExportError: The disk refuses, naming the place.
    """
    temporary = place.with_name(f".{place.name}.{secrets.token_hex(6)}.tmp")
    try:
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
        handle = os.fdopen(os.open(temporary, flags, 0o666), "wb")
    except OSError as error:
        raise ExportError(f"{place} cannot be written: {error.strerror}", op="save", path=str(place)) from error
    try:
        yield Draft(place, handle, temporary)
    except OSError as error:
        raise ExportError(
            f"{place} cannot be written: {error.strerror or error}",
            op="save",
            expected="a folder with room for the file",
            hint="what was there before is unchanged",
            path=str(place),
        ) from error
    finally:
        with contextlib.suppress(OSError):
            handle.close()
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)


def settle_folder(folder: Path) -> None:
    """Bring the folder's names to the disk, where the system can."""
    if os.name != "posix":
        return
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def plain_name(location: str, model: Path) -> str:
    """Return a weights file's name, which must be one in the model's own folder.

    Raises:
        OperandError: Empty, absolute, with a folder in it, or the model's own name.
    """
    posix, windows = PurePosixPath(location), PureWindowsPath(location)
    plain = (
        bool(location)
        and location not in (".", "..")
        and posix.name == location == windows.name
        and not windows.drive
        and "\0" not in location
    )
    if not plain or location.casefold() == model.name.casefold():
        raise OperandError(
            f"{location!r} cannot be the weights file",
            op="save",
            expected=f"a plain file name in the folder of {model.name}, other than its own",
            hint="leave it out: lazygraph finds one",
        )
    return location


def weights_name(model: Path, digest: str) -> str:
    """Return the name that the weights of this content have beside the model."""
    return f"{model.stem}-{digest[:12]}{model.suffix or '.onnx'}.data"


def is_weights_name(model: Path, location: str) -> bool:
    """Return whether ``weights_name`` could have made the name for this model."""
    pattern = re.escape(model.stem) + r"-[0-9a-f]{12}" + re.escape(model.suffix or ".onnx") + r"\.data"
    return re.fullmatch(pattern, location) is not None


__all__ = ["Draft", "draft", "is_weights_name", "plain_name", "settle_folder", "weights_name"]
