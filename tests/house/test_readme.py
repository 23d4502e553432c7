"""Every block of Python in the README is a program that runs, and prints what it says it prints."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)


def run(program: str, folder: Path) -> str:
    """Run a program where ``tests`` is the clone's; return what it printed."""
    if not (folder / "tests").exists():
        (folder / "tests").symlink_to(ROOT / "tests", target_is_directory=True)
    (folder / "train.py").write_text(program, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "train.py"],
        cwd=folder,
        capture_output=True,
        text=True,
        env={"PYTHONPATH": str(ROOT), "PATH": ""},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One folder for all blocks: a later one may use what an earlier one exported."""
    return tmp_path_factory.mktemp("readme")


def test_every_block_runs_and_prints_what_its_comments_say(folder: Path) -> None:
    assert len(BLOCKS) >= 5
    for block in BLOCKS:
        printed = run(block, folder).splitlines()
        promised = re.findall(r"^\s*print\(.*\)  # (.*)$", block, flags=re.MULTILINE)
        for line, promise in zip(printed, promised, strict=False):
            assert promise.split(": ")[0] == line, (promise, line)


def test_the_error_shown_is_the_error_raised(folder: Path) -> None:
    block = next(block for block in BLOCKS if "except lg.ShapeError" in block)
    shown = README.split(block, 1)[1].split("```\n", 2)[2].split("```")[0]
    assert run(block, folder).strip() == shown.strip()
