"""Block-scaled fp8 checkpoints: every block by its own scale, whatever the sizes; what is no such thing is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lazygraph as lg
from lazygraph.export.decoder import Decoder
from lazygraph.models.block_fp8 import BlockScaled, readable
from lazygraph.models.config import Config
from tests.support.checkpoints import Array, write_folder
from tests.support.deepseek import deepseek_config, deepseek_logits, random_deepseek

FP8 = ml_dtypes.float8_e4m3fn
QUANTIZED: dict[str, Any] = {
    "quant_method": "fp8",
    "fmt": "e4m3",
    "activation_scheme": "dynamic",
    "weight_block_size": [16, 16],
}


class Memory:
    """A checkpoint in memory."""

    def __init__(self, tensors: dict[str, Array]) -> None:
        self.tensors = tensors

    def names(self) -> tuple[str, ...]:
        return tuple(sorted(self.tensors))

    def array(self, name: str) -> lg.LazyArray:
        numbers = self.tensors[name]
        return lg.LazyArray(numbers.dtype, numbers.shape, lambda: numbers, name=name, key=name)


def _quantized(numbers: Array, rows: int, columns: int) -> tuple[Array, Array, Array]:
    """Return fp8 numbers, their scales, and what they stand for: block after block."""
    height, width = numbers.shape
    scales = np.empty((-(-height // rows), -(-width // columns)), np.float32)
    stored = np.empty(numbers.shape, FP8)
    meant = np.empty(numbers.shape, np.float32)
    for i in range(scales.shape[0]):
        for j in range(scales.shape[1]):
            block = slice(i * rows, (i + 1) * rows), slice(j * columns, (j + 1) * columns)
            scales[i, j] = np.abs(numbers[block]).max() / 448
            stored[block] = (numbers[block] / scales[i, j]).astype(FP8)
            meant[block] = stored[block].astype(np.float32) * scales[i, j]
    return stored, scales, meant


@settings(deadline=None, max_examples=60)
@given(
    height=st.integers(1, 40),
    width=st.integers(1, 40),
    rows=st.integers(1, 17),
    columns=st.integers(1, 50),
    seed=st.integers(0, 9),
)
def test_every_block_is_multiplied_by_its_scale_partial_ones_too(
    height: int, width: int, rows: int, columns: int, seed: int
) -> None:
    numbers = np.random.default_rng(seed).normal(size=(height, width)) * 10.0 ** np.arange(width)[None, :].clip(max=6)
    stored, scales, meant = _quantized(numbers, rows, columns)
    reader = BlockScaled(Memory({"w": stored, "w_scale_inv": scales}), (rows, columns))
    array = reader.array("w")
    assert (array.dtype, array.shape) == (lg.float32, (height, width))
    np.testing.assert_array_equal(array.read(), meant)
    assert reader.names() == ("w",)


def test_a_weight_without_scales_comes_as_it_is_and_scales_without_a_weight_are_left_over() -> None:
    plain = np.arange(6, dtype=np.float32).reshape(2, 3)
    reader = BlockScaled(Memory({"gate": plain, "lost_scale_inv": plain}), (16, 16))
    assert reader.names() == ("gate", "lost_scale_inv")
    np.testing.assert_array_equal(reader.array("gate").read(), plain)


def test_scales_of_a_narrower_type_are_read() -> None:
    numbers = np.random.default_rng(0).normal(size=(20, 20))
    stored, scales, _ = _quantized(numbers, 16, 16)
    narrow = scales.astype(ml_dtypes.bfloat16)
    found = BlockScaled(Memory({"w": stored, "w_scale_inv": narrow}), (16, 16)).array("w").read()
    grown = np.repeat(np.repeat(narrow.astype(np.float32), 16, 0), 16, 1)[:20, :20]
    np.testing.assert_array_equal(found, stored.astype(np.float32) * grown)


@pytest.mark.parametrize("shape", [(1, 2), (3, 2), (2, 3), (2,), (2, 2, 1), (32, 20)])
def test_scales_of_another_shape_are_refused(shape: tuple[int, ...]) -> None:
    stored, _, _ = _quantized(np.ones((32, 20)), 16, 16)
    reader = BlockScaled(Memory({"w": stored, "w_scale_inv": np.ones(shape, np.float32)}), (16, 16))
    with pytest.raises(lg.WeightsError, match=r"(?s)'w_scale_inv' is .*'w' \(32, 20\) has \(2, 2\) blocks"):
        reader.array("w")


def test_fp8_without_scales_is_refused() -> None:
    with pytest.raises(lg.UnsupportedError, match="'w' is float8_e4m3fn without scales") as caught:
        BlockScaled(Memory({"w": np.ones((4, 4), FP8)}), (2, 2)).array("w")
    assert caught.value.expected == "w_scale_inv"


@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16, np.int8])
def test_what_is_not_fp8_is_not_multiplied_by_scales_that_lie_beside_it(dtype: Any) -> None:
    # A checkpoint that was multiplied out and kept its scales would come out wrong without a word.
    tensors = {"w": np.ones((4, 4), dtype), "w_scale_inv": np.full((1, 1), 2, np.float32)}
    with pytest.raises(lg.UnsupportedError, match="and has scales"):
        BlockScaled(Memory(tensors), (16, 16)).array("w")


@pytest.mark.parametrize(
    ("quantization", "message"),
    [
        ({"quant_method": "gptq", "bits": 4}, "quantisation 'gptq'"),
        ({"quant_method": "fbgemm_fp8"}, "quantisation 'fbgemm_fp8'"),
        ("fp8", "quantisation 'fp8'"),
        ({}, "quantisation None"),
        ({**QUANTIZED, "fmt": "e5m2"}, "format 'e5m2'"),
        ({**QUANTIZED, "weight_block_size": None}, "blocks of None"),
        ({**QUANTIZED, "weight_block_size": [128]}, r"blocks of \[128\]"),
        ({**QUANTIZED, "weight_block_size": [0, 128]}, r"blocks of \[0, 128\]"),
        ({**QUANTIZED, "weight_block_size": [True, 128]}, r"blocks of \[True, 128\]"),
        ({**QUANTIZED, "weight_block_size": 128}, "blocks of 128"),
    ],
)
def test_other_quantisations_are_refused(quantization: Any, message: str) -> None:
    config = Config({"model_type": "deepseek_v3", "quantization_config": quantization})
    with pytest.raises(lg.UnsupportedError, match=message) as caught:
        readable(Memory({}), config)
    assert caught.value.expected


def test_without_a_quantisation_the_reader_is_the_same() -> None:
    memory = Memory({})
    assert readable(memory, Config({"model_type": "deepseek_v3"})) is memory
    assert readable(memory, Config({"model_type": "deepseek_v3", "quantization_config": None})) is memory


# --- whole checkpoints ---


def _checkpoint(block: tuple[int, int]) -> tuple[dict[str, Any], dict[str, Array], dict[str, Array]]:
    """Return config, tensors as they are stored, and the numbers that they stand for."""
    config = deepseek_config(quantization_config={**QUANTIZED, "weight_block_size": list(block)})
    stored: dict[str, Array] = {}
    meant: dict[str, Array] = {}
    for name, numbers in random_deepseek(config).items():
        stored[name] = meant[name] = numbers
        if name.endswith("_proj.weight"):
            stored[name], stored[name + "_scale_inv"], meant[name] = _quantized(numbers, *block)
    return config, stored, meant


@pytest.mark.parametrize("shards", [1, 3, 7])
@pytest.mark.parametrize("block", [(16, 16), (7, 13), (128, 128), (1, 5)])
def test_a_checkpoint_decodes_like_the_numbers_it_stands_for(
    tmp_path: Path, block: tuple[int, int], shards: int
) -> None:
    config, stored, meant = _checkpoint(block)
    write_folder(tmp_path / "in", config, stored, shards)  # dealt in turns: a scale lies in another shard
    manifest = lg.convert(tmp_path / "in", tmp_path / "out")
    tokens = np.array([1, 7, 39, 0, 12, 12, 5])
    decoder = Decoder.open(tmp_path / "out", threads=1)
    logits = np.concatenate([decoder.append(tokens[:3].tolist()), decoder.append(tokens[3:].tolist())])
    np.testing.assert_allclose(logits, deepseek_logits(config, meant, tokens), rtol=0, atol=2e-4)
    assert manifest.memory[0].dtype == "float32"


def test_a_missing_scale_is_named_and_nothing_is_written(tmp_path: Path) -> None:
    config, stored, _ = _checkpoint((16, 16))
    name = "model.layers.1.mlp.experts.3.down_proj.weight"
    del stored[name + "_scale_inv"]
    write_folder(tmp_path / "in", config, stored)
    with pytest.raises(lg.UnsupportedError, match=f"'{name}' is float8_e4m3fn without scales"):
        lg.convert(tmp_path / "in", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_fp8_weights_that_the_config_does_not_mention_are_not_read_as_plain_numbers(tmp_path: Path) -> None:
    config, stored, _ = _checkpoint((16, 16))
    del config["quantization_config"]
    write_folder(tmp_path / "in", config, stored)
    with pytest.raises(lg.WeightsError, match="are not used") as caught:
        lg.convert(tmp_path / "in", tmp_path / "out")
    assert all(name.endswith("_scale_inv") for name in caught.value.unexpected)


def test_fp8_weights_fit_a_narrower_export(tmp_path: Path) -> None:
    config, stored, _ = _checkpoint((16, 16))
    write_folder(tmp_path / "in", config, stored)
    full = lg.convert(tmp_path / "in", tmp_path / "full")
    half = lg.convert(tmp_path / "in", tmp_path / "half", store="bf16")
    assert half.weight_bytes < 0.6 * full.weight_bytes
