"""The same program again with something else in places: the one way in which a finished graph is changed.

Tensors never change, so an edit builds what comes behind it anew. What does not depend on the edit stays the very same
tensor. Every call that is built again is checked again by its operator's rule, so that an edit cannot leave a graph
whose shapes and types are no longer true.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from operator import attrgetter
from typing import Any, TypeAlias

import numpy as np

from lazygraph.dims import Dim, Size, is_unknown
from lazygraph.errors import GraphMismatchError, LazyGraphError
from lazygraph.graph import FileFacts, Graph
from lazygraph.ops.core import Results, add_node
from lazygraph.ops.deduce import results_of
from lazygraph.origins import Body, BodyInput, Constant, Input, Kept, Node, describe
from lazygraph.tensor import Shape, Tensor

Operands: TypeAlias = "Callable[[Node, tuple[Tensor | None, ...]], tuple[Tensor | None, ...]]"


class Rebuild:
    """A function from the tensors of a graph to those of the changed program.

    Args:
        swaps: What stands for a tensor instead of itself.
        graph: Where to build: the same graph, or another one into which everything is copied.
        renamed: How names are spelled in the other graph.
        resized: What a size becomes.
        operands: Given a call and the operands that it will have, returns those that it shall have instead.
    """

    def __init__(
        self,
        swaps: Mapping[Tensor, Tensor],
        graph: Graph | None = None,
        renamed: Callable[[str], str] = str,
        resized: Callable[[Size], Size] | None = None,
        operands: Operands | None = None,
    ) -> None:
        self._made: dict[Tensor, Tensor] = {}
        self._swapped: set[Tensor] = set()
        self._graph = graph
        self._renamed = renamed
        self._resized = resized
        self._operands = operands
        self._changed: set[Node] = set()
        for before, after in swaps.items():
            self.swap(before, after)

    def swap(self, before: Tensor, after: Tensor) -> None:
        """Let one tensor stand for another in everything that is built from now on."""
        if after.graph is not (self._graph or before.graph):
            raise GraphMismatchError(
                "a tensor is replaced by one of another graph",
                op="replace",
                operands={"before": describe(before), "after": describe(after)},
                expected="a tensor grown from the same anchor",
            )
        self._made[before] = after
        self._swapped.add(before)

    def __call__(self, tensor: Tensor) -> Tensor:
        """Return what stands for a tensor; the nodes that it needs are built if they are not yet."""
        if tensor not in self._made:
            self.prepare([tensor])
        return self._made[tensor]

    def made(self, tensor: Tensor) -> Tensor | None:
        """Return what stands for a tensor where that is known without building anything."""
        return self._made.get(tensor)

    def prepare(self, outputs: Iterable[Tensor]) -> None:
        """Build everything that the outputs need, in program order."""
        nodes = self._needed(outputs)
        self._mark(nodes)
        for node in nodes:
            if node in self._changed:
                self._build(node)
            else:
                self._made.update((tensor, tensor) for tensor in node.outputs if tensor not in self._made)
        for tensor in outputs:
            self._stand_in(tensor)

    def _needed(self, outputs: Iterable[Tensor]) -> list[Node]:
        found: set[Node] = set()
        waiting = [tensor for tensor in outputs if tensor not in self._made]
        while waiting:
            origin = waiting.pop().origin
            if isinstance(origin, Node) and origin not in found:
                found.add(origin)
                waiting += [tensor for tensor in origin.needs() if tensor not in self._made]
        return sorted(found, key=attrgetter("serial"))

    def _mark(self, nodes: list[Node]) -> None:
        """Find the calls that change: those that read something changed, or stand in a body that changes."""
        if self._graph is not None or self._operands is not None:
            self._changed.update(nodes)
            return
        given: set[Tensor] = set()
        grown = True
        while grown:  # once more for each level of bodies at most
            grown = False
            for node in nodes:
                if node in self._changed or not any(
                    tensor in self._swapped or tensor in given or tensor.origin in self._changed
                    for tensor in node.needs()
                ):
                    continue
                self._changed.add(node)
                given.update(tensor for body in node.bodies for tensor in body.inputs)
                grown = grown or bool(node.bodies)

    def _stand_in(self, tensor: Tensor) -> Tensor:
        """Return what stands for an operand: made already, or an input, a constant or a body's own input."""
        found = self._made.get(tensor)
        if found is None:
            found = self._made[tensor] = self._another(tensor)
        return found

    def _another(self, tensor: Tensor) -> Tensor:
        origin, graph = tensor.origin, self._graph
        if isinstance(origin, BodyInput):
            into = graph or tensor.graph
            again = BodyInput(origin.name, origin.scope, into.next_serial(), origin.at)
            return Tensor(into, tensor.dtype, self._shape(tensor.known_shape), again, 0)
        if graph is None or isinstance(origin, Node):
            return tensor
        if isinstance(origin, Input):
            called = graph.free_name(self._renamed(origin.name))
            return graph.add_input(called, tensor.dtype, self._shape(tensor.known_shape), origin.default)
        name = graph.free_name(self._renamed(origin.name)) if origin.name else None
        made = graph.constant(origin.array, name)
        if isinstance(made.origin, Constant):
            made.origin.at, made.origin.scope = origin.at, origin.scope
        return made

    def _build(self, node: Node) -> None:
        graph = self._graph or node.outputs[0].graph
        bodies = tuple(
            [
                Body(body.name, tuple(map(self._stand_in, body.inputs)), tuple(map(self._stand_in, body.outputs)))
                for body in node.bodies
            ]
        )
        inputs = tuple([None if operand is None else self._stand_in(operand) for operand in node.inputs])
        if self._operands is not None:
            inputs = self._operands(node, inputs)
        kept = self._kept(node)
        alike = all(self._alike(a, b) for a, b in zip(node.inputs, inputs, strict=True))
        results: Results = [(tensor.dtype, self._shape(tensor.known_shape)) for tensor in node.outputs]
        if bodies or not alike or self._moved(node):
            results = self._deduced(graph, node, inputs, bodies, kept, results if alike else None)

        outputs = add_node(graph, node.op, inputs, node.attrs, results, node.domain)
        made = outputs[0].origin
        if isinstance(made, Node):
            made.bodies, made.kept, made.scope, made.at = bodies, kept, node.scope, node.at
        for before, after in zip(node.outputs, outputs, strict=True):
            if alike and after.value is None:
                after.value = self._value(before)
            self._made.setdefault(before, after)

    def _deduced(
        self,
        graph: Graph,
        node: Node,
        inputs: tuple[Tensor | None, ...],
        bodies: tuple[Body, ...],
        kept: Kept | None,
        before: Results | None,
    ) -> Results:
        """Return what the call gives by its rule; where its operands are as ever, what was known before fills gaps."""
        facts = graph.facts or FileFacts()
        version = (kept.opset if kept else None) or facts.domains.get(node.domain)
        version = version or (None if node.domain else graph.opset)
        try:
            found = results_of(graph, node.op, node.domain, inputs, node.attrs, len(node.outputs), bodies, version)
        except LazyGraphError as error:
            if before is not None and _was_refused(node):
                return before  # it was passed over when the file was loaded, and no size in it is why
            name = node.kept.name if node.kept else ""
            error.operands = {"in": f"{node.op}{f' {name!r}' if name else ''}", **error.operands}
            raise
        if before is None:
            return found
        return [
            old if new[1] is None or any(map(is_unknown, new[1])) else new
            for old, new in zip(before, found, strict=True)
        ]

    def _kept(self, node: Node) -> Kept | None:
        """Return the call's names and version as the other graph has them."""
        if self._graph is None:
            return node.kept
        before = node.kept or Kept()
        domains = (node.outputs[0].graph.facts or FileFacts()).domains
        version = before.opset or domains.get(node.domain) or (None if node.domain else node.outputs[0].graph.opset)
        here = (self._graph.facts or FileFacts()).domains.get(node.domain)
        return Kept(
            self._renamed(before.name) if before.name else "",
            tuple(self._renamed(name) if name else "" for name in before.values),
            before.doc,
            before.metadata,
            None if version == here else version,
            before.at,
        )

    def _moved(self, node: Node) -> bool:
        """Return whether a call reads sizes that became others: its rule has to look at them again."""
        shapes = [operand.known_shape for operand in node.inputs if operand is not None]
        return self._resized is not None and any(self._shape(shape) != shape for shape in shapes)

    def _alike(self, before: Tensor | None, after: Tensor | None) -> bool:
        """Return whether a call cannot tell two operands apart while the graph is built."""
        if before is None or after is None:
            return before is after
        if before.dtype is not after.dtype or self._shape(before.known_shape) != after.known_shape:
            return False
        if before.value is None or after.value is None:
            return before.value is after.value
        if before.value.shape != after.value.shape:
            return False
        pairs = zip(before.value.reshape(-1).tolist(), after.value.reshape(-1).tolist(), strict=True)
        return all((self._size(a) if isinstance(a, Dim) else a) == b for a, b in pairs)

    def _value(self, before: Tensor) -> np.ndarray[Any, Any] | None:
        value = before.value
        if value is None or self._resized is None or value.dtype != object:
            return value
        again = np.empty(value.shape, dtype=object)
        again.reshape(-1)[:] = [self._size(item) for item in value.reshape(-1).tolist()]
        return again

    def _shape(self, shape: Shape | None) -> Shape | None:
        if shape is None or self._resized is None:
            return shape
        return tuple(map(self._size, shape))

    def _size(self, size: Size) -> Size:
        return size if self._resized is None or isinstance(size, int) else self._resized(size)


def _was_refused(node: Node) -> bool:
    """Return whether a call's own rule refuses it as its file has it."""
    graph = node.outputs[0].graph
    version = (node.kept.opset if node.kept else None) or (graph.facts or FileFacts()).domains.get(node.domain)
    try:
        results_of(graph, node.op, node.domain, node.inputs, node.attrs, len(node.outputs), node.bodies, version)
    except LazyGraphError:
        return True
    return False


__all__ = ["Rebuild"]
