"""A model from a file as tensors: its named inputs, outputs, values and weights, to be continued or changed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from lazygraph import dims
from lazygraph.arrays import LazyArray
from lazygraph.dims import Size, SizeLike
from lazygraph.dtypes import DTypeLike, as_dtype
from lazygraph.errors import DTypeError, OperandError, ShapeError
from lazygraph.graph import Graph, Numbers
from lazygraph.narrowing import narrower, require_free
from lazygraph.origins import Constant, Input, Node, describe, frozen_array, near_names, reached, same_graph, shape_text
from lazygraph.patterns import Kind, Pattern
from lazygraph.rebuild import Rebuild
from lazygraph.tensor import Tensor


class Loaded:
    """A graph with the names that its file gave it. It never changes: an edit gives another one.

    ``loaded["name"]`` is any value of the graph by its name, so that building goes on from there. A graph that was just
    built is edited in the same way: ``of`` takes its outputs.

    Attributes:
        graph: The graph that all the tensors belong to.
        inputs: What is fed, by name in the file's order.
        outputs: What comes out, by name in the file's order; hand it to ``lg.save``.
        values: Every input, weight and result of an operator, by name; what bodies hold is left out.
        source: The file, or how the model was given.
        notes: What in the file was not as it should be and could be passed over, a sentence each.
    """

    def __init__(
        self,
        graph: Graph,
        inputs: Mapping[str, Tensor],
        outputs: Mapping[str, Tensor],
        values: Mapping[str, Tensor],
        source: str,
        notes: Iterable[str] = (),
        met: set[tuple[str, str]] | None = None,
    ) -> None:
        self.graph = graph
        self.inputs = dict(inputs)
        self.outputs = dict(outputs)
        self.values = dict(values)
        self.source = source
        self.notes = tuple(notes)
        self._met = set() if met is None else met

    @classmethod
    def of(cls, outputs: Mapping[str, Tensor], values: Mapping[str, Tensor] | None = None) -> Loaded:
        """Return outputs that were built here as a model, to be inlined or edited as one from a file is.

        Args:
            outputs: Tensors of one graph by output name.
            values: Further results that edits call by name; inputs, named constants and outputs have theirs.

        Raises:
            OperandError: No outputs, or what is none.
            GraphMismatchError: They are of different graphs.
        """
        given = {**(values or {}), **outputs}
        if not outputs or not all(isinstance(tensor, Tensor) for tensor in given.values()):
            raise OperandError(f"{outputs!r} are no outputs", op="of", expected="tensors by output name")
        graph = same_graph("of", list(given.values()))
        named = {
            origin.name: tensor for origin, tensor in reached(outputs.values()).items() if type(origin) is Constant
        }
        constants = {name: tensor for name, tensor in named.items() if name}
        return cls(graph, graph.inputs, outputs, {**graph.inputs, **constants, **given}, "a graph of this program")

    def __getitem__(self, name: str) -> Tensor:
        found = self.values.get(name)
        if found is None:
            found = self.outputs.get(name)
        if found is None:
            raise self._unknown("loaded", "value", name, self.values)
        return found

    def _unknown(self, op: str, kind: str, name: object, names: Iterable[str]) -> OperandError:
        """Return the error of a name that nothing of this kind has."""
        some = list(names)
        return OperandError(
            f"{name!r} is no {kind} of {self.source}",
            op=op,
            expected=f"one of {', '.join(some)}" if 0 < len(some) <= 8 else f"the name of a {kind}",
            hint=near_names(name, some),
        )

    @property
    def equal_sizes(self) -> list[tuple[str, str]]:
        """The sizes of different names, or names and numbers, that met in the file and are taken for equal."""
        return sorted(self._met)

    @property
    def weights(self) -> dict[str, np.ndarray[Any, Any] | LazyArray]:
        """The named constants that the outputs need, in the order in which they stand in the file."""
        return {name: constant.array for name, (constant, _) in self._constants().items()}

    def replace_weight(self, name: str, array: object) -> Loaded:
        """Return the model with other numbers in one weight.

        Args:
            name: The weight's name.
            array: A numpy array or LazyArray of the same element type and shape; a list takes the element type.

        Raises:
            OperandError: No weight has that name.
            DTypeError: The element type is another.
            ShapeError: The shape is another.
        """
        found = self._constants().get(name)
        if found is None:
            raise self._unknown("replace_weight", "weight", name, self.weights)
        constant, tensor = found
        plain = not isinstance(array, (np.ndarray, np.generic, LazyArray))
        stored = array if isinstance(array, LazyArray) else frozen_array(array, tensor.dtype if plain else None)
        dtype = stored.dtype if isinstance(stored, LazyArray) else as_dtype(stored.dtype)
        rows = {name: describe(tensor), "given": f"{dtype} {shape_text(stored.shape)}"}
        if dtype is not tensor.dtype:
            raise DTypeError(
                f"{name!r} is {tensor.dtype}, and {dtype} is given",
                op="replace_weight",
                operands=rows,
                expected=f"an array of {tensor.dtype}",
            )
        if tuple(stored.shape) != tuple(tensor.shape):
            raise ShapeError(
                f"{name!r} is {shape_text(tensor.shape)}, and {shape_text(stored.shape)} is given",
                op="replace_weight",
                operands=rows,
                expected=f"an array of shape {shape_text(tensor.shape)}",
            )
        return self.replace({tensor: self.graph.instead(constant, stored)})

    def replace(self, swaps: Mapping[Tensor, Tensor]) -> Loaded:
        """Return the model in which what read the keys reads the tensors in their place.

        Everything behind them is built again, and checked again by its own rules.

        Args:
            swaps: By tensor of this graph, a tensor of this graph.

        Raises:
            GraphMismatchError: A tensor belongs to another graph.
            ShapeError: What comes behind does not fit the new shape.
            DTypeError: What comes behind does not fit the new element type.
        """
        return self.through(Rebuild(swaps))

    def extract(self, inputs: Iterable[str], outputs: Iterable[str]) -> Loaded:
        """Return the part between values: a model that is fed the first and gives the second.

        Args:
            inputs: Names of values, which become inputs of their element type and shape.
            outputs: Names of values, which become outputs.

        Raises:
            OperandError: No value has one of the names, none is given, or the outputs need an input that is not named.
        """
        graph, swaps = self._another_graph(), {}
        for name in inputs:
            tensor = self[name]
            swaps[tensor] = graph.add_input(name, tensor.dtype, tensor.known_shape, _default_of(tensor))
        targets = {name: self[name] for name in outputs}
        if not targets:
            raise OperandError("no output", op="extract", expected="the name of at least one value")
        missing = {
            origin.name: describe(tensor)
            for origin, tensor in reached(targets.values(), until=swaps).items()
            if isinstance(origin, Input) and origin.default is None
        }
        if missing:
            raise OperandError(
                f"the outputs need {', '.join(missing)} too",
                op="extract",
                operands=missing,
                expected="inputs that everything between them and the outputs can be computed from",
            )
        return self._built(Rebuild(swaps, graph), targets)

    def renamed(self, names: Mapping[str, str]) -> Loaded:
        """Return the model with other names of inputs, outputs, weights, values or calls.

        Args:
            names: By present name, the new one.

        Raises:
            OperandError: Nothing has the present name, or another value has the new one.
        """
        present = {**self.values, **self.outputs}
        origins = [tensor.origin for tensor in present.values()]
        calls = {origin.kept.name for origin in origins if isinstance(origin, Node) and origin.kept is not None}
        for before, after in names.items():
            if before not in present and before not in calls:
                raise OperandError(
                    f"{before!r} is nothing's name in {self.source}",
                    op="renamed",
                    expected="the name of an input, an output, a weight, a value or a call",
                    hint=near_names(before, present),
                )
            if not isinstance(after, str) or not after or (after in present and after not in names):
                raise OperandError(f"{after!r} cannot be a name here", op="renamed", expected="a text that is free")
        if len(set(names.values())) < len(names):
            raise OperandError(
                f"{list(names.values())} name two things alike", op="renamed", expected="new names apart"
            )

        def called(name: str) -> str:
            return names.get(name, name)

        graph = self._another_graph(called)
        outputs = {called(name): tensor for name, tensor in self.outputs.items()}
        made = self._built(Rebuild(self._inputs_again(graph, called), graph, called), outputs)
        made.values = {called(name): tensor for name, tensor in made.values.items()}
        return made

    def with_sizes(self, sizes: Mapping[str, SizeLike]) -> Loaded:
        """Return the model with named sizes made numbers, other names or arithmetic over names.

        Args:
            sizes: By the name of a size, what it becomes: ``{"batch": 1}``.

        Raises:
            OperandError: No input has a size of that name.
            ShapeError: It becomes no size.
        """
        graph = self._another_graph()
        known = {
            name for tensor in self.inputs.values() for size in tensor.known_shape or () for name in dims.names(size)
        }
        for name in sizes:
            if name not in known:
                raise self._unknown("with_sizes", "size of an input", name, sorted(known))
        become = {name: graph.size(size) for name, size in sizes.items()}

        def resized(size: Size) -> Size:
            return dims.substitute(size, lambda atom: None if atom.args else become.get(atom.text))

        return self._built(Rebuild(self._inputs_again(graph, resized=resized), graph, resized=resized), self.outputs)

    def with_shapes(self, shapes: Mapping[str, Sequence[SizeLike]]) -> Loaded:
        """Return the model with other shapes of inputs; everything behind them is checked again by its rules.

        This makes a number a name (``{"x": ["batch", 4]}``), where nothing in the model holds on to the number.

        Args:
            shapes: By input, its shape.

        Raises:
            OperandError: No input has the name.
            ShapeError: Another number of axes; or something in the model needs the number that was there.
        """
        graph = self._another_graph()
        swaps = {}
        for name, tensor in self.inputs.items():
            shape = tensor.known_shape
            if name in shapes:
                given = tuple(graph.size(size) for size in shapes[name])
                if shape is not None and len(given) != len(shape):
                    raise ShapeError(
                        f"{len(given)} sizes for {len(shape)} axes",
                        op="with_shapes",
                        operands={name: describe(tensor), "given": shape_text(given)},
                        expected="a size per axis",
                    )
                shape = given
            swaps[tensor] = graph.add_input(name, tensor.dtype, shape, _default_of(tensor))
        for name in shapes:
            if name not in self.inputs:
                raise self._unknown("with_shapes", "input", name, self.inputs)
        made = self._built(Rebuild(swaps, graph), self.outputs)
        require_free(made.outputs.values(), {name for shape in shapes.values() for name in map(str, shape)})
        return made

    def stored_as(self, dtype: DTypeLike, keep: Iterable[str] = (), keep_ops: Iterable[str] = ()) -> Loaded:
        """Return the model with its named float32 weights of 1,024 bytes and more stored in a smaller type.

        They are cast back where they are used: what is computed, and in which type, stays as it is.

        Args:
            dtype: ``float16`` or ``bfloat16``.
            keep: Names of weights that stay as they are; ``*`` stands for any letters: ``["*.norm.weight"]``.
            keep_ops: Operators whose weights stay as they are: ``["LayerNormalization"]``.

        Raises:
            OperandError: A name to keep is no weight's, or an operator none that reads weights here.
            DTypeError: Another element type.
            WeightsError: A number is too large for it; of a weight that is read late, when it is read.
        """
        swaps = narrower(self.graph, self.outputs.values(), self._constants(), as_dtype(dtype), [*keep], [*keep_ops])
        return self.replace(swaps) if swaps else self

    def rewrite(
        self,
        pattern: Callable[..., Tensor],
        replacement: Callable[..., Tensor],
        types: Mapping[str, Kind] | None = None,
    ) -> Loaded:
        """Return the model with every part that looks like a pattern replaced (see ``lazygraph.patterns``).

        Args:
            pattern: A function from tensors to one tensor. Its parameters stand for any tensor; the calls that it makes
                are looked for, with these attributes and constants, operands of commutative operators in either order.
            replacement: A function from the tensors found, in the same order, to what stands in the place.
            types: By parameter of the pattern, the element type that it must have, or element type and shape:
                ``{"ids": lg.int64}``. Others may have any.

        Raises:
            OperandError: The pattern makes no call, gives no tensor, or the two have different parameters.
            ShapeError: The replacement does not fit the place, or what follows it.
            DTypeError: The same, by element type.
        """
        return self._built(Pattern(pattern, self.outputs.values(), types).replaced(replacement), self.outputs)

    def count(self, pattern: Callable[..., Tensor], types: Mapping[str, Kind] | None = None) -> int:
        """Return how many parts look like a pattern (see ``rewrite``); parts that share a call count once."""
        return len(Pattern(pattern, self.outputs.values(), types).found())

    def through(self, rebuild: Rebuild) -> Loaded:
        """Return the model with everything in it rebuilt."""
        for tensor in self.values.values():
            if not isinstance(tensor.origin, Node):
                rebuild(tensor)
        return self._built(rebuild, self.outputs)

    def _built(self, rebuild: Rebuild, targets: Mapping[str, Tensor]) -> Loaded:
        """Return the rebuilt model of these outputs; values that no output needs are left behind."""
        rebuild.prepare(targets.values())
        outputs = {name: rebuild(tensor) for name, tensor in targets.items()}
        made = {name: rebuild.made(tensor) for name, tensor in self.values.items()}
        values = {name: tensor for name, tensor in made.items() if tensor is not None}
        graph = next(iter(outputs.values())).graph
        return Loaded(graph, graph.inputs, outputs, values, self.source, self.notes, self._met)

    def _another_graph(self, called: Callable[[str], str] = str) -> Graph:
        """Return an empty graph for what this file says of itself."""
        graph = Graph(self.graph.opset)
        facts = self.graph.facts
        if facts is not None:
            graph.facts = replace(facts, docs={called(name): text for name, text in facts.docs.items()})
        return graph

    def _inputs_again(
        self,
        graph: Graph,
        called: Callable[[str], str] = str,
        resized: Callable[[Size], Size] = lambda size: size,
    ) -> dict[Tensor, Tensor]:
        """Return the inputs as those of another graph, in their order."""
        return {
            tensor: graph.add_input(
                called(name),
                tensor.dtype,
                None if tensor.known_shape is None else tuple(map(resized, tensor.known_shape)),
                _default_of(tensor),
            )
            for name, tensor in self.inputs.items()
        }

    def _constants(self) -> dict[str, tuple[Constant, Tensor]]:
        found = {
            origin.name: (origin, tensor)
            for origin, tensor in reached(self.outputs.values()).items()
            if isinstance(origin, Constant) and origin.name
        }
        return dict(sorted(found.items(), key=lambda item: item[1][0].serial))

    def _repr_html_(self) -> str:
        from lazygraph.printing import ends_html

        return ends_html(self.source, self.inputs, self.outputs, len(self.weights))

    def __repr__(self) -> str:
        inputs = ", ".join(f"{name}: {describe(tensor).split(' from ')[0]}" for name, tensor in self.inputs.items())
        return f"<Loaded {self.source}: {inputs} -> {', '.join(self.outputs)}>"


def _default_of(tensor: Tensor) -> Numbers | None:
    return tensor.origin.default if isinstance(tensor.origin, Input) else None


__all__ = ["Loaded"]
