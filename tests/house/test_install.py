"""Wheel, sdist and editable install: built from a copy of the tree, installed elsewhere, and used there."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from tests.support.checkpoints import random_tensors, small_config, write_folder
from tests.support.small_tokenizer import write_tokenizer

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[2]
FOLDERS = ("cache", "export", "models")
SKIPPED = shutil.ignore_patterns(
    ".git", ".venv", "__pycache__", ".*_cache", ".hypothesis", "build", "dist", "*.egg-info", "out", "goldens"
)


def _run(*command: object, cwd: Path) -> str:
    """Return what a command prints, in an environment that does not know this tree."""
    hidden = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "PYTHONUNBUFFERED")
    kept = {name: value for name, value in os.environ.items() if name not in hidden}
    done = subprocess.run([*map(str, command)], cwd=cwd, env=kept, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of what git would keep."""
    place = tmp_path_factory.mktemp("tree") / "lazygraph"
    shutil.copytree(ROOT, place, symlinks=True, ignore=SKIPPED)
    return place


@pytest.fixture(scope="module")
def built(tree: Path) -> dict[str, Path]:
    """The sdist, the wheel made from it, and the wheel made from the tree."""
    _run(sys.executable, "-m", "build", "--outdir", "dist", ".", cwd=tree)
    _run(sys.executable, "-m", "build", "--wheel", "--outdir", "direct", ".", cwd=tree)
    (sdist,), (wheel,), (direct,) = (
        (tree / "dist").glob("*.gz"),
        (tree / "dist").glob("*.whl"),
        (tree / "direct").glob("*.whl"),
    )
    return {"sdist": sdist, "wheel": wheel, "direct": direct}


@pytest.fixture(scope="module")
def venv(built: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with nothing but the wheel and what it asks for."""
    place = tmp_path_factory.mktemp("venv") / "venv"
    _run(sys.executable, "-m", "venv", place, cwd=place.parent)
    python = place / "bin" / "python"
    _run(python, "-m", "pip", "install", "--quiet", f"{built['wheel']}[cpu,models]", cwd=place.parent)
    return place


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    config = small_config(vocab_size=160)
    folder = write_folder(tmp_path_factory.mktemp("checkpoint") / "small", config, random_tensors(config))
    write_tokenizer(folder)
    return folder


def _modules(archive: Path) -> list[str]:
    """Return an archive's modules as they are imported, each as often as it is there."""
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as wheel:
            return sorted(name for name in wheel.namelist() if name.endswith((".py", ".pyi", ".typed")))
    with tarfile.open(archive) as sdist:
        names = [name.split("/", 1)[1] for name in sdist.getnames() if name.endswith((".py", ".pyi", ".typed"))]
    return sorted(f"lazygraph/{name}" if name.startswith(FOLDERS) else name for name in names)


def _expected() -> list[str]:
    files = [file.relative_to(ROOT) for file in (ROOT / "lazygraph").rglob("*") if not file.is_dir()]
    found = [str(file) for file in files if not any((ROOT / part).is_symlink() for part in file.parents)]
    for folder in FOLDERS:
        found += [f"lazygraph/{file.relative_to(ROOT)}" for file in (ROOT / folder).rglob("*") if file.is_file()]
    return sorted(name for name in found if name.endswith((".py", ".pyi", ".typed")))


def test_wheel_and_sdist_hold_every_module_once(built: dict[str, Path]) -> None:
    expected = _expected()
    assert "lazygraph/cache/latent.py" in expected
    assert len(set(expected)) == len(expected)
    for name, archive in built.items():
        modules = [module for module in _modules(archive) if not module.startswith("tests/")]
        assert modules == expected, name
    with zipfile.ZipFile(built["wheel"]) as wheel:
        tops = {name.split("/")[0] for name in wheel.namelist()}
        metadata = next(wheel.read(name).decode() for name in wheel.namelist() if name.endswith("METADATA"))
    assert {top for top in tops if not top.endswith(".dist-info")} == {"lazygraph"}
    assert "License-Expression: Apache-2.0" in metadata


def _works(venv: Path, where: Path, checkpoint: Path) -> None:
    """Check that the installed package imports, exports and runs from another folder."""
    python = venv / "bin" / "python"
    said = _run(
        python, "-c", "import lazygraph as lg; print(lg.__version__, lg.float32, lg.LatentCache.__module__)", cwd=where
    )
    assert said.split()[1:] == ["float32", "lazygraph.cache.latent"]
    for folder in FOLDERS:
        program = f"import importlib.util as u; print(u.find_spec({folder!r}))"
        assert _run(python, "-c", program, cwd=where) == "None\n"

    script = venv / "bin" / "lazygraph"
    assert "in place  every slot" in _run(script, "export", checkpoint, "-o", "out", cwd=where)
    first = _run(script, "run", "out", "Hello", "--max-new-tokens", 8, cwd=where)
    assert first.endswith("\n")
    assert first == _run(python, "-m", "lazygraph", "run", "out", "Hello", "--max-new-tokens", 8, cwd=where)
    shutil.rmtree(where / "out")


def test_the_wheel_works_outside_the_tree(venv: Path, checkpoint: Path, tmp_path: Path) -> None:
    program = "import lazygraph, lazygraph.cache; print(lazygraph.__file__, lazygraph.cache.__file__)"
    for file in _run(venv / "bin" / "python", "-c", program, cwd=tmp_path).split():
        assert Path(file).is_relative_to(venv)
    _works(venv, tmp_path, checkpoint)


def _python(version: str) -> Path | None:
    """Return another Python of that version that really runs here, from the PATH or from where pyenv keeps them."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    places = [shutil.which(f"python{version}"), *sorted(pyenv.glob(f"{version}.*/bin/python"))]
    program = "import ensurepip, sys, venv; print('%d.%d' % sys.version_info[:2])"
    for place in places:
        if place is None:
            continue
        done = subprocess.run([str(place), "-c", program], capture_output=True, text=True, check=False)
        if done.stdout.strip() == version:
            return Path(place)
    return None


@pytest.mark.parametrize("version", ["3.11", "3.12", "3.13"])
def test_the_wheel_installs_into_every_python_that_can_be_had(
    version: str, built: dict[str, Path], checkpoint: Path, tmp_path: Path
) -> None:
    if version == f"{sys.version_info[0]}.{sys.version_info[1]}":
        pytest.skip("the other tests run on it")
    python = _python(version)
    if python is None:
        pytest.skip(f"there is no Python {version} here")
    _run(python, "-m", "venv", tmp_path / "venv", cwd=tmp_path)
    pip = [tmp_path / "venv" / "bin" / "python", "-m", "pip", "install", "--quiet"]
    _run(*pip, f"{built['wheel']}[cpu,models]", cwd=tmp_path)
    _works(tmp_path / "venv", tmp_path, checkpoint)


def test_the_wheel_answers_with_a_real_model(venv: Path, smollm2_path: Path, tmp_path: Path) -> None:
    script = venv / "bin" / "lazygraph"
    _run(script, "export", smollm2_path, "-o", "out", "--max-seq-len", 256, cwd=tmp_path)
    assert (
        _run(script, "run", "out", "What is the capital of France?", cwd=tmp_path)
        == "The capital of France is Paris.\n"
    )


def test_an_editable_install_works_and_follows_the_tree(
    venv: Path, tree: Path, checkpoint: Path, tmp_path: Path
) -> None:
    python = venv / "bin" / "python"
    _run(python, "-m", "pip", "install", "--quiet", "--no-deps", "-e", tree, cwd=tmp_path)
    program = "import lazygraph, lazygraph.cache.latent as c; print(lazygraph.__file__, c.__file__)"
    for file in _run(python, "-c", program, cwd=tmp_path).split():
        assert Path(file).resolve().is_relative_to(tree.resolve())
    (tree / "cache" / "added_later.py").write_text("X = 1\n")
    try:
        assert _run(python, "-c", "import lazygraph.cache.added_later as a; print(a.X)", cwd=tmp_path) == "1\n"
    finally:
        (tree / "cache" / "added_later.py").unlink()
    _works(venv, tmp_path, checkpoint)
