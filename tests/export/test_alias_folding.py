"""What a write waits for, though it may not seem so: runtimes fold what is known, and forget mere types and shapes."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from lazygraph.export.alias import shared_memory_faults

Array = np.ndarray[Any, Any]
ROWS, WIDTH = 8, 4
FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
node = helper.make_node


def value(name: str, kind: int = FLOAT, shape: Any = (1, WIDTH)) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, shape)


def branch(name: str, reads: str) -> onnx.GraphProto:
    return helper.make_graph([node("Identity", [reads], [name])], name, [], [value(name)])


def choice(condition: str, then: str = "rows", other: str = "seen") -> onnx.NodeProto:
    return node("If", [condition], ["new"], then_branch=branch("t", then), else_branch=branch("e", other))


def loop(*nodes: onnx.NodeProto) -> onnx.NodeProto:
    """Return a Loop of one turn that begins with the new rows as ``v`` and ends with ``w``."""
    body = helper.make_graph(
        [node("Identity", ["go"], ["on"]), *nodes],
        "body",
        [value("i", INT64, []), value("go", BOOL, []), value("v")],
        [value("on", BOOL, []), value("w")],
    )
    return node("Loop", ["one", "", "rows"], ["new"], body=body)


CONSTANTS = {
    "zero": np.array(0),
    "one": np.array(1),
    "rows_there": np.array(ROWS),
    "first": np.array([0]),
    "shape": np.array([1, WIDTH]),
    "other_shape": np.array([2, WIDTH // 2]),
    "true": np.array(True),
    "false": np.array(False),
    "nothing": np.array(0, np.float32),
    "half": np.array(0.5, np.float32),
}
# From the rows seen to a whole number that is always 0, which no runtime knows.
ALWAYS_0 = [
    node("ReduceMax", ["seen"], ["greatest"], keepdims=0),
    node("Mul", ["greatest", "nothing"], ["none"]),
    node("Cast", ["none"], ["always_0"], to=INT64),
]

# Each makes `new` from `rows` and, as it looks, from `seen`: what was read from the slot's old rows.
LOST: dict[str, list[onnx.NodeProto]] = {
    "a constant condition": [choice("true")],
    "a computed condition": [node("Not", ["false"], ["yes"]), choice("yes")],
    "a condition on a shape": [
        node("Shape", ["past"], ["sizes"]),
        node("Gather", ["sizes", "zero"], ["size"]),
        node("Equal", ["size", "rows_there"], ["yes"]),
        choice("yes"),
    ],
    "a type": [node("Cast", ["rows"], ["whole"], to=TensorProto.INT32), node("CastLike", ["whole", "seen"], ["new"])],
    "a shape on the way": [
        *ALWAYS_0,
        node("Add", ["other_shape", "always_0"], ["computed"]),
        node("Reshape", ["rows", "computed"], ["between"]),
        node("Reshape", ["between", "shape"], ["new"]),
    ],
    "a condition within a loop": [
        loop(node("If", ["true"], ["w"], then_branch=branch("t", "v"), else_branch=branch("e", "seen")))
    ],
    "a type within a loop": [
        node("Cast", ["rows"], ["whole"], to=TensorProto.INT32),
        loop(node("CastLike", ["whole", "seen"], ["like"]), node("Add", ["v", "like"], ["w"])),
    ],
}
# Nothing is lost today, and nothing but a setting or a dead end says that it is not.
DOUBTFUL: dict[str, list[onnx.NodeProto]] = {
    "a shape": [
        *ALWAYS_0,
        node("Add", ["shape", "always_0"], ["computed"]),
        node("Expand", ["rows", "computed"], ["new"]),
    ],
    "a dead end in a loop": [loop(node("Neg", ["seen"], ["dead"]), node("Neg", ["v"], ["w"]))],
    "ones like it": [node("EyeLike", ["seen"], ["eye"]), node("Add", ["rows", "eye"], ["new"])],
}
KEPT: dict[str, list[onnx.NodeProto]] = {
    "times nothing": [node("Mul", ["seen", "nothing"], ["none"]), node("Add", ["rows", "none"], ["new"])],
    "a constant choice of elements": [node("Where", ["true", "rows", "seen"], ["new"])],
    "less itself": [node("Sub", ["seen", "seen"], ["none"]), node("Add", ["rows", "none"], ["new"])],
    "a condition that comes at run time": [choice("yes_or_no")],
    "the condition itself": [
        *ALWAYS_0,
        node("Equal", ["always_0", "zero"], ["yes"]),
        choice("yes", other="rows"),
    ],
    "a loop": [loop(node("Mul", ["seen", "nothing"], ["none"]), node("Add", ["v", "none"], ["w"]))],
    "a branch that reads": [
        node(
            "If",
            ["yes_or_no"],
            ["new"],
            then_branch=helper.make_graph([node("Add", ["rows", "seen"], ["t"])], "t", [], [value("t")]),
            else_branch=branch("e", "rows"),
        )
    ],
}


def model(making: list[onnx.NodeProto]) -> onnx.ModelProto:
    """Return a model that reads its old rows late, as far as the data allows, and writes ``new`` to row 2."""
    late = [node("Tanh", [f"late{i}" if i else "rows"], [f"late{i + 1}"]) for i in range(40)]
    nodes = [
        *late,
        node("Mul", ["past", "late40"], ["scaled"], name="reader"),
        node("ReduceSum", ["scaled", "first"], ["seen"], keepdims=1),
        *making,
        node("ScatterND", ["past", "index", "new"], ["present"], name="write"),
    ]
    inputs = [
        value("past", shape=[ROWS, WIDTH]),
        value("index", INT64, [1, 1]),
        value("rows"),
        value("yes_or_no", BOOL, []),
    ]
    outputs = [value("present", shape=[ROWS, WIDTH]), value("seen")]
    known = [value("between", shape=[2, WIDTH // 2]), value("computed", INT64, [2])]
    weights = [numpy_helper.from_array(array, name) for name, array in CONSTANTS.items()]
    graph = helper.make_graph(nodes, "g", inputs, outputs, weights, value_info=known)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    onnx.checker.check_model(made)
    return made


def seen(made: onnx.ModelProto, in_place: bool) -> Array:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 3
    session = onnxruntime.InferenceSession(made.SerializeToString(), options, providers=["CPUExecutionProvider"])
    old = np.arange(1, ROWS * WIDTH + 1, dtype=np.float32).reshape(ROWS, WIDTH)
    past, spare = (onnxruntime.OrtValue.ortvalue_from_numpy(array) for array in (old, np.zeros_like(old)))
    binding = session.io_binding()
    binding.bind_ortvalue_input("past", past)
    feeds = {"index": np.array([[2]]), "rows": np.full((1, WIDTH), -7, np.float32), "yes_or_no": np.array(True)}
    for name, array in feeds.items():
        binding.bind_cpu_input(name, array)
    binding.bind_ortvalue_output("present", past if in_place else spare)
    binding.bind_output("seen", "cpu")
    session.run_with_iobinding(binding)
    return np.array(binding.get_outputs()[1].numpy())


@pytest.mark.parametrize("how", LOST)
def test_what_a_runtime_forgets_is_no_proof(how: str) -> None:
    """Bound in place these graphs read rows of the step itself: nothing that is left makes the write wait."""
    made = model(LOST[how])
    reason = "Mul reader reads past and may run after the write: nothing of it flows into the write"
    assert shared_memory_faults(made, {"past": "present"}) == {"past": reason}
    assert not np.array_equal(seen(made, in_place=True), seen(made, in_place=False)), "in place would do"


@pytest.mark.parametrize("how", DOUBTFUL)
def test_what_a_runtime_may_forget_is_no_proof(how: str) -> None:
    assert list(shared_memory_faults(model(DOUBTFUL[how]), {"past": "present"})) == ["past"]


@pytest.mark.parametrize("how", KEPT)
def test_what_no_runtime_can_forget_is_a_proof(how: str) -> None:
    made = model(KEPT[how])
    assert shared_memory_faults(made, {"past": "present"}) == {}
    np.testing.assert_array_equal(seen(made, in_place=True), seen(made, in_place=False))
