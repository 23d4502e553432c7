"""Whether a decoder gives the same numbers however its text is cut: in one pass, token by token, and between."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from lazygraph.errors import OperandError
from lazygraph.export.checking.memory import pairs_by_name
from lazygraph.export.decoder import Decoder
from lazygraph.export.subject import Given, Subject, evaluated, subject_of

Array: TypeAlias = "np.ndarray[Any, Any]"


def assert_decodes_like(
    folder_or_graph: Given,
    inputs: Mapping[str, Array] | Sequence[int] | Array | None = None,
    reference: Array | Mapping[str, Array] | None = None,
    *,
    chunkings: Sequence[Sequence[int]] | None = None,
    position: str = "past_len",
    rtol: float = 1e-4,
    atol: float = 1e-4,
    provider: str = "cpu",
    seed: int = 0,
) -> None:
    """Require that every chunking of a text gives what one pass gives, and one pass what a reference gives.

    Args:
        folder_or_graph: An export folder; or a graph of one step, as tensors, file or model, whose cache is inputs
            ``past...`` and outputs ``present...`` and whose position is an input.
        inputs: For a folder token ids; for a graph arrays by input name, a row per token. None: drawn at random.
        reference: What one pass must give: the logits; for a graph arrays by output name. None: nothing is compared.
        chunkings: Numbers of tokens per step, each summing to the length of the text; None: one by one, halves, one
            and the rest, the rest and one, and random ones.
        position: The input of a graph that holds the number of tokens read already.
        rtol: Relative tolerance.
        atol: Absolute tolerance.
        provider: Where it runs.
        seed: Of what is drawn.

    Raises:
        AssertionError: Two chunkings differ; the message names chunking, output and token.
        OperandError: The inputs do not fit, or a chunking does not sum to the length of the text.
    """
    __tracebackhide__ = True
    runner: _Folder | _Step
    if isinstance(folder_or_graph, (str, os.PathLike)) and Path(folder_or_graph).is_dir():
        runner = _Folder(Path(folder_or_graph), inputs, provider, seed)
    else:
        runner = _Step(subject_of(folder_or_graph, provider), inputs, position, provider, seed)
    whole = runner.run([runner.length])
    if reference is not None:
        wanted = reference if isinstance(reference, Mapping) else {next(iter(whole)): reference}
        _compare("one pass", "the reference", whole, wanted, rtol, atol)
    for chunks in chunkings if chunkings is not None else _cuts(runner.length, seed):
        if sum(chunks) != runner.length or any(n < 1 for n in chunks):
            raise OperandError(
                f"chunks {list(chunks)} of {runner.length} tokens",
                op="assert_decodes_like",
                expected=f"whole numbers of at least 1 that sum to {runner.length}",
            )
        _compare(f"chunks {list(chunks)}", "one pass", runner.run(chunks), whole, rtol, atol)


def _cuts(length: int, seed: int) -> Iterator[list[int]]:
    yield [1] * length
    if length < 3:
        return
    yield [length // 2, length - length // 2]
    yield [1, length - 1]
    yield [length - 1, 1]
    random = np.random.default_rng(seed)
    for _ in range(3):
        left, cut = length, []
        while left:
            cut.append(int(random.integers(1, left + 1)))
            left -= cut[-1]
        yield cut


def _compare(
    who: str, than: str, got: Mapping[str, Array], wanted: Mapping[str, Array], rtol: float, atol: float
) -> None:
    __tracebackhide__ = True
    for name, expected in wanted.items():
        found = got.get(name)
        if found is None or found.shape != np.shape(expected):
            shape = None if found is None else found.shape
            raise AssertionError(f"{name} of {who} has shape {shape}, and of {than} {np.shape(expected)}")
        a, b = found.astype(np.float64), np.asarray(expected).astype(np.float64)
        off = ~np.isclose(a, b, rtol, atol, equal_nan=True)
        if off.any():
            token = int(np.argwhere(off.reshape(len(off), -1).any(1))[0, 0]) if off.ndim else 0
            worst = float(np.abs(a - b)[off].max())
            raise AssertionError(
                f"{name} of {who} departs from {than} at token {token}: {int(off.sum())} of {off.size} elements, "
                f"by up to {worst:.3g}"
            )


class _Folder:
    """An export folder, run by its decoder."""

    def __init__(self, folder: Path, ids: Any, provider: str, seed: int) -> None:
        self.decoder = Decoder.open(folder, provider)
        if isinstance(ids, Mapping):
            raise OperandError("arrays by name for an export folder", op="assert_decodes_like", expected="token ids")
        if ids is None:
            most = min(12, self.decoder.max_seq_len)
            ids = np.random.default_rng(seed).integers(0, self.decoder.manifest.vocab_size, most)
        self.ids = np.asarray(ids, np.int64)
        self.length = len(self.ids)

    def run(self, chunks: Sequence[int]) -> dict[str, Array]:
        """Return the logits after every token."""
        self.decoder.truncate(0)
        rows, done = [], 0
        for n in chunks:
            rows.append(self.decoder.append(self.ids[done : done + n]))
            done += n
        return {"logits": np.concatenate(rows)}


class _Step:
    """A graph of one step, run again and again: what it gives for the cache is fed on the next run."""

    def __init__(self, subject: Subject, inputs: Any, position: str, provider: str, seed: int) -> None:
        self.pairs = pairs_by_name(subject.model)
        if not self.pairs or position not in subject.inputs:
            missing = f"no input {position!r}" if self.pairs else "no input past... with an output present..."
            raise OperandError(
                f"the graph has {missing}",
                op="assert_decodes_like",
                expected="a graph of one step with its cache and position as inputs",
            )
        self.subject, self.position = subject, position
        self.session = subject.session(provider)
        fed = [name for name in subject.inputs if name not in self.pairs and name != position]
        if inputs is not None and (not isinstance(inputs, Mapping) or set(inputs) != set(fed)):
            raise OperandError(
                "the inputs do not fit", op="assert_decodes_like", expected=f"arrays by name: {', '.join(fed)}"
            )
        self.fed: dict[str, Array] = dict(inputs) if inputs is not None else self._drawn(fed, seed)
        self.length = len(next(iter(self.fed.values())))
        self.kept = [name for name in subject.outputs if name not in self.pairs.values()]

    def _drawn(self, names: Sequence[str], seed: int) -> dict[str, Array]:
        random = np.random.default_rng(seed)
        found: dict[str, Array] = {}
        for name in names:
            wanted = self.subject.inputs[name]
            sizes = [evaluated(size, {}) for size in (wanted.shape or ())[1:]]
            if not wanted.dtype.is_float or not wanted.shape or None in sizes or isinstance(wanted.shape[0], int):
                raise OperandError(
                    f"{name!r} cannot be drawn at random",
                    op="assert_decodes_like",
                    expected="inputs, by name, a row per token",
                )
            found[name] = random.standard_normal((6, *[n or 0 for n in sizes])).astype(wanted.dtype.numpy)
        return found

    def run(self, chunks: Sequence[int]) -> dict[str, Array]:
        """Return every output of the step but the cache, the rows of all runs joined."""
        past = {name: self._empty(name) for name in self.pairs}
        done, rows = 0, []
        for n in chunks:
            new = {name: array[done : done + n] for name, array in self.fed.items()}
            made = self.session.run({**new, **past, self.position: np.array(done, np.int64)})
            past = {source: made[target] for source, target in self.pairs.items()}
            rows.append({name: made[name] for name in self.kept})
            done += n
        return {name: np.concatenate([row[name] for row in rows]) for name in self.kept}

    def _empty(self, name: str) -> Array:
        wanted = self.subject.inputs[name]
        sizes = [evaluated(size, {}) for size in wanted.shape or ()]
        rows = sizes[0] if sizes else None
        if None in sizes[1:]:
            raise OperandError(
                f"{name!r} has sizes that are not known",
                op="assert_decodes_like",
                expected="known sizes after the rows",
            )
        # A cache of any number of rows starts with room for the whole text.
        return np.zeros([self.length if rows is None else rows, *[n or 0 for n in sizes[1:]]], wanted.dtype.numpy)


__all__ = ["assert_decodes_like"]
