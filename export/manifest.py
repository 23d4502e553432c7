"""The manifest of an exported decoder: what its graph expects, in a file that people can read too."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from lazygraph.dtypes import as_dtype
from lazygraph.errors import ExportError
from lazygraph.memory import Kind, Lowering, Memory
from lazygraph.whole import whole

if TYPE_CHECKING:
    from onnxruntime import InferenceSession

FILE = "manifest.json"
MODEL = "model.onnx"
FORMAT = 2


@dataclass(frozen=True)
class Manifest:
    """What a decoder's graph expects and what its cache costs.

    Attributes:
        model_type: Hugging Face's name of the architecture.
        source: What it was exported from.
        vocab_size: Token ids are in ``[0, vocab_size)``.
        max_seq_len: The longest text, in tokens; rotation covers it.
        compute: Element type of the arithmetic.
        max_position: The longest sequence that the model was trained for, in tokens.
        memory: Every slot of every layer: the inputs and outputs that carry the cache.
        lowering: ``buffer``: whole buffers are bound; ``view``: any number of rows that covers those that count;
            ``concat``: exactly the rows that count go in, and those after the step come out.
        batch: Whether the graph runs several texts at once, each with a position of its own.
        copied: Inputs of slots that must not share memory with their output, each with the reason.
        stop_ids: Token ids that end a text.
        nodes: Nodes of the graph.
        parameters: Numbers in the weights.
        weight_bytes: Bytes of the weights.
        fingerprint: SHA-256 of ``model.onnx``.
        version: lazygraph's version that wrote it.
    """

    model_type: str
    source: str
    vocab_size: int
    max_seq_len: int
    max_position: int
    memory: tuple[Memory, ...]
    lowering: Lowering
    stop_ids: tuple[int, ...]
    nodes: int
    parameters: int
    weight_bytes: int
    fingerprint: str
    version: str
    compute: str = "float32"
    batch: bool = False
    copied: dict[str, str] = field(default_factory=dict)
    format: int = FORMAT

    @property
    def n_layers(self) -> int:
        """Layers that remember something."""
        return len({slot.layer for slot in self.memory})

    @property
    def bytes_per_token(self) -> int:
        """Bytes of cache that one token takes over all layers, of a window until it is full."""
        return sum(slot.bytes_per_row for slot in self.memory if slot.kind in ("rows", "window"))

    @property
    def cache_bytes(self) -> int:
        """Bytes of the cache at full capacity, per text."""
        return sum(slot.nbytes for slot in self.memory)

    def to_json(self) -> str:
        """Return the file's text."""
        facts = {name: getattr(self, name) for name in self.__dataclass_fields__ if name not in ("format", "memory")}
        listed = {"format": self.format, **facts, "n_layers": self.n_layers, "bytes_per_token": self.bytes_per_token}
        listed["cache_bytes"] = self.cache_bytes
        listed["inputs"], listed["outputs"] = _described(self)
        text = json.dumps({**listed, "memory": []}, indent=2, ensure_ascii=False)
        # One line per slot: there are hundreds, and this file is read by people too.
        slots = ",\n    ".join(json.dumps(asdict(slot), ensure_ascii=False) for slot in self.memory)
        return text.removesuffix("[]\n}") + f"[\n    {slots}\n  ]\n}}\n"


def _described(manifest: Manifest) -> tuple[dict[str, str], dict[str, str]]:
    """Return what goes into the graph and what comes out, in words."""
    each, many = ("batch, ", "[batch]") if manifest.batch else ("", "[]")
    inputs = {
        "input_ids": f"int64 [{each}n]: the new tokens",
        "past_len": f"int64 {many}: tokens read already",
        "logits_from": "int64 []: the first of the n tokens whose logits are wanted (0: all, n - 1: the last)",
    }
    if manifest.batch:
        inputs["new_len"] = "int64 [batch]: how many of the n ids are new tokens of the row; the others are padding"
    outputs = {"logits": f"float32 [{each}n - logits_from, vocab_size]"}
    taken, given = (_BATCH_INPUTS, _BATCH_OUTPUTS) if manifest.batch else (_INPUTS, _OUTPUTS)
    for kind in dict.fromkeys(slot.kind for slot in manifest.memory):
        label = f"past.<layer>.<slot>, {kind}"
        inputs[label] = taken.get((kind, manifest.lowering)) or taken[kind, ""]
        if kind != "once":
            written = given.get((kind, manifest.lowering)) or given[kind, ""]
            outputs[label.replace("past", "present")] = written
    return inputs, outputs


# Per kind and lowering; where the lowering makes no difference, under "".
_INPUTS = {
    ("rows", "buffer"): "[capacity, ...trailing]",
    ("rows", "view"): "[rows, ...trailing], rows at least past_len + n; those beyond are masked, and must hold zeros",
    ("rows", "concat"): "[past_len, ...trailing]",
    ("window", "buffer"): "[capacity, ...trailing]: the first `sinks` rows, then position p at sinks + (p - sinks) mod "
    "window",
    ("window", "view"): "[rows, ...trailing]: as the whole ring of capacity rows, rows at least min(past_len + n, "
    "capacity)",
    ("window", "concat"): "[min(past_len, capacity), ...trailing]: the rows kept, oldest first",
    ("state", ""): "[...trailing]; zeros before the first token",
    ("once", ""): "[rows, ...trailing]: filled once, the same on every run",
}
_WRITTEN = "as the input, the new rows written; may share its memory, unless it stands in `copied`"
_OUTPUTS = {
    ("rows", ""): _WRITTEN,
    ("rows", "concat"): "[past_len + n, ...trailing]",
    ("window", ""): _WRITTEN,
    ("window", "concat"): "[min(past_len + n, capacity), ...trailing]",
    ("state", ""): "what replaces the input",
}
_NOTHING = "; what does not count of a text may hold anything"
_BATCH_INPUTS = {
    ("rows", "buffer"): "[batch, capacity, ...trailing]: row p of a text is its token p" + _NOTHING,
    (
        "rows",
        "view",
    ): "[batch, rows, ...trailing], rows at least the greatest past_len + new_len: row p of a text is its "
    "token p" + _NOTHING,
    (
        "rows",
        "concat",
    ): "[batch, rows, ...trailing], rows the greatest past_len, or more: row p of a text is its token p" + _NOTHING,
    ("window", "buffer"): "[batch, capacity, ...trailing]: of each text the first `sinks` rows, then position p at "
    "sinks + (p - sinks) mod window" + _NOTHING,
    ("window", "view"): "[batch, rows, ...trailing], rows at least min(greatest past_len + new_len, capacity): of each "
    "text the first rows of its ring" + _NOTHING,
    (
        "window",
        "concat",
    ): "[batch, rows, ...trailing], rows min(greatest past_len, capacity), or more: of each text the "
    "rows kept, oldest first, from row 0 on" + _NOTHING,
    ("state", ""): "[batch, ...trailing]; zeros before a text's first token",
    (
        "once",
        "",
    ): "[batch, rows, ...trailing]: filled once, the same on every run of a text; rows as many as the longest has",
}
_LONGER = "[batch, rows, ...trailing], as many as came, or as the longest text now keeps, where that is more"
_BATCH_OUTPUTS = {
    ("rows", ""): _WRITTEN,
    ("rows", "concat"): _LONGER,
    ("window", ""): _WRITTEN,
    ("window", "concat"): _LONGER,
    ("state", ""): "what replaces the input; of a text without new tokens, the input",
}


def read_manifest(folder: Path) -> Manifest:
    """Return the manifest of an export folder.

    Raises:
        ExportError: There is none, it is broken, or it is of another format.
    """
    file = folder / FILE
    try:
        given = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ExportError(
            f"no {FILE} in {folder}",
            op="open",
            expected="a folder that `lazygraph export` wrote",
            hint="" if folder.is_dir() else "there is no such folder",
        ) from None
    except (OSError, ValueError, RecursionError) as error:
        raise ExportError(f"{file} cannot be read: {error}", op="open", expected="a manifest in JSON") from None
    if not isinstance(given, dict) or given.get("format") != FORMAT:
        got = given.get("format") if isinstance(given, dict) else type(given).__name__
        raise ExportError(
            f"{file} is of format {got!r}",
            op="open",
            expected=f"format {FORMAT}",
            hint="another version of lazygraph wrote it: export it again" if whole(got) is not None else "",
        )
    return _from_json(file, given)


def _from_json(file: Path, given: dict[str, Any]) -> Manifest:
    fields = {name: given[name] for name in Manifest.__dataclass_fields__ if name in given}
    try:
        fields["memory"] = tuple(_slot(entry) for entry in given["memory"])
        fields["stop_ids"] = tuple(map(int, given["stop_ids"]))
        manifest = Manifest(**fields)
    except (KeyError, TypeError, ValueError) as error:
        raise ExportError(
            f"{file} is incomplete: {error}", op="open", expected="the keys that an export writes"
        ) from None
    for name in ("vocab_size", "max_seq_len", "max_position"):
        if (number := whole(fields[name])) is None or number < 1:
            raise _wrong(file, name, fields[name], "a whole number of at least 1")
    if not manifest.memory:
        raise _wrong(file, "memory", [], "at least one slot")
    if manifest.lowering not in get_args(Lowering):
        raise _wrong(file, "lowering", manifest.lowering, "one of " + ", ".join(get_args(Lowering)))
    if not isinstance(manifest.batch, bool):
        raise _wrong(file, "batch", manifest.batch, "true or false")
    if not isinstance(manifest.copied, dict):
        raise _wrong(file, "copied", manifest.copied, "a table of inputs and reasons")
    for slot in manifest.memory:
        if why := _impossible(slot, manifest.max_seq_len):
            raise _wrong(file, f"memory of {slot.source}", asdict(slot), why)
    return manifest


def _slot(entry: dict[str, Any]) -> Memory:
    fields = {name: entry[name] for name in Memory.__dataclass_fields__}
    sizes = tuple(whole(size) for size in entry["trailing"])
    numbers = (*sizes, *(whole(entry[name]) for name in ("layer", "capacity", "window", "sinks")))
    texts = (entry["source"], entry["target"], entry["slot"])
    if None in numbers or not all(isinstance(text, str) for text in texts):
        raise ValueError(f"a slot is {entry!r}")
    return Memory(**{**fields, "trailing": sizes, "dtype": as_dtype(entry["dtype"]).name})


def _impossible(slot: Memory, max_seq_len: int) -> str:
    """Return what a slot must be and is not; empty where it is well formed."""
    if slot.kind not in get_args(Kind):
        return "a kind of " + ", ".join(get_args(Kind))
    if slot.layer < 0 or slot.capacity < 1 or any(size < 1 for size in slot.trailing):
        return "sizes of at least 1"
    if not slot.source or bool(slot.target) == (slot.kind == "once"):
        return "an input's name, and an output's unless it is filled once"
    if slot.kind == "window" and (slot.window < 1 or slot.sinks < 0 or slot.capacity != slot.sinks + slot.window):
        return "capacity = sinks + window"
    if slot.kind == "rows" and slot.capacity != max_seq_len:
        return f"room for max_seq_len = {max_seq_len} rows"
    return ""


def _wrong(file: Path, name: str, value: Any, expected: str) -> ExportError:
    return ExportError(f"{name} is {value!r} in {file}", op="open", expected=expected)


def check_fits(manifest: Manifest, session: InferenceSession) -> None:
    """Refuse a manifest that does not describe the session's model: memory is bound by what the manifest says.

    Raises:
        ExportError: An input or output is missing, or has another element type or shape.
    """
    each: tuple[None, ...] = (None,) if manifest.batch else ()
    wanted: dict[str, tuple[str, tuple[int | None, ...]]] = {
        "input_ids": ("int64", (*each, None)),
        "past_len": ("int64", each),
        "logits_from": ("int64", ()),
        "logits": ("float32", (*each, None, manifest.vocab_size)),
    }
    if manifest.batch:
        wanted["new_len"] = ("int64", each)
    for slot in manifest.memory:
        leading: tuple[int | None, ...] = () if slot.kind == "state" else (None,)
        if slot.kind in ("rows", "window") and manifest.lowering == "buffer":
            leading = (slot.capacity,)
        for name in filter(None, (slot.source, slot.target)):
            if name in wanted:
                raise _twice(name)
            wanted[name] = (slot.dtype, (*each, *leading, *slot.trailing))

    values = {value.name: value for value in (*session.get_inputs(), *session.get_outputs())}
    for name in (*wanted, *sorted(values.keys() - wanted.keys())):
        dtype, shape = wanted.get(name, ("", ()))
        value = values.get(name)
        has = f"{value.type} {list(value.shape)}" if value is not None else "nothing of that name"
        if value is None or name not in wanted or not _fits(value.type, value.shape, dtype, shape):
            raise ExportError(
                f"the manifest and the model disagree about {name}",
                op="open",
                operands={
                    "manifest": f"{dtype} {list(shape)}" if name in wanted else "nothing of that name",
                    "model": has,
                },
                expected="the two files as one export wrote them",
                hint="export it again",
            )


def _twice(name: str) -> ExportError:
    return ExportError(
        f"the manifest names {name} twice", op="open", expected="an input and an output of its own per slot"
    )


def _fits(kind: str, sizes: Sequence[int | str | None], dtype: str, shape: tuple[int | None, ...]) -> bool:
    """Return whether onnxruntime's element type and sizes are those; sizes known by name only fit any."""
    return (
        kind == f"tensor({_KINDS.get(dtype, dtype)})"
        and len(sizes) == len(shape)
        and all(a == b for a, b in zip(sizes, shape, strict=True) if isinstance(a, int) and b is not None)
    )


# How onnxruntime spells the element types that it spells otherwise.
_KINDS = {"float32": "float", "float64": "double"}


def fingerprint(model_file: Path) -> str:
    """Return the SHA-256 of a file, in hexadecimal."""
    with model_file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
