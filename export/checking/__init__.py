"""What is wrong with a model file: findings, each with a rule, a severity and the node that it is about."""

from __future__ import annotations

from lazygraph.export.checking.finding import RULES, Finding, Rule, Severity
from lazygraph.export.checking.report import Report, check_file, check_folder, check_model

__all__ = ["RULES", "Finding", "Report", "Rule", "Severity", "check_file", "check_folder", "check_model"]
