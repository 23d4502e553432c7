"""How an op is called: operands made tensors, the op's own rule asked, a node added.

A rule says what an ONNX operator gives: ``rule(op, inputs, attrs) -> [(dtype, shape), ...]``, raising on anything that
does not fit. It is registered under the operator's spec name, so that ``lg.add(a, b)`` and ``lg.op.Add(a, b)`` are
checked by the same lines.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from lazygraph import dims
from lazygraph.dims import Dim
from lazygraph.dtypes import DType, as_dtype
from lazygraph.errors import DTypeError, OperandError
from lazygraph.ops.follow import follow
from lazygraph.tensor import Graph, Operand, Shape, Tensor, describe, same_graph

if TYPE_CHECKING:
    from typing import TypeAlias

Inputs: TypeAlias = "tuple[Tensor | None, ...]"
Attrs: TypeAlias = "dict[str, Any]"
Results: TypeAlias = "list[tuple[DType, Shape | None]]"
Rule: TypeAlias = "Callable[[str, Any, Attrs], Results]"

_rules: dict[tuple[str, str], Rule] = {}


def rule(*ops: str, domain: str = "") -> Callable[[Rule], Rule]:
    """Register a rule for operators by their spec names."""

    def register(function: Rule) -> Rule:
        for op in ops:
            _rules[domain, op] = function
        return function

    return register


def rule_of(op: str, domain: str = "") -> Rule | None:
    """Return the rule of an operator, or None where lazygraph has none of its own."""
    return _rules.get((domain, op))


def apply(op: str, *inputs: Tensor | None, domain: str = "", **attrs: Any) -> Tensor:
    """Check and add one operator call; return its first output."""
    graph = same_graph(op, inputs)
    results = _rules[domain, op](op, inputs, attrs)
    outputs = graph.emit(op, inputs, attrs, results, domain)
    made = outputs[0]
    if made.dtype.kind in "iub" and len(outputs) == 1:
        made.value = follow(op, inputs, attrs, made)
    return made


def apply_all(op: str, inputs: Inputs, attrs: Attrs, domain: str = "") -> tuple[Tensor, ...]:
    """Check and add one operator call; return all its outputs.

    Raises:
        GraphMismatchError: The operands belong to different graphs.
        LazyGraphError: Whatever the operator's rule refuses.
    """
    graph = same_graph(op, inputs)
    return add_node(graph, op, inputs, attrs, _rules[domain, op](op, inputs, attrs), domain)


def add_node(
    graph: Graph, op: str, inputs: Inputs, attrs: Attrs, results: Results, domain: str = ""
) -> tuple[Tensor, ...]:
    """Add an operator call whose checks have passed; return its outputs, followed eagerly where that can be."""
    outputs = graph.emit(op, inputs, attrs, results, domain)
    if len(outputs) == 1 and outputs[0].dtype.kind in "iub":
        outputs[0].value = follow(op, inputs, attrs, outputs[0])
    return outputs


def operands(op: str, *given: Operand) -> tuple[Tensor, ...]:
    """Return the operands as tensors of one graph and, where they are scalars or lists, of one element type.

    Raises:
        OperandError: No operand is a tensor, or one is nothing that can become one.
        DTypeError: The element type cannot hold a scalar.
    """
    for value in given:
        if type(value) is not Tensor:
            break
    else:
        if given:
            return given  # type: ignore[return-value]
    like: Tensor | None = None
    for value in given:
        if isinstance(value, Tensor):
            like = value
            break
    if like is None:
        raise OperandError(
            "no tensor among the operands",
            op=op,
            operands={f"operand {i}": repr(value) for i, value in enumerate(given)},
            expected="at least one tensor",
            hint="lg.constant(...) opens a graph",
        )
    return tuple([value if isinstance(value, Tensor) else as_tensor(op, value, like) for value in given])


def as_tensor(op: str, value: Operand, like: Tensor, dtype: DType | None = None) -> Tensor:
    """Return a value as a tensor of ``like``'s graph; scalars and lists take ``dtype`` (by default ``like``'s).

    Raises:
        OperandError: It is nothing that can become a tensor.
        DTypeError: The element type cannot hold it.
    """
    if isinstance(value, Tensor):
        return value
    wanted = dtype or like.dtype
    if isinstance(value, (bool, int, float)):
        return scalar(op, value, wanted, like)
    if isinstance(value, Dim):
        from lazygraph.ops.logic import cast
        from lazygraph.ops.sizes import size_tensor

        return cast(size_tensor(value, like), wanted)
    if isinstance(value, np.generic) or (isinstance(value, np.ndarray) and value.dtype.kind != "O"):
        return like.graph.constant(np.asarray(value))
    if isinstance(value, (list, tuple)):
        array = np.asarray(value)
        if (
            array.dtype.kind in "fiub"
            and (array.dtype.kind == "f") <= wanted.is_float
            and (array.dtype.kind == "b") == (wanted.kind == "b")
        ):
            for number in array.ravel().tolist():
                _fits(op, number, wanted, like)
            return like.graph.constant(array.astype(wanted.numpy))
    if isinstance(value, str) and wanted.kind == "s":
        return like.graph.constant(np.array(value, dtype=object))
    raise OperandError(
        f"{type(value).__name__} {value!r} is no operand here",
        op=op,
        operands={"beside": describe(like)},
        expected=f"a tensor, a scalar, a list or an array of {wanted}",
    )


def scalar(op: str, value: bool | int | float, dtype: DType, like: Tensor) -> Tensor:
    """Return the ``()`` constant of a Python scalar in the given element type.

    Raises:
        DTypeError: The element type cannot hold it.
    """
    graph = like.graph
    key = (dtype.name, type(value), value, math.copysign(1.0, value) if isinstance(value, float) else 0)
    found = graph.scalars.get(key)
    if found is None:
        found = graph.scalars[key] = graph.small(_fits(op, value, dtype, like))
    return found


def _fits(op: str, value: bool | int | float, dtype: DType, like: Tensor) -> np.ndarray[Any, Any]:
    """Return the scalar in the element type, which must hold it (a float rounded, but neither to inf nor to 0)."""
    if dtype.kind == "b" and not isinstance(value, bool):
        problem = f"a number {value} with a bool tensor"
    elif dtype.is_integer and isinstance(value, float):
        problem = f"the float {value} with an {dtype} tensor"
    elif dtype.is_integer and not _int_range(dtype)[0] <= value <= _int_range(dtype)[1]:
        problem = f"{dtype} cannot hold {value}"
    elif dtype.kind == "s":
        problem = f"a number {value} with a string tensor"
    elif dtype.element is not None:
        problem = f"a number {value} with a {dtype}"
    else:
        with np.errstate(over="ignore", under="ignore"):
            try:
                array = np.array(value).astype(dtype.numpy)
            except OverflowError:  # an int that not even float64 holds
                array = np.array(math.inf).astype(dtype.numpy)
        if dtype.kind != "f" or (isinstance(value, float) and not math.isfinite(value)):
            return array
        stored = float(array)
        if math.isfinite(stored) and (stored != 0 or value == 0):
            return array
        problem = f"{dtype} cannot hold {value}: it becomes {stored}"
    raise DTypeError(
        problem,
        op=op,
        operands={"beside": describe(like)},
        expected="a scalar that the tensor's element type can hold",
        hint="x.astype(...) converts the tensor" if dtype.is_integer or dtype.kind == "b" else "",
    )


def _int_range(dtype: DType) -> tuple[int, int]:
    if dtype.kind == "u":
        return 0, 2**dtype.bits - 1
    return -(2 ** (dtype.bits - 1)), 2 ** (dtype.bits - 1) - 1


def known_ints(tensor: Tensor) -> list[dims.Size] | None:
    """Return the numbers and sizes in a tensor of rank 0 or 1 where they are known, else None."""
    if tensor.value is None or tensor.value.ndim > 1:
        return None
    return cast("list[dims.Size]", tensor.value.reshape(-1).tolist())


def graph_of(anchor: Tensor | Graph | None, opset: int | None = None) -> Graph:
    """Return the anchor's graph, a new one when there is no anchor."""
    if anchor is None:
        return Graph(opset)
    return anchor.graph if isinstance(anchor, Tensor) else anchor


def has_op(x: Tensor, opset: int) -> bool:
    """Return whether the graph may use an operator that came with this ai.onnx opset."""
    return x.graph.opset is None or x.graph.opset >= opset


def int_list(op: str, label: str, values: Sequence[int]) -> tuple[int, ...]:
    """Return the values as Python ints.

    Raises:
        OperandError: One is no int.
    """
    if any(isinstance(value, bool) or not isinstance(value, (int, np.integer)) for value in values):
        raise OperandError(f"{label} is {values!r}", op=op, expected=f"{label} a list of ints")
    return tuple(int(value) for value in values)


__all__ = [
    "Attrs",
    "Inputs",
    "Results",
    "add_node",
    "apply",
    "apply_all",
    "as_dtype",
    "as_tensor",
    "graph_of",
    "has_op",
    "int_list",
    "known_ints",
    "operands",
    "rule",
    "rule_of",
    "scalar",
]
