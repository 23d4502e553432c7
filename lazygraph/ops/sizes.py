"""Sizes as tensors: the shape of a tensor, and named sizes computed from the shapes of inputs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast as typed

import numpy as np

from lazygraph import dims
from lazygraph.dims import Dim, Size, SizeLike
from lazygraph.dtypes import int64
from lazygraph.errors import ShapeError
from lazygraph.ops.checks import first
from lazygraph.ops.core import Attrs, Inputs, Results, apply, as_tensor, rule
from lazygraph.tensor import Graph, Tensor, describe


@rule("Shape")
def _shape_rule(op: str, inputs: Inputs, attrs: Attrs) -> Results:
    x = first(op, inputs)
    shape = x.known_shape
    return [(int64, None if shape is None else (len(shape[attrs.get("start", 0) : attrs.get("end")]),))]


@rule("Size")
def _size_rule(op: str, inputs: Inputs, attrs: Attrs) -> Results:
    first(op, inputs)
    return [(int64, ())]


def shape(x: Tensor, start: int = 0, end: int | None = None) -> Tensor:
    """Return the sizes of ``x`` from axis ``start`` to ``end`` as ``int64 (n,)``. Spec: ai.onnx::Shape."""
    attrs: Attrs = {**({"start": start} if start else {}), **({} if end is None else {"end": end})}
    return apply("Shape", x, **attrs)


def size_input(name: str, anchor: Tensor | Graph, min: int = 0, max: int | None = None) -> Tensor:
    """Return a new ``int64 ()`` input whose number is a size of that name: shapes can be computed with it.

    Args:
        name: Name of the input and of the size.
        anchor: A tensor of the graph that it joins.
        min: The least number it may be; whoever runs the graph keeps to it.
        max: The greatest, or None.

    Raises:
        OperandError: The name is taken.
        ShapeError: The graph knows a size of that name with other bounds, or the bounds leave nothing.
    """
    graph = anchor.graph if isinstance(anchor, Tensor) else anchor
    size = graph.size(dims.size(name, min, max))
    tensor = graph.input(name, int64, ())
    tensor.value = np.array(size, dtype=object)
    graph.size_tensors[size] = tensor
    return tensor


def size_tensor(size: SizeLike, anchor: Tensor) -> Tensor:
    """Return a size as an ``int64 ()`` tensor, computed from the shape of an input that has it.

    Raises:
        ShapeError: No input of the graph has an axis that tells it.
    """
    return _size_tensor(anchor.graph.size(size), anchor, frozenset())


def _size_tensor(size: Size, anchor: Tensor, sought: frozenset[dims.Atom]) -> Tensor:
    """Return a size, or a part of one (which may be negative), as a tensor.

    The names ``sought`` are being looked for and tell nothing yet.
    """
    if isinstance(size, int):
        return as_tensor("size_tensor", size, anchor, int64)
    if size in anchor.graph.size_tensors:
        return anchor.graph.size_tensors[size]

    try:
        result = _from_terms(size, anchor, sought)
    except ShapeError:
        found = _from_axes(size, anchor, sought)
        if found is None:
            raise
        result = found
    if result.value is None:  # Min, Max and Div do not follow sizes
        result.value = np.array(size, dtype=object)
    anchor.graph.size_tensors[size] = result
    return result


def _from_terms(size: Dim, anchor: Tensor, sought: frozenset[dims.Atom]) -> Tensor:
    """Return a size computed name by name."""
    total: Tensor | None = None
    for monomial, coefficient in size.terms.items():
        term: Tensor | None = None
        for atom in monomial:
            factor = _atom_tensor(atom, anchor, sought)
            term = factor if term is None else apply("Mul", term, factor)
        if term is None:
            term = as_tensor("size_tensor", coefficient, anchor, int64)
        elif coefficient != 1:
            term = apply("Mul", term, as_tensor("size_tensor", coefficient, anchor, int64))
        total = term if total is None else apply("Add", total, term)
    return typed(Tensor, total)


def _from_axes(size: Dim, anchor: Tensor, sought: frozenset[dims.Atom]) -> Tensor | None:
    """Return a size computed from an axis that holds several of its names at once, or None where there is none.

    Of an axis "past + seq" alone, neither name can be told, but "past + seq + 1" can.
    """
    for source, axis, whole in _places(anchor):
        if not isinstance(whole, Dim) or not sought.isdisjoint(_names(whole)):
            continue
        for monomial, coefficient in whole.terms.items():
            times, over = divmod(size.terms.get(monomial, 0), coefficient)
            rest = dims.subtract(size, dims.multiply(whole, times))
            if over or not times or (isinstance(rest, Dim) and len(rest.terms) >= len(size.terms)):
                continue
            try:
                left = None if rest == 0 else _size_tensor(rest, anchor, sought)
            except ShapeError:
                continue
            part = _axis_tensor(source, axis)
            if times != 1:
                part = apply("Mul", part, as_tensor("size_tensor", times, anchor, int64))
            return part if left is None else apply("Add", part, left)
    return None


def _places(anchor: Tensor) -> list[tuple[Tensor, int, Size]]:
    """Return every axis that can tell a size: those of the inputs, then the anchor's own."""
    sources = [*anchor.graph.inputs.values(), anchor]
    return [(source, axis, size) for source in sources for axis, size in enumerate(source.known_shape or ())]


def _atom_tensor(atom: dims.Atom, anchor: Tensor, sought: frozenset[dims.Atom]) -> Tensor:
    if atom.args:
        parts = [_size_tensor(arg, anchor, sought) for arg in atom.args]
        if atom.kind == "floor":
            return _floor_divided(parts[0], parts[1], dims.bounds(atom.args[0])[0], dims.bounds(atom.args[1])[0])
        op = {"mod": "Mod", "min": "Min", "max": "Max"}[atom.kind]
        result = apply(op, *parts[:2])
        for part in parts[2:]:
            result = apply(op, result, part)
        return result

    name = Dim({(atom,): 1})
    if name in anchor.graph.size_tensors:
        return anchor.graph.size_tensors[name]
    places = _places(anchor)
    for source, axis, size in places:
        if size == name:
            return _axis_tensor(source, axis)
    sought |= {atom}
    for source, axis, size in places:  # "past" from an axis of "past + seq" and one of "seq", "n" from one of "2*n"
        factor = size.terms.get((atom,), 0) if isinstance(size, Dim) else 0
        rest = dims.subtract(size, dims.multiply(name, factor))
        if not factor or not sought.isdisjoint(_names(rest)):
            continue
        try:
            whole = _axis_tensor(source, axis)
            whole = whole if rest == 0 else apply("Sub", whole, _size_tensor(rest, anchor, sought))
        except ShapeError:
            continue
        # The division leaves nothing over: the axis is so many times the name, whatever its sign.
        return whole if factor == 1 else apply("Div", whole, as_tensor("size_tensor", factor, anchor, int64))
    raise ShapeError(
        f"no input has an axis of size {atom.text}",
        op="size_tensor",
        operands={"anchor": describe(anchor)},
        expected="a size that the axes of this graph's inputs tell",
    )


def _names(size: Size) -> set[dims.Atom]:
    """Return every name that a size depends on."""
    found: set[dims.Atom] = set()
    for atom in dims.atoms(size):
        found |= {atom} if not atom.args else set().union(*map(_names, atom.args))
    return found


def _axis_tensor(x: Tensor, axis: int) -> Tensor:
    return apply("Squeeze", shape(x, axis, axis + 1), x.graph.ints((0,)))


def _floor_divided(a: Tensor, b: Tensor, least_a: int | None, least_b: int | None) -> Tensor:
    """Return ``a // b`` rounded down; ONNX's Div rounds towards zero."""
    if least_a is not None and least_a >= 0 and least_b is not None and least_b >= 0:
        return apply("Div", a, b)
    return apply("Div", apply("Sub", a, apply("Mod", a, b)), b)


def sizes_tensor(op: str, sizes: Sequence[SizeLike], anchor: Tensor) -> Tensor:
    """Return sizes as one ``int64 (n,)`` tensor, a constant where all are known."""
    from lazygraph.ops.joining import concat
    from lazygraph.ops.shaping import unsqueeze

    known = [size if isinstance(size, int) and size < 0 else anchor.graph.size(size) for size in sizes]
    if all(isinstance(size, int) for size in known):
        return anchor.graph.ints(typed("list[int]", known))
    parts: list[Tensor] = []
    run: list[int] = []
    for size in known:
        if isinstance(size, int):
            run.append(size)
            continue
        if run:
            parts.append(anchor.graph.ints(run))
            run = []
        parts.append(unsqueeze(size_tensor(size, anchor), 0))
    if run:
        parts.append(anchor.graph.ints(run))
    result = parts[0] if len(parts) == 1 else concat(parts, 0)
    if result.value is None:
        result.value = np.array(known, dtype=object)
    return result
