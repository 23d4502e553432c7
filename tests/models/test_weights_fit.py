"""Weights and config must fit: tied and untied heads, names missing and left over, shapes, and squares that lie."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

import lazygraph as lg
from lazygraph.export.decoder import Decoder
from lazygraph.export.manifest import Manifest
from lazygraph.models.files import read_json
from tests.support.checkpoints import Array, random_tensors, reference_logits, small_config, write_folder

EMBED, HEAD = "model.embed_tokens.weight", "lm_head.weight"
TOKENS = np.array([1, 7, 39, 0, 12, 12, 5])


def _export(tmp_path: Path, config: dict[str, Any], tensors: dict[str, Array]) -> tuple[Manifest, list[str]]:
    notes: list[str] = []
    write_folder(tmp_path / "in", config, tensors)
    return lg.convert(tmp_path / "in", tmp_path / "out", warn=notes.append), notes


def _logits(tmp_path: Path) -> Array:
    return Decoder.open(tmp_path / "out", threads=1).append(TOKENS.tolist())


def _both(tied: bool, equal: bool) -> tuple[dict[str, Any], dict[str, Array]]:
    config = small_config(tie_word_embeddings=tied)
    tensors = random_tensors({**config, "tie_word_embeddings": False})
    if equal:
        tensors[HEAD] = tensors[EMBED].copy()
    return config, tensors


# --- B29: embedding and head ---


@pytest.mark.parametrize("tied", [False, True])
def test_both_there_and_different_are_two_matrices(tmp_path: Path, tied: bool) -> None:
    config, tensors = _both(tied, equal=False)
    manifest, notes = _export(tmp_path, config, tensors)
    np.testing.assert_allclose(_logits(tmp_path), reference_logits(config, tensors, TOKENS), rtol=0, atol=1e-4)
    for name in (EMBED, HEAD):
        _no_second_block(tmp_path / "out", manifest, tensors[name])
    assert any("a matrix of its own" in note for note in notes)
    assert any("though the config ties" in note for note in notes) == tied


@pytest.mark.parametrize("tied", [False, True])
def test_both_there_and_equal_are_stored_once(tmp_path: Path, tied: bool) -> None:
    config, tensors = _both(tied, equal=True)
    manifest, _ = _export(tmp_path, config, tensors)
    np.testing.assert_allclose(_logits(tmp_path), reference_logits(config, tensors, TOKENS), rtol=0, atol=1e-4)
    _no_second_block(tmp_path / "out", manifest, tensors[EMBED])


def test_only_the_embedding_and_tied_is_one_shared_matrix(tmp_path: Path) -> None:
    config = small_config(tie_word_embeddings=True)
    tensors = random_tensors(config)
    assert HEAD not in tensors
    manifest, notes = _export(tmp_path, config, tensors)
    np.testing.assert_allclose(_logits(tmp_path), reference_logits(config, tensors, TOKENS), rtol=0, atol=1e-4)
    _no_second_block(tmp_path / "out", manifest, tensors[EMBED])
    assert any("the embedding, stored once" in note for note in notes)


def _no_second_block(folder: Path, manifest: Manifest, matrix: Array) -> None:
    """Check that the weights file holds this matrix exactly once, in no orientation twice."""
    (data,) = folder.glob("*.data")
    held = data.read_bytes()
    assert data.stat().st_size < manifest.weight_bytes + matrix.nbytes
    assert held.count(matrix.tobytes()) + held.count(np.ascontiguousarray(matrix.T).tobytes()) == 1


@pytest.mark.parametrize("said", [False, None])
def test_only_the_embedding_and_not_tied_is_refused_by_name(tmp_path: Path, said: bool | None) -> None:
    config = small_config(tie_word_embeddings=said)
    tensors = random_tensors(config)
    del tensors[HEAD]
    with pytest.raises(lg.WeightsError, match="1 tensors are missing and 0 are not used") as caught:
        _export(tmp_path, config, tensors)
    assert caught.value.missing == (HEAD,)
    assert HEAD in str(caught.value)
    assert not (tmp_path / "out").exists()


def test_only_the_head_is_refused_by_name(tmp_path: Path) -> None:
    config, tensors = _both(tied=True, equal=False)
    del tensors[EMBED]
    with pytest.raises(lg.WeightsError) as caught:
        _export(tmp_path, config, tensors)
    assert EMBED in caught.value.missing


def test_a_head_of_another_width_is_refused(tmp_path: Path) -> None:
    config, tensors = _both(tied=True, equal=False)
    tensors[HEAD] = tensors[HEAD][:-1]
    with pytest.raises(lg.WeightsError, match=r"'lm_head.weight' is \(39, 32\) and the model needs \(40, 32\)"):
        _export(tmp_path, config, tensors)


def test_the_golden_tied_model_with_a_head_of_zeros_uses_the_head(goldens: Path, tmp_path: Path) -> None:
    # A head that is there is used whatever the flag says; the flag alone would give the golden's logits.
    config = read_json(goldens / "llama_tied" / "config.json")
    tensors = load_file(goldens / "llama_tied" / "model.safetensors")
    _export(tmp_path, config, {**tensors, HEAD: np.zeros_like(tensors[EMBED])})
    assert not np.any(_logits(tmp_path))


# --- names ---


def test_a_renamed_layer_lists_what_is_missing_and_what_is_left(tmp_path: Path) -> None:
    config = small_config()
    tensors = random_tensors(config)
    renamed = {f"wrapper.{name}" if ".layers.1." in name else name: numbers for name, numbers in tensors.items()}
    moved = {name for name in tensors if ".layers.1." in name}
    with pytest.raises(
        lg.WeightsError, match=rf"{len(moved)} tensors are missing and {len(moved)} are not used"
    ) as caught:
        _export(tmp_path, config, renamed)
    assert set(caught.value.missing) == moved
    assert set(caught.value.unexpected) == {f"wrapper.{name}" for name in moved}
    assert "model.layers.1.self_attn.q_proj.weight" in str(caught.value)
    assert "wrapper.model.layers.1." in str(caught.value)


def test_more_layers_than_the_config_has_are_refused(tmp_path: Path) -> None:
    tensors = random_tensors(small_config(num_hidden_layers=3))
    with pytest.raises(lg.WeightsError, match="0 tensors are missing and 9 are not used") as caught:
        _export(tmp_path, small_config(), tensors)
    assert all(".layers.2." in name for name in caught.value.unexpected)


def test_a_bias_that_the_config_does_not_have_is_not_dropped(tmp_path: Path) -> None:
    tensors = random_tensors(small_config(attention_bias=True))
    with pytest.raises(lg.WeightsError, match="0 tensors are missing and 8 are not used"):
        _export(tmp_path, small_config(), tensors)


def test_a_bias_that_the_config_has_must_be_there(tmp_path: Path) -> None:
    tensors = random_tensors(small_config())
    with pytest.raises(lg.WeightsError, match="8 tensors are missing and 0 are not used") as caught:
        _export(tmp_path, small_config(attention_bias=True), tensors)
    assert "model.layers.1.self_attn.o_proj.bias" in caught.value.missing


def test_buffers_of_old_checkpoints_are_passed_over(tmp_path: Path) -> None:
    config = small_config()
    tensors = random_tensors(config)
    _export(tmp_path, config, {**tensors, "model.layers.0.self_attn.rotary_emb.inv_freq": np.ones(4, np.float32)})
    np.testing.assert_allclose(_logits(tmp_path), reference_logits(config, tensors, TOKENS), rtol=0, atol=1e-4)


# --- shapes and numbers ---


@pytest.mark.parametrize(
    ("name", "sizes"),
    [
        (EMBED, (41, 32)),
        (EMBED, (32, 40)),
        ("model.norm.weight", (31,)),
        ("model.norm.weight", (1, 32)),
        ("model.layers.0.self_attn.k_proj.weight", (32, 32)),
        ("model.layers.1.mlp.down_proj.weight", (48, 32)),
        ("model.layers.1.mlp.gate_proj.weight", (48, 33)),
        ("model.layers.0.input_layernorm.weight", ()),
    ],
)
def test_a_wrong_shape_is_refused_with_both(tmp_path: Path, name: str, sizes: tuple[int, ...]) -> None:
    config = small_config()
    tensors = random_tensors(config)
    wanted = tensors[name].shape
    with pytest.raises(lg.WeightsError, match=f"tensor '{name}' is ") as caught:
        _export(tmp_path, config, {**tensors, name: np.zeros(sizes, np.float32)})
    assert vars(caught.value)["wanted"] == wanted
    assert vars(caught.value)["got"] == sizes
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("dtype", ["int8", "int64", "bool"])
def test_weights_that_are_no_floats_are_refused(tmp_path: Path, dtype: str) -> None:
    from safetensors.numpy import save_file

    config = small_config()
    tensors = random_tensors(config)
    tensors["model.layers.0.mlp.up_proj.weight"] = np.ones((48, 32), dtype)
    write_folder(tmp_path / "in", config, random_tensors(config))
    save_file(tensors, tmp_path / "in" / "model.safetensors")
    with pytest.raises(lg.DTypeError, match=rf"up_proj.weight' is {dtype}"):
        lg.convert(tmp_path / "in", tmp_path / "out")


@pytest.mark.parametrize("projection", ["q_proj", "k_proj", "v_proj", "o_proj"])
def test_a_square_matrix_is_used_as_the_hub_stores_it(tmp_path: Path, projection: str) -> None:
    # Square, so that no shape check sees a transpose: only the numbers do, and they are held against numpy's.
    config = small_config(num_key_value_heads=4)
    tensors = random_tensors(config)
    name = f"model.layers.0.self_attn.{projection}.weight"
    assert tensors[name].shape == (32, 32)
    _export(tmp_path, config, tensors)
    logits = _logits(tmp_path)

    np.testing.assert_allclose(logits, reference_logits(config, tensors, TOKENS), rtol=0, atol=1e-4)
    other = reference_logits(config, {**tensors, name: tensors[name].T}, TOKENS)
    assert np.abs(logits - other).max() > 0.05  # so a transposed one would have been found


def test_square_feed_forward_and_embedding_are_used_as_stored(tmp_path: Path) -> None:
    config = small_config(intermediate_size=32, vocab_size=32, tie_word_embeddings=True)
    tensors = random_tensors(config)
    tokens = TOKENS % 32
    _export(tmp_path, config, tensors)
    logits = Decoder.open(tmp_path / "out", threads=1).append(tokens.tolist())
    np.testing.assert_allclose(logits, reference_logits(config, tensors, tokens), rtol=0, atol=1e-4)
    for name in (EMBED, "model.layers.1.mlp.gate_proj.weight", "model.layers.1.mlp.down_proj.weight"):
        other = reference_logits(config, {**tensors, name: tensors[name].T}, tokens)
        assert np.abs(logits - other).max() > 0.05


def test_equal_matrices_of_different_layers_are_not_confused(tmp_path: Path) -> None:
    config = small_config()
    tensors = random_tensors(config)
    for name in list(tensors):
        if ".layers.1.mlp." in name:
            tensors[name] = tensors[name.replace(".layers.1.", ".layers.0.")].copy()
    tensors["model.layers.0.self_attn.v_proj.weight"] = tensors["model.layers.0.self_attn.k_proj.weight"].copy()
    _export(tmp_path, config, tensors)
    np.testing.assert_allclose(_logits(tmp_path), reference_logits(config, tensors, TOKENS), rtol=0, atol=1e-4)


def test_weights_that_are_not_numbers_are_exported_as_they_are(tmp_path: Path) -> None:
    # Nothing is repaired silently: a NaN in the checkpoint is a NaN in the logits.
    config = small_config()
    tensors = random_tensors(config)
    tensors["model.norm.weight"][3] = np.nan
    _export(tmp_path, config, tensors)
    assert np.isnan(_logits(tmp_path)).all()
