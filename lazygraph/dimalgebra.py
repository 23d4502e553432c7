"""Integer algebra over named sizes: polynomials whose atoms are names, floor divisions, remainders, minima, maxima.

A ``Dim`` is a polynomial with integer coefficients over atoms. Equal polynomials are equal dims, whatever way they
were written; a polynomial that turns out constant becomes an int at once, so ``Size`` is always ``int | Dim``.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from lazygraph.errors import ShapeError

if TYPE_CHECKING:
    from typing import TypeAlias

Size: TypeAlias = "int | Dim"
SizeLike: TypeAlias = "int | str | Dim"
Bounds: TypeAlias = "tuple[int | None, int | None]"


class Atom:
    """What a polynomial is over: a named size, or ``floor``, ``mod``, ``min``, ``max`` of sizes.

    Two named sizes of one name are one atom, whatever bounds they were declared with.
    """

    __slots__ = ("_hash", "args", "high", "kind", "low", "met", "text")

    def __init__(
        self, kind: str, text: str, args: tuple[Size, ...] = (), low: int = 0, high: int | None = None
    ) -> None:
        self.kind = kind
        self.text = text
        self.args = args
        self.low = low
        self.high = high
        self._hash = hash((kind, text))
        self.met: set[tuple[str, str]] | None = None  # of a file's sizes: which of them met, and are taken for equal

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
    where bounds decide and raise ``ShapeError`` where they do not.
    """

    __slots__ = ("_hash", "_text", "range", "terms")

    def __init__(self, terms: Terms) -> None:
        self.terms = terms
        self._text = ""
        self.range: Bounds | None = None  # found once, by lazygraph.dimbounds
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
        from lazygraph.dimtext import parse

        try:
            return other if parse(other) == self else ""
        except ShapeError:
            return ""

    def __hash__(self) -> int:
        if not self._hash:
            self._hash = hash(str(self))  # as its text's, so that a set of sizes finds names too
        return self._hash

    def __le__(self, other: Size) -> bool:
        return self._decided(_at_most(self, other), "<=", other)

    def __lt__(self, other: Size) -> bool:
        return self._decided(_at_most(add(self, 1), other), "<", other)

    def __ge__(self, other: Size) -> bool:
        return self._decided(_at_most(other, self), ">=", other)

    def __gt__(self, other: Size) -> bool:
        return self._decided(_at_most(add(other, 1), self), ">", other)

    def __bool__(self) -> bool:
        from lazygraph.dimbounds import bounds

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


def _at_most(a: Size, b: Size) -> bool | None:
    from lazygraph.dimbounds import at_most

    return at_most(a, b)


def size(name: str, min: int = 0, max: int | None = None) -> Dim:
    """Return the named size, with the bounds that are known of it (both inclusive).

    Raises:
        ShapeError: The name is no identifier, or the bounds leave nothing.
    """
    if not isinstance(name, str) or not name.isidentifier():
        raise ShapeError(f"{name!r} cannot name a size", op="size", expected="an identifier such as 'seq'")
    if min < 0 or (max is not None and max < min):
        raise ShapeError(f"{name} cannot lie in [{min}, {max}]", op="size", expected="0 <= min <= max")
    if min == 0 and max is None:
        return symbol(name)
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
def symbol(name: str) -> Dim:
    """Return the named size without bounds, one object per name."""
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
    """Return the terms of a size, those of an int too."""
    return value.terms if isinstance(value, Dim) else ({(): value} if value else {})


def add(a: Size, b: Size) -> Size:
    """Return ``a + b``."""
    if isinstance(a, int) and isinstance(b, int):
        return a + b
    terms = dict(terms_of(a))
    for monomial, coefficient in terms_of(b).items():
        terms[monomial] = terms.get(monomial, 0) + coefficient
    return normal(terms)


def subtract(a: Size, b: Size) -> Size:
    """Return ``a - b``."""
    return a - b if isinstance(a, int) and isinstance(b, int) else add(a, multiply(b, -1))


def multiply(a: Size, b: Size) -> Size:
    """Return ``a * b``."""
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
        left = normal({monomial: coefficient % b for monomial, coefficient in terms_of(a).items()})
        if left != a:
            whole = {monomial: coefficient // b for monomial, coefficient in terms_of(a).items()}
            return add(normal(whole), floordiv(left, b))
        if b > 0 and (inner := _divided_before(a)) is not None:
            return floordiv(inner[0], inner[1] * b)
    return new_atom("floor", f"{_wrapped(a)}//{_wrapped(b)}", (a, b))


def _divided_before(a: Size) -> tuple[Size, int] | None:
    """Return ``(x, c)`` where ``a`` is ``x // c`` and ``c`` an int above 0, as ``n // c + k`` is ``(n + k*c) // c``."""
    terms = dict(terms_of(a))
    shift = terms.pop((), 0)
    (monomial, factor), *others = terms.items()
    if others or factor != 1 or len(monomial) != 1 or monomial[0].kind != "floor":
        return None
    x, c = monomial[0].args
    return (add(x, multiply(shift, c)), c) if isinstance(c, int) and c > 0 else None


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
    return new_atom("mod", f"{_wrapped(a)}%{_wrapped(b)}", (a, b))


def new_atom(kind: str, text: str, args: tuple[Size, ...]) -> Dim:
    """Return the size that is just this atom."""
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
        alone = len(terms) == 1 and len(monomial) == 1 and coefficient == 1
        factors = [f"({a.text})" if a.kind in ("floor", "mod") and not alone else a.text for a in monomial]
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
