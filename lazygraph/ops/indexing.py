"""``x[key]`` with numpy's meaning: ints, slices, None, Ellipsis, index arrays and masks."""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple
from typing import cast as typed

import numpy as np

from lazygraph.dims import Dim, Size
from lazygraph.dtypes import bool_, int64
from lazygraph.errors import IndexRangeError, OperandError, ShapeError
from lazygraph.ops.checks import INTEGER, broadcast, meet, rows
from lazygraph.ops.core import as_tensor, known_ints
from lazygraph.ops.gathering import gather, gather_nd
from lazygraph.ops.joining import concat
from lazygraph.ops.logic import cast
from lazygraph.ops.searching import compress, non_zero
from lazygraph.ops.shaping import expand, transpose, unsqueeze
from lazygraph.ops.sizes import shape as sizes_of
from lazygraph.ops.sizes import size_tensor, sizes_tensor
from lazygraph.ops.slicing import TO_THE_END, TO_THE_FRONT, slice
from lazygraph.tensor import Shape, Tensor, describe, shape_text

if TYPE_CHECKING:
    from typing import TypeAlias

Key: TypeAlias = Any
Bound: TypeAlias = "Size | Tensor | None"

_WHAT = "ints, slices, None, ..., integer arrays or boolean masks"


class Cut(NamedTuple):
    """One slice of a key: its bounds (None, sizes or ``int64 ()`` tensors) and its step."""

    start: Bound
    stop: Bound
    step: int

    @property
    def whole(self) -> bool:
        """Whether it takes the axis as it is."""
        return (
            self.step == 1
            and self.stop is None
            and (self.start is None or (type(self.start) is int and self.start == 0))
        )


class Place(NamedTuple):
    """What a key says of one axis (or of none, for a new axis): exactly one of the fields is set."""

    cut: Cut | None = None
    array: Tensor | None = None
    new: bool = False


def places_of(op: str, x: Tensor, key: Key) -> list[Place]:
    """Return what the key says, axis by axis; Ellipsis and missing axes spelled out, masks turned into index arrays.

    Raises:
        IndexRangeError: Too many indices, or a constant one out of range.
        ShapeError: A step of 0, or a mask whose sizes are not those of the axes that it covers.
        OperandError: Something that is no index, or more than one Ellipsis.
    """
    keys = list(key) if isinstance(key, tuple) else [key]
    entries = [_entry(op, x, item) for item in keys]
    ellipses = [i for i, entry in enumerate(entries) if entry is Ellipsis]
    if len(ellipses) > 1:
        raise OperandError("more than one ...", op=op, operands=rows({"x": x}), expected="at most one")
    rank = len(x.shape)
    taken = sum(map(_axes_taken, entries))
    if taken > rank:
        raise IndexRangeError(
            f"{taken} indices for {rank} axes", op=op, operands=rows({"x": x}), expected=f"at most {rank} indices"
        )
    missing: list[Any] = [Cut(None, None, 1)] * (rank - taken)
    where = ellipses[0] if ellipses else len(entries)
    entries = entries[:where] + missing + entries[where + 1 :]

    places: list[Place] = []
    axis = 0
    for entry in entries:
        if entry is None:
            places.append(Place(new=True))
            continue
        if isinstance(entry, Cut):
            places.append(Place(cut=entry))
        elif entry.dtype is bool_:
            _same_sizes(op, x, axis, entry)
            places += [Place(array=index) for index in _mask_indices(entry)]
        else:
            _in_range(op, x, axis, entry)
            places.append(Place(array=entry))
        axis += _axes_taken(entry)
    return places


def _axes_taken(entry: Any) -> int:
    if entry is None or entry is Ellipsis:
        return 0
    return len(entry.shape) if isinstance(entry, Tensor) and entry.dtype is bool_ else 1


def _entry(op: str, x: Tensor, item: Any) -> Any:
    """Return one part of a key as None, Ellipsis, a Cut, or an index or mask tensor."""
    if item is None or item is Ellipsis:
        return item
    if isinstance(item, builtins.slice):
        step = 1 if item.step is None else item.step
        if isinstance(step, bool) or not isinstance(step, (int, np.integer)):
            raise OperandError(f"a step is {step!r}", op=op, operands=rows({"x": x}), expected="steps that are ints")
        if step == 0:
            raise ShapeError("a step is 0", op=op, operands=rows({"x": x}), expected="steps other than 0")
        return Cut(_bound(op, x, item.start), _bound(op, x, item.stop), int(step))
    if isinstance(item, (bool, np.bool_)):
        raise OperandError(f"{item} is no index", op=op, operands=rows({"x": x}), expected=_WHAT)
    if isinstance(item, Tensor):
        if item.dtype is bool_ and item.shape:
            return item
        if item.dtype.name not in INTEGER.names:
            raise OperandError(
                f"a {item.dtype} tensor is no index",
                op=op,
                operands={"x": describe(x), "index": describe(item)},
                expected=_WHAT,
            )
        return item if item.dtype.name in ("int64", "int32") else cast(item, int64)
    if isinstance(item, Dim):
        return size_tensor(item, x)
    if isinstance(item, (int, np.integer)):
        return x.graph.small(np.array(_held(int(item)), dtype=np.int64))
    if isinstance(item, (list, np.ndarray)):
        array = np.asarray(item) if np.size(item) else np.asarray(item).astype(np.int64)
        if array.dtype.kind == "b" and array.ndim:
            return x.graph.small(array.copy())
        if array.dtype.kind in "iu":
            return x.graph.small(array.astype(np.int64))
    raise OperandError(f"{item!r} is no index", op=op, operands=rows({"x": x}), expected=_WHAT)


def _bound(op: str, x: Tensor, value: Any) -> Bound:
    if value is None or isinstance(value, Dim):
        return typed("Bound", value)
    if isinstance(value, str):
        return x.graph.size(value)
    if isinstance(value, Tensor):
        if value.dtype.name not in INTEGER.names or value.shape not in ((), (1,)):
            raise OperandError(
                f"a bound is {value.dtype} {shape_text(value.shape)}",
                op=op,
                operands={"x": describe(x), "bound": describe(value)},
                expected="bounds that are sizes or integer scalars",
            )
        known = known_ints(value)
        return known[0] if known is not None else cast(value, int64)
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        raise OperandError(f"a bound is {value!r}", op=op, operands=rows({"x": x}), expected="bounds that are sizes")
    return _held(int(value))


def _held(value: int) -> int:
    return max(TO_THE_FRONT, min(value, TO_THE_END))


def _in_range(op: str, x: Tensor, axis: int, index: Tensor) -> None:
    size, value = x.shape[axis], index.value
    if value is None or value.dtype == object or not isinstance(size, int):
        return
    wrong = value[(value < -size) | (value >= size)]
    if wrong.size:
        raise IndexRangeError(
            f"index {int(wrong.flat[0])} of axis {axis} of size {size}",
            op=op,
            operands=rows({"x": x}),
            expected=f"indices in [{-size}, {size})" if size else "no index: the axis is empty",
            index=int(wrong.flat[0]),
            axis=axis,
        )


def _same_sizes(op: str, x: Tensor, axis: int, mask: Tensor) -> None:
    covered = x.shape[axis : axis + len(mask.shape)]
    if any(meet(a, b) is None for a, b in zip(covered, mask.shape, strict=True)):
        raise ShapeError(
            f"the mask is {shape_text(mask.shape)}, the axes that it covers are {shape_text(covered)}",
            op=op,
            operands=rows({"x": x, "mask": mask}),
            expected="a mask of the sizes that it covers",
        )


def _mask_indices(mask: Tensor) -> list[Tensor]:
    """Return one ``int64 (n,)`` tensor per axis of the mask: where it holds."""
    if mask.value is not None:
        return [mask.graph.small(index.astype(np.int64)) for index in np.nonzero(mask.value)]
    found = non_zero(mask)
    return [gather(found, axis) for axis in range(len(mask.shape))]


# ---- reading ----


def getitem(x: Tensor, key: Key) -> Tensor:
    """Return the part of ``x`` that a key names, as numpy's basic and advanced indexing have it.

    Args:
        x: ``T``.
        key: Ints (sizes and scalar integer tensors too), slices, None, Ellipsis, integer arrays, lists or tensors,
            boolean masks; or a tuple of these. Integer arrays broadcast together; a mask's result has a size that
            only the run can tell.

    Raises:
        IndexRangeError: Too many indices, or a constant one out of range.
        ShapeError: A step of 0, a mask of other sizes, index arrays that do not broadcast.
        OperandError: Something that is no index.

    Spec: ai.onnx::Slice, Gather, GatherND, Compress, NonZero.
    """
    if isinstance(key, Tensor) and key.dtype is bool_ and len(key.shape) == 1 and key.value is None and x.shape:
        _same_sizes("getitem", x, 0, key)
        return compress(x, key, axis=0)

    places = places_of("getitem", x, key)
    axes = [place for place in places if not place.new]
    x = _sliced(x, [place.cut for place in axes])
    arrays = [axis for axis, place in enumerate(axes) if place.array is not None]
    if any(typed(Tensor, axes[axis].array).shape for axis in arrays):
        return _advanced(x, places)

    for axis in reversed(arrays):
        x = gather(x, typed(Tensor, axes[axis].array), axis)
    left = [place for place in places if place.array is None]
    return _with_new_axes(x, [i for i, place in enumerate(left) if place.new])


def _with_new_axes(x: Tensor, new: list[int]) -> Tensor:
    return unsqueeze(x, new) if new else x


def _sliced(x: Tensor, cuts: Sequence[Cut | None]) -> Tensor:
    """Return ``x`` with all slices applied: those of known bounds in one node, each of tensors in one of its own."""
    known: list[tuple[int, Cut]] = []
    run_time: list[tuple[int, Cut]] = []
    for axis, cut in enumerate(cuts):
        if cut is None or cut.whole:
            continue
        (run_time if isinstance(cut.start, Tensor) or isinstance(cut.stop, Tensor) else known).append((axis, cut))
    if known:
        starts, stops = zip(*[ends(cut) for _, cut in known], strict=True)
        x = slice(
            x,
            typed("list[Size]", starts),
            typed("list[Size]", stops),
            [axis for axis, _ in known],
            [cut.step for _, cut in known],
        )
    for axis, cut in run_time:
        first, last = [
            end
            if isinstance(end, Tensor)
            else as_tensor("getitem", end, x, int64)
            if isinstance(end, Dim)
            else x.graph.ints([end])
            for end in ends(cut)
        ]
        x = slice(x, _as_list(first), _as_list(last), [axis], [cut.step])
    return x


def _as_list(bound: Tensor) -> Tensor:
    return bound if bound.shape else unsqueeze(bound, 0)


def ends(cut: Cut) -> tuple[Any, Any]:
    """Return the bounds in ONNX's terms. "To the front" is never INT_MAX, which runtimes read in two ways."""
    start, stop, step = cut
    if start is None:
        start = 0 if step > 0 else TO_THE_END
    if stop is None:
        stop = TO_THE_END if step > 0 else TO_THE_FRONT
    elif step < 0 and isinstance(stop, int) and stop >= 2**31 - 1:
        stop = -1  # Python: nothing lies behind the end; backwards from the last element up to it leaves nothing
    return start, stop


def _advanced(x: Tensor, places: Sequence[Place]) -> Tensor:
    """Return ``x`` (its slices done) read by index arrays."""
    axes = [place for place in places if not place.new]
    indexed = [axis for axis, place in enumerate(axes) if place.array is not None]
    arrays = [typed(Tensor, axes[axis].array) for axis in indexed]
    before, adjacent = layout(places)
    rest = [place for place in places if place.array is None]
    if len(arrays) == 1:
        x = gather(x, arrays[0], indexed[0])
        return _with_new_axes(x, _new_axes(rest, before, len(arrays[0].shape)))

    together = broadcast_indices("getitem", arrays)
    others = [axis for axis in range(len(axes)) if axis not in indexed]
    if indexed != list(range(len(indexed))):
        x = transpose(x, indexed + others)
    x = gather_nd(x, concat([unsqueeze(index, -1) for index in together], -1))
    width = len(together[0].shape)
    front = sum(1 for place in rest[:before] if not place.new)
    if adjacent and front:  # numpy leaves the arrays' axes where the arrays stood
        x = transpose(x, [*range(width, width + front), *range(width), *range(width + front, len(x.shape))])
    return _with_new_axes(x, _new_axes(rest, before, width))


def layout(places: Sequence[Place]) -> tuple[int, bool]:
    """Return before which of the other places the index arrays' axes come, and whether the arrays stand together."""
    at = [i for i, place in enumerate(places) if place.array is not None]
    adjacent = at == list(range(at[0], at[0] + len(at)))
    return (at[0] if adjacent else 0), adjacent


def _new_axes(rest: Sequence[Place], before: int, width: int) -> list[int]:
    return [i if i < before else i + width for i, place in enumerate(rest) if place.new]


def broadcast_indices(op: str, arrays: Sequence[Tensor]) -> list[Tensor]:
    """Return the index tensors as ``int64`` of one common shape.

    Raises:
        ShapeError: They do not broadcast.
    """
    shape = typed(Shape, broadcast(op, {f"index {i}": array for i, array in enumerate(arrays)}))
    found: list[Tensor] = []
    for array in arrays:
        wide = cast(array, int64)
        if wide.shape != shape:
            numbers = wide.value
            if numbers is not None and numbers.dtype != object and all(isinstance(size, int) for size in shape):
                wide = wide.graph.small(np.broadcast_to(numbers, typed("tuple[int, ...]", shape)).copy())
            else:
                whole = next((other for other in arrays if other.shape == shape), None)
                wide = expand(wide, sizes_tensor(op, shape, array) if whole is None else sizes_of(whole))
        found.append(wide)
    return found


__all__ = ["Cut", "Key", "Place", "broadcast_indices", "ends", "getitem", "layout", "places_of"]
