"""A model that is tested: from tensors or a file, run with any of its values watched, by onnxruntime or by onnx."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from lazygraph import dims
from lazygraph.dims import Size
from lazygraph.dtypes import DType
from lazygraph.errors import ExportError, ShapeError
from lazygraph.export.declared import declared_dtype
from lazygraph.export.loading import content_of, parsed
from lazygraph.export.program import Outputs, collect
from lazygraph.export.saving import checked_model, with_weights
from lazygraph.export.session import Lines, Session, open_session
from lazygraph.export.source_lines import FileLines
from lazygraph.where import Where

if TYPE_CHECKING:
    from onnx import ModelProto, TypeProto

    from lazygraph.tensor import Tensor

Array: TypeAlias = "np.ndarray[Any, Any]"
Given: TypeAlias = "Outputs | str | os.PathLike[str] | ModelProto"


@dataclass(frozen=True)
class Wanted:
    """What an input takes.

    Attributes:
        dtype: Element type; a sequence's or an optional's too.
        shape: Its sizes, numbers or named; None where not even their number is known.
    """

    dtype: DType
    shape: tuple[Size, ...] | None


@dataclass
class Subject:
    """A model under test.

    Attributes:
        model: The model; external weights are not loaded.
        path: Its file, None where it was built in memory.
        lines: By node name, the operator and the user's line, where tensors were given or the file tells them.
        tensors: The inputs by name, where tensors were given: they know bounds of sizes that a file does not.
    """

    model: ModelProto
    path: Path | None = None
    lines: Lines = field(default_factory=dict)
    tensors: Mapping[str, Tensor] = field(default_factory=dict)

    @cached_property
    def inputs(self) -> dict[str, Wanted]:
        """What is fed, by name, without inputs that have numbers of their own."""
        graph = self.model.graph
        own = {tensor.name for tensor in graph.initializer}
        found: dict[str, Wanted] = {}
        for value in graph.input:
            if value.name not in own:
                dtype = declared_dtype(value.type)
                ours = self.tensors.get(value.name)
                shape = _sizes(value.type) if ours is None else ours.known_shape
                found[value.name] = Wanted(dtype, shape if dtype.element is None else None)
        return found

    @cached_property
    def outputs(self) -> list[str]:
        """What comes out, by name."""
        return [value.name for value in self.model.graph.output]

    @cached_property
    def values(self) -> dict[str, int]:
        """Every value that a node of the graph makes, in order, and the node's place."""
        return {name: i for i, node in enumerate(self.model.graph.node) for name in node.output if name}

    def session(self, provider: str = "cpu", watch: Sequence[str] = ()) -> Session:
        """Return a session that also gives the watched values.

        Raises:
            ExportError: onnxruntime refuses the model.
        """
        options: dict[str, str] = {}
        if self.path is not None and not watch:
            return Session(open_session(self.path, provider, lines=self.lines), self.lines)
        model = self.watching(watch)
        if self.path is not None:
            options["session.model_external_initializers_file_folder_path"] = str(self.path.parent)
        return Session(open_session(model, provider, lines=self.lines, options=options), self.lines)

    def watching(self, watch: Sequence[str]) -> ModelProto:
        """Return the model with further values among its outputs."""
        from onnx import ModelProto

        copy = ModelProto()
        copy.CopyFrom(self.model)
        there = set(self.outputs)
        for name in watch:
            if name not in there:
                copy.graph.output.add(name=name)
        return copy

    def by_onnx(self, feeds: Mapping[str, Any], watch: Sequence[str]) -> dict[str, Any]:
        """Return values as onnx's reference evaluator computes them.

        Raises:
            ExportError: The evaluator lacks an operator, or fails.
        """
        import onnx
        from onnx.reference import ReferenceEvaluator

        model = self.watching(watch)
        if self.path is not None:
            onnx.load_external_data_for_model(model, str(self.path.parent))
        names = [*dict.fromkeys([*self.outputs, *watch])]
        try:
            with np.errstate(all="ignore"):
                return dict(zip(names, ReferenceEvaluator(model).run(names, dict(feeds)), strict=True))
        except Exception as error:  # it raises whatever numpy and its own operators raise
            raise ExportError(
                f"onnx's reference evaluator failed: {type(error).__name__}: {error}",
                op="assert_matches",
                expected="operators that onnx.reference computes",
                hint="compare with a numpy function or with another model",
            ) from error

    def origin(self, value: str) -> tuple[str, str, Where | None]:
        """Return the operator, the name and the user's line of the node that makes a value."""
        place = self.values.get(value)
        if place is None:
            return "", value, None
        node = self.model.graph.node[place]
        _, at = self.lines.get(node.name or value, (node.op_type, None))
        return str(node.op_type), node.name or value, at


def subject_of(given: Given, target: str | None = None, opset: int | None = None) -> Subject:
    """Return what is tested: tensors by name as for ``lg.save``, a path, or a model.

    Args:
        given: Outputs, the path of an .onnx file or of an export folder, or a model.
        target: For outputs: refuse what that provider cannot run.
        opset: For outputs: the opset to declare.

    Raises:
        LazyGraphError: As for ``lg.to_onnx``, or the file cannot be read.
    """
    from onnx import ModelProto

    if isinstance(given, ModelProto):
        return Subject(given, lines=FileLines.of_model(given).by_name(given.graph))
    if isinstance(given, (str, os.PathLike)):
        path = Path(given)
        path = path / "model.onnx" if path.is_dir() else path
        model = parsed(content_of(path), str(path))
        return Subject(model, path, FileLines.of_model(model).by_name(model.graph))
    program = collect(given)
    return Subject(with_weights(program, checked_model(program, target, opset)), None, program.lines(), program.inputs)


def _sizes(kind: TypeProto) -> tuple[Size, ...] | None:
    """Return the sizes that a file declares; what it names is a named size."""
    if not kind.tensor_type.HasField("shape"):
        return None
    return tuple([_size(dim, i) for i, dim in enumerate(kind.tensor_type.shape.dim)])


def _size(dim: Any, axis: int) -> Size:
    if dim.HasField("dim_value"):
        return int(dim.dim_value)
    try:
        return dims.parse(dim.dim_param) if dim.dim_param else dims.unknown(f"axis_{axis}")
    except ShapeError:
        return dims.unknown(f"axis_{axis}")


def evaluated(size: Size, known: Mapping[str, int]) -> int | None:
    """Return a size as a number, None where a name in it has none."""
    if isinstance(size, int):
        return size
    return dims.evaluate(size, dict(known)) if set(dims.names(size)) <= set(known) else None


__all__ = ["Given", "Subject", "Wanted", "evaluated", "subject_of"]
