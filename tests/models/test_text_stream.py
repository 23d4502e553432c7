"""Text that arrives token by token is the text that arrives at once, and no character is ever cut."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, decoders, models

from lazygraph.models.text_stream import TextStream, byte_alphabet, stream_for
from lazygraph.models.tokenizer import Tokenizer as Opened

_WORDS = ["▁the", "▁", "the", "▁▁", "é", "日", "\ufffd"]


def _byte_level() -> Tokenizer:
    core = Tokenizer(models.BPE(vocab=byte_alphabet(), merges=[]))
    core.decoder = decoders.ByteLevel()
    core.add_tokens([AddedToken("a  b → c", normalized=False)])
    core.add_special_tokens([AddedToken("<s>", normalized=False)])
    return core


def _byte_fallback(strip: int) -> Tokenizer:
    vocab = {f"<0x{byte:02X}>": byte for byte in range(256)} | {word: 256 + at for at, word in enumerate(_WORDS)}
    core = Tokenizer(models.BPE(vocab=vocab, merges=[], byte_fallback=True))
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    core.decoder = decoders.Sequence([*steps, decoders.Strip(" ", strip, 0)] if strip else steps)
    core.add_special_tokens([AddedToken("<s>", normalized=False)])
    return core


def _metaspace() -> Tokenizer:
    core = Tokenizer(models.BPE(vocab={word: at for at, word in enumerate(_WORDS)}, merges=[]))
    core.decoder = decoders.Metaspace()
    core.add_special_tokens([AddedToken("<s>", normalized=False)])
    return core


_CORES = {
    "byte level": _byte_level(),
    "byte fallback": _byte_fallback(1),
    "byte fallback, nothing stripped": _byte_fallback(0),
    "metaspace": _metaspace(),
}
_KINDS = {
    "byte level": "_ByteLevelStream",
    "byte fallback": "_ByteFallbackStream",
    "byte fallback, nothing stripped": "_ByteFallbackStream",
    "metaspace": "_WindowStream",
}


def _stream(core: Tokenizer, skip_special: bool = True) -> TextStream:
    return Opened(core).stream(skip_special)


@pytest.mark.parametrize("name", _CORES)
def test_each_decoder_gets_its_own_way(name: str) -> None:
    assert type(_stream(_CORES[name])).__name__ == _KINDS[name]


@given(tokens=st.lists(st.integers(0, 260)), skip=st.booleans())
@example(tokens=[226, 130], skip=True)
@example(tokens=[0xF0, 0x9F, 65, 0xC3, 0xE2, 0x82, 0xC3], skip=True)
@settings(max_examples=300, deadline=None)
def test_any_bytes_of_a_byte_level_vocabulary_give_what_decode_gives(tokens: list[int], skip: bool) -> None:
    core = _CORES["byte level"]
    stream = _stream(core, skip)
    text = "".join(map(stream.push, tokens)) + stream.finish()
    assert text == core.decode(tokens, skip_special_tokens=skip)


_CHARACTERS = st.text(max_size=3).map(lambda text: list(text.encode()))
_WHOLE = st.lists(st.one_of(_CHARACTERS, st.integers(256, 256 + len(_WORDS)).map(lambda word: [word]))).map(
    lambda groups: [token for group in groups for token in group]
)


@pytest.mark.parametrize("name", ["byte fallback", "byte fallback, nothing stripped"])
@given(tokens=_WHOLE, skip=st.booleans())
@settings(max_examples=200, deadline=None)
def test_characters_spelled_in_byte_tokens_give_what_decode_gives(name: str, tokens: list[int], skip: bool) -> None:
    core = _CORES[name]
    stream = _stream(core, skip)
    assert "".join(map(stream.push, tokens)) + stream.finish() == core.decode(tokens, skip_special_tokens=skip)


@given(tokens=st.lists(st.integers(0, len(_WORDS)), max_size=40))
@settings(max_examples=200, deadline=None)
def test_any_other_decoder_is_followed_too(tokens: list[int]) -> None:
    core = _CORES["metaspace"]
    stream = _stream(core)
    assert "".join(map(stream.push, tokens)) + stream.finish() == core.decode(tokens, skip_special_tokens=True)


@pytest.mark.parametrize("name", ["byte level", "byte fallback"])
def test_a_character_comes_whole_with_its_last_byte(name: str) -> None:
    core = _CORES[name]
    spelled = [*"é€🙂".encode()]  # both vocabularies give byte n the id n
    stream = _stream(core)
    assert [stream.push(token) for token in spelled] == ["", "é", "", "", "€", "", "", "", "🙂"]
    assert stream.finish() == ""


def test_broken_bytes_are_replaced_as_decode_replaces_them() -> None:
    core = _CORES["byte fallback"]
    for tokens in ([0xE2, 0x82, 256], [0xE2, 0x82], [0xE2, 0x41], [0xFF, 256], [256, 0x80, 256]):
        stream = _stream(core)
        assert "".join(map(stream.push, tokens)) + stream.finish() == core.decode(tokens)


def test_a_byte_that_begins_no_character_is_not_waited_for() -> None:
    stream = _stream(_CORES["byte fallback"])
    assert [stream.push(token) for token in (0xFF, 0xE2, 0x41, 0xC3, 0xA9)] == ["\ufffd", "", "\ufffd" * 2, "", "é"]


def test_characters_before_a_broken_byte_stay_as_they_were_shown() -> None:
    core = _CORES["byte fallback"]
    stream = _stream(core)
    shown = "".join(map(stream.push, [*"€".encode(), 0x80, 256])) + stream.finish()
    assert shown == "€\ufffd the"
    assert core.decode([*"€".encode(), 0x80, 256]) == "\ufffd" * 4 + " the"


def test_only_the_texts_first_space_is_dropped() -> None:
    stream = _stream(_CORES["byte fallback"])
    assert [stream.push(token) for token in (256, 256, 257)] == ["the", " the", " "]
    stream = _stream(_CORES["byte fallback"])
    assert [stream.push(token) for token in (257, 256)] == ["", " the"]


def test_finish_starts_a_new_text() -> None:
    stream = _stream(_CORES["byte fallback"])
    assert (stream.push(256), stream.finish(), stream.push(256)) == ("the", "", "the")
    stream.push(0xE2)
    assert (stream.finish(), stream.push(256)) == ("\ufffd", "the")


class _Counting:
    """A tokenizer that counts the tokens it is asked to decode, and whose text never becomes whole."""

    def __init__(self) -> None:
        self.longest = 0

    def get_added_tokens_decoder(self) -> dict[int, Any]:
        return {}

    def decode(self, tokens: list[int], skip_special_tokens: bool) -> str:
        self.longest = max(self.longest, len(tokens))
        return "\ufffd" * len(tokens)


def test_a_push_costs_the_same_however_long_the_text() -> None:
    core: Any = _Counting()
    stream = stream_for(core, None, True)
    text = "".join(stream.push(0) for _ in range(1001)) + stream.finish()
    assert text == "\ufffd" * 1001
    assert core.longest <= 16


@pytest.mark.parametrize("text", ["Hello, world! 日本語 🙂🙂", "naïve café\n\n\ttabs"])
@pytest.mark.smollm2
def test_smollm2_streams_texts_of_many_bytes(smollm2: Opened, text: str) -> None:
    stream, shown = smollm2.stream(), ""
    for token in smollm2.encode(text):
        shown += stream.push(token)
        assert text.startswith(shown)
    assert shown + stream.finish() == text


@pytest.fixture(scope="module")
def smollm2(smollm2_path: Any) -> Opened:
    """SmolLM2's tokenizer."""
    return Opened.from_gguf(smollm2_path)
