"""Random programs: what the language takes and the check passes must load, run, and compute what numpy does.

A program grows step by step beside its numpy twin. Inferred types and shapes are compared after every step, numbers at
the end, from one session. Numbers are kept small and finite. Every array carries a bound of its rounding error, found
by nudging the operands; a step whose result such a nudge could flip (a comparison, a sort) is left out.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, cast

import hypothesis
import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import lazygraph as lg
from lazygraph import dims
from lazygraph.evaluate import realize
from lazygraph.export import targets
from lazygraph.export.program import collect

Array = np.ndarray[Any, Any]
Build = Callable[..., Any]

FLOATS = ("float32", "float64")
INTS = ("int32", "int64")
NUMBERS = FLOATS + INTS
TYPES = (*NUMBERS, "bool")
EPS = {"float32": 4e-6, "float64": 1e-12}
LARGEST = {"float32": 200.0, "float64": 200.0, "int32": 1e6, "int64": 1e6, "bool": 1.0}
SIZES = {f"d{n}": n for n in range(64)}
MOST_ELEMENTS = 300
MOST_AXES = 5


class Made(NamedTuple):
    """A tensor beside its numbers, and how far the runtime's may lie from them (0: equal bit for bit)."""

    tensor: lg.Tensor
    value: Array
    error: float

    @property
    def dtype(self) -> str:
        return str(self.value.dtype.name)

    @property
    def rank(self) -> int:
        return self.value.ndim


class Step(NamedTuple):
    """One op on operands beside its oracle.

    ``rounds``: the result is rounded, with an error relative to ``scale`` (the largest number on the way to it).
    ``flips``: the result jumps where an operand moves.
    """

    text: str
    operands: Sequence[Made]
    build: Build
    oracle: Build
    rounds: bool = False
    flips: bool = False
    scale: float = 0.0


class Program:
    """A graph under construction, and the choices that one step has."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.pool: list[Made] = []
        self.feeds: dict[str, Array] = {}
        self.text: list[str] = []
        self.named = self.rng.choice([0.0, 0.0, 0.5, 1.0])
        self.anchor: lg.Tensor | None = None
        for _ in range(self.rng.randint(1, 3)):
            self.input(self.rng.choice(TYPES), [self.side() for _ in range(self.rng.choice([0, 1, 2, 2, 3, 3, 4, 5]))])

    def side(self) -> int:
        return self.rng.choice([0, 1, 1, 2, 2, 3, 3, 4, 5])

    def flag(self) -> bool:
        return self.rng.random() < 0.5

    def array(self, dtype: str, shape: Sequence[int]) -> Array:
        """Return numbers: eighths within [-3, 3], small integers, bools."""
        generator = np.random.default_rng(self.rng.getrandbits(32))
        low, high, scale = {"f": (-24, 25, 8), "i": (-6, 7, 1), "b": (0, 2, 1)}[np.dtype(dtype).kind]
        return np.asarray(generator.integers(low, high, tuple(shape)) / scale).astype(dtype)

    def input(self, dtype: str, shape: Sequence[int]) -> Made:
        while math.prod(shape) > MOST_ELEMENTS:
            shape = shape[1:]
        sizes = [f"d{n}" if self.rng.random() < self.named else n for n in shape]
        name = f"x{len(self.feeds)}"
        tensor = lg.input(name, dtype, sizes, anchor=self.anchor)
        self.anchor = tensor if self.anchor is None else self.anchor
        self.feeds[name] = self.array(dtype, shape)
        self.text.append(f"{name} = input({dtype}, {sizes})")
        made = Made(tensor, self.feeds[name], 0.0)
        self.pool.append(made)
        return made

    def constant(self, array: Array) -> Made:
        assert self.anchor is not None
        return Made(self.anchor.const(array), array, 0.0)

    def pick(self, types: Sequence[str] = TYPES, rank: int = 0, most: int = MOST_AXES) -> Made | None:
        """Return one of the arrays of these types and ranks, late ones rather; now and then a new input."""
        fitting = [made for made in self.pool if made.dtype in types and rank <= made.rank <= most]
        if not fitting or self.rng.random() < 0.05:
            axes = self.rng.randint(rank, max(rank, min(most, 3)))
            made = self.input(self.rng.choice(types), [self.side() for _ in range(axes)])
            return made if made.rank >= rank else None
        return fitting[-1] if self.rng.random() < 0.4 else self.rng.choice(fitting)

    def beside(self, a: Made, types: Sequence[str] | None = None) -> Made:
        """Return an array that broadcasts with one: another of the pool, or a constant."""
        types = (a.dtype,) if types is None else types
        fitting = [b for b in self.pool if b.dtype in types and _broadcast(a.value.shape, b.value.shape) is not None]
        if fitting and self.rng.random() < 0.75:
            return self.rng.choice(fitting)
        shape = [1 if self.rng.random() < 0.3 else size for size in a.value.shape]
        return self.constant(self.array(self.rng.choice(types), shape[self.rng.randint(0, len(shape)) :]))

    def axis(self, a: Made) -> int:
        return self.rng.randint(-a.rank, a.rank - 1)

    def axes(self, a: Made) -> int | tuple[int, ...] | None:
        """Return what a reduction may take: None, one axis, several, or none at all."""
        kind = self.rng.randint(0, 3)
        if kind == 0 or not a.rank:
            return None
        if kind == 1:
            return self.axis(a)
        return tuple(axis - self.rng.choice([0, a.rank]) for axis in range(a.rank) if self.flag())

    def apply(self, name: str, seed: int) -> None:
        """Add one step, if the op has something to work on."""
        self.rng = random.Random(seed)
        with np.errstate(all="ignore"):
            step = OPS[name](self)
            if step is None:
                COUNTS[f"{name}: nothing to work on"] += 1
                return
            raw = step.oracle(*[made.value for made in step.operands])
        several = isinstance(raw, (list, tuple))
        values = [np.asarray(value) for value in (raw if several else [raw])]
        if any(value.size > MOST_ELEMENTS or value.ndim > MOST_AXES or not _small(value) for value in values):
            COUNTS[f"{name}: too large"] += 1
            return
        errors = self._errors(step, values)
        if errors is None:
            COUNTS[f"{name}: too near an edge"] += 1
            return
        line = f"{name} {step.text} of {', '.join(str(made.tensor) for made in step.operands)}"
        self.text.append(line)
        try:
            built = step.build(*[made.tensor for made in step.operands])
        except lg.LazyGraphError:
            # Named sizes may leave open what numbers would settle; numbers alone never do.
            if any(isinstance(size, dims.Dim) for made in step.operands for size in made.tensor.shape):
                COUNTS[f"{name}: refused named sizes"] += 1
                self.text.pop()
                return
            raise
        tensors = list(built) if several else [built]
        assert len(tensors) == len(values), line
        for tensor, value in zip(tensors, values, strict=True):
            assert tensor.dtype.name == value.dtype.name, line
            _same_shape(tensor, value, line)
        try:
            targets.settle(collect({f"out.{i}": tensor for i, tensor in enumerate(tensors)}).calls, "cpu", 13, True)
        except lg.UnsupportedError:
            COUNTS[f"{name}: no kernel"] += 1  # what the check refuses need not run
            self.text.pop()
            return
        COUNTS[f"{name}: done"] += 1
        self.pool += [Made(*parts) for parts in zip(tensors, values, errors, strict=True)]

    def _errors(self, step: Step, values: list[Array]) -> list[float] | None:
        """Return the error bound of every result; None when it is too large, or a result could flip."""
        carried = max((made.error for made in step.operands), default=0.0)
        found = [0.0] * len(values)
        if step.flips and carried and _may_be_equal(step.operands, carried):
            return None
        if carried:
            generator = np.random.default_rng(5)
            for trial in range(6 if step.flips else 3):
                with np.errstate(all="ignore"):
                    nudged = step.oracle(*[_nudged(made, trial, i, generator) for i, made in enumerate(step.operands)])
                others = nudged if isinstance(nudged, (list, tuple)) else [nudged]
                for i, (value, other) in enumerate(zip(values, others, strict=True)):
                    if value.shape != np.shape(other) or not _small(np.asarray(other)):
                        return None
                    if value.dtype.kind != "f":
                        if not np.array_equal(value, other):
                            return None
                        continue
                    moved = float(np.abs(value - other).max(initial=0))
                    if step.flips and moved > 100 * carried:
                        return None
                    found[i] = max(found[i], 2 * moved, carried)
        for i, value in enumerate(values):
            if value.dtype.kind == "f" and (carried or step.rounds):
                found[i] += EPS[value.dtype.name] * max(1.0, step.scale, float(np.abs(value).max(initial=0)))
                if found[i] > 1e-2:
                    return None
        return found

    def finish(self) -> None:
        """Run what was built, all of it or the last few results (so that the runtime may fuse the rest)."""
        wanted = self.pool if self.rng.random() < 0.5 else self.pool[-3:]
        try:
            results = realize([made.tensor for made in wanted], self.feeds)
        except lg.UnsupportedError:  # one op's opset is beyond another's kernel
            COUNTS["whole program: no kernel"] += 1
            return
        for made, result in zip(wanted, results, strict=True):
            assert result.dtype == made.value.dtype
            assert result.shape == made.value.shape
            if made.error and made.value.dtype.kind == "f":
                np.testing.assert_allclose(result, made.value, rtol=0, atol=10 * made.error)
            else:
                np.testing.assert_array_equal(result, made.value)


COUNTS: Counter[str] = Counter()
OPS: dict[str, Callable[[Program], Step | None]] = {}


def _broadcast(*shapes: tuple[int, ...]) -> tuple[int, ...] | None:
    try:
        return np.broadcast_shapes(*shapes)
    except ValueError:
        return None


def _small(value: Array) -> bool:
    return bool((np.abs(value.astype(np.float64)) <= LARGEST[value.dtype.name]).all())  # nan is not


def _nudged(made: Made, trial: int, place: int, generator: np.random.Generator) -> Array:
    """Return the numbers moved by a few times their error: down a ramp, up a ramp, then anyhow."""
    if made.value.dtype.kind != "f" or not made.error:
        return made.value
    ramp = np.linspace(-1, 1, made.value.size).reshape(made.value.shape)
    moves = [ramp + (-1) ** place, -ramp - (-1) ** place]
    move = moves[trial] if trial < 2 else generator.uniform(-1, 1, made.value.shape)
    return np.asarray(made.value + 4 * made.error * move).astype(made.value.dtype)


def _may_be_equal(operands: Sequence[Made], error: float) -> bool:
    """Return whether two rounded operands lie so near that they may be the very same number: no nudge finds a point."""
    if len(operands) != 2 or _broadcast(operands[0].value.shape, operands[1].value.shape) is None:
        return False
    a, b = (made.value for made in operands)
    return a.dtype.kind == b.dtype.kind == "f" and bool((np.abs(a - b) <= 8 * error).any())


def _same_shape(tensor: lg.Tensor, value: Array, line: str) -> None:
    assert len(tensor.shape) == value.ndim, line
    for size, number in zip(tensor.shape, value.shape, strict=True):
        if isinstance(size, int):
            assert size == number, line
        elif not dims.is_unknown(size):
            assert dims.evaluate(size, SIZES) == number, f"{line}: {size} is not {number}"


# ---- the table of ops ---------------------------------------------------------------------------------------------


def op(name: str) -> Callable[[Callable[[Program], Step | None]], Callable[[Program], Step | None]]:
    def keep(make: Callable[[Program], Step | None]) -> Callable[[Program], Step | None]:
        OPS[name] = make
        return make

    return keep


def _top(value: Array) -> float:
    return float(np.abs(value.astype(np.float64)).max(initial=0))


def _expit(x: Array) -> Array:
    return np.asarray(1 / (1 + np.exp(-x)))


def _softmax(x: Array, axis: int) -> Array:
    e = np.exp(x - x.max(axis, keepdims=True, initial=-1e3))
    return np.asarray(e / e.sum(axis, keepdims=True))


_erf = np.vectorize(math.erf, otypes=[np.float64])


def _unary(
    name: str,
    oracle: Build,
    types: Sequence[str] = FLOATS,
    low: float = -math.inf,
    high: float = math.inf,
    rounds: bool = True,
    flips: bool = False,
) -> None:
    def make(p: Program) -> Step | None:
        a = p.pick(types)
        if a is None or not bool(((a.value >= low) & (a.value <= high)).all()):
            return None
        return Step("", [a], getattr(lg, name), lambda x: np.asarray(oracle(x)).astype(x.dtype), rounds, flips)

    OPS[name] = make


_unary("abs", np.abs, NUMBERS, rounds=False)
_unary("neg", np.negative, NUMBERS, rounds=False)
_unary("sign", np.sign, NUMBERS, rounds=False, flips=True)
_unary("square", np.square, NUMBERS)
_unary("relu", lambda x: np.maximum(x, 0), NUMBERS, rounds=False)
_unary("identity", lambda x: x, TYPES, rounds=False)
_unary("floor", np.floor, rounds=False, flips=True)
_unary("ceil", np.ceil, rounds=False, flips=True)
_unary("round", np.round, rounds=False, flips=True)
_unary("reciprocal", lambda x: 1 / x, low=0.1)
_unary("sqrt", np.sqrt, low=0.1)
_unary("rsqrt", lambda x: 1 / np.sqrt(x), low=0.1)
_unary("log", np.log, low=0.1)
_unary("exp", np.exp, high=5)
_unary("sin", np.sin)
_unary("cos", np.cos)
_unary("tan", np.tan, low=-1.2, high=1.2)
_unary("asin", np.arcsin, low=-0.9, high=0.9)
_unary("acos", np.arccos, low=-0.9, high=0.9)
_unary("atan", np.arctan)
_unary("sinh", np.sinh, low=-5, high=5)
_unary("cosh", np.cosh, low=-5, high=5)
_unary("tanh", np.tanh)
_unary("asinh", np.arcsinh)
_unary("atanh", np.arctanh, low=-0.9, high=0.9)
_unary("erf", _erf)
_unary("sigmoid", _expit)
_unary("silu", lambda x: x * _expit(x))
_unary("gelu", lambda x: x * (1 + _erf(x / np.sqrt(2))) / 2)
_unary("softplus", lambda x: np.logaddexp(x, 0))
_unary("softsign", lambda x: x / (1 + np.abs(x)))
_unary("elu", lambda x: np.where(x > 0, x, np.expm1(x)))
_unary("leaky_relu", lambda x: np.where(x > 0, x, np.float32(0.01) * x))
_unary("hard_sigmoid", lambda x: np.clip(np.float32(0.2) * x + 0.5, 0, 1))
_unary("hard_swish", lambda x: x * np.clip(x * np.float32(1 / 6) + 0.5, 0, 1))
_unary("mish", lambda x: x * np.tanh(np.logaddexp(x, 0)))
_unary("logical_not", np.logical_not, ["bool"], rounds=False)
_unary("invert", np.invert, [*INTS, "bool"], rounds=False)
_unary("flip", np.flip, TYPES, rounds=False)
_unary("transpose", np.transpose, TYPES, rounds=False)


@op("isnan")
def _isnan(p: Program) -> Step | None:
    a = p.pick(FLOATS)
    kind, oracle = p.rng.choice([("isnan", np.isnan), ("isinf", np.isinf)])
    return None if a is None else Step(kind, [a], getattr(lg, kind), cast(Build, oracle))


def _binary(name: str, oracle: Build, types: Sequence[str], flips: bool) -> None:
    def make(p: Program) -> Step | None:
        a = p.pick(types)
        if a is None:
            return None
        b = p.beside(a)
        if p.flag():
            a, b = b, a
        return Step("", [a, b], getattr(lg, name), oracle, flips=flips, rounds=False)

    OPS[name] = make


_BINARY: list[tuple[dict[str, Any], Sequence[str], bool]] = [
    ({"add": np.add, "sub": np.subtract, "mul": np.multiply}, NUMBERS, False),
    ({"minimum": np.minimum, "maximum": np.maximum}, NUMBERS, False),
    ({"less": np.less, "less_or_equal": np.less_equal}, NUMBERS, True),
    ({"greater": np.greater, "greater_or_equal": np.greater_equal}, NUMBERS, True),
    ({"equal": np.equal, "not_equal": np.not_equal}, TYPES, True),
    ({"logical_and": np.logical_and, "logical_or": np.logical_or, "logical_xor": np.logical_xor}, ["bool"], False),
    ({"bit_and": np.bitwise_and, "bit_or": np.bitwise_or, "bit_xor": np.bitwise_xor}, [*INTS, "bool"], False),
]
for _group, _types, _flips in _BINARY:
    for _name, _oracle in _group.items():
        _binary(_name, _oracle, _types, _flips)


@op("div")
def _div(p: Program) -> Step | None:
    a = p.pick(NUMBERS)
    if a is None:
        return None
    b = p.beside(a)
    if bool((np.abs(b.value) < 0.1).any()):
        return None
    if a.dtype in FLOATS:
        return Step("", [a, b], lg.div, np.divide, rounds=True)
    return Step("", [a, b], lg.div, lambda x, y: np.trunc(x / y).astype(x.dtype))


@op("floor_divide")
def _floor_divide(p: Program) -> Step | None:
    a = p.pick(NUMBERS)
    if a is None:
        return None
    name, oracle = p.rng.choice([("floor_divide", np.floor_divide), ("remainder", np.remainder)])
    build, quotient = getattr(lg, name), cast(Build, oracle)
    if a.dtype in FLOATS:  # by a power of two: exact in either's arithmetic
        number = p.rng.choice([0.5, 2.0, -4.0])
        return Step(
            f"{name} {number}", [a], lambda x: build(x, number), lambda x: quotient(x, x.dtype.type(number)), flips=True
        )
    b = p.beside(a)
    return None if bool((b.value == 0).any()) else Step(name, [a, b], build, quotient)


@op("pow")
def _pow(p: Program) -> Step | None:
    a = p.pick(NUMBERS)
    if a is None:
        return None
    n = p.rng.choice([1, 2, 3])
    number = float(n) if a.dtype in FLOATS else n
    return Step(f"{number}", [a], lambda x: x**number, lambda x: np.power(x, x.dtype.type(n)), rounds=True)


@op("scalar")
def _scalar(p: Program) -> Step | None:
    a = p.pick(NUMBERS)
    if a is None:
        return None
    n = p.rng.choice([-2, 1, 3])
    return p.rng.choice(
        [
            Step(f"{n} - x", [a], lambda x: n - x, lambda x: x.dtype.type(n) - x),
            Step(f"x * {n}", [a], lambda x: x * n, lambda x: x * x.dtype.type(n)),
            Step(f"x + {n}", [a], lambda x: x + n, lambda x: x + x.dtype.type(n)),
            Step(f"x > {n}", [a], lambda x: x > n, lambda x: x > x.dtype.type(n), flips=True),
        ]
    )


@op("where")
def _where(p: Program) -> Step | None:
    c = p.pick(["bool"])
    if c is None:
        return None
    x = p.beside(c, TYPES)
    fitting = [
        y for y in p.pool if y.dtype == x.dtype and _broadcast(c.value.shape, x.value.shape, y.value.shape) is not None
    ]
    y = p.rng.choice(fitting) if fitting else p.constant(p.array(x.dtype, []))
    if p.rng.random() < 0.3 and x.dtype != "bool":
        return Step("scalar", [c, x], lambda c, x: lg.where(c, x, 2), lambda c, x: np.where(c, x, x.dtype.type(2)))
    return Step("", [c, x, y], lg.where, np.where)


@op("clip")
def _clip(p: Program) -> Step | None:
    a = p.pick(NUMBERS)
    if a is None:
        return None
    low, high = p.rng.choice([(-1, 2), (None, 1), (0, None), (-3, -2)])
    return Step(
        f"{low, high}",
        [a],
        lambda x: lg.clip(x, low, high),
        lambda x: np.clip(x, *[None if end is None else x.dtype.type(end) for end in (low, high)]),
    )


@op("cast")
def _cast(p: Program) -> Step | None:
    a = p.pick()
    to = p.rng.choice(TYPES)
    return None if a is None else Step(to, [a], lambda x: x.astype(to), lambda x: x.astype(to), flips=to not in FLOATS)


# ---- reductions ----


def _reduction(name: str, oracle: Build, types: Sequence[str], empty: bool = True, scale: Build = _top) -> None:
    def make(p: Program) -> Step | None:
        a = p.pick(types)
        if a is None or (a.dtype in INTS and not scale(a.value) < 2**31):  # out of range on the way
            return None
        axes, keep = p.axes(a), p.flag()
        if not empty and a.value.size == 0:  # numpy refuses, or gives nan
            return None
        return Step(
            f"axis={axes} keepdims={keep}",
            [a],
            lambda x: getattr(lg, name)(x, axes, keepdims=keep),
            lambda x: np.asarray(oracle(x, axis=axes, keepdims=keep)).astype(x.dtype),
            rounds=name not in ("reduce_max", "reduce_min", "any", "all"),
            scale=float(scale(a.value)),
        )

    OPS[name] = make


def _sum_abs(x: Array) -> float:
    return float(np.abs(x.astype(np.float64)).sum())


def _sum_squares(x: Array) -> float:
    return float(np.square(x.astype(np.float64)).sum())


def _product_abs(x: Array) -> float:
    """Return a bound of every product of some of the numbers."""
    return float(np.maximum(np.abs(x.astype(np.float64)), 1).prod())


_reduction("reduce_sum", np.sum, NUMBERS, scale=_sum_abs)
_reduction("reduce_mean", np.mean, FLOATS, empty=False)
_reduction("reduce_max", np.max, NUMBERS, empty=False)
_reduction("reduce_min", np.min, NUMBERS, empty=False)
_reduction("reduce_prod", np.prod, NUMBERS, scale=_product_abs)
_reduction("reduce_l1", lambda x, **k: np.abs(x).sum(**k), NUMBERS, scale=_sum_abs)
_reduction("reduce_sum_square", lambda x, **k: np.square(x).sum(**k), NUMBERS, scale=_sum_squares)
_reduction("reduce_log_sum_exp", lambda x, **k: np.log(np.exp(x).sum(**k)), FLOATS, empty=False)
_reduction("var", np.var, FLOATS, empty=False, scale=_sum_squares)
_reduction("any", np.any, ["bool"])
_reduction("all", np.all, ["bool"])


@op("cumsum")
def _cumsum(p: Program) -> Step | None:
    a = p.pick(NUMBERS, rank=1)
    if a is None:
        return None
    axis, exclusive, reverse = p.axis(a), p.flag(), p.flag()

    def oracle(x: Array) -> Array:
        line = np.flip(x, axis) if reverse else x
        total = np.cumsum(line, axis, dtype=x.dtype)
        if exclusive:
            total = total - line
        return np.flip(total, axis) if reverse else total

    text = f"axis={axis} exclusive={exclusive} reverse={reverse}"
    return Step(text, [a], lambda x: lg.cumsum(x, axis, exclusive, reverse), oracle, True, scale=_sum_abs(a.value))


@op("argmax")
def _argmax(p: Program) -> Step | None:
    a = p.pick(NUMBERS)
    if a is None or a.value.size == 0:
        return None
    name, oracle = p.rng.choice([("argmax", np.argmax), ("argmin", np.argmin)])
    axis, keep = p.axis(a) if a.rank and p.flag() else None, p.flag()
    return Step(
        f"{name} axis={axis} keepdims={keep}",
        [a],
        lambda x: getattr(lg, name)(x, axis, keepdims=keep),
        lambda x: cast(Build, oracle)(x, axis=axis, keepdims=keep),
        flips=True,
    )


@op("sort")
def _sort(p: Program) -> Step | None:
    a = p.pick(NUMBERS, rank=1)
    if a is None:
        return None
    axis, falling = p.axis(a), p.flag()
    count = p.rng.randint(0, a.value.shape[axis])

    def order(x: Array) -> Array:
        return np.argsort(-x if falling else x, axis, kind="stable")

    def ordered(x: Array) -> Array:
        return np.take_along_axis(x, order(x), axis)

    text = f"axis={axis} descending={falling}"
    return p.rng.choice(
        [
            Step(f"sort {text}", [a], lambda x: lg.sort(x, axis, falling), ordered),
            Step(f"argsort {text}", [a], lambda x: lg.argsort(x, axis, falling), order, flips=True),
            Step(
                f"topk {count} {text}",
                [a],
                lambda x: lg.topk(x, count, axis, largest=falling),
                lambda x: tuple(np.take(y, range(count), axis) for y in (ordered(x), order(x))),
                flips=True,
            ),
        ]
    )


@op("softmax")
def _softmax_of(p: Program) -> Step | None:
    a = p.pick(FLOATS, rank=1)
    if a is None:
        return None
    axis = p.axis(a)
    if p.flag():
        return Step(f"axis={axis}", [a], lambda x: lg.softmax(x, axis), lambda x: _softmax(x, axis), True)
    return Step(
        f"log axis={axis}",
        [a],
        lambda x: lg.log_softmax(x, axis),
        lambda x: x - np.log(np.exp(x).sum(axis, keepdims=True)),
        True,
        scale=_top(a.value),
    )


@op("matmul")
def _matmul(p: Program) -> Step | None:
    a = p.pick(NUMBERS, rank=1)
    if a is None:
        return None

    def fits(b: Made) -> bool:
        if b.dtype != a.dtype or not b.rank or a.value.shape[-1] != b.value.shape[-2 if b.rank > 1 else 0]:
            return False
        return _broadcast(a.value.shape[:-2], b.value.shape[:-2]) is not None

    fitting = [b for b in p.pool if fits(b)]
    if fitting and p.flag():
        b = p.rng.choice(fitting)
    else:
        b = p.constant(p.array(a.dtype, [a.value.shape[-1], p.side()][: p.rng.choice([1, 2, 2])]))
    scale = _top(np.matmul(np.abs(a.value), np.abs(b.value)))
    return Step("", [a, b], lg.matmul, np.matmul, a.dtype in FLOATS, scale=scale)


# ---- layout ----


@op("reshape")
def _reshape(p: Program) -> Step | None:
    a = p.pick()
    if a is None:
        return None
    left = a.value.size
    sizes: list[int] = []
    while left > 1 and len(sizes) < MOST_AXES - 1 and p.rng.random() < 0.8:
        sizes.append(p.rng.choice([n for n in range(1, left + 1) if left % n == 0]))
        left //= sizes[-1]
    sizes.append(left)
    p.rng.shuffle(sizes)
    target: list[Any] = list(sizes)
    if p.flag() and a.value.size:
        target[p.rng.randrange(len(target))] = -1
    elif p.rng.random() < 0.3:
        target = list(p.rng.sample(list(a.tensor.shape), a.rank))
        sizes = [size if isinstance(size, int) else dims.evaluate(size, SIZES) for size in _known(target)]
        if len(sizes) != a.rank:
            return None
    return Step(f"{target}", [a], lambda x: lg.reshape(x, target), lambda x: x.reshape(sizes))


def _known(shape: Sequence[Any]) -> list[Any]:
    return [size for size in shape if not dims.is_unknown(size)]


@op("permute")
def _permute(p: Program) -> Step | None:
    a = p.pick(rank=2)
    if a is None:
        return None
    order = p.rng.sample(range(a.rank), a.rank)
    return Step(f"{order}", [a], lambda x: x.transpose(order), lambda x: x.transpose(order))


@op("squeeze")
def _squeeze(p: Program) -> Step | None:
    a = p.pick()
    if a is None:
        return None
    axes = tuple(axis for axis, size in enumerate(a.value.shape) if size == 1 and p.rng.random() < 0.7)
    if axes or p.flag():
        return Step(f"{axes}", [a], lambda x: lg.squeeze(x, axes), lambda x: x.squeeze(axes))
    return Step("all", [a], lg.squeeze, np.squeeze)


@op("unsqueeze")
def _unsqueeze(p: Program) -> Step | None:
    a = p.pick(most=MOST_AXES - 1)
    if a is None:
        return None
    many = p.rng.randint(1, MOST_AXES - a.rank)
    axes = [axis - p.rng.choice([0, a.rank + many]) for axis in p.rng.sample(range(a.rank + many), many)]
    return Step(f"{axes}", [a], lambda x: lg.unsqueeze(x, axes), lambda x: np.expand_dims(x, tuple(axes)))


@op("flatten")
def _flatten(p: Program) -> Step | None:
    a = p.pick()
    if a is None:
        return None
    axis = p.rng.randint(0, a.rank)
    rows = math.prod(a.value.shape[:axis])
    columns = math.prod(a.value.shape[axis:])
    return Step(f"{axis}", [a], lambda x: lg.flatten(x, axis), lambda x: x.reshape(rows, columns))


@op("concat")
def _concat(p: Program) -> Step | None:
    a = p.pick(rank=1)
    if a is None:
        return None
    axis = p.axis(a)

    def rest(made: Made) -> tuple[int, ...]:
        return tuple(np.delete(made.value.shape, axis))

    fitting = [b for b in p.pool if b.dtype == a.dtype and b.rank == a.rank and rest(b) == rest(a)]
    sizes = list(a.value.shape)
    sizes[axis] = p.side()
    parts = [a, *p.rng.choices(fitting, k=p.rng.randint(0, 2)), p.constant(p.array(a.dtype, sizes))]
    p.rng.shuffle(parts)
    return Step(f"{axis}", parts, lambda *x: lg.concat(x, axis), lambda *x: np.concatenate(x, axis))


@op("stack")
def _stack(p: Program) -> Step | None:
    a = p.pick(most=MOST_AXES - 1)
    if a is None:
        return None
    axis = p.rng.randint(-a.rank - 1, a.rank)
    fitting = [b for b in p.pool if b.dtype == a.dtype and b.value.shape == a.value.shape]
    parts = [a, *p.rng.choices(fitting, k=p.rng.randint(0, 2))]
    return Step(f"{axis}", parts, lambda *x: lg.stack(x, axis), lambda *x: np.stack(x, axis))


@op("split")
def _split(p: Program) -> Step | None:
    a = p.pick(rank=1)
    if a is None:
        return None
    axis = p.axis(a)
    size = a.value.shape[axis]
    if p.flag():
        cuts = sorted(p.rng.randint(0, size) for _ in range(p.rng.randint(0, 2)))
        sizes = [high - low for low, high in zip([0, *cuts], [*cuts, size], strict=True)]
        return Step(f"{sizes} axis={axis}", [a], lambda x: lg.split(x, sizes, axis), lambda x: np.split(x, cuts, axis))
    count = p.rng.randint(1, 3)
    each = -(-size // count)
    if each * (count - 1) > size:  # the last piece would be negative
        return None
    places = [each * i for i in range(1, count)]
    return Step(f"{count} axis={axis}", [a], lambda x: lg.split(x, count, axis), lambda x: np.split(x, places, axis))


def _cut(p: Program) -> slice:
    bounds = [None, *range(-7, 8)]
    return slice(p.rng.choice(bounds), p.rng.choice(bounds), p.rng.choice([None, 1, 2, 3, -1, -2]))


def _key(p: Program, shape: Sequence[int], arrays: bool, new: bool) -> tuple[Any, ...]:
    """Return a key: ints, slices, None, ..., and perhaps integer arrays that broadcast together."""
    key: list[Any] = []
    common = [p.rng.randint(1, 3) for _ in range(p.rng.randint(1, 2))]
    for size in shape[: p.rng.randint(0, len(shape))]:
        kind = p.rng.random()
        if kind < 0.25 and size:
            key.append(p.rng.randint(-size, size - 1))
        elif kind < 0.5 and size and arrays:
            shown = [1 if p.rng.random() < 0.2 else n for n in common]
            places = [p.rng.randint(-size, size - 1) for _ in range(int(np.prod(shown)))]
            key.append(np.array(places).reshape(shown))
        else:
            key.append(_cut(p))
        if new and p.rng.random() < 0.15:
            key.append(None)
    if p.rng.random() < 0.2:
        key.append(...)
    return tuple(key)


@op("getitem")
def _getitem(p: Program) -> Step | None:
    a = p.pick()
    if a is None:
        return None
    key = _key(p, a.value.shape, arrays=False, new=True)
    return Step(f"{key}", [a], lambda x: x[key], lambda x: x[key])


@op("fancy")
def _fancy(p: Program) -> Step | None:
    a = p.pick(rank=1)
    if a is None:
        return None
    key = _key(p, a.value.shape, arrays=True, new=True)
    return Step(f"{key}", [a], lambda x: x[key], lambda x: x[key])


@op("at")
def _at(p: Program) -> Step | None:
    a = p.pick(NUMBERS, rank=1)
    if a is None:
        return None
    key = _key(p, a.value.shape, arrays=True, new=False)
    part = a.value[key]
    touched = np.zeros(a.value.shape, int)
    np.add.at(touched, cast(Any, key), 1)
    method = p.rng.choice(["set", "add"])
    if method == "set" and bool((touched > 1).any()):  # which of them stays is anyone's guess
        return None
    value = p.constant(p.array(a.dtype, part.shape[p.rng.randint(0, part.ndim) :]))

    def oracle(x: Array, v: Array) -> Array:
        result = x.copy()
        if method == "set":
            result[key] = v
        else:
            np.add.at(result, cast(Any, key), v)
        return result

    return Step(f"{method} {key}", [a, value], lambda x, v: getattr(x.at[key], method)(v), oracle)


@op("gather")
def _gather(p: Program) -> Step | None:
    a = p.pick(rank=1)
    if a is None:
        return None
    axis = p.axis(a)
    size = a.value.shape[axis]
    shape: list[int] = [p.side() for _ in range(p.rng.randint(0, 2))]
    if not size and 0 not in shape:
        return None
    generator = np.random.default_rng(p.rng.getrandbits(32))
    indices = generator.integers(-size, max(size, 1), shape).astype(p.rng.choice(INTS))
    i = p.constant(indices)
    return Step(f"axis={axis}", [a, i], lambda x, i: lg.gather(x, i, axis), lambda x, i: np.take(x, i, axis))


@op("gather_elements")
def _gather_elements(p: Program) -> Step | None:
    a = p.pick(rank=1)
    if a is None or a.value.size == 0:
        return None
    axis = p.axis(a)
    size = a.value.shape[axis]
    shape = list(a.value.shape)
    shape[axis] = p.side()
    generator = np.random.default_rng(p.rng.getrandbits(32))
    i = p.constant(generator.integers(-size, size, shape))
    return Step(
        f"axis={axis}",
        [a, i],
        lambda x, i: lg.gather_elements(x, i, axis),
        lambda x, i: np.take_along_axis(x, i, axis),
    )


@op("index by data")
def _index_by_data(p: Program) -> Step | None:
    a, i = p.pick(rank=1), p.pick(INTS)
    if a is None or i is None or not a.value.shape[0]:
        return None
    size = a.value.shape[0]
    return Step("", [a, i], lambda x, i: x[lg.clip(i, 0, size - 1)], lambda x, i: x[np.clip(i, 0, size - 1)])


@op("pad")
def _pad(p: Program) -> Step | None:
    a = p.pick(rank=1)
    if a is None:
        return None
    mode = p.rng.choice(["constant", "constant", "edge", "reflect"])
    if mode != "constant" and 0 in a.value.shape:
        return None
    most = [min(size - 1, 2) if mode == "reflect" else 2 for size in a.value.shape]
    pads = [(p.rng.randint(0, n), p.rng.randint(0, n)) for n in most]
    flat = [before for before, _ in pads] + [after for _, after in pads]
    return Step(f"{mode} {pads}", [a], lambda x: lg.pad(x, flat, mode), lambda x: np.pad(x, pads, cast(Any, mode)))


@op("tile")
def _tile(p: Program) -> Step | None:
    a = p.pick(rank=1)
    if a is None:
        return None
    repeats = [p.rng.choice([0, 1, 1, 1, 2, 2]) for _ in range(a.rank)]
    return Step(f"{repeats}", [a], lambda x: lg.tile(x, repeats), lambda x: np.tile(x, repeats))


@op("repeat")
def _repeat(p: Program) -> Step | None:
    a = p.pick(rank=1, most=MOST_AXES - 1)
    if a is None:
        return None
    axis, many = p.axis(a), p.rng.randint(0, 3)
    return Step(f"{many} axis={axis}", [a], lambda x: lg.repeat(x, many, axis), lambda x: np.repeat(x, many, axis))


@op("expand")
def _expand(p: Program) -> Step | None:
    a = p.pick()
    if a is None:
        return None
    sizes = [p.side() if size == 1 else p.rng.choice([size, 1]) for size in a.value.shape]
    sizes = [p.side() for _ in range(p.rng.randint(0, MOST_AXES - a.rank))] + sizes
    full = np.broadcast_shapes(a.value.shape, tuple(sizes))
    return Step(f"{sizes}", [a], lambda x: lg.expand(x, sizes), lambda x: np.broadcast_to(x, full))


@op("flip axes")
def _flip(p: Program) -> Step | None:
    a = p.pick(rank=1)
    if a is None:
        return None
    axes = tuple(axis for axis in range(a.rank) if p.flag())
    return Step(f"{axes}", [a], lambda x: lg.flip(x, axes), lambda x: np.flip(x, axes))


@op("trilu")
def _trilu(p: Program) -> Step | None:
    a = p.pick(rank=2)
    if a is None:
        return None
    name, oracle = p.rng.choice([("tril", np.tril), ("triu", np.triu)])
    k = p.rng.randint(-3, 3)
    return Step(f"{name} {k}", [a], lambda x: getattr(lg, name)(x, k), lambda x: cast(Build, oracle)(x, k))


@op("arange")
def _arange(p: Program) -> Step | None:
    a = p.pick(rank=1)
    if a is None:
        return None
    axis, start, step = p.axis(a), p.rng.randint(-2, 2), p.rng.choice([1, 2])
    return Step(
        f"({start}, size {axis}, {step})",
        [a],
        lambda x: lg.arange(start, x.shape[axis], step, anchor=x),
        lambda x: np.arange(start, x.shape[axis], step),
    )


@op("full")
def _full(p: Program) -> Step | None:
    a = p.pick()
    to = p.rng.choice(TYPES)
    if a is None:
        return None
    return Step(to, [a], lambda x: lg.ones(x.shape, to, anchor=x), lambda x: np.ones(x.shape, to))


@op("shape")
def _shape(p: Program) -> Step | None:
    a = p.pick()
    return None if a is None else Step("", [a], lg.shape, lambda x: np.array(x.shape, np.int64))


@op("one_hot")
def _one_hot(p: Program) -> Step | None:
    a = p.pick(INTS, most=MOST_AXES - 1)
    if a is None:
        return None
    depth, axis, to = p.rng.randint(1, 5), p.rng.randint(-a.rank - 1, a.rank), p.rng.choice(["float32", "int64"])

    def oracle(i: Array) -> Array:
        place = np.where((i >= -depth) & (i < depth), i % depth, -1)
        return np.stack([place == n for n in range(depth)], axis).astype(to)

    return Step(f"{depth} axis={axis} {to}", [a], lambda i: lg.one_hot(i, depth, axis=axis, dtype=to), oracle)


@op("einsum")
def _einsum(p: Program) -> Step | None:
    a = p.pick(FLOATS, rank=2)
    if a is None:
        return None
    text = p.rng.choice(["...ij->...ji", "...ij->...i", "...ij->...j", "...ij->..."])
    return Step(text, [a], lambda x: lg.einsum(text, x), lambda x: np.einsum(text, x), True, scale=_sum_abs(a.value))


@op("layer_normalization")
def _layer_normalization(p: Program) -> Step | None:
    a = p.pick(FLOATS, rank=1)
    if a is None or a.value.size == 0 or bool((a.value.var(-1) < 0.1).any()):
        return None

    def oracle(x: Array) -> Array:
        return np.asarray((x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + x.dtype.type(1e-5)))

    scale = np.ones(a.value.shape[-1:], a.dtype)
    return Step("", [a], lambda x: lg.layer_normalization(x, x.const(scale)), oracle, True, scale=_sum_squares(a.value))


# ---- the tests ----------------------------------------------------------------------------------------------------

NAMES = sorted(OPS)
_STEP = st.tuples(st.sampled_from(NAMES), st.integers(0, 2**16))
STEPS = st.one_of(st.lists(_STEP, min_size=1, max_size=30), st.lists(_STEP, min_size=12, max_size=30))


def check(seed: int, steps: Sequence[tuple[str, int]]) -> None:
    """Build the program of a seed and steps, and compare it with numpy."""
    program = Program(seed)
    try:
        for name, choice in steps:
            program.apply(name, choice)
        program.finish()
    except BaseException:
        hypothesis.note("\n".join(program.text))
        raise


def check_many(count: int, derandomize: bool) -> None:
    phases = [Phase.generate, Phase.shrink]
    quick = settings(
        max_examples=count,
        deadline=None,
        derandomize=derandomize,
        database=None,
        suppress_health_check=list(HealthCheck),
        phases=phases,
    )
    quick(given(seed=st.integers(0, 2**16), steps=STEPS)(check))()


def test_there_are_many_ops() -> None:
    assert len(OPS) >= 80


def test_random_programs_compute_what_numpy_does() -> None:
    check_many(500, derandomize=True)


@pytest.mark.long
def test_many_random_programs_compute_what_numpy_does() -> None:
    check_many(20_000, derandomize=False)
