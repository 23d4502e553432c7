"""Tensors: values still to be computed, with what is known of them and numpy's operators.

Everything here is immutable once made.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from lazygraph import dims
from lazygraph.dims import Dim, Size, SizeLike
from lazygraph.dtypes import DType, DTypeLike
from lazygraph.errors import DTypeError, ShapeError
from lazygraph.graph import SMALL, Graph
from lazygraph.origins import BodyInput, Constant, Input, Node, describe, frozen_array, same_graph, shape_text

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


class Tensor:
    """A value of a graph that is still to be computed: its element type and shape are known, its numbers are not.

    Attributes:
        graph: The graph it belongs to.
        dtype: Element type.
        known_shape: The sizes, or None when not even their number is known.
        origin: The node, input or constant that it comes from.
        index: Which output of its node it is.
        value: The numbers where they are known and small: integers and sizes (``Dim``), else None.
    """

    __slots__ = ("__weakref__", "dtype", "graph", "index", "known_shape", "origin", "value")

    # numpy gives way, so that ``array + tensor`` is ours.
    __array_ufunc__ = None

    def __init__(
        self, graph: Graph, dtype: DType, shape: Shape | None, origin: Node | Input | BodyInput | Constant, index: int
    ) -> None:
        self.graph = graph
        self.dtype = dtype
        self.known_shape = shape
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
        if self.known_shape is None:
            raise ShapeError(
                "the number of axes is not known while the graph is built",
                op="shape",
                operands={"tensor": describe(self)},
                hint="lg.declare_shape(x, [...]) says what you know of it",
            )
        return self.known_shape

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
        """Return a constant of this tensor's graph (see ``Graph.constant``)."""
        return self.graph.constant(array, name, dtype)

    def __repr__(self) -> str:
        return f"<Tensor {describe(self)}>"

    def _repr_html_(self) -> str:
        from lazygraph.printing import tensor_html

        return tensor_html(self)

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

    def __round__(self) -> Tensor:
        return language.round(self)

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
        """Return the tensor in another element type (see ``lazygraph.cast``)."""
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

    def prod(self, axis: int | Sequence[int] | None = None, keepdims: bool = False) -> Tensor:
        """Return the product over the axes (all when None)."""
        return language.reduce_prod(self, axis, keepdims)

    def any(self, axis: int | Sequence[int] | None = None, keepdims: bool = False) -> Tensor:
        """Return whether any element along the axes (all when None) is true; of bool."""
        return language.any(self, axis, keepdims)

    def all(self, axis: int | Sequence[int] | None = None, keepdims: bool = False) -> Tensor:
        """Return whether every element along the axes (all when None) is true; of bool."""
        return language.all(self, axis, keepdims)

    def var(self, axis: int | Sequence[int] | None = None, keepdims: bool = False, ddof: int = 0) -> Tensor:
        """Return the variance over the axes (all when None)."""
        return language.var(self, axis, keepdims, ddof)

    def std(self, axis: int | Sequence[int] | None = None, keepdims: bool = False, ddof: int = 0) -> Tensor:
        """Return the standard deviation over the axes (all when None)."""
        return language.std(self, axis, keepdims, ddof)

    def argmax(self, axis: int | None = None, keepdims: bool = False) -> Tensor:
        """Return where the maximum stands along the axis (of all elements when None)."""
        return language.argmax(self, axis, keepdims)

    def argmin(self, axis: int | None = None, keepdims: bool = False) -> Tensor:
        """Return where the minimum stands along the axis (of all elements when None)."""
        return language.argmin(self, axis, keepdims)

    def cumsum(self, axis: int | None = None) -> Tensor:
        """Return running sums along the axis (of all elements, row by row, when None)."""
        return language.cumsum(self, axis)

    def clip(self, min: Operand | None = None, max: Operand | None = None) -> Tensor:
        """Return the elements brought into ``[min, max]``."""
        return language.clip(self, min, max)

    def round(self) -> Tensor:
        """Return the nearest whole numbers, halves to the even one."""
        return language.round(self)

    def squeeze(self, axis: int | Sequence[int] | None = None) -> Tensor:
        """Return the tensor without the axes of size 1 (without those named)."""
        return language.squeeze(self, axis)

    def flatten(self) -> Tensor:
        """Return the elements along one axis, row by row, as numpy does; ONNX's Flatten is ``lg.flatten``."""
        return language.ravel(self)

    def ravel(self) -> Tensor:
        """Return the elements along one axis, row by row."""
        return language.ravel(self)

    def swapaxes(self, axis1: int, axis2: int) -> Tensor:
        """Return the tensor with two axes exchanged."""
        return language.swapaxes(self, axis1, axis2)


# Graphs make tensors, and tensors know their graph.
Graph.makes = Tensor

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
