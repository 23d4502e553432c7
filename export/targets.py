"""What a provider can run, asked before a file is written."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from lazygraph import dims
from lazygraph.dtypes import DType, untold
from lazygraph.errors import ExportError, OperandError, UnsupportedError
from lazygraph.export import kernels, versions
from lazygraph.export.kernels import LETTERS, Kernel
from lazygraph.ops.contrib import contrib_names, contrib_schema
from lazygraph.ops.microsoft import DOMAIN as MICROSOFT
from lazygraph.tensor import Constant, Node, Tensor, describe

if TYPE_CHECKING:
    from onnx.defs import OpSchema

TARGETS = ("cpu", "cuda")

# Folded into initialisers when a session is made: no kernel runs.
_NO_KERNEL = frozenset({("", "Constant")})
# What CUDA kernels compute with, beside all that the CPU provider has a kernel for.
_CUDA = frozenset(
    [
        "float16",
        "bfloat16",
        "float32",
        "float64",
        "int8",
        "int16",
        "int32",
        "int64",
        "uint8",
        "uint16",
        "uint32",
        "uint64",
        "bool",
    ]
)


def _short_mask(node: Node) -> bool:
    """Return whether the mask of an Attention is known to have fewer columns than there are keys."""
    mask, past = ([*node.inputs, *[None] * 5][place] for place in (3, 4))
    key = node.inputs[1]
    if mask is None or key is None or mask.known_shape is None or key.known_shape is None or not mask.shape:
        return False
    before = 0 if past is None or past.known_shape is None else past.shape[-2]
    return dims.at_most(dims.add(mask.shape[-1], 1), dims.add(key.shape[-2], before)) is True


def _zero_point_per_filter(node: Node) -> bool:
    zero = node.inputs[3] if len(node.inputs) > 3 else None
    return zero is not None and zero.known_shape not in (None, (), (1,))


def _batch_first(node: Node) -> bool:
    return bool(node.attrs.get("layout"))


def _after_relu(node: Node) -> bool:
    """Return whether it is a Clip that onnxruntime tries to join with the Relu before it, and fails to."""
    x, low = ([*node.inputs, None][place] for place in (0, 1))
    before = None if x is None else x.origin
    joined = isinstance(before, Node) and before.op == "Relu" and not before.domain
    if not joined or x is None or low is None or not isinstance(low.origin, Constant):
        return False
    return x.dtype.name not in ("float32", "float16", "bfloat16")


# Calls that a CPU kernel is registered for and refuses when it is made or run.
_LIMITS: dict[tuple[str, str], Callable[[Node], bool]] = {
    ("", "Attention"): _short_mask,
    ("", "Clip"): _after_relu,
    ("", "ConvInteger"): _zero_point_per_filter,
    ("", "GRU"): _batch_first,
    ("", "LSTM"): _batch_first,
    ("", "RNN"): _batch_first,
}


def settle(calls: Sequence[Node], target: str, opset: int, may_rise: bool) -> int:
    """Return the lowest opset, from ``opset`` on, at which the target runs every call.

    A runtime's kernels start at some version of an operator: float8 Reshape exists from opset 19 and runs from 21.
    ``cpu`` is judged by the kernels of onnxruntime's CPU provider, one by one. ``cuda`` takes what ``cpu`` takes, and
    any operator on the types that CUDA computes with; it is the weaker promise of the two.

    Raises:
        OperandError: The target is none that lazygraph knows.
        UnsupportedError: It has no kernel for one.
    """
    if target not in TARGETS:
        raise OperandError(f"target {target!r}", op="export", expected="'cpu', 'cuda' or None")
    newest = versions.newest_opset() if may_rise else opset
    while True:
        failing = [node for node in calls if not _runs(node, target, opset)]
        if not failing:
            return opset
        needed = [_first_that_runs(node, target, opset + 1, newest) for node in failing]
        opset = max(needed)


def refused(node: Node, target: str, opset: int) -> UnsupportedError | None:
    """Return why a target does not run a call of a file at the file's opset; None where it does."""
    return None if _runs(node, target, opset) else _refusal(node, target)


def _first_that_runs(node: Node, target: str, lowest: int, newest: int) -> int:
    for opset in range(lowest, newest + 1):
        if _runs(node, target, opset):
            return opset
    raise _refusal(node, target)


def _runs(node: Node, target: str, opset: int) -> bool:
    schema = versions.schema_at(node.op, node.domain, opset) if node.domain in ("", "ai.onnx.ml") else None
    if node.domain == MICROSOFT and node.op in contrib_names():
        schema = contrib_schema(node.op)
    if target == "cuda" and all(t is None or t.dtype.name in _CUDA for t in (*node.inputs, *node.outputs)):
        return True
    if (node.domain, node.op) in _NO_KERNEL:
        return True
    if node.domain == "" and opset < versions.LOWEST:  # a file's; the table of kernels begins later
        return bool(node.bodies) or _expands(node, opset)
    if node.domain not in ("", MICROSOFT) and not versions.versions_of(node.op, node.domain):
        return True  # whoever runs it brings a kernel along
    if any(t is not None and t.dtype is untold for t in (*node.inputs, *node.outputs)):
        return True
    found = kernels.cpu_kernels(node.op, node.domain)
    since = 1 if schema is None else schema.since_version
    limit = _LIMITS.get((node.domain, node.op))
    if limit is not None and limit(node):
        return False
    candidates = [kernel for kernel in found if _serves(kernel, since)]
    if schema is None:
        return bool(candidates)  # an operator that nobody knows: its type variables are not known here
    types = _variables(schema, node.inputs, node.outputs)
    if any(_takes(kernel, types) for kernel in candidates):
        return True
    # float16 without a kernel: onnxruntime computes in float32 and casts.
    wide = {variable: "f" if letter == "h" else letter for variable, letter in types.items()}
    if wide != types and any(_takes(kernel, wide) for kernel in candidates):
        return True
    return _has_body(schema) and _expands(node, opset)


def _serves(kernel: Kernel, since: int) -> bool:
    """Return whether a kernel serves a node of that schema version; one without an end serves its own version only."""
    return kernel.first == since or (kernel.first < since <= kernel.last and kernel.last != kernels.NEWEST)


def _variables(schema: OpSchema, inputs: Sequence[Tensor | None], outputs: Sequence[Tensor]) -> dict[str, str]:
    """Return the type letter of every type variable and parameter of a call."""
    found: dict[str, str] = {}
    for formals, tensors in ((schema.inputs, inputs), (schema.outputs, outputs)):
        for i, tensor in enumerate(tensors):
            if tensor is not None and tensor.dtype.element is None and formals:
                formal = formals[min(i, len(formals) - 1)]
                letter = _letter(tensor.dtype)
                found.setdefault(formal.type_str, letter)
                found.setdefault(formal.name, letter)
    return found


def _letter(dtype: DType) -> str:
    return LETTERS[versions.type_text(dtype)[7:-1]]


def _takes(kernel: Kernel, types: dict[str, str]) -> bool:
    return all(variable not in types or types[variable] in letters for variable, letters in kernel.types.items())


def _has_body(schema: OpSchema) -> bool:
    return bool(schema.has_function or schema.has_context_dependent_function)  # type: ignore[attr-defined]


def _expands(node: Node, opset: int) -> bool:
    """Return whether onnxruntime runs the operator through its function body: it alone can tell, by loading it."""
    if importlib.util.find_spec("onnxruntime") is None:
        return all(t is None or t.dtype.name in ("float32", "int64", "bool") for t in (*node.inputs, *node.outputs))

    from onnx import ModelProto

    from lazygraph.export.lower import attribute, write_type
    from lazygraph.export.session import open_session

    dtypes = {t.dtype for t in (*node.inputs, *node.outputs) if t is not None}
    model = ModelProto(ir_version=versions.ir_version({"": opset}, dtypes))
    model.opset_import.add(domain="", version=opset)
    graph = model.graph
    graph.name = "probe"
    call = graph.node.add(op_type=node.op, name="probe")
    call.attribute.extend([attribute(node, name, value) for name, value in node.attrs.items()])
    for i, tensor in enumerate(node.inputs):
        call.input.append("" if tensor is None else f"x{i}")
        if tensor is not None:
            write_type(graph.input.add(name=f"x{i}"), tensor.dtype, tensor.known_shape)
    for i, tensor in enumerate(node.outputs):
        call.output.append(f"y{i}")
        write_type(graph.output.add(name=f"y{i}"), tensor.dtype, tensor.known_shape)
    try:
        open_session(model, severity=4)
    except ExportError as error:
        return "NOT_IMPLEMENTED" not in str(error) and "is invalid" not in str(error)
    return True


def _refusal(node: Node, target: str) -> UnsupportedError:
    provider = {"cpu": "CPUExecutionProvider", "cuda": "CUDAExecutionProvider"}[target]
    types = dict.fromkeys(str(t.dtype) for t in (*node.inputs, *node.outputs) if t is not None)
    narrow = any(name in ("bfloat16", "float8_e4m3fn", "float8_e5m2") for name in types)
    return UnsupportedError(
        f"onnxruntime's {provider} cannot run it on {' and '.join(types)}",
        op=node.op,
        operands={f"operand {i}": describe(t) for i, t in enumerate(node.inputs) if t is not None},
        expected=f"an operator and element types that {target} has a kernel for",
        hint="keep the narrow type for storage and compute in float32: x.astype(lg.float32)" if narrow else "",
        at=node.at,
        provider=provider,
    )


__all__ = ["TARGETS", "refused", "settle"]
