"""Calls of a local function are one node each, equal bodies one function, and results those of the inlined model."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import numpy as np
import onnx
import pytest
from onnx import inliner

import lazygraph as lg
from lazygraph import nn
from lazygraph.export import open_session

RNG = np.random.default_rng(11)


def weight(*shape: int) -> np.ndarray[Any, Any]:
    return np.asarray(RNG.normal(size=shape) / 4).astype(np.float32)


def written(outputs: dict[str, lg.Tensor], feeds: dict[str, np.ndarray[Any, Any]]) -> onnx.ModelProto:
    """Return the model with functions, after its results are those of the one without, and of onnx's own inliner."""
    model = lg.to_onnx(outputs, target="cpu")
    onnx.checker.check_model(model, full_check=True)
    plain = lg.to_onnx(outputs, target="cpu", functions=False)
    assert not plain.functions
    wanted = open_session(plain).run(None, feeds)
    for other in (model, inliner.inline_local_functions(model)):
        for got, want in zip(open_session(other).run(None, feeds), wanted, strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-6)
    return model


def calls(model: onnx.ModelProto) -> list[str]:
    return [node.op_type for node in model.graph.node if node.domain == "lazygraph.local"]


@lg.function
def feed_forward(x: lg.Tensor, up: lg.Tensor, down: lg.Tensor) -> lg.Tensor:
    return lg.relu(x @ up) * 2.0 @ down


X = weight(3, 8)


def test_calls_with_weights_of_their_own_share_one_function() -> None:
    x = lg.input("x", lg.float32, ["n", 8])
    y = x
    for k in range(5):
        y = y + feed_forward(y, x.const(weight(8, 16), f"up.{k}"), x.const(weight(16, 8), f"down.{k}"))
    model = written({"y": y}, {"x": X})
    assert calls(model) == ["feed_forward"] * 5
    (function,) = model.functions
    assert [node.op_type for node in function.node] == ["Constant", "MatMul", "Relu", "Mul", "MatMul"]
    assert len(function.input) == 3
    assert model.ir_version >= 8
    assert {entry.domain for entry in model.opset_import} == {"", "lazygraph.local"}


def test_shapes_of_two_calls_are_those_of_each() -> None:
    x = lg.input("x", lg.float32, [3, 8])
    a = feed_forward(x, x.const(weight(8, 16), "a"), x.const(weight(16, 4), "b"))
    b = feed_forward(lg.transpose(x), x.const(weight(3, 5), "c"), x.const(weight(5, 1), "d"))
    assert (a.shape, b.shape) == ((3, 4), (8, 1))
    model = written({"y": a, "z": b}, {"x": X})
    assert calls(model) == ["feed_forward"] * 2
    assert len(model.functions) == 1


def test_a_body_that_depends_on_the_shape_is_a_second_function() -> None:
    @lg.function
    def flat(x: lg.Tensor) -> lg.Tensor:
        return lg.reshape(x, [x.size]) * 3.0

    x = lg.input("x", lg.float32, [3, 8])
    model = written({"a": flat(x), "b": flat(x[:2]), "c": flat(x[1:])}, {"x": X})
    assert calls(model) == ["flat", "flat_2", "flat_2"]
    assert [function.name for function in model.functions] == ["flat", "flat_2"]


def test_weights_that_the_body_closes_over_or_makes_become_inputs() -> None:
    x = lg.input("x", lg.float32, ["n", 8])
    shared = x.const(weight(8, 8), "shared")
    outer = lg.tanh(x @ shared)

    @lg.function
    def block(y: lg.Tensor, k: int) -> lg.Tensor:
        scale = x.const(weight(8), f"scale.{k}")
        return nn.rms_norm(y @ shared + outer, scale) * float(2)

    y = block(block(x, 0), 1)
    model = written({"y": y}, {"x": X})
    assert calls(model) == ["block", "block"]
    first, second = (list(node.input) for node in model.graph.node if node.op_type == "block")
    assert [a for a, b in zip(first, second, strict=True) if a == b] == ["shared", model.graph.node[1].output[0]]
    assert {"scale.0", "scale.1"} <= {*first, *second}


def test_functions_call_functions() -> None:
    @lg.function
    def layer(x: lg.Tensor, k: int) -> lg.Tensor:
        with lg.scope(f"layers.{k}"):
            h = feed_forward(x, x.const(weight(8, 4), f"{k}.up"), x.const(weight(4, 8), f"{k}.down"))
            return x + feed_forward(h, x.const(weight(8, 4), f"{k}.up2"), x.const(weight(4, 8), f"{k}.down2"))

    x = lg.input("x", lg.float32, ["n", 8])
    y = x
    for k in range(3):
        y = layer(y, k)
    model = written({"y": y}, {"x": X})
    assert calls(model) == ["layer"] * 3
    by_name = {function.name: function for function in model.functions}
    assert set(by_name) == {"layer", "feed_forward"}
    assert [node.op_type for node in by_name["layer"].node].count("feed_forward") == 2


def test_one_name_with_two_bodies_never_collides() -> None:
    def made(scale: float) -> Any:
        @lg.function(name="scaled")
        def body(x: lg.Tensor) -> lg.Tensor:
            return lg.exp(x * scale)

        return body

    x = lg.input("x", lg.float32, ["n", 8])
    two, three, again = made(2.0), made(3.0), made(2.0)
    model = written({"a": two(x), "b": three(x), "c": again(x)}, {"x": X})
    assert calls(model) == ["scaled", "scaled_2", "scaled"]


def test_several_results_and_nested_ones_come_back_as_they_are() -> None:
    @lg.function
    def halves(x: lg.Tensor) -> dict[str, Any]:
        e = lg.exp(x)
        return {"e": e, "pair": [e + 1.0, (x * 2.0,)], "n": 3}

    x = lg.input("x", lg.float32, ["n", 8])
    found = halves(x)
    assert found["n"] == 3
    model = written({"e": found["e"], "a": found["pair"][0], "b": found["pair"][1][0]}, {"x": X})
    (call,) = (node for node in model.graph.node if node.op_type == "halves")
    assert list(call.output) == ["e", "a", "b"]
    unread = lg.to_onnx({"a": found["pair"][0]})
    assert [len(function.output) for function in unread.functions] == [1]


def test_sizes_and_rows_that_all_calls_read_are_computed_once_outside() -> None:
    x = lg.input("x", lg.float32, [lg.size("n", min=1, max=16), 8])
    cache = lg.LatentCache.inputs(x, 3, 16, [[8]])

    @lg.function
    def layer(y: lg.Tensor, cache: lg.LatentCache, k: int) -> tuple[lg.Tensor, lg.LatentCache]:
        cache = cache.append(k, [y])
        rows = cache.slot(k, 0, include_pending=True)
        return y + lg.softmax(y @ lg.transpose(rows)) @ rows, cache

    y = x
    for k in range(3):
        y, cache = layer(y, cache, k)
    past = {f"past.{k}.slot0": np.zeros((16, 8), np.float32) for k in range(3)}
    outputs = {"y": y, **cache.advance_by("n").outputs()}
    model = written(outputs, {"x": X, "past_len": np.array(0), **past})
    assert calls(model) == ["layer"] * 3
    assert len(model.functions) == 1
    assert not lg.shared_memory_faults(model, {f"past.{k}.slot0": f"present.{k}.slot0" for k in range(3)})


def test_a_body_may_branch_and_what_it_closes_over_is_an_input() -> None:
    @lg.function
    def chosen(x: lg.Tensor, w: lg.Tensor) -> lg.Tensor:
        h = lg.exp(x)
        return lg.cond(lg.reduce_sum(x) > 0.0, lambda: h @ w, lambda: lg.neg(x @ w))

    x = lg.input("x", lg.float32, ["n", 8])
    y = chosen(x, x.const(weight(8, 4), "a")) + chosen(x, x.const(weight(8, 4), "b"))
    for sign in (1, -1):
        model = written({"y": y}, {"x": np.abs(X) * sign})
    assert calls(model) == ["chosen", "chosen"]
    assert len(model.functions) == 1


def test_a_call_inside_a_branch_is_written_inline() -> None:
    x = lg.input("x", lg.float32, ["n", 8])
    up, down = x.const(weight(8, 4), "a"), x.const(weight(4, 8), "b")
    y = lg.cond(lg.reduce_sum(x) > 0.0, lambda: feed_forward(x, up, down), lambda: x)
    model = written({"y": y}, {"x": X})
    assert calls(model) == []


def test_inlining_is_a_choice_per_function_per_call_and_per_file() -> None:
    @lg.function(inline=True)
    def plain(x: lg.Tensor) -> lg.Tensor:
        return lg.exp(x)

    x = lg.input("x", lg.float32, ["n", 8])
    assert calls(lg.to_onnx({"y": plain(x)})) == []
    up, down = x.const(weight(8, 4), "a"), x.const(weight(4, 8), "b")
    assert calls(lg.to_onnx({"y": feed_forward.inlined(x, up, down)})) == []
    assert calls(lg.to_onnx({"y": feed_forward(x, up, down)}, functions=False)) == []
    assert calls(lg.to_onnx({"y": feed_forward(x, up, down)})) == ["feed_forward"]


def test_an_error_in_a_body_names_the_line_in_the_body() -> None:
    x = lg.input("x", lg.float32, ["n", 8])
    with pytest.raises(lg.ShapeError, match="inner sizes differ") as caught:
        feed_forward(x, x.const(weight(9, 4), "a"), x.const(weight(4, 8), "b"))
    assert "test_functions.py:" in str(caught.value)


def test_two_builds_give_the_same_bytes_and_a_file_survives_loading(tmp_path: Any) -> None:
    def built() -> dict[str, lg.Tensor]:
        x = lg.input("x", lg.float32, ["n", 8])
        w = x.const(np.ones((8, 8), np.float32), "w")
        return {"y": feed_forward(feed_forward(x, w, w), w, w)}

    assert lg.to_onnx(built()).SerializeToString() == lg.to_onnx(built()).SerializeToString()
    lg.save(built(), tmp_path / "m.onnx")
    loaded = lg.load(tmp_path / "m.onnx")
    np.testing.assert_allclose(
        open_session(lg.to_onnx(loaded.outputs)).run(None, {"x": X})[0],
        open_session(tmp_path / "m.onnx").run(None, {"x": X})[0],
        rtol=1e-6,
    )
    realized = lg.realize(built()["y"], {"x": X})
    np.testing.assert_allclose(realized, open_session(tmp_path / "m.onnx").run(None, {"x": X})[0], rtol=1e-6)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: lg.function(name=""), "name is ''"),
        (lambda: lg.function(domain=""), "domain is ''"),
        (lambda: lg.function(domain="com.microsoft"), "is taken"),
        (lambda: lg.function(cast(Any, 3)), "3 is no function"),
    ],
)
def test_what_cannot_be_a_function_is_refused(make: Any, says: str) -> None:
    with pytest.raises(lg.OperandError, match=says):
        make()


def test_an_error_in_a_body_points_to_its_line_and_names_every_call_around_it() -> None:
    @lg.function
    def inner(x: lg.Tensor) -> lg.Tensor:
        return x @ x.const(np.zeros((3, 3), np.float32))  # the body's line

    @lg.function
    def outer(x: lg.Tensor) -> lg.Tensor:
        return inner(x)  # the inner call

    lines = Path(__file__).read_text(encoding="utf-8").splitlines()
    places = {text: i for i, line in enumerate(lines, 1) for text in [line.split("  # ")[-1]] if "  # " in line}
    with pytest.raises(lg.ShapeError) as caught:
        outer(lg.input("x", lg.float32, ["n", 4]))  # the outer call
    assert caught.value.at is not None and caught.value.at.line == places["the body's line"]
    assert caught.value.operands["in inner"].endswith(f"test_functions.py:{places['the inner call']}")
    assert caught.value.operands["in outer"].endswith(f"test_functions.py:{places['the outer call']}")
