"""Tokenizers made from GGUF vocabularies, against the algorithms that the vocabularies were made for."""

from __future__ import annotations

import random
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import gguf
import pytest
from tokenizers import Tokenizer as Core
from tokenizers import models, trainers

from lazygraph.errors import UnsupportedError, WeightsError
from lazygraph.models.text_stream import byte_alphabet
from lazygraph.models.tokenizer import Tokenizer

_NORMAL, _UNKNOWN, _CONTROL, _USER_DEFINED, _BYTE = 1, 2, 3, 4, 6


def _write(file: Path, kind: str, **keys: Any) -> Path:
    """Write a GGUF file without tensors; ``__`` in a key is a dot, and every key is a tokenizer's."""
    writer = gguf.GGUFWriter(file, "llama")
    writer.add_string("tokenizer.ggml.model", kind)
    for key, value in keys.items():
        name = "tokenizer." + (key.replace("__", ".") if "chat" in key or "__" in key else f"ggml.{key}")
        if isinstance(value, bool):
            writer.add_bool(name, value)
        elif isinstance(value, int):
            writer.add_uint32(name, value)
        elif isinstance(value, str):
            writer.add_string(name, value)
        else:
            writer.add_array(name, value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return file


_MERGES = ["1 2", "12 3", "123 4", "L L", "' LL", "! !", "Ġ !", "Ċ Ċ", "! Ċ", "Ġ a", "a b", "A b", "Ab a"]
_BYTE_TOKENS = [*byte_alphabet(), *(merge.replace(" ", "") for merge in _MERGES), "xyz"]
_ADDED = ["<bos>", "<eos>", "<|eot_id|>", "<tool>"]
_BOS, _EOS, _EOT, _TOOL = range(len(_BYTE_TOKENS), len(_BYTE_TOKENS) + 4)


def _byte_level(tmp_path: Path, **keys: Any) -> Tokenizer:
    types = [_NORMAL] * len(_BYTE_TOKENS) + [_CONTROL] * 3 + [_USER_DEFINED]
    named: dict[str, Any] = {
        "tokens": _BYTE_TOKENS + _ADDED,
        "token_type": types,
        "merges": _MERGES,
        "bos_token_id": _BOS,
        "eos_token_id": _EOS,
        **keys,
    }
    held = {key: value for key, value in named.items() if value is not None}
    return Tokenizer.from_gguf(_write(tmp_path / "v.gguf", "gpt2", **held))


def _pieces(tokenizer: Tokenizer, text: str) -> list[str]:
    return [tokenizer.decode([token], skip_special=False) for token in tokenizer.encode(text, add_special=False)]


@pytest.mark.parametrize(
    ("pre", "text", "pieces"),
    [
        ("gpt-2", "12345", ["1234", "5"]),
        ("default", "12345", ["123", "4", "5"]),
        ("smollm", "1234", ["1", "2", "3", "4"]),
        ("qwen2", "1234", ["1", "2", "3", "4"]),
        ("deepseek-r1-qwen", "1234", ["1", "2", "3", "4"]),
        ("tekken", "1234", ["1", "2", "3", "4"]),
        ("llama-bpe", "12345", ["123", "4", "5"]),
        ("llama3", "12345", ["123", "4", "5"]),
        ("gpt-2", "I'LL", ["I", "'", "LL"]),
        ("llama-bpe", "I'LL", ["I", "'LL"]),
        ("qwen2", "I'LL", ["I", "'LL"]),
        ("gpt-2", " !", [" !"]),
        ("default", " !", [" ", "!"]),
        ("gpt-2", "!\n", ["!", "\n"]),
        ("llama-bpe", "!\n", ["!\n"]),
        ("qwen2", "!\n", ["!\n"]),
        ("gpt-2", "\n\nx", ["\n", "\n", "x"]),
        ("llama-bpe", "\n\nx", ["\n\n", "x"]),
        ("gpt-2", "Aba", ["Aba"]),
        ("tekken", "abAba", ["ab", "Aba"]),
        ("gpt-2", "xyz", ["x", "y", "z"]),
        ("llama-bpe", "xyz", ["xyz"]),  # a whole word in the vocabulary needs no merges
        ("tekken", "xyz", ["xyz"]),
    ],
)
def test_each_way_of_cutting_words_is_its_models_own(tmp_path: Path, pre: str, text: str, pieces: list[str]) -> None:
    assert _pieces(_byte_level(tmp_path, pre=pre), text) == pieces


def test_without_a_named_way_the_default_is_used(tmp_path: Path) -> None:
    assert _pieces(_byte_level(tmp_path), "12345") == ["123", "4", "5"]


def test_a_way_that_is_not_known_is_refused_with_those_that_are(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match="the way of 'klingon'") as caught:
        _byte_level(tmp_path, pre="klingon")
    assert "smollm" in caught.value.expected


def test_qwen_texts_are_composed_first(tmp_path: Path) -> None:
    composed, apart = "é", "e\u0301"
    qwen, smollm = _byte_level(tmp_path, pre="qwen2"), _byte_level(tmp_path, pre="smollm")
    assert qwen.encode(apart) == qwen.encode(composed)
    assert smollm.encode(apart) != smollm.encode(composed)


def test_control_tokens_are_special_and_user_defined_ones_are_text(tmp_path: Path) -> None:
    tokenizer = _byte_level(tmp_path, pre="qwen2")
    assert tokenizer.encode("a<bos><tool>") == [_BYTE_TOKENS.index("a"), _BOS, _TOOL]
    assert tokenizer.decode([_BOS, _TOOL, _EOT]) == "<tool>"
    assert tokenizer.special == {"bos_token": "<bos>", "eos_token": "<eos>"}


def test_without_token_types_the_named_special_tokens_are_special(tmp_path: Path) -> None:
    tokenizer = _byte_level(tmp_path, pre="qwen2", token_type=None)
    assert tokenizer.encode("<eos>") == [_EOS]
    assert tokenizer.decode([_EOS]) == ""


@pytest.mark.parametrize(
    ("pre", "keys", "first", "last"),
    [
        ("qwen2", {}, False, False),
        ("llama-bpe", {}, True, False),
        ("llama-bpe", {"add_bos_token": False}, False, False),
        ("smollm", {"add_bos_token": True, "add_eos_token": True}, True, True),
        ("llama-bpe", {"bos_token_id": None}, False, False),
    ],
)
def test_first_and_last_tokens_follow_the_file(
    tmp_path: Path, pre: str, keys: dict[str, Any], first: bool, last: bool
) -> None:
    tokenizer = _byte_level(tmp_path, pre=pre, **keys)
    middle = tokenizer.encode("ab", add_special=False)
    assert middle == [_BYTE_TOKENS.index("ab")]
    assert tokenizer.encode("ab") == [_BOS] * first + middle + [_EOS] * last

    tokenizer.save(tmp_path / "saved")
    assert Tokenizer.open(tmp_path / "saved").encode("ab") == tokenizer.encode("ab")


def test_stop_ids_are_named_or_found_by_their_text(tmp_path: Path) -> None:
    assert _byte_level(tmp_path, pre="qwen2").stop_ids == (_EOS, _EOT)
    assert _byte_level(tmp_path, pre="qwen2", eot_token_id=_TOOL).stop_ids == (_EOS, _TOOL)
    assert _byte_level(tmp_path, pre="qwen2", eot_token_id=_TOOL, eom_token_id=_BOS).stop_ids == (_EOS, _TOOL, _BOS)


def test_ids_that_are_no_ids_are_passed_over(tmp_path: Path) -> None:
    tokenizer = _byte_level(tmp_path, pre="llama-bpe", bos_token_id="first", eos_token_id=100000)
    assert tokenizer.special == {}
    assert tokenizer.encode("ab") == [_BYTE_TOKENS.index("ab")]


def test_chat_templates_keep_their_names(tmp_path: Path) -> None:
    tokenizer = _byte_level(tmp_path, pre="qwen2", chat_template="one", chat_template__tool_use="two")
    assert tokenizer.templates == {"default": "one", "tool_use": "two"}


def test_a_tokenizer_json_inside_the_file_is_used_as_it_is(tmp_path: Path) -> None:
    core = Core(models.BPE(vocab={"a": 0, "b": 1, "ab": 2}, merges=[("a", "b")]))
    file = _write(tmp_path / "v.gguf", "anything", huggingface__json=core.to_str(), tokens=["a", "b", "ab"])
    assert Tokenizer.from_gguf(file).encode("ab") == [2]


@pytest.mark.parametrize(
    ("kind", "keys", "words"),
    [
        ("gpt2", {"tokens": None}, r"tokenizer\.ggml\.tokens"),
        ("gpt2", {"merges": None}, r"tokenizer\.ggml\.merges"),
        ("gpt2", {"token_type": [1, 1]}, "token types"),
        ("gpt2", {"merges": ["no such"]}, "the tokenizer cannot be made"),
        ("llama", {}, r"tokenizer\.ggml\.scores"),
        ("llama", {"scores": [0.0]}, "1 scores"),
        ("llama", {"scores": [0.0] * 3, "unknown_token_id": 9}, "unknown token's id 9"),
    ],
)
def test_a_vocabulary_whose_lists_do_not_fit_is_refused(
    tmp_path: Path, kind: str, keys: dict[str, Any], words: str
) -> None:
    named: dict[str, Any] = {"tokens": ["a", "b", "ab"], "merges": ["a b"], **keys}
    held = {key: value for key, value in named.items() if value is not None}
    with pytest.raises(WeightsError, match=words):
        Tokenizer.from_gguf(_write(tmp_path / "v.gguf", kind, **held))


def test_other_kinds_of_vocabulary_are_refused_with_those_that_are_read(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match="vocabulary kind 't5'") as caught:
        Tokenizer.from_gguf(_write(tmp_path / "v.gguf", "t5", tokens=["a"]))
    assert "llama (SentencePiece BPE)" in caught.value.expected


# SentencePiece: a vocabulary is trained here, and texts are cut by the algorithm itself.

_TEXT = (
    "the quick brown fox jumps over the lazy dog and then the other dogs over there rather than here "
    "whether weather or not she sells sea shells on the sea shore in the morning of the third of march "
)


def _pieces_and_scores() -> tuple[list[str], list[float], list[int]]:
    core = Core(models.BPE())
    spaced = "▁" + _TEXT.replace(" ", "▁")
    core.train_from_iterator([spaced] * 2, trainers.BpeTrainer(vocab_size=200, show_progress=False))
    ranked = [piece for piece, _ in sorted(core.get_vocab().items(), key=lambda entry: entry[1])]
    learned = random.Random(5).sample(ranked, len(ranked))  # ids need not follow the scores
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), *learned]
    scores = [0.0] * 259 + [-float(ranked.index(piece)) for piece in learned]
    types = [_UNKNOWN, _CONTROL, _CONTROL] + [_BYTE] * 256 + [_NORMAL] * len(learned)
    return tokens, scores, types


_TOKENS, _SCORES, _TYPES = _pieces_and_scores()


def _sentencepiece(tmp_path: Path, **keys: Any) -> Tokenizer:
    named: dict[str, Any] = {
        "tokens": _TOKENS,
        "scores": _SCORES,
        "token_type": _TYPES,
        "unknown_token_id": 0,
        "bos_token_id": 1,
        "eos_token_id": 2,
        **keys,
    }
    return Tokenizer.from_gguf(_write(tmp_path / "v.gguf", "llama", **named))


def _cut(text: str, ids: Mapping[str, int]) -> list[int]:
    """Return SentencePiece's own cut: join the best-scoring neighbours, leftmost of equals, until none joins."""
    symbols = list("▁" + text.replace(" ", "▁"))
    while True:
        joined = [(-_SCORES[ids[a + b]], at) for at, (a, b) in enumerate(pairwise(symbols)) if a + b in ids]
        if not joined:
            break
        _, at = min(joined)
        symbols[at : at + 2] = [symbols[at] + symbols[at + 1]]
    return [
        token
        for symbol in symbols
        for token in ([ids[symbol]] if symbol in ids else [3 + byte for byte in symbol.encode()])
    ]


def test_sentencepiece_texts_are_cut_as_its_algorithm_cuts_them(tmp_path: Path) -> None:
    tokenizer = _sentencepiece(tmp_path)
    ids = {piece: token for token, piece in enumerate(_TOKENS) if _TYPES[token] == _NORMAL}
    dice = random.Random(3)
    words = [*_TEXT.split(), "ü", "日本", "🙂", "X1", "\n", "."]
    texts = [_TEXT, " two  spaces ", *(" ".join(dice.choices(words, k=dice.randint(1, 12))) for _ in range(200))]
    texts += ["".join(dice.choices("thersoa ", k=30)) for _ in range(200)]
    for text in texts:
        got = tokenizer.encode(text, add_special=False)
        assert got == _cut(text, ids), text
        assert tokenizer.decode(got) == text
    assert max(len(_TOKENS[token]) for token in tokenizer.encode(_TEXT)) > 3


def test_sentencepiece_texts_begin_with_bos_and_spaces_follow_special_tokens(tmp_path: Path) -> None:
    tokenizer = _sentencepiece(tmp_path)
    the = _TOKENS.index("▁the")
    assert tokenizer.encode("the") == [1, the]
    assert tokenizer.encode("the</s>the", add_special=False) == [the, 2, the]
    assert tokenizer.encode("", add_special=False) == []
    assert tokenizer.stop_ids == (2,)
    assert _sentencepiece(tmp_path, add_bos_token=False).encode("the") == [the]


def test_without_the_space_prefix_text_is_taken_as_it_is(tmp_path: Path) -> None:
    tokenizer = _sentencepiece(tmp_path, add_space_prefix=False)
    assert tokenizer.encode(" the", add_special=False) == [_TOKENS.index("▁the")]
    assert tokenizer.decode([_TOKENS.index("▁the")]) == " the"
