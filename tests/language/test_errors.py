"""What is refused while the graph is built, in which class, on which line, in which words."""

from __future__ import annotations

import inspect
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import lazygraph as lg

OP: Any = lg.op  # whose types say, rightly, that these calls are wrong


def _x(shape: tuple[int | str, ...] = (3, 4), dtype: str = "float32", like: lg.Tensor | None = None) -> lg.Tensor:
    return lg.input("x" if like is None else "y", dtype, shape, anchor=like)


def _attended(q: lg.Tensor, k: lg.Tensor) -> lg.Tensor:
    return lg.attention(q, k, k)


def _pair(*shapes: tuple[int | str, ...], dtype: str = "float32") -> tuple[lg.Tensor, lg.Tensor]:
    x = _x(shapes[0])
    return x, _x(shapes[1], dtype, x)


# What each line does, the class that refuses it, and the sentence (op and what was wrong) that it says.
REFUSED: list[tuple[str, Callable[[], object], type[lg.LazyGraphError], str]] = [
    (
        "matmul sizes",
        lambda: lg.matmul(*_pair((3, 4), (5, 6))),
        lg.ShapeError,
        "matmul: inner sizes differ: 4 in a and 5 in b",
    ),
    ("matmul scalar", lambda: _x() @ 2.0, lg.ShapeError, "matmul: b has 0 axes: ()"),
    (
        "float with int64",
        lambda: lg.add(*_pair((3, 4), (3, 4), dtype="int64")),
        lg.DTypeError,
        "add: element types differ: float32 and int64",
    ),
    ("float64 array", lambda: _x() + np.zeros(4), lg.DTypeError, "add: element types differ: float32 and float64"),
    ("broadcast", lambda: lg.add(*_pair((3, 4), (3, 5))), lg.ShapeError, "add: sizes 4 and 5 meet"),
    (
        "two names",
        lambda: lg.add(*_pair(("N", 4), ("M", 4))),
        lg.ShapeError,
        "add: sizes N and M meet, and are not known to be equal",
    ),
    ("concat ranks", lambda: lg.concat(_pair((3, 4), (4,)), 0), lg.ShapeError, "concat: ranks differ: 2 and 1"),
    ("concat sizes", lambda: lg.concat(_pair((3, 4), (3, 5)), 0), lg.ShapeError, "concat: sizes 4 and 5 meet"),
    ("reshape", lambda: _x().reshape(5, 5), lg.ShapeError, "reshape: 12 elements do not make 25"),
    ("reshape of two -1", lambda: _x().reshape(-1, -1), lg.ShapeError, "reshape: more than one size is -1"),
    (
        "reshape that does not divide",
        lambda: _x().reshape(5, -1),
        lg.ShapeError,
        "reshape: 12 elements do not divide by 5",
    ),
    ("reshape of names", lambda: _x(("N", 4)).reshape("M", 4), lg.ShapeError, "reshape: 4*N elements do not make 4*M"),
    (
        "slice axis",
        lambda: lg.slice(_x(), [0], [1], axes=[7]),
        lg.IndexRangeError,
        "slice: axis 7 of a tensor with 2 axes",
    ),
    ("gather axis", lambda: lg.gather(_x(), 0, axis=5), lg.IndexRangeError, "gather: axis 5 of a tensor with 2 axes"),
    ("gather index", lambda: lg.gather(_x(), [9]), lg.IndexRangeError, "gather: index 9 of an axis of size 3"),
    (
        "gather_nd index",
        lambda: lg.gather_nd(_x(), [[0, 4]]),
        lg.IndexRangeError,
        "gather_nd: index 4 of axis 1 of size 4",
    ),
    (
        "gather_elements",
        lambda: lg.gather_elements(_x(), [[0], [0], [0], [0]], 1),
        lg.ShapeError,
        "gather_elements: indices have 4 along axis 0, x has 3",
    ),
    ("split of 5 into 4", lambda: lg.split(_x((5,)), 4), lg.ShapeError, "split: 5 into 4 parts of 2 leaves -1"),
    (
        "split sizes",
        lambda: lg.split(_x((7,)), [1, 2, 3]),
        lg.ShapeError,
        "split: sizes [1, 2, 3] sum to 6, axis 0 has 7",
    ),
    (
        "split of a name",
        lambda: lg.split(_x(("N",)), 3),
        lg.ShapeError,
        "split: N into 3 parts of (N + 2)//3 may leave less than 0",
    ),
    (
        "wrong attribute",
        lambda: OP.Softmax(_x(), axis="last"),
        lg.OperandError,
        "softmax: attribute 'axis' is 'last'",
    ),
    ("unknown attribute", lambda: OP.Softmax(_x(), axes=1), lg.OperandError, "softmax: 'axes' is no attribute"),
    ("missing attribute", lambda: OP.Concat(_x()), lg.OperandError, "concat: attribute 'axis' is missing"),
    ("misspelt op", lambda: OP.Sofmax(_x()), lg.UnknownOpError, "op: no operator is called 'Sofmax'"),
    ("missing input", lambda: OP.Add(_x()), lg.OperandError, "add: operand 'B' is missing"),
    ("superfluous input", lambda: OP.Relu(_x(), 1.0), lg.OperandError, "relu: 2 operands given"),
    ("input by name", lambda: OP.Clip(_x(), min=0.0), lg.OperandError, "clip: 'min' is an operand"),
    ("missing branch", lambda: OP.If(_x((), "bool")), lg.OperandError, "if: attribute 'else_branch' is missing"),
    (
        "schema's inference",
        lambda: OP.GridSample(*_pair((3, 4), (3, 4))),
        lg.ShapeError,
        "grid_sample: The input tensor and grid tensor ranks must be >= 3. Got input tensor and grid tensor ranks: 2.",
    ),
    (
        "schema's types",
        lambda: OP.GridSample(*_pair((1, 1, 3, 4), (1, 2, 2, 2), dtype="int64")),
        lg.DTypeError,
        "grid_sample: grid is int64",
    ),
    ("index", lambda: _x()[7], lg.IndexRangeError, "getitem: index 7 of axis 0 of size 3"),
    ("negative index", lambda: _x()[:, -5], lg.IndexRangeError, "getitem: index -5 of axis 1 of size 4"),
    ("list index", lambda: _x()[[0, 3]], lg.IndexRangeError, "getitem: index 3 of axis 0 of size 3"),
    ("too many indices", lambda: _x()[0, 0, 0], lg.IndexRangeError, "getitem: 3 indices for 2 axes"),
    ("step 0", lambda: _x()[::0], lg.ShapeError, "getitem: a step is 0"),
    ("float index", lambda: _x()[1.5], lg.OperandError, "getitem: 1.5 is no index"),
    ("bool index", lambda: _x()[True], lg.OperandError, "getitem: True is no index"),
    ("two ellipses", lambda: _x()[..., ...], lg.OperandError, "getitem: more than one ..."),
    (
        "mask",
        lambda: _x()[np.array([True, False])],
        lg.ShapeError,
        "getitem: the mask is (2,), the axes that it covers are (3,)",
    ),
    (
        "inf in float16",
        lambda: _x(dtype="float16") + 1e9,
        lg.DTypeError,
        "add: float16 cannot hold 1000000000.0: it becomes inf",
    ),
    (
        "0 in float16",
        lambda: _x(dtype="float16") + 1e-12,
        lg.DTypeError,
        "add: float16 cannot hold 1e-12: it becomes 0.0",
    ),
    ("huge int", lambda: _x() + 10**400, lg.DTypeError, f"add: float32 cannot hold {10**400}: it becomes inf"),
    ("300 in uint8", lambda: _x(dtype="uint8") + 300, lg.DTypeError, "add: uint8 cannot hold 300"),
    ("float with int", lambda: _x(dtype="int64") * 0.5, lg.DTypeError, "mul: the float 0.5 with an int64 tensor"),
    ("/ of ints", lambda: _x(dtype="int64") / 2, lg.DTypeError, "div: / of int64 tensors"),
    ("relu of bool", lambda: lg.relu(_x(dtype="bool")), lg.DTypeError, "relu: x is bool"),
    (
        "fp8 arithmetic",
        lambda: (lambda x: x + x)(_x(dtype="float8_e4m3fn")),
        lg.DTypeError,
        "add: a is float8_e4m3fn",
    ),
    ("fp8", lambda: lg.exp(_x(dtype="float8_e4m3fn")), lg.DTypeError, "exp: x is float8_e4m3fn"),
    (
        "scatter updates",
        lambda: lg.scatter_nd(_x(), [[0]], _x()),
        lg.GraphMismatchError,
        "scatter_nd: tensors of two different graphs meet",
    ),
    ("scatter shapes", lambda: lg.scatter_nd(*_scatter([[0]])), lg.ShapeError, "scatter_nd: updates are (3, 4)"),
    (
        "scatter twice",
        lambda: lg.scatter_nd(*_scatter([[0], [1], [-3]])),
        lg.ShapeError,
        "scatter_nd: one place is written twice, and which write wins is not defined",
    ),
    (
        "scatter index",
        lambda: lg.scatter_nd(*_scatter([[0], [1], [3]])),
        lg.IndexRangeError,
        "scatter_nd: index 3 of axis 0 of size 3",
    ),
    (
        "scatter_rows past the end",
        lambda: lg.scatter_rows(*_pair((3, 4), (2, 4)), 2),
        lg.ShapeError,
        "scatter_rows: rows 2 to 4 of 3",
    ),
    (
        "scatter_rows before the start",
        lambda: lg.scatter_rows(*_pair((3, 4), (2, 4)), -1),
        lg.IndexRangeError,
        "scatter_rows: start is -1",
    ),
    (
        "at.set shape",
        lambda: _x().at[0].set(np.zeros(3, np.float32)),
        lg.ShapeError,
        "at.set: the part is (4,), the value (3,)",
    ),
    ("at.set None", lambda: _x().at[None].set(0.0), lg.UnsupportedError, "at.set: a new axis in an update"),
    ("squeeze", lambda: lg.squeeze(_x(), 0), lg.ShapeError, "squeeze: axis 0 has size 3"),
    ("no array", lambda: lg.exp(np.zeros(3)), lg.OperandError, "exp: ndarray array([0., 0., 0.]) is no tensor"),  # type: ignore[arg-type]
    ("no tensor", lambda: lg.add(1, 2), lg.OperandError, "add: no tensor among the operands"),
    (
        "taken name",
        lambda: _pair((1,), (1,))[0].const([1.0], name="y"),
        lg.OperandError,
        "const: the name 'y' is taken in this graph",
    ),
    ("negative size", lambda: _x((-1,)), lg.ShapeError, "shape: a size cannot be -1"),
    ("no dtype", lambda: _x(dtype="float33"), lg.DTypeError, "dtype: 'float33' is not an element type"),
    ("axis twice", lambda: lg.reduce_sum(_x(), (0, -2)), lg.ShapeError, "reduce_sum: axes [0, -2] name one axis twice"),
    ("axis of a float", lambda: lg.reduce_sum(_x(), 0.5), lg.OperandError, "reduce_sum: axis is 0.5"),  # type: ignore[arg-type]
    ("topk", lambda: lg.topk(_x(), 9), lg.ShapeError, "topk: k is 9, axis 1 has 4"),
    ("argmax of nothing", lambda: lg.argmax(_x((0, 4)), 0), lg.ShapeError, "arg_max: axis 0 is empty"),
    ("einsum", lambda: lg.einsum("ij,jk", *_pair((3, 4), (3, 4))), lg.ShapeError, "einsum: sizes 4 and 3 meet"),
    ("einsum terms", lambda: lg.einsum("ij,jk", _x()), lg.OperandError, "einsum: 'ij,jk' has 2 terms for 1 operands"),
    ("conv channels", lambda: lg.conv(*_pair((1, 3, 8), (4, 2, 3))), lg.ShapeError, "conv: sizes 3 and 2 meet"),
    (
        "window",
        lambda: lg.max_pool(_x((1, 1, 2)), [3]),
        lg.ShapeError,
        "max_pool: the window takes 3 of axis 2, which has 2 with padding",
    ),
    ("pad of a triple", lambda: lg.pad(_x(), [(1, 1, 1)]), lg.OperandError, "pad: pads are [(1, 1, 1)]"),
    ("matrix norm", lambda: lg.norm(_x(), "nuc"), lg.OperandError, "norm: ord is 'nuc'"),
    ("ddof", lambda: lg.var(_x(), 0, ddof=3), lg.ShapeError, "var: ddof 3 of 3 elements"),
    ("pad", lambda: lg.pad(_x(), [1, 1]), lg.ShapeError, "pad: 2 pads for 2 axes"),
    (
        "norm scale",
        lambda: lg.layer_normalization(*_pair((3, 4), (3,))),
        lg.ShapeError,
        "layer_normalization: scale (3,) does not broadcast to (3, 4)",
    ),
    (
        "heads",
        lambda: _attended(*_pair((1, 4, 2, 8), (1, 3, 2, 8))),
        lg.ShapeError,
        "attention: 4 heads in q, 3 in k",
    ),
    (
        "opset",
        lambda: OP.Gelu(lg.input("x", "float32", [3], opset=17)),
        lg.UnknownOpError,
        "op: opset 17 has no Gelu",
    ),
]


def _scatter(indices: list[list[int]]) -> tuple[lg.Tensor, list[list[int]], lg.Tensor]:
    x, updates = _pair((3, 4), (3, 4))
    return x, indices, updates


@pytest.mark.parametrize(("line", "kind", "sentence"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED])
def test_refused_on_the_users_line(line: Callable[[], object], kind: type[lg.LazyGraphError], sentence: str) -> None:
    with pytest.raises(kind) as caught:
        line()
    error = caught.value
    assert type(error) is kind
    assert str(error).splitlines()[0] == sentence
    assert error.at is not None
    assert error.at.file == __file__
    first = line.__code__.co_firstlineno
    helpers = {f.__code__.co_firstlineno + 1 for f in (_x, _attended)}
    assert error.at.line == first or error.at.line in helpers


def test_every_builtin_that_fits_catches_it() -> None:
    for kind, builtins in {
        lg.ShapeError: ValueError,
        lg.DTypeError: TypeError,
        lg.GraphMismatchError: ValueError,
        lg.IndexRangeError: IndexError,
        lg.UnknownOpError: AttributeError,
        lg.OperandError: TypeError,
        lg.UnsupportedError: NotImplementedError,
        lg.ExportError: RuntimeError,
        lg.WeightsError: ValueError,
    }.items():
        assert issubclass(kind, builtins)
        assert issubclass(kind, lg.LazyGraphError)


def _here() -> int:
    frame = inspect.currentframe()
    assert frame is not None
    assert frame.f_back is not None
    return frame.f_back.f_lineno


def _short() -> str:
    from lazygraph.where import Where

    return str(Where(__file__, 0)).rsplit(":", 1)[0]


def test_the_whole_message_of_matmul() -> None:
    x = lg.input("x", lg.float32, [3, 4])
    w, made = x.const(np.zeros((5, 6), np.float32), name="w"), _here()
    with pytest.raises(lg.ShapeError) as caught:
        x @ w
    line = _here() - 1
    assert str(caught.value) == "\n".join(
        [
            "matmul: inner sizes differ: 4 in a and 5 in b",
            "  a        : float32 (3, 4) from input 'x'",
            f"  b        : float32 (5, 6) from const 'w' at {_short()}:{made}",
            "  expected : last size of a equals second-to-last of b",
            f"  at       : {_short()}:{line}",
        ]
    )
    assert (caught.value.op, caught.value.what) == ("matmul", "inner sizes differ: 4 in a and 5 in b")
    assert vars(caught.value)["sizes"] == (4, 5)


def test_the_whole_message_of_two_names() -> None:
    n = lg.input("n", lg.float32, ["N", 4])
    m = lg.input("m", lg.float32, ["M", 4], anchor=n)
    with pytest.raises(lg.ShapeError) as caught:
        n + m
    assert str(caught.value) == "\n".join(
        [
            "add: sizes N and M meet, and are not known to be equal",
            "  a        : float32 (N, 4) from input 'n'",
            "  b        : float32 (M, 4) from input 'm'",
            "  expected : equal sizes, or a size of 1",
            "  hint     : lg.assume_equal('N', 'M') if they always are",
            f"  at       : {_short()}:{_here() - 8}",
        ]
    )


def test_a_misspelt_op_names_the_nearest() -> None:
    with pytest.raises(lg.UnknownOpError) as caught:
        OP.reduce_sum  # noqa: B018
    assert caught.value.hint == "did you mean ReduceSum, ReduceLogSum, ReduceSumSquare?"
    with pytest.raises(lg.OperandError) as wrong:
        OP.Softmax(_x(), axs=1)
    assert wrong.value.hint == "did you mean axis?"


def test_index_error_carries_the_index() -> None:
    with pytest.raises(lg.IndexRangeError) as caught:
        _x()[7]
    assert (vars(caught.value)["index"], vars(caught.value)["axis"]) == (7, 0)


@pytest.mark.parametrize("file", ["<string>", "<stdin>", "notebook-cell-3"])
def test_lines_of_exec_are_user_lines(file: str) -> None:
    code = "import lazygraph as lg\nx = lg.input('x', 'float32', [3])\n\nx + lg.input('y', 'float32', [4], anchor=x)\n"
    with pytest.raises(lg.ShapeError) as caught:
        exec(compile(code, file, "exec"), {"__name__": "__main__"})
    assert caught.value.at == (file, 4)


def test_a_line_of_standard_input_is_a_user_line() -> None:
    code = "import lazygraph as lg\nx = lg.input('x', 'float32', [3])\nx[7]\n"
    run = subprocess.run([sys.executable, "-"], input=code, capture_output=True, text=True, check=False)
    assert "at       : <stdin>:3" in run.stderr
