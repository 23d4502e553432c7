"""DeepSeek V2 and V3: the reference decodes in every form, and what the file that decodes them is made of."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

import numpy as np
import onnx
import onnxruntime
import pytest
from safetensors.numpy import load_file

import lazygraph as lg
from lazygraph.conversion import model_module
from lazygraph.export.decoder import Decoder
from lazygraph.models.checkpoint import WeightsUse
from lazygraph.models.config import Config
from lazygraph.models.files import read_json
from lazygraph.models.program import BuildOptions, DecoderGraph
from tests.support.checkpoints import Array, write_folder
from tests.support.deepseek import (
    deepseek_config,
    deepseek_logits,
    deepseek_shapes,
    random_deepseek,
    turned,
    yarn_frequencies,
)

Mla = Literal["absorbed", "expanded", "auto"]
MLAS: tuple[Mla, ...] = ("absorbed", "expanded", "auto")
GOLDENS = ("deepseek_v2_lite", "deepseek_v2_lite_hub", "deepseek_v2", "deepseek_v3", "deepseek_v3_fp8")
CHUNKINGS = {
    "prompt, then one by one": [9] + [1] * 23,
    "one by one": [1] * 32,
    "two pieces, then one by one": [4, 5] + [1] * 23,
    "all at once": [32],
}
Exported = Callable[[str, Mla, bool], Path]


@pytest.fixture(scope="session")
def exported(tmp_path_factory: pytest.TempPathFactory, goldens: Path) -> Exported:
    """Exports of the reference models, each made once."""
    made: dict[tuple[str, Mla, bool], Path] = {}
    folder = tmp_path_factory.mktemp("deepseek")

    def get(model: str, mla: Mla, portable: bool) -> Path:
        key = model, mla, portable
        if key not in made:
            made[key] = folder / f"{model}-{mla}-{portable}"
            lg.convert(goldens / model, made[key], mla=mla, portable=portable)
        return made[key]

    return get


def _decode(folder: Path, tokens: Array, chunks: list[int]) -> Array:
    decoder = Decoder.open(folder, threads=1)
    rows, start = [], 0
    for size in chunks:
        rows.append(decoder.append(tokens[start : start + size].tolist()))
        start += size
    assert decoder.length == len(tokens)
    return np.concatenate(rows)


def _nodes(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            yield from _nodes(attribute.g)


@pytest.mark.parametrize("portable", [False, True], ids=["default", "portable"])
@pytest.mark.parametrize("mla", MLAS)
@pytest.mark.parametrize("model", GOLDENS)
def test_logits_and_tokens_are_the_references(
    exported: Exported, goldens: Path, model: str, mla: Mla, portable: bool
) -> None:
    golden = load_file(goldens / model / "golden.safetensors")
    tokens = golden["tokens"]
    for chunks in CHUNKINGS.values():
        logits = _decode(exported(model, mla, portable), tokens[:32], chunks)
        assert logits.dtype == np.float32
        np.testing.assert_allclose(logits, golden["logits"], rtol=0, atol=1e-4)
        assert logits[8:].argmax(-1).tolist() == tokens[9:].tolist()


@pytest.mark.parametrize("model", GOLDENS[:-1])
def test_the_references_agree_with_plain_numpy(goldens: Path, model: str) -> None:
    # The oracle of other tests is held against transformers' numbers here.
    tensors: dict[str, Array] = {}
    for file in (goldens / model).glob("model*.safetensors"):
        tensors |= load_file(file)
    golden = load_file(goldens / model / "golden.safetensors")
    logits = deepseek_logits(read_json(goldens / model / "config.json"), tensors, golden["tokens"][:32])
    np.testing.assert_allclose(logits, golden["logits"], rtol=0, atol=5e-5)


# --- the parts of a config that no reference has ---

VARIANTS: dict[str, dict[str, Any]] = {
    "attention biases": {"attention_bias": True},
    "attention biases, no query compression": {"attention_bias": True, "q_lora_rank": None},
    "half rotation": {"rope_interleave": False},
    "no shared experts": {"n_shared_experts": 0},
    "two shared experts": {"n_shared_experts": 2},
    "all layers mixtures": {"first_k_dense_replace": 0},
    "all layers dense": {"first_k_dense_replace": 2},
    "weights not normalised": {"norm_topk_prob": False},
    "one expert per token": {"num_experts_per_tok": 1},
    "every reachable expert": {"num_experts_per_tok": 4},
    "no groups": {"n_group": 1, "topk_group": 1, "num_experts_per_tok": 8},
    "all groups": {"topk_group": 4, "num_experts_per_tok": 8},
    "one head": {"num_attention_heads": 1, "num_key_value_heads": 1},
    "values wider than latents": {"v_head_dim": 40},
    "yarn, older spelling": {
        "rope_scaling": {
            "type": "yarn",
            "factor": 4,
            "original_max_position_embeddings": 16,
            "mscale": 1.0,
            "mscale_all_dim": 0.5,
            "beta_fast": 32,
            "beta_slow": 1,
        }
    },
    "yarn without mscale": {
        "rope_parameters": {
            "rope_type": "yarn",
            "factor": 8.0,
            "original_max_position_embeddings": 8,
            "rope_theta": 5000.0,
        },
        "rope_theta": None,
    },
}


@pytest.mark.parametrize("changes", VARIANTS.values(), ids=VARIANTS.keys())
@pytest.mark.parametrize("model_type", ["deepseek_v2", "deepseek_v3"])
def test_every_variant_of_a_config_computes_what_plain_numpy_does(
    tmp_path: Path, model_type: str, changes: dict[str, Any]
) -> None:
    if model_type == "deepseek_v2":
        changes = {key: value for key, value in changes.items() if key not in ("norm_topk_prob", "rope_interleave")}
    config = deepseek_config(model_type, **changes)
    tensors = random_deepseek(config, seed=3)
    write_folder(tmp_path / "in", config, tensors, shards=2)
    lg.convert(tmp_path / "in", tmp_path / "out")
    tokens = np.array([1, 7, 39, 0, 12, 12, 5, 30, 30, 2, 8, 21])
    wanted = deepseek_logits(config, tensors, tokens)
    for chunks in ([5] + [1] * 7, [12]):
        np.testing.assert_allclose(_decode(tmp_path / "out", tokens, chunks), wanted, rtol=0, atol=2e-4)


def test_rotation_layouts_differ_and_each_is_what_its_flag_says(tmp_path: Path) -> None:
    # At position 0 both agree, and prove nothing.
    config = deepseek_config()
    tensors = random_deepseek(config)
    tokens = np.arange(3, 12)
    pairs = deepseek_logits({**config, "rope_interleave": True}, tensors, tokens)
    halves = deepseek_logits({**config, "rope_interleave": False}, tensors, tokens)
    np.testing.assert_allclose(pairs[0], halves[0], rtol=0, atol=1e-9)
    assert np.abs(pairs - halves).max() > 0.1


def test_a_key_that_a_config_lacks_takes_its_types_own_default(tmp_path: Path) -> None:
    config = deepseek_config()
    tensors = random_deepseek(config)
    tokens = np.arange(3, 12)
    for key, meant in (("norm_topk_prob", True), ("routed_scaling_factor", 2.5), ("rope_theta", 10000.0)):
        without = {name: value for name, value in config.items() if name != key}
        write_folder(tmp_path / key, without, tensors)
        lg.convert(tmp_path / key, tmp_path / f"{key}-out")
        wanted = deepseek_logits({**config, key: meant}, tensors, tokens)
        np.testing.assert_allclose(_decode(tmp_path / f"{key}-out", tokens, [9]), wanted, rtol=0, atol=2e-4)


def test_the_norms_inside_attention_have_an_epsilon_of_their_own(tmp_path: Path) -> None:
    # Latents so small that epsilon is half of what their norms divide by.
    config = deepseek_config(rms_norm_eps=1e-2)
    tensors = random_deepseek(config)
    for name in tensors:
        if name.endswith(("q_a_proj.weight", "kv_a_proj_with_mqa.weight")):
            tensors[name] = tensors[name] * np.float32(1e-3)
    write_folder(tmp_path / "in", config, tensors)
    lg.convert(tmp_path / "in", tmp_path / "out")
    tokens = np.arange(3, 12)
    wanted = deepseek_logits(config, tensors, tokens)
    np.testing.assert_allclose(_decode(tmp_path / "out", tokens, [9]), wanted, rtol=0, atol=2e-4)


# --- multi-token prediction ---


def test_multi_token_prediction_layers_are_left_out_and_said_so(tmp_path: Path, goldens: Path) -> None:
    config = read_json(goldens / "deepseek_v3" / "config.json")
    tensors = load_file(goldens / "deepseek_v3" / "model.safetensors")
    n, hidden = config["num_hidden_layers"], config["hidden_size"]
    assert config["num_nextn_predict_layers"] == 1
    last, behind = f"model.layers.{n - 1}.", f"model.layers.{n}."
    extra = {name.replace(last, behind): tensor for name, tensor in tensors.items() if name.startswith(last)}
    extra |= {
        f"model.layers.{n}.eh_proj.weight": np.ones((hidden, 2 * hidden), np.float32),
        f"model.layers.{n}.enorm.weight": np.ones(hidden, np.float32),
        f"model.layers.{n}.hnorm.weight": np.ones(hidden, np.float32),
        f"model.layers.{n}.shared_head.head.weight": tensors["lm_head.weight"],
    }
    write_folder(tmp_path / "in", config, tensors | extra)
    notes: list[str] = []
    manifest = lg.convert(tmp_path / "in", tmp_path / "out", warn=notes.append)
    assert [note for note in notes if "multi-token-prediction" in note] == [
        f"multi-token-prediction layers of the checkpoint are left out: {n}"
    ]
    assert manifest.n_layers == n
    golden = load_file(goldens / "deepseek_v3" / "golden.safetensors")
    logits = _decode(tmp_path / "out", golden["tokens"][:32], [32])
    np.testing.assert_allclose(logits, golden["logits"], rtol=0, atol=1e-4)

    notes.clear()
    lg.convert(goldens / "deepseek_v3", tmp_path / "without", warn=notes.append)
    assert not any("multi-token" in note for note in notes)

    write_folder(tmp_path / "none", {**config, "num_nextn_predict_layers": 0}, tensors | extra)
    with pytest.raises(lg.WeightsError, match="are not used"):
        lg.convert(tmp_path / "none", tmp_path / "refused")


# --- what the file is made of ---


@pytest.mark.parametrize("model", GOLDENS)
@pytest.mark.parametrize("mla", MLAS)
def test_a_portable_file_has_operators_of_onnx_only(exported: Exported, model: str, mla: Mla) -> None:
    def domains(portable: bool) -> set[str]:
        return {node.domain for node in _nodes(_model(exported(model, mla, portable)).graph)}

    assert domains(portable=True) == {""}
    assert domains(portable=False) == {"", "com.microsoft"}
    assert {entry.domain for entry in _model(exported(model, mla, True)).opset_import} == {""}


def _model(folder: Path) -> onnx.ModelProto:
    return onnx.load(folder / "model.onnx", load_external_data=False)


def test_one_graph_chooses_per_layer_and_holds_the_weights_once(exported: Exported) -> None:
    sizes, counts = {}, {}
    for mla in MLAS:
        folder = exported("deepseek_v3", mla, False)
        (weights,) = folder.glob("*.data")
        sizes[mla] = weights.stat().st_size
        counts[mla] = sum(node.op_type == "If" for node in _nodes(_model(folder).graph))
    assert sizes["auto"] == sizes["absorbed"] == sizes["expanded"]
    assert counts == {"absorbed": 0, "expanded": 0, "auto": 3}


def test_the_choice_between_forms_goes_by_the_number_of_new_tokens(exported: Exported, goldens: Path) -> None:
    # rank 20, nope 12, v 10: 20 * 22 / (40 - 22) = 24.4
    model = _model(exported("deepseek_v3", "auto", False))
    producers = {output: node for node in _nodes(model.graph) for output in node.output}
    conditions = {node.input[0] for node in _nodes(model.graph) if node.op_type == "If"}
    assert len(conditions) == 1  # decided once per step, not once per layer
    session = _session_with(exported("deepseek_v3", "auto", False), sorted(conditions))
    for n, many in ((1, False), (24, False), (25, True), (32, True)):
        (answer,) = session(n, rows=40, names=sorted(conditions))
        assert bool(answer.item()) is many, (n, producers)


Runner = Callable[..., list[Array]]


def _session_with(folder: Path, names: list[str]) -> Runner:
    """Return a function that runs an export and gives inner values, its graph left as it was written."""
    model = onnx.load(folder / "model.onnx")
    wanted = [name for name in names if name not in {output.name for output in model.graph.output}]
    model.graph.output.extend([onnx.ValueInfoProto(name=name) for name in wanted])
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    random = np.random.default_rng(0)

    def run(n: int, rows: int, names: list[str]) -> list[Array]:
        feeds: dict[str, Array] = {
            "input_ids": np.arange(3, 3 + n, dtype=np.int64),
            "past_len": np.array(rows - n, np.int64),
            "logits_from": np.array(0, np.int64),
        }
        for value in session.get_inputs():
            if value.name.startswith("past."):
                feeds[value.name] = random.normal(size=(rows, value.shape[-1])).astype(np.float32)
        found: list[Array] = session.run(names, feeds)
        return found

    return run


@pytest.mark.parametrize("portable", [False, True])
def test_absorbed_attention_builds_no_keys_or_values_per_head(exported: Exported, portable: bool) -> None:
    # The number of rows is no size of the model's: whatever grows with it is told by its number of elements.
    rows, n = 101, 3
    config = read_json(Path(__file__).parents[1] / "goldens" / "deepseek_v2" / "config.json")
    heads, rank = config["num_attention_heads"], config["kv_lora_rank"]
    nope, v, turning = config["qk_nope_head_dim"], config["v_head_dim"], config["qk_rope_head_dim"]

    def per_row(mla: Mla) -> set[int]:
        """Return the numbers per cached row that tensors of the graph hold."""
        folder = exported("deepseek_v2", mla, portable)
        names = [output for node in _model(folder).graph.node for output in node.output if output]
        found = _session_with(folder, names)(n, rows=rows, names=names)
        return {math.prod(value.shape) // rows for value in found if rows in value.shape}

    absorbed, expanded = per_row("absorbed"), per_row("expanded")
    assert absorbed == {1, n, heads * n, rank, turning}
    assert {heads * nope, heads * v} <= expanded
    assert not {heads * nope, heads * v} & absorbed


@pytest.mark.parametrize("portable", [False, True])
def test_the_graph_does_not_grow_with_the_number_of_experts(tmp_path: Path, portable: bool) -> None:
    sizes, kinds = [], []
    for experts in (4, 16, 64):
        config = deepseek_config(n_routed_experts=experts, n_group=1, topk_group=1, num_experts_per_tok=2)
        write_folder(tmp_path / f"in{experts}", config, random_deepseek(config))
        manifest = lg.convert(tmp_path / f"in{experts}", tmp_path / f"out{experts}", portable=portable)
        sizes.append(manifest.nodes)
        kinds.append([node.op_type for node in _nodes(_model(tmp_path / f"out{experts}").graph)])
    assert len(set(sizes)) == 1
    assert kinds[0] == kinds[1] == kinds[2]
    assert "Loop" not in kinds[0]
    assert ("MoE" in kinds[0]) is not portable


# --- the cache ---

V2_LITE: dict[str, Any] = {
    "model_type": "deepseek_v2",
    "architectures": ["DeepseekV2ForCausalLM"],
    "attention_bias": False,
    "attention_dropout": 0.0,
    "aux_loss_alpha": 0.001,
    "auto_map": {"AutoConfig": "configuration_deepseek.DeepseekV2Config"},
    "bos_token_id": 100000,
    "eos_token_id": 100001,
    "first_k_dense_replace": 1,
    "hidden_act": "silu",
    "hidden_size": 2048,
    "initializer_range": 0.02,
    "intermediate_size": 10944,
    "kv_lora_rank": 512,
    "max_position_embeddings": 163840,
    "moe_intermediate_size": 1408,
    "moe_layer_freq": 1,
    "n_group": 1,
    "n_routed_experts": 64,
    "n_shared_experts": 2,
    "norm_topk_prob": False,
    "num_attention_heads": 16,
    "num_experts_per_tok": 6,
    "num_hidden_layers": 27,
    "num_key_value_heads": 16,
    "pretraining_tp": 1,
    "q_lora_rank": None,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "rms_norm_eps": 1e-06,
    "rope_scaling": {
        "beta_fast": 32,
        "beta_slow": 1,
        "factor": 40,
        "mscale": 0.707,
        "mscale_all_dim": 0.707,
        "original_max_position_embeddings": 4096,
        "type": "yarn",
    },
    "rope_theta": 10000,
    "routed_scaling_factor": 1.0,
    "scoring_func": "softmax",
    "seq_aux": True,
    "tie_word_embeddings": False,
    "topk_group": 1,
    "topk_method": "greedy",
    "torch_dtype": "bfloat16",
    "transformers_version": "4.33.1",
    "use_cache": True,
    "v_head_dim": 128,
    "vocab_size": 102400,
}
V3: dict[str, Any] = {
    "model_type": "deepseek_v3",
    "architectures": ["DeepseekV3ForCausalLM"],
    "attention_bias": False,
    "attention_dropout": 0.0,
    "auto_map": {"AutoConfig": "configuration_deepseek.DeepseekV3Config"},
    "aux_loss_alpha": 0.001,
    "bos_token_id": 0,
    "eos_token_id": 1,
    "ep_size": 1,
    "first_k_dense_replace": 3,
    "hidden_act": "silu",
    "hidden_size": 7168,
    "initializer_range": 0.02,
    "intermediate_size": 18432,
    "kv_lora_rank": 512,
    "max_position_embeddings": 163840,
    "moe_intermediate_size": 2048,
    "moe_layer_freq": 1,
    "n_group": 8,
    "n_routed_experts": 256,
    "n_shared_experts": 1,
    "norm_topk_prob": True,
    "num_attention_heads": 128,
    "num_experts_per_tok": 8,
    "num_hidden_layers": 61,
    "num_key_value_heads": 128,
    "num_nextn_predict_layers": 1,
    "pretraining_tp": 1,
    "q_lora_rank": 1536,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "quantization_config": {
        "activation_scheme": "dynamic",
        "fmt": "e4m3",
        "quant_method": "fp8",
        "weight_block_size": [128, 128],
    },
    "rms_norm_eps": 1e-06,
    "rope_scaling": {
        "beta_fast": 32,
        "beta_slow": 1,
        "factor": 40,
        "mscale": 1.0,
        "mscale_all_dim": 1.0,
        "original_max_position_embeddings": 4096,
        "type": "yarn",
    },
    "rope_theta": 10000,
    "routed_scaling_factor": 2.5,
    "scoring_func": "sigmoid",
    "seq_aux": True,
    "tie_word_embeddings": False,
    "topk_group": 4,
    "topk_method": "noaux_tc",
    "torch_dtype": "bfloat16",
    "transformers_version": "4.33.1",
    "use_cache": True,
    "v_head_dim": 128,
    "vocab_size": 129280,
}


class Zeros:
    """A checkpoint of the right shapes and no bytes: what is taken from it is never read."""

    def __init__(self, sizes: dict[str, tuple[int, ...]]) -> None:
        self.sizes = sizes

    def names(self) -> tuple[str, ...]:
        return tuple(sorted(self.sizes))

    def array(self, name: str) -> lg.LazyArray:
        return lg.LazyArray("float32", self.sizes[name], lambda: pytest.fail("read"), name=name, key=name)


def _build(values: dict[str, Any], **options: Any) -> DecoderGraph:
    config, weights = Config(values), WeightsUse(Zeros(deepseek_shapes(values)))
    config.get("quantization_config")  # read before the model is built: see lazygraph.models.block_fp8
    graph: DecoderGraph = model_module(config.model_type).build(config, weights, BuildOptions(4096, **options))
    config.finish()
    weights.finish()
    return graph


@pytest.mark.parametrize(
    ("values", "kept", "expanded"),
    [(V3, 576, 128 * (128 + 64 + 128)), (V2_LITE, 576, 16 * (128 + 64 + 128))],
    ids=["V3", "V2-Lite"],
)
def test_the_published_configs_build_and_report_the_compressed_cache(
    values: dict[str, Any], kept: int, expanded: int
) -> None:
    graph = _build(values)
    layout = graph.cache.layout
    assert layout.slot_names == ("c_kv", "k_pe")
    assert layout.trailing == ((512,), (64,))
    assert sum(math.prod(sizes) for sizes in layout.trailing) == kept
    assert layout.n_layers == values["num_hidden_layers"]
    compressed, whole = f"{kept:,} ({4 * kept:,} bytes)", f"{expanded:,} ({4 * expanded:,} bytes)"
    note = f"numbers in the cache per token and layer: {compressed}; expanded it would be {whole}"
    assert note in graph.notes
    assert graph.vocab_size == values["vocab_size"]
    assert graph.max_position == 163840


def test_v3_keeps_576_numbers_where_40960_would_be() -> None:
    assert any("576" in note and "40,960" in note for note in _build(V3).notes)


@pytest.mark.parametrize("model", GOLDENS)
@pytest.mark.parametrize("mla", MLAS)
def test_the_manifest_counts_the_compressed_cache_in_every_form(exported: Exported, model: str, mla: Mla) -> None:
    manifest = Decoder.open(exported(model, mla, False)).manifest
    assert [(slot.slot, slot.trailing) for slot in manifest.memory[:2]] == [("c_kv", (20,)), ("k_pe", (8,))]
    assert manifest.bytes_per_token == manifest.n_layers * 28 * 4
    assert manifest.copied == {}  # every slot is updated in place


@pytest.mark.parametrize("interleaved", [True, False])
def test_cached_keys_are_rotated_in_halves_and_latents_are_not_rotated(tmp_path: Path, interleaved: bool) -> None:
    # One token at every position, in one call and one by one: the first layer keeps one latent, and one key turned.
    config = deepseek_config(rope_interleave=interleaved)
    write_folder(tmp_path / "in", config, random_deepseek(config))
    lg.convert(tmp_path / "in", tmp_path / "out", max_seq_len=16)
    session = onnxruntime.InferenceSession(tmp_path / "out" / "model.onnx", providers=["CPUExecutionProvider"])
    slots = [value for value in session.get_inputs() if value.name.startswith("past.")]

    def kept(pieces: list[int]) -> tuple[Array, Array]:
        past = {value.name: np.zeros((16, value.shape[-1]), np.float32) for value in slots}
        done = 0
        for n in pieces:
            step = {"input_ids": np.full(n, 5), "past_len": np.array(done), "logits_from": np.array(0)}
            names = [name.replace("past", "present", 1) for name in past]
            past = dict(zip(past, session.run(names, {**step, **past}), strict=True))
            done += n
        return past["past.0.c_kv"][:done], past["past.0.k_pe"][:done]

    c_kv, k_pe = kept([12])
    np.testing.assert_allclose(c_kv, np.repeat(c_kv[:1], 12, axis=0), rtol=1e-6)
    wanted = turned(np.repeat(k_pe[:1], 12, axis=0), np.arange(12), np.array(yarn_frequencies(config, 8)), False)
    np.testing.assert_allclose(k_pe, wanted, rtol=0, atol=1e-5)
    assert np.abs(k_pe[1:] - k_pe[0]).max(-1).min() > 0.1
    for again in (kept([1] * 12), kept([5, 1, 6])):
        np.testing.assert_allclose(again[0], c_kv, rtol=0, atol=1e-5)
        np.testing.assert_allclose(again[1], k_pe, rtol=0, atol=1e-5)


# --- what cannot be served is refused ---


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"index_topk": 2048, "index_n_heads": 64, "index_head_dim": 128}, lg.UnsupportedError, "sparse attention"),
        ({"index_topk": 2048}, lg.UnsupportedError, "index_topk is 2048: sparse attention"),
        ({"index_n_heads": 64}, lg.UnsupportedError, "not understood: index_n_heads"),
        ({"model_type": "deepseek_v32"}, lg.UnsupportedError, "(?s)'deepseek_v32' is not served.*is sparse"),
        ({"rope_scaling": {"type": "dynamic", "factor": 2.0}}, lg.UnsupportedError, "rope type 'dynamic'"),
        ({"rope_scaling": {"type": "longrope", "factor": 2.0}}, lg.UnsupportedError, "rope type 'longrope'"),
        ({"qk_rope_head_dim": 7}, lg.WeightsError, "qk_rope_head_dim is 7"),
        ({"moe_layer_freq": 2}, lg.UnsupportedError, "moe_layer_freq is 2"),
        ({"scoring_func": "softmax"}, lg.UnsupportedError, "scoring_func is 'softmax'"),
        ({"topk_method": "greedy"}, lg.UnsupportedError, "topk_method is 'greedy'"),
        ({"num_key_value_heads": 1}, lg.UnsupportedError, "num_key_value_heads is 1"),
        ({"n_group": 3}, lg.WeightsError, "3 of 8 experts from 2 of 3 groups"),
        ({"n_group": 8, "num_experts_per_tok": 1}, lg.WeightsError, "1 of 8 experts from 2 of 8 groups"),
        ({"topk_group": 5}, lg.WeightsError, "from 5 of 4 groups"),
        ({"num_experts_per_tok": 5}, lg.WeightsError, "5 of 8 experts from 2 of 4 groups"),
        ({"hidden_act": "gelu"}, lg.UnsupportedError, "hidden_act is 'gelu'"),
        ({"head_dim": 99}, lg.UnsupportedError, "head_dim is 99"),
        ({"sliding_window": 128}, lg.UnsupportedError, "sliding_window"),
        ({"quantization_config": {"quant_method": "awq"}}, lg.UnsupportedError, "quantisation 'awq'"),
        ({"q_lora_rank": 0}, lg.WeightsError, "q_lora_rank is 0"),
        ({"routed_scaling_factor": 0}, lg.WeightsError, "routed_scaling_factor is 0"),
    ],
)
def test_a_config_that_cannot_be_served_is_refused_and_says_why(
    tmp_path: Path, changes: dict[str, Any], error: type[lg.LazyGraphError], message: str
) -> None:
    config = {**deepseek_config(), **changes}
    write_folder(tmp_path / "in", config, {"model.norm.weight": np.ones(32, np.float32)})
    with pytest.raises(error, match=message) as caught:
        lg.convert(tmp_path / "in", tmp_path / "out")
    assert caught.value.expected
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"norm_topk_prob": True}, "norm_topk_prob is True"),
        ({"scoring_func": "sigmoid"}, "scoring_func is 'sigmoid'"),
        ({"topk_method": "noaux_tc"}, "topk_method is 'noaux_tc'"),
        ({"moe_layer_freq": 2}, "moe_layer_freq is 2"),
    ],
)
def test_what_v2_does_not_have_is_refused(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    config = {**deepseek_config("deepseek_v2"), **changes}
    write_folder(tmp_path / "in", config, random_deepseek(config))
    with pytest.raises(lg.UnsupportedError, match=message):
        lg.convert(tmp_path / "in", tmp_path / "out")


def test_a_bias_that_only_v3_has_is_neither_wanted_nor_taken_by_v2(tmp_path: Path) -> None:
    config = deepseek_config("deepseek_v2")
    tensors = random_deepseek(config)
    assert not any("e_score_correction_bias" in name for name in tensors)
    tensors["model.layers.1.mlp.gate.e_score_correction_bias"] = np.ones(8, np.float32)
    write_folder(tmp_path / "in", config, tensors)
    with pytest.raises(lg.WeightsError, match="1 are not used"):
        lg.convert(tmp_path / "in", tmp_path / "out")


def test_two_exports_of_one_checkpoint_are_the_same_bytes(exported: Exported, goldens: Path, tmp_path: Path) -> None:
    old = exported("deepseek_v3", "auto", True)
    lg.convert(goldens / "deepseek_v3", tmp_path / "again", portable=True)
    assert {file.name: file.read_bytes() for file in (tmp_path / "again").iterdir()} == {
        file.name: file.read_bytes() for file in old.iterdir()
    }


def test_a_published_folder_with_harmless_files_converts(goldens: Path, tmp_path: Path) -> None:
    shutil.copytree(goldens / "deepseek_v2_lite_hub", tmp_path / "in")
    (tmp_path / "in" / "configuration_deepseek.py").write_text("raise SystemExit('nobody runs this')")
    manifest = lg.convert(tmp_path / "in", tmp_path / "out")
    assert json.loads((tmp_path / "out" / "manifest.json").read_text())["n_layers"] == manifest.n_layers == 3
