"""A written model changed by others' tools: onnxscript's optimizer, onnx's version converter. Weights stay outside.

Both see large weights as inputs, so that none is copied or computed with, and small ones with their numbers. What they
give takes the place of the nodes alone: inputs, outputs, their types and the texts of the model are lazygraph's.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from lazygraph.errors import ExportError, UnsupportedError
from lazygraph.export import versions
from lazygraph.export.lower import write_type
from lazygraph.export.program import Program
from lazygraph.export.stored import Stored
from lazygraph.where import Where

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto

# Weights of at most so many elements are shown with their numbers: shapes, axes, scalars.
_SHOWN = 1024


def optimized(program: Program, model: ModelProto) -> ModelProto:
    """Return a lowered model as onnxscript's optimizer makes it; weights that it no longer reads leave the program.

    Args:
        program: What was lowered.
        model: Its model, without initialisers and functions.

    Raises:
        ExportError: onnxscript is not installed, or its result is no model with the same inputs and outputs.
    """
    require_onnxscript("optimize")
    from onnxscript import optimizer

    return _changed(program, model, optimizer.optimize(_whole(program, model)), "optimize")


def converted(program: Program, model: ModelProto, opset: int) -> ModelProto:
    """Return a lowered model in another opset of ai.onnx, converted by onnx's version converter.

    Args:
        program: What was lowered.
        model: Its model, without initialisers and functions.
        opset: The opset.

    Raises:
        UnsupportedError: An operator that cannot be converted; the message names it.
    """
    from onnx import checker, version_converter

    before = next(entry.version for entry in model.opset_import if entry.domain == "")
    changed = versions.changed_between(program.calls, before, opset)
    if changed is not None:
        what = f"it means something else in opset {opset} than in {before}"
        raise _refusal(what, changed.op, changed.at, before, opset)
    try:
        found = version_converter.convert_version(_whole(program, model), opset)
        checker.check_model(found)
    except (RuntimeError, ValueError, checker.ValidationError) as error:
        op, at = _named(program, str(error), opset)
        raise _refusal(f"onnx cannot convert it: {_first_line(error)}", op, at, before, opset) from error
    made: ModelProto = _changed(program, model, found, "export")
    for entry in made.opset_import:
        if entry.domain == "":
            entry.version = opset
    return made


def require_onnxscript(op: str) -> None:
    """Require onnxscript to be installed.

    Raises:
        ExportError: It is not.
    """
    try:
        import onnxscript  # noqa: F401
    except ImportError as error:
        raise ExportError(
            "onnxscript is not installed",
            op=op,
            expected="onnxscript",
            hint="pip install lazygraph[onnxscript]",
        ) from error


def _whole(program: Program, model: ModelProto) -> ModelProto:
    """Return a copy with small weights inside and large ones as inputs."""
    from onnx import ModelProto

    copy = ModelProto()
    copy.CopyFrom(model)
    del copy.graph.value_info[:]
    for stored in program.weights:
        if stored.own:
            continue
        if _elements(stored) <= _SHOWN:
            copy.graph.initializer.append(stored.proto())
        else:
            write_type(copy.graph.input.add(name=stored.name), stored.dtype, tuple(stored.shape))
    return copy


def _changed(program: Program, model: ModelProto, found: ModelProto, op: str) -> ModelProto:
    """Return the model with the nodes of what was found, and the small weights that these have new."""
    from onnx import ModelProto

    made = ModelProto()
    made.CopyFrom(model)
    del made.graph.node[:], made.graph.value_info[:], made.opset_import[:]
    made.graph.node.extend(found.graph.node)
    made.functions.extend(found.functions)
    made.opset_import.extend(found.opset_import)
    ours = {stored.name for stored in program.weights}
    made.graph.initializer.extend([tensor for tensor in found.graph.initializer if tensor.name not in ours])
    wanted, given = ([value.name for value in graph.output] for graph in (model.graph, found.graph))
    there = {value.name for value in found.graph.input}
    lost = [value.name for value in model.graph.input if value.name not in there]
    if wanted != given or lost:
        raise ExportError(
            f"inputs or outputs have other names after it: {', '.join(lost or sorted(set(wanted) ^ set(given)))}",
            op=op,
            expected="a model with the same inputs and outputs",
        )
    read = set(_read(made.graph))
    program.weights[:] = [stored for stored in program.weights if stored.own or stored.name in read]
    return made


def _read(graph: GraphProto) -> Iterator[str]:
    """Yield every name that a graph reads, and the graphs inside it."""
    for node in graph.node:
        yield from node.input
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from _read(attribute.g)
    yield from (output.name for output in graph.output)


def _elements(stored: Stored) -> int:
    count = 1
    for size in stored.shape:
        count *= size
    return count


def _named(program: Program, text: str, opset: int) -> tuple[str, Where | None]:
    """Return the operator that a message of onnx's is about and its line; else the first that the opset lacks."""
    words = set(re.findall(r"\w+", text))
    for node in program.nodes:
        if node.op in words:
            return node.op, node.at
    for node in program.nodes:
        schema = None if node.domain else versions.schema_at(node.op, "", opset)
        if not node.domain and (schema is None or versions.refusal(schema, node)):
            return node.op, node.at
    return "export", None


def _first_line(error: Exception) -> str:
    # What stands before it is a place in onnx's source.
    found = re.search(r"No (?:Adapter|Previous Version) [^\n]*", str(error))
    lines: Iterable[str] = [found[0]] if found else str(error).strip().splitlines()
    return next(iter(lines), type(error).__name__)


def _refusal(what: str, op: str, at: Where | None, before: int, opset: int) -> UnsupportedError:
    return UnsupportedError(
        f"opset {opset} asked for: {what}",
        op=op,
        expected=f"an operator that can be converted, or opset {before}, which the program is written for",
        at=at,
        needed=before,
    )


__all__ = ["converted", "optimized", "require_onnxscript"]
