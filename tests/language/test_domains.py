"""``lg.op.ml``, ``lg.op.preview``, ``lg.op.training`` and ``lg.op.microsoft``: the operators of the other domains."""

from __future__ import annotations

import pydoc
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

import lazygraph as lg
from lazygraph.evaluate import realize
from lazygraph.ops.contrib import contrib_names, contrib_schema
from lazygraph.ops.contrib_table import TABLE
from lazygraph.ops.schema import DOMAINS

OP: Any = lg.op  # some of these calls are wrong, as their types say


def _x(*shape: int | str, dtype: Any = "float32") -> lg.Tensor:
    return lg.input("x", dtype, shape)


def _opsets(x: lg.Tensor) -> dict[str, int]:
    return {entry.domain: entry.version for entry in lg.to_onnx(x).opset_import}


@pytest.mark.parametrize("place", ["ml", "preview", "training"])
def test_every_operator_of_a_domain_of_onnx_is_there(place: str) -> None:
    names = {s.name for s in onnx.defs.get_all_schemas() if s.domain == DOMAINS[place] and not s.deprecated}
    assert names
    assert set(dir(getattr(OP, place))) == names
    assert all(callable(getattr(getattr(OP, place), name)) for name in names)


def test_ml_operators_import_their_own_opset_and_run() -> None:
    x = _x("n", 3)
    y = OP.ml.Normalizer(x, norm="L1")
    assert (y.dtype, tuple(y.shape)) == ("float32", ("n", 3))
    assert _opsets(y) == {"": 13, "ai.onnx.ml": 1}
    np.testing.assert_allclose(realize(y, {"x": np.array([[1, 2, 1]], np.float32)}), [[0.25, 0.5, 0.25]])

    labels = OP.ml.LabelEncoder(_x(2, dtype="int64"), keys_int64s=[1, 2], values_strings=["one", "two"])
    assert (labels.dtype, labels.shape) == ("string", (2,))
    assert realize(labels, {"x": np.array([2, 1])}).tolist() == ["two", "one"]


def test_a_classifier_gives_labels_and_scores() -> None:
    made = OP.ml.LinearClassifier(_x("n", 2), coefficients=[1.0, 0, 0, 1], intercepts=[0.0, 0], classlabels_ints=[7, 8])
    labels, scores = made
    assert (labels.dtype, tuple(scores.shape)) == ("int64", ("n", 2))
    found = realize([labels, scores], {"x": np.array([[3, 1], [1, 2]], np.float32)})
    assert found[0].tolist() == [7, 8]
    np.testing.assert_allclose(found[1], [[3, 1], [1, 2]])


def test_contrib_operators_are_checked_against_their_schema() -> None:
    x = _x("n", 4)
    with pytest.raises(lg.OperandError, match="did you mean alpha"):
        OP.microsoft.FusedMatMul(x, x, alpa=2.0)
    with pytest.raises(lg.OperandError, match="alpha, a number"):
        OP.microsoft.FusedMatMul(x, x, alpha="2")
    with pytest.raises(lg.OperandError, match="operand 'B' is missing"):
        OP.microsoft.FusedMatMul(x)
    with pytest.raises(lg.DTypeError, match="element types differ"):
        OP.microsoft.FusedMatMul(x, x.astype("float64"))
    with pytest.raises(lg.DTypeError, match="A is int8"):
        OP.microsoft.FusedMatMul(x.astype("int8"), x.astype("int8"), transB=1)


def test_contrib_operators_without_a_rule_leave_the_shape_to_the_run() -> None:
    x = _x("n", 4)
    y = OP.microsoft.CDist(x, x)
    assert (y.dtype, y.known_shape) == ("float32", None)
    more = lg.relu(y) + 1.0
    assert _opsets(more) == {"": 14, "com.microsoft": 1} or _opsets(more) == {"": 13, "com.microsoft": 1}
    np.testing.assert_allclose(realize(more, {"x": np.zeros((1, 4), np.float32)}), np.ones((1, 1)))
    assert [str(size) for size in lg.declare_shape(y, ["n", "n"]).shape] == ["n", "n"]


def test_contrib_operators_with_several_outputs_and_with_a_rule() -> None:
    x = _x(1, 2, 4)
    made = OP.microsoft.SkipLayerNormalization(x, x, np.ones(4, np.float32))
    assert len(made) == 4
    assert OP.microsoft.MoE(_x(3, 4), *_experts()).shape == (3, 4)
    with pytest.raises(lg.ShapeError, match="router does not fit"):
        OP.microsoft.MoE(_x(5, 4), *_experts())


def _experts() -> list[Any]:
    sizes = {"router": (3, 2), "fc1": (2, 8, 4), "bias": None, "fc2": (2, 4, 8)}
    return [None if shape is None else np.ones(shape, np.float32) for shape in sizes.values()]


def test_a_contrib_operator_that_the_cpu_has_no_kernel_for_is_refused() -> None:
    made = OP.microsoft.GemmFloat8(_x(2, 2), np.ones((2, 2), np.float32))
    assert made.dtype == "float32"  # by its attribute's default
    doubled = OP.microsoft.QuickGelu(_x(2, dtype="float64"))
    with pytest.raises(lg.UnsupportedError, match="cannot run it on float64"):
        lg.to_onnx(doubled, target="cpu")


def test_a_name_of_another_domain_says_where_it_is() -> None:
    with pytest.raises(lg.UnknownOpError, match=r"did you mean lg\.op\.microsoft\.BiasGelu"):
        OP.BiasGelu  # noqa: B018
    with pytest.raises(lg.UnknownOpError, match=r"did you mean lg\.op\.Add"):
        OP.ml.Add  # noqa: B018
    with pytest.raises(lg.UnknownOpError, match="did you mean BiasGelu"):
        OP.microsoft.BiasGalu  # noqa: B018
    with pytest.raises(lg.UnsupportedError, match=r"deprecated in ai\.onnx\.ml"):
        OP.ml.TreeEnsembleRegressor  # noqa: B018


def test_help_shows_a_contrib_schema() -> None:
    text = pydoc.plain(pydoc.render_doc(OP.microsoft.FusedMatMul))
    assert "FusedMatMul(A, B, /, *, alpha=1.0, transA=0, transB=0, transBatchA=0, transBatchB=0)" in text
    assert "Spec: com.microsoft::FusedMatMul-1." in text


def test_every_contrib_schema_can_be_read() -> None:
    assert len(contrib_names()) >= 140
    for name in contrib_names():
        schema = contrib_schema(name)
        assert schema.name == name
        assert schema.min_input <= schema.max_input


@pytest.mark.skipif(not onnxruntime.__version__.startswith("1.32"), reason="the table is that of onnxruntime 1.32")
def test_the_contrib_table_is_that_of_the_installed_onnxruntime() -> None:
    from onnxruntime.capi import onnxruntime_pybind11_state as state

    from lazygraph.export import contribs

    assert TABLE.strip("\n") == contribs.written(state.get_all_operator_schema())


@pytest.mark.skipif(not onnxruntime.__version__.startswith("1.32"), reason="the table is that of onnxruntime 1.32")
def test_the_contrib_table_says_what_onnxruntimes_schemas_say() -> None:
    from onnxruntime.capi import onnxruntime_pybind11_state as state

    schemas = [s for s in state.get_all_operator_schema() if s.domain == DOMAINS["microsoft"]]
    for theirs in schemas:
        ours = contrib_schema(theirs.name)
        for limit in ("min_input", "max_input", "min_output", "max_output"):
            assert getattr(ours, limit) == getattr(theirs, limit), (theirs.name, limit)
        assert [(formal.name, formal.type_str) for formal in ours.inputs] == [
            (formal.name, formal.typeStr) for formal in theirs.inputs
        ]
        assert set(ours.attributes) == set(theirs.attributes)
        for name, attribute in theirs.attributes.items():
            assert ours.attributes[name].required == attribute.required, (theirs.name, name)


def test_optimisers_give_back_what_they_update() -> None:
    x = _x(3)
    given = [lg.zeros([3], anchor=x) for _ in range(3)]
    rate, count = x.const(np.float32(0.1)), x.const(np.int64(0))
    made = OP.training.Adam(rate, count, x, *given)
    assert [tensor.shape for tensor in made] == [(3,)] * 3
    with pytest.raises(lg.OperandError, match="as many of each of 4 kinds"):
        OP.training.Adam(rate, count, x, *given[:2])
