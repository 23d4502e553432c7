"""``lg.op``: every operator of ai.onnx, by its schema."""

from __future__ import annotations

import inspect
import io
import pydoc
from contextlib import redirect_stdout
from typing import Any

import numpy as np
import onnx
import pytest

import lazygraph as lg
from lazygraph.evaluate import realize
from lazygraph.ops.core import rule_of

OP: Any = lg.op  # for calls that its types say are wrong


def shown(x: lg.Tensor) -> tuple[object, ...]:
    """Return the sizes, to be compared with names and numbers."""
    return tuple(x.shape)


def _x(*shape: int | str, dtype: Any = "float32") -> lg.Tensor:
    return lg.input("x", dtype, shape)


def _attrs(x: Any) -> Any:
    return x.origin.attrs


def test_every_operator_is_there() -> None:
    names = {s.name for s in onnx.defs.get_all_schemas() if s.domain == "" and not s.deprecated}
    assert set(dir(lg.op)) == names | {"microsoft", "ml", "preview", "training"}
    assert all(callable(getattr(lg.op, name)) for name in names)


def test_help_shows_the_installed_schema() -> None:
    text = pydoc.plain(pydoc.render_doc(lg.op.Softmax))
    assert "Softmax(input, /, *, axis=-1)" in text
    assert "Spec: ai.onnx::Softmax-13." in text
    assert "input (T): The input tensor of rank >= axis." in text
    with redirect_stdout(io.StringIO()):
        help(lg.op.Add)
    assert str(inspect.signature(lg.op.Concat)) == "(*inputs, axis)"


def test_one_output_is_a_tensor_and_several_are_a_tuple() -> None:
    x = _x(2, 3)
    assert isinstance(lg.op.Relu(x), lg.Tensor)
    assert len(lg.op.TopK(x, [2])) == 2
    assert len(lg.op.Dropout(x)) == 2
    assert len(lg.op.Split(x, [1, 1])) == 2
    assert len(lg.op.LayerNormalization(x, np.ones(3, np.float32))) == 3


def test_same_rule_as_the_function() -> None:
    x = _x("n", 4)
    for a, b in (
        (lg.op.ReduceSum(x, [1], keepdims=0), lg.reduce_sum(x, 1)),
        (lg.op.ReduceSum(x), lg.reduce_sum(x, keepdims=True)),
        (lg.op.ReduceSum(x, noop_with_empty_axes=1), x),
        (lg.op.Cast(x, to=lg.float16), x.astype("float16")),
        (lg.op.Cast(x, to=onnx.TensorProto.FLOAT16), x.astype("float16")),
        (lg.op.Unsqueeze(x, [0]), lg.unsqueeze(x, 0)),
        (lg.op.Transpose(x, perm=[1, 0]), x.T),
    ):
        assert (a.shape, a.dtype) == (b.shape, b.dtype)


def test_scalars_take_the_type_of_their_neighbours() -> None:
    x = _x(3, dtype="float16")
    y = lg.op.Add(x, 1)
    assert y.dtype == "float16"
    assert lg.op.Clip(x, None, 2.0).dtype == "float16"
    assert lg.op.Pow(x, 2).dtype == "float16"
    assert lg.op.Where(x > 0, x, -1e4).dtype == "float16"
    assert lg.op.OneHot(_x(3, dtype="int64"), 5, [0.0, 1.0]).dtype == "float32"


def test_optional_operands_may_be_left_out() -> None:
    x = _x(1, 1, 2, 2)
    y = lg.op.Resize(x, None, [1.0, 1.0, 2.0, 2.0], mode="nearest")
    assert y.shape == (1, 1, 4, 4)
    assert lg.op.Resize(x, None, None, [1, 1, 3, 3], mode="nearest").shape == (1, 1, 3, 3)
    assert lg.op.Clip(x, None, None).shape == x.shape


def test_ops_without_a_rule_ask_the_schema() -> None:
    assert rule_of("LSTM") is None
    x = _x("steps", "batch", 5)
    y, h, c = OP.LSTM(x, np.zeros((1, 12, 5), np.float32), np.zeros((1, 12, 3), np.float32), hidden_size=3)
    assert shown(y) == ("steps", 1, "batch", 3)
    assert h.shape == c.shape == (1, "batch", 3)
    assert (y.dtype, h.dtype) == ("float32", "float32")


def test_ops_without_a_rule_run() -> None:
    value = np.array([[-1, 0.2, 3]], np.float32)
    x = _x("n", 3)
    y = lg.op.Shrink(x, lambd=0.5)
    assert shown(y) == ("n", 3)
    np.testing.assert_allclose(realize(y, {"x": value}), [[-1, 0, 3]])


def test_sizes_that_the_schema_does_not_tell_are_unknown_not_guessed() -> None:
    x = _x("n", 4, 6)
    y = lg.op.CenterCropPad(x, lg.input("k", "int64", [3], anchor=x))
    assert y.known_shape is None
    with pytest.raises(lg.ShapeError, match="the number of axes is not known"):
        y.ndim  # noqa: B018
    assert shown(lg.declare_shape(y, ["a", 2, 3])) == ("a", 2, 3)
    with pytest.raises(lg.ShapeError, match="contradicts"):
        lg.declare_shape(x, ["n", 5, 6])


def test_operators_without_operands_open_a_graph_or_join_one() -> None:
    x = _x(3)
    assert lg.op.HannWindow(10).shape == (10,)
    joined = lg.op.RandomNormal(shape=[3], anchor=x)
    assert (x + joined).shape == (3,)
    assert lg.op.Constant(value_floats=[1.0, 2.0]).shape == (2,)


def test_attributes_are_brought_to_their_kind() -> None:
    x = _x(3, 4)
    assert _attrs(OP.Elu(x, alpha=2)) == {"alpha": 2.0}
    assert _attrs(OP.Elu(x, alpha=1)) == {}
    assert _attrs(OP.Softmax(x, axis=np.int64(0))) == {"axis": 0}
    for wrong in (1.0, "1", [1]):
        with pytest.raises(lg.OperandError, match="axis, an int"):
            OP.Softmax(x, axis=wrong)
    with pytest.raises(lg.OperandError, match="perm, a list of ints"):
        OP.Transpose(x, perm=1)
    with pytest.raises(lg.OperandError, match="direction, a string"):
        OP.BitShift(_x(2, dtype="uint8"), 1, direction=1)


def test_a_fixed_opset_fixes_the_signatures() -> None:
    x = lg.input("x", "float32", ["n", 4], opset=13)
    y = OP.ReduceMean(x, axes=[1], keepdims=0)
    assert shown(y) == ("n",)
    assert _attrs(lg.reduce_mean(x, 1)) == {"keepdims": 0, "axes": [1]}
    with pytest.raises(lg.OperandError, match="at most 1"):
        lg.op.ReduceMean(x, [1])
    value = np.arange(8, dtype=np.float32).reshape(2, 4)
    got = realize(
        [y, lg.reduce_mean(x, 1), lg.gelu(x), lg.mish(x), lg.rms_normalization(x, x.const(np.ones(4, np.float32)))],
        {"x": value},
    )
    np.testing.assert_allclose(got[0], value.mean(1))
    np.testing.assert_allclose(got[1], value.mean(1))
    assert got[4].shape == (2, 4)


@pytest.mark.parametrize("name", ["Upsample", "Scatter"])
def test_deprecated_operators_are_refused(name: str) -> None:
    with pytest.raises(lg.UnsupportedError, match="deprecated"):
        getattr(lg.op, name)


@pytest.mark.parametrize("name", ["SequenceMap", "Loop", "Scan", "If"])
def test_operators_with_subgraphs_are_refused_for_what_they_are(name: str) -> None:
    with pytest.raises((lg.UnsupportedError, lg.OperandError, lg.DTypeError)):
        getattr(lg.op, name)(_x(2))
