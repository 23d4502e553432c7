"""Rules of the rarer operators over windows: quantised and deformable convolution, unpooling, columns to images."""

from __future__ import annotations

from typing import cast as typed

from lazygraph import dims
from lazygraph.dims import Size
from lazygraph.errors import ShapeError
from lazygraph.ops.checks import FLOAT, INT64, between, dtype_among, exact_rank, fresh, rank_at_least, rows, same_size
from lazygraph.ops.core import Attrs, Inputs, Results, known_ints, rule
from lazygraph.ops.windows import window_sizes
from lazygraph.tensor import Shape, Tensor


def _convolved(op: str, x: Tensor, w: Tensor, attrs: Attrs) -> Shape | None:
    """Return the shape of a convolution of ``x`` with the filters ``w``."""
    if x.known_shape is None or w.known_shape is None:
        return None
    rank_at_least(op, "x", x, 3)
    exact_rank(op, "w", w, len(x.shape))
    channels = dims.multiply(w.shape[1], attrs.get("group", 1))
    same_size(op, {"x": x, "w": w}, "channels of x equal to w.shape[1] * group", x.shape[1], channels)
    kernel = attrs.get("kernel_shape") or w.shape[2:]
    return x.shape[0], w.shape[0], *window_sizes(op, x, kernel, attrs)


@rule("QLinearConv")
def _qlinear_conv_rule(op: str, inputs: Inputs, attrs: Attrs) -> Results:
    given = between(op, inputs, 8, 9)
    shape = _convolved(op, typed(Tensor, given[0]), typed(Tensor, given[3]), attrs)
    return [(typed(Tensor, given[7]).dtype, shape)]


@rule("DeformConv")
def _deform_conv_rule(op: str, inputs: Inputs, attrs: Attrs) -> Results:
    x, w, offset, *_ = between(op, inputs, 3, 5)
    x, w, offset = typed(Tensor, x), typed(Tensor, w), typed(Tensor, offset)
    dtype_among(op, "X", x, FLOAT)
    shape = _convolved(op, x, w, attrs)
    if shape is not None and offset.known_shape is not None:
        exact_rank(op, "offset", offset, len(shape))
        for have, want in zip(offset.shape[2:], shape[2:], strict=True):
            same_size(op, {"X": x, "W": w, "offset": offset}, "one offset per place of the result", have, want)
    return [(x.dtype, shape)]


@rule("MaxUnpool")
def _max_unpool_rule(op: str, inputs: Inputs, attrs: Attrs) -> Results:
    x, indices, output_shape = between(op, inputs, 2, 3)
    x, indices = typed(Tensor, x), typed(Tensor, indices)
    dtype_among(op, "I", indices, INT64)
    if x.known_shape is None:
        return [(x.dtype, None)]
    rank_at_least(op, "X", x, 3)
    if indices.known_shape is not None:
        exact_rank(op, "I", indices, len(x.shape))
    count = len(x.shape) - 2
    if output_shape is not None:
        known = known_ints(output_shape)
        return [(x.dtype, tuple(fresh(op, x, i) for i in range(count + 2)) if known is None else tuple(known))]
    kernel, strides, pads = attrs["kernel_shape"], attrs.get("strides") or [1] * count, attrs.get("pads")
    if len(kernel) != count or len(strides) != count or len(pads or [0] * 2 * count) != 2 * count:
        raise ShapeError(f"windows of {kernel}", op=op, operands=rows({"X": x}), expected=f"{count} spatial axes")
    sizes: list[Size] = list(x.shape[:2])
    for i, size in enumerate(x.shape[2:]):
        less = pads[i] + pads[count + i] if pads else 0
        sizes.append(dims.add(dims.multiply(dims.subtract(size, 1), strides[i]), kernel[i] - less))
    return [(x.dtype, tuple(sizes))]


@rule("Col2Im")
def _col2im_rule(op: str, inputs: Inputs, attrs: Attrs) -> Results:
    x, image, block = (typed(Tensor, tensor) for tensor in between(op, inputs, 3, 3))
    labelled = {"input": x, "image_shape": image, "block_shape": block}
    for label in ("image_shape", "block_shape"):
        dtype_among(op, label, labelled[label], INT64)
        exact_rank(op, label, labelled[label], 1)
    exact_rank(op, "input", x, 3)
    if image.known_shape is None or not isinstance(image.shape[0], int) or x.known_shape is None:
        return [(x.dtype, None)]
    sizes, kernel = known_ints(image), known_ints(block)
    spatial = [fresh(op, x, i + 2) for i in range(image.shape[0])] if sizes is None else sizes
    if kernel is None:
        return [(x.dtype, (x.shape[0], fresh(op, x, 1), *spatial))]
    same_size(op, labelled, "as many sizes of blocks as of the image", len(kernel), image.shape[0])
    elements = dims.product(kernel)
    if isinstance(x.shape[1], int) and isinstance(elements, int) and (not elements or x.shape[1] % elements):
        raise ShapeError(
            f"{x.shape[1]} rows for blocks of {elements}", op=op, operands=rows(labelled), expected="whole blocks"
        )
    return [(x.dtype, (x.shape[0], dims.floordiv(x.shape[1], elements), *spatial))]
