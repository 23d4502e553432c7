"""Sizes: algebra, bounds and order hold for every number that the names can have."""

from __future__ import annotations

import itertools
import pickle
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lazygraph as lg
from lazygraph import dims
from lazygraph.dims import Size

NAMES = ("n", "m")
# Name -> bounds; "k" has a bound on either side.
SAMPLES = [dict(zip(("n", "m", "k"), v, strict=True)) for v in itertools.product((0, 1, 2, 3, 7), (0, 1, 5), (2, 4))]
K = dims.size("k", min=2, max=4)


def _leaf() -> st.SearchStrategy[Size]:
    return st.one_of(st.integers(-6, 6), st.sampled_from([dims.size("n"), dims.size("m"), K]))


def _combined(children: st.SearchStrategy[Size]) -> st.SearchStrategy[Size]:
    binary = st.sampled_from([dims.add, dims.subtract, dims.multiply, dims.smallest, dims.largest])
    divisor = st.one_of(st.integers(1, 5), st.just(K))
    return st.one_of(
        st.builds(lambda f, a, b: f(a, b), binary, children, children),
        st.builds(dims.floordiv, children, divisor),
        st.builds(dims.modulo, children, divisor),
    )


SIZES = st.recursive(_leaf(), _combined, max_leaves=5)


def shown(*tensors: lg.Tensor) -> tuple[object, ...]:
    """Return the sizes of a tensor, or those of each, to be compared with names and numbers."""
    shapes = tuple(tensor.shape for tensor in tensors)
    return shapes[0] if len(shapes) == 1 else shapes


def number(size: Size, sizes: dict[str, int]) -> int:
    return size if isinstance(size, int) else dims.evaluate(size, sizes)


@pytest.mark.parametrize(
    ("ours", "python"),
    [
        (dims.add, lambda a, b: a + b),
        (dims.subtract, lambda a, b: a - b),
        (dims.multiply, lambda a, b: a * b),
        (dims.smallest, min),
        (dims.largest, max),
    ],
)
@given(a=SIZES, b=SIZES)
@settings(max_examples=60, deadline=None)
def test_arithmetic_is_pythons(
    ours: Callable[[Size, Size], Size], python: Callable[[int, int], int], a: Size, b: Size
) -> None:
    for sizes in SAMPLES:
        assert number(ours(a, b), sizes) == python(number(a, sizes), number(b, sizes))


@given(a=SIZES, b=st.one_of(st.integers(-5, 5).filter(bool), st.just(K)))
@settings(max_examples=150, deadline=None)
def test_division_rounds_down_as_pythons(a: Size, b: Size) -> None:
    for sizes in SAMPLES:
        x, y = number(a, sizes), number(b, sizes)
        assert (number(dims.floordiv(a, b), sizes), number(dims.modulo(a, b), sizes)) == divmod(x, y)


@given(a=SIZES, b=SIZES)
@settings(max_examples=150, deadline=None)
def test_exact_quotient_is_exact(a: Size, b: Size) -> None:
    product = dims.multiply(a, b)
    quotient = dims.exact_quotient(product, b)
    if b != 0 and product != 0:
        assert quotient is not None
    if quotient is not None:
        for sizes in SAMPLES:
            assert number(quotient, sizes) * number(b, sizes) == number(product, sizes)


@given(a=SIZES)
@settings(max_examples=200, deadline=None)
def test_bounds_hold(a: Size) -> None:
    low, high = dims.bounds(a)
    for sizes in SAMPLES:
        assert low is None or low <= number(a, sizes)
        assert high is None or high >= number(a, sizes)


@given(a=SIZES, b=SIZES)
@settings(max_examples=300, deadline=None)
def test_answers_hold_for_every_number(a: Size, b: Size) -> None:
    order, same = dims.at_most(a, b), dims.equal(a, b)
    for sizes in SAMPLES:
        x, y = number(a, sizes), number(b, sizes)
        assert order is None or order == (x <= y)
        assert same is None or same == (x == y)


@given(a=SIZES)
@settings(max_examples=200, deadline=None)
def test_text_reads_back_as_the_same_size(a: Size) -> None:
    if isinstance(a, int):
        return
    again = dims.parse(str(a))
    assert again == a
    assert hash(again) == hash(a)
    assert pickle.loads(pickle.dumps(a)) == a
    for sizes in SAMPLES:
        assert number(again, sizes) == number(a, sizes)


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        (lambda n: dims.at_most(0, n), True),
        (lambda n: dims.at_most(1, n), None),
        (lambda n: dims.at_most(n + 1, n), False),
        (lambda n: dims.at_most(n // 2, n), True),
        (lambda n: dims.at_most((n + 1) // 2, n), True),
        (lambda n: dims.at_most(n, (n + 7) // 8 * 8), True),
        (lambda n: dims.at_most((n + 7) // 8 * 8, n + 7), True),
        (lambda n: dims.at_most(dims.smallest(n, 5), 5), True),
        (lambda n: dims.at_most(n % 4, 3), True),
        (lambda n: dims.equal(2 * n // 2, n), True),
        (lambda n: dims.equal(n, n + 1), False),
        (lambda n: dims.equal(2 * n, n), None),
    ],
)
def test_common_questions_are_decided(question: Callable[[dims.Dim], object], answer: object) -> None:
    assert question(dims.size("n")) is answer


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (lambda n, m: n + m, "m + n"),
        (lambda n, m: m + n, "m + n"),
        (lambda n, m: 2 * n - 1, "2*n - 1"),
        (lambda n, m: (n + 1) // 2, "(n + 1)//2"),
        (lambda n, m: ((n + 3) // 2 - 1) // 3, "(n + 1)//6"),
        (lambda n, m: n // 2 // 2, "n//4"),
        (lambda n, m: (8 * n + m) // 8, "(m//8) + n"),
        (lambda n, m: 6 * n // 3, "2*n"),
        (lambda n, m: dims.largest(0, n - 1), "max(0, n - 1)"),
        (lambda n, m: n * m - m * n, "0"),
    ],
)
def test_one_text_for_equal_sizes(size: Callable[[dims.Dim, dims.Dim], Size], text: str) -> None:
    assert str(size(dims.size("n"), dims.size("m"))) == text


def test_a_size_equals_its_text_in_any_order() -> None:
    total = dims.size("past") + dims.size("seq")
    assert total == "past + seq"
    assert total == "seq + past"
    assert total != "past"
    assert total != "no size!"


def test_comparison_answers_where_bounds_decide() -> None:
    n = dims.size("n", min=1, max=8)
    assert n >= 1
    assert n < 9
    assert bool(n)
    with pytest.raises(lg.ShapeError, match="whether n < 3 is not known"):
        n < 3  # noqa: B015
    with pytest.raises(lg.ShapeError, match="whether z is 0 is not known"):
        bool(dims.size("z"))


@pytest.mark.parametrize("text", ["", "2 +", "a b", "f(n)", "n ** 2", "1.5*n", "n / 2"])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(lg.ShapeError, match="is not a size"):
        dims.as_size(text)


def test_declared_bounds_must_agree_within_a_graph() -> None:
    x = lg.input("x", "float32", [lg.size("s", max=16)])
    y = lg.input("y", "float32", ["s"], anchor=x)
    assert dims.bounds(y.shape[0]) == (0, 16)
    with pytest.raises(lg.ShapeError, match=r"s was declared with bounds \[0, 16\] and now with \[0, 8\]"):
        lg.input("z", "float32", [lg.size("s", max=8)], anchor=x)


def test_assumed_equal_sizes_meet_and_are_not_renamed() -> None:
    x = lg.input("x", "float32", ["N", 4])
    y = lg.input("y", "float32", ["M", 4], anchor=x)
    with lg.assume_equal("N", "M"):
        assert shown(x + y) in (("N", 4), ("M", 4))
        assert shown(x, y) == (("N", 4), ("M", 4))
    with pytest.raises(lg.ShapeError):
        x + y


def test_assumed_arithmetic_is_solved() -> None:
    with lg.assume_equal("hidden", "4*heads"), lg.assume_equal("heads", 2):
        assert dims.equal(dims.size("hidden"), 8) is True
        assert dims.exact_quotient(dims.known(dims.size("hidden")), 2) == 4
    assert dims.equal(dims.size("hidden"), 8) is None
    with pytest.raises(lg.ShapeError, match="can never be equal"):
        lg.assume_equal("n", "n + 1")
    with pytest.raises(lg.ShapeError, match="cannot be solved for a name"):
        lg.assume_equal("n*n", "m*m")


def test_assumptions_nest_and_are_taken_back_in_order() -> None:
    with lg.assume_equal("a", "b"):
        with lg.assume_equal("b", "c"):
            assert dims.equal(dims.size("a"), dims.size("c")) is True
        assert dims.equal(dims.size("a"), dims.size("b")) is True
        assert dims.equal(dims.size("a"), dims.size("c")) is None
    assert dims.equal(dims.size("a"), dims.size("b")) is None
