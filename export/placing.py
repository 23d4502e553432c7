"""Which body each node belongs to: a branch's own work into the branch, a loop's own into the loop, the rest outside.

A node goes into the innermost body that holds all its uses, so that a branch that does not run costs nothing. Out of
the body of a loop it is lifted again unless it depends on what the loop is given: it need not be computed on every
step.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from lazygraph.errors import OperandError, UnsupportedError
from lazygraph.origins import Body, BodyInput
from lazygraph.tensor import Node, Tensor, describe


@dataclass(frozen=True, eq=False)
class Place:
    """A body and where it stands.

    Attributes:
        node: The operator call that it is a body of.
        body: The body.
        around: The body in which that call stands; None for the graph itself.
        depth: Bodies around it, itself counted.
    """

    node: Node
    body: Body
    around: Place | None
    depth: int


# Protobuf reads messages nested a hundred deep, and a body within a body is three.
DEEPEST = 30


def places(nodes: Sequence[Node], outputs: Iterable[Tensor], needed: Iterable[object]) -> dict[Node, Place]:
    """Return the body of every node that belongs to one; a node that is not named belongs to the graph itself.

    Args:
        nodes: All nodes that the outputs need, in program order.
        outputs: The graph's outputs.
        needed: Where everything comes from that the outputs need.

    Raises:
        OperandError: What a loop's body is given is used outside it.
        UnsupportedError: Bodies are nested deeper than a file can be read.
    """
    if not any(node.bodies for node in nodes) and not any(type(origin) is BodyInput for origin in needed):
        return {}

    given = _given(nodes)
    where: dict[Node, Place | None] = {}
    uses: dict[Node, list[Place | None]] = {}
    for tensor in outputs:
        if isinstance(tensor.origin, Node):
            uses.setdefault(tensor.origin, []).append(None)
    for node in reversed(nodes):
        place = _lifted(_around_all(uses.get(node, [None])), given[node])
        where[node] = place
        for operand in node.inputs:
            if operand is not None and isinstance(operand.origin, Node):
                uses.setdefault(operand.origin, []).append(place)
        for body in node.bodies:
            inner = Place(node, body, place, 1 if place is None else place.depth + 1)
            if inner.depth > DEEPEST:
                raise UnsupportedError(
                    f"parts of the program are nested {inner.depth} deep",
                    op="export",
                    expected=f"at most {DEEPEST}: a file with more could not be read",
                    at=node.at,
                )
            for tensor in body.outputs:
                if isinstance(tensor.origin, Node):
                    uses.setdefault(tensor.origin, []).append(inner)
    _refuse_escapes(nodes, where, given, outputs)
    return {node: place for node, place in where.items() if place is not None}


def _given(nodes: Sequence[Node]) -> dict[Node, frozenset[BodyInput]]:
    """Return for every node the body inputs that it depends on, those of its own bodies left out."""
    found: dict[Node, frozenset[BodyInput]] = {}
    for node in nodes:
        needs: set[BodyInput] = set()
        for tensor in node.needs():
            origin = tensor.origin
            if isinstance(origin, Node):
                needs |= found[origin]
            elif isinstance(origin, BodyInput):
                needs.add(origin)
        for body in node.bodies:
            needs -= {tensor.origin for tensor in body.inputs}
        found[node] = frozenset(needs)
    return found


def _around_all(uses: list[Place | None]) -> Place | None:
    """Return the innermost place that holds all the uses."""
    common = uses[0]
    for use in uses[1:]:
        while common is not use:
            if common is None or use is None:
                return None
            if common.depth >= use.depth:
                common = common.around
            else:
                use = use.around
    return common


def _lifted(place: Place | None, given: frozenset[BodyInput]) -> Place | None:
    while place is not None and place.body.inputs and not any(tensor.origin in given for tensor in place.body.inputs):
        place = place.around
    return place


def _refuse_escapes(
    nodes: Sequence[Node],
    where: dict[Node, Place | None],
    given: dict[Node, frozenset[BodyInput]],
    outputs: Iterable[Tensor],
) -> None:
    for node in nodes:
        left = set(given[node])
        place = where[node]
        while place is not None:
            left -= {tensor.origin for tensor in place.body.inputs}
            place = place.around
        if left:
            raise _escape(node.outputs[0])
    for tensor in outputs:
        if isinstance(tensor.origin, BodyInput):
            raise _escape(tensor)


def _escape(tensor: Tensor) -> OperandError:
    return OperandError(
        "what a loop's body is given is used outside it",
        op="export",
        operands={"tensor": describe(tensor)},
        expected="tensors of a body used in it, and given on by its results",
        at=tensor.origin.at,
    )


__all__ = ["Place", "places"]
