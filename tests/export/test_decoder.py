"""The decoder against the goldens: any chunking, any rewinding, any misuse, the same logits."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, rule, run_state_machine_as_test
from safetensors.numpy import load_file, save_file

import lazygraph as lg
from lazygraph.export import binding, running
from lazygraph.export.session import run_bound

Array = np.ndarray[Any, Any]
GOLDENS = Path(__file__).parents[1] / "goldens"
CAPACITY = 150  # more than two strides of bound rows, and no multiple of one
TOLERANCE = 1e-4
SPOILT = 158  # a token that the golden text does not hold


@dataclass(frozen=True)
class Golden:
    """An export, and what transformers says of it."""

    folder: Path
    prompt: list[int]
    tokens: list[int]
    logits: Array
    warnings: tuple[str, ...]


@pytest.fixture(scope="session")
def export(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Golden]:
    made: dict[tuple[str, int], Golden] = {}

    def exported(name: str = "llama", capacity: int = CAPACITY) -> Golden:
        if (name, capacity) not in made:
            folder = tmp_path_factory.mktemp("exports") / name
            said: list[str] = []
            lg.convert(GOLDENS / name, folder, max_seq_len=capacity, warn=said.append)
            golden = load_file(GOLDENS / name / "golden.safetensors")
            facts = golden["prompt"].tolist(), golden["tokens"].tolist(), golden["logits"]
            made[name, capacity] = Golden(folder, *facts, tuple(said))
        return made[name, capacity]

    return exported


Export = Callable[..., Golden]


@pytest.fixture
def golden(export: Export) -> Golden:
    return export()


@pytest.fixture
def decoder(golden: Golden) -> lg.Decoder:
    return opened(golden)


def opened(golden: Golden) -> lg.Decoder:
    return lg.Decoder.open(golden.folder, threads=1)


def fresh(golden: Golden, tokens: list[int]) -> Array:
    """Return the logits of one pass on a decoder that never read anything else: the reference."""
    return opened(golden).append(tokens)


def close(got: Array, wanted: Array) -> None:
    np.testing.assert_allclose(got, wanted, rtol=0, atol=TOLERANCE)


def whole_after(decoder: lg.Decoder, before: list[int], golden: Golden) -> None:
    """Check that the decoder stands right after ``before`` and goes on from there."""
    assert decoder.length == len(before)
    nexts = [11, 5]
    close(decoder.append(nexts), fresh(golden, [*before, *nexts])[-2:])


# ---- the goldens, cut any way ----


@pytest.mark.parametrize("name", ["llama", "llama_tied", "qwen3"])
@pytest.mark.parametrize(
    "cut", [[9, *[1] * 23], [1] * 32, [4, 5, *[1] * 23], [32], [31, 1], [1, 31], [9, 7, 2, 14]], ids=str
)
def test_the_goldens_decode_exactly_however_they_are_cut(export: Export, name: str, cut: list[int]) -> None:
    golden = export(name)
    decoder = opened(golden)
    logits = []
    for count in cut:
        start = decoder.length
        logits.append(decoder.append(golden.tokens[start : start + count]))
        assert logits[-1].shape == (count, 160) and logits[-1].dtype == np.float32
        assert decoder.length == start + count
    got = np.concatenate(logits)
    close(got, golden.logits)
    assert got.argmax(axis=-1)[8:].tolist() == golden.tokens[9:]


def test_a_sliding_window_that_the_cache_stays_within_is_full_attention(export: Export) -> None:
    golden = export("mistral_sliding", 6)
    decoder = opened(golden)
    close(decoder.append(golden.tokens[:4]), golden.logits[:4])
    close(decoder.append(golden.tokens[4:6]), golden.logits[4:6])
    with pytest.raises(lg.CacheOverflowError):
        decoder.append([1])


@pytest.mark.parametrize("count", [1, 2, 9])
def test_last_is_the_last_row_of_all(golden: Golden, count: int) -> None:
    one, other = opened(golden), opened(golden)
    for start in (0, count):
        tokens = golden.tokens[start : start + count]
        last = one.append(tokens, logits="last")
        assert last.shape == (1, 160)
        close(last, other.append(tokens, logits="all")[-1:])


def test_the_logits_are_the_callers_own(golden: Golden, decoder: lg.Decoder) -> None:
    ids = np.array(golden.prompt)
    first = decoder.append(ids)
    kept = first.copy()
    ids[:] = 0
    decoder.append(golden.tokens[9:12])
    np.testing.assert_array_equal(first, kept)
    first[:] = np.nan
    close(decoder.append(golden.tokens[12:14]), golden.logits[12:14])


@pytest.mark.parametrize(
    "ids",
    [(1, 2, 3), np.array([1, 2, 3], np.int32), np.array([1, 2, 3], np.uint8), np.arange(6)[1::2] // 2 + 1, range(1, 4)],
    ids=["tuple", "int32", "uint8", "strided", "range"],
)
def test_any_flat_sequence_of_whole_numbers_is_read(golden: Golden, decoder: lg.Decoder, ids: Any) -> None:
    close(decoder.append(ids), fresh(golden, [1, 2, 3]))


# ---- rewinding and forking ----


def test_what_was_truncated_leaves_no_trace(golden: Golden, decoder: lg.Decoder) -> None:
    decoder.append(golden.tokens[:20])
    for length in (20, 15, 9):
        decoder.truncate(length)
        assert decoder.length == length
    close(decoder.append([7, 8, 9]), fresh(golden, [*golden.tokens[:9], 7, 8, 9])[-3:])
    decoder.truncate(0)
    close(decoder.append(golden.tokens[:32]), golden.logits)


@pytest.mark.parametrize("length", [-1, 10, True, 3.0, "3", None, np.array([3, 4])], ids=str)
def test_a_truncate_to_no_length_of_the_past_is_refused(golden: Golden, decoder: lg.Decoder, length: Any) -> None:
    decoder.append(golden.prompt)
    with pytest.raises(lg.CacheError) as caught:
        decoder.truncate(length)
    assert caught.value.what == f"truncate to {length!r} of 9 tokens" and caught.value.wanted == 9
    whole_after(decoder, golden.prompt, golden)


def test_numpys_int_truncates(golden: Golden, decoder: lg.Decoder) -> None:
    decoder.append(golden.prompt)
    decoder.truncate(np.int64(4))  # type: ignore[arg-type]
    assert decoder.length == 4 and type(decoder.length) is int


def test_forks_go_on_independently(golden: Golden, decoder: lg.Decoder) -> None:
    decoder.append(golden.prompt)
    other = decoder.fork()
    assert other.length == 9
    left = decoder.append([1, 2, 3])
    right = other.append([4, 5, 6])
    third = other.fork()
    decoder.truncate(2)
    decoder.append([9, 9, 9, 9, 9, 9, 9, 9])
    close(left, fresh(golden, [*golden.prompt, 1, 2, 3])[-3:])
    close(right, fresh(golden, [*golden.prompt, 4, 5, 6])[-3:])
    close(other.append([7]), fresh(golden, [*golden.prompt, 4, 5, 6, 7])[-1:])
    third.truncate(9)
    whole_after(third, golden.prompt, golden)
    del decoder, other
    whole_after(third, [*golden.prompt, 11, 5], golden)


def test_a_fork_of_nothing_is_empty(golden: Golden, decoder: lg.Decoder) -> None:
    whole_after(decoder.fork(), [], golden)


def spoilt_export(golden: Golden, folder: Path) -> Path:
    """Return an export of the same checkpoint whose token SPOILT computes NaN."""
    source = folder / "checkpoint"
    source.mkdir()
    shutil.copy(GOLDENS / "llama" / "config.json", source)
    weights = load_file(GOLDENS / "llama" / "model.safetensors")
    table = weights["model.embed_tokens.weight"].copy()
    table[SPOILT] = np.nan
    save_file({**weights, "model.embed_tokens.weight": table}, source / "model.safetensors")
    lg.convert(source, folder / "export", max_seq_len=CAPACITY)
    return folder / "export"


def test_rewound_rows_never_come_back_not_even_as_nan(golden: Golden, tmp_path: Path) -> None:
    """Rows beyond the length are masked, and NaN goes through a mask: they must not be there."""
    decoder = lg.Decoder.open(spoilt_export(golden, tmp_path), threads=1)
    close(decoder.append(golden.prompt), golden.logits[:9])
    for spoilt in (1, 30, 80, 140):
        assert np.isnan(decoder.append([SPOILT] * spoilt)).any()
        other = decoder.fork()
        decoder.truncate(9)
        for start in range(9, 16):
            close(decoder.append(golden.tokens[start : start + 1]), golden.logits[start : start + 1])
        decoder.truncate(11)
        close(decoder.append(golden.tokens[11:32]), golden.logits[11:32])
        decoder.truncate(9)
        other.truncate(4)
        close(other.append(golden.tokens[4:9]), golden.logits[4:9])
    # and across the strides in which rows are bound: every row is clean again
    tokens = [*golden.prompt, *range(100)]
    decoder.truncate(9)
    got = np.concatenate([decoder.append([token]) for token in tokens[9:]])
    close(got, fresh(golden, tokens)[9:])


# ---- what is refused ----


@pytest.mark.parametrize(
    ("ids", "error", "what"),
    [
        ([-1], lg.IndexRangeError, "token id -1 of a vocabulary of 160"),
        ([5, 160], lg.IndexRangeError, "token id 160 of a vocabulary of 160"),
        ([2**31], lg.IndexRangeError, "token id 2147483648 of a vocabulary of 160"),
        ([2**63], lg.IndexRangeError, "token id 9223372036854775808 of a vocabulary of 160"),
        ([2**64], lg.OperandError, "no whole numbers"),
        ([2**63, -1], lg.OperandError, "no whole numbers"),
        ([1.0], lg.OperandError, "no whole numbers"),
        (np.array([1.5]), lg.OperandError, "no whole numbers"),
        ([True], lg.OperandError, "no whole numbers"),
        ([True, 5], lg.OperandError, "no whole numbers"),
        (np.array([True, False]), lg.OperandError, "no whole numbers"),
        ([], lg.OperandError, "no token"),
        (np.zeros((0,), np.int64), lg.OperandError, "no token"),
        ([[1, 2]], lg.OperandError, "2 axes"),
        (np.array([[1], [2]]), lg.OperandError, "2 axes"),
        ([[1], [1, 2]], lg.OperandError, "no whole numbers"),
        (5, lg.OperandError, "0 axes"),
        ("12", lg.OperandError, "no whole numbers"),
        (["a"], lg.OperandError, "no whole numbers"),
        (None, lg.OperandError, "no whole numbers"),
        ([None], lg.OperandError, "no whole numbers"),
        ({1, 2}, lg.OperandError, "no whole numbers"),
        (iter([1]), lg.OperandError, "no whole numbers"),
    ],
    ids=range(23),
)
def test_ids_that_are_none_are_refused_and_change_nothing(
    golden: Golden, decoder: lg.Decoder, ids: Any, error: type[lg.LazyGraphError], what: str
) -> None:
    decoder.append(golden.prompt)
    for call in (decoder.append, decoder.generate):
        with pytest.raises(error) as caught:
            call(ids)
        assert type(caught.value) is error and caught.value.what == what
    whole_after(decoder, golden.prompt, golden)


def test_the_message_of_a_bad_id(decoder: lg.Decoder) -> None:
    with pytest.raises(lg.IndexRangeError) as caught:
        decoder.append([3, 160, -1])
    assert str(caught.value) == (
        f"append: token id 160 of a vocabulary of 160\n  expected : ids in [0, 160)\n  at       : {caught.value.at}"
    )
    assert caught.value.at is not None and caught.value.at.file == __file__
    assert caught.value.index == 160  # type: ignore[attr-defined]


@pytest.mark.parametrize("logits", ["first", None, 0, np.array(["all", "last"])], ids=str)
def test_another_wish_for_logits_is_refused(golden: Golden, decoder: lg.Decoder, logits: Any) -> None:
    with pytest.raises(lg.OperandError, match="'all' or 'last'"):
        decoder.append([1], logits=logits)
    whole_after(decoder, [], golden)


def test_a_full_cache_refuses_more_and_stays_whole(golden: Golden, decoder: lg.Decoder) -> None:
    tokens = (golden.tokens * 5)[:CAPACITY]
    with pytest.raises(lg.CacheOverflowError):
        decoder.append([*tokens, 1])
    decoder.append(tokens[: CAPACITY - 2])
    for chunk in ([1, 2, 3], [1] * 64, [1] * 1000):  # across the end
        with pytest.raises(lg.CacheOverflowError) as caught:
            decoder.append(chunk)
        assert (caught.value.wanted, caught.value.got) == (CAPACITY, CAPACITY - 2 + len(chunk))
    assert str(caught.value) == (
        f"append: 1000 tokens after 148 pass the end at {CAPACITY}\n"
        f"  expected : length + new tokens <= {CAPACITY}\n"
        "  hint     : export with a larger --max-seq-len, or truncate\n"
        f"  at       : {caught.value.at}"
    )
    wanted = fresh(golden, tokens)
    close(decoder.append(tokens[-2:]), wanted[-2:])
    assert decoder.length == CAPACITY
    with pytest.raises(lg.CacheOverflowError):
        decoder.append([1])
    decoder.truncate(CAPACITY - 1)
    close(decoder.append(tokens[-1:]), wanted[-1:])


def test_capacities_across_the_strides_in_which_rows_are_bound(export: Export) -> None:
    reference = fresh(export(), (export().tokens * 5)[:129])
    for capacity in (1, 63, 64, 65, 127, 128, 129):
        golden = export("llama", capacity)
        decoder = opened(golden)
        tokens = (golden.tokens * 5)[:capacity]
        first = max(1, capacity - 3)
        got = [decoder.append(tokens[:first])]
        got += [decoder.append([token]) for token in tokens[first:]]
        close(np.concatenate(got), reference[:capacity])
        with pytest.raises(lg.CacheOverflowError):
            decoder.append([1])


def test_single_steps_through_the_whole_capacity(golden: Golden, decoder: lg.Decoder) -> None:
    tokens = (golden.tokens * 5)[:CAPACITY]
    close(np.concatenate([decoder.append([token]) for token in tokens]), fresh(golden, tokens))


def test_a_prompt_longer_than_one_run_takes_is_one_append(
    golden: Golden, decoder: lg.Decoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokens = (golden.tokens * 5)[:CAPACITY]
    wanted = fresh(golden, tokens)
    monkeypatch.setattr(running, "CHUNK", 7)
    close(decoder.append(tokens[:50]), wanted[:50])
    close(decoder.append(tokens[50:64], logits="last"), wanted[63:64])
    close(decoder.append(tokens[64:]), wanted[64:])

    calls = []
    run = run_bound

    def failing(*args: Any) -> None:
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        run(*args)

    decoder.truncate(9)
    monkeypatch.setattr(binding, "run_bound", failing)
    with pytest.raises(KeyboardInterrupt):
        decoder.append([1] * 30)
    monkeypatch.undo()
    whole_after(decoder, tokens[:9], golden)


# ---- runs that fail ----


class Failing:
    """A session whose next run stops: before it ran, or after."""

    def __init__(self, session: Any, error: BaseException, after: bool) -> None:
        self.session, self.error, self.after = session, error, after

    def __getattr__(self, name: str) -> Any:
        return getattr(self.session, name)

    def run_with_iobinding(self, binding: Any, *rest: Any) -> None:
        if self.after:
            self.session.run_with_iobinding(binding, *rest)
        raise self.error


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("error", [RuntimeError("no memory"), KeyboardInterrupt(), MemoryError()], ids=repr)
def test_a_run_that_fails_leaves_the_state_whole(
    golden: Golden, decoder: lg.Decoder, error: BaseException, after: bool
) -> None:
    decoder.append(golden.prompt)
    session = decoder._runner.session
    for tokens in ([159], [1] * 70, [2, 3]):
        decoder._runner.session = Failing(session, error, after)
        with pytest.raises(lg.ExportError if type(error) is RuntimeError else type(error)):
            decoder.append(tokens)
        assert decoder.length == 9
    decoder._runner.session = session
    whole_after(decoder, golden.prompt, golden)


def test_a_run_that_failed_half_way_leaves_no_nan_behind(golden: Golden, tmp_path: Path) -> None:
    decoder = lg.Decoder.open(spoilt_export(golden, tmp_path), threads=1)
    decoder.append(golden.prompt)
    session = decoder._runner.session
    decoder._runner.session = Failing(session, KeyboardInterrupt(), True)
    with pytest.raises(KeyboardInterrupt):
        decoder.append([SPOILT] * 20)
    decoder._runner.session = session
    close(decoder.append(golden.tokens[9:10]), golden.logits[9:10])
    close(decoder.append(golden.tokens[10:32]), golden.logits[10:32])


def test_an_interrupt_while_memory_is_bound_leaves_the_state_whole(
    golden: Golden, decoder: lg.Decoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    decoder.append(golden.prompt)
    bindings = decoder._runner._bindings
    real = bindings._bindings[0]

    class Stopping:
        calls = 0

        def __getattr__(self, name: str) -> Any:
            return getattr(real, name)

        def bind_output(self, *args: Any) -> None:
            self.calls += 1
            if self.calls == 3:
                raise KeyboardInterrupt
            real.bind_output(*args)

    bindings._bindings[0] = Stopping()
    with pytest.raises(KeyboardInterrupt):
        decoder.append([1] * 70)
    bindings._bindings[0] = real
    whole_after(decoder, golden.prompt, golden)


# ---- generate ----


def test_greedy_generation_is_the_goldens(golden: Golden, decoder: lg.Decoder) -> None:
    told: list[int] = []
    got = list(decoder.generate(golden.prompt, 24, stop_ids=[], on_token=told.append))
    assert got == golden.tokens[9:] and told == got
    assert decoder.length == 9 + 23  # the last token was yielded, not read


def test_generation_goes_on_where_the_decoder_stands(golden: Golden, decoder: lg.Decoder) -> None:
    first = list(decoder.generate(golden.prompt, 5, stop_ids=[]))
    more = list(decoder.generate(first[-1:], 5, stop_ids=[]))
    assert first + more == golden.tokens[9:19]


@pytest.mark.parametrize("count", [0, 1, 2])
def test_at_most_so_many_new_tokens(golden: Golden, decoder: lg.Decoder, count: int) -> None:
    assert list(decoder.generate(golden.prompt, count, stop_ids=[])) == golden.tokens[9 : 9 + count]
    whole_after(decoder, golden.tokens[: 9 + max(0, count - 1)], golden)


def test_a_stop_id_ends_the_text_and_is_not_yielded(golden: Golden, decoder: lg.Decoder) -> None:
    wanted = golden.tokens[9:]
    stop = next(token for i, token in enumerate(wanted) if i >= 3 and token not in wanted[:i])
    place = wanted.index(stop)
    assert list(decoder.generate(golden.prompt, 24, stop_ids=(stop, 158))) == wanted[:place]
    assert decoder.length == 9 + place
    decoder.truncate(0)
    assert list(decoder.generate(golden.prompt, 24, stop_ids={wanted[0]})) == []  # type: ignore[arg-type]


def test_the_models_own_stop_ids_hold_when_none_are_given(golden: Golden, tmp_path: Path) -> None:
    folder = tmp_path / "export"
    shutil.copytree(golden.folder, folder)
    place = folder / "manifest.json"
    stop = golden.tokens[9:].index(golden.tokens[12])
    assert '"stop_ids": [\n    2\n  ]' in place.read_text()
    place.write_text(place.read_text().replace('"stop_ids": [\n    2\n  ]', f'"stop_ids": [{golden.tokens[12]}]'))
    assert list(lg.Decoder.open(folder, threads=1).generate(golden.prompt, 24)) == golden.tokens[9 : 9 + stop]


def test_a_full_cache_ends_generation(export: Export) -> None:
    golden = export("llama", 12)
    decoder = opened(golden)
    assert list(decoder.generate(golden.prompt, 24, stop_ids=[])) == golden.tokens[9:13]
    assert decoder.length == 12
    decoder.truncate(0)
    with pytest.raises(lg.CacheOverflowError):
        decoder.generate([1] * 13)
    assert list(decoder.generate(golden.tokens[:12], 24, stop_ids=[])) == golden.tokens[12:13]


def test_a_generation_stopped_early_has_read_all_but_the_last_token(golden: Golden, decoder: lg.Decoder) -> None:
    tokens = decoder.generate(golden.prompt, 24, stop_ids=[])
    assert decoder.length == 0  # nothing runs before it is asked for
    assert [next(tokens) for _ in range(4)] == golden.tokens[9:13]
    tokens.close()  # type: ignore[attr-defined]
    whole_after(decoder, golden.tokens[:12], golden)


def test_a_callback_that_raises_ends_the_generation(golden: Golden, decoder: lg.Decoder) -> None:
    def raising(token: int) -> None:
        raise LookupError

    with pytest.raises(LookupError):
        list(decoder.generate(golden.prompt, 24, stop_ids=[], on_token=raising))
    whole_after(decoder, golden.prompt, golden)


def test_draws_repeat_with_their_seed(golden: Golden, decoder: lg.Decoder) -> None:
    def drawn(seed: int) -> list[int]:
        decoder.truncate(0)
        return list(decoder.generate(golden.prompt, 20, temperature=2.0, seed=seed, stop_ids=[]))

    assert drawn(3) == drawn(3) != drawn(4)


def test_the_least_drawing_is_greedy(golden: Golden, decoder: lg.Decoder) -> None:
    for few in ({"top_k": 1}, {"top_p": 1e-9}, {"temperature": 1e-300}):
        decoder.truncate(0)
        wishes: dict[str, Any] = {"temperature": 1.0, **few}
        assert list(decoder.generate(golden.prompt, 24, seed=1, stop_ids=[], **wishes)) == golden.tokens[9:]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("max_new_tokens", value) for value in (-1, 1.0, True, None, "5")),
        *(("temperature", value) for value in (-0.1, float("nan"), float("inf"), "1", None, True)),
        *(("top_p", value) for value in (0, -1, 1.1, float("nan"), "1", None)),
        *(("top_k", value) for value in (-1, 2.5, "1", None, True)),
        *(("seed", value) for value in (-1, 1.5, "1", True)),
        *(("stop_ids", value) for value in (2, ["a"], [1.0], [True], [None])),
    ],
)
def test_generation_numbers_outside_their_range_are_refused_at_once(
    golden: Golden, decoder: lg.Decoder, name: str, value: Any
) -> None:
    with pytest.raises(lg.OperandError) as caught:
        decoder.generate(golden.prompt, **{name: value})
    assert caught.value.what == f"{name} is {value!r}" and caught.value.op == "generate"
    assert decoder.length == 0


# ---- positions ----


def test_a_capacity_beyond_the_training_warns_and_rotates_rightly_there(export: Export) -> None:
    long = export("llama_tied", 400)  # the config says 256
    assert "a cache of 400 tokens is longer than the 256 that the model was trained for" in long.warnings
    assert not any("trained" in said for said in export("llama_tied").warnings)
    tokens = (long.tokens * 13)[:400]
    decoder = opened(long)
    got = np.concatenate([decoder.append(tokens[:250]), decoder.append(tokens[250:270]), decoder.append(tokens[270:])])
    close(got, numpy_llama(GOLDENS / "llama_tied", tokens))
    with pytest.raises(lg.CacheOverflowError):
        decoder.append([1])


def numpy_llama(folder: Path, tokens: list[int]) -> Array:
    """Return the logits of a small Llama with tied embeddings and plain rotation, in float64: an oracle of its own."""
    w = {name: array.astype(np.float64) for name, array in load_file(folder / "model.safetensors").items()}
    heads, kv_heads, width, eps, theta = 4, 1, 16, 1e-6, 10000.0
    n = len(tokens)
    turns = np.exp(1j * np.arange(n)[:, None] / theta ** (np.arange(0, width, 2) / width))[:, None, :]  # (n, 1, d/2)

    def norm(x: Array, weight: Array) -> Array:
        return np.asarray(x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * weight)

    def rotated(x: Array) -> Array:
        turned = (x[..., : width // 2] + 1j * x[..., width // 2 :]) * turns
        return np.concatenate([turned.real, turned.imag], -1)

    x = w["model.embed_tokens.weight"][tokens]
    for layer in range(3):
        p = f"model.layers.{layer}."
        h = norm(x, w[p + "input_layernorm.weight"])
        q, k, v = (
            (h @ w[f"{p}self_attn.{name}_proj.weight"].T).reshape(n, count, width)
            for name, count in (("q", heads), ("k", kv_heads), ("v", kv_heads))
        )
        q, k = rotated(q), np.repeat(rotated(k), heads // kv_heads, 1)
        scores = np.einsum("qhd,khd->hqk", q, k) / np.sqrt(width)
        scores[:, np.triu(np.ones((n, n), bool), 1)] = -np.inf
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        weights /= weights.sum(-1, keepdims=True)
        mixed = np.einsum("hqk,khd->qhd", weights, np.repeat(v, heads // kv_heads, 1)).reshape(n, -1)
        x = x + mixed @ w[p + "self_attn.o_proj.weight"].T
        h = norm(x, w[p + "post_attention_layernorm.weight"])
        gate = h @ w[p + "mlp.gate_proj.weight"].T
        x = x + (gate / (1 + np.exp(-gate)) * (h @ w[p + "mlp.up_proj.weight"].T)) @ w[p + "mlp.down_proj.weight"].T
    return np.asarray(norm(x, w["model.norm.weight"]) @ w["model.embed_tokens.weight"].T)


# ---- plain onnxruntime ----


def plain_run(golden: Golden, tokens: list[int], fill: float, rows: int, cut: list[int]) -> Array:
    """Run the model as its manifest documents it, without the decoder; ``fill`` is what rows beyond the length hold."""
    session = onnxruntime.InferenceSession(golden.folder / "model.onnx", providers=["CPUExecutionProvider"])
    past = {
        i.name: np.zeros([rows, *i.shape[1:]], np.float32) for i in session.get_inputs() if i.name.startswith("past.")
    }
    names = [output.name for output in session.get_outputs()]
    logits, length = [], 0
    for count in cut:
        for array in past.values():
            array[length + count :] = fill
        feeds = {
            "input_ids": np.array(tokens[length : length + count]),
            "past_len": np.array(length),
            "logits_from": np.array(0),
            **past,
        }
        got = dict(zip(names, session.run(names, feeds), strict=True))
        logits.append(got["logits"])
        past = {name: got[name.replace("past", "present")] for name in past}
        length += count
    return np.concatenate(logits)


@pytest.mark.parametrize("name", ["llama", "qwen3"])
@pytest.mark.parametrize("rows", [32, 64, CAPACITY])
def test_plain_onnxruntime_gives_the_same(export: Export, name: str, rows: int) -> None:
    golden = export(name)
    close(plain_run(golden, golden.tokens, 0.0, rows, [9, *[1] * 23]), golden.logits)


def test_finite_rows_beyond_the_length_are_masked(golden: Golden) -> None:
    for fill in (1.0, -1e6, 1e6):
        close(plain_run(golden, golden.tokens, fill, 40, [9, *[1] * 23]), golden.logits)


# ---- opening ----


@pytest.mark.parametrize("threads", [0, -1, 1.5, "2", True])
def test_fewer_than_one_thread_is_refused(golden: Golden, threads: Any) -> None:
    with pytest.raises(lg.OperandError) as caught:
        lg.Decoder.open(golden.folder, threads=threads)
    assert caught.value.what == f"threads is {threads!r}"


def test_a_provider_that_is_not_there_is_refused(golden: Golden) -> None:
    with pytest.raises(lg.OperandError, match="'tpu'"):
        lg.Decoder.open(golden.folder, provider="tpu")
    if "CUDAExecutionProvider" not in onnxruntime.get_available_providers():
        with pytest.raises(lg.UnsupportedError, match="CUDAExecutionProvider"):
            lg.Decoder.open(golden.folder, provider="cuda")


def test_repr_is_one_line(golden: Golden, decoder: lg.Decoder) -> None:
    decoder.append(golden.prompt)
    assert repr(decoder) == f"Decoder(llama, 9/{CAPACITY} tokens, 576 cache bytes per token)"


# ---- anything in any order ----


class DecoderMachine(RuleBasedStateMachine):
    """Decoders and what they read, against one pass of a fresh decoder over the same tokens."""

    golden: Golden
    decoders: Bundle[int] = Bundle("decoders")

    def __init__(self) -> None:
        super().__init__()
        self.first = opened(self.golden)  # never reads anything itself
        self.held: list[tuple[lg.Decoder, list[int]]] = []

    @rule(target=decoders)
    def start(self) -> int:
        self.held.append((self.first.fork(), []))
        return len(self.held) - 1

    @rule(
        which=decoders,
        tokens=st.one_of(
            st.lists(st.integers(0, SPOILT - 1), min_size=1, max_size=8),
            st.integers(1, 90).map(lambda n: [(7 * i) % SPOILT for i in range(n)]),
            st.lists(st.just(SPOILT), min_size=1, max_size=70),
        ),
        last=st.booleans(),
    )
    def append(self, which: int, tokens: list[int], last: bool) -> None:
        decoder, read = self.held[which]
        if len(read) + len(tokens) > CAPACITY:
            with pytest.raises(lg.CacheOverflowError):
                decoder.append(tokens)
            return
        got = decoder.append(tokens, logits="last" if last else "all")
        read += tokens
        wanted = self.first.fork().append(read)[-1 if last else -len(tokens) :]
        np.testing.assert_allclose(got, wanted, rtol=0, atol=TOLERANCE)

    @rule(which=decoders, share=st.floats(0, 1))
    def truncate(self, which: int, share: float) -> None:
        decoder, read = self.held[which]
        del read[int(len(read) * share) :]
        decoder.truncate(len(read))

    @rule(target=decoders, which=decoders)
    def fork(self, which: int) -> int:
        decoder, read = self.held[which]
        self.held.append((decoder.fork(), list(read)))
        return len(self.held) - 1

    @rule(which=decoders, ids=st.sampled_from([[], [-1], [160], [3, 2**31], [1.0], [[1]], [True]]))
    def misuse(self, which: int, ids: Any) -> None:
        with pytest.raises((lg.OperandError, lg.IndexRangeError)):
            self.held[which][0].append(ids)

    @rule(which=decoders, beyond=st.integers(1, 100))
    def overflow(self, which: int, beyond: int) -> None:
        decoder, read = self.held[which]
        with pytest.raises(lg.CacheOverflowError):
            decoder.append([1] * (CAPACITY - len(read) + beyond))
        with pytest.raises(lg.CacheError):
            decoder.truncate(len(read) + beyond)

    @rule(which=decoders, after=st.booleans(), count=st.integers(1, 40))
    def interrupt(self, which: int, after: bool, count: int) -> None:
        decoder, read = self.held[which]
        if len(read) + count > CAPACITY:
            return
        session = decoder._runner.session
        decoder._runner.session = Failing(session, KeyboardInterrupt(), after)
        with pytest.raises(KeyboardInterrupt):
            decoder.append([SPOILT] * count)
        decoder._runner.session = session

    def teardown(self) -> None:
        for decoder, read in self.held:
            assert decoder.length == len(read)


def test_decoders_behave_as_one_pass_over_what_they_read(golden: Golden, tmp_path: Path) -> None:
    spoilt = Golden(spoilt_export(golden, tmp_path), golden.prompt, golden.tokens, golden.logits, ())
    machine = type("Machine", (DecoderMachine,), {"golden": spoilt})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=60, stateful_step_count=25, deadline=None, suppress_health_check=list(HealthCheck)
        ),
    )
