"""The manifest of an exported decoder: what its graph expects, in a file that people can read too."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from lazygraph.dtypes import as_dtype
from lazygraph.errors import ExportError
from lazygraph.whole import whole

if TYPE_CHECKING:
    from onnxruntime import InferenceSession

FILE = "manifest.json"
MODEL = "model.onnx"
FORMAT = 1


@dataclass(frozen=True)
class Slot:
    """One slot of every layer.

    Attributes:
        name: Its inputs are ``past.<layer>.<name>``, its outputs ``present.<layer>.<name>``.
        trailing: The sizes of one row.
        dtype: Element type.
    """

    name: str
    trailing: tuple[int, ...]
    dtype: str

    @property
    def bytes_per_row(self) -> int:
        """Bytes that one row takes in one layer."""
        return as_dtype(self.dtype).nbytes(prod(self.trailing))


@dataclass(frozen=True)
class Manifest:
    """What a decoder's graph expects and what its cache costs.

    Attributes:
        model_type: Hugging Face's name of the architecture.
        source: What it was exported from.
        vocab_size: Token ids are in ``[0, vocab_size)``.
        max_seq_len: Capacity of the cache, in tokens; rotation covers it.
        compute: Element type of the arithmetic.
        max_position: The longest sequence that the model was trained for, in tokens.
        n_layers: Layers of the cache.
        slots: Slots of every layer.
        lowering: ``buffer``: whole buffers are bound; ``view``: any number of rows that covers those that count.
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
    n_layers: int
    slots: tuple[Slot, ...]
    lowering: Literal["buffer", "view"]
    stop_ids: tuple[int, ...]
    nodes: int
    parameters: int
    weight_bytes: int
    fingerprint: str
    version: str
    compute: str = "float32"
    copied: dict[str, str] = field(default_factory=dict)
    format: int = FORMAT

    @property
    def bytes_per_token(self) -> int:
        """Bytes of cache that one token takes over all layers."""
        return self.n_layers * sum(slot.bytes_per_row for slot in self.slots)

    def slot_names(self) -> list[tuple[str, str, Slot]]:
        """Return every slot of every layer: its input's name, its output's name, and what it is."""
        return [
            (f"past.{layer}.{slot.name}", f"present.{layer}.{slot.name}", slot)
            for layer in range(self.n_layers)
            for slot in self.slots
        ]

    def to_json(self) -> str:
        """Return the file's text."""
        listed = {"format": self.format, **{k: v for k, v in asdict(self).items() if k != "format"}}
        listed["bytes_per_token"] = self.bytes_per_token
        listed["inputs"] = {
            "input_ids": "int64 [n]: the new tokens",
            "past_len": "int64 []: rows of the cache that count already",
            "logits_from": "int64 []: the first of the n rows whose logits are wanted (0: all, n - 1: the last)",
            "past.<layer>.<slot>": "[max_seq_len, ...trailing]"
            if self.lowering == "buffer"
            else "[rows, ...trailing], rows at least past_len + n; those beyond are masked, and must hold zeros",
        }
        listed["outputs"] = {
            "logits": "float32 [n - logits_from, vocab_size]",
            "present.<layer>.<slot>": "as the input, the new rows written from row past_len on; may share its memory",
        }
        return json.dumps(listed, indent=2, ensure_ascii=False) + "\n"


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
        raise ExportError(f"{file} is of format {got!r}", op="open", expected=f"format {FORMAT}")
    return _from_json(file, given)


def _from_json(file: Path, given: dict[str, Any]) -> Manifest:
    fields = {name: given[name] for name in Manifest.__dataclass_fields__ if name in given}
    try:
        slots = tuple(
            Slot(str(s["name"]), tuple(map(int, s["trailing"])), as_dtype(s["dtype"]).name) for s in given["slots"]
        )
        fields["slots"] = slots
        fields["stop_ids"] = tuple(map(int, given["stop_ids"]))
        manifest = Manifest(**fields)
    except (KeyError, TypeError, ValueError) as error:
        raise ExportError(
            f"{file} is incomplete: {error}", op="open", expected="the keys that an export writes"
        ) from None
    for name in ("vocab_size", "max_seq_len", "max_position", "n_layers"):
        if (number := whole(fields[name])) is None or number < 1:
            raise ExportError(
                f"{name} is {fields[name]!r} in {file}", op="open", expected="a whole number of at least 1"
            )
    if not slots or any(size < 1 for slot in slots for size in slot.trailing):
        raise ExportError(
            f"slots are {given['slots']!r} in {file}", op="open", expected="slots with sizes of at least 1"
        )
    if manifest.lowering not in ("buffer", "view"):
        raise ExportError(f"lowering is {manifest.lowering!r} in {file}", op="open", expected="'buffer' or 'view'")
    if not isinstance(manifest.copied, dict):
        raise ExportError(
            f"copied is {manifest.copied!r} in {file}", op="open", expected="a table of inputs and reasons"
        )
    return manifest


def check_fits(manifest: Manifest, session: InferenceSession) -> None:
    """Refuse a manifest that does not describe the session's model: memory is bound by what the manifest says.

    Raises:
        ExportError: An input or output is missing, or has another element type or shape.
    """
    rows = manifest.max_seq_len if manifest.lowering == "buffer" else None
    wanted: dict[str, tuple[str, tuple[int | None, ...]]] = {
        "input_ids": ("int64", (None,)),
        "past_len": ("int64", ()),
        "logits_from": ("int64", ()),
        "logits": ("float32", (None, manifest.vocab_size)),
    }
    for source, target, slot in manifest.slot_names():
        wanted[source] = wanted[target] = (slot.dtype, (rows, *slot.trailing))

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
