"""The whole family: kind by lowering by element type by batch by chunking, exported and run by the decoders.

Every decoder is held against plain numpy (tests/support/family_model.py): its logits in every chunking, and what it
keeps after them, bit for bit.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lazygraph as lg
from lazygraph.cache import Code
from lazygraph.export.manifest import Manifest, read_manifest
from lazygraph.memory import Lowering
from tests.support import family
from tests.support.family import KINDS, LOWERINGS, Array
from tests.support.family_model import Model, saved

# What is computed in, what rows are kept in.
TYPES = {
    "float32": ("float32", "float32"),
    "float16": ("float16", "float16"),
    "float16 rows": ("float32", "float16"),
    "bfloat16 rows": ("float32", "bfloat16"),
}
# Windows hold 3 to 5 rows, and sinks before them.
CHUNKINGS = {
    "one pass": [24],
    "token by token": [1] * 24,
    "uneven": [3, 7, 1, 9, 4],
    "across the wrap": [4, 2, 2, 3, 1, 5, 7],
    "full, then one more": [5, 1, 1, 1, 16],
    "longer than the window": [1, 11, 12],
}
TOKENS = np.random.default_rng(5).integers(0, min(family.POISON), 24).tolist()
TEXTS = (TOKENS, TOKENS[3:20], [4, *TOKENS[:8]])


def cases() -> list[Any]:
    """Return every combination that there is; some of those that only keep rows in another type are slow."""
    found = []
    for name, kind in KINDS.items():
        for lowering, types, batch in itertools.product(LOWERINGS, TYPES, (False, True)):
            if kind.code and types.endswith(" rows"):
                continue  # rows are codes: see test_what_cannot_be_is_refused_by_name
            if batch and kind.layered:
                continue
            slow = types.endswith(" rows") and lowering != "view"
            marks = [pytest.mark.slow] if slow else []
            label = f"{name}-{lowering}-{types}{'-batch' if batch else ''}"
            found.append(pytest.param(name, lowering, types, batch, id=label, marks=marks))
    return found


def close(got: Array, wanted: Array, types: str) -> None:
    # float16 rounds weights and products: a thousandth of what is some tens here.
    np.testing.assert_allclose(got, wanted, rtol=0, atol=3e-2 if types == "float16" else 3e-5)


def keeps(file: Path, manifest: Manifest, model: Model, text: Sequence[int], which: int | None = None) -> None:
    """Check that a saved decoder keeps the rows that numpy keeps; of a batch, those of one text."""
    tensors = saved(file)
    assert set(tensors) == {slot.source for slot in manifest.memory}
    for slot in manifest.memory:
        got = tensors[slot.source] if which is None else tensors[slot.source][which]
        wanted = model.held(slot.layer, slot.slot, text, manifest.lowering == "concat")
        assert got.dtype == wanted.dtype
        assert which is not None or len(got) == len(wanted)
        if slot.slot.endswith(".scale"):  # a division here, a product there
            np.testing.assert_allclose(got[: len(wanted)], wanted, rtol=3e-7)
        else:
            np.testing.assert_array_equal(got[: len(wanted)], wanted)


@pytest.mark.parametrize(("name", "lowering", "types", "batch"), cases())
def test_logits_and_rows_are_those_of_numpy_in_every_chunking(
    tmp_path: Path, name: str, lowering: Lowering, types: str, batch: bool
) -> None:
    kind, (compute, kept) = KINDS[name], TYPES[types]
    folder = family.export(tmp_path / "export", kind, lowering, compute, kept, batch)
    model = Model(kind, compute, kept)
    (together if batch else alone)(folder, model, types)


def alone(folder: Path, model: Model, types: str) -> None:
    """One text in every chunking."""
    decoder = first = family.opened(folder)
    wanted = model.logits(TOKENS)
    for chunks in CHUNKINGS.values():
        decoder = first.fork()
        for count in chunks:
            got = decoder.append(TOKENS[decoder.length : decoder.length + count])
            close(got, wanted[decoder.length - count : decoder.length], types)
        decoder.save(folder.parent / "state")
        keeps(folder.parent / "state", decoder.manifest, model, TOKENS)
    decoder.truncate(0)
    np.testing.assert_array_equal(decoder.append(TOKENS), first.append(TOKENS))


def together(folder: Path, model: Model, types: str) -> None:
    """Three texts of 24, 17 and 9 tokens, each in a chunking of its own, against each alone."""
    ways, first = list(CHUNKINGS.values()), lg.BatchDecoder.open(folder, 3, threads=1)
    for turn in range(len(ways)):
        decoder = first.fork()
        chunks = [list(ways[(turn + which) % len(ways)]) for which in range(3)]
        while decoder.lengths != tuple(map(len, TEXTS)):
            before = decoder.lengths
            counts = [one.pop(0) if one else 0 for one in chunks]
            parts = [text[past : past + n] for text, past, n in zip(TEXTS, before, counts, strict=True)]
            if not any(parts):
                continue
            for text, past, part, got in zip(TEXTS, before, parts, decoder.append(parts), strict=True):
                assert got.shape == (len(part), family.WORDS)
                if part:
                    close(got, model.logits(text[: past + len(part)], past), types)
        decoder.save(folder.parent / "state")
        for which, text in enumerate(TEXTS):
            keeps(folder.parent / "state", read_manifest(folder), model, text, which)


# ---- what cannot be ----


def bfloat16_on_the_cpu(folder: Path) -> None:
    family.export(folder, KINDS["kv"], "view", "bfloat16", "bfloat16")


def codes_kept_in_another_type(folder: Path) -> None:
    x = lg.input("x", "float32", ["n", 4])
    slots, dtypes = Code("int8").slots({"k": [4]})
    dtypes[0] = lg.bfloat16
    lg.QuantisedCache(lg.LatentCache.inputs(x, 1, 8, list(slots.values()), dtypes), Code("int8"))


def a_type_without_a_kernel(folder: Path) -> None:
    lg.LatentCache.inputs(lg.input("x", "float32", ["n", 4]), 1, 8, [[4]], "int4")


# What cannot be, since onnxruntime has no such kernels; codes are bytes with a scale; nothing writes half bytes.
IMPOSSIBLE: list[tuple[Callable[[Path], None], type[Exception], str]] = [
    (bfloat16_on_the_cpu, lg.UnsupportedError, "add: .*CPUExecutionProvider cannot run it on bfloat16"),
    (codes_kept_in_another_type, lg.SlotCountError, "slots of bfloat16, float32"),
    (a_type_without_a_kernel, lg.DTypeError, "a cache of int4"),
]


@pytest.mark.parametrize(("build", "error", "says"), IMPOSSIBLE, ids=[one[0].__name__ for one in IMPOSSIBLE])
def test_what_cannot_be_is_refused_by_name(
    tmp_path: Path, build: Callable[[Path], None], error: type[Exception], says: str
) -> None:
    with pytest.raises(error, match=f"(?s){says}"):
        build(tmp_path / "export")
    assert not (tmp_path / "export" / "model.onnx").exists()
