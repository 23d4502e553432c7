"""Reductions under numpy's names. Their bodies must not call the builtins that they hide."""

from __future__ import annotations

from lazygraph.ops.reduce import (
    Axis,
    reduce_log_sum_exp,
    reduce_max,
    reduce_mean,
    reduce_min,
    reduce_prod,
    reduce_sum,
)
from lazygraph.tensor import Tensor


def sum(x: Tensor, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """Return the sum over the axes, all when None (see ``lg.reduce_sum``)."""
    return reduce_sum(x, axis, keepdims)


def mean(x: Tensor, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """Return the mean over the axes, all when None (see ``lg.reduce_mean``)."""
    return reduce_mean(x, axis, keepdims)


def max(x: Tensor, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """Return the maximum over the axes, all when None (see ``lg.reduce_max``)."""
    return reduce_max(x, axis, keepdims)


def min(x: Tensor, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """Return the minimum over the axes, all when None (see ``lg.reduce_min``)."""
    return reduce_min(x, axis, keepdims)


def prod(x: Tensor, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """Return the product over the axes, all when None (see ``lg.reduce_prod``)."""
    return reduce_prod(x, axis, keepdims)


def logsumexp(x: Tensor, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """Return ``log(sum(exp(x)))`` over the axes, without overflow (see ``lg.reduce_log_sum_exp``)."""
    return reduce_log_sum_exp(x, axis, keepdims)
