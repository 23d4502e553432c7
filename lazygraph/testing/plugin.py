"""lazygraph's plugin of pytest: snapshots of graphs, and tests that run for every opset and provider.

It is loaded wherever lazygraph is installed, so it imports nothing but pytest; the rest loads in the tests that use it.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from lazygraph.testing.snapshots import Snapshots

MARKER = "lazygraph_matrix"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option and the settings."""
    group = parser.getgroup("lazygraph")
    group.addoption("--lazygraph-update", action="store_true", help="write the snapshots of graphs anew")
    parser.addini("lazygraph_opsets", "opsets that tests with the fixture lazygraph_opset run for", "args", None)
    parser.addini("lazygraph_providers", "providers that lazygraph_provider runs for", "args", ["cpu"])


def pytest_configure(config: pytest.Config) -> None:
    """Describe the marker."""
    config.addinivalue_line(
        "markers",
        f"{MARKER}(opsets=[...], providers=[...]): what the fixtures lazygraph_opset and lazygraph_provider run for",
    )


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Make one test per opset and provider of those that ask for them."""
    marker = metafunc.definition.get_closest_marker(MARKER)
    asked: dict[str, Any] = {} if marker is None else dict(marker.kwargs)
    strange = sorted(asked.keys() - {"opsets", "providers"})
    if strange or (marker is not None and marker.args):
        raise pytest.UsageError(f"{MARKER} takes opsets= and providers=, not {strange or 'values by position'}")
    if "lazygraph_opset" in metafunc.fixturenames:
        opsets = asked.get("opsets") or [int(text) for text in metafunc.config.getini("lazygraph_opsets") or []]
        metafunc.parametrize("lazygraph_opset", opsets or _all_opsets(), ids=lambda opset: f"opset{opset}")
    if "lazygraph_provider" in metafunc.fixturenames:
        providers = asked.get("providers") or metafunc.config.getini("lazygraph_providers")
        metafunc.parametrize("lazygraph_provider", providers, indirect=True)


def _all_opsets() -> list[int]:
    from lazygraph.export.versions import LOWEST, newest_opset

    return list(range(LOWEST, newest_opset() + 1))


@pytest.fixture
def lazygraph_provider(request: pytest.FixtureRequest) -> str:
    """``"cpu"`` or ``"cuda"``; the test is skipped where the installed onnxruntime lacks it."""
    from lazygraph.errors import UnsupportedError
    from lazygraph.export.session import require_provider

    provider: str = request.param
    try:
        require_provider(provider)
    except UnsupportedError as error:
        pytest.skip(error.what)
    return provider


@pytest.fixture
def graph_snapshot(request: pytest.FixtureRequest) -> Snapshots:
    """Compare graphs with what they were: ``graph_snapshot({"y": y})``; ``--lazygraph-update`` writes them anew.

    The text of ``lg.to_text`` lies in ``__snapshots__`` beside the test, a file per test.
    """
    from lazygraph.testing.snapshots import Snapshots

    file = Path(request.path)
    name = re.sub(r"[^\w.\[\]-]", "_", request.node.name)
    folder = file.parent / "__snapshots__" / file.stem
    return Snapshots(folder, name, update=bool(request.config.getoption("--lazygraph-update")))
