"""The cache's contract, rule by rule, each on an exported file run by plain onnxruntime."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnxruntime
import pytest

import lazygraph as lg
from lazygraph.errors import SlotDTypeError, SlotGraphError
from lazygraph.tensor import Tensor
from lazygraph.where import Where

Array = np.ndarray[Any, Any]
Run = Callable[..., dict[str, Array]]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Save tensors to a file, and compute them with plain onnxruntime."""

    def saved_and_run(outputs: dict[str, Tensor], feeds: dict[str, Any] | None = None) -> dict[str, Array]:
        path = tmp_path / "model.onnx"
        lg.save(outputs, path)
        session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
        names = [output.name for output in session.get_outputs()]
        return dict(zip(names, session.run(names, feeds or {}), strict=True))

    return saved_and_run


def anchor() -> Tensor:
    return lg.input("x", "float32", ["n", 4])


def rows_of(base: Tensor, count: int, *trailing: int, start: float = 1.0, dtype: str = "float32") -> Tensor:
    size = int(np.prod([count, *trailing]))
    return base.const((np.arange(size) + start).reshape(count, *trailing).astype(dtype))


def numbers(count: int, *trailing: int, start: float = 1.0) -> Array:
    size = int(np.prod([count, *trailing]))
    return (np.arange(size, dtype=np.float32) + np.float32(start)).reshape(count, *trailing)


def refused(error: type[Exception], call: Callable[[], Any]) -> Any:
    """Return what a one-line lambda raised: that class itself, on the lambda's own line."""
    with pytest.raises(error) as caught:
        call()
    assert type(caught.value) is error
    code = call.__code__
    assert getattr(caught.value, "at", None) == Where(code.co_filename, code.co_firstlineno)
    return caught.value


def ops_of(outputs: dict[str, Tensor]) -> Counter[str]:
    return Counter(node.op_type for node in lg.to_onnx(outputs).graph.node)


def sized(tensor: Tensor, *wanted: int | str) -> bool:
    return len(tensor.shape) == len(wanted) and all(a == b for a, b in zip(tensor.shape, wanted, strict=True))


# ---- construction ----


@pytest.mark.parametrize(
    ("changed", "error", "what"),
    [
        ({"n_layers": 0}, lg.CacheError, "n_layers is 0"),
        ({"n_layers": -1}, lg.CacheError, "n_layers is -1"),
        ({"n_layers": 1.0}, lg.CacheError, "n_layers is 1.0"),
        ({"n_layers": True}, lg.CacheError, "n_layers is True"),
        ({"n_layers": None}, lg.CacheError, "n_layers is None"),
        ({"n_layers": "n"}, lg.CacheError, "n_layers is 'n'"),
        ({"max_seq_len": 0}, lg.CacheError, "max_seq_len is 0"),
        ({"max_seq_len": -8}, lg.CacheError, "max_seq_len is -8"),
        ({"max_seq_len": "seq"}, lg.CacheError, "max_seq_len is 'seq'"),
        ({"max_seq_len": lg.size("seq")}, lg.CacheError, "max_seq_len is seq"),
        ({"max_seq_len": np.array([8])}, lg.CacheError, "max_seq_len is array([8])"),
        ({"slot_trailing": []}, lg.SlotCountError, "a cache without slots"),
        ({"slot_trailing": None}, lg.SlotShapeError, "slot_trailing is None"),
        ({"slot_trailing": 4}, lg.SlotShapeError, "slot_trailing is 4"),
        ({"slot_trailing": [4]}, lg.SlotShapeError, "slot 0 has trailing sizes 4"),
        ({"slot_trailing": [[4], [0]]}, lg.SlotShapeError, "slot 1 has trailing sizes [0]"),
        ({"slot_trailing": [[4], [2, -1]]}, lg.SlotShapeError, "slot 1 has trailing sizes [2, -1]"),
        ({"slot_trailing": [[4.0]]}, lg.SlotShapeError, "slot 0 has trailing sizes [4.0]"),
        ({"slot_trailing": [[True]]}, lg.SlotShapeError, "slot 0 has trailing sizes [True]"),
        ({"slot_trailing": [["d"]]}, lg.SlotShapeError, "slot 0 has trailing sizes ['d']"),
        ({"slot_trailing": [[lg.size("d")]]}, lg.SlotShapeError, "slot 0 has trailing sizes [d]"),
        ({"dtype": "int64"}, lg.DTypeError, "a cache of int64"),
        ({"dtype": "bool"}, lg.DTypeError, "a cache of bool"),
        ({"dtype": "int4"}, lg.DTypeError, "a cache of int4"),
        ({"dtype": "string"}, lg.DTypeError, "a cache of string"),
        ({"dtype": "float23"}, lg.DTypeError, "'float23' is not an element type"),
        ({"position": -1}, lg.CacheError, "position -1 of 8 rows"),
        ({"position": 9}, lg.CacheError, "position 9 of 8 rows"),
        ({"position": True}, lg.CacheError, "position True of 8 rows"),
        ({"position": 3.0}, lg.CacheError, "position 3.0 of 8 rows"),
        ({"position": "past"}, lg.CacheError, "position 'past' of 8 rows"),
        ({"slot_names": ["a"]}, lg.SlotCountError, "1 names ['a'] for 2 slots"),
        ({"slot_names": ["a", "a"]}, lg.SlotCountError, "2 names ['a', 'a'] for 2 slots"),
        ({"slot_names": ["a", 3]}, lg.SlotCountError, "a slot is named 3"),
        ({"slot_names": ["", "b"]}, lg.SlotCountError, "a slot is named ''"),
        ({"anchor": None}, lg.OperandError, "the anchor is None"),
    ],
)
def test_an_impossible_declaration_is_refused(changed: dict[str, Any], error: type[Exception], what: str) -> None:
    declared: dict[str, Any] = {"anchor": anchor(), "n_layers": 2, "max_seq_len": 8, "slot_trailing": [[4], [2]]}
    caught = refused(error, lambda: lg.LatentCache(**{**declared, **changed}))
    assert caught.what == what
    if isinstance(caught, lg.CacheError) and "slot_names" not in changed and "slot_trailing" not in changed:
        assert caught.got == next(iter(changed.values()))


def test_a_declaration_error_names_its_facts() -> None:
    x = anchor()
    caught = refused(lg.SlotShapeError, lambda: lg.LatentCache(x, 1, 8, [[4], [0]]))
    assert (caught.slot, caught.layer, caught.got) == (1, None, [0])
    caught = refused(lg.CacheError, lambda: lg.LatentCache(x, 0, 8, [[4]]))
    assert (caught.wanted, caught.got, caught.layer, caught.slot) == (1, 0, None, None)
    caught = refused(lg.SlotCountError, lambda: lg.LatentCache(x, 1, 8, []))
    assert (caught.wanted, caught.got) == (1, 0)


def test_numpys_ints_declare_a_cache_too() -> None:
    cache = lg.LatentCache(anchor(), np.int64(2), np.int32(8), [[np.uint8(4)]], position=np.int64(3))  # type: ignore[list-item,arg-type]
    assert (cache.n_layers, cache.max_seq_len, cache.slot_trailing(0), cache.current_seq_len) == (2, 8, (4,), 3)
    assert all(
        type(n) is int for n in (cache.n_layers, cache.max_seq_len, *cache.slot_trailing(0), cache.current_seq_len)
    )


def test_facts_of_a_cache() -> None:
    cache = lg.LatentCache(anchor(), 27, 4096, [[512], [64]])
    facts = (cache.n_layers, cache.n_slots, cache.max_seq_len, cache.current_seq_len)
    assert facts == (27, 2, 4096, 0)
    assert (cache.slot_trailing(0), cache.slot_trailing(1)) == ((512,), (64,))
    assert cache.layout.bytes_per_token == 27 * 576 * 4 and cache.layout.nbytes == 27 * 576 * 4 * 4096


def test_the_least_cache_has_one_layer_one_row_and_one_number(run: Run) -> None:
    x = anchor()
    cache = lg.LatentCache(x, 1, 1, [[]])
    assert cache.slot_buffer_full(0, 0).shape == (1,)
    cache = cache.append(0, [rows_of(x, 1, start=7)]).advance_by(1)
    got = run({"rows": cache.slot(0, 0), "full": cache.slot_buffer_full(0, 0)}, {"x": numbers(1, 4)})
    np.testing.assert_array_equal(got["rows"], [7])
    np.testing.assert_array_equal(got["full"], [7])


# ---- element types ----


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int8", "uint8"])
def test_every_element_type_of_numpys_own_runs(run: Run, dtype: str) -> None:
    base = lg.input("x", dtype, [2, 3])
    cache = lg.LatentCache(base, 2, 4, [[3], []], dtype)
    cache = cache.append(0, [base, base[:, 0]]).append(1, [base + base, base[:, 1]]).advance_by(2)
    x = np.arange(6).reshape(2, 3).astype(dtype)
    got = run(cache.outputs(), {"x": x})
    pad = np.zeros((2, 3), dtype)
    np.testing.assert_array_equal(got["present.0.slot0"], np.concatenate([x, pad]))
    np.testing.assert_array_equal(got["present.1.slot0"], np.concatenate([x + x, pad]))
    np.testing.assert_array_equal(got["present.1.slot1"], np.concatenate([x[:, 1], pad[:, 0]]))
    assert all(array.dtype == dtype for array in got.values())


def test_bfloat16_runs() -> None:
    base = lg.input("x", "bfloat16", [2, 3])
    cache = lg.LatentCache(base, 1, 4, [[3]], "bfloat16").append(0, [base]).advance_by(2)
    x = np.array([[1, 2, 3], [0.5, -4, 100]], ml_dtypes.bfloat16)
    got = lg.realize({"rows": cache.slot(0, 0), "full": cache.slot_buffer_full(0, 0)}, {"x": x})
    assert got["full"].dtype == ml_dtypes.bfloat16
    np.testing.assert_array_equal(got["rows"], x)
    np.testing.assert_array_equal(got["full"], np.concatenate([x, np.zeros((2, 3), ml_dtypes.bfloat16)]))


@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz"])
def test_fp8_is_refused_before_a_file_is_written_as_no_operator_writes_its_rows(tmp_path: Path, dtype: str) -> None:
    base = lg.input("x", dtype, [2, 3])
    with pytest.raises(lg.LazyGraphError, match=f"{dtype}"):
        cache = lg.LatentCache(base, 1, 4, [[3]], dtype).append(0, [base])
        lg.save(cache.outputs(), tmp_path / "model.onnx")
    assert not list(tmp_path.iterdir())


# ---- buffers ----


def test_zero_buffers_take_a_few_bytes_of_the_file(tmp_path: Path) -> None:
    x = lg.input("x", "float32", [1, 512])
    cache = lg.LatentCache(x, 8, 4096, [[512], [512]])
    for layer in range(8):
        cache = cache.append(layer, [x, x])
    lg.save(cache.advance_by(1).outputs(), tmp_path / "model.onnx")
    files = list(tmp_path.iterdir())
    assert [file.name for file in files] == ["model.onnx"]
    assert files[0].stat().st_size < 12_000  # 128 MiB of zeros, were they stored


def test_the_buffers_of_a_new_cache_are_zero(run: Run) -> None:
    x = anchor()
    cache = lg.LatentCache(x, 2, 5, [[2, 3], []])
    for name, got in run(cache.outputs(), {"x": numbers(1, 4)}).items():
        np.testing.assert_array_equal(got, np.zeros((5, 2, 3) if name.endswith("0") else (5,), np.float32))


# ---- append: what is refused, and in which order ----


def test_append_checks_in_order() -> None:
    """Each call breaks one rule and every later one; the earliest speaks."""
    x = anchor()
    other = lg.input("y", "float32", [1])
    cache = lg.LatentCache(x, 2, 4, [[4], [2]], position=1)
    full = cache.append(0, [rows_of(x, 3, 4), rows_of(x, 3, 2)])

    foreign = [rows_of(other, 4, 4, dtype="float16"), rows_of(other, 4, 2, dtype="float16")]
    refused(lg.CacheLayerError, lambda: full.append(2, [other.const(np.float16(0))]))
    refused(lg.SlotCountError, lambda: full.append(0, [other.const(np.float16(0))]))
    refused(lg.SlotShapeError, lambda: full.append(0, [other.const(np.float16(0)), foreign[0]]))
    refused(lg.SlotShapeError, lambda: full.append(0, [rows_of(other, 4, 5, dtype="float16"), foreign[1][:3]]))
    refused(lg.SeqLenMismatchError, lambda: full.append(0, [foreign[0], foreign[1][:3]]))
    refused(SlotDTypeError, lambda: full.append(0, foreign))
    refused(SlotGraphError, lambda: full.append(0, [foreign[0].astype("float32"), foreign[1].astype("float32")]))
    refused(lg.CacheStepError, lambda: full.append(0, [rows_of(x, 4, 4), rows_of(x, 4, 2)]))
    refused(lg.CacheStepError, lambda: full.append(1, [rows_of(x, 4, 4), rows_of(x, 4, 2)]))
    refused(lg.CacheOverflowError, lambda: cache.append(1, [rows_of(x, 4, 4), rows_of(x, 4, 2)]))
    assert full.append(1, [rows_of(x, 3, 4), rows_of(x, 3, 2)]).advance_by(3).current_seq_len == 4


def test_the_message_of_a_wrong_layer() -> None:
    x = anchor()
    cache = lg.LatentCache(x, 3, 8, [[4]])

    caught = refused(lg.CacheLayerError, lambda: cache.append(-1, [rows_of(x, 1, 4)]))
    assert str(caught) == (f"append: layer -1 of a cache with 3\n  expected : 0 <= layer < 3\n  at       : {caught.at}")
    assert (caught.layer, caught.slot, caught.wanted, caught.got) == (-1, None, range(3), -1)
    assert isinstance(caught, IndexError)


def test_the_message_of_a_wrong_number_of_slots() -> None:
    x = anchor()
    cache = lg.LatentCache(x, 3, 8, [[4], [2]])

    caught = refused(lg.SlotCountError, lambda: cache.append(1, [rows_of(x, 1, 4)]))
    assert str(caught) == (
        "append: 1 tensors for 2 slots\n"
        "  cache    : LatentCache(3 layers x (slot0 [4] + slot1 [2]) float32, 0/8 rows, 576 bytes)\n"
        "  expected : one tensor per slot\n"
        f"  at       : {caught.at}"
    )
    assert (caught.layer, caught.slot, caught.wanted, caught.got) == (1, None, 2, 1)


@pytest.mark.parametrize("slots", [None, 5, "tensor"])
def test_slots_that_are_no_list_are_refused(slots: Any) -> None:
    x = anchor()
    cache = lg.LatentCache(x, 1, 8, [[4]])
    caught = refused(lg.SlotCountError, lambda: cache.append(0, rows_of(x, 1, 4) if slots == "tensor" else slots))  # type: ignore[arg-type]
    assert caught.expected == "a list of one tensor per slot" and caught.layer == 0


def test_the_message_of_a_wrong_shape() -> None:
    x = anchor()
    cache = lg.LatentCache(x, 1, 8, [[4], [2, 3]])

    caught = refused(lg.SlotShapeError, lambda: cache.append(0, [x, lg.input("y", "float32", ["n", 3, 2], anchor=x)]))
    assert str(caught) == (
        "append: slot 1 of layer 0 has another shape\n"
        "  slot1    : float32 (n, 3, 2) from input 'y'\n"
        "  cache    : LatentCache(1 layers x (slot0 [4] + slot1 [2, 3]) float32, 0/8 rows, 320 bytes)\n"
        "  expected : (n, 2, 3): [seqlen_new, *trailing]\n"
        f"  at       : {caught.at}"
    )
    assert (caught.layer, caught.slot, caught.wanted, caught.got) == (0, 1, ("n", 2, 3), ("n", 3, 2))


@pytest.mark.parametrize("trailing", [(), (4, 1), (1, 4), (3,), (1,)])
def test_rows_of_another_rank_or_size_are_refused(trailing: tuple[int, ...]) -> None:
    x = anchor()
    cache = lg.LatentCache(x, 1, 8, [[4]])
    caught = refused(lg.SlotShapeError, lambda: cache.append(0, [rows_of(x, 2, *trailing)]))
    assert (caught.slot, caught.wanted, caught.got) == (0, (2, 4), (2, *trailing))


@pytest.mark.parametrize("given", [np.zeros((1, 4), np.float32), None, 1.0])
def test_what_is_no_tensor_is_refused(given: Any) -> None:
    cache = lg.LatentCache(anchor(), 1, 8, [[4]])
    caught = refused(lg.SlotShapeError, lambda: cache.append(0, [given]))
    assert caught.what == "slot 0 of layer 0 has no tensor"


def test_a_scalar_has_no_axis_of_rows() -> None:
    x = anchor()
    cache = lg.LatentCache(x, 1, 8, [[]])
    caught = refused(lg.SlotShapeError, lambda: cache.append(0, [x.const(np.float32(1))]))
    assert caught.what == "slot 0 of layer 0 has no axis of rows" and (caught.slot, caught.got) == (0, ())


def test_the_message_of_different_numbers_of_rows() -> None:
    x = anchor()
    cache = lg.LatentCache(x, 2, 8, [[4], [2]])
    y = lg.input("y", "float32", ["m", 2], anchor=x)

    caught = refused(lg.SeqLenMismatchError, lambda: cache.append(1, [x, y]))
    assert str(caught) == (
        "append: slot 1 brings m rows, slot 0 brings n\n"
        "  slot0    : float32 (n, 4) from input 'x'\n"
        "  slot1    : float32 (m, 2) from input 'y'\n"
        "  expected : the same number of rows in every slot\n"
        f"  at       : {caught.at}"
    )
    assert (caught.layer, caught.slot, caught.wanted, caught.got) == (1, 1, "n", "m")
    refused(lg.SeqLenMismatchError, lambda: cache.append(0, [rows_of(x, 2, 4), rows_of(x, 3, 2)]))
    refused(lg.SeqLenMismatchError, lambda: cache.append(0, [x, rows_of(x, 3, 2)]))


def test_the_message_of_another_element_type() -> None:
    x = anchor()
    y = lg.input("y", "float16", ["n", 2], anchor=x)
    cache = lg.LatentCache(x, 1, 8, [[4], [2]])

    caught = refused(SlotDTypeError, lambda: cache.append(0, [x, y]))
    assert str(caught) == (
        "append: slot 1 is float16, the cache float32\n"
        "  slot1    : float16 (n, 2) from input 'y'\n"
        "  expected : float32\n"
        f"  at       : {caught.at}"
    )
    assert (caught.layer, caught.slot, caught.wanted, caught.got) == (0, 1, lg.float32, lg.float16)
    assert isinstance(caught, lg.CacheError) and isinstance(caught, lg.DTypeError) and isinstance(caught, TypeError)


def test_the_message_of_another_graph() -> None:
    x = anchor()
    y = lg.input("y", "float32", [1, 4])
    cache = lg.LatentCache(x, 1, 8, [[4]])

    caught = refused(SlotGraphError, lambda: cache.append(0, [y]))
    assert str(caught) == (
        "append: slot 0 belongs to another graph\n"
        "  slot0    : float32 (1, 4) from input 'y'\n"
        "  expected : tensors grown from the cache's anchor\n"
        f"  at       : {caught.at}"
    )
    assert (caught.layer, caught.slot, caught.wanted, caught.got) == (0, 0, x.graph, y.graph)
    assert (caught.layer, caught.slot) == (0, 0)
    assert isinstance(caught, lg.CacheError) and isinstance(caught, lg.GraphMismatchError)


def test_the_message_of_a_full_cache() -> None:
    x = anchor()
    cache = lg.LatentCache(x, 1, 8, [[4]], position=6)

    caught = refused(lg.CacheOverflowError, lambda: cache.append(0, [rows_of(x, 3, 4)]))
    assert str(caught) == (
        "append: 3 rows after 6 pass the end at 8\n"
        "  cache    : LatentCache(1 layers x (slot0 [4]) float32, 6/8 rows, 128 bytes)\n"
        "  expected : current_seq_len + seqlen_new <= 8\n"
        f"  at       : {caught.at}"
    )
    assert (caught.layer, caught.slot, caught.wanted, caught.got) == (0, None, 8, 9)
    assert cache.append(0, [rows_of(x, 2, 4)]).advance_by(2).current_seq_len == 8


def test_the_message_of_a_second_append_in_one_step() -> None:
    x = anchor()
    cache = lg.LatentCache(x, 2, 8, [[4]]).append(1, [rows_of(x, 2, 4)])

    caught = refused(lg.CacheStepError, lambda: cache.append(1, [rows_of(x, 2, 4)]))
    assert str(caught) == (
        "append: layer 1 was given 2 rows already in this step\n"
        "  cache    : LatentCache(2 layers x (slot0 [4]) float32, 0/8 rows, 256 bytes)\n"
        "  expected : one append per layer between two advances\n"
        "  hint     : cache.advance_by(n) ends the step, once, after the last layer\n"
        f"  at       : {caught.at}"
    )
    assert (caught.layer, caught.wanted, caught.got) == (1, 0, 2)
    caught = refused(lg.CacheStepError, lambda: cache.append(0, [rows_of(x, 1, 4)]))
    assert caught.what == "layer 0 brings 1 rows, layer 1 brought 2 in this step"
    assert (caught.layer, caught.wanted, caught.got) == (0, 2, 1)


# ---- append: what is emitted ----


def test_append_emits_one_scatter_per_slot_and_one_index_per_step() -> None:
    x = lg.input("x", "float32", [2, 4])
    cache = lg.LatentCache(x, 3, 8, [[4], [4], [4]])
    for layer in range(3):
        cache = cache.append(layer, [x, x, x])
    cache = cache.advance_by(2)
    assert ops_of(cache.outputs())["ScatterND"] == 9
    for layer in range(3):
        cache = cache.append(layer, [x, x, x])
    assert ops_of(cache.advance_by(2).outputs())["ScatterND"] == 18


def test_a_runtime_position_emits_its_index_once() -> None:
    counts = []
    for layers in (1, 6):
        x = anchor()
        cache = lg.LatentCache.inputs(x, layers, 8, [[4], [4]])
        for layer in range(layers):
            cache = cache.append(layer, [x, x])
        counts.append(ops_of(cache.outputs()))
    assert [count.pop("ScatterND") for count in counts] == [2, 12]
    assert counts[0] == counts[1]


def test_zero_rows_emit_nothing_and_count_as_nothing() -> None:
    x = lg.input("x", "float32", [2, 4])
    cache = lg.LatentCache(x, 2, 8, [[4]]).append(0, [x])
    before = ops_of(cache.outputs())
    nothing = x[:0]
    same = cache.append(1, [nothing]).append(0, [nothing]).append(1, [nothing])
    assert repr(same) == repr(cache) and ops_of(same.outputs()) == before
    assert same.append(1, [x]).advance_by(2).current_seq_len == 2
    caught = refused(lg.CacheStepError, lambda: same.advance_by(2))
    assert (caught.layer, caught.wanted, caught.got) == (1, 2, 0)


def test_zero_rows_are_checked_like_any_others() -> None:
    x = anchor()
    cache = lg.LatentCache(x, 2, 8, [[4]], position=8)
    refused(lg.CacheLayerError, lambda: cache.append(2, [rows_of(x, 0, 4)]))
    refused(lg.SlotShapeError, lambda: cache.append(0, [rows_of(x, 0, 5)]))
    refused(SlotDTypeError, lambda: cache.append(0, [rows_of(x, 0, 4, dtype="float16")]))
    assert repr(cache.append(0, [rows_of(x, 0, 4)])) == repr(cache)  # a full cache has room for nothing


def test_a_failed_append_leaves_the_cache_usable(run: Run) -> None:
    x = anchor()
    cache = lg.LatentCache(x, 1, 3, [[4]])
    for rows in (rows_of(x, 4, 4), rows_of(x, 1, 5), rows_of(x, 1, 4, dtype="float16"), x):
        with pytest.raises(lg.CacheError):
            cache.append(0, [rows])
    after = cache.append(0, [rows_of(x, 3, 4)]).advance_by(3)
    np.testing.assert_array_equal(run({"rows": after.slot(0, 0)}, {"x": numbers(1, 4)})["rows"], numbers(3, 4))


# ---- symbolic numbers of rows ----


def test_room_that_cannot_be_decided_is_refused() -> None:
    x = anchor()
    cache = lg.LatentCache(x, 1, 8, [[4]])

    caught = refused(lg.CacheOverflowError, lambda: cache.append(0, [x]))
    assert str(caught) == (
        "append: n rows after 0 may pass the end at 8\n"
        "  cache    : LatentCache(1 layers x (slot0 [4]) float32, 0/8 rows, 128 bytes)\n"
        "  expected : current_seq_len + seqlen_new <= 8, decided while the graph is built\n"
        "  hint     : bound the size with lg.size(name, max=...), or take the position at run time\n"
        f"  at       : {caught.at}"
    )
    assert (caught.layer, caught.wanted, caught.got) == (0, 8, "n")
    # at the edge: 9 may not fit, 8 does
    for most, fits in ((8, True), (9, False)):
        y = lg.input("y", "float32", [lg.size("rows", max=most), 4])
        own = lg.LatentCache(y, 1, 8, [[4]])
        if fits:
            own.append(0, [y])
        else:
            refused(lg.CacheOverflowError, lambda own=own, y=y: own.append(0, [y]))  # type: ignore[misc]


def test_a_bounded_size_makes_the_length_symbolic(run: Run) -> None:
    q = lg.size("q", min=0, max=3)
    x = lg.input("x", "float32", [q, 2])
    cache = lg.LatentCache(x, 2, 8, [[2]], position=0)
    for layer in range(2):
        cache = cache.append(layer, [x * (layer + 1.0)])
    cache = cache.advance_by("q")
    assert cache.current_seq_len == "q" and sized(cache.slot(0, 0), "max(1, q)", 2)
    for layer in range(2):
        cache = cache.append(layer, [rows_of(x, 2, 2, start=100)])
    seen = cache.slot(1, 0, include_pending=True)
    assert sized(seen, "q + 2", 2)
    cache = cache.advance_by(2)
    assert cache.current_seq_len == "q + 2"
    outputs = {
        "first": cache.slot(0, 0),
        "second": cache.slot(1, 0),
        "seen": seen,
        "full": cache.slot_buffer_full(0, 0),
    }
    for count in range(4):
        given = numbers(count, 2)
        got = run(outputs, {"x": given})
        np.testing.assert_array_equal(got["first"], np.concatenate([given, numbers(2, 2, start=100)]))
        np.testing.assert_array_equal(got["second"], np.concatenate([given * 2, numbers(2, 2, start=100)]))
        np.testing.assert_array_equal(got["seen"], got["second"])
        assert not got["full"][count + 2 :].any()


def test_the_least_of_a_slice_is_known_to_fit(run: Run) -> None:
    x = anchor()
    cache = lg.LatentCache(x, 1, 6, [[4]], position=1)
    refused(lg.CacheOverflowError, lambda: cache.append(0, [x[:6]]))
    few = x[:5]
    grown = cache.append(0, [few]).advance_by(few.shape[0])
    assert grown.current_seq_len == "min(5, n) + 1"
    for count in (1, 5, 9):
        got = run({"rows": grown.slot(0, 0)}, {"x": numbers(count, 4)})["rows"]
        np.testing.assert_array_equal(got, np.concatenate([np.zeros((1, 4), np.float32), numbers(count, 4)[:5]]))


def test_an_advance_by_another_size_than_was_appended_is_refused() -> None:
    q = lg.size("q", max=3)
    x = lg.input("x", "float32", [q, 2])
    cache = lg.LatentCache(x, 1, 8, [[2]]).append(0, [x])
    for wrong in (3, "m", lg.size("q", max=3) + 1):
        caught = refused(lg.CacheStepError, lambda wrong=wrong: cache.advance_by(wrong))  # type: ignore[misc]
        assert (caught.layer, caught.got) == (0, "q")


# ---- advance ----


def test_the_message_of_an_advance_out_of_step() -> None:
    x = anchor()
    cache = lg.LatentCache(x, 2, 8, [[4]]).append(0, [rows_of(x, 2, 4)])

    caught = refused(lg.CacheStepError, lambda: cache.advance_by(2))
    assert str(caught) == (
        "advance_by: layer 1 was given 0 rows since the last advance, not 2\n"
        "  cache    : LatentCache(2 layers x (slot0 [4]) float32, 0/8 rows, 256 bytes)\n"
        "  n        : 2\n"
        "  expected : every layer appended exactly n rows\n"
        f"  at       : {caught.at}"
    )
    assert (caught.layer, caught.slot, caught.wanted, caught.got) == (1, None, 2, 0)
    assert isinstance(caught, RuntimeError)
    both = cache.append(1, [rows_of(x, 2, 4)])
    for wrong in (1, 3, 9):
        refused(lg.CacheStepError, lambda wrong=wrong: both.advance_by(wrong))  # type: ignore[misc]
    assert both.advance_by(2).current_seq_len == 2


@pytest.mark.parametrize("n", [-1, np.int64(-1), True, False])
def test_an_advance_by_no_number_of_rows_is_refused(n: Any) -> None:
    cache = lg.LatentCache(anchor(), 1, 8, [[4]])
    caught = refused(lg.CacheStepError, lambda: cache.advance_by(n))
    assert caught.what == f"advance by {n!r} rows" and caught.got == n


@pytest.mark.parametrize("n", [1.0, None])
def test_an_advance_by_what_is_no_size_is_refused(n: Any) -> None:
    cache = lg.LatentCache(anchor(), 1, 8, [[4]])
    refused(lg.ShapeError, lambda: cache.advance_by(n))


def test_an_advance_by_zero_changes_nothing() -> None:
    x = anchor()
    cache = lg.LatentCache(x, 2, 8, [[4]], position=3).append(0, [rows_of(x, 2, 4)])
    same = cache.advance_by(0)
    assert same.current_seq_len == 3
    refused(lg.CacheStepError, lambda: same.append(0, [rows_of(x, 2, 4)]))  # what was pending still is
    assert same.append(1, [rows_of(x, 2, 4)]).advance_by(2).current_seq_len == 5


def test_an_advance_past_the_end_is_never_a_clamp() -> None:
    x = anchor()
    cache = lg.LatentCache(x, 1, 4, [[4]], position=4)
    refused(lg.CacheOverflowError, lambda: cache.append(0, [rows_of(x, 1, 4)]))
    refused(lg.CacheStepError, lambda: cache.advance_by(1))
    assert cache.current_seq_len == 4


def test_layers_names_those_that_take_part(run: Run) -> None:
    x = anchor()
    cache = lg.LatentCache(x, 3, 8, [[4]])
    step = cache.append(0, [rows_of(x, 2, 4)]).append(2, [rows_of(x, 2, 4, start=50)])
    refused(lg.CacheStepError, lambda: step.advance_by(2))
    refused(lg.CacheStepError, lambda: step.advance_by(2, layers=[0]))
    refused(lg.CacheStepError, lambda: step.advance_by(2, layers=[0, 1, 2]))
    refused(lg.CacheLayerError, lambda: step.advance_by(2, layers=[0, 3]))
    refused(lg.CacheLayerError, lambda: step.advance_by(2, layers=[0, -1]))
    refused(lg.CacheLayerError, lambda: step.advance_by(2, layers=0))  # type: ignore[arg-type]
    refused(lg.CacheStepError, lambda: cache.advance_by(2, layers=[]))
    after = step.advance_by(2, layers=[2, 0, 2])
    assert after.current_seq_len == 2
    got = run({f"{layer}": after.slot(layer, 0) for layer in range(3)}, {"x": numbers(1, 4)})
    np.testing.assert_array_equal(got["0"], numbers(2, 4))
    np.testing.assert_array_equal(got["1"], np.zeros((2, 4)))
    np.testing.assert_array_equal(got["2"], numbers(2, 4, start=50))


# ---- reading ----


def test_a_slot_gives_the_rows_that_count_and_the_pending_ones_when_asked(run: Run) -> None:
    x = anchor()
    empty = lg.LatentCache(x, 1, 6, [[2]])
    assert empty.slot(0, 0).shape == (1, 2)  # at least one row
    assert empty.slot(0, 0, include_pending=True).shape == (1, 2)
    one = empty.append(0, [rows_of(x, 1, 2)])
    two = empty.append(0, [rows_of(x, 2, 2)])
    assert two.slot(0, 0).shape == (1, 2) and two.slot(0, 0, include_pending=True).shape == (2, 2)
    after = two.advance_by(2)
    full = after.append(0, [rows_of(x, 4, 2, start=50)]).advance_by(4)
    outputs = {
        "empty": empty.slot(0, 0),
        "one": one.slot(0, 0, include_pending=True),
        "before": two.slot(0, 0),
        "pending": two.slot(0, 0, include_pending=True),
        "after": after.slot(0, 0),
        "after pending": after.slot(0, 0, include_pending=True),
        "full": full.slot(0, 0),
        "buffer": after.slot_buffer_full(0, 0),
    }
    got = run(outputs, {"x": numbers(1, 4)})
    np.testing.assert_array_equal(got["empty"], np.zeros((1, 2)))
    np.testing.assert_array_equal(got["one"], numbers(1, 2))
    np.testing.assert_array_equal(got["before"], numbers(1, 2))  # the row behind an empty cache: masked, never attended
    np.testing.assert_array_equal(got["pending"], numbers(2, 2))
    np.testing.assert_array_equal(got["after"], numbers(2, 2))
    np.testing.assert_array_equal(got["after pending"], numbers(2, 2))
    np.testing.assert_array_equal(got["full"], np.concatenate([numbers(2, 2), numbers(4, 2, start=50)]))
    np.testing.assert_array_equal(got["buffer"], np.concatenate([numbers(2, 2), np.zeros((4, 2))]))


@pytest.mark.parametrize(
    ("layer", "slot"), [(-1, 0), (2, 0), (0, -1), (0, 2), (True, 0), (0, True), (1.0, 0), ("0", 0)]
)
def test_reads_of_no_such_layer_or_slot_are_refused(layer: Any, slot: Any) -> None:
    cache = lg.LatentCache(anchor(), 2, 4, [[4], [4]])
    refused(lg.CacheLayerError, lambda: cache.slot(layer, slot))
    refused(lg.CacheLayerError, lambda: cache.slot(layer, slot, include_pending=True))
    refused(lg.CacheLayerError, lambda: cache.slot_buffer_full(layer, slot))


def test_the_message_of_a_wrong_slot() -> None:
    cache = lg.LatentCache(anchor(), 2, 4, [[4], [4]])

    caught = refused(lg.CacheLayerError, lambda: cache.slot(0, 2))
    assert str(caught) == f"slot: slot 2 of a cache with 2\n  expected : 0 <= slot < 2\n  at       : {caught.at}"
    assert (caught.layer, caught.slot, caught.wanted, caught.got) == (0, 2, range(2), 2)
    assert refused(lg.CacheLayerError, lambda: cache.slot_trailing(-1)).slot == -1


def test_repr_is_one_line() -> None:
    x = anchor()
    cache = lg.LatentCache(x, 27, 4096, [[512], [64]], "bfloat16", position=100)
    assert (
        repr(cache) == "LatentCache(27 layers x (slot0 [512] + slot1 [64]) bfloat16, 100/4096 rows, 127,401,984 bytes)"
    )
    q = lg.input("q", "float32", [lg.size("q", max=4), 2], anchor=x)
    grown = lg.LatentCache(x, 1, 8, [[2]], position=3).append(0, [q]).advance_by("q")
    assert repr(grown) == "LatentCache(1 layers x (slot0 [2]) float32, (q + 3)/8 rows, 64 bytes)"
    assert repr(lg.KvCache(x, 1, 8, 2, 4)) == "KvCache(1 layers x (k [2, 4] + v [2, 4]) float32, 0/8 rows, 512 bytes)"


# ---- fork, continue, kinds ----


def test_a_fork_keeps_both_continuations_right(run: Run) -> None:
    x = anchor()
    common = lg.LatentCache(x, 1, 5, [[2]]).append(0, [rows_of(x, 2, 2)]).advance_by(2)
    pending = common.append(0, [rows_of(x, 1, 2, start=7)])
    left = common.append(0, [rows_of(x, 2, 2, start=100)]).advance_by(2)
    right = pending.advance_by(1).append(0, [rows_of(x, 2, 2, start=200)]).advance_by(2)
    got = run(
        {"common": common.slot(0, 0), "left": left.slot_buffer_full(0, 0), "right": right.slot_buffer_full(0, 0)},
        {"x": numbers(1, 4)},
    )
    np.testing.assert_array_equal(got["common"], numbers(2, 2))
    np.testing.assert_array_equal(
        got["left"], np.concatenate([numbers(2, 2), numbers(2, 2, start=100), np.zeros((1, 2))])
    )
    wanted = np.concatenate([numbers(2, 2), numbers(1, 2, start=7), numbers(2, 2, start=200)])
    np.testing.assert_array_equal(got["right"], wanted)


def test_a_cache_continues_from_given_buffers_at_a_given_row(run: Run) -> None:
    x = anchor()
    names = [f"{layer}.{slot}" for layer in range(2) for slot in range(2)]
    given = {name: lg.input(name, "float32", [40, *([3] if name[-1] == "0" else [])], anchor=x) for name in names}
    buffers = [[given[f"{layer}.0"], given[f"{layer}.1"]] for layer in range(2)]
    cache = lg.LatentCache(x, 2, 40, [[3], []], position=37, buffers=buffers)
    assert cache.current_seq_len == 37 and cache.slot(1, 0).shape == (37, 3)
    for layer in range(2):
        cache = cache.append(layer, [rows_of(x, 3, 3), rows_of(x, 3)])
    refused(lg.CacheStepError, lambda: cache.advance_by(4))
    cache = cache.advance_by(3)
    feeds = {name: np.full([40, *([3] if name[-1] == "0" else [])], i + 1, np.float32) for i, name in enumerate(names)}
    got = run(cache.outputs(), {**feeds, "x": numbers(1, 4)})
    for i, name in enumerate(names):
        new = numbers(3, 3) if name[-1] == "0" else numbers(3)
        np.testing.assert_array_equal(got[f"present.{name[0]}.slot{name[-1]}"], np.concatenate([feeds[name][:37], new]))
        assert (feeds[name] == i + 1).all()


def test_given_buffers_that_do_not_fit_are_refused() -> None:
    x = anchor()
    right, narrow, half = (
        lg.input(n, d, [8, w], anchor=x) for n, d, w in (("r", "float32", 4), ("w", "float32", 3), ("h", "float16", 4))
    )
    short, foreign = lg.input("s", "float32", [7, 4], anchor=x), lg.input("f", "float32", [8, 4])
    new = lg.LatentCache
    caught = refused(lg.SlotCountError, lambda: new(x, 2, 8, [[4]], buffers=[[right]]))
    assert (caught.wanted, caught.got) == ((2, 1), [1])
    refused(lg.SlotCountError, lambda: new(x, 1, 8, [[4]], buffers=[[right, right]]))
    refused(lg.SlotCountError, lambda: new(x, 1, 8, [[4]], buffers=[right]))  # type: ignore[list-item]
    refused(lg.SlotCountError, lambda: new(x, 1, 8, [[4]], buffers=5))  # type: ignore[arg-type]
    refused(lg.SlotShapeError, lambda: new(x, 1, 8, [[4]], buffers=[[np.zeros((8, 4), np.float32)]]))  # type: ignore[list-item]
    for wrong in (narrow, short):
        caught = refused(lg.SlotShapeError, lambda wrong=wrong: new(x, 2, 8, [[4]], buffers=[[right], [wrong]]))  # type: ignore[misc]
        assert (caught.layer, caught.slot, caught.wanted, caught.got) == (1, 0, (8, 4), wrong.shape)
    caught = refused(SlotDTypeError, lambda: new(x, 1, 8, [[4]], buffers=[[half]]))
    assert (caught.layer, caught.slot, caught.wanted, caught.got) == (0, 0, lg.float32, lg.float16)
    caught = refused(SlotGraphError, lambda: new(x, 1, 8, [[4]], buffers=[[foreign]]))
    assert (caught.layer, caught.slot, caught.wanted, caught.got) == (0, 0, x.graph, foreign.graph)


def test_a_slot_of_one_number_per_row(run: Run) -> None:
    x = lg.input("x", "float32", [2])
    cache = lg.LatentCache(x, 1, 4, [[]]).append(0, [x]).advance_by(2).append(0, [x * 10.0])
    got = run({"seen": cache.slot(0, 0, include_pending=True)}, {"x": np.array([1, 2], np.float32)})
    np.testing.assert_array_equal(got["seen"], [1, 2, 10, 20])


def test_keys_and_values_are_two_equal_slots(run: Run) -> None:
    new_k = lg.input("new k", "float32", [2, 3, 4])
    new_v = lg.input("new v", "float32", [2, 3, 4], anchor=new_k)
    cache = lg.KvCache(new_k, 2, 8, 3, 4)
    assert (cache.n_slots, cache.slot_trailing(0), cache.slot_trailing(1)) == (2, (3, 4), (3, 4))
    cache = cache.append(0, [new_k, new_v]).append(1, [new_v, new_k])
    pending = {"pending": cache.v(0, include_pending=True), "none": cache.k(0)}
    cache = cache.advance_by(2)
    assert set(cache.outputs()) == {"present.0.k", "present.0.v", "present.1.k", "present.1.v"}
    feeds = {"new k": numbers(2, 3, 4), "new v": numbers(2, 3, 4, start=50)}
    got = run({"k": cache.k(0), "v": cache.v(0), "k1": cache.k(1), **pending, **cache.outputs()}, feeds)
    np.testing.assert_array_equal(got["k"], feeds["new k"])
    np.testing.assert_array_equal(got["v"], feeds["new v"])
    np.testing.assert_array_equal(got["k1"], feeds["new v"])
    np.testing.assert_array_equal(got["pending"], feeds["new v"])
    assert got["none"].shape == (1, 3, 4)
    np.testing.assert_array_equal(got["present.0.v"][:2], feeds["new v"])


def test_numbers_handed_in_may_change_afterwards(run: Run) -> None:
    x = anchor()
    array = np.ones((2, 4), np.float32)
    cache = lg.LatentCache(x, 1, 4, [[4]]).append(0, [x.const(array)]).advance_by(2)
    array[:] = 99
    np.testing.assert_array_equal(run({"rows": cache.slot(0, 0)}, {"x": numbers(1, 4)})["rows"], np.ones((2, 4)))


def test_the_files_scatter_writes_are_checked_by_onnx(tmp_path: Path) -> None:
    x = lg.input("x", "float32", [2, 4])
    cache = lg.LatentCache(x, 1, 8, [[4]]).append(0, [x]).advance_by(2)
    lg.save(cache.outputs(), tmp_path / "model.onnx")
    onnx.checker.check_model(onnx.load(tmp_path / "model.onnx"), full_check=True)
