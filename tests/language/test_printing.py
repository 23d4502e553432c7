"""A graph as text that reviews well, and as a small table for notebooks."""

from __future__ import annotations

import numpy as np
import pytest

import lazygraph as lg

TEXT = """\
graph
  input   x: float32 (seq, 64)
  weight  proj.weight: float32 (64, 8)
  # layers.0
  layers.0/matmul = MatMul(x, proj.weight): float32 (seq, 8)
  layers.0/add = Add(layers.0/matmul, 1.0): float32 (seq, 8)
  layers.0/softmax = Softmax(layers.0/add, axis=-1): float32 (seq, 8)
  # no scope
  topk = TopK(layers.0/softmax, [1]): float32 (seq, 1), int64 (seq, 1)
  topk_1 = TopK(layers.0/softmax, [2]): float32 (seq, 2), int64 (seq, 2)
  output  best = topk.1: int64 (seq, 1)
  output  two = topk_1.0: float32 (seq, 2)"""


def _program() -> dict[str, lg.Tensor]:
    x = lg.input("x", lg.float32, ["seq", 64])
    with lg.scope("layers.0"):
        w = x.const(np.ones((64, 8), np.float32), name="proj.weight")
        y = lg.softmax(x @ w + 1.0, axis=-1)
    _, best = lg.op.TopK(y, [1])
    two, _ = lg.op.TopK(y, [2])
    return {"best": best, "two": two}


def test_a_program_as_text() -> None:
    assert lg.to_text(_program()) == TEXT
    assert lg.to_text(_program()) == lg.to_text(_program())


def test_one_more_call_is_one_more_line() -> None:
    x = lg.input("x", lg.float32, [3])
    before = lg.to_text(lg.tanh(lg.exp(x))).splitlines()
    after = lg.to_text(lg.tanh(lg.exp(lg.neg(x)))).splitlines()
    assert [line for line in after if line not in before] == [
        "  neg = Neg(x): float32 (3,)",
        "  exp = Exp(neg): float32 (3,)",
    ]


def test_printing_a_graph_shows_what_is_still_held(capsys: pytest.CaptureFixture[str]) -> None:
    x = lg.input("x", lg.float32, ["n"], opset=18)
    y = lg.exp(x)
    z = lg.tanh(y) * 2.0
    lg.sin(y)  # forgotten at once
    print(x.graph)
    assert capsys.readouterr().out.splitlines() == [
        "graph (opset 18)",
        "  input   x: float32 (n,)",
        "  exp = Exp(x): float32 (n,)",
        "  tanh = Tanh(exp): float32 (n,)",
        "  mul = Mul(tanh, 2.0): float32 (n,)",
        "  output  result = mul: float32 (n,)",
    ]
    del y, z
    assert str(x.graph) == "graph (opset 18)\n  input   x: float32 (n,)"


def test_constants_attributes_left_out_operands_and_branches_are_written() -> None:
    x = lg.input("x", lg.float32, [2, 3])
    y = lg.op.Clip(x, None, 6.0)
    y = lg.gather(y, np.array([1, 0], np.int32), axis=1)
    y = y + np.zeros((2, 2), np.float32) + np.zeros((9, 2, 2), np.float32)
    p = lg.input("p", lg.bool_, [], anchor=x)
    y = lg.cond(p, lambda: y * 2.0, lambda: y)
    text = lg.to_text(y)
    for part in (
        "Clip(x, None, 6.0)",
        "Gather(clip, int32([1, 0]), axis=1)",
        "Add(gather, [[0.0, 0.0], [0.0, 0.0]])",
        "Add(add, <float32 (9, 2, 2)>)",
        "If(p, then_branch=(mul), else_branch=(add_1)): float32 (9, 2, 2)",
    ):
        assert part in text


def test_what_is_not_known_and_other_domains_are_written() -> None:
    x = lg.input("x", lg.float32, ["n", 4])
    y = lg.op.microsoft.CDist(x, x.const(np.zeros((3, 4), np.float32), name="cdist"))
    assert "= com.microsoft.CDist(x, cdist): float32 (unknown)" in lg.to_text(y)


def test_names_of_the_user_are_kept_and_avoided() -> None:
    exp = lg.input("exp", lg.float32, [3])
    assert "  exp_1 = Exp(exp): float32 (3,)" in lg.to_text(lg.exp(exp)).splitlines()


def test_a_notebook_shows_a_line_for_a_tensor_and_a_small_table_for_a_graph() -> None:
    x = lg.input("x", lg.float32, ["n", 4])
    y = lg.exp(x)
    assert x._repr_html_().startswith("<code>float32 (n, 4)</code> from <b>input x</b>")
    assert "<code>float32 (n, 4)</code> from <b>Exp</b>" in y._repr_html_()
    assert "from <b>constant</b>" in x.const([1.0])._repr_html_()
    table = x.graph._repr_html_()
    assert table.count("<tr>") == 2
    assert "<td>result</td>" in table
    for i in range(20):
        lg.input(f"<in{i}>", lg.float32, [1], anchor=x)
    table = x.graph._repr_html_()
    assert "&lt;in0&gt;" in table
    assert "and 10 more" in table


def test_only_outputs_of_one_graph_are_a_program() -> None:
    x = lg.input("x", lg.float32, [1])
    with pytest.raises(lg.OperandError, match="no tensor"):
        lg.to_text({})
    with pytest.raises(lg.OperandError, match="is no tensor"):
        lg.to_text({"x": 1.0})  # type: ignore[dict-item]
    with pytest.raises(lg.GraphMismatchError):
        lg.to_text({"x": x, "y": lg.input("y", lg.float32, [1])})
