"""What was said to be equal: two declared sizes that are one."""

from __future__ import annotations

from lazygraph.dimalgebra import Size, SizeLike, atoms, multiply, names, normal, subtract, terms_of
from lazygraph.dimbounds import assumed, equal, known
from lazygraph.dimtext import as_size
from lazygraph.errors import ShapeError


class AssumedEqual:
    """What ``assume_equal`` said. As a context manager it takes that back at the end of the block."""

    def __init__(self, name: str, before: dict[str, Size]) -> None:
        self.name = name
        self._before = before

    def __enter__(self) -> AssumedEqual:
        return self

    def __exit__(self, *_: object) -> None:
        self.forget()

    def forget(self) -> None:
        """Take the assumption back (and any made since)."""
        assumed.clear()
        assumed.update(self._before)


def assume_equal(a: SizeLike, b: SizeLike) -> AssumedEqual:
    """State that two sizes are always equal; from here on they may meet in one place.

    Nothing is renamed: inputs keep the sizes that they were declared with. It holds for this process, or inside
    ``with lg.assume_equal("N", "M"):`` only.

    Raises:
        ShapeError: They cannot be equal, or no name in them can be solved for.
    """
    left, right = known(as_size(a)), known(as_size(b))
    before = dict(assumed)
    if left == right:
        return AssumedEqual(str(a), before)
    if equal(left, right) is False:
        raise ShapeError(f"{a} and {b} can never be equal", op="assume_equal", expected="sizes that can be equal")

    difference = subtract(left, right)
    # The later of the plain names gives way: "seq2" is read as "seq".
    for atom in reversed(atoms(difference)):
        coefficient = terms_of(difference).get((atom,), 0)
        others = normal({m: c for m, c in terms_of(difference).items() if m != (atom,)})
        if atom.kind == "size" and abs(coefficient) == 1 and atom.text not in names(others):
            assumed[atom.text] = multiply(others, -coefficient)
            for name, value in list(assumed.items()):
                assumed[name] = known(value)
            return AssumedEqual(atom.text, before)
    raise ShapeError(
        f"{a} == {b} cannot be solved for a name",
        op="assume_equal",
        expected="a name on one side that appears once, alone",
    )
