"""The laws of choosing the next token, against an oracle of their definitions."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lazygraph as lg
from lazygraph.export.sampling import Sampler

Row = np.ndarray[Any, np.dtype[np.float32]]


def allowed(logits: Row, temperature: float, top_p: float, top_k: int) -> dict[int, float]:
    """Return the probability of every token that may be drawn, by the definitions, one token at a time."""
    scaled = [(float(x) - float(max(logits))) / temperature for x in logits]
    likeliest = sorted(range(len(scaled)), key=lambda i: (-scaled[i], i))
    if top_k:
        likeliest = likeliest[:top_k]
    weights = {i: float(np.exp(scaled[i])) for i in likeliest}
    total = sum(weights.values())
    kept: dict[int, float] = {}
    for i in likeliest:
        if kept and sum(kept.values()) >= top_p:
            break
        kept[i] = weights[i] / total
    share = sum(kept.values())
    return {i: p / share for i, p in kept.items() if p > 0}


finite = st.floats(-30, 30, width=32)
rows = st.lists(finite, min_size=1, max_size=12).map(lambda x: np.array(x, np.float32))


@settings(max_examples=200, deadline=None)
@given(
    logits=rows,
    temperature=st.floats(0.05, 50),
    top_p=st.one_of(st.just(1.0), st.floats(0.01, 1)),
    top_k=st.integers(0, 14),
    seed=st.integers(0, 2**32),
)
def test_only_what_the_rules_keep_is_drawn(
    logits: Row, temperature: float, top_p: float, top_k: int, seed: int
) -> None:
    sampler = Sampler(temperature, top_p, top_k, seed)
    # sums of probabilities that meet top_p to the last bit may fall on either side of it
    least, most = (
        set(allowed(logits, temperature, p, top_k)) for p in (top_p * (1 - 1e-12), min(1, top_p * (1 + 1e-12)))
    )
    drawn = {sampler.pick(logits) for _ in range(20)}
    assert drawn <= least | most
    assert all(type(token) is int for token in drawn)


@pytest.mark.parametrize(
    ("temperature", "top_p", "top_k"),
    [(1.0, 1.0, 0), (0.5, 1.0, 0), (3.0, 1.0, 0), (1.0, 0.7, 0), (1.0, 1.0, 3), (2.0, 0.9, 4)],
)
def test_tokens_are_drawn_as_often_as_they_are_likely(temperature: float, top_p: float, top_k: int) -> None:
    logits = np.array([0.3, -1.0, 2.0, 1.9, 0.0, -4.0, -np.inf], np.float32)
    sampler = Sampler(temperature, top_p, top_k, seed=20)
    draws = 4000
    counts = Counter(sampler.pick(logits) for _ in range(draws))
    wanted = allowed(logits, temperature, top_p, top_k)
    assert set(counts) <= set(wanted)
    for token, probability in wanted.items():
        spread = 5 * np.sqrt(draws * probability * (1 - probability)) + 1  # five standard deviations
        assert abs(counts[token] - draws * probability) <= spread


@given(logits=rows)
def test_temperature_zero_takes_the_likeliest_the_first_of_equals(logits: Row) -> None:
    token = Sampler(0.0, 0.5, 3, 1).pick(logits)
    assert token == int(np.flatnonzero(logits == logits.max())[0])


@given(logits=rows, seed=st.integers(0, 2**64))
def test_samplers_of_one_seed_draw_the_same(logits: Row, seed: int) -> None:
    one, other = Sampler(2.0, 0.95, 0, seed), Sampler(2.0, 0.95, 0, seed)
    assert [one.pick(logits) for _ in range(10)] == [other.pick(logits) for _ in range(10)]


def test_no_seed_draws_anew_each_time() -> None:
    logits = np.zeros(1000, np.float32)
    one, other = Sampler(1.0), Sampler(1.0)
    assert [one.pick(logits) for _ in range(10)] != [other.pick(logits) for _ in range(10)]


def test_top_k_and_top_p_of_one_are_the_likeliest() -> None:
    logits = np.array([1, 3, 3, 2], np.float32)
    for sampler in (Sampler(5.0, top_k=1), Sampler(5.0, top_p=1e-12)):
        assert {sampler.pick(logits) for _ in range(50)} == {1}
    assert {Sampler(1.0, top_k=2, seed=i).pick(logits) for i in range(50)} == {1, 2}
    assert {Sampler(9.0, top_k=99, seed=i).pick(logits) for i in range(200)} == {0, 1, 2, 3}


def test_top_p_keeps_the_smallest_set_that_holds_so_much() -> None:
    logits = np.log(np.array([0.5, 0.25, 0.125, 0.125], np.float32))
    kept = {p: {Sampler(1.0, top_p=p, seed=i).pick(logits) for i in range(300)} for p in (0.4, 0.6, 0.8, 0.9, 1.0)}
    assert kept == {0.4: {0}, 0.6: {0, 1}, 0.8: {0, 1, 2}, 0.9: {0, 1, 2, 3}, 1.0: {0, 1, 2, 3}}


@pytest.mark.parametrize("temperature", [5e-324, 1e-300, 1e-30, 1e30, 1.7e308])
@pytest.mark.parametrize("scale", [1.0, 1e-38, 1e38])
def test_no_temperature_overflows(temperature: float, scale: float) -> None:
    logits = np.array([0.0, -2.0, 3.0], np.float32) * np.float32(scale)
    drawn = {Sampler(temperature, seed=i).pick(logits) for i in range(60)}
    if temperature <= 1e-300:
        assert drawn == {2}
    elif scale / temperature < 1e-6:
        assert drawn == {0, 1, 2}  # all alike


def test_minus_infinity_is_never_drawn() -> None:
    logits = np.array([-np.inf, 0, -np.inf], np.float32)
    for temperature in (0.0, 1.0, 1e300):
        assert {Sampler(temperature, seed=i).pick(logits) for i in range(30)} == {1}


@pytest.mark.parametrize(
    "logits", [[0, np.nan], [np.nan, np.nan], [-np.inf, -np.inf], [0, np.inf], [np.inf, np.nan]], ids=str
)
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_logits_that_are_no_numbers_are_refused(logits: list[float], temperature: float) -> None:
    with pytest.raises(lg.OperandError) as caught:
        Sampler(temperature, seed=1).pick(np.array(logits, np.float32))
    assert str(caught.value) == (
        f"generate: the logits hold no number to choose by\n  expected : finite logits\n  at       : {caught.value.at}"
    )


@pytest.mark.parametrize(
    ("numbers", "what", "expected"),
    [
        ({"temperature": -1.0}, "temperature is -1.0", "a finite number of at least 0"),
        ({"temperature": "1"}, "temperature is '1'", "a finite number of at least 0"),
        ({"top_p": 0.0}, "top_p is 0.0", "a number in (0, 1]"),
        ({"top_k": 1.5}, "top_k is 1.5", "0 for all, or a number of tokens"),
        ({"seed": -1}, "seed is -1", "a whole number of at least 0"),
    ],
)
def test_the_messages_of_numbers_outside_their_range(numbers: dict[str, Any], what: str, expected: str) -> None:
    with pytest.raises(lg.OperandError) as caught:
        Sampler(**numbers)
    assert str(caught.value) == f"generate: {what}\n  expected : {expected}\n  at       : {caught.value.at}"


def test_numpys_numbers_are_numbers() -> None:
    sampler = Sampler(np.float32(1.0), np.float64(0.9), np.int64(3), np.uint8(7))  # type: ignore[arg-type]
    assert sampler.pick(np.array([1, 2, 3], np.float32)) in (0, 1, 2)
