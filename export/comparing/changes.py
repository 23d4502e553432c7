"""The changes from one model to another, as a list that people and programs read."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from lazygraph.dtypes import dtype_of_onnx
from lazygraph.errors import DTypeError
from lazygraph.export.collector import collector_paused
from lazygraph.export.comparing.matching import Matching, Side
from lazygraph.export.comparing.numbers import Weights, difference
from lazygraph.export.loading import content_of, parsed
from lazygraph.export.source_lines import KEY, FileLines

if TYPE_CHECKING:
    from onnx import AttributeProto, ModelProto, NodeProto, TypeProto


@dataclass(frozen=True)
class Change:
    """One difference.

    Attributes:
        what: ``node``, ``input``, ``output``, ``weight``, ``shape``, ``opset``, ``metadata`` or ``ir-version``.
        how: ``added``, ``removed`` or ``changed``.
        name: The node, value, weight, domain or key it is about.
        text: What it was and what it is.
        line: The line that made a node, of the model that still has it, where the file tells it.
    """

    what: str
    how: str
    name: str
    text: str
    line: str = ""


def compare_files(before: str | Path, after: str | Path, rtol: float = 0.0, atol: float = 0.0) -> list[Change]:
    """Return what changed from one model file to another.

    Args:
        before: The one.
        after: The other.
        rtol: Weights may differ by so much relative to their size.
        atol: And by so much absolutely.

    Raises:
        LoadError: A file cannot be read, or is no ONNX model.
    """
    one, other = Path(before), Path(after)
    return compare_models(
        parsed(content_of(one), str(one)), parsed(content_of(other), str(other)), rtol, atol, paths=(one, other)
    )


def compare_models(
    before: ModelProto,
    after: ModelProto,
    rtol: float = 0.0,
    atol: float = 0.0,
    *,
    paths: tuple[Path | None, Path | None] = (None, None),
) -> list[Change]:
    """Return what changed from one model to another (see ``compare_files``).

    Args:
        before: The one.
        after: The other.
        rtol: As for ``compare_files``.
        atol: As for ``compare_files``.
        paths: Their files, beside which their weights lie.
    """
    with collector_paused():
        return list(_Comparison(before, after, rtol, atol, paths).changes())


def matched(before: ModelProto, after: ModelProto) -> dict[str, str]:
    """Return by value of the second model the value of the first that is the same."""
    with collector_paused():
        return _Comparison(before, after, 0.0, 0.0, (None, None)).matching.values


class _Comparison:
    def __init__(
        self,
        before: ModelProto,
        after: ModelProto,
        rtol: float,
        atol: float,
        paths: tuple[Path | None, Path | None],
    ) -> None:
        self.before, self.after, self.rtol, self.atol = before, after, rtol, atol
        self.weights = Weights(before, paths[0]), Weights(after, paths[1])
        self.lines = FileLines.of_model(before), FileLines.of_model(after)
        sides = Side(before.graph), Side(after.graph)
        self.matching = Matching(*sides, self._same_names())

    def _same_names(self) -> dict[str, str]:
        """Return inputs and weights that are the same: by name, and weights of another name by what they hold."""
        ins = [{value.name: value for value in model.graph.input} for model in (self.before, self.after)]
        same = {name: name for name in ins[1] if name in ins[0]}
        old, new = self.weights
        same.update({name: name for name in new.tensors if name in old.tensors and old.kind(name) == new.kind(name)})
        lost = [name for name in old.tensors if name not in same.values()] if len(same) < len(old.tensors) else []
        free = _by_content(old, lost)
        for name in new.tensors:
            if name not in same and free and (found := free.get(_key(new, name))):
                same[name] = found.pop(0)
        for name in new.tensors:  # the same name with another type or shape is that weight, changed
            if name not in same and name in old.tensors and name not in same.values():
                same[name] = name
        return same

    def changes(self) -> Iterator[Change]:
        """Yield every change."""
        yield from self._facts()
        yield from self._interface()
        yield from self._nodes()
        yield from self._shapes()
        yield from self._weights()

    def _facts(self) -> Iterator[Change]:
        if self.before.ir_version != self.after.ir_version:
            yield Change("ir-version", "changed", "", f"{self.before.ir_version} -> {self.after.ir_version}")
        opsets = [
            {entry.domain or "ai.onnx": entry.version for entry in model.opset_import}
            for model in (self.before, self.after)
        ]
        yield from _tables("opset", opsets[0], opsets[1])
        texts = [  # that a line moved is no change of the model
            {entry.key: entry.value for entry in model.metadata_props if entry.key != KEY}
            for model in (self.before, self.after)
        ]
        yield from _tables("metadata", texts[0], texts[1])

    def _interface(self) -> Iterator[Change]:
        for what in ("input", "output"):
            tables = [
                {value.name: type_text(value.type) for value in getattr(model.graph, what)}
                for model in (self.before, self.after)
            ]
            yield from _tables(what, tables[0], tables[1])

    def _nodes(self) -> Iterator[Change]:
        before, after, pairs = self.matching.before, self.matching.after, self.matching.nodes
        for new, node in enumerate(after.nodes):
            old = pairs.get(new)
            if old is None:
                if not _is_weight(node):
                    yield Change("node", "added", _name(node), _call(node), _line(self.lines[1], node))
                continue
            said = [*_attribute_changes(before.nodes[old], node)]
            if before.attributes[old] != after.attributes[new] and not said:
                said = ["the graph inside it"]
            given = [self.matching.values.get(name, name) if name else "" for name in after.inputs[new]]
            for place in range(max(len(given), len(before.inputs[old]))):
                ours = given[place] if place < len(given) else ""
                theirs = before.inputs[old][place] if place < len(before.inputs[old]) else ""
                if ours != theirs or (ours and after.inputs[new][place] not in self.matching.values):
                    read = after.inputs[new][place] if place < len(given) else ""
                    said.append(f"operand {place}: {theirs or 'none'} -> {read or 'none'}")
            if len(before.outputs[old]) != len(after.outputs[new]):
                said.append(f"{len(before.outputs[old])} results -> {len(after.outputs[new])}")
            if said and not _is_weight(node):
                text = f"{node.op_type}: " + "; ".join(said)
                yield Change("node", "changed", _name(node), text, _line(self.lines[1], node))
        kept = set(pairs.values())
        for old, node in enumerate(before.nodes):
            if old not in kept and not _is_weight(node):
                yield Change("node", "removed", _name(node), _call(node), _line(self.lines[0], node))
        ends = self.matching.values
        for ours in self.after.graph.output:
            there = {value.name for value in self.before.graph.output}
            if ours.name in there and ends.get(ours.name, ours.name) != ours.name:
                yield Change("output", "changed", ours.name, f"it was made where {ends[ours.name]!r} was")

    def _shapes(self) -> Iterator[Change]:
        old, new = _types(self.before), _types(self.after)
        outside = {value.name for value in (*self.after.graph.output, *self.after.graph.input)} | set(
            self.weights[1].tensors
        )
        for ours, theirs in self.matching.values.items():
            if ours in outside or ours not in new or theirs not in old:
                continue
            if old[theirs] != new[ours]:
                yield Change("shape", "changed", ours, f"{old[theirs]} -> {new[ours]}")

    def _weights(self) -> Iterator[Change]:
        old, new = self.weights
        same = self.matching.values
        pairs = {name: same[name] for name in new.tensors if same.get(name) in old.tensors}
        for name in new.tensors:
            if name not in pairs:
                yield Change("weight", "added", name, _kind_text(new.kind(name)))
        for name in old.tensors.keys() - set(pairs.values()):
            yield Change("weight", "removed", name, _kind_text(old.kind(name)))
        for name, there in pairs.items():
            kinds = old.kind(there), new.kind(name)
            if kinds[0] != kinds[1]:
                yield Change("weight", "changed", name, f"{_kind_text(kinds[0])} -> {_kind_text(kinds[1])}")
                continue
            one, other = old.tensors[there], new.tensors[name]
            if one.raw_data and one.raw_data == other.raw_data:
                continue
            a, b = old.array(there), new.array(name)
            found = difference(a, b, self.rtol, self.atol)
            if found is not None:
                count, largest, place = found
                index = [int(i) for i in np.unravel_index(place, a.shape)] if a.shape else []
                text = f"{count:,} of {a.size:,} numbers, by up to {largest:.3g} at {index}"
                yield Change("weight", "changed", name, text)


def _key(weights: Weights, name: str) -> object:
    """Return what two weights share that hold the same."""
    array = weights.array(name)
    content = repr(array.tolist()).encode() if array.dtype == object else np.ascontiguousarray(array).tobytes()
    return weights.kind(name), hashlib.sha256(content).digest()


def _by_content(weights: Weights, names: list[str]) -> dict[object, list[str]]:
    found: dict[object, list[str]] = {}
    for name in names:
        found.setdefault(_key(weights, name), []).append(name)
    return found


def _tables(what: str, before: dict[str, Any], after: dict[str, Any]) -> Iterator[Change]:
    for name in dict.fromkeys([*before, *after]):
        if name not in before:
            yield Change(what, "added", name, str(after[name]))
        elif name not in after:
            yield Change(what, "removed", name, str(before[name]))
        elif before[name] != after[name]:
            yield Change(what, "changed", name, f"{before[name]} -> {after[name]}")


def _types(model: ModelProto) -> dict[str, str]:
    """Return the types of what nodes make: as declared, and as onnx infers them without the weights' bytes."""
    from onnx import shape_inference

    from lazygraph.export.checking.shapes import without_weights

    with contextlib.suppress(shape_inference.InferenceError, RuntimeError, ValueError):  # what is declared stands
        model = shape_inference.infer_shapes(without_weights(model), data_prop=True)
    return {value.name: type_text(value.type) for value in model.graph.value_info}


def type_text(kind: TypeProto) -> str:
    """Return a type as lazygraph writes it; sizes that only onnx gave a name are ``?``."""
    which = kind.WhichOneof("value")
    if which != "tensor_type":
        return str(which or "untold").removesuffix("_type")
    tensor = kind.tensor_type
    if not tensor.HasField("shape"):
        return f"{_dtype(tensor.elem_type)} (unknown)"
    sizes = [
        str(dim.dim_value)
        if dim.HasField("dim_value")
        else "?"
        if dim.dim_param.startswith("unk__")
        else dim.dim_param or "?"
        for dim in tensor.shape.dim
    ]
    return f"{_dtype(tensor.elem_type)} [{', '.join(sizes)}]"


def _dtype(number: int) -> str:
    try:
        return dtype_of_onnx(number).name
    except DTypeError:
        return f"type {number}"


def _kind_text(kind: tuple[int, tuple[int, ...]]) -> str:
    return f"{_dtype(kind[0])} {list(kind[1])}"


def _is_weight(node: NodeProto) -> bool:
    return node.op_type == "Constant" and len(node.attribute) == 1 and node.attribute[0].name == "value"


def _name(node: NodeProto) -> str:
    return node.name or next((name for name in node.output if name), "")


def _line(lines: FileLines, node: NodeProto) -> str:
    at = lines.of(node)
    return "" if at is None else str(at)


def _call(node: NodeProto) -> str:
    op = f"{node.domain}.{node.op_type}" if node.domain else node.op_type
    return f"{op}({', '.join(node.input)}) -> {', '.join(node.output)}"


def _attribute_changes(before: NodeProto, after: NodeProto) -> Iterator[str]:
    old = {attribute.name: attribute for attribute in before.attribute if not attribute.HasField("g")}
    new = {attribute.name: attribute for attribute in after.attribute if not attribute.HasField("g")}
    for name in sorted({*old, *new}):
        a, b = old.get(name), new.get(name)
        if a is None or b is None or a.SerializeToString() != b.SerializeToString():
            yield f"{name}: {_value(a)} -> {_value(b)}"


def _value(attribute: AttributeProto | None) -> str:
    if attribute is None:
        return "none"
    if attribute.HasField("t"):
        return f"a tensor {_kind_text((attribute.t.data_type, tuple(attribute.t.dims)))}"
    from onnx import helper

    value = helper.get_attribute_value(attribute)
    return repr(value.decode(errors="replace") if isinstance(value, bytes) else value)[:80]


__all__ = ["Change", "compare_files", "compare_models", "matched", "type_text"]
