"""Which slots may be updated in place: what the proof accepts, and what happens where it does not."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

import lazygraph as lg
from lazygraph.export.alias import shared_memory_faults
from lazygraph.export.manifest import FILE
from lazygraph.tensor import Tensor

Array = np.ndarray[Any, Any]
CAPACITY, WIDTH = 8, 4
PAIR = {"past.0.slot0": "present.0.slot0"}


def step(lowering: Any = "buffer") -> tuple[Tensor, lg.LatentCache, lg.LatentCache]:
    """Return the new rows, the cache before them and the cache after them."""
    rows = lg.input("rows", "float32", [lg.size("n", min=1, max=CAPACITY), WIDTH])
    before = lg.LatentCache.inputs(rows, 1, CAPACITY, [[WIDTH]], lowering=lowering)
    return rows, before, before.append(0, [rows])


def faults(outputs: dict[str, Tensor]) -> dict[str, str]:
    return shared_memory_faults(lg.to_onnx(outputs), PAIR)


# ---- what the proof says ----


@pytest.mark.parametrize("lowering", ["buffer", "view"])
def test_a_write_that_is_the_sole_reader_is_proven(lowering: str) -> None:
    _, _, after = step(lowering)
    seen = lg.reduce_sum(after.slot(0, 0, include_pending=True), 0)
    assert faults({**after.outputs(), "seen": seen}) == {}


def test_reading_the_new_buffer_in_any_way_is_fine() -> None:
    _, _, after = step()
    full = after.slot_buffer_full(0, 0)
    assert faults({**after.outputs(), "reversed": full[::-1], "sum": lg.reduce_sum(full), "again": full * 2.0}) == {}


def test_looking_at_the_old_buffers_shape_is_fine() -> None:
    rows = lg.input("rows", "float32", ["n", WIDTH])
    before = lg.LatentCache.inputs(rows, 1, CAPACITY, [[WIDTH]], lowering="view")
    after = before.append(0, [rows])
    size = lg.size_tensor(before.slot_buffer_full(0, 0).shape[0], anchor=rows)
    outputs = {**after.outputs(), "size": size}
    assert any(node.op_type == "Shape" and "past.0.slot0" in node.input for node in lg.to_onnx(outputs).graph.node)
    assert faults(outputs) == {}


@pytest.mark.parametrize("first", [True, False])
def test_a_second_reader_of_the_old_buffer_is_a_fault_before_and_after_the_write(first: bool) -> None:
    rows, before, after = step()
    old = before.slot_buffer_full(0, 0)
    if first:
        total = lg.reduce_sum(old)
        after = before.append(0, [rows])
    else:
        total = lg.reduce_sum(old * lg.reduce_max(after.slot_buffer_full(0, 0)))
    found = faults({**after.outputs(), "total": total})
    (reason,) = found.values()
    assert re.fullmatch(
        r"(ReduceSum|Mul) \w+ reads past\.0\.slot0 and may run after the write: nothing of it flows into the write",
        reason,
    )


def test_the_old_slot_as_an_output_is_a_fault() -> None:
    _, before, after = step()
    assert list(faults({**after.outputs(), "old": before.slot(0, 0)})) == ["past.0.slot0"]
    assert list(faults({**after.outputs(), "old": before.slot_buffer_full(0, 0)})) == ["past.0.slot0"]


def test_rows_made_from_the_old_buffer_wait_for_its_reader_and_need_no_copy() -> None:
    rows, before, _ = step()
    after = before.append(0, [rows + lg.reduce_max(before.slot_buffer_full(0, 0), 0)])
    assert faults(after.outputs()) == {}


def test_every_other_reader_must_flow_into_the_write() -> None:
    rows, before, _ = step()
    old = before.slot_buffer_full(0, 0)
    highest = lg.reduce_max(old, 0)
    after = before.append(0, [rows + highest])
    assert faults({**after.outputs(), "highest": highest * 2.0}) == {}
    found = faults({**after.outputs(), "lowest": lg.reduce_min(old, 0)})
    assert found["past.0.slot0"].startswith("ReduceMin ")


def test_what_flows_into_the_index_is_waited_for_too() -> None:
    rows = lg.input("rows", "float32", [1, WIDTH])
    old = lg.input("past.0.slot0", "float32", [CAPACITY, WIDTH], anchor=rows)
    lowest = lg.reshape(lg.argmin(lg.reduce_sum(old, 1), 0), [1, 1])
    assert faults({"present.0.slot0": lg.scatter_nd(old, lowest, rows)}) == {}


@pytest.mark.parametrize(
    "view",
    [
        lambda old: lg.reshape(old, [2, CAPACITY // 2, WIDTH]),
        lambda old: lg.unsqueeze(old, 0),
        lambda old: old[0:CAPACITY],
        lambda old: old + 0.0,
    ],
)
def test_who_reads_a_view_reads_the_buffer(view: Callable[[Tensor], Tensor]) -> None:
    """The view itself flows into the write, but its other reader does not: it may see the memory after the write."""
    rows, before, _ = step()
    seen = view(before.slot_buffer_full(0, 0))
    after = before.append(0, [rows + lg.reduce_max(lg.reshape(seen, [CAPACITY, WIDTH]), 0)])
    assert faults(after.outputs()) == {}
    found = faults({**after.outputs(), "total": lg.reduce_sum(seen)})
    assert "a view of past.0.slot0, and may run after the write" in found["past.0.slot0"]
    handed_out = faults({**after.outputs(), "old": seen})["past.0.slot0"]
    assert handed_out.endswith("a view of past.0.slot0, is an output of the graph as well")


@pytest.mark.parametrize(
    ("change", "maker"),
    [
        (lambda old: old[::-1], "Slice"),
        (lambda old: lg.gather(old, old.const(np.roll(np.arange(CAPACITY), 1))), "Gather"),
        (lambda old: lg.concat([old[1:], old[:1]], axis=0), "Concat"),
        (lambda old: old + 1.0, "Add"),
    ],
)
def test_reversed_rolled_and_computed_buffers_are_faults(change: Callable[[Tensor], Tensor], maker: str) -> None:
    old = lg.input("past.0.slot0", "float32", [CAPACITY, WIDTH])
    found = faults({"present.0.slot0": change(old)})
    assert found == {"past.0.slot0": f"present.0.slot0 is made by {maker}, which does not write in place"}


def test_two_writes_one_after_the_other_are_a_fault() -> None:
    rows, _, after = step()
    second = after.advance_by("n").append(0, [rows])
    assert faults(second.outputs()) == {"past.0.slot0": "present.0.slot0 is not a write into past.0.slot0 itself"}


def test_crossed_slots_are_faults() -> None:
    rows = lg.input("rows", "float32", [1, WIDTH])
    cache = lg.LatentCache.inputs(rows, 1, CAPACITY, [[WIDTH], [WIDTH]]).append(0, [rows, rows])
    first, second = cache.outputs().values()
    model = lg.to_onnx({"present.0.slot0": second, "present.0.slot1": first})
    pairs = {f"past.0.slot{i}": f"present.0.slot{i}" for i in range(2)}
    assert sorted(shared_memory_faults(model, pairs)) == ["past.0.slot0", "past.0.slot1"]
    swapped = {"past.0.slot0": "present.0.slot1", "past.0.slot1": "present.0.slot0"}
    assert shared_memory_faults(model, swapped) == {}


def test_an_output_that_is_not_there_is_a_fault() -> None:
    _, _, after = step()
    model = lg.to_onnx(after.outputs())
    assert shared_memory_faults(model, {"past.0.slot0": "elsewhere"}) == {
        "past.0.slot0": "elsewhere is not an output of the graph"
    }


def hand_made(nodes: list[onnx.NodeProto], extra: tuple[str, ...] = (), domain: str = "") -> onnx.ModelProto:
    """Return a model with ``past``, ``index`` and ``rows`` as inputs and ``present`` as output."""
    shape = [CAPACITY, WIDTH]
    inputs = [
        helper.make_tensor_value_info("past", TensorProto.FLOAT, shape),
        helper.make_tensor_value_info("index", TensorProto.INT64, ["n", 1]),
        helper.make_tensor_value_info("rows", TensorProto.FLOAT, ["n", WIDTH]),
        helper.make_tensor_value_info("yes", TensorProto.BOOL, []),
    ]
    outputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["a", "b"]) for name in ("present", *extra)]
    imports = [helper.make_opsetid("", 18), *([helper.make_opsetid(domain, 1)] if domain else [])]
    return helper.make_model(helper.make_graph(nodes, "g", inputs, outputs), opset_imports=imports)


WRITE = helper.make_node("ScatterND", ["past", "index", "rows"], ["present"], name="write")


def hand_faults(model: onnx.ModelProto) -> dict[str, str]:
    return shared_memory_faults(model, {"past": "present"})


def branch(name: str, reads: str) -> onnx.GraphProto:
    made = helper.make_tensor_value_info(name, TensorProto.FLOAT, ["a", "b"])
    return helper.make_graph([helper.make_node("Identity", [reads], [name])], name, [], [made])


def choice(then: onnx.GraphProto, other: onnx.GraphProto) -> onnx.NodeProto:
    return helper.make_node("If", ["yes"], ["chosen"], then_branch=then, else_branch=other)


def test_a_reader_in_a_nested_graph_is_a_fault() -> None:
    fine = hand_made([WRITE, choice(branch("a", "rows"), branch("b", "rows"))], ("chosen",))
    onnx.checker.check_model(fine)
    assert hand_faults(fine) == {}
    for nodes in (
        [WRITE, choice(branch("a", "rows"), branch("b", "past"))],
        [choice(branch("a", "past"), branch("b", "rows")), WRITE],
    ):
        reason = "If chosen reads past and may run after the write: nothing of it flows into the write"
        assert hand_faults(hand_made(nodes, ("chosen",))) == {"past": reason}

    deep = helper.make_graph(
        [choice(branch("c", "past"), branch("d", "rows"))],
        "deep",
        [],
        [helper.make_tensor_value_info("chosen", TensorProto.FLOAT, ["a", "b"])],
    )
    assert "past" in hand_faults(hand_made([WRITE, choice(branch("a", "rows"), deep)], ("chosen",)))
    passed = helper.make_graph([], "passed", [], [helper.make_tensor_value_info("past", TensorProto.FLOAT, ["a", "b"])])
    assert "past" in hand_faults(hand_made([WRITE, choice(branch("a", "rows"), passed)], ("chosen",)))


def test_an_identity_is_proven_when_it_reads_alone() -> None:
    copy = helper.make_node("Identity", ["past"], ["present"])
    assert hand_faults(hand_made([copy])) == {}
    assert "past" in hand_faults(hand_made([copy, helper.make_node("Neg", ["past"], ["minus"])], ("minus",)))


def test_the_old_buffer_handed_out_under_its_own_name_is_a_fault() -> None:
    assert hand_faults(hand_made([WRITE], ("past",))) == {"past": "past is an output of the graph as well"}


def test_a_write_of_the_buffer_into_itself_is_a_fault() -> None:
    model = hand_made([helper.make_node("ScatterND", ["past", "index", "past"], ["present"], name="write")])
    assert hand_faults(model) == {"past": "write reads past as an update of itself"}


def test_a_write_of_a_view_of_the_buffer_into_itself_is_a_fault() -> None:
    same = helper.make_node("Identity", ["past"], ["again"])
    model = hand_made([same, helper.make_node("ScatterND", ["past", "index", "again"], ["present"], name="write")])
    assert hand_faults(model) == {"past": "write reads again, a view of past, as an update of itself"}


def test_a_dependency_through_a_shape_alone_is_none() -> None:
    """Runtimes fold a known shape into a constant, and then nothing waits for the reader."""
    nodes = [
        helper.make_node("Neg", ["past"], ["minus"], name="minus"),
        helper.make_node("Shape", ["minus"], ["sizes"]),
        helper.make_node("Expand", ["rows", "sizes"], ["wide"]),
        helper.make_node("ScatterND", ["past", "index", "wide"], ["present"], name="write"),
    ]
    reason = "Neg minus reads past and may run after the write: nothing of it flows into the write"
    assert hand_faults(hand_made(nodes, ("minus",))) == {"past": reason}


def test_another_domains_operator_of_the_same_name_proves_nothing() -> None:
    foreign = helper.make_node("ScatterND", ["past", "index", "rows"], ["present"], domain="mine")
    assert list(hand_faults(hand_made([foreign], domain="mine"))) == ["past"]
    shape = helper.make_node("Shape", ["past"], ["sizes"], domain="mine")
    assert list(hand_faults(hand_made([WRITE, shape], ("sizes",), domain="mine"))) == ["past"]


def test_an_input_passed_through_under_its_own_name_needs_no_proof() -> None:
    assert shared_memory_faults(hand_made([WRITE]), {"past": "past"}) == {}


# ---- what runs ----

STEPS = (3, 1, 1, 1, 1, 1)


def drive(session: onnxruntime.InferenceSession, style: str) -> tuple[list[Array], Array]:
    """Return what six steps see, and the buffer in the end; arrays handed in are spoilt afterwards."""
    random = np.random.default_rng(7)
    shape = (CAPACITY, WIDTH)
    held, spare = (onnxruntime.OrtValue.ortvalue_from_numpy(np.zeros(shape, np.float32)) for _ in range(2))
    plain = np.zeros(shape, np.float32)
    seen, past = [], 0
    for count in STEPS:
        feeds = {"rows": random.standard_normal((count, WIDTH)).astype(np.float32), "past_len": np.array(past)}
        if style == "plain":
            given = plain
            results = session.run(["seen", "present.0.slot0"], {**feeds, "past.0.slot0": given})
            seen.append(results[0].copy())
            plain = results[1]
            given[:] = np.nan
        else:
            binding = session.io_binding()
            for name, array in feeds.items():
                binding.bind_cpu_input(name, array)
            binding.bind_ortvalue_input("past.0.slot0", held)
            binding.bind_output("seen", "cpu")
            binding.bind_ortvalue_output("present.0.slot0", held if style == "in place" else spare)
            session.run_with_iobinding(binding)
            seen.append(binding.get_outputs()[0].numpy().copy())
            if style == "ping-pong":
                held, spare = spare, held
        feeds["rows"][:] = np.nan
        past += count
    return seen, plain if style == "plain" else held.numpy().copy()


@pytest.mark.parametrize("lowering", ["buffer", "view"])
def test_a_proven_graph_gives_the_same_however_its_slots_are_bound(lowering: str, tmp_path: Path) -> None:
    _, before, after = step(lowering)
    visible = lg.where(
        before.causal_mask("n")[-1:, :], 1.0, lg.constant(0.0, dtype="float32", anchor=before.positions("n"))
    )
    seen = visible @ after.slot(0, 0, include_pending=True)
    outputs = {**after.outputs(), "seen": seen}
    assert faults(outputs) == {}
    lg.save(outputs, tmp_path / "model.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx", providers=["CPUExecutionProvider"])
    wanted, end = drive(session, "plain")

    random = np.random.default_rng(7)
    rows = np.concatenate([random.standard_normal((count, WIDTH)).astype(np.float32) for count in STEPS])
    np.testing.assert_array_equal(end, rows)  # the steps fill the capacity exactly
    for i, past in enumerate(np.cumsum(STEPS)):
        np.testing.assert_allclose(wanted[i][0], rows[:past].sum(0), rtol=1e-5, atol=1e-6)
    for style in ("ping-pong", "in place"):
        got, got_end = drive(session, style)
        for a, b in zip(got, wanted, strict=True):
            np.testing.assert_array_equal(a, b, err_msg=style)
        np.testing.assert_array_equal(got_end, end, err_msg=style)


def kept_running(session_file: Path, outputs: dict[str, Tensor]) -> onnxruntime.InferenceSession:
    lg.save(outputs, session_file)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(session_file, options, providers=["CPUExecutionProvider"])


@pytest.mark.parametrize("lowering", ["buffer", "view"])
def test_readers_that_the_write_waits_for_see_the_old_rows_however_it_is_bound(lowering: str, tmp_path: Path) -> None:
    rows, before, _ = step(lowering)
    old = before.slot_buffer_full(0, 0)
    counts = lg.arange(0, old.shape[0], anchor=old) < before.current_seq_len
    kept = lg.where(lg.unsqueeze(counts, 1), old, 0.0)
    total = lg.reduce_sum(kept, 0)
    after = before.append(0, [rows + total])
    outputs = {**after.outputs(), "seen": lg.unsqueeze(total, 0)}
    assert faults(outputs) == {}
    session = kept_running(tmp_path / "model.onnx", outputs)
    wanted, end = drive(session, "plain")
    for style in ("ping-pong", "in place"):
        got, got_end = drive(session, style)
        np.testing.assert_array_equal(np.concatenate(got), np.concatenate(wanted), err_msg=style)
        np.testing.assert_array_equal(got_end, end, err_msg=style)


LATE: dict[str, Callable[[Tensor], Tensor]] = {
    "read after the append": lambda old: old,
    "rolled": lambda old: lg.concat([old[-1:], old[:-1]], axis=0),
    "reversed": lambda old: old[::-1],
}


@pytest.mark.parametrize("late", LATE)
def test_late_readers_of_the_old_slot_are_found_and_right_unless_bound_in_place(late: str, tmp_path: Path) -> None:
    """The old slot is read through a number that follows from the new one: after the write, whatever the order."""
    _, before, after = step()
    one = lg.reduce_max(after.slot_buffer_full(0, 0)) * 0.0 + 1.0
    seen = LATE[late](before.slot_buffer_full(0, 0) * one)
    outputs = {**after.outputs(), "seen": seen}
    assert "may run after the write" in faults(outputs)["past.0.slot0"]
    session = kept_running(tmp_path / "model.onnx", outputs)
    wanted, end = drive(session, "plain")
    got, got_end = drive(session, "ping-pong")
    np.testing.assert_array_equal(np.concatenate(got), np.concatenate(wanted))
    np.testing.assert_array_equal(got_end, end)
    wrong, _ = drive(session, "in place")
    assert not np.array_equal(np.concatenate(wrong), np.concatenate(wanted)), "in place would do: the proof is needless"


@pytest.mark.parametrize("change", [lambda old: old[::-1], lambda old: lg.concat([old[1:], old[:1]], axis=0)])
def test_rolled_and_reversed_memory_is_not_bound_in_place(change: Callable[[Tensor], Tensor], tmp_path: Path) -> None:
    _, _, after = step()
    new = change(after.slot_buffer_full(0, 0))
    outputs = {"present.0.slot0": new, "seen": lg.reduce_sum(new, 0)[None]}
    assert "does not write in place" in faults(outputs)["past.0.slot0"]
    session = kept_running(tmp_path / "model.onnx", outputs)
    wanted, end = drive(session, "plain")
    got, got_end = drive(session, "ping-pong")
    np.testing.assert_array_equal(np.concatenate(got), np.concatenate(wanted))
    np.testing.assert_array_equal(got_end, end)


VOCAB = 6


def counting_decoder(
    folder: Path, old: bool, copied: dict[str, str] | None = None
) -> tuple[lg.Decoder, dict[str, str]]:
    """Export a decoder whose logits are the sum of all rows, and of those before the step ``old`` times 100.

    The old buffer is read through a number that follows from the new one, so always after the write.
    """
    ids = lg.input("input_ids", "int64", [lg.size("n", min=1, max=CAPACITY)])
    before = lg.LatentCache.inputs(ids, 1, CAPACITY, [[VOCAB]])
    start = lg.input("logits_from", "int64", [], anchor=ids)
    rows = lg.unsqueeze(ids.astype("float32"), 1) * ids.const(np.arange(1, VOCAB + 1, dtype=np.float32))
    after = before.append(0, [rows])
    total = lg.reduce_sum(after.slot_buffer_full(0, 0), 0)
    logits = rows * 0.0 + total
    if old:
        one = lg.reduce_max(total) * 0.0 + 1.0
        logits = logits + lg.reduce_sum(before.slot_buffer_full(0, 0) * one, 0) * 100.0
    logits = lg.slice(logits, lg.reshape(start, [1]), [2**31], axes=[0])
    manifest = lg.save_decoder(logits, after.advance_by("n"), folder)
    if copied is not None:
        (folder / FILE).write_text(replace(manifest, copied=copied).to_json())
    return lg.Decoder.open(folder, threads=1), manifest.copied


def counted(tokens: list[int], past: int, old: bool) -> Array:
    ramp = np.arange(1, VOCAB + 1, dtype=np.float32)
    return (sum(tokens) + (100 * sum(tokens[:past]) if old else 0)) * ramp


TOKENS = [3, 1, 5, 2, 4, 1, 0, 5]


@pytest.mark.parametrize("old", [False, True])
def test_a_decoder_binds_what_is_not_proven_to_memory_of_its_own(tmp_path: Path, old: bool) -> None:
    decoder, found = counting_decoder(tmp_path / "export", old)
    assert list(found) == (["past.0.slot0"] if old else [])
    past = 0
    for count in (3, 1, 1, 1, 2):
        got = decoder.append(TOKENS[past : past + count])
        np.testing.assert_array_equal(got, np.tile(counted(TOKENS[: past + count], past, old), (count, 1)))
        past += count


def test_binding_what_is_not_proven_in_place_is_wrong(tmp_path: Path) -> None:
    """The check above can fail: without the proof's verdict the same graph sees rows that it must not see."""
    decoder, _ = counting_decoder(tmp_path / "export", old=True, copied={})
    got = decoder.append(TOKENS[:3])
    assert not np.array_equal(got[0], counted(TOKENS[:3], 0, True))


@pytest.mark.parametrize("old", [False, True])
def test_forks_and_truncations_hold_with_slots_of_either_kind(tmp_path: Path, old: bool) -> None:
    decoder, _ = counting_decoder(tmp_path / "export", old)
    decoder.append(TOKENS[:4])
    other = decoder.fork()
    decoder.truncate(2)
    # the whole buffer is summed here, so rows beyond the length are seen: start again from what counts
    clean = lg.Decoder.restore(*saved(decoder, tmp_path))
    np.testing.assert_array_equal(clean.append([1])[0], counted([*TOKENS[:2], 1], 2, old))
    np.testing.assert_array_equal(other.append([2])[0], counted([*TOKENS[:4], 2], 4, old))
    np.testing.assert_array_equal(other.append([3])[0], counted([*TOKENS[:4], 2, 3], 5, old))


def saved(decoder: lg.Decoder, folder: Path) -> tuple[Path, Path]:
    decoder.save(folder / "state.safetensors")
    return decoder.folder, folder / "state.safetensors"


def test_an_interrupt_while_memories_change_places_leaves_the_state_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    decoder, _ = counting_decoder(tmp_path / "export", old=True)
    decoder.append(TOKENS[:3])

    def stop(new: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(decoder._runner.memory, "count", stop)
    with pytest.raises(KeyboardInterrupt):
        decoder.append([0])
    monkeypatch.undo()
    assert decoder.length == 3
    np.testing.assert_array_equal(decoder.append([4])[0], counted([*TOKENS[:3], 4], 3, True))
    np.testing.assert_array_equal(decoder.append([2])[0], counted([*TOKENS[:3], 4, 2], 4, True))
