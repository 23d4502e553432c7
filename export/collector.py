"""Bursts of allocation without the garbage collector walking all of them again and again."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator


@contextlib.contextmanager
def collector_paused() -> Iterator[None]:
    """Hold back cyclic garbage collection: what is made inside lives on or goes by reference count."""
    running = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if running:
            gc.enable()


__all__ = ["collector_paused"]
