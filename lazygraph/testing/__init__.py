"""What tests of graphs need: valid, equal to a reference, decoding alike in any chunking, unchanged since last time.

Installing lazygraph is enough for pytest: the fixtures come by its plugin. onnx and onnxruntime load on first use.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lazygraph.testing.decoding import assert_decodes_like
    from lazygraph.testing.feeding import feeds
    from lazygraph.testing.matching import assert_matches
    from lazygraph.testing.valid import assert_valid

_HOMES = {
    "assert_decodes_like": "decoding",
    "assert_matches": "matching",
    "assert_valid": "valid",
    "feeds": "feeding",
}


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"lazygraph.testing.{home}"), name)


def __dir__() -> list[str]:
    return sorted(_HOMES)


__all__ = ["assert_decodes_like", "assert_matches", "assert_valid", "feeds"]
