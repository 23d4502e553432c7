"""What changed between two models: nodes matched by what they compute, shapes, weights, texts."""

from __future__ import annotations

from lazygraph.export.comparing.changes import Change, compare_files, compare_models

__all__ = ["Change", "compare_files", "compare_models"]
