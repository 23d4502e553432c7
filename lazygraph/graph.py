"""The graph that tensors share: its inputs, named sizes and constants, and the one place where nodes are made.

A graph keeps no list of nodes: a node lives as long as a tensor that needs it, and export collects what the outputs
reach.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

import numpy as np

from lazygraph import dims
from lazygraph.arrays import LazyArray
from lazygraph.dims import Dim, Size, SizeLike
from lazygraph.dtypes import DType, DTypeLike, as_dtype
from lazygraph.errors import OperandError, ShapeError
from lazygraph.origins import Constant, Input, Node, frozen_array
from lazygraph.scopes import current_scope
from lazygraph.where import user_line

if TYPE_CHECKING:
    from lazygraph.tensor import Shape, Tensor

Numbers: TypeAlias = "np.ndarray[Any, Any] | LazyArray"

# Constants of at most so many elements are followed while the graph is built.
SMALL = 1024
# The attributes of every call that has none; nothing writes to a node's attributes.
_NO_ATTRS: dict[str, Any] = {}


@dataclass(slots=True)
class FileFacts:
    """What a file says of itself beside the program that it holds; kept when the graph is written again.

    Attributes:
        name: The graph's name.
        doc: Its text for people.
        metadata: Texts by key.
        domains: The version of every domain that the file is written for.
        ir_version: The IR version that it was written with.
        docs: Texts for people about inputs and outputs, by their names.
        annotations: Quantisation annotations, as the file had them (``TensorAnnotation`` messages).
    """

    name: str = ""
    doc: str = ""
    metadata: dict[str, str] = field(default_factory=dict)
    domains: dict[str, int] = field(default_factory=dict)
    ir_version: int = 0
    docs: dict[str, str] = field(default_factory=dict)
    annotations: list[bytes] = field(default_factory=list)


class Graph:
    """What the tensors of one program share: named inputs, named sizes, small constants, the opset if fixed.

    Attributes:
        inputs: Every declared input by name, in order of declaration.
        opset: The ai.onnx opset whose signatures apply, or None for the newest.
        facts: What the file said that the graph was loaded from, None where it was not.
    """

    __slots__ = (
        "__weakref__",
        "_constants",
        "_names",
        "_serial",
        "facts",
        "inputs",
        "opset",
        "scalars",
        "size_tensors",
        "sizes",
    )

    # The class of tensors, which is defined on top of this one.
    makes: ClassVar[type[Tensor]]

    def __init__(self, opset: int | None = None) -> None:
        self.inputs: dict[str, Tensor] = {}
        self.opset = opset
        self.sizes: dict[str, Dim] = {}
        self._names: set[str] = set()
        self._constants: dict[object, Tensor] = {}
        self.scalars: dict[object, Tensor] = {}
        self.size_tensors: dict[Size, Tensor] = {}
        self._serial = 0
        self.facts: FileFacts | None = None

    def __str__(self) -> str:
        """Its inputs, its operator calls and the results that are still held, a line each (see lazygraph.printing)."""
        from lazygraph.printing import graph_text

        return graph_text(self)

    def _repr_html_(self) -> str:
        from lazygraph.printing import graph_html

        return graph_html(self)

    def next_serial(self) -> int:
        """Return a number that grows with every value made: program order."""
        self._serial += 1
        return self._serial

    def input(self, name: str, dtype: DTypeLike, shape: Sequence[SizeLike] | None = None) -> Tensor:
        """Return a new input of the graph; a sequence or an optional has no shape.

        Raises:
            OperandError: The name is empty or taken.
            ShapeError: A size is negative or no size.
        """
        if not isinstance(name, str) or not name:
            raise OperandError(f"{name!r} cannot name an input", op="input", expected="a non-empty string")
        if name in self._names:
            raise OperandError(f"the name {name!r} is taken in this graph", op="input", expected="a new name")
        kind = as_dtype(dtype)
        if kind.element is not None and shape is not None:
            raise ShapeError(f"a {kind} has no shape", op="input", expected="no shape, or None")
        if isinstance(shape, (str, bytes)) or (shape is None and kind.element is None):
            raise ShapeError(f"{shape!r} is not a list of sizes", op="input", expected="a list such as ['seq', 64]")

        sizes = None if shape is None else tuple(self.size(value) for value in shape)
        return self.add_input(name, kind, sizes)

    def add_input(self, name: str, dtype: DType, shape: Shape | None, default: Numbers | None = None) -> Tensor:
        """Return a new input whose type is checked already; its shape may be unknown, and it may have a default."""
        tensor = self.makes(self, dtype, shape, Input(name, user_line(2), default), 0)
        self.inputs[name] = tensor
        self._names.add(name)
        return tensor

    def names(self) -> tuple[dict[str, Tensor], set[str]]:
        """Return the inputs and the names taken now, for ``forget_since``."""
        return dict(self.inputs), set(self._names)

    def forget_since(self, before: tuple[dict[str, Tensor], set[str]]) -> None:
        """Give the names up that were taken since, so that a part of a program can be built once more."""
        self.inputs, self._names = dict(before[0]), set(before[1])

    def free_name(self, wanted: str) -> str:
        """Return a name that no input or constant has: the wanted one, or with a number behind it."""
        name, count = wanted, 0
        while name in self._names:
            count += 1
            name = f"{wanted}_{count}"
        return name

    def instead(self, before: Constant, array: Numbers) -> Tensor:
        """Return a constant of the same name with other numbers; in one file both cannot keep it."""
        return self._new_constant(array, before.name)

    def size(self, value: SizeLike) -> Size:
        """Return the size, a named one with the bounds that this graph already knows of it.

        Raises:
            ShapeError: It was declared with other bounds before.
        """
        value = dims.as_size(value)
        if isinstance(value, int) or self.sizes.get(str(value)) is value:
            return value
        for atom in dims.atoms(value):
            if atom.kind != "size":
                continue
            before = self.sizes.setdefault(atom.text, Dim({(atom,): 1}))
            bounds, bounds_before = dims.bounds(Dim({(atom,): 1})), dims.bounds(before)
            if bounds == bounds_before:
                continue
            if bounds != (0, None):
                raise ShapeError(
                    f"{atom.text} was declared with bounds {_range(bounds_before)} and now with {_range(bounds)}",
                    op="size",
                    expected="one declaration per name and graph",
                )
        return dims.substitute(value, lambda atom: self.sizes.get(atom.text) if atom.kind == "size" else None)

    def constant(self, array: object, name: str | None = None, dtype: DTypeLike | None = None) -> Tensor:
        """Return a constant of the graph.

        Args:
            array: A numpy array, a LazyArray, a scalar or a nested list. A writable array is copied.
            name: The name it has in the file (a weight's, usually).
            dtype: Element type; by default the array's own, for Python floats float32, for ints int64.

        Raises:
            OperandError: The name is taken, or the array is no array.
        """
        if name is not None:
            if name in self._names:
                raise OperandError(f"the name {name!r} is taken in this graph", op="const", expected="a new name")
            if not name:
                raise OperandError("'' cannot name a constant", op="const", expected="a non-empty string or None")

        if isinstance(array, self.makes):
            raise OperandError("a tensor is no constant", op="const", expected="a numpy array, scalar or list")
        stored = array if isinstance(array, LazyArray) else frozen_array(array, dtype)
        tensor = self._new_constant(stored, name)
        if name is not None:
            self._names.add(name)
        return tensor

    def small(self, array: np.ndarray[Any, Any]) -> Tensor:
        """Return an unnamed constant, the same one for the same numbers."""
        key = (array.dtype.name, array.shape, array.tobytes())
        found = self._constants.get(key)
        if found is None:
            array.setflags(write=False)
            found = self._constants[key] = self._new_constant(array, None)
        return found

    def ints(self, values: Sequence[int]) -> Tensor:
        """Return the int64 ``(n,)`` constant of these numbers."""
        key = tuple(values)
        found = self._constants.get(key)
        if found is None:
            found = self._constants[key] = self.small(np.array(key, dtype=np.int64))
        return found

    def _new_constant(self, array: np.ndarray[Any, Any] | LazyArray, name: str | None) -> Tensor:
        dtype = array.dtype if isinstance(array, LazyArray) else as_dtype(array.dtype)
        origin = Constant(array, name, current_scope(), self.next_serial(), user_line(3))
        tensor = self.makes(self, dtype, tuple(array.shape), origin, 0)
        if isinstance(array, np.ndarray) and array.size <= SMALL and dtype.kind in "iub":
            tensor.value = array
        return tensor

    def emit(
        self,
        op: str,
        inputs: tuple[Tensor | None, ...],
        attrs: dict[str, Any],
        results: Sequence[tuple[DType, Shape | None]],
        domain: str = "",
    ) -> tuple[Tensor, ...]:
        """Add a node whose checks have passed; return its outputs. The one place where nodes are made."""
        self._serial += 1
        node = Node(op, domain, inputs, attrs or _NO_ATTRS, current_scope(), self._serial, user_line(3))
        make = self.makes
        if len(results) == 1:
            dtype, shape = results[0]
            made = node.made = make(self, dtype, shape, node, 0)
            return (made,)
        outputs = node.made = tuple([make(self, dtype, shape, node, i) for i, (dtype, shape) in enumerate(results)])
        return outputs


def _range(bounds: dims.Bounds) -> str:
    return f"[{bounds[0]}, {'...' if bounds[1] is None else bounds[1]}]"
