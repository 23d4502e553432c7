"""From tensors to ONNX files and to numbers: lowering, checks, saving, onnxruntime sessions.

Names are loaded when they are first asked for; onnx and onnxruntime when they are first needed.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lazygraph.export.alias import shared_memory_faults
    from lazygraph.export.batch_decoder import BatchDecoder
    from lazygraph.export.decoder import Decoder
    from lazygraph.export.decoder_files import save_decoder
    from lazygraph.export.loading import load
    from lazygraph.export.saving import save, to_onnx
    from lazygraph.export.scripts import call
    from lazygraph.export.session import Session, open_session
    from lazygraph.export.sharing import save_all

_HOMES = {
    "BatchDecoder": "batch_decoder",
    "Decoder": "decoder",
    "Session": "session",
    "call": "scripts",
    "load": "loading",
    "open_session": "session",
    "save": "saving",
    "save_all": "sharing",
    "save_decoder": "decoder_files",
    "shared_memory_faults": "alias",
    "to_onnx": "saving",
}


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"lazygraph.export.{home}"), name)


def __dir__() -> list[str]:
    return sorted(_HOMES)


__all__ = [
    "BatchDecoder",
    "Decoder",
    "Session",
    "call",
    "load",
    "open_session",
    "save",
    "save_all",
    "save_decoder",
    "shared_memory_faults",
    "to_onnx",
]
