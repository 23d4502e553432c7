"""What a node surely waits for, whatever a runtime folds or leaves out.

A runtime knows constants and many shapes when it loads a file. It then computes what follows from them alone, takes one
branch of an If whose condition is known, and forgets operands that only say a type, a shape or a setting. Whatever
hung on those waits for nothing any more.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from onnx import GraphProto, NodeProto

# Of these operators only so many first operands are sure to be waited for. The others say a shape, axes, a type or a
# chance: onnxruntime makes a Cast of CastLike, one Reshape of two, and drops a Dropout.
# fmt: off
_WAITED_FOR = {
    **dict.fromkeys(("Shape", "Size", "ConstantOfShape", "EyeLike", "RandomNormalLike", "RandomUniformLike"), 0),
    **dict.fromkeys((
        "CastLike", "Dropout", "Reshape", "Expand", "Tile", "Pad", "Slice", "Split", "Squeeze", "Unsqueeze", "Resize",
        "ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean", "ReduceMin",
        "ReduceProd", "ReduceSum", "ReduceSumSquare",
    ), 1),
}
# fmt: on


def is_op(node: NodeProto, op_types: Collection[str]) -> bool:
    """Return whether the node is one of ai.onnx's operators of these names; another domain's may do anything."""
    return node.domain in ("", "ai.onnx") and node.op_type in op_types


class Waiting:
    """What the nodes of a graph, or of a body within it, wait for.

    Args:
        graph: The graph.
        around: The graph in which it is a body; None for the outermost.
    """

    def __init__(self, graph: GraphProto, around: Waiting | None = None) -> None:
        self._graph, self._around = graph, around
        self._makers = {name: node for node in graph.node for name in node.output if name}
        self._inputs = {value.name for value in graph.input}
        self._constants = {weight.name for weight in graph.initializer} - self._inputs

    def names(self, node: NodeProto) -> Iterator[str]:
        """Yield names that are there before the node runs; those of a body's own are left out."""
        bodies = [nested for attribute in node.attribute for nested in (attribute.g, *attribute.graphs)]
        if is_op(node, ("If",)) and self._is_known(node.input[0]):
            return
        count = _WAITED_FOR.get(node.op_type) if is_op(node, _WAITED_FOR) else None
        yield from filter(None, node.input[:count])
        for nested in bodies:
            yield from Waiting(nested, self)._captured()

    def _captured(self) -> Iterator[str]:
        """Yield the outer names that the results of a body are made of."""
        for name in self._walked([output.name for output in self._graph.output]):
            if name not in self._makers and name not in self._inputs and name not in self._constants:
                yield name

    def _walked(self, names: Iterable[str]) -> Iterator[str]:
        """Yield the names, and all of this graph that they are made of."""
        found = list(dict.fromkeys(names))
        seen = set(found)
        for name in found:  # grows on the way
            yield name
            if name in self._makers:
                new = [needed for needed in self.names(self._makers[name]) if needed not in seen]
                seen.update(new)
                found += new

    def _is_known(self, name: str) -> bool:
        """Return whether a value may follow from constants and shapes alone."""
        for needed in self._walked([name]):
            if needed in self._inputs:
                return False
            outside = needed not in self._makers and needed not in self._constants
            if outside and (self._around is None or not self._around._is_known(needed)):
                return False
        return True


__all__ = ["Waiting", "is_op"]
