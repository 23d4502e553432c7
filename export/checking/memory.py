"""The cache: pairs of past and present, whether they may share memory, and whether a manifest tells the truth."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from lazygraph.dtypes import dtype_of_onnx
from lazygraph.errors import DTypeError, ExportError
from lazygraph.export import manifest as manifests
from lazygraph.export.alias import shared_memory_faults
from lazygraph.export.checking.finding import Finding
from lazygraph.memory import shares

if TYPE_CHECKING:
    from onnx import ModelProto, ValueInfoProto

_PAST = re.compile(r"^past(_key_values)?(?=[._])")


def pairs_by_name(model: ModelProto) -> dict[str, str]:
    """Return the outputs that replace inputs on the next run, told by their names: ``past.0.k`` and ``present.0.k``."""
    outputs = {value.name for value in model.graph.output}
    found: dict[str, str] = {}
    for value in model.graph.input:
        target = _PAST.sub("present", value.name)
        if target != value.name and target in outputs:
            found[value.name] = target
    return found


def pairs(model: ModelProto, in_place: Mapping[str, str]) -> Iterator[Finding]:
    """Yield what is wrong with a cache's inputs and outputs.

    Args:
        model: The model; its weights need not be loaded.
        in_place: By input, the output that is to have its memory.
    """
    values = {value.name: value for value in (*model.graph.input, *model.graph.output)}
    by_name = pairs_by_name(model)
    for source, target in {**by_name, **in_place}.items():
        if source not in values or target not in values:
            missing = source if source not in values else target
            yield Finding("cache-pair", f"there is no input or output {missing!r}", missing)
            continue
        before, after = _type(values[source]), _type(values[target])
        if before is None or after is None or before == after:
            continue
        sizes = len(before[1]) == len(after[1])
        if before[0] != after[0] or not sizes:
            yield Finding("cache-pair", f"{source} is {_said(before)}, and {target} is {_said(after)}", source)
    named = {source: target for source, target in in_place.items() if source in values}
    for source, reason in shared_memory_faults(model, named).items():
        yield Finding("in-place", f"{source} must not share memory with {named[source]}: {reason}", source)


def _type(value: ValueInfoProto) -> tuple[int, tuple[int | str, ...]] | None:
    kind = value.type.tensor_type
    if not kind.HasField("shape"):
        return None
    return kind.elem_type, tuple(
        dim.dim_value if dim.HasField("dim_value") else dim.dim_param or "?" for dim in kind.shape.dim
    )


def _said(kind: tuple[int, tuple[int | str, ...]]) -> str:
    try:
        return f"{dtype_of_onnx(kind[0])} {list(kind[1])}"
    except DTypeError:
        return f"{kind[0]} {list(kind[1])}"


def contract(model: ModelProto, folder: Path) -> Iterator[Finding]:
    """Yield how an export folder's manifest departs from its model."""
    try:
        manifest = manifests.read_manifest(folder)
    except ExportError as error:
        yield Finding("manifest-broken", error.what, manifests.FILE)
        return
    if manifests.fingerprint(folder / manifests.MODEL) != manifest.fingerprint:
        yield Finding("manifest-fingerprint", f"{manifests.MODEL} is another file than was exported", manifests.FILE)
    try:
        manifests.check_fits(manifest, _AsSession(model))
    except ExportError as error:
        rows = "; ".join(f"{label}: {row}" for label, row in error.operands.items())
        yield Finding("manifest-model", f"{error.what} ({rows})", manifests.FILE)
        return
    bound = {slot.source: slot.target for slot in manifest.memory if shares(slot, manifest.lowering)}
    faults = shared_memory_faults(model, bound)
    for source, reason in faults.items():
        if source not in manifest.copied:
            yield Finding("in-place", f"{source} must not share memory with {bound[source]}: {reason}", source)
    for source in manifest.copied:
        if source not in bound:
            yield Finding("manifest-memory", f"copied names {source!r}, which is no slot in place", manifests.FILE)
        elif source not in faults:
            yield Finding("in-place-possible", f"{source} could share memory with {bound[source]}", source)


@dataclass(frozen=True)
class _Value:
    """An input or output, as onnxruntime describes one."""

    name: str
    type: str
    shape: list[int | str | None]


class _AsSession:
    """Tells what a session of the model would tell of its inputs and outputs."""

    def __init__(self, model: ModelProto) -> None:
        weights = {tensor.name for tensor in model.graph.initializer}
        self._inputs = [_value(value) for value in model.graph.input if value.name not in weights]
        self._outputs = [_value(value) for value in model.graph.output]

    def get_inputs(self) -> list[_Value]:
        """Return the inputs."""
        return self._inputs

    def get_outputs(self) -> list[_Value]:
        """Return the outputs."""
        return self._outputs


def _value(value: ValueInfoProto) -> _Value:
    kind = value.type.tensor_type
    try:
        name = dtype_of_onnx(kind.elem_type).name
    except DTypeError:
        name = "?"
    shape: list[int | str | None] = [
        dim.dim_value if dim.HasField("dim_value") else dim.dim_param or None for dim in kind.shape.dim
    ]
    return _Value(value.name, f"tensor({ {'float32': 'float', 'float64': 'double'}.get(name, name) })", shape)


__all__ = ["contract", "pairs", "pairs_by_name"]
