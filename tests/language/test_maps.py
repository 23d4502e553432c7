"""Maps: what ai.onnx.ml's ZipMap gives, and what DictVectorizer and CastMap take."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import onnx
import pytest

import lazygraph as lg
from lazygraph.dtypes import map_of, sequence_of
from lazygraph.export import open_session

X = np.array([[0.25, 0.75], [1, 0]], np.float32)


@pytest.mark.parametrize(
    ("attributes", "dtype", "wanted"),
    [
        ({"classlabels_int64s": [7, 9]}, "seq(map(int64,float32))", [{7: 0.25, 9: 0.75}, {7: 1.0, 9: 0.0}]),
        (
            {"classlabels_strings": ["no", "yes"]},
            "seq(map(string,float32))",
            [{"no": 0.25, "yes": 0.75}, {"no": 1, "yes": 0}],
        ),
    ],
)
def test_a_classifier_gives_its_labels(attributes: dict[str, Any], dtype: str, wanted: list[Any]) -> None:
    x = lg.input("x", lg.float32, ["n", 2])
    scores = lg.op.ml.ZipMap(x, **attributes)
    assert scores.dtype == dtype
    assert lg.realize(scores, {"x": X}) == wanted
    model = lg.to_onnx({"scores": scores}, target="cpu")
    assert model.graph.output[0].type.WhichOneof("value") == "sequence_type"
    onnx.checker.check_model(model, full_check=True)
    assert open_session(model).run(None, {"x": X})[0] == wanted


def test_maps_are_fed_as_dicts() -> None:
    votes = lg.input("votes", "map(string,float32)")
    row = lg.op.ml.DictVectorizer(votes, string_vocabulary=["a", "b", "c"])
    assert row.dtype is lg.float32
    assert lg.realize(row, {"votes": {"c": 3.0, "a": 1.0}}).tolist() == [[1, 0, 3]]
    counts = lg.input("counts", "map(int64,float32)")
    dense = lg.op.ml.CastMap(counts, cast_to="TO_FLOAT", map_form="DENSE")
    assert lg.realize(dense, {"counts": {0: 5.0, 2: 6.0}}).tolist() == [[5, 6]]


def test_a_model_with_maps_survives_loading() -> None:
    x = lg.input("x", lg.float32, ["n", 2])
    model = lg.to_onnx({"scores": lg.op.ml.ZipMap(x, classlabels_int64s=[7, 9])})
    again = lg.load(model)
    assert again.outputs["scores"].dtype == "seq(map(int64,float32))"
    assert lg.to_onnx(again.outputs).graph.output[0].type == model.graph.output[0].type
    assert "seq(map(int64,float32))" in lg.to_text(again.outputs)


def test_what_is_no_map_is_refused() -> None:
    assert map_of("int64", "float32") is map_of(lg.int64, np.float32)
    assert sequence_of("map(string,int64)") == "seq(map(string,int64))"
    with pytest.raises(lg.DTypeError, match="keys of an integer type or string"):
        map_of("float32", "float32")
    with pytest.raises(lg.DTypeError, match="a map from int64 to seq"):
        map_of("int64", "seq(int64)")
    votes = lg.input("votes", "map(string,float32)")
    row = lg.op.ml.DictVectorizer(votes, string_vocabulary=["a"])
    with pytest.raises(lg.DTypeError):
        lg.realize(row, {"votes": cast(Any, [1.0])})
    with pytest.raises(lg.DTypeError):
        lg.op.ml.DictVectorizer(lg.input("x", lg.float32, [2]), string_vocabulary=["a"])
