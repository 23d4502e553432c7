"""Parts of a graph found by what they look like.

A pattern is a Python function on tensors. It is called with stand-ins for its parameters, and the calls that it makes
are looked for: same operator, same attributes (those left out are the schema's defaults), equal constants, operands of
commutative operators in either order. A parameter stands for any tensor, a weight too; where it stands in several
places, it is one tensor in all of them. A part is found only where nothing outside of it reads what it makes inside.

Stand-ins are float32, whatever the graph computes in, of no known shape. A function that asks for their axes is called
again with stand-ins of every number of axes that the graph has; what it then does to axes is looked for at that number
only. Where another element type or certain sizes are meant, the user says so.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import attrgetter
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from lazygraph import dims
from lazygraph.arrays import LazyArray
from lazygraph.dims import SizeLike
from lazygraph.dtypes import DType, DTypeLike, as_dtype, float32
from lazygraph.errors import DTypeError, OperandError, ShapeError
from lazygraph.graph import Graph
from lazygraph.ops.deduce import defaults_of
from lazygraph.origins import Constant, Node, describe, near_names, reached
from lazygraph.rebuild import Rebuild
from lazygraph.tensor import Tensor

# What a parameter may stand for: an element type, or one with a shape.
Kind: TypeAlias = "DTypeLike | tuple[DTypeLike, Sequence[SizeLike]]"

COMMUTATIVE = frozenset(
    ["Add", "Mul", "Max", "Min", "Sum", "Mean", "And", "Or", "Xor", "Equal", "BitwiseAnd", "BitwiseOr", "BitwiseXor"]
)
# Where a number may have any count of axes of size 1.
_BROADCAST = COMMUTATIVE | {"Sub", "Div", "Pow", "Mod", "Where", "Less", "LessOrEqual", "Greater", "GreaterOrEqual"}
# Attributes that count axes, from the back too.
_AXES = frozenset({"axis", "axes"})
# Operators whose second operand names axes, from the back too.
_AXES_OPERAND = frozenset({"Squeeze", "Unsqueeze"})
# Numbers that differ by less are one: a constant was rounded on its way into one of the files.
_ROUNDING = 1e-6


class _Variant(NamedTuple):
    """What the function made of stand-ins of one kind: its result, and by stand-in the parameter's name."""

    root: Tensor
    places: dict[Tensor, str]


class _State(NamedTuple):
    """What parameters stand for so far, which call is which, and how often the part reads each result."""

    bound: dict[str, Tensor]
    nodes: dict[Node, Node]
    reads: dict[Tensor, int]


class Pattern:
    """What a function on tensors makes, to be looked for in a graph.

    Args:
        function: From tensors to one tensor; parameters are passed by position.
        outputs: What the graph gives.
        types: By parameter, the element type that it has, or element type and shape.

    Raises:
        OperandError: It makes no call, gives something else than one tensor, or has no parameter of a given name.
        LazyGraphError: It cannot be called with tensors of any number of axes.
    """

    def __init__(
        self, function: Callable[..., Tensor], outputs: Iterable[Tensor], types: Mapping[str, Kind] | None = None
    ) -> None:
        self.names = _parameters(function)
        self.outputs = list(outputs)
        self.types = {name: _typed(kind) for name, kind in (types or {}).items()}
        for name in self.types:
            if name not in self.names:
                raise OperandError(
                    f"{name!r} is no parameter of the pattern",
                    op="rewrite",
                    expected=f"one of {', '.join(self.names)}",
                    hint=near_names(name, self.names),
                )
        self.nodes = [origin for origin in reached(self.outputs) if isinstance(origin, Node)]
        self.nodes.sort(key=attrgetter("serial"), reverse=True)
        self.readers: dict[Tensor, int] = {}
        for tensor in [*(tensor for node in self.nodes for tensor in node.needs()), *self.outputs]:
            self.readers[tensor] = self.readers.get(tensor, 0) + 1
        self.variants = self._variants(function)

    def _variants(self, function: Callable[..., Tensor]) -> list[_Variant]:
        try:
            return [self._traced(function, None)]
        except ShapeError as error:
            first = error
        tensors = [tensor for node in self.nodes for tensor in (*node.inputs, *node.outputs) if tensor is not None]
        found: list[_Variant] = []
        for rank in sorted({len(tensor.known_shape) for tensor in tensors if tensor.known_shape is not None}):
            try:
                found.append(self._traced(function, rank))
            except (ShapeError, IndexError):
                continue
        if not found:
            raise first
        return found

    def _traced(self, function: Callable[..., Tensor], rank: int | None) -> _Variant:
        """Call the function with stand-ins of this number of axes, where their shape is not given."""
        graph = Graph(self.outputs[0].graph.opset)
        stand_ins: list[Tensor] = []
        for name in self.names:
            dtype, shape = self.types.get(name, (float32, None))
            if shape is not None:
                shape = tuple(graph.size(size) for size in shape)
            elif rank is not None:
                shape = tuple([dims.unknown(f"{name}_{axis}") for axis in range(rank)])
            stand_ins.append(graph.add_input(name, dtype, shape))
        made = function(*stand_ins)
        if not isinstance(made, Tensor) or not isinstance(made.origin, Node):
            raise OperandError(
                f"the pattern gives {describe(made) if isinstance(made, Tensor) else type(made).__name__}",
                op="rewrite",
                expected="a function that calls operators and returns one tensor",
            )
        return _Variant(made, dict(zip(stand_ins, self.names, strict=True)))

    def replaced(self, replacement: Callable[..., Tensor]) -> Rebuild:
        """Return the way from the tensors of the graph to those of one in which every part is replaced."""
        if len(_parameters(replacement)) != len(self.names):
            raise OperandError(
                f"the replacement takes {_parameters(replacement)}",
                op="rewrite",
                expected=f"as many parameters as the pattern has: {self.names}",
            )
        rebuild = Rebuild({})
        for result, tensors in reversed(self.found().items()):  # one part may begin where another ends
            value = replacement(*[rebuild(tensors[name]) for name in self.names])
            _require_fit(result, value)
            rebuild.swap(result, value)
        return rebuild

    def found(self) -> dict[Tensor, dict[str, Tensor]]:
        """Return by each part's result the tensors that its parameters stand for; late parts before early ones."""
        parts: dict[Tensor, dict[str, Tensor]] = {}
        taken: set[Node] = set()
        for node in self.nodes:
            for variant in self.variants:
                root, index = variant.root.origin, variant.root.index
                if not isinstance(root, Node) or node.op != root.op or index >= len(node.outputs):
                    continue
                result = node.outputs[index]
                match = self._matched(variant, [(variant.root, result)], _State({}, {}, {}))
                if match is not None and self._closed(match, result) and taken.isdisjoint(match.nodes.values()):
                    taken.update(match.nodes.values())
                    parts[result] = match.bound
                    break
        return parts

    def _closed(self, match: _State, result: Tensor) -> bool:
        """Return whether nothing outside reads what a part makes on its way."""
        made = {tensor for node in match.nodes.values() for tensor in node.outputs} - {result}
        return all(self.readers.get(tensor, 0) == match.reads.get(tensor, 0) for tensor in made)

    def _matched(
        self, variant: _Variant, pairs: Sequence[tuple[Tensor | None, Tensor | None]], state: _State
    ) -> _State | None:
        """Return what makes all the pairs alike: of the pattern's tensors, and of the graph's."""
        if not pairs:
            return state
        (wanted, given), rest = pairs[0], pairs[1:]
        if wanted is None or given is None:
            return self._matched(variant, rest, state) if wanted is given else None
        name = variant.places.get(wanted)
        if name is not None:
            if state.bound.get(name, given) is not given or not self._may_be(name, given):
                return None
            return self._matched(variant, rest, state._replace(bound={**state.bound, name: given}))
        if isinstance(wanted.origin, Constant):
            return self._matched(variant, rest, state) if _same_numbers(wanted, given) else None
        call, ours = wanted.origin, given.origin
        if not isinstance(call, Node) or not isinstance(ours, Node) or wanted.index != given.index:
            return None
        state = state._replace(reads={**state.reads, given: state.reads.get(given, 0) + 1})
        if call in state.nodes:
            return self._matched(variant, rest, state) if state.nodes[call] is ours else None
        left, right = _without_tail(call.inputs), _without_tail(ours.inputs)
        if not _same_call(call, ours) or len(left) != len(right):
            return None
        state = state._replace(nodes={**state.nodes, call: ours})
        orders = [right, right[::-1]] if call.op in COMMUTATIVE and len(right) == 2 else [right]
        for order in orders:
            both = list(zip(left, order, strict=True))
            numbers = [(a, b) for a, b in both if a is not None and isinstance(a.origin, Constant)]
            if not all(b is not None and _fits_place(call, ours, a, b) for a, b in numbers):
                continue
            others = [(a, b) for a, b in both if a is None or not isinstance(a.origin, Constant)]
            match = self._matched(variant, [*others, *rest], state)
            if match is not None:
                return match
        return None

    def _may_be(self, name: str, given: Tensor) -> bool:
        """Return whether a tensor has the type that the user said of a parameter."""
        if name not in self.types:
            return True
        dtype, shape = self.types[name]
        if given.dtype is not dtype or shape is None or given.known_shape is None:
            return given.dtype is dtype
        pairs = zip(shape, given.known_shape, strict=False)
        return len(shape) == len(given.known_shape) and all(a == b for a, b in pairs if isinstance(a, int))


def _parameters(function: Callable[..., Tensor]) -> list[str]:
    return list(inspect.signature(function).parameters)


def _typed(kind: Kind) -> tuple[DType, Sequence[SizeLike] | None]:
    if isinstance(kind, tuple):
        return as_dtype(kind[0]), list(kind[1])
    return as_dtype(kind), None


def _require_fit(result: Tensor, value: object) -> None:
    """Refuse a replacement that is no tensor, or one of another type."""
    if not isinstance(value, Tensor):
        raise OperandError(f"the replacement gives {type(value).__name__}", op="rewrite", expected="one tensor")
    rows = {"found": describe(result), "replacement": describe(value)}
    if value.dtype is not result.dtype:
        raise DTypeError(
            f"{result.dtype} is replaced by {value.dtype}",
            op="rewrite",
            operands=rows,
            expected="the element type of what is replaced",
        )
    a, b = result.known_shape, value.known_shape
    if a is not None and b is not None and (len(a) != len(b) or any(map(_differ, a, b))):
        raise ShapeError(
            "a part is replaced by one of another shape", op="rewrite", operands=rows, expected="the shape of the part"
        )


def _differ(a: dims.Size, b: dims.Size) -> bool:
    return dims.equal(a, b) is False


def _without_tail(inputs: tuple[Tensor | None, ...]) -> tuple[Tensor | None, ...]:
    while inputs and inputs[-1] is None:
        inputs = inputs[:-1]
    return inputs


# ---- numbers and attributes -------------------------------------------------------------------------------------


def _same_numbers(wanted: Tensor, given: Tensor) -> bool:
    """Return whether a constant has the numbers of the pattern's, in its own element type and shape."""
    a, b = _numbers(wanted), _numbers(given)
    return a is not None and b is not None and a.shape == b.shape and _equal(a, b)


def _fits_place(call: Node, ours: Node, wanted: Tensor, given: Tensor) -> bool:
    """Return whether a constant is what a call of the pattern has in its place: as numbers, or as axes."""
    if _same_numbers(wanted, given):
        return True
    a, b = _numbers(wanted), _numbers(given)
    if a is None or b is None or a.size != b.size:
        return False
    if call.op in _BROADCAST and a.size == 1:
        ranks = [len(x.known_shape) for x in ours.inputs if x is not None and x is not given and x.known_shape]
        return max(ranks, default=0) >= max(a.ndim, b.ndim) and _equal(a.reshape(()), b.reshape(()))
    rank = _rank(ours.outputs[0] if call.op == "Unsqueeze" else ours.inputs[0])
    if (call.op.startswith("Reduce") or call.op in _AXES_OPERAND) and rank and a.dtype.kind == b.dtype.kind == "i":
        return sorted((a % rank).tolist()) == sorted((b % rank).tolist())
    return False


def _numbers(tensor: Tensor) -> np.ndarray[Any, Any] | None:
    origin = tensor.origin
    if not isinstance(origin, Constant):
        return None
    return origin.array.read() if isinstance(origin.array, LazyArray) else origin.array


def _equal(a: np.ndarray[Any, Any], b: np.ndarray[Any, Any]) -> bool:
    if b.dtype == object or a.dtype == object:
        return bool(np.array_equal(a, b))
    with np.errstate(all="ignore"):
        same = a.astype(b.dtype)
        if np.array_equal(same, b, equal_nan=b.dtype.kind == "f"):
            return not (b.dtype.kind in "iub" and a.dtype.kind == "f" and not np.array_equal(a, same))
    return b.dtype.kind == "f" and bool(np.allclose(same, b, rtol=_ROUNDING, atol=0, equal_nan=True))


def _rank(tensor: Tensor | None) -> int | None:
    return None if tensor is None or tensor.known_shape is None else len(tensor.known_shape)


def _same_call(wanted: Node, given: Node) -> bool:
    if (wanted.op, wanted.domain) != (given.op, given.domain) or given.bodies:
        return False
    defaults = defaults_of(given.op, given.domain, given.outputs[0].graph.opset)
    names = wanted.attrs.keys() | given.attrs.keys()
    counts = bool(names & (_AXES | {"perm"})) or any(
        x is not None and isinstance(x.origin, Constant) and x.dtype.is_integer for x in wanted.inputs[1:]
    )
    ranks = _rank(wanted.inputs[0]) if wanted.inputs else None, _rank(given.inputs[0]) if given.inputs else None
    if counts and None not in ranks and ranks[0] != ranks[1]:
        return False  # what counts axes means others here
    return all(
        _same_value(name, wanted.attrs.get(name, defaults.get(name)), given.attrs.get(name, defaults.get(name)), given)
        for name in names
    )


def _same_value(name: str, a: Any, b: Any, node: Node) -> bool:
    if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
        return len(a) == len(b) and all(_same_value(name, x, y, node) for x, y in zip(a, b, strict=True))
    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        return bool(np.array_equal(a, b))
    if a == b:
        return True
    rank = _rank(node.inputs[0]) if node.inputs else None
    return name in _AXES and rank is not None and isinstance(a, int) and isinstance(b, int) and abs(a - b) == rank


__all__ = ["COMMUTATIVE", "Kind", "Pattern"]
