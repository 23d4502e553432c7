"""The decoder over every kind of memory and every lowering: rewinding, forks, files, speculation, in any order."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule, run_state_machine_as_test
from safetensors.numpy import load_file

import lazygraph as lg
from lazygraph.export import running
from lazygraph.export.manifest import FILE, read_manifest

Array = np.ndarray[Any, Any]
GOLDENS = Path(__file__).parents[1] / "goldens"
CAPACITY = 60
LOWERINGS = ("buffer", "view", "concat")
VOCAB = 16


def hand_made(folder: Path, lowering: Any) -> Path:
    """Export a decoder with a state, rows, and rows that are filled once.

    A token's logits are what the state has come to, what the rows before and at it sum to, and what was filled.
    """
    ids = lg.input("input_ids", "int64", [lg.size("n", min=1, max=CAPACITY)])
    layer: list[lg.Rows | lg.State | lg.Once] = [
        lg.Rows({"seen": [VOCAB]}),
        lg.State({"sum": [VOCAB]}),
        lg.Once({"given": [VOCAB]}, rows=lg.size("frames", min=1, max=3)),
    ]
    before = lg.LayeredCache.inputs(ids, CAPACITY, [layer], lowering=lowering)
    table = ids.const(np.random.default_rng(1).normal(size=(VOCAB, VOCAB)).astype(np.float32))
    rows = lg.gather(table, ids)
    after = before.append(0, [rows])
    mask = before.causal_mask("n").astype("float32")
    total = mask @ after.slot(0, "seen", include_pending=True)
    old = before.slot(0, "sum")
    after = after.replace(0, [old + lg.reduce_sum(rows, 0)])
    running_sum = old + lg.cumsum(rows, 0)
    given = lg.reduce_sum(before.slot(0, "given"), 0)
    start = lg.input("logits_from", "int64", [], anchor=ids)
    logits = lg.slice(total + lg.op.Sin(running_sum) + given, lg.reshape(start, [1]), [2**31], axes=[0])
    lg.save_decoder(logits, after.advance_by("n"), folder, model_type="hand made")
    return folder


GIVEN = np.random.default_rng(2).normal(size=(2, VOCAB)).astype(np.float32)


@pytest.fixture(scope="session")
def exports(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str], Path]:
    folder, made = tmp_path_factory.mktemp("kinds"), {}

    def exported(name: str, lowering: Any) -> Path:
        if (name, lowering) not in made:
            place = folder / f"{name}-{lowering}"
            if name == "hand made":
                hand_made(place, lowering)
            else:
                lg.convert(GOLDENS / name, place, max_seq_len=CAPACITY, lowering=lowering)
            made[name, lowering] = place
        return made[name, lowering]

    return exported


Exports = Callable[[str, str], Path]
CASES = [(name, lowering) for name in ("llama", "mistral_sliding", "hand made") for lowering in LOWERINGS]
each_case = pytest.mark.parametrize(("name", "lowering"), CASES)


def opened(folder: Path) -> lg.Decoder:
    decoder = lg.Decoder.open(folder, threads=1)
    if decoder.manifest.model_type == "hand made":
        decoder.fill({"past.0.given": GIVEN})
    return decoder


def close(got: Array, wanted: Array) -> None:
    np.testing.assert_allclose(got, wanted, rtol=0, atol=1e-4)


@pytest.mark.parametrize("lowering", LOWERINGS)
@pytest.mark.parametrize("cut", [[9, *[1] * 23], [1] * 32, [32], [4, 5, *[1] * 23], [6, 1, 1, 24], [3, 7, 7, 2, 13]])
def test_the_sliding_golden_in_every_lowering_and_chunking(exports: Exports, lowering: str, cut: list[int]) -> None:
    folder = exports("mistral_sliding", lowering)
    golden = load_file(GOLDENS / "mistral_sliding" / "golden.safetensors")
    tokens, decoder, logits = golden["tokens"].tolist(), opened(folder), []
    assert {(slot.kind, slot.capacity) for slot in decoder.manifest.memory} == {("window", 6)}
    for count in cut:
        logits.append(decoder.append(tokens[decoder.length : decoder.length + count]))
    close(np.concatenate(logits), golden["logits"])
    assert np.concatenate(logits).argmax(-1)[8:].tolist() == tokens[9:]


@pytest.mark.parametrize("lowering", LOWERINGS)
def test_a_window_forgets_and_says_how_far_back_one_can_go(exports: Exports, lowering: str) -> None:
    decoder = opened(exports("mistral_sliding", lowering))
    decoder.append([3, 1, 4, 1, 5])
    assert decoder.rewindable == 5
    decoder.append([9, 2, 6, 5, 3, 5])
    decoder.append([8])
    assert decoder.rewindable == 1
    with pytest.raises(lg.CacheError) as caught:
        decoder.truncate(9)
    assert str(caught.value) == (
        "truncate: truncate to 9 of 12 tokens: what the model had kept there is gone\n"
        "  expected : a length in [11, 12], at most 1 tokens back, or 0\n"
        "  hint     : fork before reading on, and go back to the fork\n"
        f"  at       : {caught.value.at}"
    )
    assert decoder.length == 12
    decoder.truncate(11)
    close(decoder.append([8]), opened(decoder.folder).append([3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8])[-1:])
    decoder.truncate(0)
    close(decoder.append([7]), opened(decoder.folder).append([7]))


@each_case
def test_speculation_gives_the_tokens_of_one_at_a_time(exports: Exports, name: str, lowering: str) -> None:
    decoder, plain = opened(exports(name, lowering)), opened(exports(name, lowering))
    prompt = [3, 1, 4, 1, 5, 9, 2, 6]
    wanted = list(plain.generate(prompt, 30, stop_ids=[]))
    random = np.random.default_rng(0)
    decoder.append(prompt[:-1])
    text: list[int] = []
    last = prompt[-1]
    while len(text) < 25:
        guess = wanted[len(text) : len(text) + 4]
        guess[random.integers(len(guess))] = int(random.integers(VOCAB))
        found = decoder.verify([last], guess)
        assert found.logits.shape == (5, decoder.manifest.vocab_size)
        text += [*guess[: found.accepted], found.token]
        last = found.token
        assert decoder.length == len(prompt) + len(text) - 1
    assert text == wanted[: len(text)]


@each_case
def test_a_choice_that_raises_leaves_the_decoder_as_it_was(exports: Exports, name: str, lowering: str) -> None:
    decoder = opened(exports(name, lowering))
    read = [3, 1, 4, 1, 5, 9, 2, 6]
    decoder.append(read)

    def stop(row: Array) -> int:
        raise LookupError

    for certain in ([1], [1, 2, 3, 4, 5]):
        with pytest.raises(LookupError):
            decoder.verify(certain, [1, 2, 3], stop)
        assert decoder.length == 8
    close(decoder.append([7]), opened(decoder.folder).append([*read, 7])[-1:])


def test_more_guesses_than_a_full_window_has_rows_are_refused(exports: Exports) -> None:
    decoder = opened(exports("mistral_sliding", "view"))
    decoder.append([1] * 9)
    with pytest.raises(lg.CacheError) as caught:
        decoder.verify([1], [1] * 6)
    assert (caught.value.what, caught.value.wanted) == ("verify 6 proposed tokens", 5)
    assert decoder.verify([1, 2, 3, 4], [1] * 5).logits.shape == (6, 160)


@each_case
def test_a_fork_costs_nothing_until_one_of_the_two_reads_on(exports: Exports, name: str, lowering: str) -> None:
    decoder = opened(exports(name, lowering))
    decoder.append([1, 2, 3])
    alone = decoder.cache_bytes
    fork = decoder.fork()
    assert fork.cache_bytes == 0 and decoder.cache_bytes == 0
    fork.append([4])
    assert fork.cache_bytes > 0
    del fork
    assert decoder.cache_bytes == alone


def test_slots_that_are_filled_once(exports: Exports) -> None:
    decoder = lg.Decoder.open(exports("hand made", "view"), threads=1)
    with pytest.raises(lg.CacheError, match=r"1 slots were not filled: past\.0\.given"):
        decoder.append([1])
    for rows, what in (
        ({"past.0.seen": GIVEN}, "'past.0.seen' is no slot that is filled once"),
        ({"past.0.given": GIVEN.astype(np.float64)}, "past.0.given is float64 [2, 16]"),
        ({"past.0.given": GIVEN[:, :3]}, "past.0.given is float32 [2, 3]"),
        ({"past.0.given": np.zeros((4, VOCAB), np.float32)}, "past.0.given is given 4 rows"),
        ({"past.0.given": np.zeros((0, VOCAB), np.float32)}, "past.0.given is given 0 rows"),
    ):
        with pytest.raises(lg.CacheError) as caught:
            decoder.fill(rows)
        assert caught.value.what == what
    decoder.fill({"past.0.given": GIVEN})
    first = decoder.append([1])
    with pytest.raises(lg.CacheError, match="fill after 1 tokens"):
        decoder.fill({"past.0.given": GIVEN})
    decoder.truncate(0)
    decoder.fill({"past.0.given": GIVEN[:1]})
    close(decoder.append([1]) - first, np.broadcast_to(-GIVEN[1], (1, VOCAB)))


# ---- anything in any order ----


class Machine(RuleBasedStateMachine):
    """Decoders and what they read, against one pass of a fresh decoder over the same tokens."""

    folder: Path
    scratch: Path

    def __init__(self) -> None:
        super().__init__()
        self.first = opened(self.folder)
        self.held: list[tuple[lg.Decoder, list[int]]] = [(self.first.fork(), [])]

    def one(self, which: int) -> tuple[lg.Decoder, list[int]]:
        return self.held[which % len(self.held)]

    def check(self, decoder: lg.Decoder, read: list[int], got: Array) -> None:
        assert decoder.length == len(read)
        close(got, self.first.fork().append(read)[-len(got) :])

    @rule(which=st.integers(0, 9), tokens=st.lists(st.integers(0, VOCAB - 1), min_size=1, max_size=14))
    def append(self, which: int, tokens: list[int]) -> None:
        decoder, read = self.one(which)
        if len(read) + len(tokens) > CAPACITY:
            with pytest.raises(lg.CacheOverflowError):
                decoder.append(tokens)
            return
        got = decoder.append(tokens)
        read += tokens
        self.check(decoder, read, got)

    @rule(which=st.integers(0, 9), back=st.integers(0, 20))
    def truncate(self, which: int, back: int) -> None:
        decoder, read = self.one(which)
        to = max(0, len(read) - back)
        try:
            decoder.truncate(to)
        except lg.CacheError:
            assert decoder.rewindable < len(read) - to and to > 0
            assert decoder.length == len(read)
        else:
            del read[to:]
        assert 0 <= decoder.rewindable <= len(read)

    @rule(which=st.integers(0, 9), share=st.floats(0, 1))
    def rewind(self, which: int, share: float) -> None:
        decoder, read = self.one(which)
        del read[len(read) - int(share * decoder.rewindable) :]
        decoder.truncate(len(read))

    @rule(which=st.integers(0, 9), certain=st.integers(1, 8), right=st.integers(0, 4), guesses=st.integers(0, 4))
    def verify(self, which: int, certain: int, right: int, guesses: int) -> None:
        decoder, read = self.one(which)
        if len(read) + certain + guesses > CAPACITY:
            return
        given = [(5 * i + certain) % VOCAB for i in range(certain)]
        whole = self.first.fork()
        rows = [whole.append([*read, *given])[-1]]
        guess: list[int] = []
        for i in range(guesses):
            best = int(rows[-1][:VOCAB].argmax())
            guess.append(best if i < right else (best + 1) % VOCAB)
            rows.append(whole.append([guess[-1]])[0])
        found = decoder.verify(given, guess, lambda row: int(row[:VOCAB].argmax()))
        assert found.accepted == min(right, guesses)
        close(found.logits, np.stack(rows))
        read += [*given, *guess[: found.accepted]]
        assert decoder.length == len(read)

    @rule(which=st.integers(0, 9))
    def fork(self, which: int) -> None:
        decoder, read = self.one(which)
        if len(self.held) < 5:
            self.held.append((decoder.fork(), list(read)))

    @rule(which=st.integers(0, 9))
    def save_and_restore(self, which: int) -> None:
        decoder, read = self.one(which)
        decoder.save(self.scratch / "state")
        other = lg.Decoder.restore(self.folder, self.scratch / "state", threads=1)
        assert other.length == len(read)
        self.held[which % len(self.held)] = (other, read)

    @rule(which=st.integers(0, 9), after=st.booleans(), count=st.integers(1, 20))
    def interrupt(self, which: int, after: bool, count: int) -> None:
        decoder, read = self.one(which)
        if len(read) + count > CAPACITY:
            return
        session = decoder._runner.session

        class Stopping:
            runs = 0

            def __getattr__(self, name: str) -> Any:
                return getattr(session, name)

            def run_with_iobinding(self, binding: Any, *rest: Any) -> None:
                self.runs += 1
                if after or self.runs == 2:
                    session.run_with_iobinding(binding, *rest)
                if self.runs == 2 or count <= running.CHUNK:
                    raise KeyboardInterrupt
                session.run_with_iobinding(binding, *rest)

        decoder._runner.session = Stopping()
        with pytest.raises(KeyboardInterrupt):
            decoder.append([i % VOCAB for i in range(count)])
        decoder._runner.session = session
        assert decoder.length == len(read)

    @rule(which=st.integers(0, 9), beyond=st.integers(1, 9))
    def overflow(self, which: int, beyond: int) -> None:
        decoder, read = self.one(which)
        with pytest.raises(lg.CacheOverflowError):
            decoder.append([1] * (CAPACITY - len(read) + beyond))


@each_case
@pytest.mark.slow  # as tests/cache/test_family_machine.py, on real models
@pytest.mark.parametrize("chunk", [512, 5])
def test_decoders_behave_as_one_pass_over_what_they_read(
    exports: Exports, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, lowering: str, chunk: int
) -> None:
    monkeypatch.setattr(running, "CHUNK", chunk)
    machine = type("One", (Machine,), {"folder": exports(name, lowering), "scratch": tmp_path})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=8, stateful_step_count=25, deadline=None, suppress_health_check=list(HealthCheck)
        ),
    )


def test_the_manifest_of_each_kind_reads_back(exports: Exports) -> None:
    for name, lowering in CASES:
        manifest = read_manifest(exports(name, lowering))
        assert manifest.lowering == lowering and manifest.to_json() == (exports(name, lowering) / FILE).read_text()


@each_case
def test_after_a_long_append_that_stopped_one_can_go_back_as_before_it(
    exports: Exports, monkeypatch: pytest.MonkeyPatch, name: str, lowering: str
) -> None:
    decoder = opened(exports(name, lowering))
    decoder.append([3, 1, 4])
    decoder.append([1, 5, 9, 2])
    monkeypatch.setattr(running, "CHUNK", 5)
    run, runs = decoder._runner.run, []

    def stopping(*args: Any) -> None:
        runs.append(1)
        if len(runs) == 2:
            raise KeyboardInterrupt
        run(*args)

    monkeypatch.setattr(decoder._runner, "run", stopping)
    with pytest.raises(KeyboardInterrupt):
        decoder.append([1] * 8)
    monkeypatch.undo()
    assert decoder.length == 7
    decoder.truncate(5)
    close(decoder.append([6]), opened(decoder.folder).append([3, 1, 4, 1, 5, 6])[-1:])
