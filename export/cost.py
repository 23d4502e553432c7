"""What an operator call costs: operations, and bytes read and written, as sizes over the names that shapes have.

One multiplication or addition, and one value of an elementary function, count as one operation. Bytes are those of
operands read once and results written once. What only looks at memory in another way (Reshape, Shape, Identity) moves
none, and what picks rows reads no more than it picks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lazygraph.dims import Size, product, smallest
from lazygraph.tensor import Node, Tensor

# Nothing is computed: values are placed, picked or named.
_MOVES = frozenset(
    (
        "Cast",
        "CastLike",
        "Col2Im",
        "Compress",
        "Concat",
        "ConcatFromSequence",
        "Constant",
        "ConstantOfShape",
        "DepthToSpace",
        "Expand",
        "EyeLike",
        "Gather",
        "GatherElements",
        "GatherND",
        "NonZero",
        "OneHot",
        "Optional",
        "OptionalGetElement",
        "Pad",
        "Range",
        "Resize",
        "ReverseSequence",
        "Scatter",
        "ScatterElements",
        "ScatterND",
        "SequenceAt",
        "SequenceConstruct",
        "SequenceEmpty",
        "SequenceErase",
        "SequenceInsert",
        "Slice",
        "SpaceToDepth",
        "Split",
        "SplitToSequence",
        "TensorScatter",
        "Tile",
        "Transpose",
        "Trilu",
        "Unique",
        "Upsample",
        "Where",
    )
)
_VIEWS = frozenset(
    (
        "BitCast",
        "Dropout",
        "Flatten",
        "Identity",
        "Optional",
        "OptionalGetElement",
        "OptionalHasElement",
        "Reshape",
        "SequenceAt",
        "SequenceEmpty",
        "SequenceLength",
        "Shape",
        "Size",
        "Squeeze",
        "Unsqueeze",
    )
)
_PICKS = frozenset(("Gather", "GatherElements", "GatherND", "Slice"))
_WRITES_ROWS = frozenset(("ScatterND", "ScatterElements", "Scatter", "TensorScatter"))
# Operations per element of the first operand, where it is not one per element of the result.
_PER_INPUT = {
    "Softmax": 5,
    "LogSoftmax": 6,
    "Hardmax": 2,
    "LayerNormalization": 8,
    "RMSNormalization": 5,
    "SimplifiedLayerNormalization": 5,
    "SkipLayerNormalization": 9,
    "SkipSimplifiedLayerNormalization": 6,
    "InstanceNormalization": 8,
    "GroupNormalization": 8,
    "BatchNormalization": 2,
    "MeanVarianceNormalization": 8,
    "LpNormalization": 3,
    "ReduceMean": 1,
    "ReduceSum": 1,
    "ReduceMax": 1,
    "ReduceMin": 1,
    "ReduceProd": 1,
    "ReduceL1": 2,
    "ReduceL2": 2,
    "ReduceSumSquare": 2,
    "ReduceLogSum": 2,
    "ReduceLogSumExp": 3,
    "ArgMax": 1,
    "ArgMin": 1,
    "CumSum": 1,
    "GlobalAveragePool": 1,
    "GlobalMaxPool": 1,
    "TopK": 1,
    "Gelu": 4,
    "FastGelu": 6,
    "QuickGelu": 3,
    "RotaryEmbedding": 3,
    "Swish": 2,
}
_GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}


@dataclass(frozen=True)
class Cost:
    """What one run of a call costs; None where a shape is not known.

    Attributes:
        flops: Operations.
        read: Bytes read.
        written: Bytes written.
    """

    flops: Size | None
    read: Size | None
    written: Size | None


def cost_of(node: Node, in_place: bool = False) -> Cost:
    """Return what a call costs, its bodies left out.

    Args:
        node: The call.
        in_place: Whether what writes rows into a buffer shares its memory: then only the rows move.
    """
    op = node.op
    operands = [tensor for tensor in node.inputs if tensor is not None]
    if op in _VIEWS or node.bodies:
        return Cost(0, 0, 0)
    written = _total([_nbytes(tensor) for tensor in node.outputs])
    read = _total([_nbytes(tensor) for tensor in operands])
    if op in _PICKS and operands:
        read = _total([written, *[_nbytes(tensor) for tensor in operands[1:]]])
    elif op in _WRITES_ROWS and in_place and len(operands) > 2:
        read = _total([_nbytes(tensor) for tensor in operands[1:]])
        written = _nbytes(operands[1] if op == "TensorScatter" else operands[2])
    elif op == "GatherBlockQuantized":
        read = written
    elif op in ("MoE", "QMoE"):
        written = _nbytes(operands[0])
        read = _total([written, _experts_read(node)])
    try:
        flops = _flops(node, operands)
    except (IndexError, TypeError, ZeroDivisionError):  # a call that its operator's rule would refuse
        flops = None
    return Cost(flops, read, written)


def _flops(node: Node, operands: Sequence[Tensor]) -> Size | None:
    op = node.op
    out = _count(node.outputs[0]) if node.outputs else 0
    if op in _MOVES or not operands:
        return 0
    if op in _PER_INPUT:
        return _times(_PER_INPUT[op], _count(operands[0]))
    if op in ("MatMul", "MatMulInteger", "FusedMatMul", "QLinearMatMul", "Gemm", "FusedGemm"):
        return _matmul(node, operands, out)
    if op == "MatMulNBits":
        return _times(2 * int(node.attrs["K"]), out)
    if op in ("Conv", "ConvInteger", "QLinearConv", "FusedConv", "DeformConv"):
        weights = operands[3 if op == "QLinearConv" else 1].known_shape
        return None if weights is None else _times(2, _times(product(weights[1:]), out))
    if op == "ConvTranspose":
        weights = operands[1].known_shape
        return None if weights is None else _times(2, _times(product(weights[1:]), _count(operands[0])))
    if op in ("AveragePool", "MaxPool", "LpPool"):
        return _times(product([int(k) for k in node.attrs.get("kernel_shape", [1])]), out)
    if op in _GATES:
        return _recurrent(op, operands)
    if op == "Einsum":
        return _einsum(node, operands)
    if op in ("Attention", "MultiHeadAttention", "GroupQueryAttention"):
        return _attention(node)
    if op == "MoE":
        return _times(2, _times(_count(operands[0]), _per_expert(node)))
    if op in ("DFT", "STFT", "QMoE", "GridSample", "NonMaxSuppression", "Loop", "Scan", "If"):
        return None
    return out


def _matmul(node: Node, operands: Sequence[Tensor], out: Size | None) -> Size | None:
    a = operands[0].known_shape
    if not a:
        return None
    inner = a[-2] if node.attrs.get("transA") and len(a) > 1 else a[-1]
    added = out if node.op in ("Gemm", "FusedGemm") and len(operands) > 2 else 0
    return _total([_times(2, _times(inner, out)), added])


def _recurrent(op: str, operands: Sequence[Tensor]) -> Size | None:
    x, w, r = (tensor.known_shape for tensor in operands[:3])
    if x is None or w is None or r is None:
        return None
    return product([2, x[0], x[1], w[0], w[1], w[2] + r[2]])


def _einsum(node: Node, operands: Sequence[Tensor]) -> Size | None:
    """Count one multiplication per operand and combination of letters, as a single pass over them all."""
    equation = node.attrs["equation"]
    text = (equation.decode() if isinstance(equation, bytes) else str(equation)).replace(" ", "")
    sizes: dict[str, Size] = {}
    for letters, tensor in zip(text.split("->")[0].split(","), operands, strict=True):
        if "." in letters or tensor.known_shape is None:
            return None
        sizes.update(zip(letters, tensor.known_shape, strict=True))
    return product([max(2, len(operands)) if len(operands) > 1 else 1, *sizes.values()])


def _attention(node: Node) -> Size | None:
    """Count the two products of attention, scores and weighted values, where the layout tells their sizes."""
    q, k = node.inputs[0], node.inputs[1] if len(node.inputs) > 1 else None
    queries = q.known_shape if q is not None else None
    keys = k.known_shape if k is not None else None
    if queries is None or keys is None or len(queries) < 3 or len(keys) < 3:
        return None
    rows = keys[-2]
    present = [tensor.known_shape for tensor in node.outputs[1:2]]
    if present and present[0] is not None and len(present[0]) == 4:
        rows = present[0][-2]  # with what was remembered
    return product([4, *queries, rows])


def _per_expert(node: Node) -> Size | None:
    """Return the multiplications of all chosen experts for one number of the input."""
    shapes = [tensor.known_shape for tensor in _expert_weights(node)]
    x = node.inputs[0].known_shape if node.inputs[0] is not None else None
    if x is None or None in shapes or not isinstance(x[-1], int):
        return None
    weights = _total([product(shape[1:]) for shape in shapes if shape])
    return weights * int(node.attrs.get("k", 1)) // x[-1] if isinstance(weights, int) else None


def _experts_read(node: Node) -> Size | None:
    """Return the bytes of the experts that tokens choose, each other ones as long as there are any."""
    x = node.inputs[0].known_shape if node.inputs[0] is not None else None
    total: list[Size | None] = []
    for tensor in _expert_weights(node):
        shape, whole = tensor.known_shape, _nbytes(tensor)
        if x is None or not shape or not isinstance(shape[0], int) or not isinstance(whole, int):
            return None
        chosen = smallest(shape[0], product([*x[:-1], int(node.attrs.get("k", 1))]))
        total.append(chosen * (whole // shape[0]))
    return _total(total)


def _expert_weights(node: Node) -> list[Tensor]:
    places = (2, 4, 6) if node.op == "MoE" else (2, 5, 8)
    return [tensor for place in places for tensor in node.inputs[place : place + 1] if tensor is not None]


def nbytes(tensor: Tensor) -> Size | None:
    """Return the bytes of a tensor; None for an unknown rank, a sequence or text."""
    return _nbytes(tensor)


def _nbytes(tensor: Tensor) -> Size | None:
    count = _count(tensor)
    bits = tensor.dtype.bits
    if count is None or not bits:
        return None
    return -(-count * bits // 8) if isinstance(count, int) else (count * bits) // 8 if bits < 8 else count * (bits // 8)


def _count(tensor: Tensor) -> Size | None:
    shape = tensor.known_shape
    return None if shape is None or tensor.dtype.element is not None else product(shape)


def _times(a: Size | None, b: Size | None) -> Size | None:
    return None if a is None or b is None else product([a, b])


def _total(parts: Sequence[Size | None]) -> Size | None:
    total: Size = 0
    for part in parts:
        if part is None:
            return None
        total = total + part
    return total


__all__ = ["Cost", "cost_of", "nbytes"]
