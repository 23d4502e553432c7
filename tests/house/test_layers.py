"""Imports go one way, and libraries are imported where they belong. The second half shows that these rules can fail."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = {
    "lazygraph": "lazygraph",
    "lazygraph.cache": "cache",
    "lazygraph.export": "export",
    "lazygraph.models": "models",
}

# The layers, lowest first. A file of lazygraph/ that is named nowhere is of the lowest: it may see that one only.
LAYERS = {
    "ground": (),  # errors, dtypes, sizes, places, arrays, scopes
    "tensor": ("lazygraph.tensor",),
    "ops": ("lazygraph.ops", "lazygraph"),  # with the package's face, which hands the ops on
    "nn": (
        "lazygraph.nn",
        "lazygraph.attending",
        "lazygraph.latent",
        "lazygraph.latent_batch",
        "lazygraph.rebuild",
        "lazygraph.loaded",
        "lazygraph.inlining",
        "lazygraph.patterns",
        "lazygraph.narrowing",
    ),
    "cache": ("lazygraph.cache",),
    "models": ("lazygraph.models",),
    "export": ("lazygraph.export",),
    "evaluate": ("lazygraph.evaluate", "lazygraph.testing"),
    "command line": (
        "lazygraph.cli",
        "lazygraph.check_formats",
        "lazygraph.command_check",
        "lazygraph.command_diff",
        "lazygraph.command_bench",
        "lazygraph.command_doctor",
        "lazygraph.command_export",
        "lazygraph.command_run",
        "lazygraph.command_show",
        "lazygraph.picture",
        "lazygraph.speed",
        "lazygraph.conversion",
        "lazygraph.__main__",
    ),
}
LANGUAGE = ("ground", "tensor", "ops", "nn")
SEES = {
    "ground": ("ground",),
    "tensor": LANGUAGE[:2],
    "ops": LANGUAGE[:3],
    "nn": LANGUAGE,
    "cache": (*LANGUAGE, "cache"),
    "models": (*LANGUAGE, "cache", "models"),
    "export": (*LANGUAGE, "export"),
    "evaluate": (*LANGUAGE, "export", "evaluate"),
    "command line": tuple(LAYERS),
}

# Who may import what is not the standard library, numpy or lazygraph. The reader of onnx's schemas is several files.
SCHEMA_READER = tuple(
    f"lazygraph.ops.{name}" for name in ("schema", "signature", "attributes", "inference", "contrib", "deduce", "stub")
)
LIBRARIES: dict[str, tuple[str, ...]] = {
    "onnx": (*SCHEMA_READER, "lazygraph.export"),
    "onnxruntime": ("lazygraph.export",),
    "google": ("lazygraph.export",),  # protobuf, on which onnx stands
    "ml_dtypes": ("lazygraph.dtypes", "lazygraph.export", "lazygraph.testing"),
    "pytest": ("lazygraph.testing",),
    "hypothesis": ("lazygraph.testing",),
    "safetensors": ("lazygraph.models",),
    "gguf": ("lazygraph.models",),
    "tokenizers": ("lazygraph.models",),
    "jinja2": ("lazygraph.models",),
    "rich": (
        "lazygraph.command_check",
        "lazygraph.command_diff",
        "lazygraph.command_export",
        "lazygraph.command_run",
        "lazygraph.command_show",
    ),
    "onnxscript": ("lazygraph.export", "lazygraph.ops"),
    "onnx_ir": ("lazygraph.export", "lazygraph.ops"),
}


# A plugin is loaded by the library that it belongs to.
AT_ONCE = {("pytest", "lazygraph.testing.plugin")}
DYNAMIC = ("importlib.import_module", "import_module", "__import__")


@dataclass(frozen=True)
class Import:
    """One module that a file imports."""

    module: str
    line: int
    at_once: bool  # when the file is imported, not on first use


def modules() -> dict[str, Path]:
    """Return every module of the package and its file."""
    found = {}
    for package, folder in PACKAGES.items():
        for file in sorted((ROOT / folder).rglob("*.py")):
            parts = file.relative_to(ROOT / folder).with_suffix("").parts
            if parts[0] not in ("cache", "export", "models") or package != "lazygraph":
                found[".".join([package, *(part for part in parts if part != "__init__")])] = file
    return found


def imports(source: str, module: str, known: frozenset[str], is_package: bool = False) -> Iterator[Import]:
    """Yield what a file imports, other than for type checkers."""

    def walk(node: ast.AST, at_once: bool) -> Iterator[Import]:
        if isinstance(node, ast.If) and ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING"):
            for statement in node.orelse:
                yield from walk(statement, at_once)
            return
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(alias.name, node.lineno, at_once)
        elif isinstance(node, ast.ImportFrom):
            parts = module.split(".") if is_package else module.split(".")[:-1]
            near = parts[: len(parts) - node.level + 1] if node.level else []
            base = ".".join([*near, *([node.module] if node.module else [])])
            for alias in node.names:
                inner = f"{base}.{alias.name}"
                yield Import(inner if inner in known else base, node.lineno, at_once)
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in DYNAMIC and node.args:
            named = node.args[0]
            if isinstance(named, ast.Constant) and isinstance(named.value, str):
                yield Import(named.value, node.lineno, at_once)
        later = isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))
        for child in ast.iter_child_nodes(node):
            yield from walk(child, at_once and not later)

    yield from walk(ast.parse(source), True)


def layer_of(module: str) -> str:
    """Return the layer of one of our modules: that of the longest name that covers it."""
    covering = [(name, layer) for layer, names in LAYERS.items() for name in names if covers(name, module)]
    return max(covering, key=lambda pair: len(pair[0]))[1] if covering else "ground"


def covers(name: str, module: str) -> bool:
    """Return whether a module is of this name, or inside the package of this name (the face covers itself only)."""
    return module == name or (name != "lazygraph" and module.startswith(name + "."))


def faults(source: str, module: str, known: frozenset[str], is_package: bool = False) -> list[str]:
    """Return how a file breaks the rules; one line each."""
    found = []
    layer = layer_of(module)
    for entry in imports(source, module, known, is_package):
        root = entry.module.split(".")[0]
        if module == "lazygraph" and root == "lazygraph" and not entry.at_once:
            continue  # the face hands anything on when it is asked
        if root == "lazygraph":
            if layer_of(entry.module) not in SEES[layer]:
                found.append(f"{module}:{entry.line}: {layer} imports {entry.module} of {layer_of(entry.module)}")
        elif root in ("cache", "export", "models"):
            found.append(f"{module}:{entry.line}: bare import of {entry.module}")
        elif root != "numpy" and root not in sys.stdlib_module_names:
            if not any(covers(name, module) for name in LIBRARIES.get(root, ())):
                found.append(f"{module}:{entry.line}: {root} does not belong here")
            elif entry.at_once and (root, module) not in AT_ONCE:
                found.append(f"{module}:{entry.line}: {root} is imported at once, not on first use")
    return found


def test_imports_go_one_way_and_libraries_stay_where_they_belong() -> None:
    known = modules()
    names = frozenset(known)
    broken = [
        fault
        for module, file in known.items()
        for fault in faults(file.read_text(encoding="utf-8"), module, names, file.name == "__init__.py")
    ]
    assert broken == []


def test_the_whole_package_is_looked_at() -> None:
    known = modules()
    for module in ("lazygraph", "lazygraph.ops.schema", "lazygraph.cache.latent", "lazygraph.export.decoder"):
        assert module in known
    seen = {
        entry.module for module, file in known.items() for entry in imports(file.read_text(), module, frozenset(known))
    }
    assert {"numpy", "onnx", "onnxruntime", "lazygraph.cache", "lazygraph.ops"} <= seen


KNOWN = frozenset(
    ["lazygraph", "lazygraph.tensor", "lazygraph.ops", "lazygraph.nn", "lazygraph.cache", "lazygraph.models.llama"]
)


@pytest.mark.parametrize(
    ("module", "source", "complaint"),
    [
        ("lazygraph.errors", "import lazygraph.tensor", "ground imports lazygraph.tensor"),
        ("lazygraph.anything_new", "from lazygraph import ops", "ground imports lazygraph.ops"),
        (
            "lazygraph.tensor",
            "def f():\n    from lazygraph import ops",
            "lazygraph.tensor:2: tensor imports lazygraph.ops",
        ),
        ("lazygraph.tensor", "import lazygraph as lg", "tensor imports lazygraph of ops"),
        ("lazygraph.ops.core", "from .. import nn", "ops imports lazygraph.nn"),
        ("lazygraph.nn", "from lazygraph.cache import KvCache", "nn imports lazygraph.cache"),
        ("lazygraph.cache.kv", "from lazygraph.models import llama", "cache imports lazygraph.models.llama"),
        ("lazygraph.cache.kv", "import importlib\nimportlib.import_module('lazygraph.export')", "cache imports"),
        ("lazygraph.models.llama", "from lazygraph.export import save", "models imports lazygraph.export"),
        ("lazygraph.models.llama", "class A:\n    from lazygraph import evaluate", "models imports lazygraph"),
        ("lazygraph.export.saving", "from lazygraph import cache", "export imports lazygraph.cache"),
        ("lazygraph.export.saving", "from lazygraph.evaluate import realize", "export imports lazygraph.evaluate"),
        ("lazygraph.evaluate", "from lazygraph.models.llama import build", "evaluate imports lazygraph.models"),
        ("lazygraph.models.llama", "def f():\n    import onnx.helper", "onnx does not belong here"),
        ("lazygraph.evaluate", "def f():\n    import onnxruntime as ort", "onnxruntime does not belong here"),
        ("lazygraph.ops.core", "def f():\n    from onnx import defs", "onnx does not belong here"),
        ("lazygraph.export.lower", "import onnx", "onnx is imported at once"),
        ("lazygraph.export.lower", "import torch", "torch does not belong here"),
        ("lazygraph", "from lazygraph import nn", "ops imports lazygraph.nn"),
        ("lazygraph.conversion", "import cache", "bare import of cache"),
        ("lazygraph.conversion", "from export.saving import save", "bare import of export.saving"),
        (
            "lazygraph.tensor",
            "if TYPE_CHECKING:\n    pass\nelse:\n    import lazygraph.ops",
            "tensor imports lazygraph.ops",
        ),
    ],
)
def test_a_bad_module_is_found(module: str, source: str, complaint: str) -> None:
    known = KNOWN | {"lazygraph.evaluate"} if "evaluate" in source else KNOWN
    found = faults(source, module, known)
    assert len(found) == 1
    assert complaint in found[0]


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("lazygraph.tensor", "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from lazygraph import ops"),
        ("lazygraph.models.llama", "from lazygraph.cache import KvCache\nimport numpy as np, os.path"),
        ("lazygraph.export.lower", "def f():\n    import onnx"),
        ("lazygraph", "def __getattr__(name):\n    from lazygraph import nn"),
        ("lazygraph.conversion", "from lazygraph.models import llama\nfrom lazygraph.export import save"),
        ("lazygraph.ops.core", "from . import core\nfrom ..tensor import Tensor"),
    ],
)
def test_a_good_module_passes(module: str, source: str) -> None:
    assert faults(source, module, KNOWN) == []
