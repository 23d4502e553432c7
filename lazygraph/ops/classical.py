"""Rules of ai.onnx.ml's operators that onnx infers nothing for: the shape stays."""

from __future__ import annotations

from lazygraph.dtypes import float32
from lazygraph.ops.checks import first
from lazygraph.ops.core import Attrs, Inputs, Results, rule

DOMAIN = "ai.onnx.ml"


@rule("Normalizer", "Scaler", domain=DOMAIN)
def _scaled_rule(op: str, inputs: Inputs, attrs: Attrs) -> Results:
    return [(float32, first(op, inputs).known_shape)]


@rule("Imputer", domain=DOMAIN)
def _filled_rule(op: str, inputs: Inputs, attrs: Attrs) -> Results:
    x = first(op, inputs)
    return [(x.dtype, x.known_shape)]
