"""Numbers for tensors: ``realize`` builds what they need, runs it in onnxruntime, and keeps the session."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, overload
from weakref import WeakKeyDictionary

import numpy as np

from lazygraph import dims
from lazygraph.dims import Dim
from lazygraph.dtypes import DType, as_dtype
from lazygraph.errors import DTypeError, GraphMismatchError, OperandError, ShapeError
from lazygraph.origins import BodyInput
from lazygraph.tensor import Constant, Graph, Input, Node, Tensor, describe, shape_text

if TYPE_CHECKING:
    from lazygraph.export.session import Session

Array: TypeAlias = "np.ndarray[Any, Any]"
Feeds: TypeAlias = "Mapping[str, Any] | Mapping[Tensor, Any]"

# Sessions kept per graph; the one that was not used for longest goes first.
_KEPT = 16
_sessions: WeakKeyDictionary[Graph, OrderedDict[object, _Compiled]] = WeakKeyDictionary()


@overload
def realize(outputs: Tensor, feeds: Feeds | None = None, provider: str = "cpu") -> Array: ...
@overload
def realize(outputs: Mapping[str, Tensor], feeds: Feeds | None = None, provider: str = "cpu") -> dict[str, Array]: ...
@overload
def realize(outputs: Sequence[Tensor], feeds: Feeds | None = None, provider: str = "cpu") -> list[Array]: ...


def realize(
    outputs: Tensor | Mapping[str, Tensor] | Sequence[Tensor], feeds: Feeds | None = None, provider: str = "cpu"
) -> Array | dict[str, Array] | list[Array]:
    """Return the numbers of tensors, computed by onnxruntime.

    The session is made once per set of outputs and provider, and kept as long as the graph lives.

    Args:
        outputs: A tensor, a list of tensors, or tensors by name.
        feeds: An array, scalar or list per input, by the input's name or by its tensor. Inputs that the outputs do not
            need may be left out.
        provider: ``"cpu"`` or ``"cuda"``.

    Returns:
        An array, a list of arrays or a dict of arrays, as ``outputs`` is. Types that numpy lacks are ml_dtypes' arrays.

    Raises:
        OperandError: An input is missing, or a feed has no input.
        DTypeError: A feed has another element type than its input.
        ShapeError: A feed's sizes contradict its input's, or one named size would have two values.
        GraphMismatchError: The outputs, or a tensor among the feeds, belong to different graphs.
        ExportError: onnxruntime is not installed, or failed.
    """
    tensors = _tensors(outputs)
    graph = tensors[0].graph if tensors else None
    if graph is None or any(tensor.graph is not graph for tensor in tensors):
        _refuse_outputs(tensors)
        raise AssertionError  # not reached
    compiled = _compiled(graph, tensors, provider)
    arrays = _checked_feeds(graph, feeds or {}, compiled)
    found = compiled.session.run(arrays)
    results = [found[name] for name in compiled.names]
    if isinstance(outputs, Tensor):
        return results[0]
    if isinstance(outputs, Mapping):
        return dict(zip(outputs, results, strict=True))
    return results


class _Compiled:
    """A session, whose inputs are those that its outputs need, and the names of its outputs in the order asked for."""

    def __init__(self, session: Session, names: list[str]) -> None:
        self.session = session
        self.names = names


def _tensors(outputs: Tensor | Mapping[str, Tensor] | Sequence[Tensor]) -> list[Tensor]:
    if isinstance(outputs, Tensor):
        return [outputs]
    given = list(outputs.values()) if isinstance(outputs, Mapping) else list(outputs)
    for value in given:
        if not isinstance(value, Tensor):
            raise OperandError(f"{type(value).__name__} {value!r} is no tensor", op="realize", expected="tensors")
    return given


def _refuse_outputs(tensors: list[Tensor]) -> None:
    if not tensors:
        raise OperandError("no outputs", op="realize", expected="a tensor, a list of tensors or a dict of tensors")
    raise GraphMismatchError(
        "outputs of different graphs",
        op="realize",
        operands={f"output {i}": describe(tensor) for i, tensor in enumerate(tensors)},
        expected="outputs grown from one anchor",
    )


# ---- sessions -----------------------------------------------------------------------------------------------------


def _compiled(graph: Graph, tensors: list[Tensor], provider: str) -> _Compiled:
    kept = _sessions.setdefault(graph, OrderedDict())
    key = (provider, tuple([_identity(tensor) for tensor in tensors]))
    found = kept.get(key)
    if found is not None:
        kept.move_to_end(key)
        return found
    found = _compile(tensors, provider)
    kept[key] = found
    while len(kept) > _KEPT:
        kept.popitem(last=False)
    return found


def _identity(tensor: Tensor) -> object:
    """Return what tells a tensor from all others that its graph ever had."""
    origin = tensor.origin
    return origin.name if isinstance(origin, Input) else (origin.serial, tensor.index)


def _compile(tensors: list[Tensor], provider: str) -> _Compiled:
    from lazygraph.export.session import session_of

    prefix = "result"
    taken = _reached_names(tensors)
    while any(name.startswith(prefix) for name in taken):
        prefix += "_"
    names: dict[object, str] = {}
    outputs: dict[str, Tensor] = {}
    for tensor in tensors:
        outputs[names.setdefault(_identity(tensor), f"{prefix}.{len(names)}")] = tensor
    session = session_of(outputs, provider)
    return _Compiled(session, [names[_identity(tensor)] for tensor in tensors])


def _reached_names(tensors: list[Tensor]) -> set[str]:
    """Return the names of the inputs and constants that the tensors are computed from."""
    seen: set[object] = set()
    names: set[str] = set()
    waiting: list[Node | Input | BodyInput | Constant] = [tensor.origin for tensor in tensors]
    while waiting:
        origin = waiting.pop()
        if origin in seen:
            continue
        seen.add(origin)
        if isinstance(origin, Node):
            waiting.extend([operand.origin for operand in origin.needs()])
        elif isinstance(origin, (Input, Constant)) and origin.name:
            names.add(origin.name)
    return names


# ---- feeds --------------------------------------------------------------------------------------------------------


def _checked_feeds(graph: Graph, feeds: Feeds, compiled: _Compiled) -> dict[str, Any]:
    given = {_feed_name(graph, key): value for key, value in feeds.items()}
    missing = sorted(set(compiled.session.inputs) - set(given))
    if missing:
        raise OperandError(
            f"no feed for {', '.join(map(repr, missing))}",
            op="realize",
            operands={name: describe(graph.inputs[name]) for name in missing},
            expected="an array for every input that the outputs need",
        )
    arrays: dict[str, Any] = {}
    sizes = _Sizes()
    for name, value in given.items():
        tensor = graph.inputs[name]
        arrays[name] = _fed(name, tensor, tensor.dtype, value)
        if tensor.known_shape is not None:
            sizes.learn(name, tensor, arrays[name].shape)
    sizes.settle()
    optional = [name for name in compiled.session.optional if name in arrays]
    return {name: arrays[name] for name in (*compiled.session.inputs, *optional)}


def _feed_name(graph: Graph, key: object) -> str:
    if isinstance(key, Tensor):
        if key.graph is not graph:
            raise GraphMismatchError(
                "a feed's tensor belongs to another graph", op="realize", operands={"feed": describe(key)}
            )
        if not isinstance(key.origin, Input):
            raise OperandError("a feed's tensor is no input", op="realize", operands={"feed": describe(key)})
        return key.origin.name
    if not isinstance(key, str) or key not in graph.inputs:
        raise OperandError(
            f"there is no input {key!r}",
            op="realize",
            expected=f"one of {', '.join(map(repr, graph.inputs))}"
            if graph.inputs
            else "no feeds: there are no inputs",
        )
    return key


def _fed(name: str, tensor: Tensor, wanted: DType, value: Any) -> Any:
    """Return a feed: an array; for a sequence a list of them; for an optional either, or None; for a map a dict."""
    if wanted.element is None:
        return _array(name, tensor, wanted, value)
    if wanted.kind == "o":
        return None if value is None else _fed(name, tensor, wanted.element, value)
    if wanted.kind == "m":
        return value if isinstance(value, dict) else _refuse_dtype(name, tensor, type(value).__name__)
    if not isinstance(value, (list, tuple)):
        _refuse_dtype(name, tensor, type(value).__name__)
    if wanted.element.kind == "m":
        return [_fed(name, tensor, wanted.element, item) for item in value]
    return [_array(name, tensor, wanted.element, item) for item in value]


def _array(name: str, tensor: Tensor, wanted: DType, value: Any) -> Array:
    """Return a feed as an array of its input's type. Python numbers and lists take that type; arrays must have it."""
    if isinstance(value, Tensor):
        raise OperandError(f"the feed of {name!r} is a tensor", op="realize", expected="numbers")
    if isinstance(value, (np.ndarray, np.generic)):
        array = np.asarray(value)
        if as_dtype(array.dtype) is not wanted:
            _refuse_dtype(name, tensor, str(as_dtype(array.dtype)))
    else:
        plain = np.asarray(value)
        if not _takes(wanted, plain):
            _refuse_dtype(name, tensor, f"{plain.dtype.name} values")
        array = plain.astype(wanted.numpy)
    if wanted.kind == "s":
        array = array.astype(object)
    return array


def _takes(wanted: DType, values: Array) -> bool:
    """Return whether Python values become the type without a change of kind (an int may be a float)."""
    kind = values.dtype.kind
    if not values.size:
        return True
    if wanted.kind == "s":
        return kind in "UO"
    if kind not in "biufc" or (kind == "b") != (wanted.kind == "b"):
        return False
    if wanted.is_integer:
        return kind in "iu" and bool((values.astype(object) == values.astype(wanted.numpy).astype(object)).all())
    return kind != "c" or wanted.kind == "c"


def _refuse_dtype(name: str, tensor: Tensor, given: str) -> None:
    raise DTypeError(
        f"the feed of {name!r} is {given}",
        op="realize",
        operands={name: describe(tensor)},
        expected=f"an array of {tensor.dtype}",
    )


class _Sizes:
    """The numbers of named sizes, as the feeds give them."""

    def __init__(self) -> None:
        self.known: dict[str, int] = {}
        self.source: dict[str, str] = {}
        self.open: list[tuple[str, Tensor, int, Dim, int]] = []

    def learn(self, name: str, tensor: Tensor, given: tuple[int, ...]) -> None:
        """Take in the shape of one feed."""
        shape = tensor.shape
        if len(shape) != len(given):
            self._refuse(name, tensor, given, f"{len(given)} axes")
        for axis, (size, number) in enumerate(zip(shape, given, strict=True)):
            if not isinstance(size, Dim):
                if size != number:
                    self._refuse(name, tensor, given, f"axis {axis} is {number}")
            elif len(parts := dims.atoms(size)) == 1 and parts[0].kind == "size" and size == Dim({parts: 1}):
                self._bind(parts[0].text, number, name, tensor, axis)
                low, high = dims.bounds(size)
                if number < (low or 0) or (high is not None and number > high):
                    self._refuse(name, tensor, given, f"{size} is {number}, declared within [{low}, {high}]")
            else:
                self.open.append((name, tensor, axis, size, number))

    def settle(self) -> None:
        """Check the sizes that are arithmetic over named ones, where all their names are known."""
        for name, tensor, axis, size, number in self.open:
            if all(part in self.known for part in dims.names(size)):
                expected = dims.evaluate(size, self.known)
                if expected != number:
                    raise ShapeError(
                        f"axis {axis} of {name!r} is {number}, and {size} is {expected}",
                        op="realize",
                        operands={name: describe(tensor), **{part: str(self.known[part]) for part in dims.names(size)}},
                        expected=f"{size} = {expected}",
                    )

    def _bind(self, symbol: str, number: int, name: str, tensor: Tensor, axis: int) -> None:
        here = f"axis {axis} of {name!r}"
        before = self.known.setdefault(symbol, number)
        there = self.source.setdefault(symbol, here)
        if before != number:
            raise ShapeError(
                f"{symbol} is {before} by {there} and {number} by {here}",
                op="realize",
                operands={name: describe(tensor)},
                expected=f"one number for {symbol}",
                sizes=(before, number),
            )

    def _refuse(self, name: str, tensor: Tensor, given: tuple[int, ...], what: str) -> None:
        raise ShapeError(
            f"the feed of {name!r}: {what}",
            op="realize",
            operands={name: describe(tensor), "feed": shape_text(given)},
            expected=f"shape {shape_text(tensor.shape)}",
        )


__all__ = ["Feeds", "realize"]
