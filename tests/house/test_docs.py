"""Every block of Python in the documentation is a program that runs, prints what it says, or raises what it says."""

from __future__ import annotations

import contextlib
import io
import re
import runpy
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

import lazygraph as lg
from lazygraph import errors

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
_BLOCK = re.compile(r"^```python([^\n]*)\n(.*?)^```", flags=re.DOTALL | re.MULTILINE)


@dataclass(frozen=True)
class Block:
    """A program of a page; ``raises`` names the error that ends it, ``""`` for none."""

    page: str
    number: int
    raises: str
    text: str

    def __str__(self) -> str:
        return f"{self.page}-{self.number}"


def _blocks(page: Path) -> Iterator[Block]:
    for number, found in enumerate(_BLOCK.finditer(page.read_text(encoding="utf-8"))):
        raises = re.search(r"raises (\w+)", found[1])
        yield Block(page.relative_to(DOCS).as_posix(), number, raises[1] if raises else "", found[2])


BY_PAGE = {page.relative_to(DOCS).as_posix(): list(_blocks(page)) for page in PAGES}


def _run(block: Block) -> list[str]:
    """Run a program as a user's file would run; return what it printed."""
    printed = io.StringIO()
    file = Path(f"block{block.number}.py")  # in the page's folder: onnxscript reads a function's source
    file.write_text(block.text, encoding="utf-8")
    with contextlib.redirect_stdout(printed):
        runpy.run_path(str(file), run_name="__main__")
    return printed.getvalue().splitlines()


@pytest.mark.parametrize("page", [page for page, blocks in BY_PAGE.items() if blocks])
def test_every_block_of_a_page_does_what_it_says(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One folder for the blocks of a page: a later one may use what an earlier one exported."""
    for name in ("tests", "examples"):
        (tmp_path / name).symlink_to(ROOT / name, target_is_directory=True)
    monkeypatch.chdir(tmp_path)
    for block in BY_PAGE[page]:
        if block.raises:
            with pytest.raises(getattr(errors, block.raises)) as caught:
                _run(block)
            assert type(caught.value).__name__ == block.raises or block.raises == "LazyGraphError", block
            continue
        printed = _run(block)
        promised = re.findall(r"^\s*print\(.*\)  # (.*)$", block.text, flags=re.MULTILINE)
        for line, promise in zip(printed, promised, strict=False):
            assert promise.split(": ")[0] == line, (block, promise, line)


def test_every_fence_is_one_that_the_site_renders() -> None:
    """Behind the language only a title: anything else makes text of the block, and of all that follows."""
    for page in PAGES:
        opened = re.findall(r"^```(.*)$", page.read_text(encoding="utf-8"), flags=re.MULTILINE)
        assert len(opened) % 2 == 0, page
        for fence in opened:
            assert re.fullmatch(r'(python|\{\.python\})?|python title="(raises \w+|right)"', fence), (page, fence)


def test_every_error_class_has_its_section_with_wrong_and_right_code() -> None:
    classes = {name for name in vars(errors) if name.endswith("Error")}
    sections = re.split(r"^## ", (DOCS / "errors.md").read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
    described = {section.split("\n", 1)[0]: section for section in sections}
    assert set(described) == classes
    for name, section in described.items():
        blocks = _BLOCK.findall(section)
        assert [re.search(r"raises (\w+)", info) is not None for info, _ in blocks] == [True, False], name
        assert f"raises {name}" in blocks[0][0]


def test_every_public_name_is_in_the_reference() -> None:
    listed = set()
    for page in (DOCS / "reference").glob("*.md"):
        listed |= set(re.findall(r"^::: (\S+)", page.read_text(encoding="utf-8"), flags=re.MULTILINE))
    for name in lg.__all__:
        home = getattr(getattr(lg, name), "__module__", None)
        if home is None or not home.startswith("lazygraph"):
            continue
        assert home in listed or f"{home}.{name}" in listed or name in ("nn", "op"), (name, home)
