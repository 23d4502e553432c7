"""What the checkpoint readers share: JSON files, the caller's line, and the refusal of an absent tensor."""

from __future__ import annotations

import difflib
import importlib
import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from lazygraph.errors import UnsupportedError, WeightsError
from lazygraph.where import Where

# lazygraph.where counts every lazygraph.models file as a user's program. The readers are not: a message about a
# broken file should end with the line that asked for it.
_READERS = frozenset(
    "lazygraph.models." + name
    for name in (
        "chat",
        "checkpoint",
        "files",
        "gguf_config",
        "gguf_file",
        "gguf_tokenizer",
        "gguf_weights",
        "safetensors_weights",
        "text_stream",
        "tokenizer",
    )
)


def asking_line() -> Where | None:
    """Return the innermost line outside the readers and the language, or None when there is none."""
    frame = sys._getframe(1)
    while frame is not None:
        module = str(frame.f_globals.get("__name__") or "")
        own = module in _READERS or (module.startswith("lazygraph.") and not module.startswith("lazygraph.models."))
        if not own:
            return Where(frame.f_code.co_filename, frame.f_lineno)
        frame = frame.f_back  # type: ignore[assignment]
    return None


def require(*modules: str) -> None:
    """Check that packages of the ``models`` extra are there, before they are used.

    Raises:
        UnsupportedError: One is not installed.
    """
    for module in modules:
        try:
            importlib.import_module(module)
        except ModuleNotFoundError as error:
            raise UnsupportedError(
                f"the package {module} is not installed",
                op="import",
                hint="pip install 'lazygraph[models]'",
                at=asking_line(),
            ) from error


def read_json(path: Path) -> dict[str, Any]:
    """Return the object that a JSON file holds.

    Raises:
        WeightsError: The file cannot be read, is not JSON, or holds something else than an object.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise WeightsError(
            f"{path.name} cannot be read: {error.strerror or error}",
            op="open",
            operands={"file": path},
            at=asking_line(),
        ) from error
    except (ValueError, RecursionError) as error:  # JSONDecodeError and UnicodeDecodeError are ValueErrors
        raise WeightsError(
            f"{path.name} is not JSON: {error}",
            op="open",
            operands={"file": path},
            expected="a JSON object in UTF-8",
            hint="an interrupted download, or a Git LFS pointer instead of the file",
            at=asking_line(),
        ) from error

    if not isinstance(content, dict):
        raise WeightsError(
            f"{path.name} holds a {type(content).__name__}",
            op="open",
            operands={"file": path},
            expected="a JSON object",
            at=asking_line(),
        )
    return content


def read_json_if_there(path: Path) -> dict[str, Any]:
    """Return what ``read_json`` does, or an empty dict when no such file exists."""
    return read_json(path) if path.is_file() else {}


def nearest(name: str, names: Iterable[str]) -> str:
    """Return the names most like this one, for a hint; empty when none is near."""
    return ", ".join(difflib.get_close_matches(name, list(names), n=3, cutoff=0.75))


def absent(name: str, names: Iterable[str], path: Path) -> WeightsError:
    """Return the error that says that a checkpoint has no tensor of this name."""
    near = nearest(name, names)
    return WeightsError(
        f"the checkpoint has no tensor {name!r}",
        op="array",
        operands={"file": path},
        hint=f"near it are {near}" if near else "",
        at=asking_line(),
        missing=(name,),
    )


def ids_of(value: object) -> tuple[int, ...]:
    """Return the token ids of a config field that may be absent, one id, or a list of ids."""
    values = value if isinstance(value, list) else [value]
    return tuple(int(item) for item in values if isinstance(item, int) and not isinstance(item, bool) and item >= 0)


def in_order(*groups: Iterable[int]) -> tuple[int, ...]:
    """Return the ids of all groups, each once, the first mention first."""
    return tuple(dict.fromkeys(token for group in groups for token in group))
