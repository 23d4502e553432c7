"""Proof that a cache slot may be updated in place: its input and its output bound to one memory.

onnxruntime runs nodes in any order that the data allows. When a write goes to the memory of its own operand, every
other reader of that operand sees old rows or new ones, whichever runs first, without an error. So a slot is updated
in place only where the graph proves that no reader can come after the write: either the write is the only one, or
what each of them computes flows into the index or the updates of the write, which therefore waits for it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING

from lazygraph.export.waiting import Waiting, is_op

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, NodeProto

# Operators that may write to the memory of their first operand: each element of the result is the operand's own or an
# update, and onnxruntime's kernels copy nothing when both are one memory.
_WRITES = frozenset({"ScatterND", "ScatterElements"})
# Operators that look at a tensor's shape and never at its elements: they may come before or after a write, and nothing
# waits for them, since a shape that is known is folded into a constant.
_SHAPE_ONLY = frozenset({"Shape", "Size"})
# Operators whose result may be their operand's memory: they only give it another shape, or a runtime takes them out
# where they change nothing (a slice of everything, a cast to the same type, plus zero). Who reads it reads the operand.
# fmt: off
_VIEWS = frozenset({
    "Identity", "Reshape", "Squeeze", "Unsqueeze", "Flatten", "Dropout", "If", "Loop", "Scan", "Slice", "Split",
    "Expand", "Tile", "Pad", "Transpose", "Concat", "Cast", "CastLike", "Add", "Sub", "Mul", "Div", "Pow",
    "Max", "Min", "Sum", "Mean", "Optional", "OptionalGetElement",
})
# fmt: on


def shared_memory_faults(model: ModelProto, pairs: Mapping[str, str]) -> dict[str, str]:
    """Return the pairs that must not share memory, each with the reason; empty when all may.

    A pair may share memory where its output is a ScatterND or ScatterElements into its input, and every other reader
    of the input's elements (of a reshaped view of it too) is a true ancestor of that write, through the index or the
    updates: the write cannot begin before they are done. A dependency through a mere shape, type or setting is none,
    nor one through an If whose condition may be known when the file is loaded (:mod:`lazygraph.export.waiting`).

    Args:
        model: The model; its weights need not be loaded.
        pairs: Per graph input, the graph output that would be bound to the same memory.

    Returns:
        Per input that must not share memory with its output, the reason in one sentence.

    Source: onnxruntime's order of execution, which is any that the data allows.
    """
    if model.functions:  # what a call does to its operands stands in its body
        from onnx import inliner

        model = inliner.inline_local_functions(model)
    graph = _Reading(model.graph)
    faults = {source: _fault(graph, source, target) for source, target in pairs.items() if source != target}
    return {source: reason for source, reason in faults.items() if reason}


class _Reading:
    """Who makes and who reads each name of a graph."""

    def __init__(self, graph: GraphProto) -> None:
        self.nodes = list(graph.node)
        self.outputs = {output.name for output in graph.output}
        self.makers: dict[str, int] = {}
        self.readers: dict[str, list[int]] = defaultdict(list)  # once per place that reads, so perhaps repeatedly
        self._waiting = Waiting(graph)
        for place, node in enumerate(self.nodes):
            for name in _names_read(node):
                self.readers[name].append(place)
            for name in node.output:
                self.makers[name] = place

    def waited_for(self, names: Collection[str]) -> set[int]:
        """Return the nodes that must have run before all of the names are there."""
        found: set[int] = set()
        waiting = [self.makers[name] for name in names if name in self.makers]
        while waiting:
            place = waiting.pop()
            if place not in found:
                found.add(place)
                needed = self._waiting.names(self.nodes[place])
                waiting += [self.makers[name] for name in needed if name in self.makers]
        return found

    def views(self, source: str) -> list[str]:
        """Return the names that may be the source's own memory."""
        found = [source]
        for name in found:  # grows on the way
            for place in self.readers[name]:
                node = self.nodes[place]
                joins = node.op_type == "Concat" and len(node.input) > 1  # that copies
                if (is_op(node, _VIEWS) and not joins) or node.domain not in ("", "ai.onnx"):
                    found += [output for output in node.output if output and output not in found]
        return found


def _fault(graph: _Reading, source: str, target: str) -> str:
    """Return why the two must not share memory; empty when they may."""
    place = graph.makers.get(target)
    write = graph.nodes[place] if place is not None else None
    if target not in graph.outputs:
        return f"{target} is not an output of the graph"
    if place is None or write is None or not is_op(write, (*_WRITES, "Identity")) or not write.input:
        return f"{target} is made by {write.op_type if write else 'nothing'}, which does not write in place"
    if write.input[0] != source:
        return f"{target} is not a write into {source} itself"
    if source in write.input[1:]:
        return f"{write.name or write.op_type} reads {source} as an update of itself"
    if source in graph.outputs:
        return f"{source} is an output of the graph as well"
    if write.op_type == "Identity":
        count = len(graph.readers[source])
        return "" if count == 1 else f"{source} has {count} readers; only a copy of nothing else may read it"

    before = graph.waited_for(write.input[1:])
    for name in graph.views(source):
        if name == target:
            continue
        shown = source if name == source else f"{name}, a view of {source},"
        if name in graph.outputs:
            return f"{shown} is an output of the graph as well"
        if name != source and name in write.input[1:]:
            return f"{write.name or write.op_type} reads {shown} as an update of itself"
        for reader in graph.readers[name]:
            if reader != place and reader not in before:
                node = graph.nodes[reader]
                return (
                    f"{node.op_type} {node.name or node.output[0]} reads {shown} and may run after the write: "
                    "nothing of it flows into the write"
                )
    return ""


def _names_read(node: NodeProto) -> Iterator[str]:
    """Yield every name whose elements a node reads, in nested graphs too: they capture the outer graph's values."""
    if not is_op(node, _SHAPE_ONLY):
        yield from node.input
    for attribute in node.attribute:
        for nested in (attribute.g, *attribute.graphs):
            for inner in nested.node:
                yield from _names_read(inner)
            yield from (output.name for output in nested.output)


__all__ = ["shared_memory_faults"]
