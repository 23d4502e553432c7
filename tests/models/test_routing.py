"""Which experts a token goes to, how much each counts, and what they compute: against plain numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

import lazygraph as lg
from lazygraph.models.experts import Experts, Routing, mixture, portable_mixture, route
from tests.support.checkpoints import Array
from tests.support.deepseek import routed, swiglu_expert


def _routing(experts: int, chosen: int, **changes: Any) -> Routing:
    values: dict[str, Any] = {
        "scores": "softmax",
        "biased": False,
        "n_groups": 1,
        "n_chosen_groups": 1,
        "group_score": 1,
        "normalised": False,
        "factor": 1.0,
        **changes,
    }
    return Routing(n_experts=experts, n_chosen=chosen, **values)


def _route(routing: Routing, logits: Array, bias: Array | None = None) -> tuple[Array, Array]:
    x = lg.input("logits", lg.float32, ["n", routing.n_experts])
    b = None if bias is None else x.const(bias.astype(np.float32))
    experts, weights = lg.realize(list(route(routing, x, b)), {"logits": logits.astype(np.float32)})
    return experts, weights


def _reference(routing: Routing, logits: Array, bias: Array | None = None) -> tuple[Array, Array]:
    return routed(
        logits.astype(np.float32),
        routing.n_chosen,
        scoring=routing.scores,
        bias=bias,
        groups=routing.n_groups,
        chosen_groups=routing.n_chosen_groups,
        group_best=routing.group_score,
        normalised=routing.normalised,
        factor=routing.factor,
    )


def _same(routing: Routing, logits: Array, bias: Array | None = None) -> tuple[Array, Array]:
    experts, weights = _route(routing, logits, bias)
    wanted, wanted_weights = _reference(routing, logits, bias)
    assert experts.dtype == np.int64
    assert weights.dtype == np.float32
    assert experts.tolist() == wanted.tolist()
    np.testing.assert_allclose(weights, wanted_weights, rtol=5e-6, atol=1e-30)
    return experts, weights


KINDS: dict[str, dict[str, Any]] = {
    "greedy": {},
    "group limited": {"n_groups": 4, "n_chosen_groups": 2},
    "group limited to one": {"n_groups": 4, "n_chosen_groups": 1},
    "sigmoid": {"scores": "sigmoid"},
    "sigmoid, groups by their best two": {
        "scores": "sigmoid",
        "n_groups": 4,
        "n_chosen_groups": 2,
        "group_score": 2,
    },
    "all groups chosen": {"scores": "sigmoid", "n_groups": 4, "n_chosen_groups": 4, "group_score": 2},
}


@pytest.mark.parametrize("factor", [1.0, 2.5])
@pytest.mark.parametrize("normalised", [False, True])
@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS.keys())
def test_experts_and_weights_are_the_references(
    kind: dict[str, Any], biased: bool, normalised: bool, factor: float
) -> None:
    random = np.random.default_rng(5)
    routing = _routing(16, 4, **kind, normalised=normalised, factor=factor)
    bias = random.normal(size=16).astype(np.float32) * 0.3 if biased else None
    for n in (1, 7):
        _same(routing, 2 * random.normal(size=(n, 16)), bias)


@pytest.mark.parametrize("count", [1, 8])
def test_from_one_expert_up_to_all_of_them(count: int) -> None:
    logits = np.random.default_rng(1).normal(size=(3, 8))
    _, weights = _same(_routing(8, count, normalised=True), logits)
    np.testing.assert_allclose(weights.sum(-1), 1, rtol=1e-6)
    assert (np.diff(weights, axis=-1) <= 0).all()  # best first


# --- ties: the lower index, as ONNX defines TopK; torch leaves their order open ---


@settings(deadline=None, max_examples=60)
@given(
    logits=arrays.arrays(np.int8, (2, 12), elements=st.integers(-3, 3)),
    kind=st.sampled_from(sorted(KINDS)),
    chosen=st.integers(1, 3),
)
def test_equal_scores_are_taken_in_the_order_of_their_experts(logits: Array, kind: str, chosen: int) -> None:
    routing = _routing(12, chosen, **KINDS[kind])
    # Scores of whole logits are equal or far apart, sums of two of them too.
    _same(routing, logits.astype(np.float32))


def test_when_all_scores_are_equal_the_first_experts_of_the_first_groups_are_taken() -> None:
    for kind in KINDS.values():
        experts, _ = _route(_routing(16, 4, **kind), np.zeros((2, 16)))
        assert experts.tolist() == [[0, 1, 2, 3]] * 2


# --- scores that vanish, experts that are masked ---


def test_scores_of_zero_win_over_masked_experts() -> None:
    # Group 1 holds the best expert; its other members' scores are exactly 0, as those of all masked experts.
    logits = np.full((1, 8), -200.0)
    logits[0, 5] = 0.0
    routing = _routing(8, 3, n_groups=4, n_chosen_groups=2)
    experts, weights = _route(routing, logits)
    assert experts[0, 0] == 5
    assert set(experts[0]) <= {0, 1, 4, 5}  # group 2, and of groups that are equal the first
    assert weights[0].tolist() == [1.0, 0.0, 0.0]


@pytest.mark.parametrize("low", [-3.0, -12.0, -100.0])
def test_masked_experts_do_not_win_over_real_ones_whose_choice_is_negative(low: float) -> None:
    # Every biased score of the chosen groups is below zero, as a mask of zeros would be above.
    random = np.random.default_rng(2)
    routing = _routing(8, 4, scores="sigmoid", n_groups=4, n_chosen_groups=2, group_score=2, normalised=True)
    bias = np.full(8, low)
    experts, weights = _same(routing, random.normal(size=(5, 8)), bias)
    for row in experts:
        assert len({expert // 2 for expert in row.tolist()}) == 2
    np.testing.assert_allclose(weights.sum(-1), 1, rtol=1e-6)


@pytest.mark.parametrize("depth", [-15.0, -19.0, -30.0, -80.0])
@pytest.mark.parametrize("normalised", [False, True])
def test_tiny_scores_keep_their_proportions(depth: float, normalised: bool) -> None:
    # The runtime's own sigmoid gives 0 below -18 and is a sixth wrong at -15.
    logits = np.array([[depth, depth + 1, depth + 2, depth + 3]])
    routing = _routing(4, 2, scores="sigmoid", normalised=normalised)
    experts, weights = _route(routing, logits)
    scores = np.exp(logits[0, [3, 2]]) / (1 + np.exp(logits[0, [3, 2]]))
    wanted = scores / (scores.sum() + 1e-20) if normalised else scores
    assert experts.tolist() == [[3, 2]]
    np.testing.assert_allclose(weights[0], wanted, rtol=1e-5)


def test_scores_that_vanish_altogether_give_finite_weights() -> None:
    routing = _routing(4, 2, scores="sigmoid", normalised=True, factor=2.5)
    experts, weights = _route(routing, np.full((1, 4), -1e4))
    assert experts.tolist() == [[0, 1]]
    assert np.isfinite(weights).all()
    assert (weights < 1e-10).all()


# --- the bias chooses, and never weighs ---


@pytest.mark.parametrize("factor", [1.0, 2.5])
@pytest.mark.parametrize("normalised", [False, True])
def test_the_bias_changes_who_is_chosen_and_not_what_they_weigh(normalised: bool, factor: float) -> None:
    logits = np.array([[2.0, 1.0, 0.5, -1.0]])
    bias = np.array([0.0, 0.0, 0.0, 5.0])
    routing = _routing(4, 2, scores="sigmoid", normalised=normalised, factor=factor)
    experts, weights = _same(routing, logits, bias)
    assert experts.tolist() == [[3, 0]]
    scores = 1 / (1 + np.exp(-logits[0, [3, 0]]))
    np.testing.assert_allclose(weights[0], factor * (scores / scores.sum() if normalised else scores), rtol=1e-6)


def test_a_great_bias_leaves_tiny_scores_exact() -> None:
    # (1e-8 + 12) - 12 is 0 in float32: weights come from the scores, not from what was chosen by.
    logits = np.array([[-18.4, -17.0, -16.0, -15.0]])
    bias = np.array([12.0, 12.0, 0.0, 0.0])
    routing = _routing(4, 2, scores="sigmoid")
    experts, weights = _route(routing, logits, bias)
    assert set(experts[0].tolist()) == {0, 1}
    np.testing.assert_allclose(weights[0], 1 / (1 + np.exp(-logits[0, experts[0]])), rtol=1e-5)


def test_a_bias_in_a_masked_group_opens_it() -> None:
    logits = np.array([[3.0, 3.0, 0.0, 0.0]])
    routing = _routing(4, 2, scores="sigmoid", n_groups=2, n_chosen_groups=1, group_score=2)
    assert _same(routing, logits)[0].tolist() == [[0, 1]]
    assert sorted(_same(routing, logits, np.array([0.0, 0.0, 1.0, 1.5]))[0][0].tolist()) == [2, 3]


# --- the mixture itself ---


def _mixed(
    h: Array,
    gate: Array,
    up: Array,
    down: Array,
    chosen: Array,
    weights: Array,
    portable: bool,
    dtype: Any = np.float32,
) -> Array:
    count, inner, hidden = gate.shape
    x = lg.input("h", dtype, ["n", hidden])
    which = lg.input("chosen", lg.int64, ["n", chosen.shape[1]], anchor=x)
    strength = lg.input("weights", lg.float32, ["n", chosen.shape[1]], anchor=x)
    gate_up = np.stack([gate, up], axis=2).reshape(count, 2 * inner, hidden)
    experts = Experts(x.const(gate_up.astype(dtype)), x.const(down.astype(dtype)))
    routing = _routing(count, chosen.shape[1])
    y = (portable_mixture if portable else mixture)(routing, experts, x, which, strength)
    assert y.dtype is x.dtype
    feeds = {"h": h.astype(dtype), "chosen": chosen.astype(np.int64), "weights": weights.astype(np.float32)}
    return lg.realize(y, feeds)


def _reference_mixture(h: Array, gate: Array, up: Array, down: Array, chosen: Array, weights: Array) -> Array:
    out = np.zeros(h.shape)
    for token in range(len(h)):
        for expert, weight in zip(chosen[token], weights[token], strict=True):
            out[token] += weight * swiglu_expert(h[token], gate[expert], up[expert], down[expert])
    return out


def _random_experts(seed: int, count: int = 8, inner: int = 12, hidden: int = 16) -> tuple[Array, Array, Array]:
    random = np.random.default_rng(seed)
    wide = random.normal(size=(2, count, inner, hidden)) / 4
    return wide[0], wide[1], random.normal(size=(count, hidden, inner)) / 3.5


def _random_choice(seed: int, n: int, k: int, count: int = 8) -> tuple[Array, Array]:
    random = np.random.default_rng(seed)
    chosen = np.stack([random.permutation(count)[:k] for _ in range(n)])
    return chosen, random.uniform(0.05, 1.5, size=(n, k))


@pytest.mark.parametrize("portable", [False, True], ids=["MoE", "portable"])
@pytest.mark.parametrize("k", [1, 3, 8])
@pytest.mark.parametrize("n", [1, 2, 9])
def test_mixtures_are_the_weighted_sum_of_their_experts(n: int, k: int, portable: bool) -> None:
    gate, up, down = _random_experts(n + k)
    h = np.random.default_rng(3).normal(size=(n, 16))
    chosen, weights = _random_choice(4, n, k)
    wanted = _reference_mixture(h, gate, up, down, chosen, weights)
    got = _mixed(h, gate, up, down, chosen, weights, portable)
    np.testing.assert_allclose(got, wanted, rtol=0, atol=2e-6 * np.abs(wanted).max())


@pytest.mark.parametrize("portable", [False, True], ids=["MoE", "portable"])
@pytest.mark.parametrize(
    "weights",
    [[1.0, 0.0, 0.5], [0.0, 0.0, 2.0], [0.0, 0.0, 0.0], [1e-20, 1.0, 1e-12], [1e-35, 1e-36, 0.0], [40.0, 1e-3, 1e3]],
)
def test_weights_of_zero_and_of_any_size_count_as_they_are(weights: list[float], portable: bool) -> None:
    gate, up, down = _random_experts(11)
    h = np.random.default_rng(3).normal(size=(2, 16))
    chosen, _ = _random_choice(6, 2, 3)
    strengths = np.array([weights, weights[::-1]])
    wanted = _reference_mixture(h, gate, up, down, chosen, strengths)
    got = _mixed(h, gate, up, down, chosen, strengths, portable)
    np.testing.assert_allclose(got, wanted, rtol=0, atol=3e-6 * sum(weights) + 1e-30)


@pytest.mark.parametrize("portable", [False, True], ids=["MoE", "portable"])
def test_great_activations_are_not_clamped(portable: bool) -> None:
    # Some mixtures elsewhere clamp gate and up at 7; these do not.
    gate, up, down = _random_experts(12)
    h = 40 * np.random.default_rng(3).normal(size=(3, 16))
    chosen, weights = _random_choice(7, 3, 2)
    assert np.abs(h @ gate[0].T).max() > 50
    wanted = _reference_mixture(h, gate, up, down, chosen, weights)
    got = _mixed(h, gate, up, down, chosen, weights, portable)
    np.testing.assert_allclose(got, wanted, rtol=0, atol=2e-6 * np.abs(wanted).max())


@pytest.mark.parametrize("portable", [False, True], ids=["MoE", "portable"])
def test_half_precision_stays_within_its_rounding(portable: bool) -> None:
    gate, up, down = (part.astype(np.float16).astype(np.float64) for part in _random_experts(13))
    h = np.random.default_rng(3).normal(size=(4, 16)).astype(np.float16).astype(np.float64)
    chosen, weights = _random_choice(8, 4, 3)
    wanted = _reference_mixture(h, gate, up, down, chosen, weights)
    got = _mixed(h, gate, up, down, chosen, weights, portable, np.float16)
    np.testing.assert_allclose(got.astype(np.float64), wanted, rtol=0, atol=6 * 2**-11 * np.abs(wanted).max())


@pytest.mark.parametrize("strengths", [[0.7, 0.4], [1.0, 1e-20], [0.0, 0.3], [0.0, 0.0]])
def test_experts_that_are_not_chosen_are_not_touched(strengths: list[float]) -> None:
    # Whatever they hold, even no numbers at all.
    gate, up, down = _random_experts(14)
    chosen, weights = np.array([[1, 6]]), np.array([strengths])
    h = np.random.default_rng(3).normal(size=(1, 16))
    wanted = _reference_mixture(h, gate, up, down, chosen, weights)
    for expert in (0, 2, 3, 4, 5, 7):
        gate[expert] = up[expert] = np.nan
        down[expert] = np.nan
    for portable in (False, True):
        got = _mixed(h, gate, up, down, chosen, weights, portable)
        np.testing.assert_allclose(got, wanted, rtol=0, atol=1e-5)
