"""All checks of one model, one after another: the later ones only where the earlier ones leave something to check."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from lazygraph.errors import LoadError, OperandError
from lazygraph.export import manifest as manifests
from lazygraph.export import targets
from lazygraph.export.checking import memory, shapes, structure, weightfiles
from lazygraph.export.checking.finding import SEVERITIES, Finding, Severity
from lazygraph.export.collector import collector_paused
from lazygraph.export.loading import content_of, parsed
from lazygraph.export.source_lines import FileLines

if TYPE_CHECKING:
    from onnx import ModelProto


@dataclass(frozen=True)
class Report:
    """What was found in one model.

    Attributes:
        source: The file, or how the model was given.
        findings: The worst first.
        nodes: Nodes of the graph, without those of bodies.
    """

    source: str
    findings: tuple[Finding, ...]
    nodes: int

    def at_least(self, severity: Severity) -> tuple[Finding, ...]:
        """Return the findings that are as bad as that, or worse."""
        return tuple(f for f in self.findings if SEVERITIES.index(f.severity) <= SEVERITIES.index(severity))


def check_file(
    path: str | Path,
    target: str | None = None,
    opset: int | None = None,
    in_place: Mapping[str, str] | None = None,
) -> Report:
    """Return what is wrong with a model file.

    Args:
        path: The file.
        target: ``"cpu"`` or ``"cuda"``: also find what that provider cannot run.
        opset: The newest ai.onnx opset that is allowed.
        in_place: By input, the output that is to be bound to the same memory.

    Raises:
        LoadError: There is no such file, or it is no ONNX model.
        OperandError: The target is none that lazygraph knows.
    """
    place = Path(path)
    model = parsed(content_of(place), str(place))
    if not model.HasField("graph"):
        raise LoadError(f"{place} has no graph in it", op="load", expected="a whole .onnx file")
    return check_model(model, target, opset, in_place, path=place)


def check_folder(folder: str | Path, target: str | None = None, opset: int | None = None) -> Report:
    """Return what is wrong with an export folder: its model, and whether its manifest tells the truth.

    Raises:
        LoadError: There is no model in it.
        OperandError: The target is none that lazygraph knows.
    """
    place = Path(folder)
    model = place / manifests.MODEL
    report = check_file(model, target, opset)
    found = memory.contract(parsed(content_of(model), str(model)), place)
    return Report(str(place), _sorted([*report.findings, *found]), report.nodes)


def check_model(
    model: ModelProto,
    target: str | None = None,
    opset: int | None = None,
    in_place: Mapping[str, str] | None = None,
    *,
    path: Path | None = None,
) -> Report:
    """Return what is wrong with a model (see ``check_file``).

    Args:
        model: The model; it stays as it is.
        target: As for ``check_file``.
        opset: As for ``check_file``.
        in_place: As for ``check_file``.
        path: The file that it comes from, beside which its weights lie.
    """
    if target is not None and target not in targets.TARGETS:
        raise OperandError(f"target {target!r}", op="check", expected="'cpu', 'cuda' or None")
    with collector_paused():
        found = [*structure.structure(model, opset), *weightfiles.weights(model, path)]
        found += memory.pairs(model, in_place or {})
        if not any(finding.severity == "error" and not finding.rule.startswith(("data-", "in-")) for finding in found):
            found += shapes.by_onnx(model)
        if not any(finding.rule in _HOPELESS for finding in found):
            loaded, said = shapes.by_rules(model, path)
            found += said
            if loaded is not None and target is not None:
                found += shapes.by_provider(loaded, target)
    return Report(str(path or "a model in memory"), _sorted(_located(found, model)), len(model.graph.node))


# What keeps lazygraph from reading a model: it would only say the same again.
_HOPELESS = frozenset(
    (
        *("data-escapes", "data-missing", "data-short", "data-length", "weight-broken", "name-missing", "name-order"),
        *("name-twice", "name-initializer-twice", "opset-twice", "opset-unknown", "call-signature", "operator-unknown"),
    )
)


def _located(found: list[Finding], model: ModelProto) -> list[Finding]:
    """Return the findings with the lines that the file tells of their nodes."""
    if not any(finding.node for finding in found):
        return found
    lines = FileLines.of_model(model).by_name(model.graph)
    return [replace(f, at=lines[f.node][1]) if f.node in lines else f for f in found]


def _sorted(found: list[Finding]) -> tuple[Finding, ...]:
    once = dict.fromkeys(found)
    return tuple(sorted(once, key=lambda finding: SEVERITIES.index(finding.severity)))


__all__ = ["Report", "check_file", "check_folder", "check_model"]
