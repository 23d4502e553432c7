"""How the package is laid out: what pyproject.toml lists, the links, the face, and the length of files."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import lazygraph
from lazygraph.version import VERSION

ROOT = Path(__file__).parents[2]
FOLDERS = ("cache", "export", "models")
LONGEST = 400  # lines; a generated table may have more


def _project() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def test_packages_in_pyproject_are_the_folders_with_modules() -> None:
    tools = _project()["tool"]["setuptools"]
    listed: list[str] = tools["packages"]
    places: dict[str, str] = tools["package-dir"]

    found = {"lazygraph"}
    for inner in (ROOT / "lazygraph").rglob("__init__.py"):
        if inner.relative_to(ROOT / "lazygraph").parts[0] not in FOLDERS:
            found.add(".".join(inner.parent.relative_to(ROOT).parts))
    for folder in FOLDERS:
        for inner in (ROOT / folder).rglob("__init__.py"):
            found.add(".".join(["lazygraph", *inner.parent.relative_to(ROOT).parts]))

    assert sorted(listed) == sorted(found)
    assert places == {"lazygraph": "lazygraph"} | {f"lazygraph.{folder}": folder for folder in FOLDERS}
    for top in ("lazygraph", *FOLDERS):
        for file in (ROOT / top).rglob("*.py"):
            assert (file.parent / "__init__.py").is_file(), f"{file} lies in no package"


def test_links_are_relative_and_point_at_the_folders() -> None:
    for folder in FOLDERS:
        link = ROOT / "lazygraph" / folder
        assert link.is_symlink()
        assert os.readlink(link) == f"../{folder}"
        assert link.resolve() == (ROOT / folder).resolve()
        assert not (ROOT / folder).is_symlink()
    links = [entry.name for entry in (ROOT / "lazygraph").iterdir() if entry.is_symlink()]
    assert sorted(links) == sorted(FOLDERS)


def test_no_public_function_has_the_name_of_a_subpackage() -> None:
    for name in (*FOLDERS, "ops"):
        there = vars(lazygraph).get(name)
        assert there is None or there.__name__ == f"lazygraph.{name}", f"lazygraph.{name} hides the subpackage"
    assert not set(FOLDERS) & set(getattr(lazygraph.ops, "__all__", dir(lazygraph.ops)))


def test_no_module_hides_a_public_name() -> None:
    # Importing a submodule binds it in the package, over whatever had that name: ``lg.convert`` became a module so.
    program = (
        "import importlib, pkgutil, sys, types, lazygraph as lg\n"
        "found = pkgutil.walk_packages(lg.__path__, 'lazygraph.')\n"
        "names = [module.name for module in found if not module.name.endswith('__main__')]\n"
        "for name in [n for n in sys.modules if n.startswith('lazygraph')]: del sys.modules[name]\n"
        "for name in names: importlib.import_module(name)\n"
        "import lazygraph as lg\n"
        "public = set(lg._LATER) | set(lg.ops.__all__)\n"
        "print(*sorted(n for n in public if isinstance(getattr(lg, n), types.ModuleType) and n != 'nn'))\n"
    )
    assert _fresh(program).split() == []


def _fresh(program: str) -> str:
    """Return what a program prints in a new process, started in the root of the repository."""
    return subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True).stdout


def test_types_are_shipped() -> None:
    assert (ROOT / "lazygraph" / "py.typed").is_file()
    assert "py.typed" in _project()["tool"]["setuptools"]["package-data"]["*"]


def test_the_version_is_written_in_one_place() -> None:
    project = _project()
    assert "version" not in project["project"]
    assert project["tool"]["setuptools"]["dynamic"]["version"] == {"attr": "lazygraph.version.VERSION"}
    assert lazygraph.__version__ == VERSION
    assert re.fullmatch(r"\d+\.\d+\.\d+([abrc.dev]+\d+)?", VERSION)
    for top in ("lazygraph", *FOLDERS):
        for file in (ROOT / top).rglob("*.py"):
            if file.name != "version.py":
                assert f'"{VERSION}"' not in file.read_text(encoding="utf-8"), f"{file} repeats the version"


def test_a_folders_init_only_hands_names_on() -> None:
    faces = [ROOT / folder / "__init__.py" for folder in FOLDERS]
    faces += [file for file in (ROOT / "lazygraph").rglob("__init__.py") if FOLDERS[0] not in file.parts]
    for file in faces:
        assert _more_than_names(file.read_text(encoding="utf-8")) == [], file


def test_an_init_that_does_more_is_found() -> None:
    assert _more_than_names('"""Doc."""\nfrom a import b\n__all__ = ["b"]\n') == []
    assert _more_than_names("class A:\n    pass\n") == ["class A:"]
    assert _more_than_names("def build():\n    return 1\n") == ["def build():"]
    assert _more_than_names("for x in y:\n    pass\n") == ["for x in y:"]


def _more_than_names(source: str) -> list[str]:
    """Return the first lines of the statements that do more than import, list, or hand on when asked."""
    allowed_functions = ("__getattr__", "__dir__")
    return [
        ast.unparse(node).splitlines()[0]
        for node in ast.parse(source).body
        if not isinstance(node, (ast.Import, ast.ImportFrom, ast.Assign, ast.AugAssign, ast.AnnAssign, ast.If))
        and not (isinstance(node, ast.Expr) and isinstance(node.value, (ast.Constant, ast.Call)))
        and not (isinstance(node, ast.FunctionDef) and node.name in allowed_functions)
        and not isinstance(node, ast.Delete)
    ]


def test_no_file_is_too_long() -> None:
    tops = ("lazygraph", *FOLDERS, "benchmarks", "examples")
    files = [file for top in tops for file in (ROOT / top).rglob("*.py") if not file.parent.is_symlink()]
    long = {}
    for file in files:
        lines = file.read_text(encoding="utf-8").splitlines()
        generated = any("Generated: " in line for line in lines[:3])
        hands_on = file.name == "__init__.py"  # one line per name: a list, not code (another test holds that)
        if len(lines) > LONGEST and not generated and not hands_on:
            long[str(file.relative_to(ROOT))] = len(lines)
    assert files
    assert long == {}, f"longer than {LONGEST} lines"


def test_nothing_imports_a_folder_by_its_bare_name() -> None:
    bare = re.compile(rf"^\s*(?:from|import)\s+(?:{'|'.join(FOLDERS)})\b", re.MULTILINE)
    assert bare.search("import cache\n")
    assert bare.search("    from export.saving import save\n")
    assert not bare.search("from lazygraph import cache\n")
    for top in ("lazygraph", *FOLDERS, "tests", "examples", "benchmarks"):
        for file in (ROOT / top).rglob("*.py"):
            if file != Path(__file__):
                assert not bare.search(file.read_text(encoding="utf-8")), file


def test_links_bring_no_module_in_twice() -> None:
    # A module reached both as lazygraph.cache.x and as cache.x would have two sets of classes.
    import lazygraph.cache
    import lazygraph.export
    import lazygraph.models  # noqa: F401

    assert not set(FOLDERS) & set(sys.modules)
