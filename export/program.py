"""What outputs mean, ready to be written: nodes in program order, constants, inputs, and a name for each value."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from operator import attrgetter
from typing import TypeAlias

from lazygraph.dims import SizeLike
from lazygraph.errors import GraphMismatchError, OperandError, spelled
from lazygraph.export.placing import Place, places
from lazygraph.export.stored import Stored, store, store_default
from lazygraph.origins import Body, BodyInput
from lazygraph.tensor import Constant, Graph, Input, Node, Shape, Tensor, describe
from lazygraph.where import Where

Declared: TypeAlias = "Tensor | tuple[Tensor, list[SizeLike] | tuple[SizeLike, ...]]"
Outputs: TypeAlias = "Tensor | Mapping[str, Declared]"
Origin: TypeAlias = "Node | Input | BodyInput | Constant"


@dataclass(frozen=True, slots=True)
class Copy:
    """An Identity that gives a value a second name: for an output that is an input, a constant, or another output too.

    Attributes:
        source: Name of the value.
        target: The second name.
        node: The call.
        name: The call's name.
        body: The body whose result it makes; None for the graph itself.
    """

    source: str
    target: str
    node: Node
    name: str
    body: Body | None = None


@dataclass(slots=True)
class Program:
    """A graph's part that some outputs need, with unique names.

    Attributes:
        graph: The graph that it is of.
        inputs: Every declared input of the graph, reached or not, in order of declaration.
        nodes: Operator calls in program order.
        weights: What inputs have where nothing is fed, then constants, each content once, in program order.
        outputs: Output tensors by name.
        declared: The shapes that outputs were declared with, where they were.
        names: Value names by origin, one per output of it; ``""`` for an output that nobody reads.
        node_names: Node names, in the order of ``nodes``.
        copies: Outputs that need an Identity.
        places: The body of every node that belongs to one; the others belong to the graph itself.
        results: By body, the names of what it gives.
    """

    graph: Graph
    inputs: dict[str, Tensor]
    nodes: list[Node]
    weights: list[Stored]
    outputs: dict[str, Tensor]
    declared: dict[str, Shape]
    names: dict[Origin, tuple[str, ...]] = field(default_factory=dict)
    node_names: list[str] = field(default_factory=list)
    copies: list[Copy] = field(default_factory=list)
    places: dict[Node, Place] = field(default_factory=dict)
    results: dict[Body, list[str]] = field(default_factory=dict)

    @property
    def calls(self) -> list[Node]:
        """Every operator call that the file has, the copies of outputs too."""
        return [*self.nodes, *[copy.node for copy in self.copies]]

    def name_of(self, tensor: Tensor) -> str:
        """Return the name that the tensor has in the file."""
        return self.names[tensor.origin][tensor.index]

    def lines(self) -> dict[str, tuple[str, Where | None]]:
        """Return by node name the operator and the user's line."""
        found = {name: (node.op, node.at) for name, node in zip(self.node_names, self.nodes, strict=True)}
        found.update({copy.name: (copy.node.op, copy.node.at) for copy in self.copies})
        return found


def collect(outputs: Outputs, all_inputs: bool = True) -> Program:
    """Return the program of the outputs, named.

    Args:
        outputs: Tensors by output name, each perhaps with a declared shape; a single tensor is called ``output``.
        all_inputs: Keep inputs that the outputs do not reach.

    Raises:
        OperandError: No outputs, an output that is no tensor, or an output name that something else has.
        GraphMismatchError: The outputs belong to different graphs.
        ShapeError: A declared shape is no shape (see ``lazygraph.export.checks.declared_shapes`` for the rest).
    """
    named, declared = _outputs(outputs)
    graph = next(iter(named.values())).graph
    nodes, constants, needed, read = _reached(named.values())
    inputs = {name: tensor for name, tensor in graph.inputs.items() if all_inputs or tensor.origin in needed}
    program = Program(graph, inputs, nodes, [], named, declared)
    program.places = places(nodes, named.values(), needed)
    _Namer(program, constants, read).run()
    return program


def _outputs(outputs: Outputs) -> tuple[dict[str, Tensor], dict[str, Shape]]:
    given = {"output": outputs} if isinstance(outputs, Tensor) else outputs
    if not isinstance(given, Mapping) or not given:
        raise OperandError(
            f"{outputs!r} are no outputs", op="outputs", expected="a tensor, or a dict of name to tensor"
        )

    named: dict[str, Tensor] = {}
    declared: dict[str, Shape] = {}
    for name, value in given.items():
        tensor, shape = value if isinstance(value, tuple) and len(value) == 2 else (value, None)
        if not isinstance(name, str) or not name:
            raise OperandError(f"{name!r} cannot name an output", op="outputs", expected="a non-empty string")
        if not isinstance(tensor, Tensor):
            raise OperandError(
                f"output {name!r} is {type(tensor).__name__}", op="outputs", expected="a tensor, or (tensor, shape)"
            )
        named[name] = tensor
        if shape is not None:
            declared[name] = tuple(tensor.graph.size(size) for size in shape)

    graphs = {id(tensor.graph) for tensor in named.values()}
    if len(graphs) > 1:
        raise GraphMismatchError(
            "outputs of different graphs",
            op="outputs",
            operands={name: describe(tensor) for name, tensor in named.items()},
            expected="outputs grown from one anchor",
        )
    return named, declared


def _reached(outputs: Iterable[Tensor]) -> tuple[list[Node], list[Constant], set[Origin], set[tuple[int, int]]]:
    """Return the nodes and constants needed, in program order; all origins needed; the node outputs that are read."""
    seen: set[Origin] = set()
    nodes: list[Node] = []
    constants: list[Constant] = []
    read: set[tuple[int, int]] = set()
    waiting: list[Tensor | None] = list(outputs)
    while waiting:
        tensor = waiting.pop()
        if tensor is None:
            continue
        origin = tensor.origin
        kind = type(origin)
        if kind is Node and not origin.single:  # type: ignore[union-attr]
            read.add((origin.serial, tensor.index))  # type: ignore[union-attr]
        if origin in seen:
            continue
        seen.add(origin)
        if kind is Node:
            nodes.append(origin)  # type: ignore[arg-type]
            waiting += origin.inputs  # type: ignore[union-attr]
            for body in origin.bodies:  # type: ignore[union-attr]
                waiting += body.outputs
        elif kind is Constant:
            constants.append(origin)  # type: ignore[arg-type]
    nodes.sort(key=attrgetter("serial"))
    constants.sort(key=attrgetter("serial"))
    return nodes, constants, seen, read


class _Namer:
    """Gives every value and node its name: the user's own first, then ``scope/op_k`` that avoid them."""

    def __init__(self, program: Program, constants: list[Constant], read: set[tuple[int, int]]) -> None:
        self.program = program
        self.constants = constants
        self.read = read
        self.taken: set[str] = set(program.inputs)
        self.count = 0
        self.calls: set[str] = set()

    def run(self) -> None:
        program = self.program
        for name, tensor in program.inputs.items():
            program.names[tensor.origin] = (name,)
        weights = self._distinct_constants()
        self._refuse_taken(weights)
        self.taken.update(program.outputs)
        self._add_defaults()
        kept = self._kept_names()

        direct = self._direct_outputs()
        self._name_nodes(direct, kept)
        self._name_body_inputs()
        self._name_weights(weights)
        for name, tensor in program.outputs.items():
            if name not in direct.values():
                self._copy(tensor, name, None)
        for node in program.nodes:
            for body in node.bodies:
                program.results[body] = self._body_results(node, body)

    def _copy(self, tensor: Tensor, name: str, body: Body | None) -> None:
        node = Node("Identity", "", (tensor,), {}, "", 0, tensor.origin.at)
        node.made = tensor
        self.program.copies.append(Copy(self.program.name_of(tensor), name, node, self._fresh("", "identity"), body))

    def _body_results(self, node: Node, body: Body) -> list[str]:
        """Return the names of what a body gives; what was not made in it, or is given twice, is copied first."""
        results: list[str] = []
        for tensor in body.outputs:
            place = self.program.places.get(tensor.origin) if isinstance(tensor.origin, Node) else None
            name = self.program.name_of(tensor)
            if place is None or place.body is not body or name in results:
                name = self._fresh(node.scope, "result")
                self._copy(tensor, name, body)
            results.append(name)
        return results

    def _distinct_constants(self) -> list[tuple[Stored, list[Constant]]]:
        """Return each content with the constants that have it; the first of them stands for all."""
        groups: dict[object, tuple[Stored, list[Constant]]] = {}
        for constant in self.constants:
            stored = store(constant)
            groups.setdefault(stored.key, (stored, []))[1].append(constant)
        for stored, group in groups.values():
            stored.name = next((constant.name for constant in group if constant.name), "") or ""
            stored.named = bool(stored.name)
            while stored.name in self.taken:  # another content has it: one of them was put in the other's place
                stored.name += "_"
            if stored.name:
                self.taken.add(stored.name)
        return list(groups.values())

    def _refuse_taken(self, weights: list[tuple[Stored, list[Constant]]]) -> None:
        by_name = {stored.name: stored for stored, _ in weights if stored.name}
        for name in self.program.outputs:
            kind = "an input" if name in self.program.inputs else "a constant" if name in by_name else ""
            if kind:
                raise OperandError(
                    f"output {name!r} has the name of {kind}",
                    op="outputs",
                    operands={"output": describe(self.program.outputs[name])},
                    expected="an output name of its own",
                )

    def _direct_outputs(self) -> dict[tuple[Origin, int], str]:
        """Return the node outputs that carry an output's name themselves."""
        direct: dict[tuple[Origin, int], str] = {}
        for name, tensor in self.program.outputs.items():
            if isinstance(tensor.origin, Node):
                direct.setdefault((tensor.origin, tensor.index), name)
        return direct

    def _add_defaults(self) -> None:
        """Store the numbers that inputs have where none are fed, each under its input's name."""
        for tensor in self.program.inputs.values():
            if isinstance(tensor.origin, Input) and tensor.origin.default is not None:
                self.program.weights.append(store_default(tensor.origin))

    def _kept_names(self) -> dict[Node, tuple[str, tuple[str, ...]]]:
        """Return the names that calls and their results had in the file that they come from, where they are free."""
        found: dict[Node, tuple[str, tuple[str, ...]]] = {}
        calls: set[str] = set()
        for node in self.program.nodes:
            kept = node.kept
            if kept is None:
                continue
            values = [name if name and name not in self.taken else "" for name in kept.values]
            self.taken.update(filter(None, values))
            name = kept.name or next(filter(None, kept.values), "")
            if name in calls:
                name = ""
            calls.add(name)
            found[node] = name, (*values, *[""] * (len(node.outputs) - len(values)))
        self.calls = calls
        return found

    def _name_nodes(self, direct: dict[tuple[Origin, int], str], kept: dict[Node, tuple[str, tuple[str, ...]]]) -> None:
        names, node_names, read, taken = self.program.names, self.program.node_names, self.read, self.taken
        results = {origin for origin, _ in direct}
        prefixes: dict[tuple[str, str], str] = {}
        for node in self.program.nodes:
            made = node.made
            count = len(made) if type(made) is tuple else 1
            called = node.scope, node.op
            prefix = prefixes.get(called)
            if prefix is None:
                prefix = prefixes[called] = _prefix(node.scope, spelled(node.op))
            name = f"{prefix}{self.count}"
            if count == 1 and name not in taken:
                self.count += 1
            else:
                name = self._numbered(prefix, count)
            values = (name,) if count == 1 else self._several(node, name, read)
            if node in kept:
                name, values = self._as_kept(node, kept[node], name, values)
            node_names.append(name)
            if node in results:
                values = tuple([direct.get((node, i), value) for i, value in enumerate(values)])
            names[node] = values

    def _name_body_inputs(self) -> None:
        for node in self.program.nodes:
            for body in node.bodies:
                for tensor in body.inputs:
                    self.program.names[tensor.origin] = (self._body_input(node, tensor.origin),)

    def _body_input(self, node: Node, origin: Origin) -> str:
        """Return the name of what a body is given: its own where it has one that is free."""
        name = origin.name if isinstance(origin, BodyInput) else ""
        if name in ("", "item") or name in self.taken:
            return self._fresh(node.scope, "item")
        self.taken.add(name)
        return name

    def _as_kept(
        self, node: Node, kept: tuple[str, tuple[str, ...]], name: str, values: tuple[str, ...]
    ) -> tuple[str, tuple[str, ...]]:
        """Return a call's names as its file had them; results that nobody reads stay without one."""
        merged = [own if made and own else made for own, made in zip(kept[1], values, strict=True)]
        return kept[0] or name, tuple(merged)

    @staticmethod
    def _several(node: Node, name: str, read: set[tuple[int, int]]) -> tuple[str, ...]:
        return tuple([f"{name}.{i}" if (node.serial, i) in read else "" for i in range(len(node.outputs))])

    def _name_weights(self, weights: list[tuple[Stored, list[Constant]]]) -> None:
        for k, (stored, group) in enumerate(weights):
            if not stored.name:
                base = f"{group[0].scope}/const_{k}" if group[0].scope else f"const_{k}"
                stored.name = base
                while stored.name in self.taken:
                    stored.name += "_"
                self.taken.add(stored.name)
            self.program.weights.append(stored)
            for constant in group:
                self.program.names[constant] = (stored.name,)

    def _fresh(self, scope: str, base: str) -> str:
        """Return a name that nobody has."""
        return self._numbered(_prefix(scope, base), 1)

    def _numbered(self, prefix: str, outputs: int) -> str:
        """Return a name that nobody has, nor with ``.0``, ``.1``, ... behind it where there are several outputs."""
        while True:
            name = f"{prefix}{self.count}"
            self.count += 1
            if name in self.taken:
                continue
            if outputs == 1 or not any(f"{name}.{i}" in self.taken for i in range(outputs)):
                return name


def _prefix(scope: str, base: str) -> str:
    return f"{scope}/{base}_" if scope else f"{base}_"


__all__ = ["Copy", "Declared", "Origin", "Outputs", "Program", "collect"]
