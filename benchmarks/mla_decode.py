"""Milliseconds per decode step of latent attention (MLA), by rows in the cache: lazygraph and its peers, in one run.

Two layers at DeepSeek-V2-Lite widths (2048 hidden, 16 heads, latents of 512 and rotary keys of 64, dense feed-forwards
of 2048), random weights, one token, one thread, from one checkpoint in Hugging Face's layout:

- lazygraph ``absorbed``, ``expanded`` and ``auto``, their caches bound in place as lazygraph.Decoder binds them;
- ``floor``: hand-made with onnx.helper, nothing but the products, no norms, rotation, mask or head;
- transformers' own ONNX exporter, plain and with its fusions for onnxruntime's CPU. Its graph keeps the latents, but
  joins old and new rows and expands all of them on every step. It is installed into an environment of its own (torch
  and transformers, about 1.5 GB, into --peer-env, a cache folder when left out), and left out where it cannot be.

Rounds are interleaved. Where a session's weights lie in memory changes its speed by some per cent from one opening to
the next, so the sessions of the fast ones are opened anew several times. With --cpu the process's own CPU time is
counted, which others on the machine disturb less than the wall clock.

    python benchmarks/mla_decode.py [--peer-env DIR | --no-peer] [--openings 5] [--rows 512 4000 16000] [--cpu]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort

import lazygraph as lg
from lazygraph.export.session import open_session

HIDDEN, HEADS, RANK, ROPE, NOPE, V, INNER, LAYERS, VOCAB = 2048, 16, 512, 64, 128, 128, 2048, 2, 256
ROWS = (512, 4_000, 16_000)
CAPACITY = 16_384
FORMS = ("absorbed", "expanded", "auto")
PEER, PEER_FUSED = "transformers' exporter", "the same, CPU fusions"
PEER_PACKAGES = ("torch==2.13.0", "transformers>=5.24", "onnx", "onnxscript", "onnxruntime")

# What is wanted: absorbed against the floor at most, and the exporter against absorbed at least.
FLOOR_LIMIT = 1.15
WANTED = {512: 7, 4_000: 40}

Cache = dict[tuple[int, str], ort.OrtValue]
Run = Callable[[], None]
Clock = Callable[[], float]


# ---- the model ----------------------------------------------------------------------------------------------------


def write_checkpoint(folder: Path) -> None:
    """Write config.json and model.safetensors of random weights."""
    from safetensors.numpy import save_file

    config = {
        "architectures": ["DeepseekV2ForCausalLM"],
        "model_type": "deepseek_v2",
        "hidden_size": HIDDEN,
        "hidden_act": "silu",
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "num_key_value_heads": HEADS,
        "q_lora_rank": None,
        "kv_lora_rank": RANK,
        "qk_rope_head_dim": ROPE,
        "qk_nope_head_dim": NOPE,
        "v_head_dim": V,
        "intermediate_size": INNER,
        "first_k_dense_replace": LAYERS,
        "n_routed_experts": 8,
        "num_experts_per_tok": 2,
        "n_shared_experts": 1,
        "moe_intermediate_size": 64,
        "topk_method": "greedy",
        "n_group": 1,
        "topk_group": 1,
        "norm_topk_prob": False,
        "routed_scaling_factor": 1.0,
        "attention_bias": False,
        "rms_norm_eps": 1e-6,
        "rope_theta": 10000.0,
        "max_position_embeddings": 163_840,
        "tie_word_embeddings": False,
        "vocab_size": VOCAB,
        "bos_token_id": 0,
        "eos_token_id": 1,
    }
    random = np.random.default_rng(0)

    def matrix(*shape: int) -> np.ndarray:
        return random.standard_normal(shape, np.float32) * np.float32(0.02)

    ones = {size: np.ones(size, np.float32) for size in (HIDDEN, RANK)}
    weights = {
        "model.embed_tokens.weight": matrix(VOCAB, HIDDEN),
        "lm_head.weight": matrix(VOCAB, HIDDEN),
        "model.norm.weight": ones[HIDDEN],
    }
    for layer in range(LAYERS):
        attn, mlp = f"model.layers.{layer}.self_attn", f"model.layers.{layer}.mlp"
        weights |= {
            f"model.layers.{layer}.input_layernorm.weight": ones[HIDDEN].copy(),
            f"model.layers.{layer}.post_attention_layernorm.weight": ones[HIDDEN].copy(),
            f"{attn}.q_proj.weight": matrix(HEADS * (NOPE + ROPE), HIDDEN),
            f"{attn}.kv_a_proj_with_mqa.weight": matrix(RANK + ROPE, HIDDEN),
            f"{attn}.kv_a_layernorm.weight": ones[RANK].copy(),
            f"{attn}.kv_b_proj.weight": matrix(HEADS * (NOPE + V), RANK),
            f"{attn}.o_proj.weight": matrix(HIDDEN, HEADS * V),
            f"{mlp}.gate_proj.weight": matrix(INNER, HIDDEN),
            f"{mlp}.up_proj.weight": matrix(INNER, HIDDEN),
            f"{mlp}.down_proj.weight": matrix(HIDDEN, INNER),
        }
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(config))
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


def floor_model() -> bytes:
    """Return the least that a decode step of absorbed attention can do in plain ONNX, without norms and rotation."""
    from onnx import TensorProto, helper, numpy_helper

    random = np.random.default_rng(0)
    nodes: list[Any] = []
    weights: list[Any] = []
    inputs = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", HIDDEN]),
        helper.make_tensor_value_info("past_len", TensorProto.INT64, [1]),
    ]
    outputs: list[Any] = []

    def ints(*values: int) -> str:
        weights.append(numpy_helper.from_array(np.array(values), f"ints{len(weights)}"))
        return str(weights[-1].name)

    def matrix(*shape: int) -> str:
        numbers = random.standard_normal(shape, np.float32) * np.float32(0.02)
        weights.append(numpy_helper.from_array(numbers, f"w{len(weights)}"))
        return str(weights[-1].name)

    def op(kind: str, *operands: str, count: int = 1, name: str = "", **attributes: Any) -> Any:
        made = [name or f"v{len(nodes)}.{i}" for i in range(count)]
        nodes.append(helper.make_node(kind, list(operands), made, **attributes))
        return made[0] if count == 1 else made

    def bound(layer: int, slot: str, width: int) -> str:
        name = f"past.{layer}.{slot}"
        inputs.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, ["rows", width]))
        outputs.append(
            helper.make_tensor_value_info(name.replace("past", "present"), TensorProto.FLOAT, ["rows", width])
        )
        return name

    def heads_first(x: str, sizes: str) -> str:
        return str(op("Reshape", op("Transpose", x, perm=[1, 0, 2]), sizes))

    scale = (NOPE + ROPE) ** -0.5
    index = op("Unsqueeze", "past_len", ints(1))
    x = "x"
    for layer in range(LAYERS):
        q = op("Reshape", op("MatMul", x, matrix(HIDDEN, HEADS * (NOPE + ROPE))), ints(0, HEADS, NOPE + ROPE))
        q_nope, q_pe = op("Split", q, ints(NOPE, ROPE), count=2, axis=-1)
        new_c, new_k = op("Split", op("MatMul", x, matrix(HIDDEN, RANK + ROPE)), ints(RANK, ROPE), count=2, axis=-1)
        c_kv = op("ScatterND", bound(layer, "c_kv", RANK), index, new_c, name=f"present.{layer}.c_kv")
        k_pe = op("ScatterND", bound(layer, "k_pe", ROPE), index, new_k, name=f"present.{layer}.k_pe")
        q_latent = op("MatMul", op("Transpose", q_nope, perm=[1, 0, 2]), matrix(HEADS, NOPE, RANK))
        near = op("Gemm", op("Reshape", q_latent, ints(-1, RANK)), c_kv, transB=1, alpha=scale)
        scores = op("Gemm", heads_first(q_pe, ints(-1, ROPE)), k_pe, near, transB=1, alpha=scale)
        mixed = op("MatMul", op("Softmax", scores, axis=-1), c_kv)
        values = op("MatMul", op("Reshape", mixed, ints(HEADS, -1, RANK)), matrix(HEADS, RANK, V))
        attended = op("MatMul", heads_first(values, ints(-1, HEADS * V)), matrix(HEADS * V, HIDDEN))
        x = op("Add", x, attended)
        gate, up = op("MatMul", x, matrix(HIDDEN, INNER)), op("MatMul", x, matrix(HIDDEN, INNER))
        acted = op("Mul", op("Mul", gate, op("Sigmoid", gate)), up)
        x = op("Add", x, op("MatMul", acted, matrix(INNER, HIDDEN)), name="y" if layer == LAYERS - 1 else "")
    outputs.append(helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", HIDDEN]))
    graph = helper.make_graph(nodes, "floor", inputs, outputs, weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    return bytes(model.SerializeToString())


# ---- transformers' exporter, in an environment of its own ---------------------------------------------------------

PEER_PROGRAM = """
import sys
import torch
import transformers
from transformers import AutoModelForCausalLM, DynamicCache
from transformers.exporters import OnnxConfig, OnnxExporter

source, plain, fused = sys.argv[1:]
for target, fusions in ((plain, None), (fused, "cpu")):
    model = AutoModelForCausalLM.from_pretrained(source, dtype=torch.float32).eval()
    cache = DynamicCache(config=model.config)
    with torch.no_grad():
        model(input_ids=torch.arange(6)[None], past_key_values=cache, use_cache=True)
    inputs = {
        "input_ids": torch.tensor([[3]]),
        "attention_mask": torch.ones(1, 7, dtype=torch.long),
        "past_key_values": cache,
        "use_cache": True,
    }
    OnnxExporter().export(model, inputs, OnnxConfig(dynamic=True, ort_fusions=fusions)).save_pretrained(target)
print("transformers", transformers.__version__, "torch", torch.__version__)
"""


def peer_python(environment: Path) -> Path | None:
    """Return the peer's interpreter, its packages installed if they are not yet; None, said why, where that fails."""
    python = environment / "bin" / "python"
    ready = environment / ".ready"
    if ready.is_file() and ready.read_text() == " ".join(PEER_PACKAGES):
        return python
    print(f"installing {PEER_PACKAGES[0]} and {PEER_PACKAGES[1]} into {environment} ...", flush=True)
    steps = [
        [sys.executable, "-m", "venv", str(environment)],
        [str(python), "-m", "pip", "install", "--quiet", PEER_PACKAGES[0]],
        [str(python), "-m", "pip", "install", "--quiet", *PEER_PACKAGES],
    ]
    for step in steps:
        done = subprocess.run(step, capture_output=True, text=True)
        if done.returncode:
            last = (done.stderr.strip() or done.stdout.strip() or "no message").splitlines()[-1]
            print(f"{PEER} is left out: it cannot be installed ({last})\n")
            return None
    ready.write_text(" ".join(PEER_PACKAGES))
    return python


def peer_exports(environment: Path, source: Path, folder: Path) -> dict[str, Path]:
    """Return the peer's graphs; none, said why, where it cannot make them."""
    python = peer_python(environment)
    if python is None:
        return {}
    targets = {PEER: folder / "peer", PEER_FUSED: folder / "peer-fused"}
    unpathed = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [str(python), "-c", PEER_PROGRAM, str(source), *map(str, targets.values())]
    done = subprocess.run(command, capture_output=True, text=True, env=unpathed)
    if done.returncode:
        last = (done.stderr.strip() or "no message").splitlines()[-1]
        print(f"{PEER} is left out: it failed ({last})\n")
        return {}
    print(f"{PEER}: {done.stdout.strip().splitlines()[-1]}")
    return {name: path / "model.onnx" for name, path in targets.items()}


# ---- runs ---------------------------------------------------------------------------------------------------------


def cache_of(rows: int) -> Cache:
    random = np.random.default_rng(rows)
    return {
        (layer, slot): ort.OrtValue.ortvalue_from_numpy(random.standard_normal((rows, width), np.float32))
        for layer in range(LAYERS)
        for slot, width in (("c_kv", RANK), ("k_pe", ROPE))
    }


def in_place(session: ort.InferenceSession, rows: int, cache: Cache, result: str) -> Run:
    """Return a step of a graph whose slots are written where they lie."""
    value = ort.OrtValue.ortvalue_from_numpy
    others = {
        "x": np.random.default_rng(0).standard_normal((1, HIDDEN), np.float32),
        "input_ids": np.array([3]),
        "past_len": np.array(rows - 1) if result == "logits" else np.array([rows - 1]),
        "logits_from": np.array(0),
    }
    binding = session.io_binding()
    for entry in session.get_inputs():
        if not entry.name.startswith("past."):
            binding.bind_ortvalue_input(entry.name, value(others[entry.name]))
            continue
        _, layer, slot = entry.name.split(".")
        binding.bind_ortvalue_input(entry.name, cache[int(layer), slot])
        binding.bind_ortvalue_output(entry.name.replace("past", "present"), cache[int(layer), slot])
    binding.bind_output(result, "cpu")
    return lambda: session.run_with_iobinding(binding)


def joined(session: ort.InferenceSession, rows: int, cache: Cache) -> Run:
    """Return a step of a graph that gives past and new rows joined, in memory of its own."""
    binding = session.io_binding()
    for entry in session.get_inputs():
        if entry.name == "input_ids":
            binding.bind_cpu_input(entry.name, np.array([[3]]))
        elif entry.name == "attention_mask":
            binding.bind_cpu_input(entry.name, np.ones((1, rows), np.int64))
        else:
            layer = int(entry.name.split("layers.")[1].split(".")[0])
            past = cache[layer, "c_kv" if entry.name.endswith("keys") else "k_pe"].numpy()[: rows - 1]
            binding.bind_cpu_input(entry.name, past[None, None])
    for entry in session.get_outputs():
        binding.bind_output(entry.name, "cpu")
    return lambda: session.run_with_iobinding(binding)


def timed(run: Run, clock: Clock) -> float:
    began = clock()
    run()
    return (clock() - began) * 1e3


def measure(
    exports: dict[str, Path], peers: dict[str, Path], rows: int, openings: int, clock: Clock
) -> dict[str, list[float]]:
    """Return milliseconds by name. The fast ones run in many rounds between those of the slow."""
    cache = cache_of(rows)
    slow = {name: joined(open_session(path, "cpu", 1), rows, cache) for name, path in peers.items()}
    slow["expanded"] = in_place(open_session(exports["expanded"], "cpu", 1), rows, cache, "logits")
    for run in slow.values():
        run()
        run()  # two runs, until onnxruntime has all the memory that it needs
    spent: dict[str, list[float]] = {}
    for _ in range(openings):
        fast = {"floor": in_place(open_session(floor_model(), "cpu", 1), rows, cache, "y")}
        for form in ("absorbed", "auto"):
            fast[form] = in_place(open_session(exports[form], "cpu", 1), rows, cache, "logits")
        for run in fast.values():
            run()
            run()
        for _ in range(12):
            for name, run in fast.items():
                spent.setdefault(name, []).append(timed(run, clock))
        for name, run in slow.items():
            spent.setdefault(name, []).append(timed(run, clock))
    return spent


def shown(values: list[float]) -> str:
    return f"{statistics.median(values):10.2f}  ({min(values):.2f} to {max(values):.2f})"


def ratio(over: list[float], under: list[float]) -> tuple[float, float]:
    """Return the ratio of medians and of the least."""
    return statistics.median(over) / statistics.median(under), min(over) / min(under)


def judged(label: str, found: tuple[float, float], wanted: str, good: bool) -> None:
    figures = f"{found[0]:.2f} x by medians, {found[1]:.2f} x by the least"
    print(f"    {label}: {figures}" + (f"; {wanted}: {'yes' if good else 'NO'}" if wanted else ""))


def main() -> None:
    cached = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "lazygraph-benchmarks", "peer")
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--peer-env", type=Path, default=cached, help=f"environment of {PEER} (default: {cached})")
    parser.add_argument("--no-peer", action="store_true", help=f"leave {PEER} out")
    parser.add_argument("--openings", type=int, default=5, help="openings of the fast sessions, 12 rounds each")
    parser.add_argument("--cpu", action="store_true", help="count CPU time, not the wall clock")
    parser.add_argument("--rows", type=int, nargs="*", default=list(ROWS))
    options = parser.parse_args()

    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        write_checkpoint(folder / "hf")
        exports = {}
        for form in FORMS:
            manifest = lg.convert(folder / "hf", folder / form, max_seq_len=CAPACITY, mla=form)
            exports[form] = folder / form / "model.onnx"
        peers = {} if options.no_peer else peer_exports(options.peer_env.resolve(), folder / "hf", folder)
        numbers, expanded = RANK + ROPE, HEADS * (NOPE + ROPE + V)
        assert manifest.bytes_per_token == LAYERS * numbers * 4, manifest.bytes_per_token
        print(
            f"cache: {manifest.bytes_per_token:,} bytes per token ({LAYERS} layers x {numbers} float32); "
            f"expanded it would be {LAYERS * expanded * 4:,} ({expanded:,} numbers per layer)"
        )
        clock = time.process_time if options.cpu else time.perf_counter
        print(f"one token, one thread; ms{' of CPU time' if options.cpu else ''}, median (least to most)")

        for rows in options.rows:
            spent = measure(exports, peers, rows, options.openings, clock)
            print(f"\n{rows:,} rows")
            for name in ("floor", "absorbed", "auto", "expanded", *peers):
                print(f"  {name:<24}{shown(spent[name])}")
            for form in ("absorbed", "auto"):
                against = ratio(spent[form], spent["floor"])
                good = against[0] <= FLOOR_LIMIT
                judged(f"{form} against the floor", against, f"at most {FLOOR_LIMIT}", good)
            for name in peers:
                against = ratio(spent[name], spent["absorbed"])
                wanted = WANTED.get(rows)
                good = wanted is None or against[0] >= wanted
                judged(f"{name} against absorbed", against, f"at least {wanted}" if wanted else "", good)


if __name__ == "__main__":
    main()
