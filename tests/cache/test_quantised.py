"""Rows kept as codes of one byte: the bits, the bounds of the error, and attention over them, on exported files."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import ml_dtypes
import numpy as np
import onnxruntime
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lazygraph as lg
from lazygraph import nn
from lazygraph.cache.codes import FP8_NUMBERS
from lazygraph.cache.rotating import RotatingCache
from lazygraph.memory import Lowering

Array = np.ndarray[Any, Any]
CodeName = Literal["int8", "fp8"]
CAPACITY, HEADS, SIZE = 12, 2, 4


def session_of(outputs: dict[str, lg.Tensor], path: Path) -> onnxruntime.InferenceSession:
    lg.save(outputs, path)
    return onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])


def encoded(name: CodeName, rows: Array) -> tuple[Array, Array]:
    """Return codes and scales as numpy and ml_dtypes make them."""
    most = np.abs(rows).max(axis=tuple(range(1, rows.ndim)))
    scale = np.maximum(most * np.float32(1 / (127 if name == "int8" else 448)), np.float32(1e-30)).astype(np.float32)
    ratio = rows / scale.reshape(-1, *[1] * (rows.ndim - 1))
    if name == "int8":
        return np.round(ratio).astype(np.int8), scale
    return ratio.astype(ml_dtypes.float8_e4m3fn).view(np.uint8), scale


def decoded(name: CodeName, codes: Array, scale: Array) -> Array:
    numbers = codes.astype(np.float32) if name == "int8" else codes.view(ml_dtypes.float8_e4m3fn).astype(np.float32)
    result: Array = numbers * scale.reshape(-1, *[1] * (codes.ndim - 1))
    return result


@pytest.fixture(scope="module", params=["int8", "fp8"])
def round_trip(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    code, x = lg.Code(request.param), lg.input("x", "float32", ["n", 3, 5])
    codes, scale = code.encode(x)
    outputs = {"codes": codes, "scale": scale, "back": code.decode(codes, scale, lg.float32)}
    return request.param, session_of(outputs, tmp_path_factory.mktemp("codes") / "m.onnx")


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10_000), spread=st.sampled_from([0.0, 1.0, 6.0]), size=st.sampled_from([1e-6, 1.0, 1e6]))
def test_codes_are_numpys_and_the_error_keeps_its_bound(round_trip: Any, seed: int, spread: float, size: float) -> None:
    name, session = round_trip
    random = np.random.default_rng(seed)
    rows = random.normal(size=(7, 3, 5)) * np.exp(spread * random.normal(size=(7, 3, 5))) * size
    rows = rows.astype(np.float32)
    rows[3] = 0
    codes, scale, back = session.run(["codes", "scale", "back"], {"x": rows})
    wanted, scales = encoded(name, rows)
    np.testing.assert_array_equal(codes, wanted)
    np.testing.assert_allclose(scale, scales, rtol=1e-6)
    np.testing.assert_array_equal(back, decoded(name, codes, scale))
    most = np.abs(rows).max(axis=(1, 2), keepdims=True)
    bound = most / 254 if name == "int8" else np.maximum(np.abs(rows) / 16, most / 448 / 1024)
    assert (np.abs(back - rows) <= bound * (1 + 1e-5)).all()
    assert not back[3].any()


def test_every_byte_of_fp8_is_read_and_written_as_the_format_has_it(tmp_path: Path) -> None:
    every = np.arange(256).astype(np.uint8).view(ml_dtypes.float8_e4m3fn).astype(np.float32)
    np.testing.assert_array_equal(FP8_NUMBERS, every)
    finite = np.sort(every[np.isfinite(every)])
    # Each number, the middle of each two (ties go to even), and what lies a little to either side of it.
    middles = (finite[1:] + finite[:-1]) / 2
    numbers = np.concatenate([finite, middles, middles * (1 - 1e-6), middles * (1 + 1e-6), [448.0]]).astype(np.float32)
    x = lg.input("x", "float32", [1, len(numbers)])
    codes, scale = lg.Code("fp8").encode(x)
    got, one = session_of({"codes": codes, "scale": scale}, tmp_path / "m.onnx").run(None, {"x": numbers[None]})
    np.testing.assert_allclose(one, [1.0], rtol=1e-6)
    ours, theirs = FP8_NUMBERS[got[0]], (numbers / one).astype(ml_dtypes.float8_e4m3fn).astype(np.float32)
    np.testing.assert_array_equal(ours, theirs)


def test_onnxruntime_has_no_rows_of_fp8(tmp_path: Path) -> None:
    """Why fp8 is kept as its bits: when one of these operators learns it, this says so."""
    import onnx

    for op in ("ScatterND", "ScatterElements", "Slice", "Concat", "Gather", "Where"):
        newest = onnx.defs.get_schema(op)
        taken = {name for one in newest.inputs for name in one.types}
        assert "tensor(float8e4m3fn)" not in taken, op
    cast = onnx.helper.make_node("Cast", ["x"], ["y"], to=onnx.TensorProto.FLOAT8E4M3FN)
    bits = onnx.helper.make_node("BitCast", ["y"], ["z"], to=onnx.TensorProto.UINT8)
    x = onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [1])
    z = onnx.helper.make_tensor_value_info("z", onnx.TensorProto.UINT8, [1])
    model = onnx.helper.make_model(
        onnx.helper.make_graph([cast, bits], "g", [x], [z]),
        opset_imports=[onnx.helper.make_opsetid("", 26)],
        ir_version=13,
    )
    with pytest.raises(Exception, match="implementation for BitCast"):
        onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])


@pytest.mark.parametrize("chunks", [[12], [1] * 12, [5, 1, 6], [2, 9, 1]])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("kind", ["rows", "window"])
@pytest.mark.parametrize("lowering", ["buffer", "view", "concat"])
@pytest.mark.parametrize("name", ["int8", "fp8"])
def test_attention_over_codes_is_numpys(
    tmp_path: Path, name: CodeName, lowering: Lowering, kind: str, dtype: str, chunks: list[int]
) -> None:
    """Attention over exactly the rows that the codes give back, whatever the chunking, kind and lowering."""
    x = lg.input("x", dtype, [lg.size("n", min=1, max=CAPACITY), HEADS, SIZE])
    code, window = lg.Code(name), 5
    slots, dtypes = code.slots({"k": [HEADS, SIZE], "v": [HEADS, SIZE]})
    trailing, names = list(slots.values()), list(slots)
    if kind == "window":
        kept: lg.LatentCache = RotatingCache.inputs(
            x, 1, CAPACITY, trailing, dtypes, window=window, slot_names=names, lowering=lowering
        )
    else:
        kept = lg.LatentCache.inputs(x, 1, CAPACITY, trailing, dtypes, slot_names=names, lowering=lowering)
    cache = lg.QuantisedCache(kept, code)
    memory = cache.memory()
    assert [one.bytes_per_row for one in memory] == [HEADS * SIZE, 4] * 2
    y, cache = cache.attend(
        0, [x, x * 2.0], cache.step("n"), lambda rows, mask: nn.attention(x, rows[0], rows[1], mask, 0.5)
    )
    session = session_of({"y": y, **cache.advance_by("n").outputs()}, tmp_path / "m.onnx")

    random = np.random.default_rng(3)
    rows = random.normal(size=(CAPACITY, HEADS, SIZE)).astype(dtype)
    keys = decoded(name, *encoded(name, rows.astype(np.float32)))
    values = decoded(name, *encoded(name, (rows * np.array(2, dtype)).astype(np.float32)))
    scores = np.einsum("ihd,jhd->hij", rows.astype(np.float64), keys) * 0.5
    place = np.arange(CAPACITY)
    seen = (place[None] <= place[:, None]) & ((kind == "rows") | (place[None] > place[:, None] - window))
    weights = np.where(seen, np.exp(scores - scores.max()), 0)
    wanted = np.einsum("hij,jhd->ihd", weights / weights.sum(-1, keepdims=True), values).reshape(CAPACITY, -1)

    held = {
        one.source: np.zeros((0 if lowering == "concat" else one.capacity, *one.trailing), one.dtype) for one in memory
    }
    past, found = 0, []
    for count in chunks:
        bound = past + count if lowering == "view" else None
        feeds = {source: array[:bound] for source, array in held.items()}
        names_out = [output.name for output in session.get_outputs()]
        values_out = session.run(None, {"x": rows[past : past + count], "past_len": np.array(past), **feeds})
        got = dict(zip(names_out, values_out, strict=True))
        for one in memory:
            if lowering == "concat":
                held[one.source] = got[one.target]
            else:
                held[one.source][: len(got[one.target])] = got[one.target]
        found.append(got["y"])
        past += count
    np.testing.assert_allclose(np.concatenate(found), wanted, atol=1e-5 if dtype == "float32" else 1e-2)


def small() -> tuple[lg.Tensor, lg.QuantisedCache]:
    x, code = lg.input("x", "float32", [2, 4]), lg.Code("int8")
    slots, dtypes = code.slots({"a": [4]})
    return x, lg.QuantisedCache(lg.LatentCache(x, 2, 4, list(slots.values()), dtypes, slot_names=list(slots)), code)


def test_it_is_a_cache_like_others() -> None:
    x, cache = small()
    assert (
        repr(cache) == "QuantisedCache(int8 in LatentCache(2 layers x (a [4] + a.scale []) int8, 0/4 rows, 64 bytes))"
    )
    assert (cache.n_layers, cache.n_slots, cache.lowering, cache.code.name) == (2, 1, "buffer", "int8")
    after = cache.append(0, [x]).append(1, [x * 2.0]).advance_by(2)
    assert after.current_seq_len == 2 and cache.current_seq_len == 0
    rows = np.array([[1, -2, 0.5, 127], [0, 0, 0, 0]], np.float32)
    got = lg.realize({"first": after.slot(0, 0), "second": after.slot(1, 0)}, {"x": rows})
    np.testing.assert_allclose(got["first"], np.round(rows))
    np.testing.assert_allclose(got["second"], np.round(rows) * 2)


def test_refusals() -> None:
    x, cache = small()
    with pytest.raises(lg.SlotCountError, match="2 tensors for 1 slots"):
        cache.append(0, [x, x])
    with pytest.raises(lg.SlotShapeError, match="slot 0 of layer 1 has another shape"):
        cache.append(1, [x[:, :3]])
    with pytest.raises(lg.CacheLayerError, match="layer 2"):
        cache.append(2, [x])
    with pytest.raises(lg.CacheLayerError, match="slot 1 of a cache with 1"):
        cache.slot(0, 1)
    with pytest.raises(lg.CacheOverflowError):
        cache.append(0, [lg.concat([x, x, x], 0)])
    wrong: Any = "int4"
    with pytest.raises(lg.DTypeError, match="a code of 'int4'"):
        lg.Code(wrong)
    plain = lg.LatentCache(x, 1, 4, [[4], [4]])
    with pytest.raises(lg.SlotCountError, match="slots of float32, float32"):
        lg.QuantisedCache(plain, lg.Code("int8"))
    with pytest.raises(lg.SlotCountError, match="2 element types for 1 slots"):
        lg.LatentCache(x, 1, 4, [[4]], ["int8", "float32"])
