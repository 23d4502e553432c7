"""onnxruntime sessions: opened with typed errors, run with any element type, failures traced to the user's line."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from lazygraph.dtypes import DType, dtype_of_onnx
from lazygraph.errors import ExportError, OperandError, UnsupportedError
from lazygraph.export import crossing
from lazygraph.export.program import Outputs, collect
from lazygraph.export.saving import checked_model, save_program, with_weights
from lazygraph.export.source_lines import FileLines
from lazygraph.export.weights import INLINE_BYTES
from lazygraph.where import Where

if TYPE_CHECKING:
    from typing import TypeAlias

    from onnx import ModelProto
    from onnxruntime import InferenceSession

Lines: TypeAlias = "Mapping[str, tuple[str, Where | None]]"

_PROVIDERS = {"cpu": ["CPUExecutionProvider"], "cuda": ["CUDAExecutionProvider", "CPUExecutionProvider"]}
# How onnxruntime names the node that failed, in the messages of its graph, session and executor code.
_NODE = re.compile(r"(?:Name:'|node with name '|In Node, \(\"|Node \(|Node:|node_name: ?|name: ?'?)([^')\"\n]+)")


class Session:
    """A model that takes and gives arrays of every element type, and whose failures name the user's line.

    Attributes:
        raw: The ``onnxruntime.InferenceSession``.
        inputs: Element type by input name, in the model's order.
        optional: Element type of each input that has numbers where none are fed.
        outputs: Element type by output name, in the model's order.
    """

    def __init__(self, raw: InferenceSession, lines: Lines | None = None) -> None:
        self.raw = raw
        self.inputs = {value.name: _dtype(value.type) for value in raw.get_inputs()}
        self.optional = {value.name: _dtype(value.type) for value in raw.get_overridable_initializers()}
        self.outputs = {value.name: _dtype(value.type) for value in raw.get_outputs()}
        self._lines = lines or {}

    def run(self, feeds: Mapping[str, Any], outputs: Sequence[str] | None = None) -> dict[str, np.ndarray[Any, Any]]:
        """Return the outputs by name.

        Args:
            feeds: One array per input, of its element type (ml_dtypes' arrays for those that numpy lacks).
            outputs: Which to compute; None for all.

        Raises:
            ExportError: onnxruntime failed; the message names the user's line where that is known.
        """
        names = list(self.outputs) if outputs is None else list(outputs)
        inputs = {**self.inputs, **self.optional} if self.optional else self.inputs
        types = [*(inputs.get(name) for name in feeds), *(self.outputs[name] for name in names)]
        plain = all(map(crossing.plain, types))
        try:
            if plain:
                return dict(zip(names, self.raw.run(names, dict(feeds)), strict=True))
            values = {name: crossing.to_value(array, inputs[name]) for name, array in feeds.items()}
            results = self.raw.run_with_ort_values(names, values)
            found = zip(names, results, strict=True)
            return {name: crossing.to_array(value, self.outputs[name]) for name, value in found}
        except Exception as error:
            if not _of_runtime(error):
                raise
            raise traced(error, self._lines or told_lines(self.raw), "run") from error


def run_bound(
    session: InferenceSession,
    binding: Any,
    inputs: Mapping[str, np.ndarray[Any, Any]],
    outputs: Mapping[str, np.ndarray[Any, Any]],
    lines: Lines | None = None,
) -> None:
    """Run a session whose other inputs and outputs are bound already, from arrays and into arrays.

    Args:
        session: What to run.
        binding: Its ``IOBinding``.
        inputs: C-contiguous arrays by input name.
        outputs: C-contiguous arrays by output name, of the shape that the run gives; they are written to.
        lines: By node name, the operator and the user's line, for messages.

    Raises:
        ExportError: onnxruntime failed.
    """
    try:
        for name, array in inputs.items():
            binding.bind_input(name, "cpu", 0, array.dtype, array.shape, array.ctypes.data)
        for name, array in outputs.items():
            binding.bind_output(name, "cpu", 0, array.dtype, array.shape, array.ctypes.data)
        session.run_with_iobinding(binding)
    except Exception as error:
        if not _of_runtime(error):
            raise
        raise traced(error, lines or told_lines(session), "run") from error


def told_lines(session: InferenceSession) -> Lines:
    """Return by node name the lines that a session's file tells; the operators are not known."""
    told = FileLines(session.get_modelmeta().custom_metadata_map).told()
    return {name: ("", at) for name, at in told.items()}


def open_session(
    model: str | os.PathLike[str] | ModelProto | bytes,
    provider: str = "cpu",
    threads: int | None = None,
    *,
    severity: int = 3,
    lines: Lines | None = None,
    options: Mapping[str, str] | None = None,
) -> InferenceSession:
    """Return an onnxruntime session of a model file, or of a model in memory.

    Args:
        model: The path of a file (its weights are found beside it, whatever the current folder), or a model.
        provider: ``"cpu"`` or ``"cuda"``.
        threads: Threads within one operator; None leaves it to onnxruntime.
        severity: The least severe log lines that are printed: 0 verbose to 4 fatal.
        lines: By node name, the operator and the user's line, for messages.
        options: Further session configuration entries, by onnxruntime's keys.

    Raises:
        ExportError: onnxruntime is not installed or refuses the model, or a file is missing.
        UnsupportedError: The installed onnxruntime has no such provider.
        OperandError: The provider is none that lazygraph knows.
    """
    runtime = _runtime()
    providers = _providers(runtime, provider)
    settings = runtime.SessionOptions()
    settings.log_severity_level = severity
    if threads is not None:
        settings.intra_op_num_threads = threads
        settings.inter_op_num_threads = 1
    for key, value in (options or {}).items():
        settings.add_session_config_entry(key, value)

    path: Path | None = None
    if isinstance(model, (str, os.PathLike)):
        path = Path(model)
        if not path.is_file():
            raise ExportError(f"there is no model file {path}", op="open", expected="the path of an .onnx file")
        source: str | bytes = str(path)
    else:
        source = model if isinstance(model, bytes) else model.SerializeToString()
    try:
        session: InferenceSession = runtime.InferenceSession(source, settings, providers=providers)
        return session
    except Exception as error:
        if not _of_runtime(error):
            raise
        if path is not None:
            _explain_weights(path, error)
        raise traced(error, lines or _lines_of_file(source), "open") from error


def session_of(outputs: Outputs, provider: str = "cpu", threads: int | None = None) -> Session:
    """Return a session that computes tensors, with the inputs that they need.

    Large weights pass through a folder that is gone afterwards.

    Raises:
        LazyGraphError: As for ``lazygraph.export.saving.to_onnx`` and ``open_session``.
    """
    _runtime()
    program = collect(outputs, all_inputs=False)
    lines = program.lines()
    if sum(stored.nbytes for stored in program.weights) <= INLINE_BYTES:
        model = with_weights(program, checked_model(program, provider))
        return Session(open_session(model, provider, threads, lines=lines), lines)
    with tempfile.TemporaryDirectory(prefix="lazygraph-", ignore_cleanup_errors=True) as folder:
        path = Path(folder, "model.onnx")
        save_program(program, path, external=True, target=provider)
        return Session(open_session(path, provider, threads, lines=lines), lines)


def probe(provider: str) -> None:
    """Run the smallest model, to see whether a provider works.

    Raises:
        UnsupportedError: The installed onnxruntime does not have it, or runs the model elsewhere.
        ExportError: onnxruntime is not installed, or failed.
    """
    from onnx import TensorProto, helper

    kind = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2])
    node = helper.make_node("Add", ["x", "x"], ["y"])
    graph = helper.make_graph([node], "probe", [kind], [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2])])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=7)
    session = open_session(model, provider)
    wanted = _PROVIDERS[provider][0]
    if wanted not in session.get_providers():  # onnxruntime falls back without a word where a library is missing
        raise UnsupportedError(f"{wanted} cannot be loaded", op="open", expected="its libraries")
    found = Session(session).run({"x": np.array([1, 2], np.float32)})["y"]
    if found.tolist() != [2, 4]:
        raise ExportError(f"{wanted} gives {found.tolist()} for 1 + 1 and 2 + 2", op="open", expected="[2, 4]")


def traced(error: Exception, lines: Lines, during: str) -> ExportError:
    """Return onnxruntime's error with the operator and the user's line of the node that it names."""
    text = str(error)
    for found in _NODE.findall(text):
        # Optimisations put something behind a node's name.
        bases = [name for name in lines if found == name or found.startswith((f"{name}/", f"{name}_"))]
        if bases:
            name = max(bases, key=len)
            op, at = lines[name]
            return ExportError(
                f"onnxruntime failed: {text}", op=op or during, operands={"node": name}, at=at, node=name
            )
    return ExportError(f"onnxruntime failed: {text}", op=during)


def require_provider(provider: str) -> None:
    """Require that the installed onnxruntime has a provider.

    Raises:
        ExportError: onnxruntime is not installed.
        UnsupportedError: It has no such provider.
        OperandError: The provider is none that lazygraph knows.
    """
    _providers(_runtime(), provider)


def _runtime() -> Any:
    try:
        import onnxruntime
    except ImportError as error:
        raise ExportError(
            "onnxruntime is not installed",
            op="open",
            expected="onnxruntime, or onnxruntime-gpu for CUDA",
            hint="pip install lazygraph[cpu], or pip install lazygraph[gpu]",
        ) from error
    return onnxruntime


def _providers(runtime: Any, provider: str) -> list[str]:
    if provider not in _PROVIDERS:
        raise OperandError(f"provider {provider!r}", op="open", expected="'cpu' or 'cuda'")
    wanted = _PROVIDERS[provider]
    if wanted[0] not in runtime.get_available_providers():
        raise UnsupportedError(
            f"the installed onnxruntime has no {wanted[0]}",
            op="open",
            expected=f"one of {', '.join(runtime.get_available_providers())}",
            hint="pip install lazygraph[gpu]" if provider == "cuda" else "pip install lazygraph[cpu]",
        )
    return wanted


def _of_runtime(error: Exception) -> bool:
    """Return whether onnxruntime raised it: its own classes, or a RuntimeError of its bindings."""
    return type(error).__module__.startswith("onnxruntime") or type(error) in (RuntimeError, ValueError)


def _lines_of_file(source: str | bytes) -> Lines:
    from lazygraph.export.loading import parsed

    content = Path(source).read_bytes() if isinstance(source, str) else source
    model = parsed(content, "the model")
    return FileLines.of_model(model).by_name(model.graph)


def _explain_weights(path: Path, error: Exception) -> None:
    """Raise a better error when the cause is that a weights file is missing or too short."""
    from google.protobuf.message import DecodeError
    from onnx import ModelProto

    try:
        model = ModelProto.FromString(path.read_bytes())
    except DecodeError:
        raise ExportError(f"{path} is no ONNX model", op="open", expected="an .onnx file") from error
    for tensor in model.graph.initializer:
        entries = {entry.key: entry.value for entry in tensor.external_data}
        if "location" not in entries:
            continue
        file = path.parent / entries["location"]
        end = int(entries.get("offset", 0)) + int(entries.get("length", 0))
        problem = "is missing" if not file.is_file() else "is too short" if file.stat().st_size < end else ""
        if problem:
            raise ExportError(
                f"the weights file {file} of {path} {problem}",
                op="open",
                operands={"model": str(path), "weights": str(file), "needed by": tensor.name},
                expected="the weights file beside the model, as it was saved",
                hint="move or copy the two files together",
            ) from error


def _dtype(text: str) -> DType | None:
    from onnx import TensorProto

    found = re.fullmatch(r"tensor\((\w+)\)", text)
    if found is None:
        return None
    name = {"double": "DOUBLE", "float8e8m0": "FLOAT8E8M0"}.get(found[1], found[1].upper())
    return dtype_of_onnx(TensorProto.DataType.Value(name))


__all__ = ["Session", "open_session", "probe", "require_provider", "run_bound", "session_of", "traced"]
