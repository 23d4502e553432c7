"""Tensors, and the graph that they share.

A graph keeps no list of nodes: a node lives as long as a tensor that needs it, and export collects what the outputs
reach. Everything here is immutable once made, but for the graph's own book-keeping (inputs, named sizes, constants).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from lazygraph import dims
from lazygraph.arrays import LazyArray
from lazygraph.dims import Dim, Size, SizeLike
from lazygraph.dtypes import DType, DTypeLike, as_dtype
from lazygraph.errors import DTypeError, OperandError, ShapeError
from lazygraph.origins import Constant, Input, Node, describe, frozen_array, same_graph, shape_text
from lazygraph.scopes import current_scope
from lazygraph.where import user_line

if TYPE_CHECKING:
    from typing import TypeAlias

    from lazygraph import ops as language
    from lazygraph.ops.updating import At
else:
    language = None  # lazygraph.ops puts itself here: operators are ops, and ops are made of tensors

Shape: TypeAlias = "tuple[Size, ...]"
Scalar: TypeAlias = "bool | int | float"
Operand: TypeAlias = "Tensor | Scalar | Dim | np.ndarray[Any, Any] | np.generic | Sequence[Any]"
Attr: TypeAlias = "int | float | str | bytes | Sequence[int] | Sequence[float] | Sequence[str] | np.ndarray[Any, Any]"

# Constants of at most so many elements are followed while the graph is built.
SMALL = 1024


class Graph:
    """What the tensors of one program share: named inputs, named sizes, small constants, the opset if fixed.

    Attributes:
        inputs: Every declared input by name, in order of declaration.
        opset: The ai.onnx opset whose signatures apply, or None for the newest.
    """

    __slots__ = (
        "__weakref__",
        "_constants",
        "_names",
        "_serial",
        "inputs",
        "opset",
        "scalars",
        "size_tensors",
        "sizes",
    )

    def __init__(self, opset: int | None = None) -> None:
        self.inputs: dict[str, Tensor] = {}
        self.opset = opset
        self.sizes: dict[str, Dim] = {}
        self._names: set[str] = set()
        self._constants: dict[object, Tensor] = {}
        self.scalars: dict[object, Tensor] = {}
        self.size_tensors: dict[Size, Tensor] = {}
        self._serial = 0

    def next_serial(self) -> int:
        """Return a number that grows with every value made: program order."""
        self._serial += 1
        return self._serial

    def input(self, name: str, dtype: DTypeLike, shape: Sequence[SizeLike]) -> Tensor:
        """Return a new input of the graph.

        Raises:
            OperandError: The name is empty or taken.
            ShapeError: A size is negative or no size.
        """
        if not isinstance(name, str) or not name:
            raise OperandError(f"{name!r} cannot name an input", op="input", expected="a non-empty string")
        if name in self._names:
            raise OperandError(f"the name {name!r} is taken in this graph", op="input", expected="a new name")
        if isinstance(shape, (str, bytes)):
            raise ShapeError(f"{shape!r} is not a list of sizes", op="input", expected="a list such as ['seq', 64]")

        sizes = tuple(self.size(value) for value in shape)
        tensor = Tensor(self, as_dtype(dtype), sizes, Input(name, user_line()), 0)
        self.inputs[name] = tensor
        self._names.add(name)
        return tensor

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

        if isinstance(array, Tensor):
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
        origin = Constant(array, name, current_scope(), self.next_serial(), user_line())
        tensor = Tensor(self, dtype, tuple(array.shape), origin, 0)
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
        node = Node(op, domain, inputs, attrs, current_scope(), self._serial, user_line())
        outputs = tuple([Tensor(self, dtype, shape, node, i) for i, (dtype, shape) in enumerate(results)])
        node.outputs = outputs
        return outputs


class Tensor:
    """A value of a graph that is still to be computed: its element type and shape are known, its numbers are not.

    Attributes:
        graph: The graph it belongs to.
        dtype: Element type.
        origin: The node, input or constant that it comes from.
        index: Which output of its node it is.
        value: The numbers where they are known and small: integers and sizes (``Dim``), else None.
    """

    __slots__ = ("__weakref__", "_shape", "dtype", "graph", "index", "origin", "value")

    # numpy gives way, so that ``array + tensor`` is ours.
    __array_ufunc__ = None

    def __init__(
        self, graph: Graph, dtype: DType, shape: Shape | None, origin: Node | Input | Constant, index: int
    ) -> None:
        self.graph = graph
        self.dtype = dtype
        self._shape = shape
        self.origin = origin
        self.index = index
        self.value: np.ndarray[Any, Any] | None = None

    # ---- what is known of it ----

    @property
    def shape(self) -> Shape:
        """The sizes, ints or named.

        Raises:
            ShapeError: Not even the number of axes is known.
        """
        if self._shape is None:
            raise ShapeError(
                "the number of axes is not known while the graph is built",
                op="shape",
                operands={"tensor": describe(self)},
                hint="lg.declare_shape(x, [...]) says what you know of it",
            )
        return self._shape

    @property
    def known_shape(self) -> Shape | None:
        """The sizes, or None when not even their number is known."""
        return self._shape

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.shape)

    @property
    def size(self) -> Size:
        """The number of elements."""
        return dims.product(self.shape)

    @property
    def name(self) -> str | None:
        """The name of an input or a named constant; other tensors get theirs at export."""
        return None if isinstance(self.origin, Node) else self.origin.name

    def const(self, array: object, name: str | None = None, dtype: DTypeLike | None = None) -> Tensor:
        """Return a constant of this tensor's graph (see :meth:`Graph.constant`)."""
        return self.graph.constant(array, name, dtype)

    def __repr__(self) -> str:
        return f"<Tensor {describe(self)}>"

    def __hash__(self) -> int:
        return id(self)

    def __bool__(self) -> bool:
        raise DTypeError(
            "the truth of a tensor is not known while the graph is built",
            op="bool",
            operands={"tensor": describe(self)},
            hint="choose between tensors with lg.where(condition, x, y)",
        )

    def __len__(self) -> int:
        if not self.shape:
            raise ShapeError("a tensor without axes has no length", op="len", operands={"tensor": describe(self)})
        return int(self.shape[0])

    def __iter__(self) -> Iterator[Tensor]:
        if not self.shape or isinstance(self.shape[0], Dim):
            raise ShapeError(
                "only a tensor whose first size is a known number can be iterated",
                op="iter",
                operands={"tensor": describe(self)},
                hint="ops work on whole tensors; lg.split cuts one into a known number of parts",
            )
        return (self[i] for i in range(self.shape[0]))

    def __contains__(self, item: object) -> bool:
        raise DTypeError("what a tensor contains is not known while the graph is built", op="in")

    def __array__(self, dtype: object = None, copy: object = None) -> np.ndarray[Any, Any]:
        raise DTypeError(
            "a tensor has no numbers while the graph is built",
            op="numpy",
            operands={"tensor": describe(self)},
            hint="lg.realize(x, feeds) computes them",
        )

    def __int__(self) -> int:
        if self.value is not None and self.value.size == 1:
            return int(self.value.item())
        raise DTypeError("the number in a tensor is not known while the graph is built", op="int")

    # ---- operators: numpy's, each one op ----

    def __add__(self, other: Operand) -> Tensor:
        return language.add(self, other)

    def __radd__(self, other: Operand) -> Tensor:
        return language.add(other, self)

    def __sub__(self, other: Operand) -> Tensor:
        return language.sub(self, other)

    def __rsub__(self, other: Operand) -> Tensor:
        return language.sub(other, self)

    def __mul__(self, other: Operand) -> Tensor:
        return language.mul(self, other)

    def __rmul__(self, other: Operand) -> Tensor:
        return language.mul(other, self)

    def __truediv__(self, other: Operand) -> Tensor:
        return language.true_divide(self, other)

    def __rtruediv__(self, other: Operand) -> Tensor:
        return language.true_divide(other, self)

    def __floordiv__(self, other: Operand) -> Tensor:
        return language.floor_divide(self, other)

    def __rfloordiv__(self, other: Operand) -> Tensor:
        return language.floor_divide(other, self)

    def __mod__(self, other: Operand) -> Tensor:
        return language.remainder(self, other)

    def __rmod__(self, other: Operand) -> Tensor:
        return language.remainder(other, self)

    def __pow__(self, other: Operand) -> Tensor:
        return language.pow(self, other)

    def __rpow__(self, other: Operand) -> Tensor:
        return language.pow(other, self)

    def __matmul__(self, other: Operand) -> Tensor:
        return language.matmul(self, other)

    def __rmatmul__(self, other: Operand) -> Tensor:
        return language.matmul(other, self)

    def __neg__(self) -> Tensor:
        return language.neg(self)

    def __pos__(self) -> Tensor:
        return self

    def __abs__(self) -> Tensor:
        return language.abs(self)

    def __invert__(self) -> Tensor:
        return language.invert(self)

    def __and__(self, other: Operand) -> Tensor:
        return language.bit_and(self, other)

    def __rand__(self, other: Operand) -> Tensor:
        return language.bit_and(other, self)

    def __or__(self, other: Operand) -> Tensor:
        return language.bit_or(self, other)

    def __ror__(self, other: Operand) -> Tensor:
        return language.bit_or(other, self)

    def __xor__(self, other: Operand) -> Tensor:
        return language.bit_xor(self, other)

    def __rxor__(self, other: Operand) -> Tensor:
        return language.bit_xor(other, self)

    def __eq__(self, other: Operand) -> Tensor:  # type: ignore[override]
        return language.equal(self, other)

    def __ne__(self, other: Operand) -> Tensor:  # type: ignore[override]
        return language.not_equal(self, other)

    def __lt__(self, other: Operand) -> Tensor:
        return language.less(self, other)

    def __le__(self, other: Operand) -> Tensor:
        return language.less_or_equal(self, other)

    def __gt__(self, other: Operand) -> Tensor:
        return language.greater(self, other)

    def __ge__(self, other: Operand) -> Tensor:
        return language.greater_or_equal(self, other)

    def __getitem__(self, key: object) -> Tensor:
        return language.getitem(self, key)

    # ---- methods that read best behind the tensor ----

    @property
    def at(self) -> At:
        """Functional updates: ``x.at[i:j].set(v)`` and ``x.at[i:j].add(v)`` return new tensors."""
        return language.At(self)

    @property
    def T(self) -> Tensor:
        """The axes in reverse order."""
        return language.transpose(self)

    def astype(self, dtype: DTypeLike) -> Tensor:
        """Return the tensor in another element type (see :func:`lazygraph.cast`)."""
        return language.cast(self, dtype)

    def reshape(self, *shape: SizeLike | Sequence[SizeLike] | Tensor) -> Tensor:
        """Return the elements in another shape, given as one list or as separate sizes; one may be -1."""
        return language.reshape(self, shape[0] if len(shape) == 1 else shape)  # type: ignore[arg-type]

    def transpose(self, *perm: int | Sequence[int]) -> Tensor:
        """Return the tensor with its axes in the given order (reversed when none is given)."""
        order = perm[0] if len(perm) == 1 and not isinstance(perm[0], int) else perm
        return language.transpose(self, order or None)  # type: ignore[arg-type]

    def sum(self, axis: int | Sequence[int] | None = None, keepdims: bool = False) -> Tensor:
        """Return the sum over the axes (all when None)."""
        return language.reduce_sum(self, axis, keepdims)

    def mean(self, axis: int | Sequence[int] | None = None, keepdims: bool = False) -> Tensor:
        """Return the mean over the axes (all when None)."""
        return language.reduce_mean(self, axis, keepdims)

    def max(self, axis: int | Sequence[int] | None = None, keepdims: bool = False) -> Tensor:
        """Return the maximum over the axes (all when None)."""
        return language.reduce_max(self, axis, keepdims)

    def min(self, axis: int | Sequence[int] | None = None, keepdims: bool = False) -> Tensor:
        """Return the minimum over the axes (all when None)."""
        return language.reduce_min(self, axis, keepdims)


def _range(bounds: dims.Bounds) -> str:
    return f"[{bounds[0]}, {'...' if bounds[1] is None else bounds[1]}]"


__all__ = [
    "SMALL",
    "Attr",
    "Constant",
    "Graph",
    "Input",
    "Node",
    "Operand",
    "Scalar",
    "Shape",
    "Tensor",
    "describe",
    "frozen_array",
    "same_graph",
    "shape_text",
]
