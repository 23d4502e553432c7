"""Parts of a program written as Python functions: how they are called, what they may give, and what comes of it.

A part is called once, while the graph is built, with tensors that stand for what each run of it is given. Whatever it
does with other tensors of the graph is ordinary building; export finds out what belongs into the part.
"""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from types import CodeType
from typing import Any, Self, TypeAlias

from lazygraph import dims
from lazygraph.dims import Size
from lazygraph.dtypes import DType
from lazygraph.errors import OperandError
from lazygraph.origins import Body, BodyInput, Constant, Input, Node, describe, same_graph
from lazygraph.scopes import current_scope
from lazygraph.tensor import Graph, Shape, Tensor
from lazygraph.where import Where, user_line

Type: TypeAlias = "tuple[DType, Shape | None]"


class Carried(ABC):
    """What a loop can carry from step to step beside plain tensors: a value made of several, such as a cache."""

    @abstractmethod
    def carried(self) -> tuple[Tensor, ...]:
        """Return the tensors that make it up."""

    @abstractmethod
    def carrying(self, tensors: Sequence[Tensor]) -> Self:
        """Return the same kind of value made up of other tensors, in the order of ``carried``."""


State: TypeAlias = "Tensor | Carried"


def flat(states: Sequence[State]) -> tuple[Tensor, ...]:
    """Return the tensors that states are made of."""
    found: list[Tensor] = []
    for state in states:
        found += state.carried() if isinstance(state, Carried) else (state,)
    return tuple(found)


def unflat(states: Sequence[State], tensors: Sequence[Tensor]) -> tuple[Any, ...]:
    """Return states like the given ones, made of other tensors."""
    made: list[State] = []
    place = 0
    for state in states:
        count = len(state.carried()) if isinstance(state, Carried) else 1
        part = tensors[place : place + count]
        made.append(state.carrying(part) if isinstance(state, Carried) else part[0])
        place += count
    return tuple(made)


# ---- calling a function ----


def require_function(op: str, label: str, function: object, given: Sequence[object]) -> None:
    """Require a function that can be called with so many operands.

    Raises:
        OperandError: It is no function, or takes another number of operands.
    """
    if not callable(function):
        raise OperandError(f"{label} is {function!r}", op=op, expected=f"{label}, a Python function")
    try:
        inspect.signature(function).bind(*given)
    except ValueError:  # a function without a signature
        return
    except TypeError as error:
        raise OperandError(
            f"{label} cannot take {len(given)} operands: {error}",
            op=op,
            operands={f"operand {i}": describe(x) if isinstance(x, Tensor) else x for i, x in enumerate(given)},
            expected=f"a function of {len(given)} operands",
            at=line_of(function),
        ) from None


def line_of(function: object) -> Where | None:
    """Return the line at which a function of the user's begins; None for any other."""
    code = getattr(function, "__code__", None)
    module = str(getattr(function, "__module__", ""))
    if not isinstance(code, CodeType) or module.startswith("lazygraph."):
        return None
    return Where(code.co_filename, code.co_firstlineno)


def made_at(tensor: Tensor) -> Where | None:
    """Return the line that made a tensor."""
    return tensor.origin.at


def body_input(graph: Graph, kind: Type, name: str = "item") -> Tensor:
    """Return a tensor that stands for what each run of a body is given."""
    dtype, shape = kind
    return Tensor(graph, dtype, shape, BodyInput(name, current_scope(), graph.next_serial(), user_line()), 0)


def tensors_given(op: str, label: str, function: object, given: object) -> tuple[Tensor, ...]:
    """Return what a body gave: one tensor or several.

    Raises:
        OperandError: Nothing, or something else.
    """
    tensors = (given,) if isinstance(given, Tensor) else tuple(given) if isinstance(given, (tuple, list)) else ()
    if not tensors or not all(isinstance(tensor, Tensor) for tensor in tensors):
        raise OperandError(f"{label} returns {given!r}", op=op, expected="a tensor, or several", at=line_of(function))
    return tensors


def trace(
    op: str, name: str, function: Callable[..., object], kinds: Sequence[Type], graph: Graph, label: str = ""
) -> tuple[Body, bool]:
    """Return the body that a function of tensors makes when called once, and whether it gives just one tensor.

    Args:
        op: The operator, for messages.
        name: The attribute that the body becomes.
        function: What to call with one tensor per kind; returns a tensor or several.
        kinds: Element type and shape of what each run is given.
        graph: The graph that is being built.
        label: How messages call the function; its attribute's name by default.

    Raises:
        OperandError: The function cannot be called so, or gives no tensors.
        GraphMismatchError: It gives tensors of another graph.
    """
    inputs = tuple([body_input(graph, kind) for kind in kinds])
    require_function(op, label or name, function, inputs)
    given = function(*inputs)
    outputs = tensors_given(op, label or name, function, given)
    same_graph(op, [graph.ints(()), *outputs])
    return Body(name, inputs, outputs), isinstance(given, Tensor)


def element_of(x: Tensor) -> Type:
    """Return what a body is given of a sequence, or of a tensor that it is given as it is."""
    return (x.dtype.element, None) if x.dtype.element is not None else (x.dtype, x.known_shape)


def emit_with(
    op: str,
    graph: Graph,
    inputs: Sequence[Tensor | None],
    attrs: dict[str, Any],
    results: Sequence[Type],
    bodies: tuple[Body, ...],
    domain: str = "",
) -> tuple[Tensor, ...]:
    """Add a call of an operator with bodies, whose checks have passed; return all its outputs."""
    made = graph.emit(op, tuple(inputs), attrs, results, domain)
    if isinstance(made[0].origin, Node):
        made[0].origin.bodies = bodies
    return made


# ---- what comes of it ----


def common(graph: Graph, a: Shape | None, b: Shape | None) -> Shape | None:
    """Return what two shapes have in common: a size in which they differ is known at run time only."""
    if a is None or b is None or len(a) != len(b):
        return None
    serial = graph.next_serial()
    return tuple(
        x if dims.equal(x, y) is True else dims.unknown(f"either_{serial}_{axis}")
        for axis, (x, y) in enumerate(zip(a, b, strict=True))
    )


def stacked(steps: Size, shape: Shape | None, axis: int = 0) -> Shape | None:
    """Return the shape of what is kept of every step, along a new axis."""
    if shape is None:
        return None
    place = axis + len(shape) + 1 if axis < 0 else axis
    return (*shape[:place], steps, *shape[place:])


def loop_results(
    graph: Graph, inputs: Sequence[Tensor | None], body: Body, shapes: Sequence[Shape | None] | None = None
) -> list[Type]:
    """Return what a Loop gives: its states, then what it keeps of every step.

    Args:
        graph: Whose numbers new sizes are named after.
        inputs: The trip count, the condition, and the first states.
        body: What runs on every step.
        shapes: What is known of the states afterwards; where None, what they are before and after a step.
    """
    before, after = inputs[2:], body.outputs[1:]
    if shapes is None:
        pairs = zip(before, after, strict=False)
        shapes = [common(graph, None if x is None else x.known_shape, y.known_shape) for x, y in pairs]
    states = [(y.dtype, shape) for y, shape in zip(after, shapes, strict=False)]
    steps = _trip_count(graph, inputs, body)
    outside = _settled(graph, body, inputs)
    return states + [(y.dtype, stacked(steps, outside(y.known_shape))) for y in after[len(before) :]]


def _trip_count(graph: Graph, inputs: Sequence[Tensor | None], body: Body) -> Size:
    """Return how often a Loop runs where that is known: nothing ends it but its count."""
    count, first = [*inputs, None, None][:2]
    if count is not None and count.value is not None and _holds(first) and _never_ends(body):
        return dims.largest(0, count.value.reshape(-1).tolist()[0])
    return dims.unknown(f"loop_{graph.next_serial()}")


def _never_ends(body: Body) -> bool:
    """Return whether a loop's body never asks for the end: it gives its condition on, or a constant."""
    if len(body.inputs) < 2 or not body.outputs:
        return False
    going_on: Tensor | None = body.outputs[0]
    while going_on is not None and isinstance(going_on.origin, Node) and going_on.origin.op == "Identity":
        going_on = going_on.origin.inputs[0]
    return going_on is body.inputs[1] or (going_on is not None and _holds(going_on))


def _holds(condition: Tensor | None) -> bool:
    """Return whether a condition is left out, or known to hold."""
    return condition is None or (condition.value is not None and bool(condition.value.reshape(-1)[0]))


def scan_results(
    graph: Graph,
    inputs: Sequence[Tensor | None],
    body: Body,
    scanned: int,
    axes: Sequence[int],
    out_axes: Sequence[int],
) -> list[Type]:
    """Return what a Scan gives: its states, then what it keeps of every step.

    Args:
        graph: Whose numbers new sizes are named after.
        inputs: The first states, then what is gone over.
        body: What runs on every step.
        scanned: How many of the inputs are gone over.
        axes: Along which axis of each; may be shorter.
        out_axes: Which axis of each result is that of the steps; may be shorter.
    """
    states = len(inputs) - scanned
    over = inputs[states] if 0 <= states < len(inputs) else None
    along = axes[0] if axes else 0
    shape = None if over is None else over.known_shape
    known = shape is not None and -len(shape) <= along < len(shape)
    steps = shape[along] if known and shape is not None else dims.unknown(f"scan_{graph.next_serial()}")
    outside = _settled(graph, body, inputs)
    kept = body.outputs[states:]
    places = [*out_axes, *[0] * (len(kept) - len(out_axes))]
    made = [(y.dtype, outside(y.known_shape)) for y in body.outputs[:states]]
    return made + [
        (y.dtype, stacked(steps, outside(y.known_shape), place)) for y, place in zip(kept, places, strict=True)
    ]


def _settled(graph: Graph, body: Body, inputs: Sequence[Tensor | None]) -> Callable[[Shape | None], Shape | None]:
    """Return how a shape within a body is meant outside it: a size that differs from step to step is a new one there.

    A size that only the run can tell is kept where the body has it from outside.
    """
    known: set[dims.Atom] | None = None

    def settled(shape: Shape | None) -> Shape | None:
        nonlocal known
        if shape is None or not any(map(dims.is_unknown, shape)):
            return shape
        if known is None:
            known = set().union(*(_unknown_atoms(tensor.known_shape) for tensor in _outer(body, inputs)))
        serial = graph.next_serial()
        return tuple(
            size if _unknown_atoms((size,)) <= known else dims.unknown(f"step_{serial}_{axis}")
            for axis, size in enumerate(shape)
        )

    return settled


def _outer(body: Body, inputs: Sequence[Tensor | None]) -> list[Tensor]:
    """Return the operands of the loop, and the tensors that its body uses and did not make."""
    start = min((_serial(tensor) for tensor in body.inputs), default=0)
    found = [tensor for tensor in inputs if tensor is not None]
    seen: set[object] = set()
    waiting = list(body.outputs)
    while waiting:
        tensor = waiting.pop()
        origin = tensor.origin
        if _serial(tensor) < start:
            found.append(tensor)
        elif isinstance(origin, Node) and origin not in seen:
            seen.add(origin)
            waiting += origin.needs()
    return found


def _serial(tensor: Tensor) -> int:
    origin = tensor.origin
    return -1 if isinstance(origin, (Input, Constant)) else origin.serial


def _unknown_atoms(shape: Shape | None) -> set[dims.Atom]:
    found: set[dims.Atom] = set()
    for size in shape or ():
        for atom in dims.atoms(size):
            if atom.kind == "unknown":
                found.add(atom)
            elif atom.args:
                found |= _unknown_atoms(atom.args)
    return found


__all__ = [
    "Carried",
    "State",
    "Type",
    "body_input",
    "common",
    "element_of",
    "emit_with",
    "flat",
    "line_of",
    "loop_results",
    "made_at",
    "require_function",
    "scan_results",
    "stacked",
    "tensors_given",
    "trace",
    "unflat",
]
