"""lazygraph: a lazy graph-building language that compiles to ONNX."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from lazygraph import ops
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
    map_of,
    optional_of,
    sequence_of,
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
    LoadError,
    OperandError,
    SeqLenMismatchError,
    ShapeError,
    SlotCountError,
    SlotDTypeError,
    SlotGraphError,
    SlotShapeError,
    UnknownOpError,
    UnsupportedError,
    WeightsError,
)
from lazygraph.ops import *  # noqa: F403
from lazygraph.scopes import scope
from lazygraph.tensor import Graph, Tensor

if TYPE_CHECKING:
    from lazygraph import nn
    from lazygraph.cache import (
        BatchCache,
        Code,
        KvCache,
        LatentCache,
        LayeredCache,
        Once,
        QuantisedCache,
        RotatingCache,
        Rows,
        State,
        Window,
    )
    from lazygraph.conversion import convert
    from lazygraph.evaluate import realize
    from lazygraph.export import (
        BatchDecoder,
        Decoder,
        call,
        load,
        save,
        save_all,
        save_decoder,
        shared_memory_faults,
        to_onnx,
    )
    from lazygraph.functions import function
    from lazygraph.inlining import inline
    from lazygraph.loaded import Loaded
    from lazygraph.ops.schema import op
    from lazygraph.picture import report
    from lazygraph.printing import to_text

__all__ = [
    "BatchCache",
    "CacheError",
    "CacheLayerError",
    "CacheOverflowError",
    "CacheStepError",
    "Code",
    "DType",
    "DTypeError",
    "BatchDecoder",
    "Decoder",
    "Dim",
    "ExportError",
    "Graph",
    "GraphMismatchError",
    "IndexRangeError",
    "KvCache",
    "LatentCache",
    "LayeredCache",
    "LazyArray",
    "LazyGraphError",
    "LoadError",
    "Loaded",
    "Once",
    "OperandError",
    "QuantisedCache",
    "RotatingCache",
    "Rows",
    "SeqLenMismatchError",
    "ShapeError",
    "SlotCountError",
    "SlotDTypeError",
    "SlotGraphError",
    "SlotShapeError",
    "State",
    "Tensor",
    "UnknownOpError",
    "UnsupportedError",
    "WeightsError",
    "Window",
    "assume_equal",
    "bfloat16",
    "bool_",
    "call",
    "complex128",
    "complex64",
    "convert",
    "float16",
    "float32",
    "float4_e2m1fn",
    "float64",
    "float8_e4m3fn",
    "float8_e4m3fnuz",
    "float8_e5m2",
    "float8_e5m2fnuz",
    "float8_e8m0fnu",
    "int16",
    "int2",
    "int32",
    "int4",
    "int64",
    "int8",
    "function",
    "inline",
    "load",
    "nn",
    "op",
    "map_of",
    "optional_of",
    "realize",
    "report",
    "save",
    "save_all",
    "save_decoder",
    "scope",
    "sequence_of",
    "shared_memory_faults",
    "size",
    "string",
    "to_onnx",
    "to_text",
    "uint16",
    "uint2",
    "uint32",
    "uint4",
    "uint64",
    "uint8",
]
__all__ += ops.__all__

# What needs more than numpy, or is not always needed, is handed on when first asked for.
_LATER = {
    "BatchCache": "lazygraph.cache",
    "Code": "lazygraph.cache",
    "QuantisedCache": "lazygraph.cache",
    "BatchDecoder": "lazygraph.export.batch_decoder",
    "Decoder": "lazygraph.export.decoder",
    "KvCache": "lazygraph.cache",
    "LatentCache": "lazygraph.cache",
    "LayeredCache": "lazygraph.cache",
    "Loaded": "lazygraph.loaded",
    "Once": "lazygraph.cache",
    "RotatingCache": "lazygraph.cache",
    "Rows": "lazygraph.cache",
    "State": "lazygraph.cache",
    "Window": "lazygraph.cache",
    "call": "lazygraph.export.scripts",
    "convert": "lazygraph.conversion",
    "function": "lazygraph.functions",
    "inline": "lazygraph.inlining",
    "load": "lazygraph.export.loading",
    "nn": "lazygraph",
    "op": "lazygraph.ops.schema",
    "realize": "lazygraph.evaluate",
    "report": "lazygraph.picture",
    "save": "lazygraph.export.saving",
    "save_all": "lazygraph.export.sharing",
    "save_decoder": "lazygraph.export.decoder_files",
    "shared_memory_faults": "lazygraph.export.alias",
    "to_onnx": "lazygraph.export.saving",
    "to_text": "lazygraph.printing",
}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from lazygraph.version import VERSION

        return VERSION
    home = _LATER.get(name)
    if home is None:
        raise AttributeError(f"module 'lazygraph' has no attribute {name!r}")
    found = importlib.import_module("lazygraph.nn") if name == "nn" else getattr(importlib.import_module(home), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *_LATER, "__version__"})
