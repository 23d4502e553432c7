"""From a checkpoint to an export folder: the whole road in one call."""

from __future__ import annotations

import importlib
import pkgutil
import shutil
import tempfile
from collections.abc import Callable, Collection
from pathlib import Path
from types import ModuleType
from typing import Literal, get_args

from lazygraph.cache import Code
from lazygraph.dtypes import DType, bfloat16, float16, float32
from lazygraph.errors import ExportError, OperandError, UnsupportedError
from lazygraph.export.decoder_files import save_decoder
from lazygraph.export.manifest import FILE, MODEL, Manifest
from lazygraph.memory import Lowering
from lazygraph.models.block_fp8 import readable
from lazygraph.models.checkpoint import Checkpoint, WeightsUse, open_checkpoint
from lazygraph.models.config import Config
from lazygraph.models.program import BuildOptions, DecoderGraph, Precision

Progress = Callable[[str, int, int], None]

_KINDS = {"fp32": float32, "fp16": float16, "bf16": bfloat16}

# Model types that one might take for their served relatives.
_WHY_NOT = {"deepseek_v32": "its attention is sparse: an indexer picks the rows that each token attends"}

# What the cache has room for when nobody says: the model's own limit, but no more than this.
DEFAULT_MAX_SEQ_LEN = 8192


def convert(
    source: str | Path,
    out: str | Path,
    *,
    max_seq_len: int | None = None,
    precision: Literal["fp32", "fp16", "bf16"] = "fp32",
    store: Literal["fp32", "fp16", "bf16"] | None = None,
    provider: Literal["cpu", "cuda"] = "cpu",
    mla: Literal["absorbed", "expanded", "auto"] = "auto",
    lowering: Lowering = "view",
    portable: bool = False,
    batch: bool = False,
    cache_dtype: Literal["fp32", "fp16", "bf16", "int8", "fp8"] | None = None,
    ignore_keys: Collection[str] = (),
    source_lines: bool = False,
    warn: Callable[[str], None] | None = None,
    progress: Progress | None = None,
) -> Manifest:
    """Export a checkpoint as a folder that ``lazygraph.Decoder`` and plain onnxruntime run.

    The folder holds ``model.onnx``, its weights file, ``manifest.json`` and, where the source has one, the tokenizer.
    It appears whole or not at all: an export that fails leaves an older one as it was.

    Args:
        source: A ``.gguf`` file or a Hugging Face folder.
        out: The folder to write; an older export there is replaced.
        max_seq_len: Capacity of the cache in tokens; the model's limit, at most 8,192, when left out.
        precision: Element type of the arithmetic. What the provider cannot compute in bf16 is computed in fp32.
        store: Element type of weights and cache; as ``precision`` when left out.
        provider: Where it is to run: ``cpu`` or ``cuda``.
        mla: How latent attention computes: absorbed, expanded, or both, chosen by the number of new tokens on each run.
        lowering: How the cache is bound: ``view`` (the rows that count, in place), ``buffer`` (all of it, in place) or
            ``concat`` (past in, present out, a copy on each run, for runtimes that expect it).
        portable: Use ai.onnx operators only, none of onnxruntime's own (they are faster).
        batch: Run several texts at once, each with a position of its own, padded on the left.
        cache_dtype: What rows of the cache are kept in; ``int8`` and ``fp8`` with a scale per row. As ``store`` when
            left out.
        ignore_keys: Config keys that the caller vouches for.
        source_lines: Also write which line of which file made each call (see ``lazygraph.save``).
        warn: Called with what the user should know.
        progress: Called with what is going on, bytes done, and bytes in all.

    Returns:
        The manifest that was written.

    Raises:
        WeightsError: The checkpoint is broken, or does not fit its config.
        UnsupportedError: Its architecture, or something that its config asks for, is not served.
        ExportError: The folder cannot be written.
    """
    say = warn or (lambda message: None)
    target = _checked_target(Path(out))
    if mla not in ("absorbed", "expanded", "auto"):
        raise OperandError(f"mla is {mla!r}", op="export", expected="absorbed, expanded or auto")
    if lowering not in get_args(Lowering):
        raise OperandError(f"lowering is {lowering!r}", op="export", expected="one of " + ", ".join(get_args(Lowering)))
    kinds = _precision(precision, store or precision, provider, say)

    checkpoint = open_checkpoint(source)
    config = Config(checkpoint.config, ignore_keys)
    limit = config.integer("max_position_embeddings", 2048)
    capacity = min(limit, DEFAULT_MAX_SEQ_LEN) if max_seq_len is None else max_seq_len
    if isinstance(capacity, bool) or not isinstance(capacity, int) or capacity < 1:
        raise OperandError(f"max_seq_len is {capacity!r}", op="export", expected="a whole number of at least 1")
    if capacity > limit:
        say(f"a cache of {capacity:,} tokens is longer than the {limit:,} that the model was trained for")

    options = BuildOptions(capacity, mla, portable, kinds, batch, _kept(cache_dtype), lowering)
    weights = WeightsUse(readable(checkpoint.weights, config))
    graph = model_module(config.model_type).build(config, weights, options)
    config.finish()
    weights.finish()
    for note in graph.notes:
        say(note)
    if checkpoint.tokenizer is None:
        say(f"no tokenizer is exported: {checkpoint.tokenizer_note}")

    try:
        with tempfile.TemporaryDirectory(
            prefix=f".{target.name}-", dir=target.parent, ignore_cleanup_errors=True
        ) as scratch:
            staged = Path(scratch) / "export"
            staged.mkdir()
            manifest = _write(checkpoint, graph, options, config.model_type, provider, staged, source_lines, progress)
            _swap(staged, target, Path(scratch) / "old")
    except OSError as error:
        raise ExportError(
            f"{target} cannot be written: {error.strerror or error}",
            op="export",
            expected="a folder with room for the export",
            hint="what was there before is unchanged",
        ) from error
    return manifest


def _precision(precision: str, store: str, provider: str, say: Callable[[str], None]) -> Precision:
    """Return the element types that an export's options mean."""
    for label, value in (("precision", precision), ("store", store)):
        if value not in _KINDS:
            raise OperandError(f"{label} is {value!r}", op="export", expected="one of " + ", ".join(_KINDS))
    if provider not in ("cpu", "cuda"):
        raise OperandError(f"provider is {provider!r}", op="export", expected="cpu or cuda")
    compute = _KINDS[precision]
    if precision == "bf16" and provider == "cpu":
        compute = float32
        say("onnxruntime's CPU provider does not compute in bfloat16: weights and cache keep it, arithmetic is float32")
    return Precision(compute, _KINDS[store])


def _kept(name: str | None) -> DType | Code | None:
    """Return what the rows of a cache are kept in; None for as weights are."""
    if name is None or name in _KINDS:
        return None if name is None else _KINDS[name]
    if name not in ("int8", "fp8"):
        raise OperandError(
            f"cache_dtype is {name!r}", op="export", expected="one of " + ", ".join([*_KINDS, "int8", "fp8"])
        )
    return Code("int8" if name == "int8" else "fp8")


def model_module(model_type: str) -> ModuleType:
    """Return the file that builds a ``model_type``: the one of that name in ``lazygraph.models``.

    Raises:
        UnsupportedError: There is none; the message lists those there are.
    """
    from lazygraph import models

    names = [module.name for module in pkgutil.iter_modules(models.__path__)]
    if model_type in names:
        module = importlib.import_module(f"lazygraph.models.{model_type}")
        if callable(getattr(module, "build", None)):
            return module
    served = [name for name in names if _builds(name)]
    raise UnsupportedError(
        f"model_type {model_type!r} is not served" if model_type else "the config names no model_type",
        op="export",
        expected="one of " + ", ".join(served),
        hint=_WHY_NOT.get(model_type, ""),
        model_type=model_type,
        served=tuple(served),
    )


def _builds(name: str) -> bool:
    return callable(getattr(importlib.import_module(f"lazygraph.models.{name}"), "build", None))


def _checked_target(out: Path) -> Path:
    """Return the folder's full path; it must be new, empty, or an export."""
    target = out.expanduser().resolve()  # through a link: what it points to is replaced, not the link
    if target.exists() and not target.is_dir():
        raise ExportError(f"{out} is a file", op="export", expected="a folder to write")
    if target.is_dir() and any(target.iterdir()) and not (target / FILE).is_file():
        raise ExportError(
            f"{out} holds other files and no export",
            op="export",
            expected=f"a new or empty folder, or one with a {FILE}",
            hint="choose another folder: nothing that is not an export is ever replaced",
        )
    if target.is_dir() and Path.cwd().is_relative_to(target):
        raise ExportError(
            f"{out} is the current folder, or one that holds it",
            op="export",
            expected="a folder that can be replaced as a whole",
            hint="start from another folder",
        )
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ExportError(f"{target.parent} cannot be made: {error.strerror}", op="export") from error
    return target


def _write(
    checkpoint: Checkpoint,
    graph: DecoderGraph,
    options: BuildOptions,
    model_type: str,
    provider: str,
    folder: Path,
    source_lines: bool,
    progress: Progress | None,
) -> Manifest:
    manifest = save_decoder(
        graph.logits,
        graph.cache,
        folder,
        model_type=model_type,
        source=f"{checkpoint.path.name} ({checkpoint.source})",
        max_position=graph.max_position,
        stop_ids=checkpoint.stop_ids,
        compute=options.precision.compute,
        external=True,
        target=provider,
        source_lines=source_lines,
        progress=progress,
    )
    if checkpoint.tokenizer is not None:
        checkpoint.tokenizer.save(folder)
    return manifest


def _swap(staged: Path, target: Path, aside: Path) -> None:
    """Put the new folder where the old one was; files in it that no export wrote are kept."""
    if not target.exists():
        staged.rename(target)
        return
    try:
        target.rename(aside)
        staged.rename(target)
        _bring_over(aside, target)
    except BaseException:  # Ctrl-C too: what lies aside is removed in a moment
        if aside.exists() and not target.exists():
            aside.rename(target)
        elif aside.exists():
            _bring_over(aside, target)
        raise


def _bring_over(aside: Path, target: Path) -> None:
    for entry in aside.iterdir():
        if not _ours(entry.name) and not (target / entry.name).exists():
            shutil.move(entry, target / entry.name)


def _ours(name: str) -> bool:
    return name in (MODEL, FILE, "tokenizer.json", "tokenizer_config.json") or name.endswith(".onnx.data")
