"""Names in the file: the user's own win, generated ones avoid them, all are unique; content is stored once."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from onnx import ModelProto, checker

import lazygraph as lg
from lazygraph.export import open_session, to_onnx


def value_names(model: ModelProto) -> list[str]:
    graph = model.graph
    made = [name for node in graph.node for name in node.output if name]
    return [value.name for value in graph.input] + [tensor.name for tensor in graph.initializer] + made


def run(model: ModelProto, **feeds: object) -> list[np.ndarray]:
    results: list[np.ndarray] = open_session(model).run(None, feeds)
    return results


def test_generated_names_carry_scope_operator_and_a_number() -> None:
    x = lg.input("x", lg.float32, ["n", 4])
    with lg.scope("layers.0"), lg.scope("mlp"):
        y = (x @ x.const(np.eye(4, dtype=np.float32))) + 1.0
    model = to_onnx({"y": y * 2.0})
    assert [node.name for node in model.graph.node] == ["layers.0/mlp/matmul_0", "layers.0/mlp/add_1", "mul_2"]
    assert [list(node.output) for node in model.graph.node] == [
        ["layers.0/mlp/matmul_0"],
        ["layers.0/mlp/add_1"],
        ["y"],
    ]


def test_generated_names_avoid_every_name_of_the_user() -> None:
    x = lg.input("add_0", lg.float32, [2])
    w = x.const(np.ones(2, np.float32), name="mul_1")
    z = x.const(np.full(2, 3, np.float32), name="split_2.1")
    y = (x + w) * z
    a, b = lg.split(y, 2)
    model = to_onnx({"add_1": a, "const_0": b + 1.0})
    names = value_names(model)
    assert len(names) == len(set(names))
    assert {"add_0", "mul_1", "split_2.1", "add_1", "const_0"} <= set(names)
    checker.check_model(model, full_check=True)
    first, second = run(model, add_0=np.zeros(2, np.float32))
    assert (first.tolist(), second.tolist()) == ([3.0], [4.0])


def test_node_names_are_unique() -> None:
    x = lg.input("x", lg.float32, [2])
    for _ in range(3):
        with lg.scope("same"):
            x = x + x
    model = to_onnx({"y": x, "again": x, "identity_3": x})
    names = [node.name for node in model.graph.node]
    assert len(names) == len(set(names))
    assert open_session(model) is not None


@pytest.mark.parametrize("name", ["a b", "a/b", "a\nb", "ä", "layers.0.weight", "0"])
def test_any_text_names_an_input_a_weight_and_an_output(name: str) -> None:
    x = lg.input(name, lg.float32, [1])
    y = x + x.const(np.ones(1, np.float32), name=f"{name} weight")
    model = to_onnx({f"{name} out": y})
    assert [value.name for value in model.graph.output] == [f"{name} out"]
    assert open_session(model).run(None, {name: np.ones(1, np.float32)})[0].tolist() == [2.0]


def test_an_output_that_is_an_input_a_constant_or_a_second_name_is_copied() -> None:
    x = lg.input("x", lg.float32, [2])
    w = x.const(np.ones(2, np.float32), name="w")
    y = x + w
    model = to_onnx({"y": y, "same": y, "from_input": x, "from_constant": w})
    assert [node.op_type for node in model.graph.node] == ["Add", "Identity", "Identity", "Identity"]
    checker.check_model(model, full_check=True)
    results = run(model, x=np.array([1, 2], np.float32))
    assert [value.tolist() for value in results] == [[2, 3], [2, 3], [1, 2], [1, 1]]


@pytest.mark.parametrize("taken", ["x", "w"])
def test_an_output_with_the_name_of_an_input_or_constant_is_refused(taken: str) -> None:
    x = lg.input("x", lg.float32, [2])
    y = x + x.const(np.ones(2, np.float32), name="w")
    with pytest.raises(lg.OperandError, match=f"output '{taken}' has the name of"):
        to_onnx({taken: y})


def test_a_single_tensor_is_called_output() -> None:
    x = lg.input("x", lg.float32, [2])
    assert [value.name for value in to_onnx(x + x).graph.output] == ["output"]


@pytest.mark.parametrize("outputs", [{}, {"": 1}, {"y": 1}, [1], None])
def test_what_is_no_outputs_is_refused(outputs: object) -> None:
    with pytest.raises(lg.OperandError):
        to_onnx(outputs)  # type: ignore[arg-type]


def test_outputs_of_two_graphs_are_refused() -> None:
    x, y = lg.input("x", lg.float32, [2]), lg.input("y", lg.float32, [2])
    with pytest.raises(lg.GraphMismatchError, match="outputs of different graphs"):
        to_onnx({"a": x, "b": y})


def test_every_declared_input_is_kept_in_order() -> None:
    x = lg.input("b", lg.float32, ["n"])
    lg.input("a", lg.int64, ["past"], anchor=x)
    lg.input("c", lg.float16, [], anchor=x)
    model = to_onnx({"y": x + 1.0})
    assert [value.name for value in model.graph.input] == ["b", "a", "c"]


def _twice(one: object, two: object) -> ModelProto:
    x = lg.input("x", lg.float32, [1])
    a, b = x.const(one), x.const(two)
    return to_onnx({"y": lg.concat([lg.reshape(a, [-1]), lg.reshape(b, [-1])], 0), "x2": x + x})


@pytest.mark.parametrize(
    "make",
    [
        lambda: np.arange(3, dtype=np.float32),
        lambda: np.arange(3000, dtype=np.float32),
        lambda: lg.LazyArray("float32", (3000,), lambda: np.ones(3000, np.float32)),
        lambda: np.array(["a", "b"], object),
    ],
    ids=["small", "large", "lazy", "texts"],
)
def test_equal_content_is_stored_once(make: Callable[[], object]) -> None:
    model = _twice(make(), make())
    assert sum(tensor.name.startswith("const") and list(tensor.dims) != [1] for tensor in model.graph.initializer) == 1
    checker.check_model(model, full_check=True)


def test_lazy_arrays_of_one_key_are_read_once() -> None:
    read: list[str] = []

    def load() -> np.ndarray:
        read.append("x")
        return np.ones(3000, np.float32)

    lazy = [lg.LazyArray("float32", (3000,), load, key="embedding") for _ in range(2)]
    x = lg.input("x", lg.float32, [3000])
    to_onnx({"y": x + x.const(lazy[0], "a") + x.const(lazy[1], "b")})
    assert read == ["x"]


@pytest.mark.parametrize("count", [2, 3000])
def test_equal_bytes_of_another_shape_or_type_stay_apart(count: int) -> None:
    x = lg.input("x", lg.float32, [1])
    flat, tall = np.zeros(count, np.float32), np.zeros((count, 1), np.float32)
    ints = np.zeros(count, np.int32)
    y = {"flat": x.const(flat), "tall": x.const(tall), "ints": x.const(ints), "zero": x * 0.0, "minus": x * -0.0}
    assert len(to_onnx(y).graph.initializer) == 5


def test_the_first_name_of_equal_constants_is_kept() -> None:
    x = lg.input("x", lg.float32, [1])
    ones = [x.const(np.ones(1, np.float32), name) for name in (None, "second", "third")]
    model = to_onnx({"y": x + ones[0] + ones[1] + ones[2]})
    assert [tensor.name for tensor in model.graph.initializer] == ["second"]
    assert run(model, x=np.zeros(1, np.float32))[0].tolist() == [3.0]


def _program() -> lg.Tensor:
    x = lg.input("x", lg.float32, ["n", 8])
    with lg.scope("a"):
        parts = lg.split(x @ x.const(np.eye(8, dtype=np.float32)), [3, 5], axis=1)
    return lg.concat([parts[1], parts[0]], axis=1) + 1.0


def test_two_builds_of_one_program_give_the_same_bytes() -> None:
    first, second = (to_onnx({"y": _program()}).SerializeToString() for _ in range(2))
    assert first == second


def test_unread_outputs_are_left_out_where_the_schema_allows_it() -> None:
    x = lg.input("x", lg.float32, ["n", 4])
    first, _ = lg.split(x, 2, axis=1)
    model = to_onnx({"y": first + 1.0})
    assert [len(node.output) for node in model.graph.node] == [2, 1]
    ones = x.const(np.ones(4, np.float32))
    nodes = x.graph.emit(
        "LayerNormalization", (x, ones, ones), {}, [(lg.float32, x.shape)] + [(lg.float32, (lg.size("n"), 1))] * 2
    )
    assert [list(node.output) for node in to_onnx({"y": nodes[0]}).graph.node] == [["y"]]


def test_attributes_keep_their_kind() -> None:
    x = lg.input("x", lg.float32, [1, 1])
    plus = x.graph.emit("LeakyRelu", (x,), {"alpha": 0.0}, [(lg.float32, (1, 1))])[0]
    minus = x.graph.emit("LeakyRelu", (plus,), {"alpha": -0.0}, [(lg.float32, (1, 1))])[0]
    reshaped = x.graph.emit("Transpose", (minus,), {"perm": (1, 0)}, [(lg.float32, (1, 1))])[0]
    nodes = to_onnx({"y": reshaped.astype(lg.int64)}).graph.node
    assert [np.signbit(node.attribute[0].f) for node in nodes[:2]] == [False, True]
    assert list(nodes[2].attribute[0].ints) == [1, 0]
    assert nodes[3].attribute[0].i == 7


def test_an_attribute_that_onnx_cannot_hold_is_refused_on_the_users_line() -> None:
    x = lg.input("x", lg.float32, [1])
    y = x.graph.emit("LeakyRelu", (x,), {"alpha": object()}, [(lg.float32, (1,))])[0]
    with pytest.raises(lg.ExportError, match=r"attribute alpha is <object"):
        to_onnx(y)


def test_named_sizes_become_dim_param() -> None:
    x = lg.input("x", lg.float32, ["past + seq", 4])
    shape = to_onnx({"y": lg.concat([x, x], 0)}).graph.output[0].type.tensor_type.shape
    assert [dim.dim_param or dim.dim_value for dim in shape.dim] == ["2*past + 2*seq", 4]


def test_metadata_and_value_types_are_written_when_asked_for() -> None:
    x = lg.input("x", lg.float32, ["n"])
    model = to_onnx({"y": (x + 1.0) * 2.0}, metadata={"b": "2", "a": "1"}, value_info=True)
    assert [(entry.key, entry.value) for entry in model.metadata_props] == [("a", "1"), ("b", "2")]
    assert [value.name for value in model.graph.value_info] == ["add_0"]


@pytest.mark.slow
def test_a_chain_of_200_000_nodes_needs_no_recursion() -> None:
    x = lg.input("x", lg.float32, [1])
    for _ in range(200_000):
        x = x + x
    assert len(to_onnx(x).graph.node) == 200_000
