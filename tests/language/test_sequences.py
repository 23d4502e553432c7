"""Sequences and optionals: types of their own, checked like any other."""

from __future__ import annotations

import numpy as np
import pytest

import lazygraph as lg
from lazygraph.dtypes import as_dtype
from lazygraph.evaluate import realize


def _sequence() -> lg.Tensor:
    return lg.input("s", lg.sequence_of(lg.float32))


def test_a_sequence_is_a_type() -> None:
    kind = lg.sequence_of("float32")
    assert kind is lg.sequence_of(lg.float32) is as_dtype("seq(float32)")
    assert kind == "seq(float32)"
    assert kind.element is lg.float32
    assert lg.optional_of(kind) == "optional(seq(float32))"
    assert not kind.is_float
    for nested in ("seq(seq(float32))", "optional(optional(int64))", "seq(optional(int64))"):
        with pytest.raises(lg.DTypeError):
            as_dtype(nested)
    with pytest.raises(lg.DTypeError):
        as_dtype("list(float32)")


def test_a_sequence_has_no_shape() -> None:
    s = _sequence()
    assert s.known_shape is None
    assert repr(s) == "<Tensor seq(float32) from input 's'>"
    with pytest.raises(lg.ShapeError, match="has no shape"):
        lg.input("t", lg.sequence_of("float32"), [3], anchor=s)
    with pytest.raises(lg.ShapeError, match="is not a list of sizes"):
        lg.input("t", "float32", anchor=s)


def test_sequences_are_built_read_and_joined() -> None:
    s = _sequence()
    x = lg.input("x", lg.float32, ["n"], anchor=s)
    longer = lg.op.SequenceInsert(s, x)
    made = [lg.op.SequenceLength(longer), lg.op.SequenceAt(longer, 0), lg.op.ConcatFromSequence(longer, axis=0)]
    assert [tensor.dtype.name for tensor in (longer, *made)] == ["seq(float32)", "int64", "float32", "float32"]
    length, head, joined = realize(made, {"s": [[1.0, 2.0]], "x": np.zeros(3, np.float32)})
    assert length == 2
    assert head.tolist() == [1, 2]
    assert joined.tolist() == [1, 2, 0, 0, 0]


def test_a_sequence_comes_out_as_a_list() -> None:
    x = lg.input("x", lg.int64, [4])
    parts = realize(lg.op.SplitToSequence(x, 2), {"x": np.arange(4)})
    assert [part.tolist() for part in parts] == [[0, 1], [2, 3]]


def test_empty_and_constructed_sequences() -> None:
    x = lg.input("x", lg.float16, [2])
    assert lg.op.SequenceEmpty(dtype=lg.int8, anchor=x).dtype == "seq(int8)"
    made = lg.op.SequenceConstruct(x, x)
    assert made.dtype == "seq(float16)"
    assert lg.op.Identity(made).dtype == "seq(float16)"


def test_optionals_are_asked_and_opened() -> None:
    o = lg.input("o", lg.optional_of(lg.sequence_of(lg.float32)))
    assert lg.op.OptionalHasElement(o).dtype == "bool"
    assert lg.op.OptionalGetElement(o).dtype == "seq(float32)"


def test_the_file_has_the_types() -> None:
    s = _sequence()
    model = lg.to_onnx({"y": lg.op.Identity(s)})
    for value in (model.graph.input[0], model.graph.output[0]):
        assert value.type.sequence_type.elem_type.tensor_type.elem_type == lg.float32.onnx


def test_tensors_and_sequences_do_not_mix() -> None:
    s = _sequence()
    x = lg.input("x", lg.float32, [3], anchor=s)
    with pytest.raises(lg.DTypeError, match="input_sequence is float32"):
        lg.op.SequenceAt(x, 0)
    with pytest.raises(lg.DTypeError, match=r"a number 1.0 with a seq\(float32\)"):
        s + 1.0
    with pytest.raises(lg.DTypeError, match="element types differ"):
        lg.add(s, x)
    with pytest.raises(lg.DTypeError):
        lg.exp(s)
    with pytest.raises(lg.DTypeError, match="the feed of 's' is ndarray"):
        realize(lg.op.SequenceLength(s), {"s": np.zeros(3, np.float32)})
    with pytest.raises(lg.DTypeError, match="the feed of 's' is float64"):
        realize(lg.op.SequenceLength(s), {"s": [np.zeros(3)]})
