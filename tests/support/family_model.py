"""What the decoders of :mod:`tests.support.family` must give, in plain numpy: a dict of rows per position, no cache.

Nothing of the library is used but the declaration of the kinds, the tables of numbers and ml_dtypes' types.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeAlias

import ml_dtypes
import numpy as np

from tests.support import family
from tests.support.family import Kind, Layer

Array: TypeAlias = np.ndarray[Any, Any]
Text: TypeAlias = Sequence[int]

_TYPES = {
    "float32": np.float32,
    "float16": np.float16,
    "bfloat16": ml_dtypes.bfloat16,
    "int8": np.int8,
    "uint8": np.uint8,
}
_SAFETENSORS = {"F32": np.float32, "F16": np.float16, "BF16": ml_dtypes.bfloat16, "I8": np.int8, "U8": np.uint8}


class Model:
    """One decoder's arithmetic, in float64 over rows as they are kept.

    Args:
        kind: The decoder.
        compute: What its graph computes in.
        kept: What rows are kept in, where the kind has no code.
        filled: Which rows the slots have that are filled once.
    """

    def __init__(self, kind: Kind, compute: str, kept: str, filled: int = 0) -> None:
        self.kind, self.compute, self.kept = kind, compute, kept
        self.given = family.given(kept, filled)
        self._tables: dict[tuple[int, str], tuple[Array, Array]] = {}
        self._rows: dict[tuple[int, str, int, int], dict[str, Array]] = {}
        self._logits: dict[tuple[int, ...], Array] = {}

    # ---- rows ----

    def new(self, layer: int, name: str, sizes: Sequence[int], token: int, position: int) -> Array:
        """Return what a token at a position brings, in the type that is computed in."""
        if (layer, name) not in self._tables:
            many = family.width(sizes)
            word = family.numbers(layer, name, family.WORDS, many, self.compute, poison=True)
            place = family.numbers(layer, name, family.CAPACITY, many, self.compute)
            self._tables[layer, name] = word, place
        word, place = self._tables[layer, name]
        return np.asarray(word[token] + place[position]).reshape(tuple(sizes))

    def stored(self, layer: int, token: int, position: int) -> dict[str, Array]:
        """Return a token's rows of a layer as a cache stores them, by slot."""
        key = (layer, "", token, position)
        if key not in self._rows:
            found: dict[str, Array] = {}
            for name, sizes in family.slots_of(self.kind, layer).items():
                row = self.new(layer, name, sizes, token, position)
                if self.kind.code:
                    found[name], found[name + ".scale"] = _coded(row, self.kind.code)
                else:
                    found[name] = row.astype(_TYPES[self.kept])
            if self.kind.layers[layer].state:
                x = self.new(layer, "x", [family.WIDTH], token, position)
                found["tail"] = x.astype(_TYPES[self.kept])
            self._rows[key] = found
        return self._rows[key]

    def read(self, layer: int, name: str, token: int, position: int) -> Array:
        """Return a row as attention reads it, float64."""
        key = (layer, name, token, position)
        if key not in self._rows:
            stored = self.stored(layer, token, position)
            row = stored[name].astype(np.float64)
            if self.kind.code == "fp8":
                row = stored[name].view(ml_dtypes.float8_e4m3fn).astype(np.float64)
            if self.kind.code:
                row = (row * float(stored[name + ".scale"])).astype(_TYPES[self.compute]).astype(np.float64)
            self._rows[key] = {name: row}
        return self._rows[key][name]

    # ---- logits ----

    def logits(self, text: Text, first: int = 0) -> Array:
        """Return the logits after each token of a text from the ``first`` on, float64 ``(n - first, words)``."""
        return np.stack([self._after(tuple(text[: end + 1])) for end in range(first, len(text))])

    def _after(self, text: tuple[int, ...]) -> Array:
        if text not in self._logits:
            found = np.zeros(family.WORDS)
            for number, layer in enumerate(self.kind.layers):
                for name, mixed in self._mixed(number, layer, text):
                    head = family.numbers(number, name + " head", len(mixed), family.WORDS, "float32")
                    found += mixed @ head.astype(np.float64)
            self._logits[text] = found
        return self._logits[text]

    def _mixed(self, number: int, layer: Layer, text: tuple[int, ...]) -> list[tuple[str, Array]]:
        here = len(text) - 1
        found = []
        if layer.reading is not None:
            heads, size = family.QUERY[layer.reading]
            q = self.new(number, "q", [heads, size], text[here], here).astype(np.float64)
            rows = {place: text[place] for place in visible(layer, here)}
            keys, values = self._keys_and_values(number, layer, rows)  # (rows, kv heads, size)
            group = heads // keys.shape[1]
            mixed = [
                _softmax(keys[:, head // group] @ q[head] * family.SCALE) @ values[:, head // group]
                for head in range(heads)
            ]
            found.append(("mixed", np.concatenate(mixed)))
        if layer.state:
            before = [
                self.read(number, "tail", text[p], p) if p >= 0 else np.zeros(8) for p in (here - 2, here - 1, here)
            ]
            found.append(("conv", 0.25 * before[0] + 1.0 * before[1] + 2.0 * before[2]))
        if layer.once:
            filled = self.given.astype(np.float64)
            across = self.new(number, "across", [family.WIDTH], text[here], here).astype(np.float64)
            found.append(("across", _softmax(filled @ across) @ filled))
        return found

    def _keys_and_values(self, number: int, layer: Layer, rows: dict[int, int]) -> tuple[Array, Array]:
        def all_of(name: str) -> Array:
            return np.stack([self.read(number, name, token, place) for place, token in rows.items()])

        if layer.reading == "heads":
            return all_of("k"), all_of("v")
        if layer.reading == "single":
            return all_of("row"), all_of("row")
        c, r, gate = all_of("c"), all_of("r"), all_of("gate")
        return np.concatenate([c, r], -1)[:, None], (c * gate[:, None])[:, None]

    # ---- what is kept ----

    def held(self, layer: int, slot: str, text: Text, oldest_first: bool) -> Array:
        """Return all that a slot holds after a text, as it is stored.

        Args:
            layer: The layer.
            slot: The slot.
            text: What was read.
            oldest_first: Whether a window lies in the order of the text; else in its ring.
        """
        if slot == "given":
            return self.given
        if slot == "tail":
            rows = [self.stored(layer, text[p], p)["tail"] for p in range(max(0, len(text) - 2), len(text))]
            empty = np.zeros((2 - len(rows), family.WIDTH), _TYPES[self.kept])
            return np.concatenate([empty, *(row[None] for row in rows)])
        one = self.kind.layers[layer]
        by_row: dict[int, Array] = {}
        kept = visible(one, len(text) - 1)
        for order, place in enumerate(kept):
            in_ring = one.window is not None and place >= one.sinks and not oldest_first
            row = one.sinks + (place - one.sinks) % (one.window or 1) if in_ring else order if oldest_first else place
            by_row[row] = self.stored(layer, text[place], place)[slot]
        return np.stack([by_row[row] for row in range(len(by_row))])


def visible(layer: Layer, here: int) -> list[int]:
    """Return the positions that a token attends, itself the last."""
    return [p for p in range(here + 1) if layer.window is None or p > here - layer.window or p < layer.sinks]


def saved(file: Path) -> dict[str, Array]:
    """Return the tensors of a safetensors file; read here because numpy has no bfloat16."""
    raw = file.read_bytes()
    (size,) = struct.unpack("<Q", raw[:8])
    header, body = json.loads(raw[8 : 8 + size]), raw[8 + size :]
    found = {}
    for name, entry in header.items():
        if name != "__metadata__":
            start, end = entry["data_offsets"]
            found[name] = np.frombuffer(body[start:end], _SAFETENSORS[entry["dtype"]]).reshape(entry["shape"])
    return found


def _softmax(scores: Array) -> Array:
    weights = np.exp(scores - scores.max())
    return np.asarray(weights / weights.sum())


def _coded(row: Array, code: str) -> tuple[Array, Array]:
    """Return a row's codes and its scale."""
    wide = row.astype(np.float32)
    with np.errstate(invalid="ignore"):
        scale = np.maximum(np.abs(wide).max() / np.float32(127 if code == "int8" else 448), np.float32(1e-30))
        ratio = wide / scale
        if code == "fp8":
            return ratio.astype(ml_dtypes.float8_e4m3fn).view(np.uint8), scale
        return np.rint(ratio).astype(np.int8), scale
