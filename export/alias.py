"""Proof that a cache slot may be updated in place: its input and its output bound to one memory.

onnxruntime runs nodes in any order that the data allows. When a write goes to the memory of its own operand, every
other reader of that operand sees old rows or new ones, whichever runs first, without an error. So a slot is updated
in place only where the graph proves that the write is the sole reader of the old buffer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, NodeProto

# Operators that may write to the memory of their first operand: each element of the result is the operand's own or an
# update, and onnxruntime's kernels copy nothing when both are one memory.
_WRITES = frozenset({"ScatterND", "ScatterElements"})
# Operators that look at a tensor's shape and never at its elements: they may come before or after a write.
_SHAPE_ONLY = frozenset({"Shape", "Size"})


def shared_memory_faults(model: ModelProto, pairs: Mapping[str, str]) -> dict[str, str]:
    """Return the pairs that must not share memory, each with the reason; empty when all may.

    Args:
        model: The model; its weights need not be loaded.
        pairs: Per graph input, the graph output that would be bound to the same memory.
    """
    graph = model.graph
    producers = {name: node for node in graph.node for name in node.output}
    readers = Counter(_names_read(graph))
    outputs = {output.name for output in graph.output}
    faults: dict[str, str] = {}
    for source, target in pairs.items():
        if source == target:
            continue
        write = producers.get(target)
        if target not in outputs:
            faults[source] = f"{target} is not an output of the graph"
        elif write is None or not _is(write, (*_WRITES, "Identity")) or not write.input:
            faults[source] = (
                f"{target} is made by {write.op_type if write else 'nothing'}, which does not write in place"
            )
        elif write.input[0] != source:
            faults[source] = f"{target} is not a write into {source} itself"
        elif source in write.input[1:]:
            faults[source] = f"{write.name or write.op_type} reads {source} as an update of itself"
        elif readers[source] > 1:
            faults[source] = f"{source} has {readers[source]} readers; only the write may read it"
        elif source in outputs:
            faults[source] = f"{source} is an output of the graph as well"
    return faults


def _is(node: NodeProto, op_types: Collection[str]) -> bool:
    """Return whether the node is one of ai.onnx's operators of these names; another domain's may do anything."""
    return node.domain in ("", "ai.onnx") and node.op_type in op_types


def _names_read(graph: GraphProto) -> Iterator[str]:
    """Yield every name whose elements a node reads, in nested graphs too: they capture the outer graph's values."""
    for node in graph.node:
        if not _is(node, _SHAPE_ONLY):
            yield from node.input
        for attribute in node.attribute:
            for nested in (attribute.g, *attribute.graphs):
                yield from _names_read(nested)
                yield from (output.name for output in nested.output)
