"""onnx's own cases of one node each, rebuilt as calls of ``lg.op``."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import onnx
from onnx import AttributeProto, TensorProto, TypeProto, helper, numpy_helper
from onnx.backend.test.runner import Runner

import lazygraph as lg
from lazygraph import dims
from lazygraph.dims import Size
from lazygraph.dtypes import dtype_of_onnx
from lazygraph.evaluate import realize
from lazygraph.export.session import Session, open_session
from lazygraph.export.versions import LOWEST
from lazygraph.ops.schema import call_op

Array = np.ndarray[Any, Any]

# Places of the operands whose numbers decide the shape of the result. A reduction's axes: every operator of that name.
_DECISIVE: dict[str, tuple[int, ...]] = {
    "AffineGrid": (1,),
    "BlackmanWindow": (0,),
    "CenterCropPad": (1,),
    "Col2Im": (1, 2),
    "ConstantOfShape": (0,),
    "DFT": (1, 2),
    "Expand": (1,),
    "HammingWindow": (0,),
    "HannWindow": (0,),
    "Loop": (0, 1),
    "MaxUnpool": (2,),
    "MelWeightMatrix": (0, 1),
    "OneHot": (1,),
    "Pad": (1, 3),
    "Range": (0, 1, 2),
    "Reshape": (1,),
    "Resize": (2, 3),
    "STFT": (1, 3),
    "Slice": (1, 2, 3, 4),
    "Split": (1,),
    "SplitToSequence": (1,),
    "Squeeze": (1,),
    "Tile": (1,),
    "TopK": (1,),
    "Unsqueeze": (1,),
}


class Case(NamedTuple):
    """One case: a node, what the model is fed, what the node reads (None: left out) and gives (None: not asked for)."""

    name: str
    model: onnx.ModelProto
    feeds: dict[str, Any]
    inputs: tuple[Any, ...]
    outputs: tuple[Any, ...]
    rtol: float
    atol: float

    @property
    def node(self) -> onnx.NodeProto:
        """The one node."""
        node: onnx.NodeProto = self.model.graph.node[0]
        return node

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
    fed, expected = given.data_sets[0]
    feeds = {value.name: _value(array) for value, array in zip(given.model.graph.input, fed, strict=True)}
    results = {value.name: _value(array) for value, array in zip(given.model.graph.output, expected, strict=True)}
    inputs = tuple(feeds[name] if name else None for name in node.input)
    outputs = tuple(results[name] if name else None for name in node.output)
    return Case(given.name, given.model, feeds, inputs, outputs, given.rtol, given.atol)


def _value(value: Any) -> Any:
    if isinstance(value, TensorProto):
        return _array(numpy_helper.to_array(value))
    if isinstance(value, (list, tuple)):
        return [_value(item) for item in value]
    return _array(value) if isinstance(value, (np.ndarray, np.generic)) else value


def _array(value: Any) -> Array:
    array = np.asarray(value)
    return array.astype(object) if array.dtype.kind in "US" else array


def has_subgraph(case: Case) -> bool:
    """Return whether the node has a graph among its attributes."""
    return any(attribute.type in (AttributeProto.GRAPH, AttributeProto.GRAPHS) for attribute in case.node.attribute)


def holds_tensors(case: Case) -> bool:
    """Return whether a sequence or an optional goes in or comes out."""
    values = [*case.model.graph.input, *case.model.graph.output]
    return any(not value.type.HasField("tensor_type") for value in values)


def type_name(kind: TypeProto) -> str:
    """Return lazygraph's name of a type: ``float32``, ``seq(int64)``."""
    if kind.HasField("sequence_type"):
        return f"seq({type_name(kind.sequence_type.elem_type)})"
    if kind.HasField("optional_type"):
        return f"optional({type_name(kind.optional_type.elem_type)})"
    return dtype_of_onnx(kind.tensor_type.elem_type).name


def build(
    case: Case, symbolic: bool = False, constants: bool = True, numbers: set[int] | None = None
) -> tuple[lg.Tensor | None, ...]:
    """Return what ``lg.op`` makes of the case: one tensor per output of the node.

    Args:
        case: What to build.
        symbolic: Sizes other than 1 are names, one per number. A number that the case itself demands (a kernel_shape, a
            total of two sizes) stays a number: named, it is refused, which is right.
        constants: Operands whose numbers decide a shape are constants; otherwise all are inputs.
        numbers: Takes the numbers that were demanded.
    """
    fixed = set() if numbers is None else numbers
    while True:
        try:
            return _built(case, symbolic, constants, fixed)
        except lg.ShapeError as error:
            demanded = _demanded(case, error) - fixed if symbolic else set()
            if not demanded:
                raise
            fixed |= demanded


def _demanded(case: Case, error: lg.ShapeError) -> set[int]:
    """Return the numbers of the sizes that met, where the two are equal in the case; else all that it has."""
    sizes: tuple[Size, ...] = getattr(error, "sizes", ())
    if len(sizes) == 2 and evaluated(sizes[0]) == evaluated(sizes[1]) is not None:
        return {int(name[1:]) for size in sizes for name in dims.names(size)}
    return {size for value in case.inputs if isinstance(value, np.ndarray) for size in value.shape}


def _built(case: Case, symbolic: bool, constants: bool, fixed: set[int]) -> tuple[lg.Tensor | None, ...]:
    node = case.node
    graph = lg.Graph(case.opset)
    types = {entry.name: type_name(entry.type) for entry in case.model.graph.input}
    operands: list[lg.Tensor | None] = []
    for place, (name, value) in enumerate(zip(node.input, case.inputs, strict=True)):
        if not name:
            operands.append(None)
        elif name in graph.inputs:
            operands.append(graph.inputs[name])
        elif constants and (place in _DECISIVE.get(node.op_type, ()) or (node.op_type.startswith("Reduce") and place)):
            operands.append(graph.constant(value))
        elif "(" in types[name]:
            operands.append(graph.input(name, types[name]))
        else:
            shape = [f"s{size}" if symbolic and size != 1 and size not in fixed else size for size in value.shape]
            operands.append(graph.input(name, value.dtype, shape))
    around = {name: tensor for name, tensor in zip(node.input, operands, strict=True) if tensor is not None}
    attributes = _attributes(node, graph, around)
    if node.op_type == "Split" and len(operands) == 1:
        attributes["num_outputs"] = len(case.outputs)  # before opset 18 the node's outputs were counted
    made = call_op(node.op_type, operands, attributes, graph, node.domain)
    found = made if isinstance(made, tuple) else (made,)
    return found[: len(case.outputs)]


def _attributes(node: onnx.NodeProto, graph: lg.Graph, around: dict[str, lg.Tensor]) -> dict[str, Any]:
    """Return a node's attributes as Python values, graphs as functions."""
    return {
        attribute.name: _function(attribute.g, graph, around) if attribute.HasField("g") else _attribute(attribute)
        for attribute in node.attribute
    }


def _function(proto: onnx.GraphProto, graph: lg.Graph, around: dict[str, lg.Tensor]) -> Callable[..., list[lg.Tensor]]:
    """Return a graph within a node as a Python function that makes its calls, and that closes over what is around."""
    names = [value.name for value in proto.input]

    def body(*given: lg.Tensor) -> list[lg.Tensor]:
        known = {**around, **dict(zip(names, given, strict=True))}
        known.update({tensor.name: graph.constant(numpy_helper.to_array(tensor)) for tensor in proto.initializer})
        for node in proto.node:
            operands = [known[name] if name else None for name in node.input]
            attributes = _attributes(node, graph, known)
            if node.op_type == "Unsqueeze" and "axes" in attributes:  # an operand since opset 13
                operands.append(graph.constant(np.array(attributes.pop("axes"))))
            made = call_op(node.op_type, operands, attributes, graph, node.domain)
            known.update(zip(node.output, made if isinstance(made, tuple) else (made,), strict=False))
        return [known[value.name] for value in proto.output]

    return body


def _attribute(attribute: AttributeProto) -> Any:
    value = helper.get_attribute_value(attribute)
    if isinstance(value, TensorProto):
        return _array(numpy_helper.to_array(value))
    if isinstance(value, TypeProto):
        return type_name(value)
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, list) and any(isinstance(item, bytes) for item in value):
        return [item.decode() for item in value]
    return value


def evaluated(size: Size) -> int | None:
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
    types = {entry.name: type_name(entry.type) for entry in case.model.graph.output}
    for i, (tensor, wanted, name) in enumerate(zip(made, case.outputs, case.node.output, strict=True)):
        if not name:
            continue
        if tensor is None:
            found.append(f"output {i} is missing")
            continue
        if tensor.dtype.name != types[name]:
            found.append(f"output {i} is {tensor.dtype}, not {types[name]}")
        if not isinstance(wanted, np.ndarray):
            continue
        shape = tensor.known_shape
        if shape is None:
            unknown += 1
            continue
        if len(shape) != wanted.ndim:
            found.append(f"output {i} is {shape}, not {wanted.shape}")
            continue
        for size, number in zip(shape, wanted.shape, strict=True):
            value = evaluated(size)
            unknown += value is None
            if value is not None and value != number:
                found.append(f"output {i} is {shape}, not {wanted.shape}")
                break
    if strict and unknown:
        found.append(f"{unknown} sizes are not known: {[None if t is None else t.known_shape for t in made]}")
    return found, unknown


def original(case: Case) -> list[Any]:
    """Return what onnxruntime makes of onnx's own model of the case."""
    session = Session(open_session(case.model, severity=4))
    names = [name for name in case.node.output if name]
    found = session.run({name: case.feeds[name] for name in session.inputs}, names)
    return [found[name] for name in names]


def rebuilt(case: Case) -> list[Any]:
    """Return what onnxruntime makes of the case as ``lg.op`` builds it."""
    made = build(case)
    wanted = [tensor for tensor, name in zip(made, case.node.output, strict=True) if name and tensor is not None]
    needed = wanted[0].graph.inputs
    return realize(wanted, {name: value for name, value in case.feeds.items() if name in needed})


def differences(case: Case, results: Sequence[Any]) -> str:
    """Return how the results differ from what is expected, beyond the case's tolerances; empty where they do not."""
    wanted = [value for value, name in zip(case.outputs, case.node.output, strict=True) if name]
    try:
        for right, found in zip(wanted, results, strict=True):
            if not isinstance(right, list):
                Runner.assert_similar_outputs([right], [found], case.rtol, case.atol)
                continue
            assert len(right) == len(found)  # the runner cannot compare scalars within lists
            Runner.assert_similar_outputs(right, found, case.rtol, case.atol)
    except (AssertionError, TypeError) as error:
        return str(error).strip()
    return ""
