"""The reading call: kind by lowering by element type by chunking, exported, against attention in plain numpy."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lazygraph as lg
from lazygraph import latent, nn
from lazygraph.cache import LatentCache, RotatingCache
from lazygraph.dtypes import as_dtype
from lazygraph.memory import Lowering, Memory
from tests.support.stepping import Runner, kept_positions, ring_rows

Array = np.ndarray[Any, Any]

LAYERS, HEADS, KV, WIDTH, LONGEST = 2, 4, 2, 8, 40
RANK, ROPE, NOPE, V = 12, 4, 6, 5
CHUNKINGS = [[1] * 20, [20], [6, 1, 1, 1, 1], [5, 1, 1], [4, 3, 9, 2], [3, 5, 1], [8, 1, 12], [2, 17, 1], [1, 40 - 1]]


@dataclass(frozen=True)
class Kind:
    """A kind of cache: the window None for none, and the layers that slide."""

    window: int | None = None
    sinks: int = 0
    layers: tuple[int, ...] | None = None
    attention: Literal["heads", "absorbed", "expanded", "auto"] = "heads"


KINDS = {
    "rows": Kind(),
    "latent": Kind(attention="auto"),
    "window": Kind(window=6),
    "window of one": Kind(window=1),
    "window and sinks": Kind(window=5, sinks=2),
    "sinks, window of one": Kind(window=1, sinks=3),
    "one layer slides": Kind(window=4, layers=(1,)),
    "latent window": Kind(window=6, sinks=1, attention="absorbed"),
    "expanded window": Kind(window=6, attention="expanded"),
}
LOWERINGS: tuple[Lowering, ...] = ("buffer", "view", "concat")
TYPES = {"float32": ("float32", "float32"), "float16": ("float16", "float16"), "bfloat16 rows": ("float32", "bfloat16")}


def exported(folder: Path, kind: Kind, lowering: Lowering, compute: str, kept: str) -> tuple[Path, tuple[Memory, ...]]:
    """Save the graph of one step: queries and new rows in, attention out."""
    n = lg.size("n", min=1, max=LONGEST)
    if kind.attention == "heads":
        shapes: dict[str, list[Any]] = {"q": [n, HEADS, WIDTH], "k": [n, KV, WIDTH], "v": [n, KV, WIDTH]}
        trailing = [[KV, WIDTH], [KV, WIDTH]]
    else:
        shapes = {
            "q": [HEADS, n, NOPE],
            "q_pe": [HEADS, n, ROPE],
            "k": [n, RANK],
            "v": [n, ROPE],
            "w_uk": [HEADS, NOPE, RANK],
            "w_uv": [HEADS, RANK, V],
        }
        trailing = [[RANK], [ROPE]]
    first = lg.input("q", compute, shapes["q"])
    t = {"q": first} | {name: lg.input(name, compute, shapes[name], anchor=first) for name in shapes if name != "q"}
    common: dict[str, Any] = {"slot_names": ("k", "v"), "lowering": lowering}
    cache: LatentCache
    if kind.window is None:
        cache = LatentCache.inputs(first, LAYERS, LONGEST, trailing, kept, **common)
    else:
        ring: dict[str, Any] = {"window": kind.window, "sinks": kind.sinks, "layers": kind.layers}
        cache = RotatingCache.inputs(first, LAYERS, LONGEST, trailing, kept, **ring, **common)
    memory = cache.memory()

    step = cache.step("n")
    mixed = {"positions": step.positions}
    for layer in range(LAYERS):

        def mix(rows: Any, mask: lg.Tensor) -> lg.Tensor:
            if kind.attention == "heads":
                return nn.attention(t["q"], rows[0], rows[1], mask, 0.5)
            query = nn.LatentQuery(t["q"], t["q_pe"], t["w_uk"], t["w_uv"], mask, 0.5)
            return latent.latent_attention(query, rows[0], rows[1], kind.attention)

        new = [t["k"] * (layer + 1), t["v"] * (layer + 1)]
        mixed[f"mixed.{layer}"], cache = cache.attend(layer, new, step, mix)
    path = folder / "model.onnx"
    model = lg.save({**cache.advance_by("n").outputs(), **mixed}, path)
    if lowering != "concat":
        assert lg.shared_memory_faults(model, {slot.source: slot.target for slot in memory}) == {}
    return path, memory


def rounded(numbers: Array, dtype: str) -> Array:
    """Return numbers as they are after they were kept in an element type, in float64."""
    return np.asarray(numbers.astype(as_dtype(dtype).numpy).astype(np.float64))


def wanted(kind: Kind, layer: int, given: dict[str, Array], length: int, k: Array, v: Array) -> Array:
    """Return attention of queries at positions from ``length`` on, over the whole text with the window's mask."""
    n = given["k"].shape[0]
    here, there = length + np.arange(n)[:, None], np.arange(length + n)[None]
    visible = there <= here
    if kind.window is not None and (kind.layers is None or layer in kind.layers):
        visible &= (there > here - kind.window) | (there < kind.sinks)
    if kind.attention == "heads":
        q = given["q"].astype(np.float64)
        scores = np.einsum("nhd,rhd->hnr", q, np.repeat(k, HEADS // KV, 1)) * 0.5
        values = np.repeat(v, HEADS // KV, 1).transpose(1, 0, 2)
    else:
        keys = np.einsum("hor,cr->hco", given["w_uk"].astype(np.float64), k)
        values = np.einsum("cr,hrv->hcv", k, given["w_uv"].astype(np.float64))
        scores = np.einsum("hno,hco->hnc", given["q"].astype(np.float64), keys)
        scores = (scores + np.einsum("hnp,cp->hnc", given["q_pe"].astype(np.float64), v)) * 0.5
    scores = np.where(visible, scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    return np.asarray(np.einsum("hnr,hrv->nhv", weights, values).reshape(n, -1))


def drive(kind: Kind, runners: list[Runner], chunks: list[int], compute: str, kept: str, seed: int) -> None:
    """Run chunks through every runner, all of them against numpy and against each other."""
    random = np.random.default_rng(seed)
    as_given = as_dtype(compute).numpy

    def numbers(*shape: int) -> Array:
        return random.normal(size=shape).astype(as_given)

    weights = {"w_uk": numbers(HEADS, NOPE, RANK) / 4, "w_uv": numbers(HEADS, RANK, V) / 4}
    width = KV * WIDTH
    sizes = ((KV, WIDTH), (KV, WIDTH)) if kind.attention == "heads" else ((RANK,), (ROPE,))
    text = [[np.zeros((0, *size)) for size in sizes] for _ in range(LAYERS)]
    length = 0
    for n in chunks:
        given = {"k": numbers(n, *sizes[0]), "v": numbers(n, *sizes[1])}
        if kind.attention == "heads":
            given["q"] = numbers(n, HEADS, WIDTH)
            width = HEADS * WIDTH
        else:
            given |= {"q": numbers(HEADS, n, NOPE), "q_pe": numbers(HEADS, n, ROPE), **weights}
            width = HEADS * V
        results = {f"mixed.{layer}": (n, width) for layer in range(LAYERS)} | {"positions": (n,)}
        got = [runner.run(given, n, results) for runner in runners]
        for layer in range(LAYERS):
            for slot, name in enumerate("kv"):
                new = rounded(given[name] * np.array(layer + 1, as_given), kept)
                text[layer][slot] = np.concatenate([text[layer][slot], new])
            expected = wanted(kind, layer, given, length, *text[layer])
            tolerance = (2e-5 if compute == "float32" else 6e-3) * max(1.0, np.abs(expected).max())
            for found in got:
                mixed = found[f"mixed.{layer}"]
                assert np.isfinite(mixed).all()
                np.testing.assert_allclose(mixed.astype(np.float64), expected, rtol=0, atol=tolerance)
                np.testing.assert_array_equal(found["positions"], length + np.arange(n))
        length += n
        for runner in runners:
            for memory in runner.memory:
                kept_rows = kept_positions(memory, length)
                rows = np.arange(len(kept_rows)) if runner.lowering == "concat" else ring_rows(memory, kept_rows)
                held = runner.held[memory.source][rows].astype(np.float64)
                np.testing.assert_array_equal(held, text[memory.layer]["kv".index(memory.slot)][kept_rows])


@pytest.mark.parametrize("types", TYPES.values(), ids=TYPES.keys())
@pytest.mark.parametrize("lowering", LOWERINGS)
@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS.keys())
def test_attention_is_that_over_the_whole_text_in_every_chunking(
    tmp_path: Path, kind: Kind, lowering: Lowering, types: tuple[str, str]
) -> None:
    path, memory = exported(tmp_path, kind, lowering, *types)
    for seed, chunks in enumerate(CHUNKINGS):
        # Rows that hold nothing are NaN where nobody may look at them.
        runners = [Runner(path, memory, lowering, poison=np.nan, spare=3)]
        if lowering != "concat":
            runners.append(Runner(path, memory, lowering, poison=np.nan, in_place=True))
        drive(kind, runners, chunks, *types, seed)


@pytest.fixture(scope="module")
def rings(tmp_path_factory: pytest.TempPathFactory) -> dict[Lowering, tuple[Path, tuple[Memory, ...]]]:
    kind = KINDS["window and sinks"]
    return {how: exported(tmp_path_factory.mktemp(how), kind, how, "float32", "float32") for how in LOWERINGS}


@settings(max_examples=30, deadline=None)
@given(chunks=st.lists(st.integers(1, 12), min_size=1, max_size=8), seed=st.integers(0, 99), data=st.data())
def test_a_window_with_sinks_holds_in_chunks_of_any_size(
    rings: dict[Lowering, tuple[Path, tuple[Memory, ...]]], chunks: list[int], seed: int, data: st.DataObject
) -> None:
    lowering = data.draw(st.sampled_from(LOWERINGS))
    while sum(chunks) > LONGEST:
        chunks.pop()
    path, memory = rings[lowering]
    runners = [Runner(path, memory, lowering, poison=np.nan, in_place=lowering != "concat")]
    drive(KINDS["window and sinks"], runners, chunks, "float32", "float32", seed)


def test_a_chunk_longer_than_the_window_writes_no_row_twice(tmp_path: Path) -> None:
    # onnxruntime writes duplicate rows in any order; of one chunk of 9, a window of 4 must hold the last 4, always.
    kind = Kind(window=4)
    path, memory = exported(tmp_path, kind, "buffer", "float32", "float32")
    for seed in range(20):
        drive(kind, [Runner(path, memory, "buffer", in_place=True)], [9, 31], "float32", "float32", seed)
    n = lg.size("n", min=1, max=LONGEST)
    x = lg.input("x", "float32", [n, 3])
    cache = RotatingCache.inputs(x, 1, LONGEST, [[3]], window=4, sinks=1).append(0, [x])
    model = lg.to_onnx(cache.outputs())
    write = next(node for node in model.graph.node if node.op_type == "ScatterND")
    index = write.input[1]
    model.graph.output.add(name=index)
    import onnxruntime

    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    for past in range(12):
        for count in range(1, 13):
            feeds = {"x": np.zeros((count, 3), np.float32), "past_len": np.array(past)}
            rows = session.run([index], feeds | {"past.0.slot0": np.zeros((5, 3), np.float32)})[0]
            assert len(set(rows.ravel().tolist())) == rows.size


# --- at a known position ---


@pytest.mark.parametrize("sinks", [0, 2])
@pytest.mark.parametrize("window", [1, 3, 8])
@pytest.mark.parametrize("chunks", [[8, 1], [9], [3, 5, 1], [6, 1, 1, 1], [1, 20, 2], [1] * 9])
def test_a_graph_of_known_positions_attends_and_keeps_alike(window: int, sinks: int, chunks: list[int]) -> None:
    total = sum(chunks)
    random = np.random.default_rng(0)
    given = {name: random.normal(size=(total, 2, 4)).astype(np.float32) for name in "qkv"}
    base = lg.input("q", "float32", [total, 2, 4])
    t = {name: lg.input(name, "float32", [total, 2, 4], anchor=base) if name != "q" else base for name in "qkv"}
    cache = RotatingCache(base, 1, total, [[2, 4], [2, 4]], window=window, sinks=sinks)
    found, start = [], 0
    for n in chunks:
        q, k, v = (t[name][start : start + n] for name in "qkv")
        step = cache.step(n)

        def mix(rows: Any, mask: lg.Tensor, q: lg.Tensor = q) -> lg.Tensor:
            return nn.attention(q, rows[0], rows[1], mask, 0.5)

        result, cache = cache.attend(0, [k, v], step, mix)
        cache = cache.advance_by(n)
        start += n
        assert cache.current_seq_len == start
        found.append(result)
    got = lg.realize({"mixed": lg.concat(found, axis=0), "kept": cache.slot(0, 0)}, given)

    here, there = np.arange(total)[:, None], np.arange(total)[None]
    visible = (there <= here) & ((there > here - window) | (there < sinks))
    scores = np.where(visible, np.einsum("nhd,rhd->hnr", given["q"], given["k"]) * 0.5, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    expected = np.einsum("hnr,rhd->nhd", weights / weights.sum(-1, keepdims=True), given["v"]).reshape(total, -1)
    np.testing.assert_allclose(got["mixed"], expected, rtol=0, atol=2e-5)
    memory = cache.memory()[0]
    assert (memory.kind, memory.capacity, memory.window, memory.sinks) == ("window", window + sinks, window, sinks)
    kept = kept_positions(memory, total)
    np.testing.assert_array_equal(got["kept"][ring_rows(memory, kept)], given["k"][kept])


def test_append_alone_keeps_the_last_rows_and_continues_from_buffers() -> None:
    x = lg.input("x", "float32", [9, 2])
    cache = RotatingCache(x, 1, 30, [[2]], window=4, position=3, buffers=[[x.const(np.zeros((4, 2), np.float32))]])
    after = cache.append(0, [x]).advance_by(9)
    assert after.current_seq_len == 12 and cache.current_seq_len == 3
    rows = np.arange(18, dtype=np.float32).reshape(9, 2)
    got = lg.realize(after.slot_buffer_full(0, 0), {"x": rows})
    np.testing.assert_array_equal(got, rows[5:])  # positions 8 to 11 lie in rows 0 to 3
    assert cache.append(0, [x[:0]]) is cache


# --- what is refused ---


@pytest.mark.parametrize(
    ("changed", "error", "what"),
    [
        ({"window": 0}, lg.CacheError, "window is 0"),
        ({"window": 2.0}, lg.CacheError, "window is 2.0"),
        ({"window": None}, lg.CacheError, "window is None"),
        ({"sinks": -1}, lg.CacheError, "sinks is -1"),
        ({"sinks": True}, lg.CacheError, "sinks is True"),
        ({"layers": [2]}, lg.CacheLayerError, "layer 2 of a cache with 2"),
        ({"layers": []}, lg.CacheLayerError, "no layer slides"),
        ({"layers": 1}, lg.CacheLayerError, "layers is 1"),
        ({"position": 31}, lg.CacheError, "position 31 of 30 rows"),
        ({"max_seq_len": 0}, lg.CacheError, "max_seq_len is 0"),
    ],
)
def test_an_impossible_window_is_refused(changed: dict[str, Any], error: type[lg.CacheError], what: str) -> None:
    x = lg.input("x", "float32", ["n", 4])
    declared: dict[str, Any] = {"n_layers": 2, "max_seq_len": 30, "slot_trailing": [[4]], "window": 3}
    with pytest.raises(error) as caught:
        RotatingCache(x, **{**declared, **changed})
    assert type(caught.value) is error and caught.value.what == what


def test_the_contract_of_writing_is_that_of_every_cache() -> None:
    x = lg.input("x", "float32", [3, 4])
    cache = RotatingCache(x, 2, 10, [[4]], window=2, position=6)
    step = cache.step(3)

    def mix(rows: Any, mask: lg.Tensor) -> lg.Tensor:
        raise AssertionError("nothing is computed before an append is right")

    wrong = lg.input("y", "float32", [3, 5], anchor=x)
    for call in (lambda bad: cache.append(0, bad), lambda bad: cache.attend(0, bad, step, mix)):
        with pytest.raises(lg.SlotShapeError):
            call([wrong])
        with pytest.raises(lg.SlotCountError):
            call([x, x])
        with pytest.raises(lg.SlotCountError):
            call(x)
    with pytest.raises(lg.CacheLayerError):
        cache.attend(2, [x], step, mix)
    with pytest.raises(lg.CacheLayerError):
        cache.causal_mask(3, layer=-1)
    once = cache.append(0, [x])
    with pytest.raises(lg.CacheStepError):
        once.append(0, [x])
    with pytest.raises(lg.CacheStepError):
        once.advance_by(3)
    with pytest.raises(lg.CacheOverflowError) as caught:
        once.append(1, [x]).advance_by(3).append(0, [x])
    assert caught.value.wanted == 10
    assert repr(cache) == "RotatingCache(2 layers x (slot0 [4]) float32, window of 2, 6/10 rows, 64 bytes)"
    mixed = RotatingCache(x, 2, 10, [[4]], window=2, sinks=1, layers=[1])
    assert "window of 2 and 1 sinks in 1 layers, 0/10 rows, 208 bytes" in repr(mixed)
    assert [mixed.slides(layer) for layer in range(2)] == [False, True]


def test_a_lowering_that_is_none_is_refused() -> None:
    x = lg.input("x", "float32", ["n", 4])
    with pytest.raises(lg.CacheError, match="lowering is 'ring'"):
        LatentCache.inputs(x, 1, 8, [[4]], lowering="ring")  # type: ignore[arg-type]
    assert next(iter(lg.to_onnx(x + 1.0).graph.input)).name == "x"  # and no input was made


# --- masks ---


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_no_mask_makes_nan_and_a_row_that_sees_nothing_gets_zeros(dtype: str) -> None:
    # All visible, one visible, none, and one great negative score that is visible.
    visible = np.array([[1, 1, 1], [0, 1, 0], [0, 0, 0], [1, 0, 0]], bool)
    scores = np.array([[0, 1, 2], [60000, -60000, 60000], [1, 2, 3], [-20000, 60000, 60000]], dtype)
    x = lg.input("scores", dtype, ["n", "rows"])
    mask = lg.input("visible", lg.bool_, ["n", "rows"], anchor=x)
    weights = nn.masked_softmax(x, mask)
    added = nn.masked_softmax(x, nn.additive_mask(mask))
    got = lg.realize({"weights": weights, "added": added}, {"scores": scores, "visible": visible})
    first = np.exp([0, 1, 2]) / np.exp([0, 1, 2]).sum()
    np.testing.assert_allclose(got["weights"], [first, [0, 1, 0], [0, 0, 0], [1, 0, 0]], atol=1e-6)
    assert (got["weights"][~visible] == 0).all()
    assert np.isfinite(got["added"]).all()
    np.testing.assert_allclose(got["added"][[0, 1, 3]], got["weights"][[0, 1, 3]], atol=1e-6)

    from onnx.reference import ReferenceEvaluator

    by_letter: list[Any] = list(
        ReferenceEvaluator(lg.to_onnx(weights)).run(None, {"scores": scores, "visible": visible})
    )
    np.testing.assert_allclose(by_letter[0], got["weights"], atol=1e-6)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_attention_of_a_token_that_sees_nothing_is_zero(dtype: str) -> None:
    q = lg.input("q", dtype, ["n", 2, 4])
    k = lg.input("k", dtype, ["rows", 1, 4], anchor=q)
    visible = lg.input("visible", lg.bool_, ["n", "rows"], anchor=q)
    random = np.random.default_rng(0)
    feeds = {"q": random.normal(size=(2, 2, 4)).astype(dtype), "k": random.normal(size=(3, 1, 4)).astype(dtype)}
    feeds["visible"] = np.array([[0, 0, 0], [0, 1, 0]], bool)
    got = lg.realize(nn.attention(q, k, k, visible, 0.5), feeds)
    np.testing.assert_array_equal(got, [np.zeros(8, dtype), np.tile(feeds["k"][1, 0], 2)])


def test_keys_and_values_in_different_parts_are_refused() -> None:
    q = lg.input("q", "float32", [1, 2, 4])
    k = lg.input("k", "float32", [3, 1, 4], anchor=q)
    mask = lg.input("mask", "float32", [1, 6], anchor=q)
    with pytest.raises(lg.ShapeError, match="keys in 2 parts, values in 1"):
        nn.attention(q, [k, k], k, mask, 0.5)
