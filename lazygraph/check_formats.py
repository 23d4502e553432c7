"""Reports of ``lazygraph check`` in the forms that other programs read."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from lazygraph.version import VERSION

if TYPE_CHECKING:
    from lazygraph.export.checking import Finding, Report

Unread = Sequence[tuple[str, str]]


def as_json(reports: Sequence[Report], unread: Unread) -> str:
    """Return one JSON object: a list of files with their findings, and the files that could not be read."""
    files = [
        {
            "file": report.source,
            "nodes": report.nodes,
            "findings": [
                {
                    "rule": f.rule,
                    "severity": f.severity,
                    "node": f.node,
                    "message": f.message,
                    "line": "" if f.at is None else str(f.at),
                }
                for f in report.findings
            ],
        }
        for report in reports
    ]
    return json.dumps({"files": files, "unreadable": [{"file": f, "message": m} for f, m in unread]}, indent=2)


def as_github(reports: Sequence[Report], unread: Unread) -> str:
    """Return workflow commands, which GitHub shows beside the file."""
    kinds = {"error": "error", "warning": "warning", "note": "notice"}
    lines = [
        f"::{kinds[f.severity]} {_place(report, f)},title={_property(f.rule)}::"
        + _data(_said(f) if _source(f) is None else f"{report.source}: {_said(f)}")
        for report in reports
        for f in report.findings
    ]
    lines += [f"::error file={_property(_relative(file))},title=unreadable::{_data(why)}" for file, why in unread]
    return "\n".join(lines)


def _said(finding: Finding) -> str:
    return f"{finding.node}: {finding.message}" if finding.node else finding.message


def _source(finding: Finding) -> tuple[str, int] | None:
    """Return the file and the line that made a finding's node, where that file is there to be shown."""
    if finding.at is None or not os.path.isfile(finding.at.file):
        return None
    file = _relative(finding.at.file)
    return None if PurePath(file).is_absolute() else (file, finding.at.line)


def _place(report: Report, finding: Finding) -> str:
    source = _source(finding)
    if source is None:
        return f"file={_property(_relative(report.source))}"
    return f"file={_property(source[0])},line={source[1]}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")


def _relative(file: str) -> str:
    try:
        relative = os.path.relpath(file)
    except ValueError:  # another drive on Windows
        return PurePath(file).as_posix()
    return PurePath(file if relative.startswith("..") else relative).as_posix()


def as_sarif(reports: Sequence[Report], unread: Unread) -> str:
    """Return a log in SARIF 2.1.0."""
    from urllib.parse import quote

    from lazygraph.export.checking import RULES

    names = list(RULES)
    results: list[dict[str, Any]] = []
    for report in reports:
        model = {"physicalLocation": {"artifactLocation": {"uri": quote(_relative(report.source))}}}
        for finding in report.findings:
            location: dict[str, Any] = dict(model)
            source = _source(finding)
            if source is not None:
                file, line = source
                place = {"artifactLocation": {"uri": quote(file)}, "region": {"startLine": line}}
                location["physicalLocation"] = place
            if finding.node:
                location["logicalLocations"] = [{"name": finding.node, "kind": "element"}]
            result = {
                "ruleId": finding.rule,
                "ruleIndex": names.index(finding.rule),
                "level": finding.severity,
                "message": {"text": _said(finding)},
                "locations": [location],
            }
            results.append(result if source is None else {**result, "relatedLocations": [model]})
    rules = [
        {
            "id": name,
            "name": "".join(part.capitalize() for part in name.split("-")),
            "shortDescription": {"text": rule.text},
            "fullDescription": {"text": rule.text},
            "help": {"text": f"{rule.text} `lazygraph check --ignore {name}` leaves this rule out."},
            "defaultConfiguration": {"level": rule.severity},
        }
        for name, rule in RULES.items()
    ]
    notices = [{"level": "error", "message": {"text": f"{file}: {why}"}} for file, why in unread]
    run = {
        "tool": {"driver": {"name": "lazygraph", "version": VERSION, "rules": rules}},
        "invocations": [{"executionSuccessful": not unread, "toolExecutionNotifications": notices}],
        "results": results,
    }
    schema = "https://json.schemastore.org/sarif-2.1.0.json"
    return json.dumps({"$schema": schema, "version": "2.1.0", "runs": [run]}, indent=2)


__all__ = ["as_github", "as_json", "as_sarif"]
