"""Tensors of a GGUF file under their Hugging Face names, dequantised when they are needed."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from lazygraph.arrays import LazyArray
from lazygraph.errors import UnsupportedError, WeightsError
from lazygraph.models.files import absent, asking_line
from lazygraph.models.gguf_config import ROPE_FACTORS, config_of, require_architecture
from lazygraph.models.gguf_file import GgufFile

if TYPE_CHECKING:
    from gguf import ReaderTensor

# Stored types that become float32 here. The package dequantises more; these are the ones that the tests hold
# against an independent reading.
READABLE = ("F32", "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q4_K", "Q5_K", "Q6_K")

# Source: gguf-py/gguf/tensor_mapping.py; the right side is transformers' name for llama, mistral, qwen2 and qwen3.
_WHOLE = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
_PER_LAYER = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_RUN = 16384  # blocks dequantised at once
_LAYER = re.compile(r"blk\.(\d+)\.(\w+)\.(weight|bias)")

_Rows = Callable[[np.ndarray[Any, Any]], np.ndarray[Any, Any]]


class GgufWeights:
    """The tensors of a GGUF file as float32, under the names of the Hugging Face checkpoint that it was made from.

    llama.cpp's converter reorders the rows of the query and key projections of ``llama`` files (rotary pairs become
    neighbours instead of halves); that is undone here. A tensor whose name is not known keeps its GGUF name.

    Args:
        source: A ``.gguf`` file, or one already opened.

    Attributes:
        path: The file.
        file: The opened file.
        config: The config that a Hugging Face folder would hold, see ``gguf_config.config_of``.

    Raises:
        WeightsError: The file is absent, truncated, not GGUF, or lacks a key that its architecture needs.
        UnsupportedError: Its architecture or a key that changes the mathematics is not known.

    Source: convert_hf_to_gguf.py, LlamaModel.permute.
    """

    def __init__(self, source: str | Path | GgufFile) -> None:
        self.file = source if isinstance(source, GgufFile) else GgufFile(source)
        self.path = self.file.path
        self.architecture = require_architecture(self.file)
        self.config = config_of(self.file)
        self._stored = {hub_name(name): tensor for name, tensor in self.file.tensors.items() if name != ROPE_FACTORS}

    def names(self) -> tuple[str, ...]:
        """Return the tensors' names, sorted."""
        return tuple(sorted(self._stored))

    def array(self, name: str) -> LazyArray:
        """Return one tensor: float32 in the checkpoint's shape, dequantised when ``read`` is called.

        Raises:
            WeightsError: The file has no such tensor.
            UnsupportedError: Its stored type is not read here.
        """
        stored, rows = self._find(name), self._rows(name)
        shape = tuple(int(size) for size in reversed(stored.shape.tolist()))
        load = partial(_dequantise, stored, rows, shape)
        return LazyArray("float32", shape, load, name=name, key=(str(self.path), name))

    def packed(self, name: str) -> tuple[str, LazyArray]:
        """Return one tensor as stored: its GGML type name, and uint8 ``(*rows, bytes per row)`` in the same row order.

        Blocks lie along the rows, so undoing the converter's row order leaves them whole.

        Raises:
            WeightsError: The file has no such tensor.
            UnsupportedError: Its stored type is not read here.
        """
        stored, rows = self._find(name), self._rows(name)
        held = stored.data.view(np.uint8)
        load = partial(_in_rows, held, rows)
        array = LazyArray("uint8", held.shape, load, name=name, key=(str(self.path), name, "packed"))
        return stored.tensor_type.name, array

    @property
    def main_type(self) -> str:
        """The GGML type of most elements, such as ``Q4_1``."""
        sizes: Counter[str] = Counter()
        for stored in self._stored.values():
            sizes[stored.tensor_type.name] += int(stored.n_elements)
        return sizes.most_common(1)[0][0] if sizes else "no tensors"

    def _find(self, name: str) -> ReaderTensor:
        stored = self._stored.get(name)
        if stored is None:
            raise absent(name, self._stored, self.path)
        if stored.tensor_type.name not in READABLE:
            raise UnsupportedError(
                f"tensor {name!r} is stored as {stored.tensor_type.name}",
                op="array",
                operands={"file": self.path, "in the file": stored.name},
                expected="one of " + ", ".join(READABLE),
                hint="llama.cpp's llama-quantize --allow-requantize makes a file of another type",
                at=asking_line(),
            )
        return stored

    def _rows(self, name: str) -> _Rows | None:
        """Return what puts the rows of this tensor into the checkpoint's order, or None where they are in it."""
        projection = name.rsplit(".", 2)[-2] if name.count(".") > 1 else ""
        if self.architecture != "llama" or projection not in ("q_proj", "k_proj"):
            return None

        heads = int(self.config["num_attention_heads" if projection == "q_proj" else "num_key_value_heads"])
        count = int(self._stored[name].shape[-1])
        if count % (2 * heads):
            raise WeightsError(
                f"tensor {name!r} has {count} rows for {heads} heads",
                op="array",
                operands={"file": self.path},
                expected="a whole, even number of rows per head",
                at=asking_line(),
            )
        return partial(unpermute, heads=heads)

    def __repr__(self) -> str:
        return f"GgufWeights({str(self.path)!r}: {self.architecture}, {len(self._stored)} tensors)"


def hub_name(name: str) -> str:
    """Return the Hugging Face name of a GGUF tensor; a name that is not known comes back as it is."""
    stem, _, kind = name.rpartition(".")
    if stem in _WHOLE:
        return f"{_WHOLE[stem]}.{kind}"
    match = _LAYER.fullmatch(name)
    if match and match[2] in _PER_LAYER:
        return f"model.layers.{match[1]}.{_PER_LAYER[match[2]]}.{match[3]}"
    return name


def unpermute(rows: np.ndarray[Any, Any], heads: int) -> np.ndarray[Any, Any]:
    """Return the rows ``(heads * size, ...)`` with each head's rotary pairs apart: first halves, then second."""
    pairs = rows.reshape(heads, rows.shape[0] // heads // 2, 2, *rows.shape[1:])
    return pairs.swapaxes(1, 2).reshape(rows.shape)


def _in_rows(held: np.ndarray[Any, Any], rows: _Rows | None) -> np.ndarray[Any, Any]:
    return held if rows is None else rows(held)


def _dequantise(stored: ReaderTensor, rows: _Rows | None, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    from gguf.constants import GGML_QUANT_SIZES
    from gguf.quants import dequantize

    held = _in_rows(stored.data, rows)
    if stored.tensor_type.name in ("F32", "F16"):  # these two come typed from the reader, everything else as bytes
        return dequantize(held, stored.tensor_type).reshape(shape)

    # The package works on 16 rows at a time. Runs of blocks that fit the processor's cache are up to ten times
    # faster, and the temporaries stay small.
    elements, size = GGML_QUANT_SIZES[stored.tensor_type]
    flat = held.reshape(-1)
    numbers = np.empty(flat.size // size * elements, dtype=np.float32)
    for start in range(0, flat.size // size, _RUN):
        run = flat[start * size : (start + _RUN) * size].reshape(1, -1)
        numbers[start * elements : (start + _RUN) * elements] = dequantize(run, stored.tensor_type)[0]
    return numbers.reshape(shape)
