"""A model from a file as tensors: its named inputs, outputs, values and weights, to be continued or changed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from lazygraph.arrays import LazyArray
from lazygraph.dtypes import as_dtype
from lazygraph.errors import DTypeError, OperandError, ShapeError
from lazygraph.graph import Graph
from lazygraph.origins import Constant, Node, describe, frozen_array, near_names, reached, shape_text
from lazygraph.rebuild import Rebuild
from lazygraph.tensor import Tensor


class Loaded:
    """A graph with the names that its file gave it. It never changes: an edit gives another one.

    ``loaded["name"]`` is any value of the graph by its name, so that building goes on from there.

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

    def __getitem__(self, name: str) -> Tensor:
        found = self.values.get(name)
        if found is None:
            found = self.outputs.get(name)
        if found is None:
            raise OperandError(
                f"{name!r} is no value of {self.source}",
                op="loaded",
                expected="the name of an input, a weight or a result",
                hint=near_names(name, self.values),
            )
        return found

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
            raise OperandError(
                f"{name!r} is no weight of {self.source}",
                op="replace_weight",
                expected="one of loaded.weights",
                hint=near_names(name, self.weights),
            )
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

    def through(self, rebuild: Rebuild) -> Loaded:
        """Return the model with everything in it rebuilt."""
        rebuild.prepare(self.outputs.values())
        outputs = {name: rebuild(tensor) for name, tensor in self.outputs.items()}
        values: dict[str, Tensor] = {}
        for name, tensor in self.values.items():
            made = rebuild.made(tensor) if isinstance(tensor.origin, Node) else rebuild(tensor)
            if made is not None:  # what no output needs is left behind
                values[name] = made
        graph = next(iter(outputs.values())).graph
        return Loaded(graph, graph.inputs, outputs, values, self.source, self.notes, self._met)

    def _constants(self) -> dict[str, tuple[Constant, Tensor]]:
        found = {
            origin.name: (origin, tensor)
            for origin, tensor in reached(self.outputs.values()).items()
            if isinstance(origin, Constant) and origin.name
        }
        return dict(sorted(found.items(), key=lambda item: item[1][0].serial))

    def __repr__(self) -> str:
        inputs = ", ".join(f"{name}: {describe(tensor).split(' from ')[0]}" for name, tensor in self.inputs.items())
        return f"<Loaded {self.source}: {inputs} -> {', '.join(self.outputs)}>"


__all__ = ["Loaded"]
