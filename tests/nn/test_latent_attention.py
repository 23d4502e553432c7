"""Latent attention: absorbed, expanded and chosen per run are one thing, that of plain numpy; rotation of pairs."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx.reference import ReferenceEvaluator

import lazygraph as lg
from lazygraph import latent, nn
from tests.support.checkpoints import Array
from tests.support.deepseek import latent_attention as reference
from tests.support.deepseek import turned

Form = Literal["absorbed", "expanded", "auto"]
FORMS: tuple[Form, ...] = ("absorbed", "expanded", "auto")
V2_LITE = {"heads": 16, "rank": 512, "rope": 64, "nope": 128, "v": 128}
SMALL = {"heads": 3, "rank": 20, "rope": 6, "nope": 7, "v": 5}


def _inputs(seed: int, n: int, rows: int, heads: int, rank: int, rope: int, nope: int, v: int) -> dict[str, Array]:
    """Return numbers of the sizes that a trained model's have: scores of a few units, latents of one."""
    random = np.random.default_rng(seed)
    return {
        "q_nope": random.normal(size=(heads, n, nope)),
        "q_pe": random.normal(size=(heads, n, rope)),
        "w_uk": random.normal(size=(heads, nope, rank)) * rank**-0.5,
        "w_uv": random.normal(size=(heads, rank, v)) * rank**-0.5,
        "c_kv": random.normal(size=(rows, rank)),
        "k_pe": random.normal(size=(rows, rope)),
    }


def _visible(n: int, rows: int) -> Array:
    return np.arange(rows)[None, :] <= (rows - n + np.arange(n))[:, None]


def _query(dtype: Any, sizes: dict[str, int]) -> tuple[nn.LatentQuery, lg.Tensor, lg.Tensor]:
    heads, rank, rope, nope, v = (sizes[name] for name in ("heads", "rank", "rope", "nope", "v"))
    q_nope = lg.input("q_nope", dtype, [heads, "n", nope])
    q_pe = lg.input("q_pe", dtype, [heads, "n", rope], anchor=q_nope)
    w_uk = lg.input("w_uk", dtype, [heads, nope, rank], anchor=q_nope)
    w_uv = lg.input("w_uv", dtype, [heads, rank, v], anchor=q_nope)
    c_kv = lg.input("c_kv", dtype, ["rows", rank], anchor=q_nope)
    k_pe = lg.input("k_pe", dtype, ["rows", rope], anchor=q_nope)
    visible = lg.input("visible", lg.bool_, ["n", "rows"], anchor=q_nope)
    query = nn.LatentQuery(q_nope, q_pe, w_uk, w_uv, nn.additive_mask(visible), (nope + rope) ** -0.5)
    return query, c_kv, k_pe


def _feeds(numbers: dict[str, Array], n: int, rows: int, dtype: Any) -> dict[str, Array]:
    return {name: value.astype(dtype) for name, value in numbers.items()} | {"visible": _visible(n, rows)}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("n", "rows"), [(1, 300), (7, 7), (33, 160), (200, 200)])
def test_full_width_layers_are_exact_to_a_hundred_thousandth(form: Form, n: int, rows: int) -> None:
    numbers = _inputs(n, n, rows, **V2_LITE)
    query, c_kv, k_pe = _query(np.float32, V2_LITE)
    y = nn.latent_attention(query, c_kv, k_pe, form)
    assert str(y.shape) == "(n, 2048)"

    got = lg.realize(y, _feeds(numbers, n, rows, np.float32))

    wanted = reference(**numbers, scale=query.scale, visible=_visible(n, rows))
    assert np.abs(got - wanted).max() <= 1e-5 * np.abs(wanted).max()


@pytest.mark.parametrize(("n", "rows"), [(1, 300), (64, 64)])
def test_full_width_absorbed_equals_expanded(n: int, rows: int) -> None:
    numbers = _inputs(9, n, rows, **V2_LITE)
    query, c_kv, k_pe = _query(np.float32, V2_LITE)
    absorbed, expanded = lg.realize(
        [latent.absorbed(query, c_kv, k_pe), latent.expanded(query, c_kv, k_pe)], _feeds(numbers, n, rows, np.float32)
    )
    assert np.abs(absorbed - expanded).max() <= 1e-5 * np.abs(expanded).max()


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("n", "rows"), [(1, 300), (33, 160)])
def test_half_precision_stays_within_its_rounding(form: Form, n: int, rows: int) -> None:
    numbers = {
        name: value.astype(np.float16).astype(np.float64) for name, value in _inputs(2, n, rows, **V2_LITE).items()
    }
    query, c_kv, k_pe = _query(np.float16, V2_LITE)
    got = lg.realize(nn.latent_attention(query, c_kv, k_pe, form), _feeds(numbers, n, rows, np.float16))
    assert got.dtype == np.float16
    wanted = reference(**numbers, scale=query.scale, visible=_visible(n, rows))
    # A score of a few units is rounded by 2**-11 of itself, and so are weights, mixtures and results.
    assert np.abs(got - wanted).max() <= 8 * 2**-11 * np.abs(wanted).max()


@settings(deadline=None, max_examples=25)
@given(n=st.integers(1, 6), extra=st.integers(0, 9), seed=st.integers(0, 99), form=st.sampled_from(FORMS))
def test_small_layers_of_any_number_of_tokens_and_rows(n: int, extra: int, seed: int, form: Form) -> None:
    numbers = _inputs(seed, n, n + extra, **SMALL)
    query, c_kv, k_pe = _query(np.float32, SMALL)
    got = lg.realize(nn.latent_attention(query, c_kv, k_pe, form), _feeds(numbers, n, n + extra, np.float32))
    wanted = reference(**numbers, scale=query.scale, visible=_visible(n, n + extra))
    np.testing.assert_allclose(got, wanted, rtol=0, atol=2e-5)


# --- the choice ---


def test_the_form_is_chosen_now_where_the_number_of_tokens_is_known() -> None:
    def kinds(n: int | str) -> set[str]:
        heads, rank, rope, nope, v = SMALL.values()
        q_nope = lg.input("q_nope", lg.float32, [heads, n, nope])
        named: dict[str, list[int | str]] = {
            "q_pe": [heads, n, rope],
            "w_uk": [heads, nope, rank],
            "w_uv": [heads, rank, v],
            "c_kv": [90, rank],
            "k_pe": [90, rope],
            "mask": [n, 90],
        }
        t = {name: lg.input(name, lg.float32, shape, anchor=q_nope) for name, shape in named.items()}
        query = nn.LatentQuery(q_nope, t["q_pe"], t["w_uk"], t["w_uv"], t["mask"], 0.3)
        return {node.op_type for node in lg.to_onnx(nn.latent_attention(query, t["c_kv"], t["k_pe"])).graph.node}

    crossing = latent.cheaper_expanded_from(SMALL["rank"], SMALL["nope"], SMALL["v"])
    assert crossing == 9  # 20 * 12 / (40 - 12) = 8.6
    assert "Gemm" in kinds(crossing - 1)
    assert "Gemm" not in kinds(crossing)
    assert "If" not in kinds(crossing) | kinds(crossing - 1)
    assert "If" in kinds("n")


@pytest.mark.parametrize(
    ("rank", "nope", "v", "tokens"),
    [(512, 128, 128, 171), (20, 12, 10, 25), (8, 8, 7, 120), (8, 8, 8, None), (4, 8, 8, None)],
)
def test_from_how_many_tokens_the_expanded_form_is_cheaper(rank: int, nope: int, v: int, tokens: int | None) -> None:
    found = latent.cheaper_expanded_from(rank, nope, v)
    if tokens is None:
        assert found > 10**9
        return
    assert found == tokens

    def cheaper(n: int) -> bool:  # per row and head, the rotary part left out: both forms have it
        return rank * (nope + v) + n * (nope + v) < n * 2 * rank

    assert cheaper(found + 1)
    assert not cheaper(found - 1)


def test_a_form_that_is_none_is_refused() -> None:
    query, c_kv, k_pe = _query(np.float32, SMALL)
    with pytest.raises(lg.OperandError, match="form is 'folded'"):
        nn.latent_attention(query, c_kv, k_pe, "folded")  # type: ignore[arg-type]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    ("name", "shape", "message"),
    [
        ("w_uk", [3, 7, 21], "21 and 20 differ: the last size of w_uk"),
        ("w_uv", [3, 21, 5], "21 and 20 differ: the middle size of w_uv"),
        ("k_pe", ["rows", 8], "6 and 8 differ: the last sizes of q_pe and k_pe"),
        ("k_pe", ["others", 6], "rows and others differ: the rows of c_kv and k_pe"),
    ],
)
def test_sizes_that_do_not_fit_are_refused(form: Form, name: str, shape: list[Any], message: str) -> None:
    query, c_kv, k_pe = _query(np.float32, SMALL)
    other = lg.input("other", lg.float32, shape, anchor=c_kv)
    fields = {f: getattr(query, f) for f in ("q_nope", "q_pe", "w_uk", "w_uv", "mask", "scale")}
    if name in fields:
        query = nn.LatentQuery(**{**fields, name: other})
    else:
        k_pe = other
    with pytest.raises(lg.ShapeError, match=message):
        nn.latent_attention(query, c_kv, k_pe, form)


# --- rotation ---


@pytest.mark.parametrize("interleaved", [False, True])
def test_scores_depend_on_the_distance_of_two_positions_only(interleaved: bool) -> None:
    # Adjacent pairs are brought into halves on both sides; the score is that of complex numbers turned as they were.
    d, count = 8, 51
    random = np.random.default_rng(0)
    q, k = random.normal(size=(2, d))
    inv_freq = (10000.0 ** (-np.arange(0, d, 2) / d)).astype(np.float32)
    halves = np.r_[0:d:2, 1:d:2] if interleaved else np.arange(d)

    x = lg.input("x", lg.float32, ["n", 2, d])
    positions = lg.input("positions", lg.int64, ["n"], anchor=x)
    cos, sin = nn.rotary_tables(positions, x.const(inv_freq))
    rotated = lg.realize(
        nn.rotary(x, cos, sin),
        {"x": np.stack([np.stack([q[halves], k[halves]])] * count).astype(np.float32), "positions": np.arange(count)},
    )
    scores = rotated[:, 0] @ rotated[:, 1].T  # (p1, p2)

    where = np.arange(count)
    wanted = (
        turned(np.stack([q] * count), where, inv_freq, interleaved)
        @ turned(np.stack([k] * count), where, inv_freq, interleaved).T
    )
    np.testing.assert_allclose(scores, wanted, rtol=0, atol=2e-5)
    for distance in range(-20, 21):
        diagonal = np.diagonal(scores, distance)
        assert np.ptp(diagonal) < 5e-5
    assert np.ptp(scores) > 0.5  # and they do depend on it


def test_one_side_alone_in_another_layout_gives_other_scores() -> None:
    # What the test above would look like if only the queries were reordered: it can fail.
    d = 8
    random = np.random.default_rng(1)
    q, k = random.normal(size=(2, 1, d))
    inv_freq = 10000.0 ** (-np.arange(0, d, 2) / d)
    halves = np.r_[0:d:2, 1:d:2]
    right = turned(q, np.array([9]), inv_freq, True) @ turned(k, np.array([2]), inv_freq, True).T
    both = turned(q[:, halves], np.array([9]), inv_freq, False) @ turned(k[:, halves], np.array([2]), inv_freq, False).T
    one = turned(q[:, halves], np.array([9]), inv_freq, False) @ turned(k, np.array([2]), inv_freq, False).T
    np.testing.assert_allclose(both, right, atol=1e-12)
    assert np.abs(one - right).max() > 0.05


def test_a_part_that_is_not_given_to_rotation_stays_as_it_is() -> None:
    x = lg.input("x", lg.float32, ["n", 2, 10])
    positions = lg.input("positions", lg.int64, ["n"], anchor=x)
    cos, sin = nn.rotary_tables(positions, x.const(np.array([1.0, 0.1, 0.01], np.float32)))
    tail, head = lg.split(x, [4, 6], axis=-1)
    y = lg.concat([tail, nn.rotary(head, cos, sin)], axis=-1)
    numbers = np.random.default_rng(0).normal(size=(5, 2, 10)).astype(np.float32)
    got = lg.realize(y, {"x": numbers, "positions": np.arange(3, 8)})
    np.testing.assert_array_equal(got[..., :4], numbers[..., :4])
    wanted = turned(numbers[..., 4:], np.arange(3, 8), np.array([1.0, 0.1, 0.01]), False)
    np.testing.assert_allclose(got[..., 4:], wanted, atol=1e-5)


# --- half precision: structure, not luck ---


def _by_the_letter(y: lg.Tensor, feeds: dict[str, Array]) -> Array:
    """Return what the onnx package's own evaluator gives, which computes float16 in float16."""
    model = lg.to_onnx(y)
    found: list[Any] = list(ReferenceEvaluator(model).run(None, feeds))
    return np.asarray(found[0])


def _types_into(y: lg.Tensor, *ops: str) -> set[int]:
    """Return the element types that reach operators of these names."""
    model = onnx.shape_inference.infer_shapes(lg.to_onnx(y))
    types = {value.name: value.type.tensor_type.elem_type for value in (*model.graph.value_info, *model.graph.input)}
    found = [node for node in model.graph.node if node.op_type in ops]
    assert {node.op_type for node in found} == set(ops)
    return {types[node.input[0]] for node in found}


def test_the_evaluator_shows_what_a_careless_norm_does() -> None:
    x = lg.input("x", lg.float16, [1, 4])
    with np.errstate(over="ignore"):
        careless = _by_the_letter(lg.reduce_mean(x * x, -1), {"x": np.full((1, 4), 6e4, np.float16)})
    assert np.isinf(careless).all()


def test_norms_of_great_activations_do_not_overflow() -> None:
    x = lg.input("x", lg.float16, ["n", 64])
    y = nn.rms_norm(x, x.const(np.full(64, 0.5, np.float16)))
    numbers = np.full((3, 64), 6e4, np.float16)
    numbers[1] *= np.float16(-1)
    numbers[2] = 6e-5
    got = _by_the_letter(y, {"x": numbers})
    assert got.dtype == np.float16
    np.testing.assert_allclose(got[:, 0].astype(float), [0.5, -0.5, 0.5 * 6e-5 / (6e-5**2 + 1e-6) ** 0.5], rtol=2e-3)
    assert _types_into(y, "Pow", "ReduceMean", "Sqrt") == {onnx.TensorProto.FLOAT}


def test_attention_over_great_keys_does_not_overflow() -> None:
    # Products of 128 times 30 * 30 pass 65,504; scaled they are 10,182, and equal: values are averaged.
    q = lg.input("q", lg.float16, ["n", 2, 128])
    k = lg.input("k", lg.float16, ["rows", 1, 128], anchor=q)
    v = lg.input("v", lg.float16, ["rows", 1, 4], anchor=q)
    mask = lg.input("mask", lg.float32, ["n", "rows"], anchor=q)
    y = nn.attention(q, k, v, mask, 128**-0.5)
    values = np.arange(20, dtype=np.float16).reshape(5, 1, 4)
    feeds: dict[str, Array] = {
        "q": np.full((1, 2, 128), 30, np.float16),
        "k": np.full((5, 1, 128), 30, np.float16),
        "v": values,
        "mask": np.array([[0, 0, 0, -1e30, -1e30]], np.float32),
    }
    np.testing.assert_allclose(_by_the_letter(y, feeds), [[4, 5, 6, 7] * 2], rtol=2e-3)
    assert _types_into(y, "Softmax") == {onnx.TensorProto.FLOAT}


@pytest.mark.parametrize("form", ["absorbed", "expanded"])
def test_latent_attention_over_great_latents_does_not_overflow(form: Form) -> None:
    sizes = {"heads": 2, "rank": 32, "rope": 4, "nope": 64, "v": 8}
    query, c_kv, k_pe = _query(np.float16, sizes)
    y = nn.latent_attention(query, c_kv, k_pe, form)
    numbers = _inputs(0, 1, 6, **sizes)
    numbers["q_nope"][:], numbers["w_uk"][:], numbers["c_kv"][:] = 32, 0.5, 8  # unscaled 262,144, scaled 31,789
    numbers["q_pe"][:] = numbers["k_pe"][:] = 1
    got = _by_the_letter(y, _feeds(numbers, 1, 6, np.float16))
    wanted = reference(**numbers, scale=query.scale, visible=_visible(1, 6))
    np.testing.assert_allclose(got, wanted, rtol=0, atol=4e-3 * np.abs(wanted).max())
    assert _types_into(y, "Softmax") == {onnx.TensorProto.FLOAT}
