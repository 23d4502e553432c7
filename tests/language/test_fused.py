"""onnxruntime's fused operators: the shapes known at build are those that onnxruntime gives, named sizes too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

import lazygraph as lg
from lazygraph import dims
from lazygraph.evaluate import realize

OP: Any = lg.op.microsoft
_rng = np.random.default_rng(3)


class Case(NamedTuple):
    """One call.

    Attributes:
        name: Of the case.
        call: Makes the outputs that are read, by their places, from the operands.
        operands: Sizes as ``"name=number"`` or numbers, and the element type where it is not float32.
        values: Operands that must hold certain numbers, by place.
    """

    name: str
    call: Callable[..., Any]
    operands: tuple[tuple[Any, ...], ...]
    values: dict[int, Any]


B, S, P, N, ONE = "b=2", "s=3", "p=5", "n=6", "o=1"
U8, I32, I64 = ("uint8",), ("int32",), ("int64",)


def _mha(**more: Any) -> Callable[..., Any]:
    return lambda *x: OP.MultiHeadAttention(*x, num_heads=2, **more)


def _gqa(total: int, **more: Any) -> Callable[..., Any]:
    def call(query: Any, key: Any, value: Any, past_k: Any, past_v: Any, lengths: Any) -> Any:
        count = np.array([total], np.int32)
        return OP.GroupQueryAttention(
            query, key, value, past_k, past_v, lengths, count, num_heads=4, kv_num_heads=2, **more
        )[:3]

    return call


def _packed_gqa(query: Any, past_k: Any, past_v: Any, lengths: Any) -> Any:
    return _gqa(8)(query, None, None, past_k, past_v, lengths)


CASES = [
    Case("Gelu", OP.Gelu, ((B, S, 4),), {}),
    Case("QuickGelu", OP.QuickGelu, ((B, 4),), {}),
    Case("FastGelu", OP.FastGelu, ((B, S, 4), (4,)), {}),
    Case("FastGelu without bias", OP.FastGelu, ((B, S, 4),), {}),
    Case("BiasGelu", OP.BiasGelu, ((B, S, N), (N,)), {}),
    Case("FusedMatMul", OP.FusedMatMul, ((B, S, 4), (4, N)), {}),
    Case("FusedMatMul turned", lambda *x: OP.FusedMatMul(*x, transA=1, transB=1), ((B, 4, S), (B, N, 4)), {}),
    Case("FusedMatMul with a vector", lambda *x: OP.FusedMatMul(*x, transB=1), ((4,), (N, 4)), {}),
    Case("SkipLayerNormalization", lambda *x: (OP.SkipLayerNormalization(*x)[0],), ((B, S, 8), (B, S, 8), (8,)), {}),
    Case(
        "SkipLayerNormalization with sum",
        lambda *x: OP.SkipLayerNormalization(*x)[::3],
        ((B, S, 8), (B, S, 8), (8,), (8,), (8,)),
        {},
    ),
    Case(
        "SkipLayerNormalization of one skip",
        lambda *x: OP.SkipLayerNormalization(*x)[::3],
        ((B, S, 8), (S, 8), (8,)),
        {},
    ),
    Case(
        "SkipSimplifiedLayerNormalization",
        lambda *x: OP.SkipSimplifiedLayerNormalization(*x)[::3],
        ((S, 8), (S, 8), (8,)),
        {},
    ),
    Case(
        "RotaryEmbedding", OP.RotaryEmbedding, ((B, S, 16), (B, S, *I64), (32, 8), (32, 8)), {1: np.zeros((2, 3), int)}
    ),
    Case(
        "RotaryEmbedding of heads",
        OP.RotaryEmbedding,
        ((B, 2, S, 16), (B, S, *I64), (32, 8), (32, 8)),
        {1: np.zeros((2, 3), int)},
    ),
    Case("MultiHeadAttention", lambda *x: _mha()(*x)[:3], ((B, S, 8), (B, P, 8), (B, P, 12)), {}),
    Case("MultiHeadAttention of named width", lambda *x: _mha()(*x)[:3], ((B, S, 8), (B, P, 8), (B, P, "2*v=12")), {}),
    Case("MultiHeadAttention with heads", lambda *x: _mha()(*x)[:1], ((B, S, 8), (B, 2, P, 4), (B, 2, P, 4)), {}),
    Case(
        "MultiHeadAttention with past",
        lambda q, k, v, a, b: _mha()(q, k, v, None, None, None, a, b)[:3],
        ((B, S, 8), (B, S, 8), (B, S, 8), (B, 2, P, 4), (B, 2, P, 4)),
        {},
    ),
    Case(
        "GroupQueryAttention",
        _gqa(8),
        ((ONE, S, 32), (ONE, S, 16), (ONE, S, 16), (ONE, 2, P, 8), (ONE, 2, P, 8), (ONE, *I32)),
        {5: np.full(1, 7)},
    ),
    Case(
        "GroupQueryAttention in a buffer",
        _gqa(8),
        ((ONE, S, 32), (ONE, S, 16), (ONE, S, 16), (ONE, 2, "cap=20", 8), (ONE, 2, "cap=20", 8), (ONE, *I32)),
        {5: np.full(1, 7)},
    ),
    Case(
        "GroupQueryAttention packed",
        _packed_gqa,
        ((ONE, S, 64), (ONE, 2, P, 8), (ONE, 2, P, 8), (ONE, *I32)),
        {3: np.full(1, 7)},
    ),
    Case(
        "MatMulNBits",
        lambda *x: OP.MatMulNBits(*x, K=32, N=8, block_size=32, bits=4),
        ((B, S, 32), (8, 1, 16, *U8), (8,)),
        {},
    ),
    Case(
        "Attention",
        lambda *x: OP.Attention(*x, num_heads=2)[:1],
        ((B, S, 8), (8, 24), (24,)),
        {},
    ),
    Case(
        "Attention with past",
        lambda x, w, b, p: OP.Attention(x, w, b, None, p, num_heads=2),
        ((B, S, 8), (8, 24), (24,), (2, B, 2, P, 4)),
        {},
    ),
    Case("MatMulIntegerToFloat", OP.MatMulIntegerToFloat, ((B, S, 4, *U8), (4, N, *U8), (), ()), {}),
    Case("DynamicQuantizeMatMul", OP.DynamicQuantizeMatMul, ((B, S, 4), (4, N, *U8), ()), {}),
    Case(
        "GatherBlockQuantized",
        lambda *x: OP.GatherBlockQuantized(*x, block_size=16, gather_axis=0, quantize_axis=1),
        ((32, 16, *U8), (B, S, *I64), (32, 2)),
        {1: np.zeros((2, 3), int)},
    ),
    Case("Trilu", OP.Trilu, ((B, S, 4),), {}),
    Case("Inverse", OP.Inverse, ((B, 3, 3),), {}),
]


def _operand(sizes: tuple[Any, ...], named: bool, sample: dict[str, int]) -> tuple[str, list[Any], list[int]]:
    dtype = "float32"
    shape: list[Any] = []
    numbers: list[int] = []
    for size in sizes:
        if isinstance(size, int):
            shape.append(size)
            numbers.append(size)
        elif "=" in size:
            name, _, number = size.partition("=")
            factor, _, atom = name.rpartition("*")
            sample[atom] = int(number) // int(factor or 1)
            shape.append(name if named else int(number))
            numbers.append(int(number))
        else:
            dtype = size
    return dtype, shape, numbers


@pytest.mark.parametrize("named", [False, True], ids=["numbers", "names"])
@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_shapes_are_those_that_onnxruntime_gives(case: Case, named: bool) -> None:
    anchor: lg.Tensor | None = None
    sample: dict[str, int] = {}
    given: list[lg.Tensor] = []
    feeds: dict[str, Any] = {}
    for place, sizes in enumerate(case.operands):
        dtype, shape, numbers = _operand(sizes, named, sample)
        given.append(lg.input(f"x{place}", dtype, shape, anchor=anchor))
        anchor = given[0]
        value = case.values.get(place, _rng.uniform(0.5, 2.0, numbers))
        feeds[f"x{place}"] = np.asarray(value).astype(dtype)
    made = case.call(*given)
    outputs = {f"y{i}": y for i, y in enumerate([made] if isinstance(made, lg.Tensor) else made)}
    found = realize(outputs, feeds)
    for name, tensor in outputs.items():
        assert tensor.known_shape is not None, name
        real = [size if isinstance(size, int) else dims.evaluate(size, sample) for size in tensor.shape]
        assert tuple(real) == found[name].shape, name
        assert tensor.dtype == found[name].dtype.name


def test_half_of_a_named_cache_is_left_to_the_run() -> None:
    query = lg.input("q", "float32", ["b", "s", 32])
    count = lg.input("count", "int32", [1], anchor=query)
    lengths = lg.input("lengths", "int32", ["b"], anchor=query)
    key = lg.input("k", "float32", ["b", "s", 16], anchor=query)
    output, present, *_ = OP.GroupQueryAttention(
        query, key, key, None, None, lengths, count, num_heads=4, kv_num_heads=2
    )
    assert [str(size) for size in output.shape] == ["b", "s", "32"]
    assert present.known_shape is None


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x: OP.FusedMatMul(x, np.ones((4, 3), np.float32)), "fused_mat_mul: inner sizes differ: 8 in a and 4"),
        (lambda x: OP.BiasGelu(x, np.ones(4, np.float32)), "bias_gelu: sizes 8 and 4 meet"),
        (lambda x: OP.BiasGelu(x, np.ones((1, 8), np.float32)), "bias_gelu: bias has 2 axes"),
        (lambda x: OP.SkipLayerNormalization(x, x, np.ones(4, np.float32)), "sizes 8 and 4 meet"),
        (lambda x: OP.MultiHeadAttention(x, x, x, num_heads=3), "multi_head_attention: 8 into 3 heads"),
        (
            lambda x: OP.MatMulNBits(
                x, np.ones((8, 1, 16), np.uint8), np.ones(8, np.float32), K=32, N=8, block_size=32
            ),
            "mat_mul_nbits: sizes 8 and 32 meet",
        ),
    ],
)
def test_what_does_not_fit_is_refused_on_the_line(call: Callable[[lg.Tensor], object], message: str) -> None:
    with pytest.raises(lg.ShapeError, match=message) as caught:
        call(lg.input("x", "float32", ["b", 3, 8]))
    assert caught.value.at is not None
    assert caught.value.at.file == __file__
