"""Whether a graph computes what a reference computes, and where the two part when it does not."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from lazygraph.errors import ExportError, LazyGraphError, OperandError
from lazygraph.export.subject import Given, Subject, subject_of

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

Array: TypeAlias = "np.ndarray[Any, Any]"
Feeds: TypeAlias = "Mapping[str, Any]"
Reference: TypeAlias = "Callable[..., Any] | Given"

# Relative and absolute tolerance by element type; what is not here must be equal.
TOLERANCES = {
    "float64": (1e-7, 1e-9),
    "float32": (1e-4, 1e-5),
    "float16": (1e-2, 1e-3),
    "bfloat16": (4e-2, 1e-2),
    "complex64": (1e-4, 1e-5),
    "complex128": (1e-7, 1e-9),
}


def assert_matches(
    outputs_or_file: Given,
    reference: Reference,
    inputs: Feeds | Sequence[Feeds] | SearchStrategy[Feeds],
    rtol: float | None = None,
    atol: float | None = None,
    *,
    provider: str = "cpu",
    max_examples: int = 25,
) -> None:
    """Require that onnxruntime computes what a reference computes.

    When it does not, the message names the first node at which the two part and the line that made it. Another model
    is compared value by value. With a numpy function, values of any name that it returns are compared in the graph's
    order, and onnx's evaluator tells whether the graph or the runtime departs.

    Args:
        outputs_or_file: Tensors by output name as for ``lg.save``, an .onnx file, or a model.
        reference: A function of one array per input, in the graph's order, that returns an array, one per output, or
            a dict by value name; another .onnx file or model; or ``"onnx"``: onnx's reference evaluator.
        inputs: Arrays by input name; a list of such; or a strategy for them, such as ``lazygraph.testing.feeds``.
        rtol: Relative tolerance; None: by element type (float32 1e-4, float16 1e-2, whole numbers equal).
        atol: Absolute tolerance; None: by element type.
        provider: Where onnxruntime runs it.
        max_examples: How many a strategy is asked for.

    Raises:
        AssertionError: They part, or an output has another shape or element type.
        OperandError: The inputs are none, or the reference returns something else than the outputs.
        LazyGraphError: The graph cannot be exported or run.
    """
    __tracebackhide__ = True
    subject = subject_of(outputs_or_file, provider)
    compared = _Compared(subject, _oracle(subject, reference, provider), (rtol, atol), provider)
    if isinstance(inputs, Mapping):
        compared.check(inputs)
    elif isinstance(inputs, Sequence):
        if not inputs:
            raise OperandError("no inputs are given", op="assert_matches", expected="at least one dict of arrays")
        for one in inputs:
            compared.check(one)
    else:
        from hypothesis import HealthCheck, given, settings

        @settings(max_examples=max_examples, deadline=None, suppress_health_check=list(HealthCheck))
        @given(inputs)
        def law(one: Feeds) -> None:
            __tracebackhide__ = True
            compared.check(one)

        law()


# ---- references -----------------------------------------------------------------------------------------------------

Oracle: TypeAlias = "Callable[[Feeds], dict[str, Any]]"


class _OnnxModel:
    """Another model as the reference."""

    def __init__(self, subject: Subject, other: Subject, provider: str) -> None:
        from lazygraph.export.comparing.changes import matched

        self.other, self.provider = other, provider
        pairs = matched(other.model, subject.model)
        self.pairs = {ours: theirs for ours, theirs in pairs.items() if ours in subject.values}
        self.pairs.update({name: name for name in subject.outputs if name in other.outputs})
        missing = [name for name in subject.outputs if name not in other.outputs]
        if missing:
            raise OperandError(
                f"the reference has no output {missing[0]!r}",
                op="assert_matches",
                expected=f"outputs of the same names: {', '.join(subject.outputs)}",
            )
        self.session = other.session(provider)

    def __call__(self, feeds: Feeds) -> dict[str, Any]:
        return self.session.run({name: feeds[name] for name in self.session.inputs})

    def watched(self, feeds: Feeds) -> dict[str, Any]:
        """Return all values that both have, by the names of the model under test."""
        session = self.other.session(self.provider, list(dict.fromkeys(self.pairs.values())))
        found = session.run({name: feeds[name] for name in session.inputs})
        return {ours: found[theirs] for ours, theirs in self.pairs.items() if theirs in found}


def _oracle(subject: Subject, reference: Reference, provider: str) -> Oracle | _OnnxModel:
    if isinstance(reference, str) and reference == "onnx":
        return lambda feeds: subject.by_onnx(feeds, ())
    if callable(reference):
        return lambda feeds: _called(subject, reference, feeds)
    if isinstance(reference, os.PathLike | str | Mapping) or type(reference).__name__ in ("ModelProto", "Tensor"):
        return _OnnxModel(subject, subject_of(reference), provider)
    raise OperandError(
        f"{type(reference).__name__} is no reference",
        op="assert_matches",
        expected="a function, an .onnx file, a model, or 'onnx'",
    )


def _called(subject: Subject, function: Callable[..., Any], feeds: Feeds) -> dict[str, Any]:
    with np.errstate(all="ignore"):
        found = function(*[feeds[name] for name in subject.inputs])
    if isinstance(found, Mapping):
        unknown = [name for name in found if name not in subject.values and name not in subject.outputs]
        missing = [name for name in subject.outputs if name not in found]
        if unknown or missing:
            what = f"it returns {unknown[0]!r}" if unknown else f"it leaves out {missing[0]!r}"
            raise OperandError(
                f"the reference does not fit: {what}",
                op="assert_matches",
                expected=f"the outputs {', '.join(subject.outputs)}, and perhaps values of the graph by their names",
            )
        return dict(found)
    listed = list(found) if isinstance(found, (tuple, list)) else [found]
    if len(listed) != len(subject.outputs):
        raise OperandError(
            f"the reference returns {len(listed)} arrays",
            op="assert_matches",
            expected=f"one per output: {', '.join(subject.outputs)}",
        )
    return dict(zip(subject.outputs, listed, strict=True))


# ---- the comparison -------------------------------------------------------------------------------------------------


class _Compared:
    def __init__(
        self,
        subject: Subject,
        oracle: Oracle | _OnnxModel,
        tolerance: tuple[float | None, float | None],
        provider: str,
    ) -> None:
        self.subject, self.oracle, self.tolerance, self.provider = subject, oracle, tolerance, provider
        self.session = subject.session(provider)

    def check(self, feeds: Feeds) -> None:
        """Compare on one set of inputs."""
        __tracebackhide__ = True
        subject = self.subject
        wanted = self.oracle(feeds)
        given = {name: feeds[name] for name in subject.inputs if name in feeds}
        inner = [name for name in wanted if name not in subject.outputs]
        got = self.session.run(given)
        off = {name: why for name in subject.outputs if (why := self._differs(wanted[name], got[name]))}
        if inner and not off:
            off = self._partings(wanted, subject.session(self.provider, inner).run(given))
        if off:
            raise AssertionError(self._explained(given, wanted, off))

    def _partings(self, wanted: Mapping[str, Any], got: Mapping[str, Any]) -> dict[str, str]:
        """Return, in the graph's order, the values that differ."""
        order = [*self.subject.values, *(name for name in self.subject.outputs if name not in self.subject.values)]
        both = [name for name in order if name in wanted and name in got]
        return {name: why for name in both if (why := self._differs(wanted[name], got[name]))}

    def _explained(self, feeds: Feeds, wanted: Mapping[str, Any], off: Mapping[str, str]) -> str:
        subject, name = self.subject, next(iter(off))
        lines = [f"{name} departs from the reference: {off[name]}"]
        everything = list(subject.values)
        try:
            watched = subject.session(self.provider, everything).run(feeds)
        except LazyGraphError as error:
            return "\n".join([*lines, f"  where they part cannot be seen: {error.what}"])
        if isinstance(self.oracle, _OnnxModel):
            apart = self._partings(self.oracle.watched(feeds), watched)
            lines += self._first(apart, "the two models")
        else:
            apart = self._partings(wanted, watched) or dict(off)
            by_onnx = self._beside_onnx(feeds, watched, everything)
            if by_onnx is None or by_onnx:
                lines += self._first(by_onnx or apart, "onnxruntime and onnx's evaluator" if by_onnx else "the values")
            else:
                lines += self._first(apart, "graph and reference")
                lines.append("  onnx's evaluator agrees with onnxruntime: the graph says something else")
        if not self._partings(wanted, watched):
            lines.append("  with every value watched they agree: an optimisation of onnxruntime makes the difference")
        return "\n".join([*lines, *self._inputs(feeds)])

    def _beside_onnx(self, feeds: Feeds, watched: Mapping[str, Any], names: Sequence[str]) -> dict[str, str] | None:
        try:
            return self._partings(self.subject.by_onnx(feeds, names), watched)
        except ExportError:
            return None

    def _first(self, apart: Mapping[str, str], who: str) -> list[str]:
        if not apart:
            return [f"  no single node parts {who}"]
        value = next(iter(apart))
        op, node, at = self.subject.origin(value)
        found = [f"  first node : {op} {node!r}, where {who} part: {apart[value]}"]
        return [*found, f"  made at    : {at}"] if at is not None else found

    @staticmethod
    def _inputs(feeds: Feeds) -> list[str]:
        return [f"  {name} : {_shown(value)}" for name, value in feeds.items()]

    def _differs(self, wanted: Any, got: Any) -> str:
        """Return how two values differ; empty where they do not."""
        if isinstance(got, list) or isinstance(wanted, list):
            items, found = list(wanted or []), list(got or [])
            if len(items) != len(found):
                return f"{len(found)} items for {len(items)}"
            return next((why for x, y in zip(items, found, strict=True) if (why := self._differs(x, y))), "")
        if got is None or wanted is None:
            return "" if got is wanted else f"{type(got).__name__} for {type(wanted).__name__}"
        a, b = np.asarray(wanted), np.asarray(got)
        if a.shape != b.shape:
            return f"shape {b.shape} for {a.shape}"
        if b.dtype == object or b.dtype.kind in "biu":
            off = np.asarray(a != b)
        else:
            rtol, atol = TOLERANCES.get(b.dtype.name, (0.1, 0.1))
            rtol = self.tolerance[0] if self.tolerance[0] is not None else rtol
            atol = self.tolerance[1] if self.tolerance[1] is not None else atol
            wide = np.complex128 if "c" in (a.dtype.kind, b.dtype.kind) else np.float64
            a, b = a.astype(wide), b.astype(wide)
            off = ~np.isclose(b, a, rtol, atol, equal_nan=True)
        if not off.any():
            return ""
        place = tuple(int(i) for i in np.argwhere(off)[0])
        return f"{int(off.sum())} of {off.size} elements, first at {list(place)}: {b[place]} for {a[place]}"


def _shown(value: Any) -> str:
    array = np.asarray(value) if not isinstance(value, list) else None
    if array is None:
        return f"{len(value)} items"
    return f"{array.dtype} {array.shape}" + (f" = {array.tolist()}" if array.size <= 8 else "")


__all__ = ["TOLERANCES", "assert_matches"]
