"""Text from tokens that arrive one at a time, never a part of a character."""

from __future__ import annotations

import codecs
from typing import TYPE_CHECKING

from lazygraph.errors import IndexRangeError
from lazygraph.models.files import asking_line

if TYPE_CHECKING:
    import tokenizers


class TextStream:
    """Turns tokens into text as they come: what all calls return, joined, is the text that ``decode`` gives.

    A character whose bytes are spread over tokens is held back until its last byte. Each call costs the same, however
    many went before. One difference is left to tokenizers with byte fallback, where ``decode`` shows a whole run of
    byte tokens as replacement characters if any of its bytes is wrong: characters of that run which were complete
    before the wrong byte came have been returned by then, and stay right.

    Args:
        core: The tokenizers library's tokenizer.
        skip_special: Leave special tokens out of the text.
    """

    def __init__(self, core: tokenizers.Tokenizer, skip_special: bool = True) -> None:
        self._core = core
        added = core.get_added_tokens_decoder()
        self._skipped = frozenset(token for token, shape in added.items() if skip_special and shape.special)
        self._begin()

    def push(self, token: int) -> str:
        """Return the text that this token completes: often a word, sometimes nothing yet.

        Args:
            token: A token id; one that the vocabulary lacks has no text.

        Raises:
            IndexRangeError: The id is negative.
        """
        if token < 0:
            raise IndexRangeError(f"token id {token} is negative", op="push", at=asking_line())
        if token in self._skipped:
            return ""
        return self._add(int(token))

    def finish(self) -> str:
        """Return what was held back (a character cut short becomes U+FFFD) and start a new text."""
        rest = self._rest()
        self._begin()
        return rest

    def _begin(self) -> None:
        raise NotImplementedError

    def _add(self, token: int) -> str:
        raise NotImplementedError

    def _rest(self) -> str:
        raise NotImplementedError


def stream_for(core: tokenizers.Tokenizer, decoder: object, skip_special: bool) -> TextStream:
    """Return the stream that fits a decoder, given as ``tokenizer.json`` writes it.

    Byte-level and SentencePiece decoders are followed byte by byte; any other is asked about a few tokens at a time.
    """
    steps = _steps(decoder)
    kinds = [step.get("type") for step in steps]
    if kinds == ["ByteLevel"]:
        return _ByteLevelStream(core, skip_special)

    # What SentencePiece models have. A Strip at the end of the text would need to know where the text ends.
    if kinds in (["Replace", "ByteFallback", "Fuse", "Strip"], ["Replace", "ByteFallback", "Fuse"]):
        replace, strip = steps[0], steps[3] if len(steps) == 4 else {"content": " ", "start": 0, "stop": 0}
        plain = replace.get("pattern") == {"String": "▁"} and replace.get("content") == " "
        if plain and strip.get("content") == " " and strip.get("stop") == 0:
            start = strip.get("start")
            return _ByteFallbackStream(core, skip_special, start if isinstance(start, int) else 0)
    return _WindowStream(core, skip_special)


def _steps(decoder: object) -> list[dict[str, object]]:
    if not isinstance(decoder, dict):
        return []
    inner = decoder.get("decoders")
    return list(inner) if decoder.get("type") == "Sequence" and isinstance(inner, list) else [decoder]


def byte_alphabet() -> dict[str, int]:
    """Return the byte that each character of a byte-level vocabulary stands for.

    Source: openai/gpt-2, src/encoder.py, bytes_to_unicode.
    """
    shown = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = [byte for byte in range(256) if byte not in shown]
    return {chr(byte): byte for byte in shown} | {chr(256 + rank): byte for rank, byte in enumerate(hidden)}


class _ByteLevelStream(TextStream):
    """Each token is bytes; only UTF-8 has to be waited for."""

    def __init__(self, core: tokenizers.Tokenizer, skip_special: bool) -> None:
        self._alphabet = byte_alphabet()
        super().__init__(core, skip_special)

    def _begin(self) -> None:
        self._utf8 = codecs.getincrementaldecoder("utf-8")("replace")

    def _add(self, token: int) -> str:
        piece = self._core.id_to_token(token)
        if piece is None:
            return ""
        try:
            held = bytes(self._alphabet[character] for character in piece)
        except KeyError:  # an added token that is plain text
            held = piece.encode("utf-8")
        return self._utf8.decode(held)

    def _rest(self) -> str:
        return self._utf8.decode(b"", final=True)


class _ByteFallbackStream(TextStream):
    """A token is text with ``▁`` for a space, or ``<0xE2>`` for one byte; the text loses its first spaces."""

    def __init__(self, core: tokenizers.Tokenizer, skip_special: bool, strip: int) -> None:
        self._strip = strip
        super().__init__(core, skip_special)

    def _begin(self) -> None:
        self._held = b""
        self._to_strip = self._strip

    def _add(self, token: int) -> str:
        piece = self._core.id_to_token(token)
        if piece is None:
            return ""
        byte = _byte_of(piece)
        if byte is None:
            return self._stripped(self._replaced() + piece.replace("▁", " "))

        self._held += bytes((byte,))
        try:
            text = self._held.decode("utf-8")
        except UnicodeDecodeError as error:
            # "unexpected end of data" may still become a character; anything else never will.
            return "" if error.reason == "unexpected end of data" else self._stripped(self._replaced())
        self._held = b""
        return self._stripped(text)

    def _rest(self) -> str:
        return self._stripped(self._replaced())

    def _replaced(self) -> str:
        text, self._held = "\ufffd" * len(self._held), b""
        return text

    def _stripped(self, text: str) -> str:
        while self._to_strip and text.startswith(" "):
            text = text[1:]
            self._to_strip -= 1
        if text:
            self._to_strip = 0
        return text


def _byte_of(piece: str) -> int | None:
    if len(piece) != 6 or not piece.startswith("<0x") or not piece.endswith(">"):
        return None
    try:
        return int(piece[3:5], 16)
    except ValueError:
        return None


class _WindowStream(TextStream):
    """Any other decoder: the new tokens are decoded after the ones before them, which are then taken off again."""

    _LONGEST = 8  # tokens held at most: no character has more than four bytes

    def _begin(self) -> None:
        self._before: list[int] = []
        self._held: list[int] = []

    def _add(self, token: int) -> str:
        self._held.append(token)
        text = self._new_text()
        if text.endswith("\ufffd") and len(self._held) < self._LONGEST:
            return ""
        self._before, self._held = self._held, []
        return text

    def _rest(self) -> str:
        return self._new_text() if self._held else ""

    def _new_text(self) -> str:
        before = self._decode(self._before)
        text = self._decode(self._before + self._held)
        return text[len(before) :] if text.startswith(before) else text

    def _decode(self, tokens: list[int]) -> str:
        return str(self._core.decode(tokens, skip_special_tokens=bool(self._skipped)))
