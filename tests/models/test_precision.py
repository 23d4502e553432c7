"""What is kept in few bits and what is computed in few bits: each runs on CPU, and errs by its rounding only."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

import ml_dtypes
import numpy as np
import onnx
import onnxruntime
import pytest
from safetensors.numpy import load_file

import lazygraph as lg
from lazygraph.export.decoder import Decoder
from lazygraph.export.manifest import Manifest
from lazygraph.models.files import read_json
from tests.support.checkpoints import Array, random_tensors, reference_logits, small_config, write_folder
from tests.support.deepseek import deepseek_config, deepseek_logits, random_deepseek

Kind = Literal["fp32", "fp16", "bf16"]
KINDS: tuple[Kind, ...] = ("fp32", "fp16", "bf16")
NUMPY: dict[str, Any] = {"fp32": np.float32, "fp16": np.float16, "bf16": ml_dtypes.bfloat16}
NAMES = {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16"}
MODELS = ("deepseek_v2_lite", "deepseek_v3", "llama")
CHUNKS = [9] + [1] * 22 + [1]

# Kept in float32 whatever the rest is: they decide between experts that are close.
ROUTER = ("mlp.gate.weight", "e_score_correction_bias")


def _rounded(numbers: Array, kind: str) -> Array:
    return numbers.astype(NUMPY[kind]).astype(np.float64)


def _reference(folder: Path, tokens: Array, store: Kind) -> Array:
    """Return the logits of the numbers that an export keeps: weights and cache rounded, everything else exact."""
    config, tensors = read_json(folder / "config.json"), load_file(folder / "model.safetensors")
    kept = {name: t if name.endswith(ROUTER) else _rounded(t, store) for name, t in tensors.items()}
    if config["model_type"] == "llama":
        return reference_logits(config, kept, tokens)
    return deepseek_logits(config, kept, tokens, kept=lambda rows: _rounded(rows, store))


def _decode(folder: Path, tokens: Array) -> Array:
    decoder = Decoder.open(folder, threads=1)
    parts = np.split(tokens, np.cumsum(CHUNKS)[:-1])
    return np.concatenate([decoder.append(part.tolist()) for part in parts])


Exported = Callable[..., tuple[Path, Manifest]]


@pytest.fixture(scope="session")
def exported(tmp_path_factory: pytest.TempPathFactory, goldens: Path) -> Exported:
    """Exports of the reference models, each made once."""
    made: dict[tuple[object, ...], tuple[Path, Manifest]] = {}
    folder = tmp_path_factory.mktemp("precision")

    def get(model: str, precision: Kind = "fp32", store: Kind | None = None, **options: Any) -> tuple[Path, Manifest]:
        key = model, precision, store, *sorted(options.items())
        if key not in made:
            out = folder / str(len(made))
            made[key] = out, lg.convert(goldens / model, out, precision=precision, store=store, **options)
        return made[key]

    return get


@pytest.mark.parametrize("store", KINDS)
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("model", MODELS)
def test_float32_arithmetic_on_narrow_storage_is_that_of_the_numbers_stored(
    exported: Exported, goldens: Path, model: str, precision: Kind, store: Kind
) -> None:
    # bf16 on CPU is float32 arithmetic: the provider has no other.
    folder, manifest = exported(model, precision, store)
    tokens = load_file(goldens / model / "golden.safetensors")["tokens"][:32]
    assert manifest.compute == "float32"
    assert {slot.dtype for slot in manifest.memory} == {NAMES[store]}
    wanted = _reference(goldens / model, tokens, store)
    # Rows of the cache may be rounded the other way where float32 and float64 fall on two sides of a middle. For a
    # plain decoder they are not part of the reference at all.
    slack = 1e-4 if store == "fp32" else 0.06 if model == "llama" else 0.02
    np.testing.assert_allclose(_decode(folder, tokens), wanted, rtol=0, atol=slack)


@pytest.mark.parametrize("portable", [False, True], ids=["default", "portable"])
@pytest.mark.parametrize("store", ["fp32", "fp16"])
@pytest.mark.parametrize("model", MODELS)
def test_float16_arithmetic_errs_by_its_rounding(
    exported: Exported, goldens: Path, model: str, store: Kind, portable: bool
) -> None:
    folder, manifest = exported(model, "fp16", store, portable=portable)
    golden = load_file(goldens / model / "golden.safetensors")
    assert manifest.compute == "float16"
    logits = _decode(folder, golden["tokens"][:32])
    assert logits.dtype == np.float32
    wanted = _reference(goldens / model, golden["tokens"][:32], "fp16")
    # Some thirty roundings of 2**-11 in a row, of numbers as large as the logits.
    bound = 30 * 2**-11 * np.abs(wanted).max()
    np.testing.assert_allclose(logits, wanted, rtol=0, atol=bound)
    sure = np.diff(np.sort(wanted, axis=-1)[:, -2:], axis=-1)[:, 0] > 2 * bound
    assert sure.sum() > 10
    assert (logits.argmax(-1) == wanted.argmax(-1))[sure].all()


def test_every_mixture_of_arithmetic_and_storage_exports_and_runs(exported: Exported, goldens: Path) -> None:
    tokens = load_file(goldens / "deepseek_v2_lite" / "golden.safetensors")["tokens"][:32]
    for precision in KINDS:
        for store in KINDS:
            folder, manifest = exported("deepseek_v2_lite", precision, store)
            assert manifest.compute == ("float16" if precision == "fp16" else "float32")
            assert np.isfinite(_decode(folder, tokens)).all()


def test_storage_follows_the_arithmetic_when_nobody_says(exported: Exported) -> None:
    for kind in KINDS:
        assert exported("llama", kind, None)[1].memory[0].dtype == NAMES[kind]


# --- B20: bfloat16 on CPU ---


@pytest.mark.parametrize("model", MODELS)
def test_bfloat16_loads_in_plain_onnxruntime_on_cpu(exported: Exported, model: str) -> None:
    folder, manifest = exported(model, "bf16")
    full = exported(model, "fp32")[1]
    session = onnxruntime.InferenceSession(folder / "model.onnx", providers=["CPUExecutionProvider"])
    slots = {value.type for value in session.get_inputs() if value.name.startswith("past.")}
    assert slots == {"tensor(bfloat16)"}
    router = sum(
        value.dims[0] * (value.dims[1] if len(value.dims) > 1 else 1) * 4
        for value in onnx.load(folder / "model.onnx", load_external_data=False).graph.initializer
        if value.name.endswith(ROUTER)
    )
    assert manifest.weight_bytes <= 0.5 * full.weight_bytes + router + 4096  # alignment
    assert manifest.bytes_per_token * 2 == full.bytes_per_token
    assert manifest.copied == {}  # narrow slots too are updated in place


def test_the_user_is_told_what_bfloat16_means_on_cpu(goldens: Path, tmp_path: Path) -> None:
    notes: list[str] = []
    lg.convert(goldens / "llama", tmp_path / "cpu", precision="bf16", warn=notes.append)
    assert any("does not compute in bfloat16" in note and "arithmetic is float32" in note for note in notes)
    notes.clear()
    manifest = lg.convert(goldens / "llama", tmp_path / "cuda", precision="bf16", provider="cuda", warn=notes.append)
    assert not any("bfloat16" in note for note in notes)
    assert manifest.compute == "bfloat16"


# --- the arithmetic that float32 keeps, by structure ---


def _types(model: onnx.ModelProto) -> Iterator[tuple[onnx.NodeProto, dict[str, int]]]:
    """Yield every node, those of branches and loops too, with the element types known where it stands."""
    inferred = onnx.shape_inference.infer_shapes(model)
    outer = {value.name: value.data_type for value in inferred.graph.initializer}

    def walk(graph: onnx.GraphProto, known: dict[str, int]) -> Iterator[tuple[onnx.NodeProto, dict[str, int]]]:
        here = dict(known)
        for value in (*graph.input, *graph.output, *graph.value_info):
            here[value.name] = value.type.tensor_type.elem_type
        for node in graph.node:
            yield node, here
            for attribute in node.attribute:
                if attribute.type == onnx.AttributeProto.GRAPH:
                    yield from walk(attribute.g, here)

    yield from walk(inferred.graph, outer)


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize(("precision", "provider"), [("fp16", "cpu"), ("fp16", "cuda"), ("bf16", "cuda")])
@pytest.mark.parametrize("mla", ["absorbed", "expanded", "auto"])
def test_norms_softmax_and_routing_are_computed_in_float32(
    exported: Exported, model: str, precision: Kind, provider: str, mla: str
) -> None:
    folder, manifest = exported(model, precision, provider=provider, mla=mla, portable=True)
    assert manifest.compute == NAMES[precision]
    wide = ("Softmax", "Pow", "ReduceMean", "Sqrt", "Exp", "TopK", "Cos", "Sin")
    seen: dict[str, set[int]] = {}
    for node, types in _types(onnx.load(folder / "model.onnx", load_external_data=False)):
        seen.setdefault(node.op_type, set()).update(types[name] for name in node.input[:1] if name)
    for op in wide:
        if op in ("Exp", "TopK") and (op not in seen or seen[op] == {onnx.TensorProto.FLOAT}):
            continue
        assert seen[op] == {onnx.TensorProto.FLOAT}, op
    narrow = onnx.TensorProto.FLOAT16 if precision == "fp16" else onnx.TensorProto.BFLOAT16
    assert narrow in seen["MatMul"]  # the rest is what was asked for
    if model == "deepseek_v3":
        assert {"Exp", "TopK"} <= seen.keys()


def test_great_residuals_pass_through_float16(tmp_path: Path) -> None:
    # Embeddings of hundreds: their squares pass 65,504 in every norm.
    for config, tensors in (
        (small_config(), random_tensors(small_config())),
        (deepseek_config(), random_deepseek(deepseek_config())),
    ):
        kind = config["model_type"]
        tensors["model.embed_tokens.weight"] = 600 * tensors["model.embed_tokens.weight"]
        write_folder(tmp_path / kind, config, tensors)
        lg.convert(tmp_path / kind, tmp_path / f"{kind}-out", precision="fp16")
        tokens = np.arange(3, 35) % 40
        logits = _decode(tmp_path / f"{kind}-out", tokens)
        wanted = _reference(tmp_path / kind, tokens, "fp16")
        np.testing.assert_allclose(logits, wanted, rtol=0, atol=30 * 2**-11 * np.abs(wanted).max())


# --- numbers that do not fit ---


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("model.embed_tokens.weight", "model.embed_tokens.weight"),
        ("model.norm.weight", "model.norm.weight"),
        ("model.layers.1.mlp.down_proj.weight", "model.layers.1.mlp.down_proj.weight"),
        ("model.layers.1.mlp.up_proj.weight", "model.layers.1.mlp.gate_proj+up_proj.weight"),  # kept as one matrix
    ],
)
@pytest.mark.parametrize(
    ("options", "way_out"), [({"precision": "fp16"}, "--precision"), ({"store": "fp16"}, "--store")]
)
def test_a_weight_that_float16_cannot_hold_is_refused_by_name(
    tmp_path: Path, name: str, shown: str, options: dict[str, Any], way_out: str
) -> None:
    config = small_config()
    tensors = random_tensors(config)
    tensors[name].flat[5] = 7e4
    write_folder(tmp_path / "in", config, tensors)
    with pytest.raises(lg.WeightsError) as caught:
        lg.convert(tmp_path / "in", tmp_path / "out", **options)
    assert caught.value.what == f"float16 cannot hold every number of '{shown}'"
    assert way_out in caught.value.hint
    assert not (tmp_path / "out").exists()
    lg.convert(tmp_path / "in", tmp_path / "out", store="bf16")  # float32 arithmetic on what is kept so


@pytest.mark.parametrize("store", ["fp32", "bf16"])
def test_a_weight_that_float16_arithmetic_cannot_use_is_refused_however_it_is_kept(tmp_path: Path, store: Kind) -> None:
    # Kept in full it would become infinite when it is cast, at run time and without a word.
    config = small_config()
    tensors = random_tensors(config)
    name = "model.layers.0.mlp.down_proj.weight"
    tensors[name][2, 3] = 7e4
    write_folder(tmp_path / "in", config, tensors)
    with pytest.raises(lg.WeightsError, match=f"float16 cannot hold every number of '{name}'") as caught:
        lg.convert(tmp_path / "in", tmp_path / "out", precision="fp16", store=store)
    assert "--precision" in caught.value.hint


def test_an_expert_that_float16_cannot_hold_is_refused_by_its_layers_name(tmp_path: Path) -> None:
    config = deepseek_config()
    tensors = random_deepseek(config)
    tensors["model.layers.1.mlp.experts.6.down_proj.weight"][3, 4] = -1e5
    write_folder(tmp_path / "in", config, tensors)
    with pytest.raises(lg.WeightsError, match=r"'model\.layers\.1\.mlp\.experts\.down_proj\.weight'"):
        lg.convert(tmp_path / "in", tmp_path / "out", store="fp16")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"precision": "int8"}, "precision is 'int8'"),
        ({"store": "fp8"}, "store is 'fp8'"),
        ({"mla": "folded"}, "mla is 'folded'"),
        ({"provider": "tpu"}, "provider is 'tpu'"),
    ],
)
def test_options_that_are_none_are_refused(goldens: Path, tmp_path: Path, options: Any, message: str) -> None:
    with pytest.raises(lg.OperandError, match=message):
        lg.convert(goldens / "llama", tmp_path / "out", **options)
    assert not (tmp_path / "out").exists()
