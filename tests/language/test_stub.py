"""The stub that gives editors and type checkers the signature of every ``lg.op.Name``."""

from __future__ import annotations

import ast
import inspect
import subprocess
import sys
from pathlib import Path

import onnx
import pytest

import lazygraph as lg
from lazygraph.ops import stub
from lazygraph.ops.schema import DOMAINS, op_names

ROOT = Path(__file__).parents[2]
TEXT = stub.FILE.read_text(encoding="utf-8")
CLASSES = {node.name: node for node in ast.parse(TEXT).body if isinstance(node, ast.ClassDef)}


@pytest.mark.skipif(f"with onnx {onnx.__version__}." not in TEXT, reason="the stub is that of another onnx")
def test_the_stub_is_what_the_installed_schemas_say() -> None:
    assert stub.written(onnx.__version__) == TEXT


@pytest.mark.parametrize("place", ["", *DOMAINS])
def test_every_operator_has_its_signature(place: str) -> None:
    methods = {
        node.name: node for node in CLASSES[place.capitalize() or "Catalogue"].body if isinstance(node, ast.FunctionDef)
    }
    assert set(methods) == set(op_names(DOMAINS.get(place, "")))
    where = getattr(lg.op, place) if place else lg.op
    for name, method in methods.items():
        ours = inspect.signature(getattr(where, name)).parameters
        said = [*method.args.posonlyargs[1:], *([method.args.vararg] if method.args.vararg else [])]
        positional = [p.name for p in ours.values() if p.kind is not inspect.Parameter.KEYWORD_ONLY]
        assert [argument.arg.rstrip("_") for argument in said if argument.arg != "self"] == positional, name
        keywords = {p.name for p in ours.values() if p.kind is inspect.Parameter.KEYWORD_ONLY}
        assert {argument.arg for argument in method.args.kwonlyargs} - {"anchor"} == keywords, name


@pytest.mark.slow
def test_a_type_checker_reads_it(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "import lazygraph as lg\n"
        "x = lg.input('x', 'float32', [3])\n"
        "reveal_type(lg.op.Add(x, 1.0))\n"
        "reveal_type(lg.op.TopK(x, 2))\n"
        "lg.op.Sofmax(x)\n"
        "lg.op.Softmax(x, axis='last')\n"
        "lg.op.Add(x)\n"
        "lg.op.microsoft.FusedMatMul(x, x, alpa=1.0)\n",
        encoding="utf-8",
    )
    done = subprocess.run([sys.executable, "-m", "mypy", str(program)], cwd=ROOT, capture_output=True, text=True)
    told = [
        line.split(":", 1)[1].replace("builtins.tuple", "tuple")
        for line in done.stdout.splitlines()
        if "program.py" in line and 'note: "' not in line
    ]
    assert told == [
        '3: note: Revealed type is "lazygraph.tensor.Tensor"',
        '4: note: Revealed type is "tuple[lazygraph.tensor.Tensor, ...]"',
        '5: error: "Catalogue" has no attribute "Sofmax"; maybe "Softmax"?  [attr-defined]',
        '6: error: Argument "axis" to "Softmax" of "Catalogue" has incompatible type "str"; expected "int"  [arg-type]',
        '7: error: Too few arguments for "Add" of "Catalogue"  [call-arg]',
        '8: error: Unexpected keyword argument "alpa" for "FusedMatMul" of "Microsoft"; did you mean "alpha"?'
        "  [call-arg]",
    ]
