"""Decoders of every kind and lowering doing anything in any order, against plain numpy over what they read."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule, run_state_machine_as_test

import lazygraph as lg
from lazygraph.export import running
from lazygraph.memory import Lowering
from tests.cache.conftest import Fresh
from tests.support import family
from tests.support.family import CAPACITY, KINDS, LOWERINGS, POISON, WORDS, Array, Kind
from tests.support.family_model import Model

TOKENS = st.integers(0, min(POISON) - 1)
WHICH = st.integers(0, 9)
# So much for each of 36 kinds and lowerings: about 7,000 steps.
EXAMPLES, STEPS = 8, 25


def close(got: Array, wanted: Array) -> None:
    np.testing.assert_allclose(got, wanted, rtol=0, atol=3e-5)


@dataclass
class Held:
    """A decoder, what it read, and which rows it was filled with."""

    decoder: lg.Decoder
    read: list[int] = field(default_factory=list)
    filled: int = 0


class Machine(RuleBasedStateMachine):
    """Up to four decoders that share one session."""

    fresh: Callable[[], lg.Decoder]
    models: tuple[Model, Model]
    kind: Kind
    scratch: Path
    steps: ClassVar[int]

    def __init__(self) -> None:
        super().__init__()
        self.held = [Held(type(self).fresh())]

    def one(self, which: int) -> Held:
        """Return one of the decoders; every rule begins here."""
        type(self).steps += 1
        return self.held[which % len(self.held)]

    def expect(self, one: Held, got: Array) -> None:
        """Check the logits after the last tokens read."""
        assert one.decoder.length == len(one.read)
        close(got, self.models[one.filled].logits(one.read, len(one.read) - len(got)))

    @rule(which=WHICH, tokens=st.lists(TOKENS, min_size=1, max_size=12), last=st.booleans())
    def append(self, which: int, tokens: list[int], last: bool) -> None:
        one = self.one(which)
        tokens = tokens[: CAPACITY - len(one.read)]
        if tokens:
            got = one.decoder.append(tokens, logits="last" if last else "all")
            one.read += tokens
            assert got.shape == (1 if last else len(tokens), WORDS)
            self.expect(one, got)

    @rule(which=WHICH, back=st.integers(0, 20))
    def truncate(self, which: int, back: int) -> None:
        one = self.one(which)
        to = max(0, len(one.read) - back)
        rewindable = one.decoder.rewindable
        try:
            one.decoder.truncate(to)
        except lg.CacheError:
            assert rewindable < len(one.read) - to and to > 0
            assert any(layer.window or layer.state for layer in self.kind.layers)
            assert one.decoder.length == len(one.read)
        else:
            del one.read[to:]
        assert 0 <= one.decoder.rewindable <= len(one.read)

    @rule(which=WHICH, share=st.floats(0, 1))
    def rewind(self, which: int, share: float) -> None:
        one = self.one(which)
        del one.read[len(one.read) - int(share * one.decoder.rewindable) :]
        one.decoder.truncate(len(one.read))

    @rule(which=WHICH, tokens=st.lists(TOKENS, max_size=6), bad=st.lists(st.sampled_from(list(POISON)), min_size=1))
    def forget_what_is_no_number(self, which: int, tokens: list[int], bad: list[int]) -> None:
        one = self.one(which)
        given = [*tokens, *bad][: min(CAPACITY - len(one.read), running.CHUNK)]
        if given:
            one.decoder.append(given)
            one.decoder.truncate(len(one.read))  # the last run can be undone as a whole, always

    @rule(which=WHICH, certain=st.integers(1, 6), right=st.integers(0, 3), guesses=st.integers(0, 3))
    def verify(self, which: int, certain: int, right: int, guesses: int) -> None:
        one = self.one(which)
        model, read = self.models[one.filled], one.read
        given = [(5 * i + certain) % min(POISON) for i in range(certain)]
        if len(read) + certain + guesses > CAPACITY or guesses >= running.CHUNK:
            return
        if any(layer.window and guesses >= layer.window for layer in self.kind.layers):
            return  # more than a full window can go back over
        guess: list[int] = []
        for i in range(guesses):
            best = int(model.logits([*read, *given, *guess], len(read) + certain + i - 1)[0][: min(POISON)].argmax())
            guess.append(best if i < right else (best + 1) % min(POISON))
        found = one.decoder.verify(given, guess, lambda row: int(row[: min(POISON)].argmax()))
        assert found.accepted == min(right, guesses)
        close(found.logits, model.logits([*read, *given, *guess], len(read) + certain - 1))
        read += [*given, *guess[: found.accepted]]
        assert one.decoder.length == len(read)

    @rule(which=WHICH)
    def fork(self, which: int) -> None:
        one = self.one(which)
        copy = Held(one.decoder.fork(), list(one.read), one.filled)
        if len(self.held) < 4:
            self.held.append(copy)
        else:
            self.held[(which + 1) % 4] = copy

    @rule(which=WHICH)
    def save_and_restore(self, which: int) -> None:
        one = self.one(which)
        one.decoder.save(self.scratch / "state")
        one.decoder = lg.Decoder.restore(one.decoder.folder, self.scratch / "state", threads=1)
        assert one.decoder.length == len(one.read)

    @rule(which=WHICH, filled=st.integers(0, 1))
    def fill(self, which: int, filled: int) -> None:
        one = self.one(which)
        if not any(layer.once for layer in self.kind.layers):
            return
        if one.read:
            with pytest.raises(lg.CacheError, match="fill after"):
                family.fill(one.decoder, 1 - one.filled)
        else:
            family.fill(one.decoder, filled)
            one.filled = filled

    @rule(which=WHICH, after=st.booleans(), count=st.integers(1, 16))
    def interrupt(self, which: int, after: bool, count: int) -> None:
        one = self.one(which)
        runner, count = one.decoder._runner, min(count, CAPACITY - len(one.read))
        if not count:
            return
        run, left = runner.session.run_with_iobinding, [1 if count > running.CHUNK else 0]

        class Stopping:
            def run_with_iobinding(self, binding: Any, *rest: Any) -> None:
                if left[0] or after:
                    run(binding, *rest)
                left[0] -= 1
                if left[0] < 0:
                    raise KeyboardInterrupt

        session, runner.session = runner.session, Stopping()
        with pytest.raises(KeyboardInterrupt):
            one.decoder.append([*POISON, *range(9), *POISON, 3][:count])
        runner.session = session
        assert one.decoder.length == len(one.read)

    @rule(which=WHICH, beyond=st.integers(1, 9))
    def overflow(self, which: int, beyond: int) -> None:
        one = self.one(which)
        with pytest.raises(lg.CacheOverflowError):
            one.decoder.append([1] * (CAPACITY - len(one.read) + beyond))
        with pytest.raises(lg.CacheOverflowError):
            one.decoder.verify([1], [1] * (CAPACITY - len(one.read) + beyond - 1))
        assert one.decoder.length == len(one.read)


@pytest.mark.parametrize(("name", "lowering"), list(itertools.product(KINDS, LOWERINGS)))
def test_decoders_are_what_they_read_whatever_they_did(
    fresh: Fresh, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, lowering: Lowering
) -> None:
    kind, session = KINDS[name], fresh(name, lowering)._runner.session
    monkeypatch.setattr(running, "open_session", lambda *given, **more: session)  # what restore opens is the same
    machine: Any = type(
        "One",
        (Machine,),
        {
            "fresh": staticmethod(lambda: fresh(name, lowering)),
            "models": tuple(Model(kind, "float32", "float32", filled) for filled in (0, 1)),
            "kind": kind,
            "scratch": tmp_path,
            "steps": 0,
        },
    )
    # Half of the examples read long texts in several runs.
    for chunk in (512, 5):
        monkeypatch.setattr(running, "CHUNK", chunk)
        run_state_machine_as_test(
            machine,
            settings=settings(
                max_examples=EXAMPLES // 2,
                stateful_step_count=STEPS,
                deadline=None,
                suppress_health_check=list(HealthCheck),
            ),
        )
    assert machine.steps >= EXAMPLES * STEPS / 2  # an example may be shorter
