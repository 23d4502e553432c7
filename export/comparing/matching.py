"""Which node of one graph is which node of another: by what they read, by who reads them, by name, in this order.

Names alone mislead: a node more renumbers all that follow. What a node computes does not change by that, so matches
grow from the inputs and weights downwards and from the outputs upwards, until nothing new is found.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from onnx import GraphProto, NodeProto


class Side:
    """One of the two graphs: who makes and who reads each value.

    Attributes:
        nodes: Its nodes, as the file has them.
        inputs: The operands of each, ``""`` for one left out; what an inner graph reads from outside comes last.
        kinds: Domain and operator of each.
        attributes: What each is given beside operands, its inner graphs included, independent of their names.
        maker: The node and the place that make a value.
        readers: The nodes and places that read it.
    """

    def __init__(self, graph: GraphProto) -> None:
        self.graph = graph
        self.nodes: list[NodeProto] = list(graph.node)
        self.kinds = [(node.domain.removeprefix("ai.onnx") or "", node.op_type) for node in self.nodes]
        self.inputs: list[tuple[str, ...]] = []
        self.outputs: list[tuple[str, ...]] = []
        self.attributes: list[bytes] = []
        self.maker: dict[str, tuple[int, int]] = {}
        self.readers: dict[str, list[tuple[int, int]]] = defaultdict(list)
        for i, node in enumerate(self.nodes):
            given, made = tuple(node.input), tuple(node.output)
            if node.attribute:
                attributes, outside = _attributes(node)
                given += outside
            else:
                attributes = b""
            self.attributes.append(attributes)
            self.inputs.append(given)
            self.outputs.append(made)
            for place, name in enumerate(made):
                if name:
                    self.maker[name] = i, place
            for place, name in enumerate(given):
                if name:
                    self.readers[name].append((i, place))


def _attributes(node: NodeProto) -> tuple[bytes, tuple[str, ...]]:
    """Return a node's attributes as bytes that two equal nodes share, and what its inner graphs read from outside."""
    parts: list[bytes] = []
    outside: list[str] = []
    for attribute in sorted(node.attribute, key=lambda entry: entry.name):
        if attribute.HasField("g"):
            body, read = _body(attribute.g)
            parts.append(attribute.name.encode() + body)
            outside += read
        else:
            copy = attribute
            if attribute.doc_string:
                copy = type(attribute)()
                copy.CopyFrom(attribute)
                copy.ClearField("doc_string")
            parts.append(copy.SerializeToString(deterministic=True))
    return b"\0".join(parts), tuple(outside)


def _body(graph: GraphProto) -> tuple[bytes, list[str]]:
    """Return an inner graph as bytes without its names, and the names from outside that it reads, in order."""
    own: dict[str, int] = {}
    outside: dict[str, int] = {}
    for name in (*(value.name for value in graph.input), *(tensor.name for tensor in graph.initializer)):
        own[name] = len(own)

    def ref(name: str) -> bytes:
        if not name or name in own:
            return f"#{own.get(name, '')}".encode()
        return f"^{outside.setdefault(name, len(outside))}".encode()

    parts = [
        tensor.SerializeToString(deterministic=True).replace(tensor.name.encode(), b"") for tensor in graph.initializer
    ]
    for node in graph.node:
        inner, read = _attributes(node)
        refs = b",".join(ref(name) for name in (*node.input, *read))
        parts.append(b"|".join([node.domain.encode(), node.op_type.encode(), refs, inner]))
        for name in node.output:
            own[name] = len(own)
    parts.append(b",".join(ref(value.name) for value in graph.output))
    return b"{" + b";".join(parts) + b"}", list(outside)


class Matching:
    """The pairs of nodes and of values that are the same in two graphs.

    Attributes:
        nodes: By node of the second graph, that of the first.
        values: By value of the second graph, that of the first.
    """

    def __init__(self, before: Side, after: Side, values: dict[str, str]) -> None:
        self.before, self.after = before, after
        self.nodes: dict[int, int] = {}
        self._taken: set[int] = set()
        self.values = dict(values)
        ends = {value.name for value in before.graph.output}
        self._ends = {value.name for value in after.graph.output} & ends
        self._grow()
        self._by_name()
        self._grow()
        self._leftovers()

    def _pair(self, new: int, old: int) -> None:
        self.nodes[new] = old
        self._taken.add(old)
        for ours, theirs in zip(self.after.outputs[new], self.before.outputs[old], strict=False):
            if ours and theirs:
                self.values.setdefault(ours, theirs)

    def _grow(self) -> None:
        count = -1
        while count != len(self.nodes):
            count = len(self.nodes)
            self._downwards(exact=True)
            self._upwards(exact=True)
            if count == len(self.nodes):
                self._downwards(exact=False)
                self._upwards(exact=False)

    def _downwards(self, exact: bool) -> None:
        """Match nodes that read the same values; those with the same attributes first."""
        waiting: dict[object, list[int]] = defaultdict(list)
        before, after = self.before, self.after
        for old in reversed(range(len(before.nodes))):
            if old not in self._taken:
                waiting[before.kinds[old], before.inputs[old], before.attributes[old] if exact else None].append(old)
        if not waiting:
            return
        values = self.values
        for new in range(len(after.nodes)):
            if new in self.nodes:
                continue
            given = tuple([values.get(name, "\0") if name else "" for name in after.inputs[new]])
            if "\0" in given or not given:
                continue
            found = waiting.get((after.kinds[new], given, after.attributes[new] if exact else None))
            if found:
                self._pair(new, self._nearest(new, found))

    def _nearest(self, new: int, found: list[int]) -> int:
        """Take out of equal nodes the one of the same name, else the first."""
        name = self.after.nodes[new].name
        for place, old in enumerate(found):
            if len(found) > 1 and name and self.before.nodes[old].name == name:
                return found.pop(place)
        return found.pop()

    def _upwards(self, exact: bool) -> None:
        """Match the makers of values that matching nodes read at the same place, and of equal outputs."""
        for new in reversed(range(len(self.after.nodes))):
            if new in self.nodes:
                continue
            for place, name in enumerate(self.after.outputs[new]):
                old = self._maker_read_alike(name, place) if name else None
                if old is not None and old not in self._taken and self.before.kinds[old] == self.after.kinds[new]:
                    if not exact or self.before.attributes[old] == self.after.attributes[new]:
                        self._pair(new, old)
                    break

    def _maker_read_alike(self, name: str, place: int) -> int | None:
        before = self.before
        there = name if name in self._ends else self.values.get(name)
        if there is not None and (made := before.maker.get(there)) is not None:
            return made[0] if made[1] == place else None
        for reader, position in self.after.readers.get(name, ()):
            old = self.nodes.get(reader)
            if old is None or position >= len(before.inputs[old]):
                continue
            made = before.maker.get(before.inputs[old][position])
            if made is not None and made[1] == place:
                return made[0]
        return None

    def _by_name(self) -> None:
        names = {node.name: old for old, node in enumerate(self.before.nodes) if node.name and old not in self._taken}
        for new, node in enumerate(self.after.nodes):
            old = names.get(node.name)
            if new in self.nodes or old is None or old in self._taken:
                continue
            if self.before.kinds[old] == self.after.kinds[new]:
                self._pair(new, old)

    def _leftovers(self) -> None:
        """Match what is left of the same operator that shares an operand, in order: it was given another one."""
        waiting: dict[object, list[int]] = defaultdict(list)
        for old in range(len(self.before.nodes)):
            if old not in self._taken:
                for name in dict.fromkeys(filter(None, self.before.inputs[old])):
                    waiting[self.before.kinds[old], name].append(old)
        for new in range(len(self.after.nodes)):
            if new not in self.nodes and waiting:
                found = self._sharing(new, waiting)
                if found is not None:
                    self._pair(new, found)

    def _sharing(self, new: int, waiting: dict[object, list[int]]) -> int | None:
        mapped: Iterable[str] = (self.values[name] for name in self.after.inputs[new] if name in self.values)
        for name in mapped:
            for old in waiting.get((self.after.kinds[new], name), ()):
                if old not in self._taken:
                    return old
        return None


__all__ = ["Matching", "Side"]
