"""Types as a file declares them: element types, and what the sizes that it names mean."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from lazygraph import dims
from lazygraph.dims import Size
from lazygraph.dtypes import DType, dtype_of_onnx, map_of, optional_of, sequence_of, untold
from lazygraph.errors import DTypeError, ShapeError
from lazygraph.tensor import Shape

if TYPE_CHECKING:
    from onnx import GraphProto, TypeProto


class Sizes:
    """What the sizes of a file mean: its names, arithmetic over them where all of them are names of inputs.

    Attributes:
        met: Pairs of sizes that met and are taken for equal.
    """

    def __init__(self, proto: GraphProto) -> None:
        self.met: set[tuple[str, str]] = set()
        self._plain = {text for value in proto.input for text in _texts(value.type) if text.isidentifier()}
        self._known: dict[str, Size] = {}
        self._nameless = 0

    def shape(self, kind: TypeProto) -> Shape | None:
        """Return the shape of a tensor type; None where not even the number of axes is declared."""
        if not kind.tensor_type.HasField("shape"):
            return None
        return tuple([self._size(dim) for dim in kind.tensor_type.shape.dim])

    def _size(self, dim: Any) -> Size:
        if dim.HasField("dim_value") and dim.dim_value >= 0:
            return int(dim.dim_value)
        text = dim.dim_param.strip()
        if not text:
            self._nameless += 1
            return dims.unknown(f"size_{self._nameless}")
        found = self._known.get(text)
        if found is None:
            found = self._known[text] = self._named(text)
        return found

    def _named(self, text: str) -> Size:
        if not text.isidentifier():
            try:
                parsed = dims.parse(text)
            except ShapeError:
                parsed = 0
            if self._plain.issuperset(dims.names(parsed)) and dims.names(parsed):
                return dims.substitute(
                    parsed, lambda atom: dims.of_file(atom.text, self.met) if not atom.args else None
                )
        return dims.of_file(text, self.met)


def _texts(kind: TypeProto) -> Iterator[str]:
    return (dim.dim_param for dim in kind.tensor_type.shape.dim if dim.dim_param)


def declared_dtype(kind: TypeProto) -> DType:
    """Return the element type, or the sequence, optional or map, that a type means."""
    which = kind.WhichOneof("value")
    if which == "tensor_type":
        return dtype_of_onnx(kind.tensor_type.elem_type) if kind.tensor_type.elem_type else untold
    if which == "sequence_type":
        return sequence_of(declared_dtype(kind.sequence_type.elem_type))
    if which == "optional_type":
        return optional_of(declared_dtype(kind.optional_type.elem_type))
    if which == "map_type":
        return map_of(dtype_of_onnx(kind.map_type.key_type), declared_dtype(kind.map_type.value_type))
    raise DTypeError(f"{which} is not known here", op="load")


__all__ = ["Sizes", "declared_dtype"]
