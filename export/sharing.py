"""Several models over one weights file: ``save_all`` writes them together, each weight once."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from lazygraph.errors import ExportError, OperandError
from lazygraph.export import files
from lazygraph.export.program import Outputs, Program, collect
from lazygraph.export.saving import checked_model
from lazygraph.export.stored import Stored
from lazygraph.export.weights import Progress, WeightsFile, external_proto, locations, rename_operands

if TYPE_CHECKING:
    from onnx import ModelProto

# What the weights file's name begins with; its content's digest follows.
SHARED = Path("shared.onnx")


def save_all(
    models: Mapping[str, Outputs],
    folder: str | os.PathLike[str],
    *,
    target: str | None = "cpu",
    opset: int | None = None,
    metadata: Mapping[str, str] | None = None,
    source_lines: bool = False,
    progress: Progress | None = None,
) -> dict[str, ModelProto]:
    """Write several models into a folder, with one weights file for all; return the models as their files have them.

    Prefill and decode of one decoder, or several heads on one trunk: equal weights are stored once, whichever graphs
    they stand in. Either all the files are written or none: when one cannot be, those that were there stay as they are.

    Args:
        models: By file name (``"prefill.onnx"``), outputs as for ``lazygraph.save``.
        folder: Where; it must exist.
        target: As for ``lazygraph.save``.
        opset: As for ``lazygraph.save``.
        metadata: Texts kept with every model.
        source_lines: As for ``lazygraph.save``.
        progress: Called with a weight's name, bytes done and bytes in all, after each weight.

    Raises:
        OperandError: No model, or a name that is no plain file name.
        ExportError: A model is refused (see ``lazygraph.save``), or a file cannot be written.

    Spec: onnx.proto, TensorProto.external_data.
    """
    if not isinstance(models, Mapping) or not models:
        raise OperandError(f"{models!r} are no models", op="save_all", expected="outputs by file name")
    place = Path(folder)
    if not place.is_dir():
        raise ExportError(f"{place} is no folder", op="save_all", expected="a folder that exists", path=str(place))
    for name in models:
        files.plain_name(name, SHARED)
        if (place / name).is_dir():
            raise OperandError(f"{name!r} is a folder in {place}", op="save_all", expected="the name of a file")

    programs = {name: collect(outputs) for name, outputs in models.items()}
    protos = {
        name: checked_model(program, target, opset, None, metadata, source_lines=source_lines)
        for name, program in programs.items()
    }
    before = {entry for name in models for entry in locations(place / name) if files.is_weights_name(SHARED, entry)}
    with contextlib.ExitStack() as drafts:
        data = drafts.enter_context(files.draft(place / f"{SHARED}.data"))
        places = _write_weights(list(programs.values()), data, progress)
        location = files.weights_name(SHARED, places.digest) if places.any else ""
        written = {}
        for name, program in programs.items():
            _refer(program, protos[name], places, location)
            draft = written[name] = drafts.enter_context(files.draft(place / name))
            draft.file.write(protos[name].SerializeToString(deterministic=True))
            draft.settle()
        _publish(place, data if location else None, location, written)
    _remove_unread(place, before - {location})
    files.settle_folder(place)
    return protos


class _Places:
    """Where in the weights file each content lies."""

    def __init__(self) -> None:
        self.by_key: dict[object, tuple[int, Stored]] = {}
        self.digest = ""

    @property
    def any(self) -> bool:
        """Whether there is anything in the file."""
        return bool(self.by_key)


def _write_weights(programs: list[Program], data: files.Draft, progress: Progress | None) -> _Places:
    """Write every large weight of the programs once; what several of them hold is read once."""
    large = {_key(program, stored): stored for program in programs for stored in program.weights if not stored.small}
    writer = WeightsFile(data.file, sum(stored.nbytes for stored in large.values()), progress)
    places = _Places()
    for key, stored in large.items():
        places.by_key[key] = writer.add(stored)
    data.settle()
    places.digest = writer.digest
    return places


def _key(program: Program, stored: Stored) -> object:
    """Return what is equal for equal contents; an input's default is its program's own."""
    return (id(program), stored.key) if stored.own else stored.key


def _refer(program: Program, model: ModelProto, places: _Places, location: str) -> None:
    """Let a model read its weights from the file; of two weights with one content the first stands for both."""
    renamed: dict[str, str] = {}
    by_offset: dict[int, Stored] = {}
    for stored in program.weights:
        if stored.small:
            model.graph.initializer.append(stored.proto())
            continue
        offset, _ = places.by_key[_key(program, stored)]
        first = stored if stored.own else by_offset.setdefault(offset, stored)
        if first is stored or (first.dtype, first.shape) != (stored.dtype, stored.shape):
            model.graph.initializer.append(external_proto(stored, location, offset))
        else:
            renamed[stored.name] = first.name
    rename_operands(model, renamed)


def _publish(place: Path, data: files.Draft | None, location: str, written: Mapping[str, files.Draft]) -> None:
    """Give all the files their names; when one cannot have it, give back what was there before."""
    kept: dict[str, Path] = {}
    new: list[Path] = []
    try:
        if data is not None:
            if not os.path.lexists(place / location):
                new.append(place / location)
            data.publish(place / location)
        for name, draft in written.items():
            if os.path.lexists(place / name):
                kept[name] = draft.temporary.with_suffix(".old")
                os.replace(place / name, kept[name])
            else:
                new.append(place / name)
            draft.publish()
    except BaseException:
        for file in new:
            file.unlink(missing_ok=True)
        for name, old in kept.items():
            os.replace(old, place / name)
        raise
    for old in kept.values():
        old.unlink(missing_ok=True)


def _remove_unread(place: Path, names: set[str]) -> None:
    """Remove weights files that the old models read, where no model in the folder reads them any more."""
    if names:
        names = names - {location for model in place.glob("*.onnx") for location in locations(model)}
    for name in names:
        (place / name).unlink(missing_ok=True)


__all__ = ["save_all"]
