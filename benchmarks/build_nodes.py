"""Seconds per 1,000 nodes to build, check and serialise a graph of 18,486 nodes, in lazygraph and its peers.

The graph is a decoder of 60 layers: RMSNorm, rotary embedding in primitive ops, attention with past and present
joined by Concat, and 32 dense SwiGLU experts per layer, all tiny so that nothing but the graph itself costs time.
Every installed backend runs in a process of its own and makes the same nodes (lazygraph needs no Identity for its 121
outputs). ``build`` is the user's program, ``check`` every validation that the backend has, ``serialise`` the rest.
"""

from __future__ import annotations

import argparse
import gc
import importlib.util
import json
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

HIDDEN, HEADS, HEAD_SIZE, EXPERTS = 16, 2, 8, 32
EPSILON = 1e-5


def weights(layers: int) -> dict[str, np.ndarray]:
    random = np.random.default_rng(0)
    shapes: dict[str, tuple[int, ...]] = {}
    for n in range(layers):
        shapes |= {f"l{n}.n1": (HIDDEN,), f"l{n}.n2": (HIDDEN,), f"l{n}.gate": (HIDDEN, EXPERTS)}
        shapes |= {f"l{n}.{part}": (HIDDEN, HIDDEN) for part in ("q", "k", "v", "o")}
        shapes |= {f"l{n}.e{e}.{part}": (HIDDEN, HIDDEN) for e in range(EXPERTS) for part in ("up", "gate", "down")}
    return {name: random.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}


# ---- lazygraph, as a user writes it -------------------------------------------------------------------------------


def lazygraph_program(layers: int, given: dict[str, np.ndarray]) -> dict[str, Any]:
    import lazygraph as lg

    def rms(x: Any, weight: Any) -> Any:
        variance = lg.reduce_mean(lg.pow(x, 2.0), -1, keepdims=True)
        return x * lg.reciprocal(lg.sqrt(variance + EPSILON)) * weight

    def rotate(x: Any, cos: Any, sin: Any) -> Any:
        first, second = lg.split(x, [HEAD_SIZE // 2, HEAD_SIZE // 2], axis=-1)
        return x * cos + lg.concat([-second, first], axis=-1) * sin

    def heads(x: Any) -> Any:
        return x.reshape(*x.shape[:2], HEADS, HEAD_SIZE).transpose(0, 2, 1, 3)

    x = lg.input("x", lg.float32, ["batch", "seq", HIDDEN])
    positions = lg.input("positions", lg.int64, ["batch", "seq"], anchor=x)
    mask = lg.input("mask", lg.float32, ["batch", 1, "seq", "past + seq"], anchor=x)
    w = {name: x.const(array, name) for name, array in given.items()}

    angles = lg.unsqueeze(positions.astype(lg.float32), [1, 3]) * x.const(
        (np.arange(1, HEAD_SIZE + 1) / HEAD_SIZE).astype(np.float32)
    )
    cos, sin = lg.cos(angles), lg.sin(angles)
    outputs: dict[str, Any] = {}
    for n in range(layers):
        past_k = lg.input(f"past_k.{n}", lg.float32, ["batch", HEADS, "past", HEAD_SIZE], anchor=x)
        past_v = lg.input(f"past_v.{n}", lg.float32, ["batch", HEADS, "past", HEAD_SIZE], anchor=x)
        h = rms(x, w[f"l{n}.n1"])
        q, k, v = (heads(h @ w[f"l{n}.{part}"]) for part in "qkv")
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        k, v = lg.concat([past_k, k], axis=2), lg.concat([past_v, v], axis=2)
        outputs |= {f"present_k.{n}": k, f"present_v.{n}": v}
        scores = lg.softmax((q @ k.transpose(0, 1, 3, 2)) * HEAD_SIZE**-0.5 + mask, axis=-1)
        attended = (scores @ v).transpose(0, 2, 1, 3)
        x = x + attended.reshape(*attended.shape[:2], HIDDEN) @ w[f"l{n}.o"]
        h = rms(x, w[f"l{n}.n2"])
        shares = lg.split(lg.softmax(h @ w[f"l{n}.gate"], axis=-1), [1] * EXPERTS, axis=-1)
        for e in range(EXPERTS):
            up, gate = h @ w[f"l{n}.e{e}.up"], h @ w[f"l{n}.e{e}.gate"]
            x = x + ((gate * lg.sigmoid(gate) * up) @ w[f"l{n}.e{e}.down"]) * shares[e]
    return {"out": x, **outputs}


def run_lazygraph(layers: int) -> dict[str, float]:
    from lazygraph.export import checks, saving

    spent = 0.0
    check = checks.check

    def timed(*args: Any) -> None:
        nonlocal spent
        start = time.perf_counter()
        check(*args)
        spent += time.perf_counter() - start

    checks.check = timed
    given = weights(layers)
    start = time.perf_counter()
    outputs = lazygraph_program(layers, given)
    built = time.perf_counter()
    model = saving.to_onnx(outputs, target="cpu")
    content = model.SerializeToString(deterministic=True)
    return _row(start, built, spent, time.perf_counter(), len(model.graph.node), len(content))


# ---- the others: one description of the graph, an adapter for each ------------------------------------------------


def peer_graph(b: Any, layers: int, given: dict[str, np.ndarray]) -> None:
    ints = lambda *values: b.const(np.array(values, np.int64))  # noqa: E731
    floats = lambda value: b.const(np.array(value, np.float32))  # noqa: E731

    def rms(x: Any, weight: Any) -> Any:
        variance = b.op("ReduceMean", b.op("Pow", x, floats(2.0)), ints(-1), keepdims=1)
        return b.op(
            "Mul", b.op("Mul", x, b.op("Reciprocal", b.op("Sqrt", b.op("Add", variance, floats(EPSILON))))), weight
        )

    def rotate(x: Any, cos: Any, sin: Any) -> Any:
        first, second = b.op("Split", x, ints(HEAD_SIZE // 2, HEAD_SIZE // 2), outputs=2, axis=-1)
        turned = b.op("Concat", b.op("Neg", second), first, axis=-1)
        return b.op("Add", b.op("Mul", x, cos), b.op("Mul", turned, sin))

    def heads(x: Any) -> Any:
        return b.op("Transpose", b.op("Reshape", x, ints(0, 0, HEADS, HEAD_SIZE)), perm=[0, 2, 1, 3])

    x = b.input("x", 1, ["batch", "seq", HIDDEN])
    positions = b.input("positions", 7, ["batch", "seq"])
    mask = b.input("mask", 1, ["batch", 1, "seq", "total"])
    w = {name: b.weight(name, array) for name, array in given.items()}
    frequencies = b.const((np.arange(1, HEAD_SIZE + 1) / HEAD_SIZE).astype(np.float32))
    angles = b.op("Mul", b.op("Unsqueeze", b.op("Cast", positions, to=1), ints(1, 3)), frequencies)
    cos, sin = b.op("Cos", angles), b.op("Sin", angles)
    presents: list[tuple[str, Any]] = []
    for n in range(layers):
        past_k = b.input(f"past_k.{n}", 1, ["batch", HEADS, "past", HEAD_SIZE])
        past_v = b.input(f"past_v.{n}", 1, ["batch", HEADS, "past", HEAD_SIZE])
        h = rms(x, w[f"l{n}.n1"])
        q, k, v = (heads(b.op("MatMul", h, w[f"l{n}.{part}"])) for part in "qkv")
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        k, v = b.op("Concat", past_k, k, axis=2), b.op("Concat", past_v, v, axis=2)
        presents += [(f"present_k.{n}", k), (f"present_v.{n}", v)]
        scores = b.op("Mul", b.op("MatMul", q, b.op("Transpose", k, perm=[0, 1, 3, 2])), floats(HEAD_SIZE**-0.5))
        attended = b.op("MatMul", b.op("Softmax", b.op("Add", scores, mask), axis=-1), v)
        attended = b.op("Reshape", b.op("Transpose", attended, perm=[0, 2, 1, 3]), ints(0, 0, HIDDEN))
        x = b.op("Add", x, b.op("MatMul", attended, w[f"l{n}.o"]))
        h = rms(x, w[f"l{n}.n2"])
        shares = b.op("Softmax", b.op("MatMul", h, w[f"l{n}.gate"]), axis=-1)
        parts = b.op("Split", shares, ints(*[1] * EXPERTS), outputs=EXPERTS, axis=-1)
        for e in range(EXPERTS):
            up, gate = b.op("MatMul", h, w[f"l{n}.e{e}.up"]), b.op("MatMul", h, w[f"l{n}.e{e}.gate"])
            y = b.op("MatMul", b.op("Mul", b.op("Mul", gate, b.op("Sigmoid", gate)), up), w[f"l{n}.e{e}.down"])
            x = b.op("Add", x, b.op("Mul", y, parts[e]))
    b.output("out", x, 3)
    for name, value in presents:
        b.output(name, value, 4)


class Peer:
    """What the adapters share: equal constants are made once."""

    def __init__(self) -> None:
        self.constants: dict[object, Any] = {}

    def const(self, array: np.ndarray) -> Any:
        key = (array.dtype.str, array.shape, array.tobytes())
        if key not in self.constants:
            self.constants[key] = self.weight(f"c{len(self.constants)}", array)
        return self.constants[key]

    def weight(self, name: str, array: np.ndarray) -> Any:
        raise NotImplementedError

    def check(self) -> None:
        """Validate what was built; most peers do so as they go, or never."""


class OnnxHelper(Peer):
    """onnx.helper, with strict shape inference as its check."""

    def __init__(self, check: bool) -> None:
        super().__init__()
        from onnx import helper, numpy_helper

        self.helper, self.numpy_helper, self.checked = helper, numpy_helper, check
        self.nodes: list[Any] = []
        self.inputs: list[Any] = []
        self.weights: list[Any] = []
        self.outputs: list[Any] = []

    def input(self, name: str, kind: int, shape: list[Any]) -> str:
        self.inputs.append(self.helper.make_tensor_value_info(name, kind, shape))
        return name

    def weight(self, name: str, array: np.ndarray) -> str:
        self.weights.append(self.numpy_helper.from_array(array, name))
        return name

    def op(self, kind: str, *operands: str, outputs: int = 1, **attributes: Any) -> Any:
        number = len(self.nodes)
        names = [f"v{number}.{i}" for i in range(outputs)]
        self.nodes.append(self.helper.make_node(kind, list(operands), names, name=f"n{number}", **attributes))
        return names[0] if outputs == 1 else names

    def output(self, name: str, value: str, rank: int) -> None:
        self.nodes.append(self.helper.make_node("Identity", [value], [name], name=f"{name}_copy"))
        self.outputs.append(self.helper.make_tensor_value_info(name, 1, list("abcd"[:rank])))

    def check(self) -> None:
        import onnx

        graph = self.helper.make_graph(self.nodes, "g", self.inputs, self.outputs, self.weights)
        self.model = self.helper.make_model(graph, opset_imports=[self.helper.make_opsetid("", 21)], ir_version=10)
        if self.checked:
            onnx.shape_inference.infer_shapes(self.model, strict_mode=True, check_type=True, data_prop=True)

    def serialise(self) -> tuple[bytes, int]:
        return self.model.SerializeToString(), len(self.model.graph.node)


class IrTape(Peer):
    """onnx_ir's tape, which checks nothing."""

    def __init__(self) -> None:
        super().__init__()
        import onnx_ir as ir

        self.ir, self.tape = ir, ir.tape.Tape()
        self.inputs: list[Any] = []
        self.outputs: list[Any] = []

    def input(self, name: str, kind: int, shape: list[Any]) -> Any:
        value = self.ir.val(name, dtype=self.ir.DataType(kind), shape=shape)
        self.inputs.append(value)
        return value

    def weight(self, name: str, array: np.ndarray) -> Any:
        return self.tape.initializer(self.ir.tensor(array, name=name))

    def op(self, kind: str, *operands: Any, outputs: int = 1, **attributes: Any) -> Any:
        if outputs == 1:
            return self.tape.op(kind, operands, attributes=attributes or None)
        return self.tape.op_multi_out(kind, operands, attributes=attributes or None, num_outputs=outputs)

    def output(self, name: str, value: Any, rank: int) -> None:
        copy = self.op("Identity", value)
        copy.name, copy.dtype, copy.shape = name, self.ir.DataType.FLOAT, self.ir.Shape(list("abcd"[:rank]))
        self.outputs.append(copy)

    def serialise(self) -> tuple[bytes, int]:
        graph = self.ir.Graph(
            inputs=self.inputs,
            outputs=self.outputs,
            nodes=self.tape.nodes,
            initializers=self.tape.initializers,
            opset_imports={"": 21},
            name="g",
        )
        model = self.ir.to_proto(self.ir.Model(graph, ir_version=10))
        return model.SerializeToString(), len(model.graph.node)


class ScriptBuilder(Peer):
    """onnxscript's GraphBuilder, which infers shapes as it goes."""

    def __init__(self) -> None:
        super().__init__()
        import onnx_ir as ir
        import onnxscript

        self.ir = ir
        self.graph = ir.Graph(name="g", inputs=[], outputs=[], nodes=[], opset_imports={"": 21})
        self.builder = onnxscript.GraphBuilder(self.graph)

    def input(self, name: str, kind: int, shape: list[Any]) -> Any:
        return self.builder.input(name, self.ir.DataType(kind), shape)

    def weight(self, name: str, array: np.ndarray) -> Any:
        return self.builder.initializer(self.ir.tensor(array, name=name), qualify=False)

    def op(self, kind: str, *operands: Any, outputs: int = 1, **attributes: Any) -> Any:
        return getattr(self.builder.op, kind)(*operands, _outputs=outputs, **attributes)

    def output(self, name: str, value: Any, rank: int) -> None:
        copy = self.op("Identity", value)
        copy.dtype, copy.shape = self.ir.DataType.FLOAT, copy.shape or self.ir.Shape(list("abcd"[:rank]))
        self.builder.add_output(copy, name)

    def serialise(self) -> tuple[bytes, int]:
        model = self.ir.to_proto(self.ir.Model(self.graph, ir_version=10))
        return model.SerializeToString(), len(model.graph.node)


class SpoxBuilder(Peer):
    """spox, which infers each node when it is made."""

    def __init__(self) -> None:
        super().__init__()
        import spox
        import spox.opset.ai.onnx.v21 as ops
        from spox._future import initializer

        self.spox, self.ops, self.initializer = spox, ops, initializer
        self.inputs: dict[str, Any] = {}
        self.outputs: dict[str, Any] = {}

    def input(self, name: str, kind: int, shape: list[Any]) -> Any:
        self.inputs[name] = self.spox.argument(self.spox.Tensor(np.float32 if kind == 1 else np.int64, tuple(shape)))
        return self.inputs[name]

    def weight(self, name: str, array: np.ndarray) -> Any:
        return self.initializer(array)

    def op(self, kind: str, *operands: Any, outputs: int = 1, **attributes: Any) -> Any:
        if kind == "Concat":
            return self.ops.concat(list(operands), **attributes)
        if kind == "Cast":
            return self.ops.cast(operands[0], to=np.float32)
        if kind == "Split":
            return self.ops.split(operands[0], num_outputs=outputs, **attributes)
        spelled = {"MatMul": "matmul", "ReduceMean": "reduce_mean"}.get(kind, kind.lower())
        return getattr(self.ops, spelled)(*operands, **attributes)

    def output(self, name: str, value: Any, rank: int) -> None:
        self.outputs[name] = self.op("Identity", value)

    def check(self) -> None:
        self.model = self.spox.build(self.inputs, self.outputs)

    def serialise(self) -> tuple[bytes, int]:
        return self.model.SerializeToString(), len(self.model.graph.node)


PEERS: dict[str, tuple[str, Callable[[], Any]]] = {
    "onnx.helper": ("onnx", lambda: OnnxHelper(False)),
    "onnx.helper + inference": ("onnx", lambda: OnnxHelper(True)),
    "onnx_ir tape": ("onnx_ir", IrTape),
    "onnxscript GraphBuilder": ("onnxscript", ScriptBuilder),
    "spox": ("spox", SpoxBuilder),
}


def run_peer(backend: str, layers: int) -> dict[str, float]:
    given = weights(layers)
    builder = PEERS[backend][1]()
    start = time.perf_counter()
    peer_graph(builder, layers, given)
    built = time.perf_counter()
    builder.check()
    checked = time.perf_counter()
    content, nodes = builder.serialise()
    return _row(start, built, checked - built, time.perf_counter(), nodes, len(content))


def _row(start: float, built: float, check: float, end: float, nodes: int, size: int) -> dict[str, float]:
    return {
        "nodes": nodes,
        "build": (built - start) / nodes * 1000,
        "check": check / nodes * 1000,
        "serialise": (end - built - check) / nodes * 1000,
        "total": (end - start) / nodes * 1000,
        "megabytes": size / 1e6,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("backends", nargs="*", metavar="BACKEND", help="lazygraph, " + ", ".join(PEERS))
    parser.add_argument("--layers", type=int, default=60)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        (backend,) = options.backends
        if backend == "lazygraph":
            import onnx  # noqa: F401  its import is not the work that is measured
        gc.collect()
        print(
            json.dumps(run_lazygraph(options.layers) if backend == "lazygraph" else run_peer(backend, options.layers))
        )
        return

    present = ["lazygraph", *(name for name, (module, _) in PEERS.items() if importlib.util.find_spec(module))]
    titles = f"{'build':>8} {'check':>8} {'serialise':>10} {'total':>8} {'nodes':>7} {'MB':>6}"
    print(f"{'seconds per 1,000 nodes':<26} {titles}")
    for backend in options.backends or present:
        command = [sys.executable, __file__, "--worker", "--layers", str(options.layers), backend]
        rows = [
            json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()[-1])
            for _ in range(options.repeat)
        ]
        best = min(rows, key=lambda row: row["total"])
        print(
            f"{backend:<26} {best['build']:8.4f} {best['check']:8.4f} {best['serialise']:10.4f} {best['total']:8.4f} "
            f"{best['nodes']:7} {best['megabytes']:6.1f}"
        )


if __name__ == "__main__":
    main()
