"""Sizes that a file names. They are no rule, as declared ones are: what they meet is taken for equal, and noted."""

from __future__ import annotations

from lazygraph.dimalgebra import Dim, Size, atoms, unknown


def of_file(name: str, met: set[tuple[str, str]]) -> Dim:
    """Return a size that a file names; what it meets is taken for equal, and noted in ``met``."""
    made = unknown(name)
    for atom in atoms(made):
        atom.met = met
    return made


def note_meeting(a: Size, b: Size) -> None:
    """Note that two sizes met, where one of them is a file's."""
    for atom in (*atoms(a), *atoms(b)):
        if atom.met is not None:
            first, second = sorted((str(a), str(b)))
            atom.met.add((first, second))
            return
