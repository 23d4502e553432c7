"""Several texts at once: each is what it is alone, whatever its neighbours are, hold, or bring."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from safetensors.numpy import load_file

import lazygraph as lg
from lazygraph.export.manifest import read_manifest
from lazygraph.memory import Lowering
from tests.support.batching import BatchRunner, padded

Array = np.ndarray[Any, Any]
ROWS = 40
LOWERINGS: tuple[Lowering, ...] = ("buffer", "view", "concat")
MODELS = ("llama", "qwen3", "deepseek_v2", "deepseek_v2_lite", "deepseek_v3", "deepseek_v3_fp8")
# Per step, how many tokens each of three texts brings: a left-padded prompt, ragged steps, a text that pauses.
STEPS = [[9, 4, 1], [1, 1, 1], [1, 5, 0], [3, 0, 7], [0, 1, 1], [1, 1, 1], [12, 2, 6]]


@dataclass
class Batch:
    """An exported batch as plain onnxruntime runs it, with plain feeds."""

    session: onnxruntime.InferenceSession
    lengths: Array
    held: dict[str, Array] = field(default_factory=dict)

    @classmethod
    def open(cls, folder: Path, texts: int, poison: float = 0.0) -> Batch:
        session = onnxruntime.InferenceSession(folder / "model.onnx", providers=["CPUExecutionProvider"])
        held = {
            one.source: np.full((texts, ROWS, *one.trailing), poison, one.dtype) for one in read_manifest(folder).memory
        }
        return cls(session, np.zeros(texts, np.int64), held)

    def append(self, new: list[list[int]], pad: int = 0, logits_from: int = 0) -> Array:
        """Return the logits ``(texts, n - logits_from, vocab)`` after tokens that are padded on the left."""
        n = max(map(len, new))
        ids = np.array([[pad] * (n - len(tokens)) + tokens for tokens in new], np.int64)
        counts = np.array([len(tokens) for tokens in new], np.int64)
        feeds = {"input_ids": ids, "past_len": self.lengths, "new_len": counts, "logits_from": np.array(logits_from)}
        names = [output.name for output in self.session.get_outputs()]
        got = dict(zip(names, self.session.run(names, {**feeds, **self.held}), strict=True))
        self.held = {source: got[source.replace("past.", "present.")] for source in self.held}
        self.lengths = self.lengths + counts
        return np.asarray(got["logits"])


@pytest.fixture(scope="module")
def exports(tmp_path_factory: pytest.TempPathFactory, goldens: Path) -> dict[tuple[str, str], Path]:
    folder = tmp_path_factory.mktemp("batches")
    made = {}
    for model in MODELS:
        for mla in ("absorbed", "expanded", "auto") if model == "deepseek_v2_lite" else ("auto",):
            made[model, mla] = folder / f"{model}-{mla}"
            lg.convert(goldens / model, made[model, mla], max_seq_len=ROWS, batch=True, mla=mla)
    return made


@pytest.mark.parametrize("poison", [0.0, float("nan")], ids=["zeros", "poisoned"])
@pytest.mark.parametrize(
    ("model", "mla"),
    [*((model, "auto") for model in MODELS), ("deepseek_v2_lite", "absorbed"), ("deepseek_v2_lite", "expanded")],
)
def test_each_text_is_what_it_is_alone(
    exports: dict[tuple[str, str], Path], goldens: Path, tmp_path: Path, model: str, mla: str, poison: float
) -> None:
    """The first text is the reference decode itself; the others are compared with an export for one text."""
    golden = load_file(goldens / model / "golden.safetensors")
    texts = [golden["tokens"][:32].tolist(), golden["tokens"][5:30].tolist(), golden["tokens"][3:25].tolist()]
    alone = [golden["logits"], *(_alone(goldens / model, tmp_path / f"{i}", text) for i, text in enumerate(texts[1:]))]
    batch, done = Batch.open(exports[model, mla], 3, poison), [0, 0, 0]
    for counts in STEPS:
        new = [text[at : at + count] for text, at, count in zip(texts, done, counts, strict=True)]
        logits = batch.append(new, pad=7)
        assert np.isfinite(logits).all()
        for which, count in enumerate(counts):
            wanted = alone[which][done[which] : done[which] + count]
            np.testing.assert_allclose(logits[which, logits.shape[1] - count :], wanted, atol=1e-4, rtol=0)
            done[which] += count
    assert done == batch.lengths.tolist() == [27, 14, 17]


def _alone(checkpoint: Path, folder: Path, text: list[int]) -> Array:
    lg.convert(checkpoint, folder, max_seq_len=ROWS)
    return lg.Decoder.open(folder, threads=1).append(text)


def test_padding_writes_nothing_and_its_token_does_not_matter(exports: dict[tuple[str, str], Path]) -> None:
    found = []
    for pad in (0, 11):
        batch = Batch.open(exports["llama", "auto"], 2, poison=np.nan)
        logits = batch.append([[5, 6, 7, 8, 9], [3, 4]], pad)
        found.append([logits[0], logits[1, 3:], *(np.nan_to_num(array) for array in batch.held.values())])
        for array in batch.held.values():
            assert np.isfinite(array[0, :5]).all() and np.isfinite(array[1, :2]).all()
            assert np.isnan(array[0, 5:]).all() and np.isnan(array[1, 2:]).all()
    for one, other in zip(*found, strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_broken_neighbour_breaks_nobody(exports: dict[tuple[str, str], Path]) -> None:
    """Rows of another text that count, and are no numbers, are never looked at."""
    for export in (
        exports["llama", "auto"],
        exports["deepseek_v2_lite", "absorbed"],
        exports["deepseek_v2_lite", "expanded"],
    ):
        batch, whole = Batch.open(export, 2), Batch.open(export, 2)
        for one in (batch, whole):
            one.append([[5, 6, 7], [3, 4]])
        for array in batch.held.values():
            array[1] = np.inf
        got, wanted = batch.append([[8], [9]]), whole.append([[8], [9]])
        np.testing.assert_allclose(got[0], wanted[0], atol=1e-5, rtol=0)
        assert not np.isfinite(got[1]).any()


def test_the_last_logits_of_every_text_are_had_alone(exports: dict[tuple[str, str], Path]) -> None:
    texts = [[5, 6, 7, 8, 9], [3, 4]]
    everything = Batch.open(exports["qwen3", "auto"], 2).append(texts)
    last = Batch.open(exports["qwen3", "auto"], 2).append(texts, logits_from=4)
    assert last.shape == (2, 1, everything.shape[2])
    np.testing.assert_allclose(last, everything[:, 4:], atol=1e-6, rtol=0)


def test_a_step_in_which_no_text_brings_anything_changes_nothing(exports: dict[tuple[str, str], Path]) -> None:
    batch = Batch.open(exports["llama", "auto"], 2)
    batch.append([[5, 6], [3]])
    before = {name: array.copy() for name, array in batch.held.items()}
    feeds = {"input_ids": np.zeros((2, 1), np.int64), "past_len": batch.lengths, "new_len": np.zeros(2, np.int64)}
    names = [output.name for output in batch.session.get_outputs()]
    got = dict(zip(names, batch.session.run(names, {**feeds, "logits_from": np.array(0), **before}), strict=True))
    for source, array in before.items():
        np.testing.assert_array_equal(got[source.replace("past.", "present.")], array)


def test_the_manifest_says_batch_and_every_slot_is_written_in_place(exports: dict[tuple[str, str], Path]) -> None:
    for folder in exports.values():
        manifest = read_manifest(folder)
        assert manifest.batch and not manifest.copied


WINDOWED = [
    [[9, 4, 1], *[[1, 1, 1]] * 8, [0, 1, 7], [1, 1, 0]],  # before the window of 6 is full, when it is, one more
    [[32, 20, 1], [0, 1, 21]],  # prompts longer than it
    [[4, 6, 5], [5, 1, 7], [1, 18, 2], [1, 0, 6], [15, 0, 1]],  # across the wrap
]


@pytest.mark.parametrize("lowering", LOWERINGS)
@pytest.mark.parametrize(("model", "steps"), [("mistral_sliding", WINDOWED), ("deepseek_v2_lite", WINDOWED[::2])])
def test_windows_and_past_and_present_too(
    goldens: Path, tmp_path: Path, model: str, steps: list[list[list[int]]], lowering: Lowering
) -> None:
    golden = load_file(goldens / model / "golden.safetensors")
    tokens = golden["tokens"][:32].tolist()
    texts = [tokens, tokens[5:30], tokens[3:25]]
    manifest = lg.convert(goldens / model, tmp_path / "batch", max_seq_len=ROWS, batch=True, lowering=lowering)
    assert manifest.batch and manifest.lowering == lowering and not manifest.copied
    lg.convert(goldens / model, tmp_path / "one", max_seq_len=ROWS)
    alone = [golden["logits"], *(lg.Decoder.open(tmp_path / "one", threads=1).append(text) for text in texts[1:])]
    in_place = lowering != "concat"
    for turns in steps:
        batch = BatchRunner(tmp_path / "batch" / "model.onnx", manifest.memory, lowering, 3, in_place=in_place)
        done = [0, 0, 0]
        for counts in turns:
            new = [np.array(text[at : at + count]) for text, at, count in zip(texts, done, counts, strict=True)]
            n = max(counts)
            inputs = {"input_ids": padded(new, n, 7).astype(np.int64), "logits_from": np.array(0)}
            logits = batch.run(inputs, counts, ["logits"])["logits"]
            for which, count in enumerate(counts):
                wanted = alone[which][done[which] : done[which] + count]
                np.testing.assert_allclose(logits[which, n - count :], wanted, atol=1e-4, rtol=0)
                done[which] += count
        for slot in manifest.memory if model == "mistral_sliding" else ():
            assert (slot.kind, slot.capacity) == ("window", 6)


@pytest.mark.parametrize("lowering", LOWERINGS)
def test_what_a_batch_takes_and_gives_stands_in_the_manifest(goldens: Path, tmp_path: Path, lowering: Lowering) -> None:
    for model, kind in (("llama", "rows"), ("mistral_sliding", "window")):
        lg.convert(goldens / model, tmp_path / model, max_seq_len=ROWS, batch=True, lowering=lowering)
        said = json.loads((tmp_path / model / "manifest.json").read_text(encoding="utf-8"))
        given = said["inputs"][f"past.<layer>.<slot>, {kind}"]
        assert given.startswith("[batch, ") and "what does not count of a text may hold anything" in given
        if lowering == "concat":
            assert "or as the longest text now keeps" in said["outputs"][f"present.<layer>.<slot>, {kind}"]
