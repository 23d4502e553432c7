"""onnx's own one-node cases that are not held to the full law, each with the reason; no row is stale."""

from __future__ import annotations

# Cases that cannot be written: lazygraph's signatures begin with opset 13, and deprecated operators are refused.
NOT_WRITTEN = {
    "test_dropout_random_old": "the ratio was an attribute before opset 12",
    "test_scan_sum": "Scan had a batch axis and an operand more before opset 9",
    "test_scatter_with_axis": "Scatter is deprecated since opset 11: ScatterElements",
    "test_scatter_without_axis": "Scatter is deprecated since opset 11: ScatterElements",
    "test_upsample_nearest": "Upsample is deprecated since opset 10: Resize",
}

# Operators whose result has a size that only the numbers in the operands tell.
DATA_DEPENDENT = {
    "Compress": "as many as the condition has true elements",
    "ImageDecoder": "the size of the encoded image",
    "Loop": "as many steps as it takes, and the sizes of a state that changes its shape",
    "NonMaxSuppression": "as many boxes as are chosen",
    "NonZero": "as many as there are elements other than 0",
    "OptionalGetElement": "what an optional holds has a shape of its own",
    "StringNormalizer": "as many texts as are no stop words",
    "StringSplit": "the most parts that a text has",
    "Unique": "as many as there are distinct elements",
}

# Operators and kinds of cases that onnxruntime gets wrong, or cannot tell from the case: its own run of onnx's model
# differs from what is expected as well.
RUNS_WRONG = {
    "Attention": "scores at masked places of qk_matmul_output are not -inf",
    "Cast": "out of range to 4 bits wraps around, and saturates by the spec",
    "CastLike": "as Cast",
    "DFT": "1e-4 where the result is 0, and the case's tolerance there is 1e-7",
    "Dropout": "another random generator than numpy's",
    "MaxUnpool": "the indices are taken as those of the result",
    "ReduceMax": "no largest of no bools",
    "Resize": "align_corners with a scale that leaves a fraction",
    "STFT": "1e-5 where the result is 0, and the case's tolerance there is 1e-7",
    "StringNormalizer": "needs the locale en_US.UTF-8 of the system",
}
