"""Other people's models, with what they are fed: those that onnx ships as test data, and its cases of one operator."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx
from onnx import ModelProto, TensorProto, numpy_helper

import lazygraph as lg
from lazygraph.export.session import Session, open_session

DATA = Path(os.path.dirname(onnx.__file__), "backend", "test", "data")

# Operators that draw numbers: two runs of one model differ as well.
RANDOM = {"Bernoulli", "Dropout", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform"}
RANDOM |= {"RandomUniformLike"}


class Model(NamedTuple):
    """A model and what it is fed, where that is known."""

    name: str
    proto: ModelProto
    feeds: dict[str, Any] | None

    @property
    def operators(self) -> frozenset[tuple[str, str, int]]:
        """Every operator that the model calls, with its domain and the opset."""
        opset = max([entry.version for entry in self.proto.opset_import if entry.domain == ""], default=0)
        return frozenset((node.op_type, node.domain, opset) for node in _nodes(self.proto.graph))


def _nodes(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from _nodes(attribute.g)


def files() -> list[Path]:
    """Return every model file that onnx ships as test data."""
    return sorted(DATA.rglob("*.onnx"))


def read(file: Path) -> Model:
    """Return a shipped model with the inputs that lie beside it."""
    proto = onnx.load(file)
    folder = file.parent / "test_data_set_0"
    feeds: dict[str, Any] | None = {} if folder.is_dir() else None
    for path in folder.glob("input_*.pb"):
        value = proto.graph.input[int(path.stem.split("_")[1])]
        if feeds is not None:
            feeds[value.name] = _stored(path.read_bytes(), value.type)
    return Model(str(file.relative_to(DATA)), proto, feeds)


def _stored(content: bytes, kind: onnx.TypeProto) -> Any:
    which = kind.WhichOneof("value")
    if which == "tensor_type":
        return numpy_helper.to_array(TensorProto.FromString(content))
    if which == "sequence_type":
        return numpy_helper.to_list(onnx.SequenceProto.FromString(content))
    return numpy_helper.to_optional(onnx.OptionalProto.FromString(content))


@lru_cache(maxsize=1)
def cases() -> tuple[Model, ...]:
    """Return all of onnx's cases of one operator, those written out as several calls too."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from onnx.backend.test.case.node import collect_testcases

        found = collect_testcases(None)
    models = []
    for case in found:
        if case.model is not None and case.data_sets:
            inputs = zip(case.model.graph.input, case.data_sets[0][0], strict=True)
            models.append(Model(case.name, case.model, {value.name: _value(fed) for value, fed in inputs}))
    return tuple(models)


def _value(value: Any) -> Any:
    if isinstance(value, TensorProto):
        return numpy_helper.to_array(value)
    if isinstance(value, (list, tuple)):
        return [_value(item) for item in value]
    return value


def outcome(model: Model) -> str:
    """Return what became of a model: ``equal``, ``not run`` where onnxruntime does not run the original, or a fault."""
    again = lg.to_onnx(lg.load(model.proto).outputs, target=None)
    before = results(model.proto, model.feeds)
    if before is None:
        return "not run"
    after = results(again, model.feeds)
    if after is None:
        return "onnxruntime runs the original, and not what was saved"
    if list(before) != list(after):
        return f"outputs {list(before)} became {list(after)}"
    if any(op in RANDOM for op, _, _ in model.operators):
        return "equal" if all(np.shape(before[name]) == np.shape(after[name]) for name in before) else "other shapes"
    return next((f"{name} differs" for name in before if not same(before[name], after[name])), "equal")


def results(proto: ModelProto, feeds: dict[str, Any] | None) -> dict[str, Any] | None:
    """Return what onnxruntime computes, None where it does not."""
    try:
        session = Session(open_session(proto, threads=1, severity=4))
        given = feeds if feeds is not None else _random(session)
        return dict(session.run({name: given[name] for name in session.inputs}))
    except (lg.ExportError, lg.UnsupportedError):
        return None


def _random(session: Session) -> dict[str, Any]:
    numbers = np.random.default_rng(0)
    made = {}
    for value in session.raw.get_inputs():
        dtype = session.inputs[value.name]
        assert dtype is not None
        made[value.name] = (numbers.random([size if isinstance(size, int) else 1 for size in value.shape])).astype(
            dtype.numpy
        )
    return made


def same(a: Any, b: Any) -> bool:
    """Return whether two results are the same to the bit."""
    if isinstance(a, (list, tuple)):
        return isinstance(b, (list, tuple)) and len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        return isinstance(b, dict) and a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if a is None or b is None:
        return a is b
    a, b = np.asarray(a), np.asarray(b)
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    return bool((a == b).all()) if a.dtype == object else a.tobytes() == b.tobytes()
