"""One model inside another: ``inline`` builds a model again on the tensors that are given for its inputs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lazygraph import dims
from lazygraph.dims import Atom, Dim, Size
from lazygraph.errors import DTypeError, GraphMismatchError, OperandError, ShapeError, UnsupportedError
from lazygraph.graph import Graph
from lazygraph.loaded import Loaded
from lazygraph.origins import Input, describe, near_names, reached, shape_text
from lazygraph.rebuild import Rebuild
from lazygraph.tensor import Tensor

# The oldest opset that an exported graph is of, unless it was loaded from an older one.
OLDEST = 13


def inline(
    model: Loaded, given: Mapping[str, Tensor] | None = None, /, *, prefix: str = "", **more: Tensor
) -> dict[str, Tensor]:
    """Return a model's outputs, computed from tensors of another graph in place of its inputs.

    Its sizes become those of the tensors: a model of ``(batch, 4)`` given ``(N, 4)`` gives outputs over ``N``. Weights
    keep their names where they are free, and are stored once however often a model is inlined.

    Args:
        model: What ``lg.load`` returned, or ``lg.Loaded.of`` made of outputs.
        given: By input, the tensor that stands for it.
        prefix: Put before the names of weights and values.
        more: As ``given``, for inputs whose names are Python names.

    Returns:
        The outputs by name, in the model's order.

    Raises:
        OperandError: An input without a tensor that the outputs need, or a name that is no input.
        GraphMismatchError: The tensors are of different graphs.
        DTypeError: An element type is not the input's.
        ShapeError: A shape is not the input's; or two sizes that the file took for equal become different ones.
        UnsupportedError: The model is of an opset before 13, and the graph is not of the same.
    """
    tensors = {**(given or {}), **more}
    graph = _graph_of(model, tensors)
    sizes = _bound_sizes(model, tensors)
    _require_all(model, tensors)
    _require_opset(model, graph)
    serial = graph.next_serial()

    def renamed(name: str) -> str:
        return f"{prefix}{name}"

    def resized(size: Size) -> Size:
        return _resized(size, sizes, f"_{serial}")

    swaps = {model.inputs[name]: tensor for name, tensor in tensors.items()}
    rebuild = Rebuild(swaps, graph, renamed, resized)
    rebuild.prepare(model.outputs.values())
    return {name: rebuild(tensor) for name, tensor in model.outputs.items()}


def _graph_of(model: Loaded, tensors: Mapping[str, Tensor]) -> Graph:
    """Return the graph that all the tensors are of."""
    if not isinstance(model, Loaded):
        raise OperandError(
            f"{type(model).__name__} is no loaded model",
            op="inline",
            expected="what lg.load(path) returns, or lg.Loaded.of(outputs)",
        )
    for name, tensor in tensors.items():
        if name not in model.inputs:
            raise OperandError(
                f"{name!r} is no input of {model.source}",
                op="inline",
                expected=f"inputs {', '.join(model.inputs)}",
                hint=near_names(name, model.inputs),
            )
        if not isinstance(tensor, Tensor):
            raise OperandError(
                f"{name} is {type(tensor).__name__}",
                op="inline",
                expected="a tensor",
                hint="x.const(array) makes one",
            )
    graphs = {id(tensor.graph): tensor.graph for tensor in tensors.values()}
    if len(graphs) > 1:
        raise GraphMismatchError(
            "the tensors are of different graphs",
            op="inline",
            operands={name: describe(tensor) for name, tensor in tensors.items()},
            expected="tensors grown from one anchor",
        )
    if not graphs:
        raise OperandError("no tensor is given", op="inline", expected="a tensor for at least one input")
    return next(iter(graphs.values()))


def _bound_sizes(model: Loaded, tensors: Mapping[str, Tensor]) -> dict[str, Size]:
    """Return what the model's named sizes are; names that stand alone on an axis are told first, sums are checked."""
    found: dict[str, Size] = {}
    told_by: dict[str, str] = {}
    pairs: list[tuple[str, int, Size, Size]] = []
    for name, tensor in tensors.items():
        wanted = model.inputs[name]
        rows = {name: describe(wanted), "given": describe(tensor)}
        if tensor.dtype is not wanted.dtype:
            raise DTypeError(
                f"{name} is {wanted.dtype}, and {tensor.dtype} is given",
                op="inline",
                operands=rows,
                expected="the input's element type; nothing is promoted silently",
                hint="x.astype(...) converts",
            )
        if wanted.known_shape is None or tensor.known_shape is None:
            continue
        if len(wanted.shape) != len(tensor.shape):
            raise ShapeError(
                f"{name} has {len(wanted.shape)} axes, and {len(tensor.shape)} are given",
                op="inline",
                operands=rows,
                expected=f"a tensor of shape {shape_text(wanted.shape)}",
            )
        pairs += [(name, axis, a, b) for axis, (a, b) in enumerate(zip(wanted.shape, tensor.shape, strict=True))]
    for name, axis, size, given in pairs:
        if isinstance(size, Dim) and _is_name(size) and str(size) not in found:
            found[str(size)], told_by[str(size)] = given, f"axis {axis} of {name}"
    for name, axis, size, given in pairs:
        low, high = dims.bounds(size)
        ends = [dims.at_most(low or 0, given), True if high is None else dims.at_most(given, high)]
        if isinstance(size, Dim) and not dims.is_unknown(given) and ends != [True, True]:
            within = f"[{low}, {'...' if high is None else high}]"
            raise ShapeError(
                f"axis {axis} of {name} is {size} within {within}, and {given} is given",
                op="inline",
                operands={name: describe(model.inputs[name]), "given": describe(tensors[name])},
                expected="a size within the bounds that the model was built for",
                hint=f"lg.size('name', min={low}{'' if high is None else f', max={high}'}) states bounds",
            )
        became = _resized(size, found)
        if dims.equal(became, given) is True or dims.is_unknown(given) or dims.is_unknown(became):
            continue
        told = ", ".join(f"{key} = {value} by {told_by[key]}" for key, value in found.items() if key in str(size))
        raise ShapeError(
            f"axis {axis} of {name} is {size}, and {given} is given",
            op="inline",
            operands={name: describe(model.inputs[name]), "given": describe(tensors[name])},
            expected=f"a size of {became}" + (f" ({told})" if told else ""),
        )
    return found


def _is_name(size: Dim) -> bool:
    """Return whether a size is one name and nothing else."""
    (monomial, factor), *rest = size.terms.items()
    return not rest and factor == 1 and len(monomial) == 1 and not monomial[0].args


def _resized(size: Size, sizes: Mapping[str, Size], mark: str = "") -> Size:
    """Return a size of the model as the other graph says it.

    A size that no tensor tells is one that only the run can tell, and another one in every place where the model is
    inlined: ``mark`` behind its name tells it from all the others.
    """

    def change(atom: Atom) -> Size | None:
        if atom.args:
            return None
        told = sizes.get(atom.text)
        return dims.unknown(f"{atom.text}{mark}") if told is None and mark else told

    return dims.substitute(size, change)


def _require_opset(model: Loaded, graph: Graph) -> None:
    """Refuse a model that is older than what graphs are written in: its calls would mean something else here."""
    version = model.graph.opset
    if version is not None and version < OLDEST and version != graph.opset:
        raise UnsupportedError(
            f"{model.source} is written for opset {version}",
            op="inline",
            expected=f"opset {OLDEST} or later",
            hint=f"lg.load(path, opset={max(graph.opset or OLDEST, OLDEST)}) converts it",
        )


def _require_all(model: Loaded, tensors: Mapping[str, Any]) -> None:
    """Refuse to leave out an input that an output needs and that has no numbers of its own."""
    needed = reached(model.outputs.values())
    missing = [
        name
        for name, tensor in model.inputs.items()
        if name not in tensors
        and tensor.origin in needed
        and isinstance(tensor.origin, Input)
        and tensor.origin.default is None
    ]
    if missing:
        raise OperandError(
            f"{', '.join(missing)} {'is' if len(missing) == 1 else 'are'} missing",
            op="inline",
            operands={name: describe(model.inputs[name]) for name in missing},
            expected=f"a tensor for each of {', '.join(model.inputs)}",
        )


__all__ = ["inline"]
