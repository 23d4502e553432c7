"""The family's decoders, each exported and opened once for all tests that run it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import pytest

import lazygraph as lg
from lazygraph.memory import Lowering
from tests.support import family

Fresh: TypeAlias = Callable[[str, Lowering], lg.Decoder]


@pytest.fixture(scope="session")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> Fresh:
    """Return what gives a decoder of a kind and a lowering at length 0, filled; all share a session."""
    folder, made = tmp_path_factory.mktemp("family"), dict[tuple[str, Lowering], lg.Decoder]()

    def forked(name: str, lowering: Lowering) -> lg.Decoder:
        if (name, lowering) not in made:
            place: Path = family.export(folder / f"{name}-{lowering}", family.KINDS[name], lowering)
            made[name, lowering] = family.opened(place)
        return made[name, lowering].fork()

    return forked
