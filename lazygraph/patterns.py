"""Parts of a graph found by what they look like.

A pattern is a Python function on tensors. It is called once with stand-ins for its parameters, and the calls that it
makes are looked for: same operator, same attributes (those left out are the schema's defaults), equal constants,
operands of commutative operators in either order. Element types are not compared, nor shapes; a parameter that stands
in several places is one tensor in all of them. A part is found only where nothing outside of it reads what it makes on
the way.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from operator import attrgetter
from typing import Any

import numpy as np

from lazygraph.arrays import LazyArray
from lazygraph.dtypes import float32
from lazygraph.errors import OperandError
from lazygraph.graph import Graph
from lazygraph.ops.deduce import defaults_of
from lazygraph.origins import Constant, Node, describe, reached
from lazygraph.rebuild import Rebuild
from lazygraph.tensor import Tensor

COMMUTATIVE = frozenset(
    ["Add", "Mul", "Max", "Min", "Sum", "Mean", "And", "Or", "Xor", "Equal", "BitwiseAnd", "BitwiseOr", "BitwiseXor"]
)
# Attributes that count axes, from the back too.
_AXES = frozenset({"axis", "axes"})


class Pattern:
    """What a function on tensors makes, to be looked for.

    Args:
        function: From tensors to one tensor; parameters are passed by position.

    Raises:
        OperandError: It makes no call, or gives something else than one tensor.
    """

    def __init__(self, function: Callable[..., Tensor]) -> None:
        self.names = _parameters(function)
        graph = Graph()
        stand_ins = [graph.add_input(name, float32, None) for name in self.names]
        made = function(*stand_ins)
        if not isinstance(made, Tensor) or not isinstance(made.origin, Node):
            raise OperandError(
                f"the pattern gives {describe(made) if isinstance(made, Tensor) else type(made).__name__}",
                op="rewrite",
                expected="a function that calls operators and returns one tensor",
            )
        self.root = made
        self.places = dict(zip(stand_ins, self.names, strict=True))

    def replaced(self, outputs: Iterable[Tensor], replacement: Callable[..., Tensor]) -> Rebuild:
        """Return the way from the tensors of the graph to those of one in which every part is replaced."""
        if _parameters(replacement) != self.names:
            raise OperandError(
                f"the replacement takes {_parameters(replacement)}",
                op="rewrite",
                expected=f"the pattern's parameters {self.names}",
            )
        rebuild = Rebuild({})
        for result, tensors in reversed(self.found(outputs).items()):  # one part may begin where another ends
            value = replacement(*[rebuild(tensors[name]) for name in self.names])
            if not isinstance(value, Tensor):
                raise OperandError(f"the replacement gives {type(value).__name__}", op="rewrite", expected="one tensor")
            rebuild.swap(result, value)
        return rebuild

    def found(self, outputs: Iterable[Tensor]) -> dict[Tensor, dict[str, Tensor]]:
        """Return by each part's result the tensors that its parameters stand for; late parts before early ones."""
        wanted = list(outputs)
        nodes = [origin for origin in reached(wanted) if isinstance(origin, Node)]
        readers: dict[Tensor, int] = {}
        for node in nodes:
            for tensor in node.needs():
                readers[tensor] = readers.get(tensor, 0) + 1
        for tensor in wanted:
            readers[tensor] = readers.get(tensor, 0) + 1

        parts: dict[Tensor, dict[str, Tensor]] = {}
        taken: set[Node] = set()
        for node in sorted(nodes, key=attrgetter("serial"), reverse=True):
            root = self.root.origin
            if not isinstance(root, Node) or node.op != root.op or self.root.index >= len(node.outputs):
                continue
            match = _Match(self.places, readers)
            result = node.outputs[self.root.index]
            if match.tensor(self.root, result, inner=False) and taken.isdisjoint(match.nodes.values()):
                taken.update(match.nodes.values())
                parts[result] = match.bound
        return parts


class _Match:
    """One attempt: what parameters stand for so far, and which calls are which."""

    def __init__(self, places: Mapping[Tensor, str], readers: Mapping[Tensor, int]) -> None:
        self.places = places
        self.readers = readers
        self.bound: dict[str, Tensor] = {}
        self.nodes: dict[Node, Node] = {}
        self.reads: dict[Tensor, int] = {}

    def tensor(self, wanted: Tensor, given: Tensor, inner: bool = True) -> bool:
        """Return whether a tensor can be what the pattern has in its place."""
        name = self.places.get(wanted)
        if name is not None:
            return self.bound.setdefault(name, given) is given
        if isinstance(wanted.origin, Constant):
            return _same_numbers(wanted, given)
        if not isinstance(wanted.origin, Node) or not isinstance(given.origin, Node) or wanted.index != given.index:
            return False
        if inner:
            self.reads[given] = self.reads.get(given, 0) + 1
        if not self._call(wanted.origin, given.origin):
            return False
        if inner:  # whatever else it gives is read by nobody outside either
            return True
        return all(
            self.readers.get(result, 0) == self.reads.get(result, 0)
            for node in self.nodes.values()
            for result in node.outputs
            if result is not given
        )

    def _call(self, wanted: Node, given: Node) -> bool:
        before = self.nodes.get(wanted)
        if before is not None:
            return before is given
        if (
            (wanted.op, wanted.domain) != (given.op, given.domain)
            or given.bodies
            or not _same_attributes(wanted, given)
        ):
            return False
        left = _without_tail(wanted.inputs)
        right = _without_tail(given.inputs)
        if len(left) != len(right):
            return False
        orders = [right]
        if wanted.op in COMMUTATIVE and len(right) == 2:
            orders.append((right[1], right[0]))
        for order in orders:
            state = dict(self.bound), dict(self.nodes), dict(self.reads)
            self.nodes[wanted] = given
            if all(
                (a is None) is (b is None) and (a is None or b is None or self.tensor(a, b))
                for a, b in zip(left, order, strict=True)
            ):
                return True
            self.bound, self.nodes, self.reads = state
        return False


def _parameters(function: Callable[..., Tensor]) -> list[str]:
    return list(inspect.signature(function).parameters)


def _without_tail(inputs: tuple[Tensor | None, ...]) -> tuple[Tensor | None, ...]:
    while inputs and inputs[-1] is None:
        inputs = inputs[:-1]
    return inputs


def _same_numbers(wanted: Tensor, given: Tensor) -> bool:
    """Return whether a constant has the numbers of the pattern's, in its own element type."""
    origin, pattern = given.origin, wanted.origin
    if not isinstance(origin, Constant) or not isinstance(pattern, Constant):
        return False
    if isinstance(pattern.array, LazyArray) or tuple(pattern.array.shape) != tuple(origin.array.shape):
        return False
    numbers = origin.array.read() if isinstance(origin.array, LazyArray) else origin.array
    with np.errstate(all="ignore"):
        return bool(np.array_equal(pattern.array.astype(numbers.dtype), numbers, equal_nan=numbers.dtype.kind == "f"))


def _same_attributes(wanted: Node, given: Node) -> bool:
    defaults = defaults_of(given.op, given.domain, given.outputs[0].graph.opset)
    names = wanted.attrs.keys() | given.attrs.keys()
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
    shape = node.inputs[0].known_shape if node.inputs and node.inputs[0] is not None else None
    return (
        name in _AXES
        and shape is not None
        and isinstance(a, int)
        and isinstance(b, int)
        and (a - b)
        in (
            len(shape),
            -len(shape),
        )
    )


__all__ = ["COMMUTATIVE", "Pattern"]
