"""Opening a checkpoint of any format, and keeping count of its tensors."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import FrozenInstanceError
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from safetensors.numpy import save_file
from tokenizers import Tokenizer as Core
from tokenizers import models

from lazygraph.errors import UnsupportedError, WeightsError
from lazygraph.models.checkpoint import WeightsUse, open_checkpoint
from lazygraph.models.gguf_weights import GgufWeights
from lazygraph.models.safetensors_weights import SafetensorsWeights


def _gguf(file: Path, vocabulary: str = "t5") -> Path:
    writer = gguf.GGUFWriter(file, "llama")
    writer.add_block_count(1)
    writer.add_context_length(8)
    writer.add_embedding_length(4)
    writer.add_feed_forward_length(4)
    writer.add_head_count(1)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_tokenizer_model(vocabulary)
    writer.add_token_list(["a", "b", "</s>"])
    writer.add_token_scores([0.0, 0.0, 0.0])
    writer.add_token_types([1, 1, 3])
    writer.add_eos_token_id(2)
    writer.add_float32("general.sampling.temp", 0.6)
    writer.add_uint32("general.sampling.top_k", 20)
    writer.add_tensor("token_embd.weight", np.ones((3, 4), np.float16))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return file


def _folder(folder: Path, config: Any = None, **files: Any) -> Path:
    save_file({"w": np.zeros((2, 3), np.float16)}, folder / "model.safetensors")
    named = {"config.json": {"model_type": "llama", "eos_token_id": 2} if config is None else config}
    for name, content in (named | {key.replace("__", "."): value for key, value in files.items()}).items():
        (folder / name).write_text(content if isinstance(content, str) else json.dumps(content))
    return folder


def test_a_golden_folder_is_opened_without_a_tokenizer(goldens: Path) -> None:
    checkpoint = open_checkpoint(goldens / "llama")
    assert checkpoint.config == json.loads((goldens / "llama" / "config.json").read_text())
    assert isinstance(checkpoint.weights, SafetensorsWeights)
    assert checkpoint.source == "safetensors float32"
    assert (checkpoint.tokenizer, checkpoint.tokenizer_note) == (None, "the folder has no tokenizer.json")
    assert (checkpoint.stop_ids, checkpoint.generation) == ((2,), {})
    assert checkpoint.path == goldens / "llama"
    with pytest.raises(FrozenInstanceError):
        checkpoint.source = "x"  # type: ignore[misc]


def test_shards_and_float8_are_named_in_the_source(goldens: Path) -> None:
    assert open_checkpoint(str(goldens / "deepseek_v2_lite_hub")).source == "safetensors float32"
    assert open_checkpoint(goldens / "deepseek_v3_fp8").source == "safetensors float8_e4m3fn"


def test_a_folder_with_tokenizer_and_generation_config(tmp_path: Path) -> None:
    core = Core(models.BPE(vocab={"a": 0, "b": 1, "ab": 2}, merges=[("a", "b")]))
    files = {"tokenizer__json": core.to_str(), "generation_config__json": {"eos_token_id": [1, 0], "top_k": 5}}
    checkpoint = open_checkpoint(_folder(tmp_path, **files))
    assert checkpoint.tokenizer is not None
    assert checkpoint.tokenizer.encode("ab") == [2]
    assert (checkpoint.tokenizer_note, checkpoint.stop_ids) == ("", (1, 0, 2))
    assert checkpoint.generation["top_k"] == 5


def test_a_sentencepiece_model_alone_is_noted(tmp_path: Path) -> None:
    assert "tokenizer.model alone is not read" in open_checkpoint(_folder(tmp_path, tokenizer__model="")).tokenizer_note


@pytest.mark.parametrize("inside", [False, True])
def test_a_gguf_file_or_the_folder_of_one(tmp_path: Path, inside: bool) -> None:
    file = _gguf(tmp_path / "m.gguf", "llama")
    checkpoint = open_checkpoint(tmp_path if inside else file)
    assert isinstance(checkpoint.weights, GgufWeights)
    assert checkpoint.config == checkpoint.weights.config
    assert (checkpoint.source, checkpoint.path, checkpoint.stop_ids) == ("GGUF F16", file, (2,))
    assert checkpoint.tokenizer is not None
    assert checkpoint.generation == {"temperature": 0.6, "top_k": 20, "do_sample": True}


def test_a_gguf_file_beside_a_config_alone_is_opened(tmp_path: Path) -> None:
    _gguf(tmp_path / "m.gguf")
    (tmp_path / "config.json").write_text("{}")
    assert open_checkpoint(tmp_path).source == "GGUF F16"


def test_a_vocabulary_that_is_not_read_leaves_the_model_usable(tmp_path: Path) -> None:
    checkpoint = open_checkpoint(_gguf(tmp_path / "m.gguf"))
    assert checkpoint.tokenizer is None
    assert checkpoint.tokenizer_note == "vocabulary kind 't5' is not read"
    assert checkpoint.stop_ids == (2,)


@pytest.mark.smollm2
def test_smollm2_is_opened(smollm2_path: Path) -> None:
    checkpoint = open_checkpoint(smollm2_path)
    assert (checkpoint.source, checkpoint.stop_ids) == ("GGUF Q4_1", (2,))
    assert len(checkpoint.weights.names()) == 272


def test_a_path_where_nothing_is_says_so_here_and_how_to_get_it(tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match="no such file or folder") as caught:
        open_checkpoint(tmp_path / "none")
    assert "test_checkpoint.py" in str(caught.value)
    with pytest.raises(WeightsError) as caught:
        open_checkpoint("HuggingFaceTB/SmolLM2-135M")
    assert "hf download HuggingFaceTB/SmolLM2-135M" in caught.value.hint


def test_a_folder_that_is_no_checkpoint_or_unclear_is_refused(tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match=r"no config\.json"):
        open_checkpoint(tmp_path)
    for name in ("a.gguf", "b.gguf"):
        _gguf(tmp_path / name)
    with pytest.raises(WeightsError, match=r"2 \.gguf files") as caught:
        open_checkpoint(tmp_path)
    assert "a.gguf" in str(caught.value)
    assert caught.value.hint == "name the file to open"


@pytest.mark.parametrize("content", ["{", "[1]", "\x00", "[" * 100000])
def test_a_broken_config_is_named(tmp_path: Path, content: str) -> None:
    with pytest.raises(WeightsError, match=r"config\.json") as caught:
        open_checkpoint(_folder(tmp_path, content))
    assert str(tmp_path / "config.json") in str(caught.value)


def test_a_broken_generation_config_or_tokenizer_is_named(tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match=r"generation_config\.json is not JSON"):
        open_checkpoint(_folder(tmp_path, generation_config__json="{"))
    with pytest.raises(WeightsError, match="the tokenizer cannot be made"):
        open_checkpoint(_folder(tmp_path, generation_config__json="{}", tokenizer__json="{}"))


def test_another_file_is_refused(goldens: Path, tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match=r"model\.safetensors is not a GGUF file") as caught:
        open_checkpoint(goldens / "llama" / "model.safetensors")
    assert caught.value.hint == "pass the folder that holds it"
    (tmp_path / "x.gguf").write_bytes(b"GGU")
    with pytest.raises(WeightsError, match="not a whole GGUF file"):
        open_checkpoint(tmp_path / "x.gguf")


class _Names:
    """A reader of empty tensors, shape (2, 3)."""

    def __init__(self, *names: str) -> None:
        self._names = names

    def names(self) -> tuple[str, ...]:
        return self._names

    def array(self, name: str) -> Any:
        from lazygraph.arrays import LazyArray

        return LazyArray("float16", (2, 3), lambda: np.zeros((2, 3), np.float16), name=name)


def test_taking_everything_leaves_nothing_to_say() -> None:
    use = WeightsUse(_Names("a", "b"))
    assert use.take("a", (2, 3)).read().shape == (2, 3)
    assert use.take("b", [2, 3]).dtype == "float16"
    use.take("a", (2, 3))  # tied weights are taken twice
    use.finish()
    assert "a" in use
    assert "c" not in use


def test_a_wrong_shape_is_refused_at_once_with_both() -> None:
    with pytest.raises(WeightsError, match=r"tensor 'a' is \(2, 3\) and the model needs \(3, 2\)") as caught:
        WeightsUse(_Names("a")).take("a", (3, 2))
    assert vars(caught.value)["wanted"] == (3, 2)
    assert vars(caught.value)["got"] == (2, 3)
    assert "test_checkpoint.py" in str(caught.value)


def test_absent_and_unused_tensors_are_named_together() -> None:
    use = WeightsUse(_Names("layers.0.q_proj.weight", "layers.0.k_proj.weight", "z"))
    stand_in = use.take("layers.0.q_projection.weight", (2, 3), "bfloat16")
    use.take("nothing.like.it", (1,))
    use.take("layers.0.k_proj.weight", (2, 3))
    assert (stand_in.dtype.name, stand_in.shape) == ("bfloat16", (2, 3))

    with pytest.raises(WeightsError, match="2 tensors are missing and 2 are not used") as caught:
        use.finish()
    assert caught.value.missing == ("layers.0.q_projection.weight", "nothing.like.it")
    assert caught.value.unexpected == ("layers.0.q_proj.weight", "z")
    assert "near it: layers.0.q_proj.weight" in str(caught.value)
    with pytest.raises(WeightsError, match=r"no tensor 'layers\.0\.q_projection\.weight'"):
        stand_in.read()


def test_long_lists_are_cut_in_the_message_and_whole_in_the_fields() -> None:
    with pytest.raises(WeightsError) as caught:
        WeightsUse(_Names(*(f"t{number:02}" for number in range(30)))).finish()
    assert len(caught.value.unexpected) == 30
    assert "t09" in str(caught.value)
    assert "t10" not in str(caught.value)


def test_names_that_are_no_weights_may_be_left_over() -> None:
    use = WeightsUse(_Names("model.layers.0.self_attn.rotary_emb.inv_freq", "lm_head.weight"))
    assert use.unexpected == ("lm_head.weight",)
    use.ignore("lm_head.*")
    use.finish()
    with pytest.raises(WeightsError):
        WeightsUse(_Names("model.layers.0.self_attn.rotary_emb.inv_freq"), ignore=()).finish()


def test_importing_the_readers_loads_no_heavy_package() -> None:
    heavy = ("onnx", "onnxruntime", "gguf", "tokenizers", "safetensors", "jinja2", "ml_dtypes")
    names = ("checkpoint", "tokenizer", "gguf_weights", "safetensors_weights", "text_stream", "chat")
    program = "import sys\n" + "".join(f"import lazygraph.models.{name}\n" for name in names)
    program += f"print([name for name in {heavy!r} if name in sys.modules])"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"


@pytest.mark.parametrize("package", ["safetensors", "gguf", "tokenizers"])
def test_a_package_that_is_not_installed_is_named_with_the_extra(
    monkeypatch: pytest.MonkeyPatch, goldens: Path, tmp_path: Path, package: str
) -> None:
    path = _gguf(tmp_path / "m.gguf", "llama") if package == "gguf" else goldens / "llama"
    if package == "tokenizers":
        path = _gguf(tmp_path / "m.gguf", "llama")
    monkeypatch.setitem(sys.modules, package, None)  # what Python itself does to say "not here"
    if package == "tokenizers":
        assert open_checkpoint(path).tokenizer_note == "the package tokenizers is not installed"
        return
    with pytest.raises(UnsupportedError, match=f"the package {package} is not installed") as caught:
        open_checkpoint(path)
    assert "lazygraph[models]" in caught.value.hint
