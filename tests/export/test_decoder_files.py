"""A decoder built by hand, written with its manifest; what cannot be run is refused before anything is written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lazygraph as lg
from lazygraph.export.manifest import read_manifest

CAPACITY, VOCAB = 8, 5


def parts(batch: bool = False, start: bool = True) -> tuple[lg.Tensor, lg.LatentCache, lg.LatentCache]:
    """Return logits (the sum of all rows so far, a token's row being one where its id is) and the cache, around."""
    n = lg.size("n", min=1, max=CAPACITY)
    ids = lg.input("input_ids", "int64", ["batch", n] if batch else [n])
    flat = lg.reshape(ids, [-1])
    before: lg.LatentCache
    if batch:
        before = lg.BatchCache.inputs(ids, 1, CAPACITY, [[VOCAB]])
    else:
        before = lg.LatentCache.inputs(ids, 1, CAPACITY, [[VOCAB]], lowering="view")
    rows = lg.gather(ids.const(np.eye(VOCAB, dtype=np.float32)), flat)
    mask = before.causal_mask("n").astype("float32")
    after = before.append(0, [rows])
    logits = mask @ after.slot(0, 0, include_pending=True)
    if start:
        first = lg.input("logits_from", "int64", [], anchor=ids)
        logits = lg.slice(logits, lg.reshape(first, [1]), [2**31], axes=[int(batch)])
    return logits, before, after.advance_by("n")


def test_a_decoder_by_hand_runs_and_its_manifest_says_what_it_is(tmp_path: Path) -> None:
    logits, _, cache = parts()
    manifest = lg.save_decoder(logits, cache, tmp_path / "made", source="a test", max_position=7, stop_ids=[3])
    assert read_manifest(tmp_path / "made") == manifest
    assert (manifest.vocab_size, manifest.max_seq_len, manifest.max_position) == (VOCAB, CAPACITY, 7)
    assert (manifest.lowering, manifest.batch, manifest.stop_ids, manifest.copied) == ("view", False, (3,), {})
    assert VOCAB**2 <= manifest.parameters < VOCAB**2 + 10  # the table, and numbers such as the bounds of a slice
    decoder = lg.Decoder.open(tmp_path / "made")
    got = np.concatenate([decoder.append([1, 1, 4]), decoder.append([0])])
    np.testing.assert_array_equal(got, [[0, 1, 0, 0, 0], [0, 2, 0, 0, 0], [0, 2, 0, 0, 1], [1, 2, 0, 0, 1]])


def test_a_batch_by_hand_runs_too(tmp_path: Path) -> None:
    logits, _, cache = parts(batch=True)
    assert lg.save_decoder(logits, cache, tmp_path / "made").batch
    decoder = lg.BatchDecoder.open(tmp_path / "made", 2)
    first, second = decoder.append([[1, 1], [4]])
    np.testing.assert_array_equal(first, [[0, 1, 0, 0, 0], [0, 2, 0, 0, 0]])
    np.testing.assert_array_equal(second, [[0, 0, 0, 0, 1]])


def refused(tmp_path: Path, logits: Any, cache: Any) -> lg.OperandError:
    with pytest.raises(lg.OperandError) as caught:
        lg.save_decoder(logits, cache, tmp_path / "made")
    assert not (tmp_path / "made").exists() and caught.value.at is not None
    return caught.value


def test_what_no_decoder_can_run_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    logits, before, cache = parts()
    for wrong in (logits.astype("float16"), logits[0], lg.reshape(logits, [VOCAB, -1]), 3):
        assert refused(tmp_path, wrong, cache).what == "logits of another type or shape"
    assert refused(tmp_path, logits, before).what == "present.0.slot0 is what it was before the step"
    assert refused(tmp_path, logits, parts()[2]).what == "present.0.slot0 belongs to another graph"
    ids = lg.input("input_ids", "int64", ["n"])
    fixed = lg.LatentCache(ids, 1, CAPACITY, [[VOCAB]])
    free = ids.const(np.eye(VOCAB, dtype=np.float32))
    assert refused(tmp_path, free, fixed).what == "no input 'past_len'"
    for name in ("past_len", "logits_from"):
        lg.input(name, "int64", [], anchor=ids)
    assert refused(tmp_path, free, fixed).what == "past.0.slot0 is no input of the graph"
    none, _, cache = parts(start=False)
    error = refused(tmp_path, none, cache)
    assert error.what == "no input 'logits_from'" and 'lg.input("logits_from"' in error.hint
    lg.input("logits_from", "float32", [], anchor=none)
    assert refused(tmp_path, none, cache).what == "another input 'logits_from'"
    logits, _, cache = parts()
    lg.input("temperature", "float32", [], anchor=logits)
    assert refused(tmp_path, logits, cache).what == "the graph has an input 'temperature' that no decoder feeds"


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    logits, _, cache = parts()
    with pytest.raises(lg.ExportError, match="cannot be made"):
        lg.save_decoder(logits, cache, tmp_path / "no" / "made")
