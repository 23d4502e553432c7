"""From tensors to a file: ``to_onnx`` makes the model, ``save`` writes it, whole or not at all."""

from __future__ import annotations

import contextlib
import filecmp
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from lazygraph.errors import ExportError, OperandError, UnsupportedError
from lazygraph.export import checks, converting, files, targets, versions
from lazygraph.export.collector import collector_paused
from lazygraph.export.lower import lower
from lazygraph.export.outlining import outline
from lazygraph.export.program import Outputs, Program, collect
from lazygraph.export.source_lines import KEY, lines_of, write
from lazygraph.export.weights import (
    INLINE_BYTES,
    PROTO_BYTES,
    Progress,
    WeightsFile,
    external_proto,
    inline,
    locations,
    rename_operands,
)

if TYPE_CHECKING:
    from onnx import ModelProto

    from lazygraph.tensor import Node


def to_onnx(
    outputs: Outputs,
    *,
    target: str | None = None,
    opset: int | None = None,
    ir_version: int | None = None,
    metadata: Mapping[str, str] | None = None,
    value_info: bool = False,
    functions: bool = True,
    optimize: bool = False,
    source_lines: bool = False,
) -> ModelProto:
    """Return the model of the outputs, checked, with all its weights inside.

    Args:
        outputs: A tensor (called ``output``), or tensors by name, each perhaps as ``(tensor, shape)``: the declared
            shape is written in the file, and refused when the graph contradicts it.
        target: ``"cpu"`` or ``"cuda"``: refuse what that provider cannot run. None: any runtime.
        opset: The ai.onnx opset to declare; None for the lowest (13 or later) that means the same. A program that
            needs another one is converted by onnx's version converter, functions in the place of their calls.
        ir_version: The IR version to declare; None for the lowest that is needed.
        metadata: Texts kept with the model.
        value_info: Also write the types of intermediate values, for people who read the file.
        functions: Write calls of local functions (``lazygraph.function``) as such; otherwise what they are made of.
        optimize: Let onnxscript's optimizer change the model; it puts functions in the place of their calls.
        source_lines: Also write which line of which file made each call, for messages about the file, reports and
            ``lazygraph show``. Files are named below the current folder or in their package.

    Raises:
        OperandError: No outputs, or an output's name is taken.
        ShapeError: A declared shape contradicts the graph.
        UnsupportedError: The target cannot serve a node, or one cannot be converted to the opset; it is named.
        ExportError: onnx does not agree with the graph, or the weights exceed what one message holds (2 GiB).

    Spec: onnx.proto, ModelProto.
    """
    with collector_paused():
        program = collect(outputs)
        model = checked_model(
            program, target, opset, ir_version, metadata, value_info, functions, optimize, source_lines
        )
        return with_weights(program, model)


def save(
    outputs: Outputs,
    path: str | os.PathLike[str],
    *,
    external: bool | str | None = None,
    target: str | None = "cpu",
    opset: int | None = None,
    ir_version: int | None = None,
    metadata: Mapping[str, str] | None = None,
    value_info: bool = False,
    functions: bool = True,
    optimize: bool = False,
    source_lines: bool = False,
    progress: Progress | None = None,
) -> ModelProto:
    """Write the outputs' model to a file, large weights beside it; return the model as the file has it.

    Weights are read one at a time, so memory holds about one of them. The weights file is named after its content
    (``model-3f2a9c1b5d6e.onnx.data``): old and new model never share one, so whatever stops the writing, the file under
    ``path`` is the old model with the old weights or the new one with the new.

    Args:
        outputs: As for ``to_onnx``.
        path: The model's file. Its folder must exist.
        external: Whether weights go to a file of their own; None: when they sum to more than 50 MB; a text: to a file
            of that name.
        target: The provider that must be able to run it; None: any.
        opset: As for ``to_onnx``.
        ir_version: As for ``to_onnx``.
        metadata: As for ``to_onnx``.
        value_info: As for ``to_onnx``.
        functions: As for ``to_onnx``.
        optimize: As for ``to_onnx``.
        source_lines: As for ``to_onnx``.
        progress: Called with a weight's name, bytes done and bytes in all, after each weight.

    Raises:
        OperandError: The weights file's name is not a plain one, or exists with other content.
        ExportError: As for ``to_onnx``; or the files cannot be written.
        WeightsError: A weight's source holds something else than it promised.

    Spec: onnx.proto, TensorProto.external_data.
    """
    program = collect(outputs)
    return save_program(
        program,
        path,
        external,
        target,
        opset,
        ir_version,
        metadata,
        value_info,
        functions,
        optimize,
        source_lines,
        progress,
    )


def with_weights(program: Program, model: ModelProto) -> ModelProto:
    """Return the model with the program's weights inside.

    Raises:
        ExportError: They exceed what one message holds.
    """
    _refuse_too_large(program)
    inline(model, program.weights)
    return model


def save_program(
    program: Program,
    path: str | os.PathLike[str],
    external: bool | str | None = None,
    target: str | None = "cpu",
    opset: int | None = None,
    ir_version: int | None = None,
    metadata: Mapping[str, str] | None = None,
    value_info: bool = False,
    functions: bool = True,
    optimize: bool = False,
    source_lines: bool = False,
    progress: Progress | None = None,
) -> ModelProto:
    """Write a collected program (see ``save``)."""
    place = Path(path)
    if not place.name or place.is_dir():
        raise OperandError(f"{str(path)!r} names no file", op="save", expected="the path of a file, such as model.onnx")
    location = files.plain_name(external, place) if isinstance(external, str) else None
    model = checked_model(program, target, opset, ir_version, metadata, value_info, functions, optimize, source_lines)
    if external is None:
        external = sum(stored.nbytes for stored in program.weights) > INLINE_BYTES
    external = external is not False and any(not stored.small for stored in program.weights)
    if not external:
        _refuse_too_large(program)

    old = _old_weights(place)
    with files.draft(place) as model_file:
        if not external:
            inline(model, program.weights, progress)
            model_file.file.write(model.SerializeToString(deterministic=True))
            model_file.settle()
            model_file.publish()
            written = None
        else:
            written = _save_external(program, model, place, location, model_file, progress)
    for name in old - {written}:
        place.with_name(name).unlink(missing_ok=True)
    files.settle_folder(place.parent)
    return model


def checked_model(
    program: Program,
    target: str | None = None,
    opset: int | None = None,
    ir_version: int | None = None,
    metadata: Mapping[str, str] | None = None,
    value_info: bool = False,
    functions: bool = True,
    optimize: bool = False,
    source_lines: bool = False,
) -> ModelProto:
    """Return the model of a program, checked, all but its weights (see ``to_onnx``)."""
    with collector_paused():
        checks.declared_shapes(program)
        calls = versions.distinct_calls(program.calls)
        facts = program.graph.facts
        of_file = None if facts is None else facts.domains
        domains, convert = _domains(calls, program, opset, of_file)
        if target is not None:
            may_rise = (opset is None or convert) and program.graph.opset is None
            domains[""] = targets.settle(calls, target, domains[""], may_rise)
        model = lower(program, domains, ir_version=ir_version, metadata=metadata, value_info=value_info)
        checks.check(program, model)
        if optimize:
            model = converting.optimized(program, model)
        if convert and opset is not None:
            model = converting.converted(program, model, opset)
        told = source_lines or (facts is not None and KEY in facts.metadata)
        lines = lines_of(program, source_lines) if told else None
        if functions and not (optimize or convert):
            model = outline(program, model, lines)
        if lines is not None:
            write(model, lines)
        return model


def _domains(
    calls: list[Node], program: Program, opset: int | None, of_file: Mapping[str, int] | None
) -> tuple[dict[str, int], bool]:
    """Return the version of every domain, and whether the opset that is asked for takes a conversion."""
    versions.require_in_range(opset)
    try:
        return versions.opsets(calls, program.graph.opset, opset, of_file), False
    except UnsupportedError:
        if opset is None:
            raise
        return versions.opsets(calls, program.graph.opset, None, of_file), True


def _refuse_too_large(program: Program) -> None:
    total = sum(stored.nbytes for stored in program.weights)
    if total > PROTO_BYTES - 2**20 * 16:
        raise ExportError(
            f"{total:,} bytes of weights in one message",
            op="export",
            expected="less than 2 GiB, the limit of protobuf",
            hint="lg.save(outputs, path) puts them into a file of their own",
        )


def _save_external(
    program: Program,
    model: ModelProto,
    place: Path,
    location: str | None,
    model_file: files.Draft,
    progress: Progress | None,
) -> str:
    """Write both files, the weights first and under a name that no other content has; return that name."""
    large = [stored for stored in program.weights if not stored.small]
    with files.draft(place.with_name(location or f"{place.name}.data")) as data_file:
        writer = WeightsFile(data_file.file, sum(stored.nbytes for stored in large), progress)
        offsets: dict[str, int] = {}
        renamed: dict[str, str] = {}
        for stored in large:
            offset, first = writer.add(stored)
            if first is stored:
                offsets[stored.name] = offset
            else:
                renamed[stored.name] = first.name
        data_file.settle()
        name = location or files.weights_name(place, writer.digest)
        _refuse_other_content(place.with_name(name), data_file.temporary, location)

        for stored in program.weights:
            if stored.name in offsets:
                model.graph.initializer.append(external_proto(stored, name, offsets[stored.name]))
            elif stored.name not in renamed:
                model.graph.initializer.append(stored.proto())
        rename_operands(model, renamed)
        model_file.file.write(model.SerializeToString(deterministic=True))
        model_file.settle()
        there_before = os.path.lexists(place.with_name(name))
        try:
            data_file.publish(place.with_name(name))
            model_file.publish()
        except BaseException:
            if not there_before:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(place.with_name(name))
            raise
    return name


def _refuse_other_content(place: Path, new: Path, location: str | None) -> None:
    if location is None or not os.path.lexists(place):
        return
    if place.is_symlink() or not place.is_file() or not filecmp.cmp(place, new, shallow=False):
        raise OperandError(
            f"{place} exists with other content",
            op="save",
            expected="a weights file name that is free: an older model may still read that file",
            hint="leave the name out: lazygraph names the file after its content, and removes the old one afterwards",
        )


def _old_weights(place: Path) -> set[str]:
    """Return the weights files of lazygraph's making that the model now at ``place`` reads, and it alone."""
    return {name for name in locations(place) if files.is_weights_name(place, name)}


__all__ = ["checked_model", "save", "save_program", "to_onnx", "with_weights"]
