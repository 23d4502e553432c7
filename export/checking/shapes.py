"""Shapes and types: onnx's checker and strict inference, lazygraph's own rules, and what a provider can run."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from lazygraph.errors import LazyGraphError, LoadError, UnsupportedError
from lazygraph.export import checks, targets, versions
from lazygraph.export.checking.finding import Finding
from lazygraph.export.loading import load
from lazygraph.export.program import collect
from lazygraph.loaded import Loaded

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, TensorProto

# How onnx names the node in its messages.
_NODE = re.compile(r"node name: ([^)\n]+?)(?:\)|$)|\bname: (\S+) ", re.MULTILINE)


def by_onnx(model: ModelProto) -> Iterator[Finding]:
    """Yield what onnx's checker or its strict inference refuses; the weights' bytes are left out of both."""
    from onnx import checker, shape_inference

    light = without_weights(model)
    content = light.SerializeToString()
    try:
        checker.check_model(content)
    except checker.ValidationError as error:
        yield Finding("onnx-checker", _first(error), _node(str(error)))
        return
    if any(op in {name for _, name in checks.FAULTS} for op in _operators(light.graph)):
        return  # onnx's own inference is known to be wrong about it
    try:
        try:
            shape_inference.infer_shapes(content, check_type=True, strict_mode=True, data_prop=True)
        except shape_inference.InferenceError as error:
            if checks.DATA_FAULT not in str(error):
                raise
            shape_inference.infer_shapes(content, check_type=True, strict_mode=True, data_prop=False)
    except (shape_inference.InferenceError, RuntimeError, IndexError) as error:
        yield Finding("shape-inference", _first(error), _node(str(error)))


def without_weights(model: ModelProto) -> ModelProto:
    """Return a copy whose large weights are inputs: messages over 2 GiB cannot be checked, and need not be."""
    from onnx import ModelProto

    small: list[TensorProto] = []
    large: list[TensorProto] = []
    for tensor in model.graph.initializer:
        elements = 1
        for size in tensor.dims:
            elements *= size
        here = tensor.data_location != tensor.EXTERNAL and elements <= checks.SHOWN
        (small if here else large).append(tensor)
    if not large:
        return model
    copy = ModelProto()
    _copied(model, copy)
    del copy.graph.initializer[:]
    copy.graph.initializer.extend(small)
    inputs = {value.name for value in model.graph.input}
    for tensor in large:
        if tensor.name not in inputs:
            value = copy.graph.input.add(name=tensor.name)
            value.type.tensor_type.elem_type = tensor.data_type
            value.type.tensor_type.shape.SetInParent()
            for size in tensor.dims:
                value.type.tensor_type.shape.dim.add(dim_value=size)
    return copy


def _copied(model: ModelProto, copy: ModelProto) -> None:
    """Copy everything but the initialisers."""
    for field, value in model.ListFields():
        if field.name == "graph":
            for inner, held in value.ListFields():
                if inner.name != "initializer":
                    _set(copy.graph, inner.name, held)
        else:
            _set(copy, field.name, value)


def _set(target: object, name: str, value: object) -> None:
    there = getattr(target, name)
    if isinstance(value, (int, str, bytes, float)):
        setattr(target, name, value)
    elif callable(extend := getattr(there, "extend", None)):
        extend(value)
    else:
        there.CopyFrom(value)


def _operators(graph: GraphProto) -> Iterator[str]:
    for node in graph.node:
        yield node.op_type
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from _operators(attribute.g)


def _first(error: Exception) -> str:
    return " ".join(str(error).split("==> Context")[0].split())


def _node(text: str) -> str:
    found = _NODE.search(text)
    return "" if found is None else found[1] or found[2] or ""


def by_rules(model: ModelProto, path: Path | None) -> tuple[Loaded | None, list[Finding]]:
    """Return the model as tensors, None where that is refused, and what lazygraph's own rules say of it."""
    found: list[Finding] = []
    try:
        loaded = load(model, folder=None if path is None else path.parent)
    except (LoadError, UnsupportedError) as error:
        return None, [Finding("not-read", error.what, _quoted(error.operands.get("node", "")))]
    except LazyGraphError as error:
        return None, [Finding("shape-rule", f"{error.op}: {error.what}", _quoted(error.operands.get("node", "")))]
    for note in loaded.notes:
        about, _, what = note.partition(": ")
        found.append(Finding("shape-doubt", note, _quoted(about) if what else ""))
    for one, other in loaded.equal_sizes:
        found.append(Finding("sizes-meet", f"{one} meets {other}: they must be equal whenever it runs"))
    return loaded, found


def _quoted(text: str) -> str:
    """Return the name in ``Add 'add_3'``."""
    found = re.search(r"'(.*)'", text)
    return found[1] if found else text


def by_provider(loaded: Loaded, target: str) -> Iterator[Finding]:
    """Yield the calls that a provider has no kernel for, one per kind of call."""
    facts = loaded.graph.facts
    opset = (facts.domains.get("") if facts else None) or versions.newest_opset()
    program = collect(loaded.outputs)
    names = dict(zip(program.nodes, program.node_names, strict=True))
    for node in versions.distinct_calls(program.calls):
        refused = targets.refused(node, target, opset)
        if refused is not None:
            yield Finding("provider-kernel", f"{node.op}: {refused.what}", names.get(node, ""))


__all__ = ["by_onnx", "by_provider", "by_rules", "without_weights"]
