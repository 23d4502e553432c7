"""A broken model file gives a typed error that names the file, the call and the fault; never a crash."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper, parser

import lazygraph as lg

TEXT = """<ir_version: 8, opset_import: ["" : 17]>
g (float[n, 4] x) => (float[n, 2] y)
<float[4, 2] w = {1, 2, 3, 4, 5, 6, 7, 8}>
{
    [first] h = MatMul (x, w)
    [second] y = Relu (h)
}"""


def refused(change: Callable[[ModelProto], object], kind: type[lg.LazyGraphError] = lg.LoadError) -> str:
    """Return the message that the model gives after a change."""
    proto = parser.parse_model(TEXT)
    change(proto)
    with pytest.raises(kind) as caught:
        lg.load(proto)
    assert caught.value.operands["file"] == "a model in memory"
    assert "test_broken_files.py" in str(caught.value.at)
    return str(caught.value)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(lg.LoadError, match=r"absent\.onnx cannot be read: No such file"):
        lg.load(tmp_path / "absent.onnx")
    with pytest.raises(lg.LoadError, match="cannot be read"):
        lg.load(tmp_path)


@pytest.mark.parametrize("content", [b"", b"hello", b"PK\x03\x04", b"version https://git-lfs.github.com/spec/v1\n"])
def test_a_file_that_is_no_model(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "m.onnx").write_bytes(content)
    with pytest.raises(lg.LoadError, match=r"m\.onnx") as caught:
        lg.load(tmp_path / "m.onnx")
    assert ("Git LFS" in caught.value.hint) == content.startswith(b"version")


def test_a_model_cut_off_anywhere_or_with_any_byte_wrong_gives_no_crash() -> None:
    content = parser.parse_model(TEXT).SerializeToString()
    numbers = random.Random(0)
    spoilt = [content[:end] for end in range(len(content))]
    for _ in range(400):
        place = numbers.randrange(len(content))
        spoilt.append(content[:place] + bytes([numbers.randrange(256)]) + content[place + 1 :])
    refusals = 0
    for one in spoilt:
        try:
            lg.load(one)
        except lg.LazyGraphError:
            refusals += 1
    assert refusals > len(content)


def test_calls_that_are_not_in_order() -> None:
    def swap(proto: ModelProto) -> None:
        first, second = proto.graph.node
        nodes = [onnx.NodeProto.FromString(node.SerializeToString()) for node in (second, first)]
        del proto.graph.node[:]
        proto.graph.node.extend(nodes)

    message = refused(swap)
    assert "it reads 'h', which MatMul 'first' makes further down" in message
    assert "Relu 'second'" in message


def test_a_value_that_nothing_makes() -> None:
    message = refused(lambda proto: proto.graph.node[0].input.__setitem__(0, "z"))
    assert "it reads 'z', which nothing makes" in message
    assert "MatMul 'first'" in message


def test_an_output_that_nothing_makes() -> None:
    assert "nothing makes the output 'q'" in refused(
        lambda proto: proto.graph.output.append(helper.make_tensor_value_info("q", TensorProto.FLOAT, [1]))
    )


def test_two_values_of_one_name() -> None:
    assert "two values are called 'x'" in refused(lambda proto: proto.graph.node[0].output.__setitem__(0, "x"))
    assert "two values are called 'w'" in refused(lambda proto: proto.graph.node[0].output.__setitem__(0, "w"))


def test_two_inputs_or_weights_of_one_name() -> None:
    assert "two inputs are called 'x'" in refused(lambda proto: proto.graph.input.append(proto.graph.input[0]))
    assert "two initialisers are called 'w'" in refused(
        lambda proto: proto.graph.initializer.append(proto.graph.initializer[0])
    )


def test_a_weight_with_too_few_bytes() -> None:
    def shorten(proto: ModelProto) -> None:
        proto.graph.initializer[0].CopyFrom(numpy_helper.from_array(np.ones((4, 2), np.float32), "w"))
        proto.graph.initializer[0].raw_data = b"\0" * 31

    assert "tensor 'w' has 31 bytes" in (message := refused(shorten))
    assert "32 bytes for float32 [4, 2]" in message


def test_a_weight_of_no_type() -> None:
    assert "tensor 'w': ONNX element type 99 is not known" in refused(
        lambda proto: setattr(proto.graph.initializer[0], "data_type", 99)
    )


def test_an_input_of_no_type() -> None:
    assert "the input 'x' has no element type" in refused(lambda proto: proto.graph.input[0].ClearField("type"))


def test_shapes_that_cannot_meet() -> None:
    message = refused(lambda proto: proto.graph.initializer[0].dims.__setitem__(slice(None), [2, 4]), lg.ShapeError)
    assert message.startswith("matmul: inner sizes differ: 4 in a and 2 in b")
    assert "MatMul 'first'" in message


def test_an_element_type_that_the_operator_does_not_take() -> None:
    def change(proto: ModelProto) -> None:
        proto.graph.input[0].type.tensor_type.elem_type = TensorProto.INT8

    assert "MatMul 'first'" in refused(change, lg.DTypeError)


def test_an_output_declared_with_another_element_type() -> None:
    def change(proto: ModelProto) -> None:
        proto.graph.output[0].type.tensor_type.elem_type = TensorProto.INT64

    assert "the output 'y' is declared int64, and is float32" in refused(change, lg.DTypeError)


def test_a_call_with_too_few_operands_or_a_strange_attribute() -> None:
    assert "1 operands given" in refused(lambda proto: proto.graph.node[0].input.pop(), lg.OperandError)
    message = refused(
        lambda proto: proto.graph.node[1].attribute.append(helper.make_attribute("slope", 2.0)), lg.OperandError
    )
    assert "'slope' is no attribute" in message
    assert "Relu 'second'" in message


def test_an_attribute_of_another_kind() -> None:
    def change(proto: ModelProto) -> None:
        proto.graph.node[1].op_type = "Softmax"
        proto.graph.node[1].attribute.append(helper.make_attribute("axis", "last"))

    assert "attribute 'axis' is 'last'" in refused(change, lg.OperandError)


def test_a_domain_imported_twice_and_an_opset_of_the_future() -> None:
    assert "domain 'ai.onnx' is imported twice" in refused(
        lambda proto: proto.opset_import.append(helper.make_opsetid("ai.onnx", 13))
    )
    assert "opset 999" in refused(lambda proto: setattr(proto.opset_import[0], "version", 999), lg.UnsupportedError)


def test_training_information_is_refused_by_name() -> None:
    assert "training information" in refused(lambda proto: proto.training_info.add(), lg.UnsupportedError)
