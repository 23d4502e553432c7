"""Sizes: Python ints where they are known, and integer algebra over names where they are not.

A :class:`Dim` is a polynomial with integer coefficients over atoms. An atom is a named size (``seq``), or a floor
division, remainder, minimum or maximum of sizes. Equal polynomials are equal dims, whatever way they were written;
a polynomial that turns out constant becomes an int at once, so ``Size`` is always ``int | Dim``.

Every named size is at least 0. Questions that algebra and bounds cannot decide are answered ``None`` ("it depends"),
never guessed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache, reduce
from typing import TYPE_CHECKING, Any, Union

from lazygraph.errors import ShapeError

if TYPE_CHECKING:
    from typing import TypeAlias

Size: TypeAlias = "Union[int, Dim]"
SizeLike: TypeAlias = "Union[int, str, Dim]"
Bounds: TypeAlias = "tuple[int | None, int | None]"


class Atom:
    """What a polynomial is over: a named size, or ``floor``, ``mod``, ``min``, ``max`` of sizes.

    Two named sizes of one name are one atom, whatever bounds they were declared with.
    """

    __slots__ = ("_hash", "args", "high", "kind", "low", "text")

    def __init__(self, kind: str, text: str, args: tuple[Size, ...] = (), low: int = 0, high: int | None = None) -> None:
        self.kind = kind
        self.text = text
        self.args = args
        self.low = low
        self.high = high
        self._hash = hash((kind, text))

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Atom) and self.kind == other.kind and self.text == other.text)

    def __hash__(self) -> int:
        return self._hash

    def __reduce__(self) -> tuple[Any, ...]:  # string hashes differ between processes
        return Atom, (self.kind, self.text, self.args, self.low, self.high)


Monomial: TypeAlias = "tuple[Atom, ...]"
Terms: TypeAlias = "dict[Monomial, int]"


class Dim:
    """A size that is known only by name; supports ``+ - * // %`` with ints and other sizes.

    ``==`` is structural equality (a string is parsed: ``dim == "past + seq"``). ``<``, ``bool`` and the like answer
    where bounds decide and raise :class:`ShapeError` where they do not.
    """

    __slots__ = ("_hash", "_text", "terms")

    def __init__(self, terms: Terms) -> None:
        self.terms = terms
        self._text = ""
        self._hash = 0

    def __add__(self, other: Size) -> Size:
        return add(self, other)

    def __radd__(self, other: int) -> Size:
        return add(other, self)

    def __sub__(self, other: Size) -> Size:
        return add(self, multiply(other, -1))

    def __rsub__(self, other: int) -> Size:
        return add(other, multiply(self, -1))

    def __mul__(self, other: Size) -> Size:
        return multiply(self, other)

    def __rmul__(self, other: int) -> Size:
        return multiply(other, self)

    def __neg__(self) -> Size:
        return multiply(self, -1)

    def __floordiv__(self, other: Size) -> Size:
        return floordiv(self, other)

    def __rfloordiv__(self, other: int) -> Size:
        return floordiv(other, self)

    def __mod__(self, other: Size) -> Size:
        return modulo(self, other)

    def __rmod__(self, other: int) -> Size:
        return modulo(other, self)

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if isinstance(other, Dim):
            return self.terms == other.terms
        return isinstance(other, str) and other == self._str_or_parsed(other)

    def _str_or_parsed(self, other: str) -> str:
        if other == str(self):
            return other
        try:
            return other if parse(other) == self else ""
        except ShapeError:
            return ""

    def __hash__(self) -> int:
        if not self._hash:
            self._hash = hash(str(self))  # as its text's, so that a set of sizes finds names too
        return self._hash

    def __le__(self, other: Size) -> bool:
        return self._decided(at_most(self, other), "<=", other)

    def __lt__(self, other: Size) -> bool:
        return self._decided(at_most(add(self, 1), other), "<", other)

    def __ge__(self, other: Size) -> bool:
        return self._decided(at_most(other, self), ">=", other)

    def __gt__(self, other: Size) -> bool:
        return self._decided(at_most(add(other, 1), self), ">", other)

    def __bool__(self) -> bool:
        low, high = bounds(self)
        if (low is not None and low > 0) or (high is not None and high < 0):
            return True
        raise ShapeError(
            f"whether {self} is 0 is not known while the graph is built",
            op="bool",
            expected="a size that is known, or a bound such as lg.size('seq', min=1)",
        )

    def _decided(self, answer: bool | None, sign: str, other: Size) -> bool:
        if answer is None:
            raise ShapeError(
                f"whether {self} {sign} {other} is not known while the graph is built",
                op=sign,
                expected="sizes whose order follows from their bounds",
                hint="give bounds with lg.size(name, min=..., max=...)",
            )
        return answer

    def __int__(self) -> int:
        raise ShapeError(
            f"the size {self} is known by name only; its number comes with the inputs",
            op="int",
            expected="a size that is known while the graph is built",
            hint="use the size itself in shapes, or lg.size_tensor(size, anchor=x) for an int64 scalar in the graph",
        )

    __index__ = __int__

    def __reduce__(self) -> tuple[Any, ...]:
        return Dim, (self.terms,)

    def __str__(self) -> str:
        if not self._text:
            self._text = _text(self.terms)
        return self._text

    __repr__ = __str__


def size(name: str, min: int = 0, max: int | None = None) -> Dim:
    """Return the named size, with the bounds that are known of it (both inclusive).

    Raises:
        ShapeError: The name is no identifier, or the bounds leave nothing.
    """
    if not name.isidentifier():
        raise ShapeError(f"{name!r} cannot name a size", op="size", expected="an identifier such as 'seq'")
    if min < 0 or (max is not None and max < min):
        raise ShapeError(f"{name} cannot lie in [{min}, {max}]", op="size", expected="0 <= min <= max")
    if min == 0 and max is None:
        return _symbol(name)
    return Dim({(Atom("size", name, low=min, high=max),): 1})


def unknown(name: str, high: int | None = None) -> Dim:
    """Return a size that only the run can tell, such as the number of nonzero elements."""
    return Dim({(Atom("unknown", name, high=high),): 1})


def is_unknown(value: Size) -> bool:
    """Return whether the size depends on one that only the run can tell."""
    return isinstance(value, Dim) and any(
        atom.kind == "unknown" or any(map(is_unknown, atom.args)) for monomial in value.terms for atom in monomial
    )


@lru_cache(maxsize=4096)
def _symbol(name: str) -> Dim:
    return Dim({(Atom("size", name),): 1})


def normal(terms: Terms) -> Size:
    """Return the size of these terms, an int when no name is left."""
    terms = {monomial: coefficient for monomial, coefficient in terms.items() if coefficient}
    if not terms:
        return 0
    if len(terms) == 1 and () in terms:
        return terms[()]
    return Dim(terms)


def terms_of(value: Size) -> Terms:
    return value.terms if isinstance(value, Dim) else ({(): value} if value else {})


def add(a: Size, b: Size) -> Size:
    if isinstance(a, int) and isinstance(b, int):
        return a + b
    terms = dict(terms_of(a))
    for monomial, coefficient in terms_of(b).items():
        terms[monomial] = terms.get(monomial, 0) + coefficient
    return normal(terms)


def subtract(a: Size, b: Size) -> Size:
    return a - b if isinstance(a, int) and isinstance(b, int) else add(a, multiply(b, -1))


def multiply(a: Size, b: Size) -> Size:
    if isinstance(a, int):
        if isinstance(b, int):
            return a * b
        a, b = b, a
    if b == 1:
        return a
    terms: Terms = {}
    for left, x in terms_of(a).items():
        for right, y in terms_of(b).items():
            monomial = tuple(sorted(left + right, key=_by_text)) if left and right else left or right
            terms[monomial] = terms.get(monomial, 0) + x * y
    return normal(terms)


def product(sizes: Iterable[Size]) -> Size:
    """Return the product of the sizes, 1 for none."""
    number = 1
    named: Size | None = None
    for value in sizes:
        if isinstance(value, int):
            number *= value
        else:
            named = value if named is None else multiply(named, value)
    return number if named is None else multiply(named, number)


def exact_quotient(a: Size, b: Size) -> Size | None:
    """Return the size ``q`` with ``a == q * b`` as polynomials, or None when there is none."""
    if isinstance(a, int) and isinstance(b, int):
        return a // b if b and a % b == 0 else None
    rest, divisor = dict(terms_of(a)), terms_of(b)
    if not divisor:
        return None
    head = max(divisor, key=_rank)
    quotient: Terms = {}
    while rest:
        lead = max(rest, key=_rank)
        monomial = _without(lead, head)
        if monomial is None or rest[lead] % divisor[head]:
            return None
        factor = rest[lead] // divisor[head]
        quotient[monomial] = quotient.get(monomial, 0) + factor
        for other, coefficient in divisor.items():
            key = tuple(sorted(monomial + other, key=_by_text))
            rest[key] = rest.get(key, 0) - factor * coefficient
            if not rest[key]:
                del rest[key]
    return normal(quotient)


def floordiv(a: Size, b: Size) -> Size:
    """Return ``a // b``, rounded down as Python does; simplified where the polynomial divides."""
    if b == 0:
        raise ShapeError(f"{a} // 0", op="//", expected="a divisor that is not 0")
    if isinstance(a, int) and isinstance(b, int):
        return a // b
    exact = exact_quotient(a, b)
    if exact is not None:
        return exact

    if isinstance(b, int):  # whole multiples of b come out: (8*n + r) // 8 == n + r // 8
        whole: Terms = {}
        rest: Terms = {}
        for monomial, coefficient in terms_of(a).items():
            quotient, remainder = divmod(coefficient, b)
            whole[monomial] = quotient
            rest[monomial] = remainder
        left = normal(rest)
        if left != a:
            return add(normal(whole), floordiv(left, b))
    return _atom("floor", f"{_wrapped(a)}//{_wrapped(b)}", (a, b))


def modulo(a: Size, b: Size) -> Size:
    """Return ``a % b`` as Python has it."""
    if b == 0:
        raise ShapeError(f"{a} % 0", op="%", expected="a divisor that is not 0")
    if isinstance(a, int) and isinstance(b, int):
        return a % b
    if exact_quotient(a, b) is not None:
        return 0
    if isinstance(b, int):
        rest = normal({monomial: coefficient % b for monomial, coefficient in terms_of(a).items()})
        if rest != a:
            return modulo(rest, b)
    return _atom("mod", f"{_wrapped(a)}%{_wrapped(b)}", (a, b))


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
    return _atom(kind, f"{kind}({', '.join(map(str, kept))})", tuple(kept))


def _atom(kind: str, text: str, args: tuple[Size, ...]) -> Dim:
    return Dim({(Atom(kind, text, args),): 1})


def _by_text(atom: Atom) -> str:
    return atom.text


def _rank(monomial: Monomial) -> tuple[int, tuple[str, ...]]:
    """A monomial order (graded lexicographic): products keep it, so long division ends."""
    return len(monomial), tuple(atom.text for atom in monomial)


def _without(monomial: Monomial, part: Monomial) -> Monomial | None:
    rest = list(monomial)
    for atom in part:
        if atom not in rest:
            return None
        rest.remove(atom)
    return tuple(rest)


def _wrapped(value: Size) -> str:
    return f"({value})" if isinstance(value, Dim) and not str(value).isidentifier() else str(value)


def _text(terms: Terms) -> str:
    parts: list[str] = []
    # Names before numbers, positive before negative, then by text: "past + seq - 1".
    for monomial, coefficient in sorted(terms.items(), key=lambda t: (-len(t[0]), t[1] < 0, _rank(t[0]))):
        factors = [f"({a.text})" if a.kind in ("floor", "mod") and len(terms) + len(monomial) > 2 else a.text for a in monomial]
        if abs(coefficient) != 1 or not monomial:
            factors.insert(0, str(abs(coefficient)))
        sign = "-" if coefficient < 0 else "+"
        parts.append(f"{sign} {'*'.join(factors)}")
    first = parts[0]
    parts[0] = first[2:] if first[0] == "+" else f"-{first[2:]}"
    return " ".join(parts)


def atoms(value: Size) -> tuple[Atom, ...]:
    """Return the polynomial's atoms, each once, in the order of their text."""
    return tuple(sorted({atom for monomial in terms_of(value) for atom in monomial}, key=_by_text))


def names(value: Size) -> tuple[str, ...]:
    """Return every name that the size depends on, those inside floor, mod, min and max too."""
    found: set[str] = set()
    for atom in atoms(value):
        found.update([atom.text] if not atom.args else [n for arg in atom.args for n in names(arg)])
    return tuple(sorted(found))


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
    low: int | None = 0
    high: int | None = 0
    for monomial, coefficient in value.terms.items():
        least, most = reduce(_times, map(_atom_bounds, monomial), (1, 1))
        least, most = _times((least, most), (coefficient, coefficient))
        low = None if low is None or least is None else low + least
        high = None if high is None or most is None else high + most
    return low, high


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
    divisor = lows[1]
    if divisor is None or divisor < 1:
        return None, None
    if atom.kind == "mod":
        return 0, None if highs[1] is None else highs[1] - 1
    return (0 if lows[0] is not None and lows[0] >= 0 else None), (None if highs[0] is None else max(highs[0], 0) // divisor)


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

    # A minimum or maximum is one of its arguments: what holds for each of them holds for it.
    choice = next((atom for atom in atoms(difference) if atom.kind in ("min", "max")), None)
    if choice is None or not depth:
        return None
    answers = {
        _sign(substitute(difference, lambda atom, arg=arg: arg if atom == choice else None), depth - 1)  # type: ignore[misc]
        for arg in choice.args
    }
    return answers.pop() if len(answers) == 1 else None


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


def parse(text: str) -> Size:
    """Return the size that a declaration such as ``"seq"`` or ``"past + seq"`` means.

    Raises:
        ShapeError: It is no name and no arithmetic over names.
    """
    if text.isidentifier():
        return _symbol(text)
    from lazygraph.dimtext import parse_size

    return parse_size(text)


def as_size(value: SizeLike) -> Size:
    """Return an int or a Dim for what a user writes as a size.

    Raises:
        ShapeError: It is negative, or no size at all.
    """
    if isinstance(value, Dim):
        return value
    if isinstance(value, str):
        return parse(value)
    try:
        number = int(value.__index__())
    except (AttributeError, TypeError):
        raise ShapeError(f"{value!r} is not a size", op="shape", expected="an int or a name") from None
    if number < 0:
        raise ShapeError(f"a size cannot be {number}", op="shape", expected="an int of at least 0 or a name")
    return number


# ---- what was said to be equal ------------------------------------------------------------------------------------

_assumed: dict[str, Size] = {}


class AssumedEqual:
    """What :func:`assume_equal` said. As a context manager it takes that back at the end of the block."""

    def __init__(self, name: str, before: dict[str, Size]) -> None:
        self.name = name
        self._before = before

    def __enter__(self) -> AssumedEqual:
        return self

    def __exit__(self, *_: object) -> None:
        self.forget()

    def forget(self) -> None:
        """Take the assumption back (and any made since)."""
        _assumed.clear()
        _assumed.update(self._before)


def assume_equal(a: SizeLike, b: SizeLike) -> AssumedEqual:
    """State that two sizes are always equal; from here on they may meet in one place.

    Nothing is renamed: inputs keep the sizes that they were declared with. It holds for this process, or inside
    ``with lg.assume_equal("N", "M"):`` only.

    Raises:
        ShapeError: They cannot be equal, or no name in them can be solved for.
    """
    left, right = known(as_size(a)), known(as_size(b))
    before = dict(_assumed)
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
            _assumed[atom.text] = multiply(others, -coefficient)
            for name, value in list(_assumed.items()):
                _assumed[name] = known(value)
            return AssumedEqual(atom.text, before)
    raise ShapeError(
        f"{a} == {b} cannot be solved for a name",
        op="assume_equal",
        expected="a name on one side that appears once, alone",
    )


def known(value: Size) -> Size:
    """Return the size with every assumption applied. For comparing, not for showing."""
    if not _assumed or isinstance(value, int):
        return value
    return substitute(value, lambda atom: _assumed.get(atom.text) if atom.kind == "size" else None)
