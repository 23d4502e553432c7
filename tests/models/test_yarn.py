"""YaRN: frequencies, magnitude and the correction of the softmax scale, for published configs and in both spellings."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lazygraph as lg
from lazygraph.export.decoder import Decoder
from lazygraph.models.config import Config
from lazygraph.models.rope import Rope, read_rope
from tests.support import checkpoints
from tests.support.checkpoints import Array, random_tensors, small_config, write_folder
from tests.support.deepseek import softmax_scale, yarn_frequencies, yarn_magnitude, yarn_mscale

# The rotations of DeepSeek-V2-Lite and DeepSeek-V3 as published, both over 163,840 positions.
V2_LITE: dict[str, Any] = {
    "beta_fast": 32,
    "beta_slow": 1,
    "factor": 40,
    "mscale": 0.707,
    "mscale_all_dim": 0.707,
    "original_max_position_embeddings": 4096,
    "type": "yarn",
}
V3 = {**V2_LITE, "mscale": 1.0, "mscale_all_dim": 1.0}
PUBLISHED = {"V2-Lite": V2_LITE, "V3": V3}


def _config(scaling: dict[str, Any], **values: Any) -> dict[str, Any]:
    return {
        "model_type": "deepseek_v3",
        "max_position_embeddings": 163840,
        "rope_theta": 10000,
        "rope_scaling": scaling,
        "qk_nope_head_dim": 128,
        "qk_rope_head_dim": 64,
        **values,
    }


def _newer(config: dict[str, Any]) -> dict[str, Any]:
    """Return the config in the newer spelling."""
    scaling = {("rope_type" if key == "type" else key): value for key, value in config["rope_scaling"].items()}
    rest = {key: value for key, value in config.items() if key not in ("rope_scaling", "rope_theta")}
    return {**rest, "rope_parameters": {**scaling, "rope_theta": config["rope_theta"]}}


def _rope(config: dict[str, Any], width: int = 64) -> Rope:
    return read_rope(Config(config), width)


@pytest.mark.parametrize("scaling", PUBLISHED.values(), ids=PUBLISHED.keys())
def test_published_frequencies_keep_the_fast_divide_the_slow_and_blend_between(scaling: dict[str, Any]) -> None:
    config = _config(scaling)
    got = _rope(config).inv_freq
    np.testing.assert_allclose(got, yarn_frequencies(config, 64), rtol=3e-6)

    # By hand: pair i turns 4096 / (2 pi 10000^(i/32)) times: 32 lies between pairs 10 and 11, 1 between 22 and 23.
    plain = 10000.0 ** (-np.arange(32) / 32)
    turns = 4096 * plain / (2 * math.pi)
    assert turns[10] > 32 > turns[11]
    assert turns[22] > 1 > turns[23]
    np.testing.assert_allclose(got[:11], plain[:11], rtol=3e-6)
    np.testing.assert_allclose(got[23:], plain[23:] / 40, rtol=3e-6)
    shares = (np.arange(32) - 10) / 13
    wanted = plain * (1 - shares) + plain / 40 * shares
    np.testing.assert_allclose(got[10:24], wanted[10:24], rtol=3e-6)


@pytest.mark.parametrize("scaling", PUBLISHED.values(), ids=PUBLISHED.keys())
def test_published_magnitudes_and_scales(scaling: dict[str, Any]) -> None:
    rope = _rope(_config(scaling))
    assert rope.magnitude == 1.0  # mscale and mscale_all_dim are equal
    wanted = 0.1 * scaling["mscale_all_dim"] * math.log(40) + 1
    assert rope.mscale_all_dim == pytest.approx(wanted, rel=1e-12)
    assert softmax_scale(_config(scaling)) == pytest.approx(192**-0.5 * wanted**2, rel=1e-12)


def test_the_numbers_of_v3_are_these() -> None:
    # Computed apart from any code here: 0.1 ln 40 + 1 = 1.36888794541, squared 1.87385420709, over sqrt(192).
    rope = _rope(_config(V3))
    assert rope.mscale_all_dim == pytest.approx(1.36888794541, abs=1e-10)
    assert 192**-0.5 * rope.mscale_all_dim**2 == pytest.approx(0.1352337788608801, rel=1e-6)


@pytest.mark.parametrize(
    ("changes", "magnitude", "all_dim"),
    [
        ({"mscale": 1.0, "mscale_all_dim": 0.5}, yarn_mscale(40, 1.0) / yarn_mscale(40, 0.5), yarn_mscale(40, 0.5)),
        ({"mscale": 0.707, "mscale_all_dim": 0}, yarn_mscale(40, 1.0), 1.0),
        ({"mscale": 0.707, "mscale_all_dim": None}, yarn_mscale(40, 1.0), 1.0),
        ({"mscale": None, "mscale_all_dim": 0.707}, yarn_mscale(40, 1.0), yarn_mscale(40, 0.707)),
        ({"mscale": None, "mscale_all_dim": None}, yarn_mscale(40, 1.0), 1.0),
        ({"attention_factor": 1.25}, 1.25, yarn_mscale(40, 0.707)),
        ({"factor": 1.0}, 1.0, 1.0),
        ({"factor": 0.5}, 1.0, 1.0),
    ],
)
def test_which_keys_enter_the_magnitude_and_which_the_scale(
    changes: dict[str, Any], magnitude: float, all_dim: float
) -> None:
    for config in (_config({**V2_LITE, **changes}), _newer(_config({**V2_LITE, **changes}))):
        rope = _rope(config)
        assert rope.magnitude == pytest.approx(magnitude, rel=1e-12)
        assert rope.mscale_all_dim == pytest.approx(all_dim, rel=1e-12)
        assert yarn_magnitude(config) == pytest.approx(magnitude, rel=1e-12)


@settings(deadline=None, max_examples=80)
@given(
    pairs=st.integers(1, 64),
    factor=st.floats(0.5, 64),
    original=st.sampled_from([16, 512, 4096, 32768]),
    theta=st.sampled_from([100.0, 10000.0, 5e5, 1e6]),
    fast=st.sampled_from([32, 16, 4.5]),
    slow=st.sampled_from([1, 2, 0.25]),
    truncate=st.sampled_from([None, True, False]),
)
def test_frequencies_are_those_of_the_formula_in_both_spellings(
    pairs: int, factor: float, original: int, theta: float, fast: float, slow: float, truncate: bool | None
) -> None:
    scaling = {
        "type": "yarn",
        "factor": factor,
        "original_max_position_embeddings": original,
        "beta_fast": fast,
        "beta_slow": slow,
        **({} if truncate is None else {"truncate": truncate}),
    }
    older = _config(scaling, rope_theta=theta)
    wanted = yarn_frequencies(older, 2 * pairs)
    for config in (older, _newer(older)):
        got = _rope(config, 2 * pairs).inv_freq
        assert got.dtype == np.float32
        np.testing.assert_allclose(got, wanted, rtol=2e-5)


def test_what_a_config_leaves_out_has_a_default() -> None:
    short = {"type": "yarn", "factor": 4.0}
    full = {**short, "beta_fast": 32, "beta_slow": 1, "original_max_position_embeddings": 163840}
    np.testing.assert_array_equal(_rope(_config(short)).inv_freq, _rope(_config(full)).inv_freq)


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"factor": None}, lg.WeightsError, "factor is missing"),
        ({"factor": -2}, lg.WeightsError, "factor is -2"),
        ({"factor": "40"}, lg.WeightsError, "factor is '40'"),
        ({"beta_fast": "fast"}, lg.WeightsError, "beta_fast is 'fast'"),
        ({"attention_factor": -1}, lg.WeightsError, "attention_factor is -1"),
        ({"short_factor": [1.0]}, lg.UnsupportedError, "short_factor"),
    ],
)
def test_keys_that_are_missing_wrong_or_unknown_are_refused(
    changes: dict[str, Any], error: type[lg.LazyGraphError], message: str
) -> None:
    for config in (_config({**V2_LITE, **changes}), _newer(_config({**V2_LITE, **changes}))):
        with pytest.raises(error, match=message):
            _rope(config)


def test_spellings_that_contradict_each_other_are_refused() -> None:
    config = _config(V2_LITE)
    with pytest.raises(lg.UnsupportedError, match="differ"):
        _rope({**config, "rope_parameters": {**V2_LITE, "factor": 20}})


# --- a plain decoder with YaRN ---


@pytest.mark.parametrize("newer", [False, True], ids=["older spelling", "newer spelling"])
@pytest.mark.parametrize("changes", [{}, {"attention_factor": 1.5}, {"mscale": 1.0, "mscale_all_dim": 0.5}])
def test_llama_with_yarn_computes_what_plain_numpy_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any], newer: bool
) -> None:
    scaling = {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16, **changes}
    config = small_config("llama", rope_scaling=scaling)
    tensors = random_tensors(config)
    tokens = np.array([1, 7, 39, 0, 12, 12, 5, 30, 30, 2, 8, 21, 3, 3, 9, 14, 1, 1, 22, 17])

    # Cosines and sines grow by the magnitude, and so do queries and keys: the oracle's weights do instead.
    magnitude = yarn_magnitude(config)
    grown: dict[str, Array] = {
        name: numbers * (magnitude if name.endswith(("q_proj.weight", "k_proj.weight")) else 1)
        for name, numbers in tensors.items()
    }
    monkeypatch.setattr(checkpoints, "inverse_frequencies", yarn_frequencies)
    wanted = checkpoints.reference_logits(config, grown, tokens)
    if newer:
        config = _newer(config)
    write_folder(tmp_path / "in", config, tensors)
    lg.convert(tmp_path / "in", tmp_path / "out")

    decoder = Decoder.open(tmp_path / "out", threads=1)
    logits = np.concatenate([decoder.append(part.tolist()) for part in np.split(tokens, [5, 6, 7, 15])])
    np.testing.assert_allclose(logits, wanted, rtol=0, atol=2e-4)
    assert magnitude != 1
