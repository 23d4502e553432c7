"""Reports of ``lazygraph check`` in the forms that other programs read."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from lazygraph.version import VERSION

if TYPE_CHECKING:
    from lazygraph.export.checking import Report

Unread = Sequence[tuple[str, str]]


def as_json(reports: Sequence[Report], unread: Unread) -> str:
    """Return one JSON object: a list of files with their findings, and the files that could not be read."""
    files = [
        {
            "file": report.source,
            "nodes": report.nodes,
            "findings": [
                {"rule": f.rule, "severity": f.severity, "node": f.node, "message": f.message} for f in report.findings
            ],
        }
        for report in reports
    ]
    return json.dumps({"files": files, "unreadable": [{"file": f, "message": m} for f, m in unread]}, indent=2)


def as_github(reports: Sequence[Report], unread: Unread) -> str:
    """Return workflow commands, which GitHub shows beside the file."""
    kinds = {"error": "error", "warning": "warning", "note": "notice"}
    lines = [
        f"::{kinds[f.severity]} file={_property(_relative(report.source))},title={_property(f.rule)}::"
        + _data(f"{f.node}: {f.message}" if f.node else f.message)
        for report in reports
        for f in report.findings
    ]
    lines += [f"::error file={_property(_relative(file))},title=unreadable::{_data(why)}" for file, why in unread]
    return "\n".join(lines)


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
        place = {"physicalLocation": {"artifactLocation": {"uri": quote(_relative(report.source))}}}
        for finding in report.findings:
            location: dict[str, Any] = dict(place)
            if finding.node:
                location["logicalLocations"] = [{"name": finding.node, "kind": "element"}]
            results.append(
                {
                    "ruleId": finding.rule,
                    "ruleIndex": names.index(finding.rule),
                    "level": finding.severity,
                    "message": {"text": f"{finding.node}: {finding.message}" if finding.node else finding.message},
                    "locations": [location],
                }
            )
    rules = [
        {"id": name, "shortDescription": {"text": rule.text}, "defaultConfiguration": {"level": rule.severity}}
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
