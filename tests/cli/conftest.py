"""Exports to run, and the command line as a process."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import pytest

import lazygraph as lg
from tests.support.small_tokenizer import write_tokenizer

ROOT = Path(__file__).parents[2]
Done: TypeAlias = "subprocess.CompletedProcess[str]"
Run: TypeAlias = Callable[..., Done]


@pytest.fixture(scope="session")
def environment() -> dict[str, str]:
    """The environment of a child that finds this copy of the package."""
    where = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    return {**kept, "PYTHONPATH": where, "COLUMNS": "120"}


@pytest.fixture
def lazygraph(environment: dict[str, str], tmp_path: Path) -> Run:
    """Run ``lazygraph ...`` as a process, in an empty folder."""

    def run(*arguments: object, stdin: str | bytes = "", **variables: str) -> Done:
        given = stdin.encode() if isinstance(stdin, str) else stdin
        done = subprocess.run(
            [sys.executable, "-m", "lazygraph", *map(str, arguments)],
            input=given,
            capture_output=True,
            env=environment | variables,
            cwd=tmp_path,
            timeout=120,
        )
        return subprocess.CompletedProcess(done.args, done.returncode, done.stdout.decode(), done.stderr.decode())

    return run


@pytest.fixture(scope="session")
def talker(tmp_path_factory: pytest.TempPathFactory, goldens: Path) -> Path:
    """A checkpoint with a tokenizer and a chat template that never stops by itself."""
    folder = tmp_path_factory.mktemp("checkpoint") / "talker"
    folder.mkdir()
    config = json.loads((goldens / "llama" / "config.json").read_text())
    for key in ("eos_token_id", "bos_token_id"):
        config.pop(key)
    (folder / "config.json").write_text(json.dumps(config))
    shutil.copy(goldens / "llama" / "model.safetensors", folder)
    write_tokenizer(folder, eos=False)
    return folder


@pytest.fixture(scope="session")
def exported(tmp_path_factory: pytest.TempPathFactory, talker: Path) -> Path:
    """The talker's export, with room for 20,000 tokens."""
    folder = tmp_path_factory.mktemp("export") / "talker"
    lg.convert(talker, folder, max_seq_len=20_000)
    return folder
