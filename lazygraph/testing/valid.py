"""Whether a graph is valid: everything that ``lazygraph check`` looks for, as an assertion."""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path

from lazygraph.errors import LazyGraphError
from lazygraph.export.checking import Report, check_file, check_folder, check_model
from lazygraph.export.subject import Given, subject_of


def assert_valid(
    outputs_or_file: Given, target: str | None = None, opset: int | None = None, *, ignore: Collection[str] = ()
) -> None:
    """Require that a graph or a file breaks no rule of ``lazygraph check``, notes aside.

    Args:
        outputs_or_file: Tensors by output name as for ``lg.save``, an .onnx file, an export folder, or a model.
        target: ``"cpu"`` or ``"cuda"``: that provider must be able to run it.
        opset: Outputs are written for this opset of ai.onnx; a file must ask for this or an earlier one.
        ignore: Rules to leave out, by name.

    Raises:
        AssertionError: A rule is broken, or the outputs cannot be exported; the message lists rule, node and reason.
    """
    __tracebackhide__ = True
    try:
        report = _report(outputs_or_file, target, opset)
    except LazyGraphError as error:
        raise AssertionError(f"not valid: {error}") from error
    found = [finding for finding in report.at_least("warning") if finding.rule not in ignore]
    if found:
        lines = [f"  {f.severity} {f.rule}: {f'{f.node}: ' if f.node else ''}{f.message}" for f in found]
        raise AssertionError("\n".join([f"{report.source} breaks {len(found)} rules", *lines]))


def _report(given: Given, target: str | None, opset: int | None) -> Report:
    if isinstance(given, (str, os.PathLike)):
        path = Path(given)
        return check_folder(path, target, opset) if path.is_dir() else check_file(path, target, opset)
    return check_model(subject_of(given, target, opset).model, target, opset)


__all__ = ["assert_valid"]
