"""The opset and IR version of a file: the lowest that mean the same as what was written, and a knob above that."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from onnx import checker, defs

import lazygraph as lg
from lazygraph.export import open_session, to_onnx, versions

F32, I64, BOOL = lg.float32, lg.int64, lg.bool_


def call(
    op: str,
    inputs: Sequence[tuple[Any, Sequence[Any]] | np.ndarray | None],
    results: Sequence[tuple[Any, Sequence[Any]]],
    domain: str = "",
    opset: int | None = None,
    **attrs: Any,
) -> tuple[lg.Tensor, ...]:
    """Return the outputs of one operator call, unchecked by lazygraph's rules."""
    graph = lg.Graph(opset)
    given = [
        None
        if value is None
        else graph.constant(value)
        if isinstance(value, np.ndarray)
        else graph.input(f"x{i}", value[0], value[1])
        for i, value in enumerate(inputs)
    ]
    made = [(dtype, None if shape is None else tuple(graph.size(size) for size in shape)) for dtype, shape in results]
    return graph.emit(op, tuple(given), attrs, made, domain)


def opset_of(tensor: lg.Tensor, **asked: Any) -> int:
    model = to_onnx(tensor, **asked)
    checker.check_model(model, full_check=True)
    versions: list[int] = [entry.version for entry in model.opset_import if entry.domain == ""]
    return versions[0]


X = (F32, ["n", 4])
AXES = np.array([1], np.int64)
IMAGE = (F32, [1, 1, 4, 4])

# what is called, the lowest opset whose schema accepts it and means the same
CASES: dict[str, tuple[Callable[[], lg.Tensor], int]] = {
    "Add": (lambda: call("Add", [X, X], [X])[0], 13),
    "Add of int8": (lambda: call("Add", [(lg.int8, [2]), (lg.int8, [2])], [(lg.int8, [2])])[0], 14),
    "Relu of int32": (lambda: call("Relu", [(lg.int32, [2])], [(lg.int32, [2])])[0], 14),
    "Reshape": (lambda: call("Reshape", [X, np.array([-1], np.int64)], [(F32, ["4*n"])])[0], 13),
    "Reshape with allowzero": (
        lambda: call("Reshape", [(F32, [0, 3]), np.array([3, 0], np.int64)], [(F32, [3, 0])], allowzero=1)[0],
        14,
    ),
    "Shape": (lambda: call("Shape", [X], [(I64, [2])])[0], 13),
    "Shape from an axis": (lambda: call("Shape", [X], [(I64, [1])], start=1)[0], 15),
    "ReduceSum over axes": (lambda: call("ReduceSum", [X, AXES], [(F32, ["n", 1])])[0], 13),
    "ReduceMean over all": (lambda: call("ReduceMean", [X], [(F32, [1, 1])])[0], 13),
    "ReduceMean over axes": (lambda: call("ReduceMean", [X, AXES], [(F32, ["n", 1])])[0], 18),
    "ReduceMax of bool": (lambda: call("ReduceMax", [(BOOL, [2]), np.array([0])], [(BOOL, [1])])[0], 20),
    "Split into sizes": (
        lambda: call("Split", [X, np.array([1, 3])], [(F32, ["n", 1]), (F32, ["n", 3])], axis=1)[0],
        13,
    ),
    "Split into a number": (lambda: call("Split", [X], [(F32, ["n", 2])] * 2, axis=1, num_outputs=2)[0], 18),
    "ScatterND": (lambda: call("ScatterND", [X, (I64, [1, 1]), (F32, [1, 4])], [X])[0], 13),
    "ScatterND adding": (lambda: call("ScatterND", [X, (I64, [1, 1]), (F32, [1, 4])], [X], reduction="add")[0], 16),
    "ScatterND of maxima": (lambda: call("ScatterND", [X, (I64, [1, 1]), (F32, [1, 4])], [X], reduction="max")[0], 18),
    "ScatterElements adding": (
        lambda: call("ScatterElements", [X, (I64, [1, 4]), (F32, [1, 4])], [X], reduction="add")[0],
        16,
    ),
    "ScatterElements of minima": (
        lambda: call("ScatterElements", [X, (I64, [1, 4]), (F32, [1, 4])], [X], reduction="min")[0],
        18,
    ),
    "Pad": (lambda: call("Pad", [(F32, [2]), np.array([1, 1])], [(F32, [4])])[0], 13),
    "Pad of axes": (lambda: call("Pad", [(F32, [2]), np.array([1, 1]), None, np.array([0])], [(F32, [4])])[0], 18),
    "Pad that wraps": (lambda: call("Pad", [(F32, [2]), np.array([1, 1])], [(F32, [4])], mode="wrap")[0], 19),
    "Where of bfloat16": (
        lambda: call("Where", [(BOOL, [2]), (lg.bfloat16, [2]), (lg.bfloat16, [2])], [(lg.bfloat16, [2])])[0],
        16,
    ),
    "Cast": (lambda: call("Cast", [X], [(lg.float16, ["n", 4])], to=lg.float16)[0], 13),
    "Cast to float8": (lambda: call("Cast", [X], [(lg.float8_e4m3fn, ["n", 4])], to=lg.float8_e4m3fn)[0], 19),
    "Cast to int4": (lambda: call("Cast", [X], [(lg.int4, ["n", 4])], to=lg.int4)[0], 21),
    "Identity of int4": (lambda: call("Identity", [(lg.int4, [2])], [(lg.int4, [2])])[0], 21),
    "Equal of texts": (lambda: call("Equal", [(lg.string, [2]), (lg.string, [2])], [(BOOL, [2])])[0], 19),
    "LayerNormalization": (lambda: call("LayerNormalization", [X, (F32, [4])], [X])[0], 17),
    "Gelu": (lambda: call("Gelu", [X], [X])[0], 20),
    "RMSNormalization": (lambda: call("RMSNormalization", [X, (F32, [4])], [X])[0], 23),
    "GroupNormalization": (
        lambda: call(
            "GroupNormalization", [(F32, [1, 4, 2]), (F32, [4]), (F32, [4])], [(F32, [1, 4, 2])], num_groups=2
        )[0],
        21,
    ),
    "Resize": (
        lambda: call("Resize", [IMAGE, None, np.array([1, 1, 2, 2], np.float32)], [(F32, [1, 1, 8, 8])])[0],
        19,
    ),
    "AveragePool": (lambda: call("AveragePool", [IMAGE], [(F32, [1, 1, 3, 3])], kernel_shape=[2, 2])[0], 13),
    "AveragePool rounding up": (
        lambda: call("AveragePool", [IMAGE], [(F32, [1, 1, 2, 2])], kernel_shape=[2, 2], strides=[2, 2], ceil_mode=1)[
            0
        ],
        22,
    ),
    "MaxPool": (lambda: call("MaxPool", [IMAGE], [(F32, [1, 1, 3, 3])], kernel_shape=[2, 2])[0], 13),
    "BatchNormalization": (lambda: call("BatchNormalization", [IMAGE, *[(F32, [1])] * 4], [IMAGE])[0], 13),
    "Dropout": (lambda: call("Dropout", [X], [X])[0], 13),
    "Mod of ints": (lambda: call("Mod", [(I64, [2]), (I64, [2])], [(I64, [2])])[0], 13),
    "Mod of floats, truncated": (lambda: call("Mod", [X, X], [X], fmod=1)[0], 13),
    "Mod of floats, floored": (lambda: call("Mod", [X, X], [X])[0], 28),
    "RoiAlign": (
        lambda: call("RoiAlign", [IMAGE, (F32, [1, 4]), (I64, [1])], [(F32, [1, 1, 1, 1])])[0],
        16,
    ),
    "DFT": (lambda: call("DFT", [(F32, [1, 8, 1])], [(F32, [1, 8, 2])])[0], 20),
    "GridSample": (lambda: call("GridSample", [IMAGE, (F32, [1, 2, 2, 2])], [(F32, [1, 1, 2, 2])])[0], 20),
    "Softmax": (lambda: call("Softmax", [X], [X])[0], 13),
    "Squeeze": (lambda: call("Squeeze", [(F32, ["n", 1]), AXES], [(F32, ["n"])])[0], 13),
    "CumSum of float16": (
        lambda: call("CumSum", [(lg.float16, [2]), np.array(0)], [(lg.float16, [2])])[0],
        14,
    ),
    "Range of float16": (lambda: call("Range", [(lg.float16, [])] * 3, [(lg.float16, ["m"])])[0], 27),
    "Attention": (lambda: call("Attention", [(F32, [1, 2, 3, 4])] * 3, [(F32, [1, 2, 3, 4])])[0], 23),
}


@pytest.mark.parametrize("case", CASES)
def test_the_lowest_opset_that_means_the_same_is_written(case: str) -> None:
    make, expected = CASES[case]
    assert opset_of(make()) == expected


@pytest.mark.parametrize("case", ["Add", "ScatterND", "LayerNormalization", "Cast to float8"])
@pytest.mark.parametrize("above", [0, 2, 5])
def test_a_higher_opset_can_be_asked_for(case: str, above: int) -> None:
    make, lowest = CASES[case]
    assert opset_of(make(), opset=lowest + above) == lowest + above


def test_the_operator_that_needs_the_highest_opset_decides() -> None:
    x = lg.input("x", F32, ["n", 4])
    y = x.graph.emit("LayerNormalization", (x, x.const(np.ones(4, np.float32))), {}, [(F32, x.shape)])[0]
    assert opset_of(lg.reduce_mean(y + 1.0, -1)) == 18


@pytest.mark.parametrize(("asked", "named"), [(12, "opset 12"), (99, "opset 99")])
def test_an_opset_out_of_range_is_refused(asked: int, named: str) -> None:
    with pytest.raises(lg.UnsupportedError, match=named):
        to_onnx(CASES["Add"][0](), opset=asked)


def test_a_fixed_opset_below_what_a_node_needs_is_refused_on_the_users_line() -> None:
    y = call("LayerNormalization", [X, (F32, [4])], [X], opset=16)[0]
    with pytest.raises(lg.UnsupportedError) as caught:
        to_onnx(y)
    assert str(caught.value).startswith("layer_normalization: opset 17 is needed, and the graph's is 16\n")
    assert "test_versions.py:" in str(caught.value)


def test_a_fixed_opset_is_the_one_that_is_written() -> None:
    x = lg.input("x", F32, ["n", 4], opset=17)
    assert opset_of(x + x) == 17


def test_a_fixed_opset_takes_its_own_signatures() -> None:
    old = call("ReduceMean", [X], [(F32, ["n", 1])], opset=17, axes=[1])[0]
    assert opset_of(old) == 17
    converted = to_onnx(call("ReduceMean", [X], [(F32, ["n", 1])], axes=[1])[0], opset=20)
    (mean,) = [node for node in converted.graph.node if node.op_type == "ReduceMean"]
    assert [entry.version for entry in converted.opset_import] == [20]
    assert len(mean.input) == 2 and not any(attribute.name == "axes" for attribute in mean.attribute)


def test_asking_for_another_opset_than_the_fixed_one_converts() -> None:
    x = lg.input("x", F32, [1], opset=17)
    assert [entry.version for entry in to_onnx(x + x, opset=18).opset_import] == [18]


def test_a_call_that_no_version_accepts_is_an_error_on_the_users_line() -> None:
    bad = call("Add", [X, (I64, ["n", 4])], [X])[0]
    with pytest.raises(lg.ExportError, match=r"(?s)no version of the operator accepts this call: .*test_versions\.py"):
        to_onnx(bad)


def test_each_domain_is_imported_once_and_only_when_used() -> None:
    x = lg.input("x", F32, [1, 4])
    y = x.graph.emit("FusedMatMul", (x, x), {"transB": 1}, [(F32, (1, 1))], "com.microsoft")[0]
    y = y.graph.emit("FusedMatMul", (y, y), {}, [(F32, (1, 1))], "com.microsoft")[0]
    model = to_onnx(y)
    assert [(entry.domain, entry.version) for entry in model.opset_import] == [("", 13), ("com.microsoft", 1)]
    assert open_session(model).run(None, {"x": np.ones((1, 4), np.float32)})[0].tolist() == [[16.0]]
    assert [entry.domain for entry in to_onnx(x + x).opset_import] == [""]


IR_CASES = {
    "Add": 7,
    "Shape from an axis": 8,
    "Cast to float8": 9,
    "Cast to int4": 10,
    "RMSNormalization": 11,
    "Mod of floats, floored": 14,
}


@pytest.mark.parametrize("case", IR_CASES)
def test_the_lowest_ir_version_is_written(case: str) -> None:
    assert to_onnx(CASES[case][0]()).ir_version == IR_CASES[case]


@pytest.mark.parametrize(
    ("dtype", "expected"),
    [("bfloat16", 7), ("float8_e5m2", 9), ("uint4", 10), ("float4_e2m1fn", 11), ("float8_e8m0fnu", 12), ("int2", 13)],
)
def test_an_element_type_brings_its_ir_version(dtype: str, expected: int) -> None:
    assert versions.ir_version({"": 13}, {lg.float32, lg.input("x", dtype, [1]).dtype}) == expected


def test_a_higher_ir_version_can_be_asked_for_and_a_lower_one_is_refused() -> None:
    x = lg.input("x", F32, [1])
    assert to_onnx(x + x, ir_version=10).ir_version == 10
    with pytest.raises(lg.OperandError, match="IR version 6"):
        to_onnx(x + x, ir_version=6)


# Every version of an operator after opset 13 was read for changes of meaning. What stands here was read with onnx 1.23.
READ_UP_TO = 28


def test_every_new_operator_version_was_read_for_changes_of_meaning() -> None:
    newer = sorted(
        {
            f"{schema.name}-{schema.since_version}"
            for schema in defs.get_all_schemas_with_history()
            if schema.domain == "" and schema.since_version > READ_UP_TO
        }
    )
    assert not newer, "read these, add what changed to versions._CHANGES, then raise READ_UP_TO"
