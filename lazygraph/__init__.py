"""lazygraph: a lazy graph-building language that compiles to ONNX."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from lazygraph import ops as _ops
from lazygraph.arrays import LazyArray
from lazygraph.dims import Dim, assume_equal, size
from lazygraph.dtypes import (
    DType,
    bfloat16,
    bool_,
    complex64,
    complex128,
    float4_e2m1fn,
    float8_e4m3fn,
    float8_e4m3fnuz,
    float8_e5m2,
    float8_e5m2fnuz,
    float8_e8m0fnu,
    float16,
    float32,
    float64,
    int2,
    int4,
    int8,
    int16,
    int32,
    int64,
    string,
    uint2,
    uint4,
    uint8,
    uint16,
    uint32,
    uint64,
)
from lazygraph.errors import (
    CacheError,
    CacheLayerError,
    CacheOverflowError,
    CacheStepError,
    DTypeError,
    ExportError,
    GraphMismatchError,
    IndexRangeError,
    LazyGraphError,
    OperandError,
    SeqLenMismatchError,
    ShapeError,
    SlotCountError,
    SlotShapeError,
    UnknownOpError,
    UnsupportedError,
    WeightsError,
)
from lazygraph.ops import *  # noqa: F403
from lazygraph.scopes import scope
from lazygraph.tensor import Graph, Tensor
