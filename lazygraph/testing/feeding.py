"""hypothesis strategies for what a graph is fed: named sizes are drawn once and shared, element types kept."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from lazygraph import dims
from lazygraph.dims import Dim, Size
from lazygraph.dtypes import DType
from lazygraph.errors import OperandError
from lazygraph.export.subject import Given, Subject, Wanted, evaluated, subject_of

if TYPE_CHECKING:
    from hypothesis.strategies import DrawFn, SearchStrategy

Array: TypeAlias = "np.ndarray[Any, Any]"
Bounds: TypeAlias = "tuple[float, float] | SearchStrategy[Any]"

# Arrays of more elements are drawn from one number: element by element would take hypothesis too long.
_EACH = 64


def feeds(
    outputs_or_file: Given | Subject,
    bounds: Mapping[str, Bounds] | None = None,
    sizes: Mapping[str, int | tuple[int, int]] | None = None,
    max_size: int = 5,
) -> SearchStrategy[dict[str, Any]]:
    """Return a strategy for arrays by input name, as ``lg.realize`` takes them.

    A named size has one value in all inputs, and sizes that are computed from names follow. Numbers are drawn from
    -10 to 10 (unsigned ones from 0 to 10), so that results stay within reach of every element type.

    Args:
        outputs_or_file: Tensors by output name as for ``lg.save``, an .onnx file, or a model.
        bounds: By input name, the least and the largest number (whole ones for an index), or a strategy for elements.
        sizes: By size name, its value, or the least and the largest.
        max_size: The largest value of sizes that are bounded nowhere else.

    Raises:
        OperandError: A bound is of an input, or a size of a name, that the graph does not have.
    """
    from hypothesis import strategies as st

    given = outputs_or_file if isinstance(outputs_or_file, Subject) else subject_of(outputs_or_file)
    inputs = given.inputs
    _require_known("input", bounds or {}, inputs)
    named = {name: size for wanted in inputs.values() for size in wanted.shape or () for name in _names(size)}
    ranges = {name: _range(name, size, max_size) for name, size in named.items()}
    _require_known("size", sizes or {}, ranges)
    for name, asked in (sizes or {}).items():
        ranges[name] = (asked, asked) if isinstance(asked, int) else asked

    @st.composite
    def drawn(draw: DrawFn) -> dict[str, Any]:
        known = {name: draw(st.integers(*limits), label=name) for name, limits in ranges.items()}
        return {
            name: draw(_value(wanted, known, (bounds or {}).get(name), max_size), label=name)
            for name, wanted in inputs.items()
        }

    return drawn()


def _require_known(kind: str, given: Mapping[str, object], known: Mapping[str, object]) -> None:
    for name in given:
        if name not in known:
            raise OperandError(
                f"there is no {kind} {name!r}",
                op="feeds",
                expected=f"one of {', '.join(map(repr, known)) or 'none: nothing has a name'}",
            )


def _names(size: Size) -> list[str]:
    return [] if isinstance(size, int) or dims.is_unknown(size) else sorted(dims.names(size))


def _range(name: str, size: Size, most: int) -> tuple[int, int]:
    atom = next((atom for atom in dims.atoms(size) if atom.text == name), None) if isinstance(size, Dim) else None
    low, high = dims.bounds(Dim({(atom,): 1})) if atom is not None else (1, None)
    low = max(low or 0, 1)
    return low, max(low, most) if high is None else min(high, max(low, most))


def _value(wanted: Wanted, known: Mapping[str, int], bound: Bounds | None, most: int) -> SearchStrategy[Any]:
    from hypothesis import strategies as st

    dtype = wanted.dtype
    if dtype.kind == "o" and dtype.element is not None:
        return st.none() | _value(Wanted(dtype.element, None), known, bound, most)
    if dtype.kind == "q" and dtype.element is not None:
        return st.lists(_value(Wanted(dtype.element, None), known, bound, most), max_size=3)
    if wanted.shape is None:
        return st.lists(st.integers(0, most), max_size=3).flatmap(lambda shape: _array(dtype, tuple(shape), bound))
    free = st.integers(1, most)
    each = [st.just(n) if (n := evaluated(size, known)) is not None else free for size in wanted.shape]
    return st.tuples(*each).flatmap(lambda shape: _array(dtype, _possible(shape), bound))


def _possible(shape: tuple[int, ...]) -> tuple[int, ...]:
    from hypothesis import assume

    assume(all(size >= 0 for size in shape))  # n - 3 at n = 2
    return shape


def _array(dtype: DType, shape: tuple[int, ...], bound: Bounds | None) -> SearchStrategy[Array]:
    from hypothesis import strategies as st

    count = int(np.prod(shape, dtype=np.int64))
    each = _element(dtype, bound)
    if (isinstance(bound, tuple) or bound is None) and count > _EACH and dtype.kind != "s":
        return st.integers(0, 2**32 - 1).map(lambda seed: _random(dtype, shape, bound, seed))
    few = min(count, _EACH)
    return st.lists(each, min_size=few, max_size=few).map(lambda items: _filled(dtype, shape, items, count))


def _limits(dtype: DType, bound: tuple[float, float] | None) -> tuple[float, float]:
    if bound is not None:
        return bound
    if dtype.kind == "u":
        return 0, min(10, 2**dtype.bits - 1)
    if dtype.kind == "i":
        return max(-10, -(2 ** (dtype.bits - 1))), min(10, 2 ** (dtype.bits - 1) - 1)
    return (0, 1) if dtype.kind == "b" else (-10, 10) if dtype.bits > 8 else (-4, 4)


def _element(dtype: DType, bound: Bounds | None) -> SearchStrategy[Any]:
    from hypothesis import strategies as st

    if bound is not None and not isinstance(bound, tuple):
        return bound
    if dtype.kind == "s":
        return st.text(max_size=5)
    if dtype.kind == "b":
        return st.booleans()
    low, high = _limits(dtype, bound)
    if dtype.is_integer:
        return st.integers(int(low), int(high))
    real = (
        st.floats(low, high, width=32) if np.float32(low) == low and np.float32(high) == high else st.floats(low, high)
    )
    return st.builds(complex, real, real) if dtype.kind == "c" else real


def _random(dtype: DType, shape: tuple[int, ...], bound: tuple[float, float] | None, seed: int) -> Array:
    low, high = _limits(dtype, bound)
    random = np.random.default_rng(seed)
    if dtype.kind in "iub":
        return random.integers(int(low), int(high), shape, endpoint=True).astype(dtype.numpy)
    return random.uniform(low, high, shape).astype(dtype.numpy)


def _filled(dtype: DType, shape: tuple[int, ...], items: list[Any], count: int) -> Array:
    made = np.empty(count, dtype.numpy)
    for start in range(0, count, max(len(items), 1)):
        part = items[: count - start]
        made[start : start + len(part)] = np.array(part, dtype=object if dtype.kind == "s" else None).astype(
            dtype.numpy
        )
    return made.reshape(shape)


__all__ = ["feeds"]
