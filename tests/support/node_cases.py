"""onnx's own cases of one node each, rebuilt as calls of ``lg.op``."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import onnx
from onnx import AttributeProto, TensorProto, helper, numpy_helper

import lazygraph as lg
from lazygraph import dims
from lazygraph.dims import Size
from lazygraph.export.versions import LOWEST
from lazygraph.ops.schema import DOMAINS, call_op

Array = np.ndarray[Any, Any]

# Operands at the first place whose numbers decide the shape of the result; from the second on, all small integers may.
_DECISIVE = {"ConstantOfShape": (0,), "Range": (0, 1, 2), "Resize": (2,), "Upsample": (1,), "OneHot": (1,)}


class Case(NamedTuple):
    """One case: a node, what goes in (None: left out), and what comes out (None: not asked for)."""

    name: str
    model: onnx.ModelProto
    inputs: tuple[Any, ...]
    outputs: tuple[Any, ...]
    rtol: float
    atol: float

    @property
    def node(self) -> onnx.NodeProto:
        """The one node."""
        return self.model.graph.node[0]

    @property
    def feeds(self) -> dict[str, Any]:
        """What goes in, by name."""
        return {name: value for name, value in zip(self.node.input, self.inputs, strict=True) if name}

    @property
    def opset(self) -> int | None:
        """The ai.onnx opset, at least the lowest that lazygraph writes; None where the model has none."""
        found = [entry.version for entry in self.model.opset_import if entry.domain == ""]
        return max(LOWEST, found[0]) if found else None


@lru_cache(maxsize=1)
def node_cases() -> dict[str, Case]:
    """Return all cases of one node by name."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from onnx.backend.test.case.node import collect_testcases

        found = collect_testcases(None)
    cases = [case for case in found if case.model is not None and len(case.model.graph.node) == 1]
    return {case.name: _case(case) for case in cases}


def _case(given: Any) -> Case:
    node = given.model.graph.node[0]
    inputs, outputs = given.data_sets[0]
    return Case(
        given.name, given.model, _placed(node.input, inputs), _placed(node.output, outputs), given.rtol, given.atol
    )


def _placed(names: Sequence[str], values: Sequence[Any]) -> tuple[Any, ...]:
    waiting = iter(values)
    return tuple(_value(next(waiting)) if name else None for name in names)


def _value(value: Any) -> Any:
    if isinstance(value, TensorProto):
        return _array(numpy_helper.to_array(value))
    return _array(value) if isinstance(value, (np.ndarray, np.generic)) else value


def _array(value: Any) -> Array:
    array = np.asarray(value)
    return array.astype(object) if array.dtype.kind in "US" else array


def has_subgraph(case: Case) -> bool:
    """Return whether the node has a graph among its attributes."""
    return any(attribute.type in (AttributeProto.GRAPH, AttributeProto.GRAPHS) for attribute in case.node.attribute)


def all_tensors(case: Case) -> bool:
    """Return whether nothing but tensors goes in and comes out."""
    values = [*case.model.graph.input, *case.model.graph.output]
    return all(value.type.HasField("tensor_type") for value in values)


def build(case: Case, symbolic: bool = False, constants: bool = True) -> tuple[lg.Tensor | None, ...]:
    """Return what ``lg.op`` makes of the case: one tensor per output of the node.

    Args:
        case: What to build.
        symbolic: Sizes other than 1 are names, one per number.
        constants: Operands whose numbers may decide a shape are constants; otherwise all are inputs.
    """
    graph = lg.Graph(case.opset)
    operands: list[lg.Tensor | None] = []
    for place, (name, value) in enumerate(zip(case.node.input, case.inputs, strict=True)):
        if not name:
            operands.append(None)
        elif name in graph.inputs:
            operands.append(graph.inputs[name])
        elif constants and _decisive(case.node.op_type, place, value):
            operands.append(graph.constant(value))
        else:
            shape: list[Any] = [f"s{size}" if symbolic and size != 1 else size for size in value.shape]
            operands.append(graph.input(name, value.dtype, shape))
    attributes = {attribute.name: _attribute(attribute) for attribute in case.node.attribute}
    made = call_op(case.node.op_type, operands, attributes, graph, case.node.domain)
    found = made if isinstance(made, tuple) else (made,)
    return found[: len(case.outputs)]


def _decisive(op: str, place: int, value: Array) -> bool:
    if op in _DECISIVE:
        return place in _DECISIVE[op] or (place > 0 and value.dtype.kind == "i" and value.ndim <= 1)
    return place > 0 and value.ndim <= 1 and value.dtype.kind == "i" and value.dtype.itemsize >= 4


def _attribute(attribute: AttributeProto) -> Any:
    value = helper.get_attribute_value(attribute)
    if isinstance(value, TensorProto):
        return _array(numpy_helper.to_array(value))
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, list) and any(isinstance(item, bytes) for item in value):
        return [item.decode() for item in value]
    return value


def place_of(domain: str) -> str:
    """Return the name of a domain under ``lg.op``, empty for ai.onnx."""
    return next((place for place, other in DOMAINS.items() if other == domain), "")


def evaluated(size: Size, unknown: int) -> int | None:
    """Return the number that a symbolic size has in its case; None where only the run can tell."""
    if isinstance(size, int):
        return size
    if dims.is_unknown(size):
        return None
    return dims.evaluate(size, {name: int(name[1:]) for name in dims.names(size)})


def shape_faults(case: Case, made: Sequence[lg.Tensor | None], strict: bool) -> tuple[list[str], int]:
    """Return what differs between inferred and expected types and shapes, and how many sizes (or ranks) are unknown.

    Args:
        case: Whose outputs are expected.
        made: The outputs that ``lg.op`` gave.
        strict: An unknown size is a difference too.
    """
    found: list[str] = []
    unknown = 0
    for i, (tensor, wanted) in enumerate(zip(made, case.outputs, strict=True)):
        if wanted is None:
            continue
        if tensor is None:
            found.append(f"output {i} is missing")
            continue
        if tensor.dtype != lg.Graph().constant(wanted).dtype:
            found.append(f"output {i} is {tensor.dtype}, not {wanted.dtype}")
        shape = tensor.known_shape
        if shape is None:
            unknown += 1
            continue
        if len(shape) != wanted.ndim:
            found.append(f"output {i} is {shape}, not {wanted.shape}")
            continue
        for size, number in zip(shape, wanted.shape, strict=True):
            value = evaluated(size, number)
            unknown += value is None
            if value is not None and value != number:
                found.append(f"output {i} is {shape}, not {wanted.shape}")
                break
    if strict and unknown:
        found.append(f"{unknown} sizes are not known: {[None if t is None else t.known_shape for t in made]}")
    return found, unknown
