"""Rotary position embeddings: the frequencies that a config asks for.

Source: transformers' ``modeling_rope_utils`` for what the keys mean; llama3 scaling as published with Llama 3.1.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from lazygraph.errors import WeightsError
from lazygraph.models.config import Config

Frequencies = np.ndarray[tuple[int], np.dtype[np.float32]]
SERVED = ("default", "linear", "llama3", "yarn")

# What may stand beside a type's own keys without changing anything.
_ALWAYS = {"rope_type", "type", "rope_theta"}
_KEYS = {
    "default": set[str](),
    "linear": {"factor"},
    "llama3": {"factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"},
    "yarn": {
        "factor",
        "original_max_position_embeddings",
        "beta_fast",
        "beta_slow",
        "mscale",
        "mscale_all_dim",
        "attention_factor",
        "truncate",
    },
}


@dataclass(frozen=True)
class Rope:
    """How a model rotates.

    Attributes:
        inv_freq: ``float32 (dim / 2,)``: radians per position, by pair.
        dim: Rotated numbers per head; even.
        magnitude: Multiplies cosines and sines (yarn's; 1 otherwise).
        mscale_all_dim: Yarn's correction of the softmax scale, squared where a model applies it; 1 otherwise.
    """

    inv_freq: Frequencies
    dim: int
    magnitude: float = 1.0
    mscale_all_dim: float = 1.0


def read_rope(config: Config, head_dim: int, key: str = "head_dim") -> Rope:
    """Return the rotation that a config asks for, in either spelling.

    New configs hold ``rope_parameters``; older ones ``rope_theta`` beside ``rope_scaling`` with ``type`` or
    ``rope_type``.

    Args:
        config: The config.
        head_dim: Numbers per head that rotate.
        key: The config's key that says how many.

    Raises:
        UnsupportedError: A rope type, a key or a partial rotation that is not served.
        WeightsError: A key is missing or of the wrong kind, or an odd number of dimensions would rotate.
    """
    scaling, theta = _scaling(config)
    kind = str(scaling.get("rope_type") or scaling.get("type") or "default")
    if kind not in SERVED:
        raise config.unsupported("rope_scaling", f"rope type {kind!r}", "one of " + ", ".join(SERVED))
    for partial in (config.get("partial_rotary_factor"), scaling.pop("partial_rotary_factor", None)):
        if partial is not None and partial != 1.0:
            raise config.unsupported("partial_rotary_factor", f"partial_rotary_factor is {partial!r}", "1.0")
    unknown = sorted(key for key in set(scaling) - _ALWAYS - _KEYS[kind] if scaling[key] is not None)
    if unknown:
        raise config.unsupported(
            "rope_scaling", f"rope keys {unknown} of type {kind!r}", ", ".join(sorted(_KEYS[kind])) or "no keys"
        )
    if head_dim % 2:
        raise WeightsError(
            f"{key} is {head_dim}", op=f"config of {config.model_type}", expected="an even number: pairs rotate"
        )

    exponents = np.arange(0, head_dim, 2, dtype=np.float32) / np.float32(head_dim)
    inv_freq = (1.0 / np.power(np.float32(theta), exponents)).astype(np.float32)
    if kind == "linear":
        inv_freq = inv_freq / np.float32(_number(config, scaling, "factor"))
    elif kind == "llama3":
        inv_freq = _llama3(config, scaling, inv_freq)
    elif kind == "yarn":
        inv_freq = _yarn(config, scaling, inv_freq, head_dim, theta)

    factors = config.get("rope_freq_factors")
    if factors is not None:
        inv_freq = _divided(config, inv_freq, factors)
    if kind != "yarn":
        return Rope(inv_freq.astype(np.float32), head_dim)
    return Rope(
        inv_freq.astype(np.float32),
        head_dim,
        _yarn_magnitude(config, scaling),
        _mscale(config, scaling, "mscale_all_dim"),
    )


def _scaling(config: Config) -> tuple[dict[str, Any], float]:
    """Return the keys of the rotation, and theta.

    Raises:
        UnsupportedError: They are no object, differ per layer type, or the two spellings contradict each other.
        WeightsError: Theta is no positive number.
    """
    newer, older = _section(config, "rope_parameters"), _section(config, "rope_scaling")
    if newer and older and not _agree(newer, older):
        raise config.unsupported(
            "rope_scaling",
            f"rope_parameters and rope_scaling differ: {newer} and {older}",
            "one of the two, or both equal",
        )
    scaling = {**older, **newer}
    if any(isinstance(value, Mapping) for value in scaling.values() if value != {}):
        raise config.unsupported("rope_parameters", "rope parameters per layer type", "one set for all layers")

    outer, inner = config.get("rope_theta"), scaling.get("rope_theta")
    theta = config.positive("rope_theta", next((value for value in (inner, outer) if value is not None), 10000.0))
    if inner is not None and outer is not None and config.positive("rope_theta", outer) != theta:
        what = f"rope_theta is {outer} beside {inner} in the rope parameters"
        raise config.unsupported("rope_theta", what, "one value")
    return scaling, theta


def _section(config: Config, key: str) -> dict[str, Any]:
    value = config.get(key, {})
    if not isinstance(value, Mapping):
        raise config.unsupported(key, f"{key} is {value!r}", "an object of keys")
    return dict(value)


def _agree(newer: Mapping[str, Any], older: Mapping[str, Any]) -> bool:
    """Return whether two spellings ask for one rotation; theta, which older configs hold elsewhere, is left out."""

    def asked(section: Mapping[str, Any]) -> dict[str, Any]:
        kept = {key: value for key, value in section.items() if key not in _ALWAYS and value is not None}
        return {**kept, "kind": section.get("rope_type") or section.get("type") or "default"}

    return asked(newer) == asked(older)


def _llama3(config: Config, scaling: Mapping[str, Any], inv_freq: Frequencies) -> Frequencies:
    """Return frequencies with the long wavelengths stretched by ``factor`` and the middle ones blended."""
    factor = _number(config, scaling, "factor")
    low = _number(config, scaling, "low_freq_factor")
    high = _number(config, scaling, "high_freq_factor")
    original = _number(config, scaling, "original_max_position_embeddings")
    if low == high:
        raise WeightsError("low_freq_factor equals high_freq_factor", op=f"config of {config.model_type}")

    wavelength = 2 * math.pi / inv_freq
    smooth = (original / wavelength - low) / (high - low)
    blended = (1 - smooth) * inv_freq / factor + smooth * inv_freq
    stretched = np.where(wavelength > original / low, inv_freq / factor, blended)
    return np.where(wavelength < original / high, inv_freq, stretched).astype(np.float32)


def _yarn(config: Config, scaling: Mapping[str, Any], inv_freq: Frequencies, dim: int, theta: float) -> Frequencies:
    """Return frequencies of which the fast stay, the slow are divided by ``factor``, and those between are blended.

    Source: YaRN, Peng et al. 2023, section 3.2.
    """
    factor = _number(config, scaling, "factor")
    original = scaling.get("original_max_position_embeddings")
    length = float(original) if original else float(config.integer("max_position_embeddings"))
    fast = _number(config, {"beta_fast": 32, **_present(scaling)}, "beta_fast")
    slow = _number(config, {"beta_slow": 1, **_present(scaling)}, "beta_slow")

    def pair_that_turns(rotations: float) -> float:
        """Return the pair, perhaps between two, that turns so often over the original length."""
        return dim * math.log(length / (rotations * 2 * math.pi)) / (2 * math.log(theta))

    low, high = pair_that_turns(fast), pair_that_turns(slow)
    if scaling.get("truncate", True):
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, dim - 1)
    high += 0.001 if low == high else 0
    ramp = np.clip((np.arange(dim // 2, dtype=np.float32) - low) / (high - low), 0, 1)
    blended: Frequencies = (inv_freq / factor * ramp + inv_freq * (1 - ramp)).astype(np.float32)
    return blended


def _yarn_magnitude(config: Config, scaling: Mapping[str, Any]) -> float:
    """Return what cosines and sines are multiplied by."""
    given = scaling.get("attention_factor")
    if given is not None:
        return _number(config, scaling, "attention_factor")
    if scaling.get("mscale") and scaling.get("mscale_all_dim"):
        return _mscale(config, scaling, "mscale") / _mscale(config, scaling, "mscale_all_dim")
    factor = _number(config, scaling, "factor")
    return 0.1 * math.log(factor) + 1.0 if factor > 1 else 1.0


def _mscale(config: Config, scaling: Mapping[str, Any], key: str) -> float:
    """Return yarn's correction for the growth of scores with length; 1 where the key is absent or zero."""
    factor = _number(config, scaling, "factor")
    if not scaling.get(key) or factor <= 1:
        return 1.0
    return 0.1 * _number(config, scaling, key) * math.log(factor) + 1.0


def _present(scaling: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in scaling.items() if value is not None}


def _divided(config: Config, inv_freq: Frequencies, factors: Any) -> Frequencies:
    """Return frequencies divided by factors per pair: how GGUF stores llama3's scaling, computed already."""
    divisors = np.asarray(factors, dtype=np.float32)
    if divisors.shape != inv_freq.shape:
        raise WeightsError(
            f"{divisors.shape} rope factors for {inv_freq.shape} pairs", op=f"config of {config.model_type}"
        )
    return inv_freq / divisors


def _number(config: Config, scaling: Mapping[str, Any], key: str) -> float:
    value = scaling.get(key)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < math.inf:
        what = f"{key} is missing" if value is None else f"{key} is {value!r}"
        raise WeightsError(what, op=f"rope of {config.model_type}", expected=f"{key} a positive number", key=key)
    return float(value)
