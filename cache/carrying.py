"""A cache as the state of a loop: its buffers and its position as tensors, and back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from lazygraph import dims
from lazygraph.cache.state import State
from lazygraph.errors import CacheStepError, UnsupportedError
from lazygraph.ops.sizes import size_tensor
from lazygraph.tensor import Tensor


def carried(cache: object, state: State) -> tuple[Tensor, ...]:
    """Return all buffers, layer by layer, and the position, ``int64 ()``.

    Raises:
        CacheStepError: Rows were appended and not advanced over: between two steps of a loop nothing is pending.
        UnsupportedError: A batch, a window, or a cache lowered as concat, whose buffers grow.
    """
    if type(state) is not State or state.ring is not None or state.lowering == "concat":
        raise UnsupportedError(
            f"a loop does not carry this {type(cache).__name__}",
            op="loop",
            operands={"cache": cache},
            expected="a cache of one text and without windows, lowered as buffer or view",
        )
    for layer, rows in enumerate(state.pending):
        if rows != 0:
            raise CacheStepError(
                f"layer {layer} was given {rows} rows since the last advance",
                op="loop",
                operands={"cache": cache},
                expected="cache.advance_by(n) before the step of the loop ends",
                layer=layer,
                wanted=0,
                got=rows,
            )
    buffers = [buffer for layer in state.buffers for buffer in layer]
    return (*buffers, size_tensor(state.length, buffers[0]))


def carrying(state: State, tensors: Sequence[Tensor]) -> State:
    """Return the state that these tensors make up; the position is a size that only the run can tell."""
    *buffers, position = tensors
    graph, slots = position.graph, state.layout.n_slots
    length = dims.unknown(f"position_{graph.next_serial()}", state.layout.max_seq_len)
    graph.size_tensors[length] = position
    layers = tuple(tuple(buffers[start : start + slots]) for start in range(0, len(buffers), slots))
    return replace(state, buffers=layers, length=length, index=(), runtime=True)
