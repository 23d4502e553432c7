"""Quantised blocks of GGUF files, against readings of the block structs that share nothing with the package's own."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from gguf.constants import GGML_QUANT_SIZES
from gguf.constants import GGMLQuantizationType as Kind

from lazygraph.models import gguf_weights
from lazygraph.models.gguf_weights import GgufWeights


def _write(file: Path, name: str, kind: Kind, blocks: np.ndarray[Any, Any]) -> Path:
    """Write a llama file of four heads that holds one quantised tensor."""
    writer = gguf.GGUFWriter(file, "llama")
    writer.add_block_count(1)
    writer.add_context_length(8)
    writer.add_embedding_length(32)
    writer.add_feed_forward_length(32)
    writer.add_head_count(4)
    writer.add_layer_norm_rms_eps(1e-6)
    if name != "token_embd.weight":
        writer.add_tensor("token_embd.weight", np.zeros((1, 32), np.float32))
    writer.add_tensor(name, blocks, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return file


# What each block holds, written from ggml's block structs (ggml-common.h) one number at a time.


def _half(block: bytes, at: int) -> float:
    return float(struct.unpack_from("<e", block, at)[0])


def _nibbles(block: bytes) -> list[int]:
    return [byte & 15 for byte in block] + [byte >> 4 for byte in block]


def _q4_0(block: bytes) -> list[float]:
    return [_half(block, 0) * (q - 8) for q in _nibbles(block[2:])]


def _q4_1(block: bytes) -> list[float]:
    return [_half(block, 0) * q + _half(block, 2) for q in _nibbles(block[4:])]


def _q5(block: bytes, high_at: int) -> list[int]:
    (high,) = struct.unpack_from("<I", block, high_at)
    return [q | ((high >> index) & 1) << 4 for index, q in enumerate(_nibbles(block[high_at + 4 :]))]


def _q5_0(block: bytes) -> list[float]:
    return [_half(block, 0) * (q - 16) for q in _q5(block, 2)]


def _q5_1(block: bytes) -> list[float]:
    return [_half(block, 0) * q + _half(block, 2) for q in _q5(block, 4)]


def _q8_0(block: bytes) -> list[float]:
    return [_half(block, 0) * q for q in struct.unpack_from("<32b", block, 2)]


def _scale_and_min(scales: bytes, group: int) -> tuple[int, int]:
    if group < 4:
        return scales[group] & 63, scales[group + 4] & 63
    low, top = scales[group + 4], (scales[group - 4] >> 6, scales[group] >> 6)
    return (low & 15) | top[0] << 4, (low >> 4) | top[1] << 4


def _q4_k(block: bytes) -> list[float]:
    return _k_groups(block, block[16:144], lambda group, index: 0)


def _q5_k(block: bytes) -> list[float]:
    return _k_groups(block, block[48:176], lambda group, index: (block[16 + index] >> group) & 1)


def _k_groups(block: bytes, quants: bytes, fifth_bit: Callable[[int, int], int]) -> list[float]:
    values = []
    for group in range(8):
        scale, least = _scale_and_min(block[4:16], group)
        for index in range(32):
            byte = quants[group // 2 * 32 + index]
            q = (byte >> 4 if group % 2 else byte & 15) | fifth_bit(group, index) << 4
            values.append(_half(block, 0) * scale * q - _half(block, 2) * least)
    return values


def _q6_k(block: bytes) -> list[float]:
    low, high, scales = block[:128], block[128:192], struct.unpack_from("<16b", block, 192)
    values = []
    for index in range(256):
        half, within = divmod(index, 128)
        quarter, column = divmod(within, 32)
        byte = low[half * 64 + (quarter % 2) * 32 + column]
        q = (byte & 15 if quarter < 2 else byte >> 4) | ((high[half * 32 + column] >> 2 * quarter) & 3) << 4
        values.append(_half(block, 208) * scales[index // 16] * (q - 32))
    return values


_BLOCKS: dict[str, tuple[Callable[[bytes], list[float]], tuple[int, ...]]] = {
    "Q4_0": (_q4_0, (0,)),
    "Q4_1": (_q4_1, (0, 2)),
    "Q5_0": (_q5_0, (0,)),
    "Q5_1": (_q5_1, (0, 2)),
    "Q8_0": (_q8_0, (0,)),
    "Q4_K": (_q4_k, (0, 2)),
    "Q5_K": (_q5_k, (0, 2)),
    "Q6_K": (_q6_k, (208,)),
}


def _random_blocks(kind: Kind, rows: int, blocks: int) -> np.ndarray[Any, Any]:
    """Return any bytes as blocks, with scales that are finite halves."""
    random = np.random.default_rng(int(kind))
    held = random.integers(0, 256, (rows, blocks, GGML_QUANT_SIZES[kind][1]), dtype=np.uint8)
    for at in _BLOCKS[kind.name][1]:
        halves = random.normal(size=(rows, blocks, 1)).astype(np.float16)
        held[..., at : at + 2] = halves.view(np.uint8)
    return held.reshape(rows, -1)


@pytest.mark.parametrize("name", _BLOCKS)
@pytest.mark.parametrize("run", [3, gguf_weights._RUN])
def test_each_quantised_type_is_dequantised_as_its_format_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, run: int
) -> None:
    monkeypatch.setattr(gguf_weights, "_RUN", run)
    kind = Kind[name]
    elements, size = GGML_QUANT_SIZES[kind]
    held = _random_blocks(kind, rows=5, blocks=2)
    weights = GgufWeights(_write(tmp_path / "m.gguf", "token_embd.weight", kind, held))
    array = weights.array("model.embed_tokens.weight")
    oracle = [_BLOCKS[name][0](held.reshape(-1, size)[block].tobytes()) for block in range(10)]
    assert (array.dtype.name, array.shape) == ("float32", (5, 2 * elements))
    np.testing.assert_allclose(array.read(), np.array(oracle).reshape(5, -1), rtol=1e-5, atol=1e-5)
    assert weights.main_type == name

    stored, bytes_of_it = weights.packed("model.embed_tokens.weight")
    assert stored == name
    np.testing.assert_array_equal(bytes_of_it.read(), held)


def test_quantised_rows_are_put_back_packed_and_unpacked(tmp_path: Path) -> None:
    held = _random_blocks(Kind.Q4_1, rows=32, blocks=1)
    # llama.cpp keeps row i of a head's 8 at 2 i, and row i + 4 at 2 i + 1.
    order = [head * 8 + place for head in range(4) for place in (0, 4, 1, 5, 2, 6, 3, 7)]
    weights = GgufWeights(_write(tmp_path / "m.gguf", "blk.0.attn_q.weight", Kind.Q4_1, held[order]))

    name = "model.layers.0.self_attn.q_proj.weight"
    oracle = np.array([_q4_1(row.tobytes()) for row in held])
    np.testing.assert_allclose(weights.array(name).read(), oracle, rtol=1e-6, atol=1e-6)
    np.testing.assert_array_equal(weights.packed(name)[1].read(), held)
