"""Layers that remember different things: rows, states, tensors filled once; on exported files, against numpy."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

import lazygraph as lg
from lazygraph import nn
from lazygraph.memory import Lowering, Memory
from lazygraph.tensor import Tensor

Array = np.ndarray[Any, Any]

CAPACITY, WIDTH, TAIL, FRAMES = 14, 4, 3, 5
CHUNKS = [[14], [1] * 14, [1, 13], [5, 1, 2, 6], [4, 4, 4, 1, 1]]


def layers(dtype: str, frames: Any = FRAMES) -> list[Any]:
    """A convolution's tail and a running sum; rows of two slots beside frames; rows of one number."""
    return [
        lg.State({"tail": [TAIL, WIDTH], "sum": []}, dtype),
        [lg.Rows({"a": [WIDTH], "b": [2, 2]}, dtype), lg.Once({"frames": [WIDTH]}, frames, dtype)],
        [lg.Rows({"last": []}, dtype), lg.State({"count": [1]}, "float32")],
    ]


def step(x: Tensor, cache: lg.LayeredCache, n: Any) -> tuple[dict[str, Tensor], lg.LayeredCache]:
    """Return everything that a step of the three layers sees, and the cache after it."""
    longer = lg.concat([cache.slot(0, "tail"), x], axis=0)  # (TAIL + n, WIDTH)
    total = cache.slot(0, "sum") + lg.reduce_sum(x)
    cache = cache.replace(0, [longer[-TAIL:], total])
    cache = cache.append(1, [x, lg.reshape(x * 2.0, [-1, 2, 2])])
    cache = cache.append(2, [x[:, 0]]).replace(2, [cache.slot(2, "count") + 1.0])
    seen = {
        "longer": longer,
        "a": cache.slot(1, 0, include_pending=True),
        "b": cache.slot(1, "b", include_pending=True),
        "frames": cache.slot(1, "frames") + 0.0,
        "last": cache.slot(2, "last", include_pending=True),
        "mask": cache.causal_mask(n),
        "positions": cache.positions(n),
    }
    return seen, cache.advance_by(n)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("lowering", ["buffer", "view", "concat"])
def test_every_chunking_is_what_numpy_remembers(tmp_path: Path, lowering: Lowering, dtype: str) -> None:
    x = lg.input("x", dtype, [lg.size("n", min=1, max=CAPACITY), WIDTH])
    cache = lg.LayeredCache.inputs(x, CAPACITY, layers(dtype, lg.size("frames", max=9)), lowering=lowering)
    memory = cache.memory()
    seen, cache = step(x, cache, "n")
    lg.save({**seen, **cache.outputs()}, tmp_path / "model.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx", providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    assert {one.target for one in memory if one.target} == {name for name in names if name.startswith("present.")}
    random = np.random.default_rng(5)
    given = random.integers(-8, 9, (CAPACITY, WIDTH)).astype(dtype)
    frames = random.normal(size=(FRAMES, WIDTH)).astype(dtype)

    for chunks in CHUNKS:
        held = {one.source: filled(one, lowering) for one in memory}
        held["past.1.frames"] = frames
        past = 0
        for turn, count in enumerate(chunks):
            bound = past + count if lowering == "view" else None
            feeds = {name: array[:bound] if by_rows(memory, name) else array for name, array in held.items()}
            feeds |= {"x": given[past : past + count], "past_len": np.array(past)}
            got = dict(zip(names, session.run(None, feeds), strict=True))
            done, new = given[: past + count], given[past : past + count]
            before = np.concatenate([np.zeros((TAIL, WIDTH), dtype), given[:past]])[-TAIL:]
            np.testing.assert_array_equal(got["longer"], np.concatenate([before, new]))
            np.testing.assert_array_equal(got["a"], done)
            np.testing.assert_array_equal(got["b"], (done * np.array(2, dtype)).reshape(-1, 2, 2))
            np.testing.assert_array_equal(got["last"], done[:, 0])
            np.testing.assert_array_equal(got["frames"], frames)
            np.testing.assert_array_equal(got["mask"], np.tri(count, past + count, past, dtype=bool))
            np.testing.assert_array_equal(got["positions"], past + np.arange(count))
            np.testing.assert_array_equal(got["present.0.sum"], done.sum(dtype=np.float64).astype(dtype))
            np.testing.assert_array_equal(got["present.2.count"], [turn + 1])
            for one in memory:
                if one.target and by_rows(memory, one.source) and lowering != "concat":
                    held[one.source][: len(got[one.target])] = got[one.target]
                elif one.target:
                    held[one.source] = got[one.target]
            past += count


def by_rows(memory: tuple[Memory, ...], source: str) -> bool:
    return any(one.source == source and one.kind == "rows" for one in memory)


def filled(one: Memory, lowering: Lowering) -> Array:
    """Return what a runtime begins with; rows that do not count hold what must never be seen."""
    if one.kind != "rows":
        return np.zeros(one.trailing, one.dtype)
    rows = 0 if lowering == "concat" else one.capacity
    return np.full((rows, *one.trailing), np.nan, one.dtype)


@pytest.mark.parametrize("chunks", [[14], [1] * 14, [3, 1, 7, 3], [4, 1, 9]])
@pytest.mark.parametrize("lowering", ["buffer", "view", "concat"])
def test_layers_that_see_everything_and_layers_that_slide_stand_together(
    tmp_path: Path, lowering: Lowering, chunks: list[int]
) -> None:
    """Attention of three layers over one text: everything, four tokens, three tokens and two sinks."""
    x = lg.input("x", "float32", [lg.size("n", min=1, max=CAPACITY), 2, 4])
    row = {"k": [2, 4], "v": [2, 4]}
    declared: list[Any] = [lg.Rows(row), lg.Window(row, 4), lg.State({"s": [1]}), lg.Window(row, 3, sinks=2)]
    cache = lg.LayeredCache.inputs(x, CAPACITY, declared, lowering=lowering)
    memory, step = cache.memory(), cache.step("n")
    assert [(one.kind, one.capacity, one.window, one.sinks) for one in memory if one.slot == "k"] == [
        ("rows", CAPACITY, 0, 0),
        ("window", 4, 4, 0),
        ("window", 5, 3, 2),
    ]
    outputs = {}
    for layer in (0, 1, 3):
        outputs[f"y{layer}"], cache = cache.attend(
            layer, [x, x * 2.0], step, lambda rows, mask: nn.attention(x, rows[0], rows[1], mask, 0.5)
        )
    cache = cache.replace(2, [cache.slot(2, "s") + 1.0]).advance_by("n")
    lg.save({**outputs, **cache.outputs()}, tmp_path / "m.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "m.onnx", providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    given = np.random.default_rng(2).normal(size=(CAPACITY, 2, 4)).astype(np.float32)
    rows_of = {one.source: 0 if lowering == "concat" else one.capacity for one in memory if one.kind != "state"}
    held = {
        one.source: np.zeros((*[rows_of[s] for s in [one.source] if s in rows_of], *one.trailing), np.float32)
        for one in memory
    }

    past, found = 0, []
    for count in chunks:
        bound = {source: min(past + count, rows) if lowering == "view" else None for source, rows in rows_of.items()}
        feeds = {source: array[: bound.get(source)] for source, array in held.items()}
        values = session.run(names, {"x": given[past : past + count], "past_len": np.array(past), **feeds})
        got = dict(zip(names, values, strict=True))
        for one in memory:
            if one.kind == "state" or lowering == "concat":
                held[one.source] = got[one.target]
            else:
                held[one.source][: len(got[one.target])] = got[one.target]
        found.append([got[f"y{layer}"] for layer in (0, 1, 3)])
        past += count
    assert held["past.2.s"] == [len(chunks)]
    place = np.arange(CAPACITY)
    before, away = place[None] <= place[:, None], place[:, None] - place[None]
    for number, seen in enumerate([before, before & (away < 4), before & ((away < 3) | (place[None] < 2))]):
        scores = np.einsum("ihd,jhd->hij", given, given) * 0.5
        weights = np.where(seen, np.exp(scores), 0)
        wanted = np.einsum("hij,jhd->ihd", weights / weights.sum(-1, keepdims=True), given * 2).reshape(CAPACITY, -1)
        np.testing.assert_allclose(np.concatenate([step[number] for step in found]), wanted, atol=1e-5)


def test_at_a_fixed_position_the_same_layers_make_one_step(tmp_path: Path) -> None:
    x = lg.input("x", "float32", [4, WIDTH])
    frames = lg.input("given", "float32", [FRAMES, WIDTH], anchor=x)
    cache = lg.LayeredCache(x, CAPACITY, layers("float32"))
    assert cache.fill(1, [frames]).slot(1, "frames") is frames
    first, cache = step(x[:3], cache.fill(1, [frames]), 3)
    second, cache = step(x[3:], cache, 1)
    assert cache.current_seq_len == 4
    lg.save({**{f"first.{k}": v for k, v in first.items()}, **second, **cache.outputs()}, tmp_path / "m.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "m.onnx", providers=["CPUExecutionProvider"])
    given = np.arange(16, dtype=np.float32).reshape(4, 4)
    feeds = {"x": given, "given": np.ones((FRAMES, WIDTH), np.float32)}
    got = dict(zip([o.name for o in session.get_outputs()], session.run(None, feeds), strict=True))
    np.testing.assert_array_equal(got["a"], given)
    np.testing.assert_array_equal(got["first.a"], given[:3])
    np.testing.assert_array_equal(got["longer"], given)
    np.testing.assert_array_equal(got["first.longer"], np.concatenate([np.zeros((TAIL, WIDTH)), given[:3]]))
    np.testing.assert_array_equal(got["present.0.sum"], given.sum())
    np.testing.assert_array_equal(got["present.1.a"], np.concatenate([given, np.zeros((CAPACITY - 4, WIDTH))]))


def test_what_a_runtime_keeps_is_listed_with_its_bytes() -> None:
    x = lg.input("x", "float16", ["n", WIDTH])
    cache = lg.LayeredCache.inputs(x, CAPACITY, layers("float16", lg.size("frames", max=9)))
    found = {one.source: one for one in cache.memory()}
    assert found["past.0.tail"] == Memory(
        "past.0.tail", "present.0.tail", 0, "tail", "state", "float16", (TAIL, WIDTH), 1
    )
    assert found["past.1.b"] == Memory("past.1.b", "present.1.b", 1, "b", "rows", "float16", (2, 2), CAPACITY)
    assert found["past.1.frames"] == Memory("past.1.frames", "", 1, "frames", "once", "float16", (WIDTH,), 9)
    assert found["past.2.count"].dtype == "float32"
    assert list(found) == [
        f"past.{place}" for place in ("0.tail", "0.sum", "1.a", "1.b", "1.frames", "2.last", "2.count")
    ]
    nbytes = 2 * TAIL * WIDTH + 2 + CAPACITY * 2 * (WIDTH + 4 + 1) + 9 * 2 * WIDTH + 4
    assert repr(cache) == f"LayeredCache(3 layers of their own slots, past_len/14 rows, {nbytes} bytes)"
    assert cache.slot_names(1) == ("a", "b", "frames") and cache.n_layers == 3 and cache.max_seq_len == CAPACITY


def test_a_fork_is_two_right_caches(tmp_path: Path) -> None:
    x = lg.input("x", "float32", [2, WIDTH])
    cache = lg.LayeredCache(x, 4, [[lg.Rows({"a": [WIDTH]}), lg.State({"s": [2, WIDTH]})]])
    left = cache.append(0, [x]).replace(0, [x * 2.0]).advance_by(2)
    right = cache.append(0, [x + 1.0]).replace(0, [x * 3.0]).advance_by(2)
    got = lg.realize(
        {
            "l": left.slot(0, 0),
            "r": right.slot(0, 0),
            "ls": left.slot(0, 1),
            "rs": right.slot(0, 1),
            "o": cache.slot(0, 1),
        },
        {"x": np.ones((2, WIDTH), np.float32)},
    )
    assert [float(got[name].max()) for name in ("l", "r", "ls", "rs", "o")] == [1, 2, 2, 3, 0]


def test_rows_are_written_in_place_and_a_state_is_said_not_to_be(tmp_path: Path) -> None:
    x = lg.input("x", "float32", [lg.size("n", min=1, max=CAPACITY), WIDTH])
    cache = lg.LayeredCache.inputs(x, CAPACITY, layers("float32"))
    memory = cache.memory()
    seen, cache = step(x, cache, "n")
    lg.save({**seen, **cache.outputs()}, tmp_path / "m.onnx")
    pairs = {one.source: one.target for one in memory if one.target}
    faults = lg.shared_memory_faults(onnx.load(tmp_path / "m.onnx"), pairs)
    assert set(faults) == {"past.0.tail", "past.0.sum", "past.2.count"}


# ---- refusals ----


def refused(error: type[Exception], call: Callable[[], Any]) -> Any:
    with pytest.raises(error) as caught:
        call()
    assert type(caught.value) is error
    return caught.value


ROWS, STATE = lg.Rows({"a": [4]}), lg.State({"s": [4]})


@pytest.mark.parametrize(
    ("capacity", "declared", "error", "what"),
    [
        (0, [ROWS], lg.CacheError, "max_seq_len is 0"),
        (True, [ROWS], lg.CacheError, "max_seq_len is True"),
        (8, [], lg.CacheError, "layers is []"),
        (8, None, lg.CacheError, "layers is None"),
        (8, [ROWS, "x"], lg.OperandError, "layer 1 is 'x'"),
        (8, [[ROWS, 3]], lg.OperandError, None),
        (8, [ROWS, []], lg.SlotCountError, "layer 1 has slots []"),
        (8, [[ROWS, lg.Rows({"b": [4]})]], lg.SlotCountError, "layer 0 has two Rows"),
        (8, [[ROWS, lg.State({"a": [4]})]], lg.SlotCountError, "layer 0 has slots ['a', 'a']"),
        (8, [lg.Rows({})], lg.SlotCountError, "a cache without slots"),
        (8, [lg.Rows([[4]])], lg.SlotCountError, "slots is [[4]]"),  # type: ignore[arg-type]
        (8, [lg.State({"s": [0]})], lg.SlotShapeError, "slot 0 has trailing sizes [0]"),
        (8, [lg.Rows({"a": [4]}, "int64")], lg.DTypeError, "a cache of int64"),
        (8, [[ROWS, lg.Window({"b": [4]}, 3)]], lg.SlotCountError, "layer 0 has Rows and a Window"),
        (8, [lg.Window({"b": [4]}, 0)], lg.CacheError, "window is 0"),
        (8, [lg.Window({"b": [4]}, 2, sinks=-1)], lg.CacheError, "sinks is -1"),
        (8, [lg.Once({"e": [4]}, rows=0)], lg.CacheError, "rows is 0"),
        (8, [lg.Once({"e": [4]}, rows=lg.size("frames"))], lg.CacheError, None),
    ],
)
def test_an_impossible_declaration_is_refused(capacity: Any, declared: Any, error: type[Exception], what: str) -> None:
    caught = refused(error, lambda: lg.LayeredCache(lg.input("x", "float32", ["n", 4]), capacity, declared))
    assert what is None or caught.what == what
    refused(error, lambda: lg.LayeredCache.inputs(lg.input("x", "float32", ["n", 4]), capacity, declared))


def test_an_impossible_position_or_anchor_is_refused() -> None:
    caught = refused(lg.CacheError, lambda: lg.LayeredCache(lg.input("x", "float32", [4]), 8, [ROWS], position=9))
    assert (caught.what, caught.wanted, caught.got) == ("position 9 of 8 rows", 8, 9)
    wrong: Any = None
    assert refused(lg.OperandError, lambda: lg.LayeredCache(wrong, 8, [ROWS])).what == "the anchor is None"


def small() -> tuple[Tensor, lg.LayeredCache]:
    x = lg.input("x", "float32", [2, 4])
    layers: list[Any] = [[ROWS, STATE], STATE, lg.Once({"e": [4]}, rows=2), lg.Rows({"a": [4], "b": [4]})]
    return x, lg.LayeredCache(x, 3, layers)


def test_each_refusal_names_the_layer_and_leaves_the_cache_whole() -> None:
    x, cache = small()
    row = x[0]
    other = lg.input("y", "float32", [4])

    caught = refused(lg.CacheLayerError, lambda: cache.append(1, [x]))
    assert (caught.what, caught.layer) == ("layer 1 keeps no rows", 1)
    assert caught.hint == "it keeps state (replace)"
    assert refused(lg.CacheLayerError, lambda: cache.replace(3, [row])).what == "layer 3 keeps no state"
    assert refused(lg.CacheLayerError, lambda: cache.fill(0, [x])).hint == "it keeps rows (append), state (replace)"
    wrong: Any
    for wrong in (-1, 4, True, "a", 1.0):
        assert refused(lg.CacheLayerError, partial(cache.slot, wrong, 0)).layer == wrong
        assert refused(lg.CacheLayerError, partial(cache.advance_by, 1, [wrong])).layer == wrong
    for wrong in (-1, 2, "e", None):
        assert refused(lg.CacheLayerError, partial(cache.slot, 0, wrong)).slot == wrong

    assert refused(lg.SlotCountError, lambda: cache.append(3, [x])).wanted == 2
    assert refused(lg.SlotCountError, lambda: cache.replace(1, [row, row])).got == 2
    caught = refused(lg.SlotCountError, lambda: cache.replace(1, row))  # type: ignore[arg-type]
    assert caught.what == "no list of tensors for 1 slots"
    assert refused(lg.SlotShapeError, lambda: cache.replace(1, [x])).wanted == (4,)
    assert refused(lg.SlotShapeError, lambda: cache.replace(1, [3.0])).got is None  # type: ignore[list-item]
    assert refused(lg.SlotShapeError, lambda: cache.fill(2, [x[:1]])).wanted == (2, 4)
    assert refused(lg.SlotDTypeError, lambda: cache.replace(1, [row.astype("float16")])).got is lg.float16
    assert refused(lg.SlotGraphError, lambda: cache.replace(1, [other])).slot == 0
    assert refused(lg.SeqLenMismatchError, lambda: cache.append(3, [x, x[:1]])).layer == 3
    unread = refused(lg.CacheStepError, lambda: cache.slot(2, "e"))
    assert unread.what == "e of layer 2 is not filled"
    assert cache.current_seq_len == 0 and cache.append(3, [x, x]).replace(1, [row]) is not cache


def test_steps_are_kept() -> None:
    x, cache = small()
    row = x[0]
    given = cache.append(0, [x]).replace(0, [row]).replace(1, [row]).append(3, [x, x])
    assert refused(lg.CacheStepError, lambda: given.append(0, [x])).layer == 0
    assert refused(lg.CacheStepError, lambda: given.replace(1, [row])).layer == 1
    again = refused(lg.CacheStepError, lambda: cache.fill(2, [x]).fill(2, [x]))
    assert again.what == "layer 2 is filled already"
    ready = lg.LayeredCache.inputs(x, 3, [lg.Once({"e": [4]}, rows=2)])
    assert refused(lg.CacheStepError, lambda: ready.fill(0, [x])).what.endswith("its slots are graph inputs")

    done = given.advance_by(2)
    assert done.current_seq_len == 2 and given.advance_by(0) is given and cache.append(0, [x[:0]]) is cache
    caught = refused(lg.CacheStepError, lambda: given.advance_by(1))
    assert (caught.layer, caught.wanted, caught.got) == (0, 1, 2)
    caught = refused(lg.CacheStepError, lambda: cache.append(0, [x]).append(3, [x, x]).advance_by(2))
    assert (caught.layer, caught.what) == (0, "the state of layer 0 was not replaced since the last advance")
    caught = refused(lg.CacheStepError, lambda: cache.append(3, [x, x]).replace(1, [row]).advance_by(2, [3]))
    assert (caught.layer, caught.what) == (1, "the state of layer 1 was replaced since the last advance")
    assert cache.append(3, [x, x]).advance_by(2, layers=[3]).current_seq_len == 2
    assert refused(lg.CacheStepError, lambda: given.advance_by(2, layers=[])).what == "no layer takes part"
    assert refused(lg.CacheStepError, lambda: given.advance_by(-1)).got == -1
    wrong: Any = 3
    assert refused(lg.CacheLayerError, lambda: given.advance_by(2, layers=wrong)).got == 3
    over = refused(lg.CacheOverflowError, lambda: done.append(0, [x]))
    assert (over.layer, over.wanted, over.got) == (0, 3, 4)
    no_rows = lg.LayeredCache(x, 3, [STATE])
    assert refused(lg.CacheLayerError, lambda: no_rows.causal_mask(1)).what == "no layer keeps rows"
    assert no_rows.replace(0, [row]).advance_by(3).current_seq_len == 3
    assert refused(lg.CacheOverflowError, lambda: no_rows.replace(0, [row]).advance_by(4)).wanted == 3


# ---- continuing from given tensors ----


def test_a_text_continues_from_the_tensors_of_another_cache(tmp_path: Path) -> None:
    """Cut anywhere: a second cache that is given what the first holds says what one cache would have said."""
    x = lg.input("x", "float32", [9, WIDTH])
    row = {"k": [WIDTH]}
    declared: list[Any] = [
        [lg.Rows(row), lg.Once({"e": [WIDTH]}, rows=2)],
        lg.Window(row, 3, sinks=1),
        lg.State({"s": [WIDTH]}),
    ]

    def read(cache: lg.LayeredCache, rows: Tensor) -> lg.LayeredCache:
        cache = cache.append(0, [rows]).append(1, [rows]).replace(2, [cache.slot(2, "s") + lg.reduce_sum(rows, 0)])
        return cache.advance_by(rows.shape[0])

    def held(cache: lg.LayeredCache) -> list[dict[str, Tensor]]:
        return [{name: cache.slot_buffer_full(at, name) for name in cache.slot_names(at)} for at in range(3)]

    first = read(lg.LayeredCache(x, 12, declared).fill(0, [x[:2]]), x[:5])
    again = lg.LayeredCache(x, 12, declared, position=5, buffers=held(first))
    assert again.current_seq_len == 5
    whole, pieces = (
        {f"rows.{at}.{slot}": table[slot] for at, table in enumerate(held(read(cache, x[5:]))) for slot in table}
        for cache in (first, again)
    )
    given = np.random.default_rng(3).normal(size=(9, WIDTH)).astype(np.float32)
    wanted, got = (lg.realize(outputs, {"x": given}) for outputs in (whole, pieces))
    for name in wanted:
        np.testing.assert_array_equal(got[name], wanted[name])
    np.testing.assert_array_equal(got["rows.0.k"][:9], given)
    np.testing.assert_array_equal(got["rows.1.k"], given[[0, 7, 8, 6]])
    np.testing.assert_array_equal(got["rows.0.e"], given[:2])

    unfilled = [{name: table[name] for name in table if name != "e"} for table in held(first)]
    later = lg.LayeredCache(x, 12, declared, position=5, buffers=unfilled)
    assert later.fill(0, [x[2:4]]).slot(0, "e").shape == (2, WIDTH)


def test_tensors_to_continue_from_that_do_not_fit_are_refused() -> None:
    x = lg.input("x", "float32", [8, 4])
    declared: list[Any] = [lg.Rows({"k": [4], "v": [4]}), lg.Window({"k": [4]}, 3)]
    short, half = lg.input("s", "float32", [7, 4], anchor=x), lg.input("h", "float16", [8, 4], anchor=x)
    other = lg.input("o", "float32", [8, 4])
    ring = lg.input("r", "float32", [3, 4], anchor=x)
    new: Callable[..., Any] = partial(lg.LayeredCache, x, 8, declared)
    assert new(buffers=[{"k": x, "v": x}, {"k": ring}]).slot_buffer_full(1, "k") is ring
    for wrong in (5, [], [{"k": x, "v": x}], [[x, x], [ring]]):
        assert refused(lg.SlotCountError, partial(new, buffers=wrong)).got == wrong
    for table in ({"k": x}, {"k": x, "v": x, "w": x}, {}):
        caught = refused(lg.SlotCountError, partial(new, buffers=[table, {"k": ring}]))
        assert (caught.layer, caught.got) == (0, list(table))
    caught = refused(lg.SlotShapeError, partial(new, buffers=[{"k": x, "v": short}, {"k": ring}]))
    assert (caught.layer, caught.slot, caught.wanted, caught.got) == (0, 1, (8, 4), (7, 4))
    caught = refused(lg.SlotShapeError, partial(new, buffers=[{"k": x, "v": x}, {"k": x}]))
    assert (caught.layer, caught.slot, caught.wanted, caught.got) == (1, 0, (3, 4), (8, 4))
    caught = refused(lg.SlotDTypeError, partial(new, buffers=[{"k": x, "v": half}, {"k": ring}]))
    assert (caught.layer, caught.slot, caught.wanted, caught.got) == (0, 1, lg.float32, lg.float16)
    caught = refused(lg.SlotGraphError, partial(new, buffers=[{"k": x, "v": other}, {"k": ring}]))
    assert (caught.layer, caught.slot, caught.wanted, caught.got) == (0, 1, x.graph, other.graph)


def test_a_lowering_that_there_is_not_is_refused_before_an_input_is_made() -> None:
    x = lg.input("x", "float32", ["n", 4])
    wrong: Any = "paged"
    caught = refused(lg.CacheError, lambda: lg.LayeredCache.inputs(x, 8, [lg.Rows({"k": [4]})], lowering=wrong))
    assert (caught.what, caught.wanted, caught.got) == (
        "lowering is 'paged'",
        ("buffer", "view", "concat"),
        "paged",
    )
    assert lg.LayeredCache.inputs(x, 8, [lg.Rows({"k": [4]})]).lowering == "buffer"
