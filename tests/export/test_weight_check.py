"""Opening with the weights checked: a byte that differs is found, in a file of the right name and size."""

from __future__ import annotations

from pathlib import Path

import pytest

import lazygraph as lg

GOLDENS = Path(__file__).parents[1] / "goldens"


def test_a_damaged_weights_file_is_found_when_asked(tmp_path: Path) -> None:
    lg.convert(GOLDENS / "llama", tmp_path / "e", max_seq_len=8)
    (weights,) = (tmp_path / "e").glob("*.data")
    lg.Decoder.open(tmp_path / "e", check_weights=True)
    content = bytearray(weights.read_bytes())
    content[-3] ^= 1
    weights.write_bytes(content)
    lg.Decoder.open(tmp_path / "e")  # it looks like the file that was written
    with pytest.raises(lg.ExportError) as caught:
        lg.Decoder.open(tmp_path / "e", check_weights=True)
    assert caught.value.what == f"{weights} is damaged: its content is not what its name says"
    weights.unlink()
    with pytest.raises(lg.ExportError, match="cannot be read"):
        lg.Decoder.open(tmp_path / "e", check_weights=True)
