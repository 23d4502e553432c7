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
SERVED = ("default", "linear", "llama3")

# What may stand beside a type's own keys without changing anything.
_ALWAYS = {"rope_type", "type", "rope_theta"}
_KEYS = {
    "default": set[str](),
    "linear": {"factor"},
    "llama3": {"factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"},
}


@dataclass(frozen=True)
class Rope:
    """How a model rotates.

    Attributes:
        inv_freq: ``float32 (dim / 2,)``: radians per position, by pair.
        dim: Rotated numbers per head; even.
    """

    inv_freq: Frequencies
    dim: int


def read_rope(config: Config, head_dim: int) -> Rope:
    """Return the rotation that a config asks for, in either spelling.

    New configs hold ``rope_parameters``; older ones ``rope_theta`` beside ``rope_scaling`` with ``type`` or
    ``rope_type``.

    Args:
        config: The config.
        head_dim: Numbers per head.

    Raises:
        UnsupportedError: A rope type, a key or a partial rotation that is not served.
        WeightsError: A key is missing or of the wrong kind, or an odd number of dimensions would rotate.
    """
    scaling, theta = _scaling(config)
    kind = str(scaling.get("rope_type") or scaling.get("type") or "default")
    if kind not in SERVED:
        raise config.unsupported("rope_scaling", f"rope type {kind!r}", "one of " + ", ".join(SERVED))
    unknown = sorted(set(scaling) - _ALWAYS - _KEYS[kind])
    if unknown and any(scaling[key] is not None for key in unknown):
        raise config.unsupported(
            "rope_scaling", f"rope keys {unknown} of type {kind!r}", ", ".join(sorted(_KEYS[kind])) or "no keys"
        )
    partial = config.get("partial_rotary_factor", 1.0)
    if partial != 1.0:
        raise config.unsupported("partial_rotary_factor", f"partial_rotary_factor is {partial}", "1.0")
    if head_dim % 2:
        raise WeightsError(
            f"head_dim is {head_dim}", op=f"config of {config.model_type}", expected="an even number: pairs rotate"
        )

    exponents = np.arange(0, head_dim, 2, dtype=np.float32) / np.float32(head_dim)
    inv_freq = (1.0 / np.power(np.float32(theta), exponents)).astype(np.float32)
    if kind == "linear":
        inv_freq = inv_freq / np.float32(_number(config, scaling, "factor"))
    elif kind == "llama3":
        inv_freq = _llama3(config, scaling, inv_freq)

    factors = config.get("rope_freq_factors")
    if factors is not None:
        inv_freq = _divided(config, inv_freq, factors)
    return Rope(inv_freq.astype(np.float32), head_dim)


def _scaling(config: Config) -> tuple[Mapping[str, Any], float]:
    parameters = config.get("rope_parameters")
    older = config.get("rope_scaling")
    if parameters is not None and not isinstance(parameters, Mapping):
        raise config.unsupported("rope_parameters", f"rope_parameters is {parameters!r}", "an object of keys")
    if older is not None and not isinstance(older, Mapping):
        raise config.unsupported("rope_scaling", f"rope_scaling is {older!r}", "an object of keys")
    scaling = dict(parameters or older or {})
    if any(isinstance(value, Mapping) for value in scaling.values()):
        raise config.unsupported("rope_parameters", "rope parameters per layer type", "one set for all layers")
    theta = scaling.get("rope_theta")
    if theta is None:
        theta = config.number("rope_theta", 10000.0)
    else:
        config.get("rope_theta")
    return scaling, float(theta)


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
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not value > 0:
        what = f"{key} is missing" if value is None else f"{key} is {value!r}"
        raise WeightsError(what, op=f"rope of {config.model_type}", expected=f"{key} a positive number", key=key)
    return float(value)


