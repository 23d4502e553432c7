"""What edits of a model look at as a whole: which weights may be stored small, and which calls hold on to a number."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

import numpy as np

from lazygraph import dims
from lazygraph.arrays import LazyArray
from lazygraph.dtypes import DType, float32
from lazygraph.errors import DTypeError, OperandError, ShapeError, WeightsError
from lazygraph.graph import Graph
from lazygraph.ops.logic import cast
from lazygraph.origins import Constant, Node, describe, near_names, reached
from lazygraph.tensor import Tensor

# Smaller weights are not worth a cast: in bytes.
SMALL_WEIGHT = 1024


def narrower(
    graph: Graph,
    outputs: Iterable[Tensor],
    weights: Mapping[str, tuple[Constant, Tensor]],
    dtype: DType,
    keep: Sequence[str],
    keep_ops: Sequence[str],
) -> dict[Tensor, Tensor]:
    """Return by float32 weight what stands for it when it is stored in a smaller type: see ``Loaded.stored_as``."""
    if dtype.name not in ("float16", "bfloat16"):
        raise DTypeError(f"weights stored as {dtype}", op="stored_as", expected="float16 or bfloat16")
    readers: dict[Tensor, set[str]] = {}
    for node in [origin for origin in reached(outputs) if isinstance(origin, Node)]:
        for tensor in node.inputs:
            if tensor is not None and isinstance(tensor.origin, Constant):
                readers.setdefault(tensor, set()).add(node.op)
    ops = {op for tensors in readers.values() for op in tensors}
    for name in keep:
        if not any(_is_meant(weight, name) for weight in weights):
            _refuse(f"{name!r} is no weight", name, weights)
    for op in keep_ops:
        if op not in ops:
            _refuse(f"no {op!r} reads a weight", op, ops)

    swaps = {}
    for name, (constant, tensor) in weights.items():
        kept = any(_is_meant(name, pattern) for pattern in keep) or readers.get(tensor, set()) & {*keep_ops}
        if kept or tensor.dtype is not float32 or tensor.dtype.nbytes(constant.array.size) < SMALL_WEIGHT:
            continue
        swaps[tensor] = cast(graph.instead(constant, narrowed(constant.array, name, dtype)), float32)
    return swaps


def _is_meant(name: str, pattern: str) -> bool:
    return name == pattern or fnmatchcase(name, pattern)


def _refuse(what: str, name: str, names: Iterable[str]) -> None:
    some = sorted(names)
    raise OperandError(what, op="stored_as", expected=f"some of {', '.join(some[:8])}", hint=near_names(name, some))


def narrowed(array: np.ndarray[Any, Any] | LazyArray, name: str, dtype: DType) -> np.ndarray[Any, Any] | LazyArray:
    """Return float32 numbers in a smaller type; those that are read late are narrowed when they are read.

    Raises:
        WeightsError: A finite number is too large for the type.
    """

    def narrow(numbers: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        with np.errstate(over="ignore"):
            made = numbers.astype(dtype.numpy)
        if not np.array_equal(np.isfinite(made.astype(np.float32)), np.isfinite(numbers)):
            largest = np.abs(numbers[np.isfinite(numbers)]).max()
            raise WeightsError(
                f"{name!r} holds {largest:g}, too large for {dtype}",
                op="stored_as",
                expected="numbers that the type holds",
                hint=f"keep=[{name!r}] leaves it as it is",
            )
        return made

    return array.map(name, dtype, array.shape, narrow) if isinstance(array, LazyArray) else narrow(array)


def require_free(outputs: Iterable[Tensor], names: Collection[str]) -> None:
    """Refuse a model in which a Reshape to a fixed shape holds on to a number that has become one of these names."""
    for node in reached(outputs):
        if not isinstance(node, Node) or node.op != "Reshape" or node.domain or node.inputs[0] is None:
            continue
        before, after = node.inputs[0].known_shape, node.outputs[0].known_shape
        if before is None or after is None:
            continue
        size, made = dims.product(before), dims.product(after)
        held = {name for name in dims.names(size) if name in names} - set(dims.names(made))
        if held and dims.equal(size, made) is not True and not dims.is_unknown(made):
            called = node.kept.name if node.kept else ""
            raise ShapeError(
                f"a Reshape to a fixed shape holds on to the number that is now {', '.join(sorted(held))}",
                op="with_shapes",
                operands={
                    "in": f"Reshape {called!r}" if called else f"Reshape at {node.at}",
                    "x": describe(node.inputs[0]),
                    "reshaped": describe(node.outputs[0]),
                },
                expected=f"{size} elements, whatever {', '.join(sorted(held))} is",
                hint="replace its shape by one with -1 first: loaded.replace_weight(name, array)",
            )


__all__ = ["narrowed", "narrower", "require_free"]
