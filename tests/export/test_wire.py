"""Bytes written by hand are what onnx's own messages make of the same."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import GraphProto, NodeProto, TensorProto, ValueInfoProto, helper, numpy_helper

import lazygraph as lg
from lazygraph.export import wire

NAMES = ["x", "layers.0/mul_12", "größe", "模型/权重", "n" * 127, "n" * 128, "ü" * 64, "n" * 20_000]


@pytest.mark.parametrize("number", [0, 1, 127, 128, 300, 16_383, 16_384, 2**31 - 1])
def test_numbers_of_any_length_are_read_back(number: int) -> None:
    made = TensorProto.FromString(b"\x08" + wire.packed(wire.varint(number)))

    assert list(made.dims) == [number]


@pytest.mark.parametrize("name", NAMES)
def test_a_node_is_onnxs(name: str) -> None:
    attribute = helper.make_attribute("axis", -1)
    tail = wire.tail("Soft", "some.domain", [wire.letters(attribute.SerializeToString())])
    content = f"\x0a{wire.text(name)}\x12{wire.text('y')}\x1a{wire.text(name)}{tail}"
    expected = NodeProto(op_type="Soft", domain="some.domain", input=[name], output=["y"], name=name)
    expected.attribute.append(attribute)

    graph = GraphProto.FromString(wire.packed(wire.field(wire.NODE, content)))

    assert list(graph.node) == [expected]


@pytest.mark.parametrize("name", NAMES)
def test_an_identity_is_onnxs(name: str) -> None:
    expected = NodeProto(op_type="Identity", input=["x"], output=[name], name="copy")

    assert NodeProto.FromString(wire.packed(wire.identity("copy", "x", name))) == expected


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("number", [wire.INPUT, wire.VALUE_INFO])
def test_a_typed_value_is_onnxs(name: str, number: int) -> None:
    expected: ValueInfoProto = helper.make_tensor_value_info(name, TensorProto.FLOAT, ["größe", 3])
    kind = wire.field(2, wire.letters(expected.type.SerializeToString()))

    graph = GraphProto.FromString(wire.packed(wire.value(number, name, kind)))

    assert [*graph.input, *graph.value_info] == [expected]
    assert len(graph.input) == (number == wire.INPUT)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 200), (300, 1, 7)])
def test_an_initialiser_is_onnxs(name: str, shape: tuple[int, ...]) -> None:
    array = np.arange(np.prod(shape, dtype=int), dtype=np.float32).reshape(shape)

    graph = GraphProto.FromString(wire.tensor(name, TensorProto.FLOAT, shape, array.tobytes()))

    assert list(graph.initializer) == [numpy_helper.from_array(array, name)]


def test_names_that_are_not_ascii_reach_the_file() -> None:
    x = lg.input("größe", lg.float32, ["模型", 3])
    with lg.scope("слой"):
        y = (x + x.const(np.ones(3, np.float32), "вес")) * 2.0

    model = lg.to_onnx({"ответ": y, "ещё": y})

    onnx.checker.check_model(model, full_check=True)
    assert model.graph.node[0].name == "слой/add_0"
    assert list(model.graph.node[0].input) == ["größe", "вес"]
    assert [output.name for output in model.graph.output] == ["ответ", "ещё"]
