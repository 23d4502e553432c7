"""Other people's models survive being loaded and saved: whatever ran before gives the same results, to the bit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import pytest

from tests.support import round_trips
from tests.support.round_trips import Model

# Models that onnxruntime runs and that are not the same after a round trip, with the reason. None so far.
LOST: dict[str, str] = {}


def held(models: Iterable[Model]) -> Counter[str]:
    """Require every model to survive; return how many ran, and how many onnxruntime does not run at all."""
    found = Counter[str]()
    faults = {}
    for model in models:
        outcome = round_trips.outcome(model)
        found[outcome] += 1
        if outcome not in ("equal", "not run") and model.name not in LOST:
            faults[model.name] = outcome
    assert faults == {}
    return found


def sample(models: Iterable[Model], size: int) -> list[Model]:
    """Return models that call, between them, as many operators as can be: each one an operator that none before did."""
    chosen: list[Model] = []
    seen: set[tuple[str, str, int]] = set()
    for model in models:
        if not model.operators <= seen:
            seen |= model.operators
            chosen.append(model)
    return chosen[:: max(1, len(chosen) // size)]


def test_small_models_that_onnx_ships_survive() -> None:
    """140 models; onnxruntime does not run 40 of the originals: operators older than opset 7."""
    found = held(round_trips.read(file) for file in round_trips.files() if "light" not in file.parts)
    assert sum(found.values()) >= 140
    assert found["equal"] >= 100


def test_a_case_of_most_operators_survives() -> None:
    chosen = sample(round_trips.cases(), 250)
    assert len({op for model in chosen for op, _, _ in model.operators}) > 150
    found = held(chosen)
    assert found["equal"] >= 180


@pytest.mark.slow
def test_large_models_that_onnx_ships_survive() -> None:
    """Nine image classifiers, in some 6 seconds."""
    found = held(round_trips.read(file) for file in round_trips.files() if "light" in file.parts)
    assert found == {"equal": 9}


@pytest.mark.slow
def test_every_case_survives() -> None:
    """1883 cases, in some 10 seconds; onnxruntime does not run 190 of the originals on what they are fed."""
    found = held(round_trips.cases())
    assert sum(found.values()) >= 1880
    assert found["equal"] >= 1690
