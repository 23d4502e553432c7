"""Sizes: Python ints where they are known, and integer algebra over names where they are not.

This is the face of ``lazygraph.dimalgebra`` (what a size is), ``lazygraph.dimbounds`` (what is known of it),
``lazygraph.dimtext`` (how it is written) and ``lazygraph.assume`` (what was said to be equal).
"""

from __future__ import annotations

from lazygraph.assume import AssumedEqual, assume_equal
from lazygraph.dimalgebra import (
    Atom,
    Bounds,
    Dim,
    Monomial,
    Size,
    SizeLike,
    Terms,
    add,
    atoms,
    exact_quotient,
    floordiv,
    is_unknown,
    modulo,
    multiply,
    names,
    normal,
    product,
    size,
    subtract,
    terms_of,
    unknown,
)
from lazygraph.dimbounds import at_most, bounds, equal, evaluate, known, largest, smallest, substitute
from lazygraph.dimtext import as_size, parse
from lazygraph.filesizes import note_meeting, of_file

__all__ = [
    "AssumedEqual",
    "Atom",
    "Bounds",
    "Dim",
    "Monomial",
    "Size",
    "SizeLike",
    "Terms",
    "add",
    "as_size",
    "assume_equal",
    "at_most",
    "atoms",
    "bounds",
    "equal",
    "evaluate",
    "exact_quotient",
    "floordiv",
    "is_unknown",
    "known",
    "largest",
    "modulo",
    "multiply",
    "names",
    "normal",
    "note_meeting",
    "of_file",
    "parse",
    "product",
    "size",
    "smallest",
    "substitute",
    "subtract",
    "terms_of",
    "unknown",
]
