"""What is known of sizes: bounds, order, equality, and what was said to be equal.

Every named size is at least 0. Questions that algebra and bounds cannot decide are answered ``None`` ("it depends"),
never guessed.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce

from lazygraph.dimalgebra import (
    Atom,
    Bounds,
    Dim,
    Size,
    add,
    atoms,
    floordiv,
    modulo,
    multiply,
    new_atom,
    normal,
    subtract,
    terms_of,
)

# What lazygraph.assume was told: a name, and the size that it is read as.
assumed: dict[str, Size] = {}
_ONE: Bounds = (1, 1)


def smallest(*sizes: Size) -> Size:
    """Return the minimum, an int or one of the sizes where their order is known."""
    return _extreme("min", sizes, lambda a, b: at_most(a, b) is True)


def largest(*sizes: Size) -> Size:
    """Return the maximum, an int or one of the sizes where their order is known."""
    return _extreme("max", sizes, lambda a, b: at_most(b, a) is True)


def _extreme(kind: str, sizes: tuple[Size, ...], wins: Callable[[Size, Size], bool]) -> Size:
    kept: list[Size] = []
    for value in sizes:
        if any(wins(other, value) for other in kept):
            continue
        kept = [other for other in kept if not wins(value, other)] + [value]
    if len(kept) == 1:
        return kept[0]
    kept.sort(key=str)
    return new_atom(kind, f"{kind}({', '.join(map(str, kept))})", tuple(kept))


def evaluate(value: Size, sizes: dict[str, int]) -> int:
    """Return the size's number, given one for each name.

    Raises:
        KeyError: A name has no number.
    """
    total = 0
    for monomial, coefficient in terms_of(value).items():
        term = coefficient
        for atom in monomial:
            term *= _evaluate_atom(atom, sizes)
        total += term
    return total


def _evaluate_atom(atom: Atom, sizes: dict[str, int]) -> int:
    if atom.kind in ("size", "unknown"):
        return sizes[atom.text]
    args = [evaluate(arg, sizes) for arg in atom.args]
    if atom.kind == "floor":
        return args[0] // args[1]
    if atom.kind == "mod":
        return args[0] % args[1]
    return min(args) if atom.kind == "min" else max(args)


def substitute(value: Size, change: Callable[[Atom], Size | None]) -> Size:
    """Return the size with every atom replaced for which ``change`` has something."""
    if isinstance(value, int):
        return value
    total: Size = 0
    for monomial, coefficient in value.terms.items():
        term: Size = coefficient
        for atom in monomial:
            replacement = change(atom)
            if replacement is None and atom.args:
                replacement = _rebuild(atom, tuple(substitute(arg, change) for arg in atom.args))
            term = multiply(term, Dim({(atom,): 1}) if replacement is None else replacement)
        total = add(total, term)
    return total


def _rebuild(atom: Atom, args: tuple[Size, ...]) -> Size:
    if atom.kind == "floor":
        return floordiv(*args)
    if atom.kind == "mod":
        return modulo(*args)
    return smallest(*args) if atom.kind == "min" else largest(*args)


def bounds(value: Size) -> Bounds:
    """Return the least and the greatest number that the size can be; None where there is no bound."""
    if isinstance(value, int):
        return value, value
    if value.range is not None:
        return value.range
    low: int | None = 0
    high: int | None = 0
    for monomial, coefficient in value.terms.items():
        least, most = reduce(_times, map(_atom_bounds, monomial), _ONE)
        least, most = _times((least, most), (coefficient, coefficient))
        low = None if low is None or least is None else low + least
        high = None if high is None or most is None else high + most
    value.range = (low, high)
    return value.range


def _times(a: Bounds, b: Bounds) -> Bounds:
    if a == (0, 0) or b == (0, 0):
        return 0, 0
    corners = [_corner(x, y, s, t) for x, s in ((a[0], -1), (a[1], 1)) for y, t in ((b[0], -1), (b[1], 1))]
    return (
        None if any(c == "-inf" for c in corners) else min(c for c in corners if isinstance(c, int)),
        None if any(c == "inf" for c in corners) else max(c for c in corners if isinstance(c, int)),
    )


def _corner(x: int | None, y: int | None, s: int, t: int) -> int | str:
    """Return the product of two ends; an open end (None) is infinite in the direction of its sign."""
    if x is not None and y is not None:
        return x * y
    if x == 0 or y == 0:
        return 0
    sign = (s if x is None else (1 if x > 0 else -1)) * (t if y is None else (1 if y > 0 else -1))
    return "inf" if sign > 0 else "-inf"


def _atom_bounds(atom: Atom) -> Bounds:
    if atom.kind in ("size", "unknown"):
        return atom.low, atom.high
    ends = [bounds(arg) for arg in atom.args]
    lows, highs = [end[0] for end in ends], [end[1] for end in ends]
    if atom.kind == "min":
        known = [high for high in highs if high is not None]
        return (None if None in lows else min(x for x in lows if x is not None)), min(known, default=None)
    if atom.kind == "max":
        found = [low for low in lows if low is not None]
        return max(found, default=None), (None if None in highs else max(x for x in highs if x is not None))
    divisor, widest = lows[1], highs[1]
    if divisor is None or divisor < 1:
        return None, None
    least, most = lows[0], highs[0]
    if atom.kind == "mod":
        top = None if widest is None else widest - 1
        if least is not None and least >= 0 and most is not None:  # a % b is at most a
            top = most if top is None else min(top, most)
        return 0, top
    return _quotient_bounds(least, most, divisor, widest)


def _quotient_bounds(least: int | None, most: int | None, divisor: int, widest: int | None) -> Bounds:
    """Return the bounds of a floor division by something in ``[divisor, widest]``, which is at least 1."""
    low = None if least is None else least // divisor if least < 0 else 0 if widest is None else least // widest
    high = None if most is None else most // divisor if most >= 0 else -1 if widest is None else most // widest
    return low, high


def at_most(a: Size, b: Size) -> bool | None:
    """Return whether ``a <= b`` for all sizes (True), for none (False), or it depends (None)."""
    if isinstance(a, int) and isinstance(b, int):
        return a <= b
    return _sign(known(subtract(b, a)))


def _sign(difference: Size, depth: int = 4) -> bool | None:
    """Return whether the difference is never negative (True), always negative (False), or neither is sure."""
    low, high = bounds(difference)
    if low is not None and low >= 0:
        return True
    if high is not None and high < 0:
        return False
    if isinstance(difference, int) or not depth:
        return None

    # A minimum or maximum is one of its arguments: what holds for each of them holds for it.
    choice = next((atom for atom in atoms(difference) if atom.kind in ("min", "max")), None)
    if choice is not None:
        answers = {
            _sign(substitute(difference, lambda atom, arg=arg: arg if atom == choice else None), depth - 1)  # type: ignore[misc]
            for arg in choice.args
        }
        return answers.pop() if len(answers) == 1 else None
    return _sign_without_floor(difference, depth - 1)


def _sign_without_floor(difference: Dim, depth: int) -> bool | None:
    """Answer by bounding one floor division with a known divisor: ``a - (d - 1) <= d * (a // d) <= a``.

    ``d`` times the difference then lies between two sizes without that division. The difference is whole: it is at
    least 0 when ``d`` times it is above ``-d``, and negative when that is below 0.
    """
    for monomial, factor in difference.terms.items():
        if len(monomial) != 1 or monomial[0].kind != "floor" or not isinstance(monomial[0].args[1], int):
            continue
        above, divisor = monomial[0].args[0], monomial[0].args[1]
        if divisor < 1:
            continue
        rest = normal({m: c for m, c in difference.terms.items() if m != monomial})
        under = subtract(above, divisor - 1)
        least, most = (under, above) if factor > 0 else (above, under)
        rest = multiply(rest, divisor)
        if _sign(add(add(multiply(least, factor), rest), divisor - 1), depth):
            return True
        if _sign(add(multiply(most, factor), rest), depth) is False:
            return False
        return None
    return None


def equal(a: Size, b: Size) -> bool | None:
    """Return whether the sizes are equal: always (True), never (False), or it depends (None)."""
    if isinstance(a, int) and isinstance(b, int):
        return a == b
    if a is b or a == b:
        return True
    difference = known(subtract(a, b))
    if isinstance(difference, int):
        return difference == 0
    low, high = bounds(difference)
    if (low is not None and low > 0) or (high is not None and high < 0):
        return False
    return None


def known(value: Size) -> Size:
    """Return the size with every assumption applied. For comparing, not for showing."""
    if not assumed or isinstance(value, int):
        return value
    return substitute(value, lambda atom: assumed.get(atom.text) if atom.kind == "size" else None)
