"""Element types: numpy's and ml_dtypes' names, with what ONNX calls them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from lazygraph.errors import DTypeError

if TYPE_CHECKING:
    from typing import TypeAlias


class DType:
    """An element type. One object per type: compare with ``==`` (a name works too) or ``is``.

    Attributes:
        name: numpy's or ml_dtypes' name, or ``string``.
        onnx: The number of ``onnx.TensorProto.DataType``; for sequences and optionals one of our own.
        bits: Bits per element (0 for strings).
        kind: ``f`` float, ``i`` signed, ``u`` unsigned, ``b`` bool, ``c`` complex, ``s`` string, ``q`` sequence,
            ``o`` optional.
        element: What a sequence or an optional holds; None for what tensors hold.
    """

    __slots__ = ("_numpy", "bits", "element", "key", "kind", "name", "onnx")

    def __init__(
        self, name: str, onnx: int, bits: int, kind: str, element: DType | None = None, key: DType | None = None
    ) -> None:
        self.element = element
        self.key = key
        self.name = name
        self.onnx = onnx
        self.bits = bits
        self.kind = kind
        self._numpy: np.dtype[Any] | None = None

    @property
    def numpy(self) -> np.dtype[Any]:
        """The numpy dtype; ml_dtypes is imported when the first of its types is asked for."""
        if self._numpy is None:
            self._numpy = _numpy_dtype(self.name)
        return self._numpy

    @property
    def is_float(self) -> bool:
        """Whether it is a floating-point type."""
        return self.kind == "f"

    @property
    def is_integer(self) -> bool:
        """Whether it is a signed or unsigned integer type."""
        return self.kind in "iu"

    @property
    def is_number(self) -> bool:
        """Whether it is neither bool nor string."""
        return self.kind in "fiuc"

    def nbytes(self, elements: int) -> int:
        """Return the bytes that so many elements take (4-bit types pack two to a byte)."""
        return (elements * self.bits + 7) // 8

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, str) and other == self.name)

    def __hash__(self) -> int:
        return hash(self.name)

    def __reduce__(self) -> tuple[Any, ...]:
        return as_dtype, (self.name,)

    def __repr__(self) -> str:
        return self.name


DTypeLike: TypeAlias = "DType | str | type[Any] | np.dtype[Any]"

# name, onnx.TensorProto number, bits, kind. Source: onnx.proto, TensorProto.DataType.
_TABLE = (
    ("float32", 1, 32, "f"),
    ("uint8", 2, 8, "u"),
    ("int8", 3, 8, "i"),
    ("uint16", 4, 16, "u"),
    ("int16", 5, 16, "i"),
    ("int32", 6, 32, "i"),
    ("int64", 7, 64, "i"),
    ("string", 8, 0, "s"),
    ("bool", 9, 8, "b"),
    ("float16", 10, 16, "f"),
    ("float64", 11, 64, "f"),
    ("uint32", 12, 32, "u"),
    ("uint64", 13, 64, "u"),
    ("complex64", 14, 64, "c"),
    ("complex128", 15, 128, "c"),
    ("bfloat16", 16, 16, "f"),
    ("float8_e4m3fn", 17, 8, "f"),
    ("float8_e4m3fnuz", 18, 8, "f"),
    ("float8_e5m2", 19, 8, "f"),
    ("float8_e5m2fnuz", 20, 8, "f"),
    ("uint4", 21, 4, "u"),
    ("int4", 22, 4, "i"),
    ("float4_e2m1fn", 23, 4, "f"),
    ("float8_e8m0fnu", 24, 8, "f"),
    ("uint2", 25, 2, "u"),
    ("int2", 26, 2, "i"),
)

_BY_NAME = {name: DType(name, onnx, bits, kind) for name, onnx, bits, kind in _TABLE}
_BY_ONNX = {dtype.onnx: dtype for dtype in _BY_NAME.values()}
_BY_NUMPY: dict[np.dtype[Any], DType] = {}  # numpy takes a microsecond to name a dtype
IN_NUMPY = frozenset(
    [
        "float16",
        "float32",
        "float64",
        "int8",
        "int16",
        "int32",
        "int64",
        "uint8",
        "uint16",
        "uint32",
        "uint64",
        "bool",
        "complex64",
        "complex128",
    ]
)

float32 = _BY_NAME["float32"]
float64 = _BY_NAME["float64"]
float16 = _BY_NAME["float16"]
bfloat16 = _BY_NAME["bfloat16"]
float8_e4m3fn = _BY_NAME["float8_e4m3fn"]
float8_e4m3fnuz = _BY_NAME["float8_e4m3fnuz"]
float8_e5m2 = _BY_NAME["float8_e5m2"]
float8_e5m2fnuz = _BY_NAME["float8_e5m2fnuz"]
float8_e8m0fnu = _BY_NAME["float8_e8m0fnu"]
float4_e2m1fn = _BY_NAME["float4_e2m1fn"]
int8 = _BY_NAME["int8"]
int16 = _BY_NAME["int16"]
int32 = _BY_NAME["int32"]
int64 = _BY_NAME["int64"]
uint8 = _BY_NAME["uint8"]
uint16 = _BY_NAME["uint16"]
uint32 = _BY_NAME["uint32"]
uint64 = _BY_NAME["uint64"]
int4 = _BY_NAME["int4"]
uint4 = _BY_NAME["uint4"]
int2 = _BY_NAME["int2"]
uint2 = _BY_NAME["uint2"]
bool_ = _BY_NAME["bool"]
complex64 = _BY_NAME["complex64"]
complex128 = _BY_NAME["complex128"]
string = _BY_NAME["string"]

# What an operator gives that nobody here knows, where its file does not say either.
untold = DType("untold", 0, 0, "?")


def sequence_of(dtype: DTypeLike) -> DType:
    """Return the type of a list of tensors of one element type, each with a shape of its own."""
    element = as_dtype(dtype)
    if element.element is not None and element.kind != "m":
        _refuse_nesting("sequence", element)
    return _holding("seq", element, 1000, "q")


def optional_of(dtype: DTypeLike) -> DType:
    """Return the type of a tensor, or of a sequence, that may be missing."""
    element = as_dtype(dtype)
    return _holding("optional", element, 2000, "o") if element.kind != "o" else _refuse_nesting("optional", element)


def map_of(key: DTypeLike, value: DTypeLike) -> DType:
    """Return the type of a map from whole numbers or texts to numbers or texts, as ai.onnx.ml's operators give it."""
    keys, values = as_dtype(key), as_dtype(value)
    if keys.kind not in "ius" or values.element is not None:
        raise DTypeError(f"a map from {keys} to {values}", op="dtype", expected="keys of an integer type or string")
    name = f"map({keys},{values})"
    found = _BY_NAME.get(name)
    if found is None:
        found = _BY_NAME[name] = DType(name, 3000 + 64 * keys.onnx + values.onnx, 0, "m", values, keys)
    return found


def _holding(word: str, element: DType, number: int, kind: str) -> DType:
    name = f"{word}({element})"
    found = _BY_NAME.get(name)
    if found is None:
        found = _BY_NAME[name] = DType(name, number + element.onnx, 0, kind, element)
    return found


def _refuse_nesting(word: str, element: DType) -> DType:
    raise DTypeError(f"{element} in a {word}", op="dtype", expected=f"a {word} of tensors")


def as_dtype(dtype: DTypeLike) -> DType:
    """Return the element type that a DType, a name or a numpy dtype means.

    Raises:
        DTypeError: Nothing in ONNX is called that.
    """
    if isinstance(dtype, DType):
        return dtype
    if isinstance(dtype, np.dtype):
        known = _BY_NUMPY.get(dtype)
        if known is not None:
            return known
    if isinstance(dtype, str):
        found = _BY_NAME.get(dtype)
        if found is None and dtype.endswith(")"):
            word, _, inner = dtype[:-1].partition("(")
            make = {"seq": sequence_of, "optional": optional_of}.get(word)
            found = None if make is None else make(inner)
            if word == "map" and inner.count(",") == 1:
                found = map_of(*inner.split(","))
    elif dtype is str:
        found = string
    else:
        try:
            described = np.dtype(dtype)
        except TypeError:
            described = None
        found = None if described is None else _BY_NAME.get("string" if described.kind in "UST" else described.name)
        if found is None and described is not None and described.kind == "O":
            found = string
    if found is None:
        raise DTypeError(
            f"{dtype!r} is not an element type",
            op="dtype",
            expected="one of " + ", ".join(name for name in _BY_NAME if "(" not in name),
        )
    if isinstance(dtype, np.dtype) and dtype.isnative:
        _BY_NUMPY[dtype] = found
    return found


def dtype_of_onnx(number: int) -> DType:
    """Return the element type of an ``onnx.TensorProto.DataType`` number.

    Raises:
        DTypeError: The number names none that lazygraph knows.
    """
    found = _BY_ONNX.get(number)
    if found is None:
        raise DTypeError(f"ONNX element type {number} is not known", op="dtype")
    return found


def _numpy_dtype(name: str) -> np.dtype[Any]:
    if name == "string" or name.endswith(")"):
        return np.dtype(object)
    if name in IN_NUMPY:
        return np.dtype(name)

    import ml_dtypes

    found: np.dtype[Any] = np.dtype(getattr(ml_dtypes, name))
    return found
