"""Rules of the optimisers in ai.onnx.preview.training: each gives the tensors that it updates, as they were."""

from __future__ import annotations

from lazygraph.errors import OperandError
from lazygraph.ops.core import Attrs, Inputs, Results, rule

DOMAIN = "ai.onnx.preview.training"

# Behind rate and count come as many tensors of each of these kinds; those marked are updated.
_GROUPS = {"Adagrad": (True, False, True), "Momentum": (True, False, True), "Adam": (True, False, True, True)}


@rule("Adagrad", "Adam", "Momentum", domain=DOMAIN)
def _optimiser_rule(op: str, inputs: Inputs, attrs: Attrs) -> Results:
    groups, given = _GROUPS[op], inputs[2:]
    count, rest = divmod(len(given), len(groups))
    if rest or not count or any(tensor is None for tensor in inputs):
        raise OperandError(
            f"{len(given)} tensors after rate and count", op=op, expected=f"as many of each of {len(groups)} kinds"
        )
    updated = [given[i] for i in range(len(given)) if groups[i // count]]
    return [(tensor.dtype, tensor.known_shape) for tensor in updated if tensor is not None]
