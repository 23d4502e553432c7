"""A checkpoint on disk, whichever format it has: config, weights, tokenizer, stop ids."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from lazygraph.arrays import LazyArray
from lazygraph.dtypes import DTypeLike
from lazygraph.errors import UnsupportedError, WeightsError
from lazygraph.models.files import asking_line, nearest, read_json, read_json_if_there
from lazygraph.models.gguf_file import GgufFile
from lazygraph.models.gguf_tokenizer import stop_ids as gguf_stop_ids
from lazygraph.models.gguf_weights import GgufWeights
from lazygraph.models.safetensors_weights import SafetensorsWeights
from lazygraph.models.tokenizer import Tokenizer, stop_ids_in

# Buffers that old checkpoints saved beside the weights; every one can be computed.
NOT_WEIGHTS = ("*rotary_emb.inv_freq", "*rotary_emb.cos_cached", "*rotary_emb.sin_cached", "*attention.masked_bias")


class Weights(Protocol):
    """What a reader of tensors offers."""

    def names(self) -> tuple[str, ...]:
        """Return the tensors' names, sorted."""

    def array(self, name: str) -> LazyArray:
        """Return one tensor, unread."""


@dataclass(frozen=True)
class Checkpoint:
    """An opened checkpoint.

    Attributes:
        path: The folder or file.
        source: Format and main element type, such as ``GGUF Q4_1`` or ``safetensors float32``.
        config: Hugging Face's ``config.json``, or what a GGUF file's metadata amounts to under the same keys.
        weights: The reader of its tensors, under their Hugging Face names.
        tokenizer: The tokenizer, or None.
        tokenizer_note: Why there is no tokenizer; empty when there is one.
        stop_ids: Token ids that end a text.
        generation: Hugging Face's ``generation_config.json``, or what the GGUF file says of it; empty without.
    """

    path: Path
    source: str
    config: dict[str, Any]
    weights: SafetensorsWeights | GgufWeights
    tokenizer: Tokenizer | None
    tokenizer_note: str
    stop_ids: tuple[int, ...]
    generation: dict[str, Any]

    def __repr__(self) -> str:
        return f"Checkpoint({str(self.path)!r}: {self.config.get('model_type', '?')}, {self.source})"


def open_checkpoint(path: str | Path) -> Checkpoint:
    """Return a checkpoint, without reading its tensors.

    Args:
        path: A ``.gguf`` file, a Hugging Face folder, or a folder with one ``.gguf`` file.

    Raises:
        WeightsError: Nothing is there, a file is missing or broken, or it is not clear which file is meant.
        UnsupportedError: The format, a GGUF architecture, or a GGUF key is not known.
    """
    place = Path(path).expanduser()
    if place.is_file():
        return _open_file(place)
    if not place.is_dir():
        raise WeightsError(
            "no such file or folder",
            op="open_checkpoint",
            operands={"path": place},
            hint=_missing_hint(str(path)),
            at=asking_line(),
        )

    ggufs = sorted(place.glob("*.gguf"))
    if not (place / "config.json").is_file() or (ggufs and not any(place.glob("*.safetensors"))):
        if len(ggufs) == 1:
            return _open_gguf(ggufs[0])
        raise WeightsError(
            f"the folder has {len(ggufs)} .gguf files" if ggufs else "the folder has no config.json",
            op="open_checkpoint",
            operands={"folder": place} | {f"file {number}": file.name for number, file in enumerate(ggufs)},
            expected="a Hugging Face folder (config.json, *.safetensors), or one .gguf file",
            hint="name the file to open" if ggufs else "in the hub's own cache it is the folder under snapshots/",
            at=asking_line(),
        )
    return _open_folder(place)


def _missing_hint(path: str) -> str:
    if path.count("/") == 1 and not path.startswith((".", "/", "~")):
        return f"nothing is downloaded here: run 'hf download {path}' and pass the folder that it prints"
    return "nothing is downloaded here"


def _open_file(file: Path) -> Checkpoint:
    with file.open("rb") as stream:
        magic = stream.read(4)
    if magic == b"GGUF" or file.suffix == ".gguf":
        return _open_gguf(file)
    raise UnsupportedError(
        f"{file.name} is not a GGUF file",
        op="open_checkpoint",
        operands={"file": file},
        expected="a .gguf file, or a Hugging Face folder",
        hint="pass the folder that holds it" if file.suffix in (".safetensors", ".json") else "",
        at=asking_line(),
    )


def _open_folder(folder: Path) -> Checkpoint:
    config = read_json(folder / "config.json")
    generation = read_json_if_there(folder / "generation_config.json")
    weights = SafetensorsWeights(folder)

    tokenizer, note = None, ""
    if (folder / "tokenizer.json").is_file():
        try:
            tokenizer = Tokenizer.open(folder)
        except UnsupportedError as error:  # the model runs without one
            note = error.what
    else:
        note = "the folder has no tokenizer.json"
        if (folder / "tokenizer.model").is_file():
            note += " (tokenizer.model alone is not read; transformers' fast tokenizer saves the other)"
    return Checkpoint(
        path=folder,
        source=f"safetensors {weights.main_dtype}",
        config=config,
        weights=weights,
        tokenizer=tokenizer,
        tokenizer_note=note,
        stop_ids=stop_ids_in(folder) if tokenizer is None else tokenizer.stop_ids,
        generation=generation,
    )


def _open_gguf(path: Path) -> Checkpoint:
    file = GgufFile(path)
    weights = GgufWeights(file)

    tokenizer, note = None, ""
    try:
        tokenizer = Tokenizer.from_gguf(file)
    except UnsupportedError as error:  # the model runs without one
        note = error.what
    return Checkpoint(
        path=path,
        source=f"GGUF {weights.main_type}",
        config=weights.config,
        weights=weights,
        tokenizer=tokenizer,
        tokenizer_note=note,
        stop_ids=gguf_stop_ids(file),
        generation=_generation(file),
    )


def _generation(file: GgufFile) -> dict[str, Any]:
    """Return the sampling that a file recommends, under Hugging Face's keys."""
    named = (
        ("temp", "temperature"),
        ("top_k", "top_k"),
        ("top_p", "top_p"),
        ("min_p", "min_p"),
        ("penalty_repeat", "repetition_penalty"),
    )
    found: dict[str, Any] = {}
    for key, name in named:
        value = file.metadata.get(f"general.sampling.{key}")
        if isinstance(value, (int, float)):
            found[name] = float(str(np.float32(value))) if isinstance(value, float) else value
    if found:
        found["do_sample"] = found.get("temperature", 1.0) > 0
    return found


class WeightsUse:
    """Hands out a checkpoint's tensors and keeps count, so that none is missed and none is left over.

    A tensor that is absent is noted, and ``finish`` names all of them at once.

    Args:
        weights: The reader.
        ignore: Patterns (``*`` and ``?``) of names that may be left over.
    """

    def __init__(self, weights: Weights, ignore: Iterable[str] = NOT_WEIGHTS) -> None:
        self._weights = weights
        self._names = frozenset(weights.names())
        self._ignore = list(ignore)
        self._taken: set[str] = set()
        self._missing: dict[str, str] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._names

    def ignore(self, *patterns: str) -> None:
        """Let names of these patterns be left over (``lm_head.weight`` where the embedding serves as head)."""
        self._ignore += patterns

    def take(self, name: str, shape: Sequence[int], dtype: DTypeLike = "float32") -> LazyArray:
        """Return one tensor, unread.

        Args:
            name: Its name in the checkpoint.
            shape: The sizes that the model needs.
            dtype: Element type of the stand-in for an absent tensor. One that is there comes as it is stored.

        Raises:
            WeightsError: The tensor has other sizes.
        """
        wanted = tuple(int(size) for size in shape)
        if name not in self._names:
            self._missing[name] = nearest(name, self._names - self._taken)
            return LazyArray(dtype, wanted, lambda: self._refuse(name), name=name)

        array = self._weights.array(name)
        if array.shape != wanted:
            raise WeightsError(
                f"tensor {name!r} is {array.shape} and the model needs {wanted}",
                op="weights",
                operands={"wanted": wanted, "got": f"{array.dtype} {array.shape}"},
                expected="the shape that follows from the config",
                hint="config and weights belong to different models",
                at=asking_line(),
                tensor=name,
                wanted=wanted,
                got=array.shape,
            )
        self._taken.add(name)
        return array

    @property
    def missing(self) -> tuple[str, ...]:
        """Names that were asked for and are not there, in the order of asking."""
        return tuple(self._missing)

    @property
    def unexpected(self) -> tuple[str, ...]:
        """Names that are there, were not asked for, and are not ignored, sorted."""
        left = sorted(self._names - self._taken)
        return tuple(name for name in left if not any(fnmatchcase(name, pattern) for pattern in self._ignore))

    def finish(self) -> None:
        """Check that everything was found and everything was used.

        Raises:
            WeightsError: Something was not; its fields ``missing`` and ``unexpected`` name all of it.
        """
        missing, unexpected = self.missing, self.unexpected
        if not missing and not unexpected:
            return

        rows = {f"missing {number}": _near(name, self._missing[name]) for number, name in enumerate(missing[:_SHOWN])}
        rows |= {f"unused {number}": name for number, name in enumerate(unexpected[:_SHOWN])}
        raise WeightsError(
            f"{len(missing)} tensors are missing and {len(unexpected)} are not used",
            op="weights",
            operands=rows,
            expected="each tensor of the checkpoint used, and each of the model there",
            hint="the config belongs to another model, or the checkpoint has parts that are not supported",
            at=asking_line(),
            missing=missing,
            unexpected=unexpected,
        )

    def _refuse(self, name: str) -> np.ndarray[Any, Any]:
        raise WeightsError(
            f"the checkpoint has no tensor {name!r}",
            op="read",
            hint=f"near it are {self._missing[name]}" if self._missing[name] else "",
            at=asking_line(),
            missing=(name,),
        )


_SHOWN = 10  # names of each kind that a message lists; the error's fields hold all


def _near(name: str, near: str) -> str:
    return f"{name} (near it: {near})" if near else name
