"""The ops, by family. One op = one function with its shape rule beside it."""

from __future__ import annotations

import sys

from lazygraph import tensor as _tensor
from lazygraph.ops.create import arange, constant, eye, full, input, ones, zeros
from lazygraph.ops.elementwise import (
    abs,
    acos,
    add,
    asin,
    atan,
    bit_and,
    bit_or,
    bit_xor,
    cast,
    ceil,
    clip,
    cos,
    cosh,
    div,
    equal,
    erf,
    exp,
    floor,
    floor_divide,
    greater,
    greater_or_equal,
    identity,
    invert,
    isinf,
    isnan,
    less,
    less_or_equal,
    log,
    logical_and,
    logical_not,
    logical_or,
    logical_xor,
    maximum,
    minimum,
    mod,
    mul,
    neg,
    not_equal,
    pow,
    reciprocal,
    remainder,
    round,
    rsqrt,
    sign,
    sin,
    sinh,
    sqrt,
    square,
    sub,
    tan,
    tanh,
    true_divide,
    where,
)
from lazygraph.ops.gathering import (
    gather,
    gather_elements,
    gather_nd,
    scatter_elements,
    scatter_nd,
    scatter_rows,
)
from lazygraph.ops.linear import gemm, matmul
from lazygraph.ops.shaping import (
    concat,
    expand,
    flatten,
    reshape,
    shape,
    size_tensor,
    split,
    squeeze,
    stack,
    tile,
    transpose,
    unsqueeze,
)
from lazygraph.ops.slicing import TO_THE_END, TO_THE_FRONT, slice

__all__ = [name for name in dir() if not name.startswith("_") and name not in ("annotations", "sys")]

# Operators on tensors are these ops.
_tensor.language = sys.modules[__name__]
