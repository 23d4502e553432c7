"""Where tensors come from: operator calls, inputs and constants, each with the user's line; how messages show them."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from lazygraph.arrays import LazyArray
from lazygraph.dtypes import DTypeLike, as_dtype
from lazygraph.errors import GraphMismatchError, OperandError
from lazygraph.where import Where

if TYPE_CHECKING:
    from lazygraph.tensor import Graph, Tensor

Origin: TypeAlias = "Node | Input | BodyInput | Constant"


@dataclass(frozen=True, slots=True)
class Kept:
    """What a file said of an operator call beside its meaning, kept for when it is written again.

    Attributes:
        name: The call's name, ``""`` for none.
        values: The names of what it gives, ``""`` for what is left out.
        doc: Its text for people.
        metadata: Further texts by key.
        opset: The version of its domain that it is written for, where that is not the graph's.
        at: The line that made it, where the file tells it.
    """

    name: str = ""
    values: tuple[str, ...] = ()
    doc: str = ""
    metadata: tuple[tuple[str, str], ...] = ()
    opset: int | None = None
    at: Where | None = None


@dataclass(frozen=True, slots=True)
class Raw:
    """An attribute of a kind that Python has no value for, as the file had it: the bytes of its ``AttributeProto``."""

    content: bytes


class Node:
    """One operator call: what it reads, what it makes, and the user's line that asked for it.

    Attributes:
        made: Its one result, or the tuple of its results where it has several (or none yet). Calls come by the
            hundred thousand: a tuple around each single result would be one more object for the garbage collector.
    """

    __slots__ = ("at", "attrs", "bodies", "domain", "inputs", "kept", "made", "op", "scope", "serial")

    def __init__(
        self,
        op: str,
        domain: str,
        inputs: tuple[Tensor | None, ...],
        attrs: dict[str, Any],
        scope: str,
        serial: int,
        at: Where | None,
    ) -> None:
        self.op = op
        self.domain = domain
        self.inputs = inputs
        self.attrs = attrs
        self.scope = scope
        self.serial = serial
        self.at = at
        self.made: Tensor | tuple[Tensor, ...] = ()
        self.bodies: tuple[Body, ...] = ()
        self.kept: Kept | None = None

    @property
    def outputs(self) -> tuple[Tensor, ...]:
        """All its results, in order."""
        made = self.made
        return made if type(made) is tuple else (made,)  # type: ignore[return-value]

    @property
    def single(self) -> bool:
        """Whether it has one result."""
        return type(self.made) is not tuple

    def needs(self) -> list[Tensor]:
        """Return the tensors that it cannot do without: its operands, and what its bodies give."""
        found = [operand for operand in self.inputs if operand is not None]
        for body in self.bodies:
            found += body.outputs
        return found

    def __repr__(self) -> str:
        return f"<{self.op} at {self.at}>"


class Body:
    """A part of a program that an operator runs if, or as often as, it likes: a branch, the body of a loop.

    It has no list of nodes: whatever its outputs alone need belongs to it, and export puts it there.

    Attributes:
        name: The operator's attribute that it becomes, such as ``then_branch``.
        inputs: What each run is given; their origins are ``BodyInput``.
        outputs: What each run gives.
    """

    __slots__ = ("inputs", "name", "outputs")

    def __init__(self, name: str, inputs: tuple[Tensor, ...], outputs: tuple[Tensor, ...]) -> None:
        self.name = name
        self.inputs = inputs
        self.outputs = outputs


class BodyInput:
    """Where a tensor comes from that a body is given on each run: its name within the body and the user's line."""

    __slots__ = ("at", "name", "scope", "serial")

    def __init__(self, name: str, scope: str, serial: int, at: Where | None) -> None:
        self.name = name
        self.scope = scope
        self.serial = serial
        self.at = at


class Input:
    """Where a graph input comes from: its name, the user's line, and the numbers it has where none are fed."""

    __slots__ = ("at", "default", "name")

    def __init__(self, name: str, at: Where | None, default: np.ndarray[Any, Any] | LazyArray | None = None) -> None:
        self.name = name
        self.at = at
        self.default = default


class Constant:
    """Where a constant comes from: its numbers (perhaps not read yet), its name if it has one, the user's line."""

    __slots__ = ("array", "at", "name", "scope", "serial")

    def __init__(
        self, array: np.ndarray[Any, Any] | LazyArray, name: str | None, scope: str, serial: int, at: Where | None
    ) -> None:
        self.array = array
        self.name = name
        self.scope = scope
        self.serial = serial
        self.at = at

    def read(self) -> np.ndarray[Any, Any]:
        """Return the numbers."""
        return self.array.read() if isinstance(self.array, LazyArray) else self.array


def describe(tensor: Tensor) -> str:
    """Return the row that stands for a tensor in a message: dtype, shape and where it comes from."""
    shape = " (unknown)" if tensor.known_shape is None else f" {shape_text(tensor.known_shape)}"
    if tensor.dtype.element is not None:
        shape = ""
    origin = tensor.origin
    if isinstance(origin, Input):
        source = f"input {origin.name!r}"
    elif isinstance(origin, Constant):
        source = (f"const {origin.name!r}" if origin.name else "a constant") + (f" at {origin.at}" if origin.at else "")
        if tensor.value is not None and tensor.value.size <= 8:
            source += f" = {tensor.value.tolist()}"
    elif isinstance(origin, BodyInput):
        source = f"body input {origin.name!r}" + (f" at {origin.at}" if origin.at else "")
    else:
        source = origin.op + (f" at {origin.at}" if origin.at else "")
    return f"{tensor.dtype}{shape} from {source}"


def shape_text(shape: Sequence[object]) -> str:
    """Return ``(3, seq)``, ``(8,)`` or ``()``."""
    return f"({', '.join(map(str, shape))}{',' if len(shape) == 1 else ''})"


def reached(outputs: Iterable[Tensor], until: Container[Tensor] = ()) -> dict[Origin, Tensor]:
    """Return every origin that the outputs need, each with one tensor of it, but for what stands behind ``until``."""
    found: dict[Origin, Tensor] = {}
    waiting = [tensor for tensor in outputs if tensor not in until]
    while waiting:
        tensor = waiting.pop()
        origin = tensor.origin
        if origin in found:
            continue
        found[origin] = tensor
        if isinstance(origin, Node):
            waiting += [needed for needed in origin.needs() if needed not in until]
    return found


def near_names(name: object, names: Iterable[str]) -> str:
    """Return which names are spelled nearly so, as a hint says it; empty where there is none."""
    import difflib

    near = difflib.get_close_matches(name, list(names), 3, 0.5) if isinstance(name, str) else []
    return f"did you mean {', '.join(map(repr, near))}?" if near else ""


def same_graph(op: str, tensors: Sequence[Tensor | None]) -> Graph:
    """Return the graph that all the tensors belong to.

    Raises:
        GraphMismatchError: They belong to more than one.
        OperandError: There is no tensor among them.
    """
    graph: Graph | None = None
    for tensor in tensors:
        if tensor is None:
            continue
        try:
            if tensor.graph is graph:
                continue
        except AttributeError:
            raise OperandError(
                f"{type(tensor).__name__} {tensor!r} is no tensor",
                op=op,
                expected="tensors",
                hint="x.const(...) makes an array a constant of the graph of x",
            ) from None
        if graph is not None:
            raise GraphMismatchError(
                "tensors of two different graphs meet",
                op=op,
                operands={f"operand {i}": describe(t) for i, t in enumerate(tensors) if t is not None},
                expected="every operand grown from one anchor",
                hint="declare further inputs with lg.input(..., anchor=x) and constants with x.const(...)",
            )
        graph = tensor.graph
    if graph is None:
        raise OperandError("no tensor among the operands", op=op, expected="at least one tensor")
    return graph


def frozen_array(array: object, dtype: DTypeLike | None) -> np.ndarray[Any, Any]:
    """Return a read-only array of its own; Python floats become float32 and ints int64 unless ``dtype`` says."""
    wanted: np.dtype[Any] | None = None if dtype is None else as_dtype(dtype).numpy
    given = np.asarray(array)
    if wanted is None and not isinstance(array, (np.ndarray, np.generic)):
        wanted = (
            np.dtype(np.float32) if given.dtype.kind == "f" else np.dtype(np.int64) if given.dtype.kind == "i" else None
        )
    if given.dtype.kind in "UST":
        wanted = np.dtype(object)
    stored = (
        np.array(given, dtype=wanted, order="C") if given.flags.writeable or wanted else np.ascontiguousarray(given)
    )
    as_dtype(stored.dtype)  # refused here when ONNX has no such type
    if stored.shape != given.shape:
        stored = stored.reshape(given.shape)
    stored.setflags(write=False)
    return stored
