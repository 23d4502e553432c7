"""Operators of onnxruntime's own domain, ``com.microsoft``, that models here use."""

from __future__ import annotations

from lazygraph.errors import OperandError, ShapeError
from lazygraph.ops.checks import meet, rows, same_dtype
from lazygraph.ops.core import Attrs, Inputs, Results, apply, rule
from lazygraph.tensor import Tensor

DOMAIN = "com.microsoft"


@rule("MoE", domain=DOMAIN)
def _moe_rule(op: str, inputs: Inputs, attrs: Attrs) -> Results:
    x, router, fc1, _, fc2 = inputs[:5]
    if x is None or router is None or fc1 is None or fc2 is None:
        raise OperandError("an operand is missing", op=op, expected="x, router, fc1 and fc2")
    operands = {"x": x, "router": router, "fc1": fc1, "fc2": fc2}
    dtype = same_dtype(op, **operands)
    n, hidden = x.shape
    experts = router.shape[1]
    inner = fc2.shape[2]
    wanted = {
        "router": (n, experts),
        "fc1": (experts, 2 * inner if attrs.get("swiglu_fusion") else inner, hidden),
        "fc2": (experts, hidden, inner),
    }
    for label, sizes in wanted.items():
        shape = operands[label].shape
        if len(shape) != len(sizes) or any(meet(a, b) is None for a, b in zip(shape, sizes, strict=True)):
            raise ShapeError(f"{label} does not fit", op=op, operands=rows(operands), expected=f"{label} of {sizes}")
    return [(dtype, x.shape)]


def moe(x: Tensor, router: Tensor, fc1: Tensor, fc2: Tensor, k: int) -> Tensor:
    """Return a mixture of ``k`` SwiGLU experts per token, weighted by the softmax of their router logits.

    Args:
        x: ``T (n, hidden)``.
        router: ``T (n, experts)``: logits; the ``k`` largest are chosen.
        fc1: ``T (experts, 2 * inner, hidden)``: rows of gate and up in turns.
        fc2: ``T (experts, hidden, inner)``.
        k: Experts per token.

    Raises:
        ShapeError: Sizes do not fit.
        DTypeError: Element types differ.

    Spec: com.microsoft::MoE-1.
    """
    return apply(
        "MoE",
        x,
        router,
        fc1,
        None,
        fc2,
        None,
        domain=DOMAIN,
        activation_type="swiglu",
        swiglu_fusion=1,
        activation_alpha=1.0,
        activation_beta=0.0,
        normalize_routing_weights=1,
        k=k,
    )
