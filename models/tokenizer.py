"""Text to token ids and back, chat templates, and the ids that end a text."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lazygraph.errors import IndexRangeError, OperandError, UnsupportedError, WeightsError
from lazygraph.models import chat, gguf_tokenizer
from lazygraph.models.files import asking_line, ids_of, in_order, read_json, read_json_if_there, require
from lazygraph.models.gguf_file import GgufFile
from lazygraph.models.text_stream import TextStream, stream_for

if TYPE_CHECKING:
    import tokenizers

_FILE, _CONFIG = "tokenizer.json", "tokenizer_config.json"
_SPECIAL = ("bos_token", "eos_token", "unk_token", "pad_token", "sep_token", "cls_token", "mask_token")
_STOP_IDS = "stop_token_ids"  # lazygraph's own key: what save() found out, so that open() need not look again


class Tokenizer:
    """A checkpoint's tokenizer, run by the tokenizers library. Make one with ``open`` or ``from_gguf``.

    Args:
        core: The tokenizers library's tokenizer.
        special: Texts of special tokens by Hugging Face's names (``bos_token``).
        templates: Jinja chat templates by name; the usual one is called ``default``.
        stop_ids: Token ids that end a text.
        add_bos: Whether ``encode`` begins with ``bos_token``; None leaves it to ``core``.
        add_eos: Whether ``encode`` ends with ``eos_token``; None leaves it to ``core``.

    Raises:
        WeightsError: A special token that has to be added is not in the vocabulary.
    """

    def __init__(
        self,
        core: tokenizers.Tokenizer,
        *,
        special: Mapping[str, str] | None = None,
        templates: Mapping[str, str] | None = None,
        stop_ids: Iterable[int] = (),
        add_bos: bool | None = None,
        add_eos: bool | None = None,
    ) -> None:
        self._core = core
        self.special = dict(special or {})
        self.templates = dict(templates or {})
        self._stop_ids = in_order(stop_ids)
        self.add_bos = add_bos
        self.add_eos = add_eos
        self._decoder: object = json.loads(core.decoder.__getstate__()) if core.decoder is not None else None

        # tokenizer.json's own post-processor is the first word; the config may overrule it, either way.
        around = core.encode("", add_special_tokens=True).ids
        has_bos = bool(around) and around[0] == self.bos_id
        has_eos = bool(around) and around[-1] == self.eos_id
        self._first, self._without_first = self._end("bos_token", add_bos, has_bos)
        self._last, self._without_last = self._end("eos_token", add_eos, has_eos)

    @classmethod
    def open(cls, folder: str | Path) -> Tokenizer:
        """Return the tokenizer of a Hugging Face folder, or of one that ``save`` wrote.

        Besides ``tokenizer.json`` it reads, where they are, ``tokenizer_config.json`` (special tokens, chat
        templates), ``chat_template.jinja``, ``generation_config.json`` and ``config.json`` (stop ids).

        Raises:
            WeightsError: There is no ``tokenizer.json``, or one of the files is broken.
        """
        place = Path(folder)
        if not (place / _FILE).is_file():
            raise WeightsError(
                f"the folder has no {_FILE}",
                op="tokenizer",
                operands={"folder": place},
                hint="transformers' fast tokenizers save one" if place.is_dir() else "no such folder",
                at=asking_line(),
            )
        core = _core(place / _FILE)
        config = read_json_if_there(place / _CONFIG)
        special = _special(place, config)
        return cls(
            core,
            special=special,
            templates=_templates(place, config),
            stop_ids=_stop_ids(core, place, config, special),
            add_bos=_flag(config, "add_bos_token"),
            add_eos=_flag(config, "add_eos_token"),
        )

    @classmethod
    def from_gguf(cls, source: str | Path | GgufFile) -> Tokenizer:
        """Return the tokenizer that a GGUF file's metadata describes.

        Raises:
            WeightsError: The file is broken, or its vocabulary's lists do not fit each other.
            UnsupportedError: Its kind of vocabulary, or its way of cutting words, is not known.
        """
        file = source if isinstance(source, GgufFile) else GgufFile(source)
        return cls(
            _core(file.path, gguf_tokenizer.tokenizer_json(file)),
            special=gguf_tokenizer.special_tokens(file),
            templates=gguf_tokenizer.chat_templates(file),
            stop_ids=gguf_tokenizer.stop_ids(file),
        )

    @property
    def stop_ids(self) -> tuple[int, ...]:
        """The token ids that end a text, each once."""
        return self._stop_ids

    @property
    def bos_id(self) -> int | None:
        """The id of the token that begins a text, or None."""
        return self.token_id(self.special.get("bos_token"))

    @property
    def eos_id(self) -> int | None:
        """The id of the token that ends a text, or None."""
        return self.token_id(self.special.get("eos_token"))

    @property
    def vocab_size(self) -> int:
        """Tokens in the vocabulary, added ones included; a model may have more rows."""
        return int(self._core.get_vocab_size(with_added_tokens=True))

    def token_id(self, text: str | None) -> int | None:
        """Return the id of the token of exactly this text, or None."""
        return None if text is None else self._core.token_to_id(text)

    def encode(self, text: str, add_special: bool = True) -> list[int]:
        """Return the token ids of a text. Special tokens written in it are recognised.

        Args:
            text: Any text.
            add_special: Add the tokens that the checkpoint puts around every text (usually ``bos_token`` or none).
                Pass False for what ``chat`` returns: a template writes its own.

        Raises:
            OperandError: ``text`` is not a string.
        """
        if not isinstance(text, str):
            raise OperandError(f"the text is a {type(text).__name__}", op="encode", expected="a str", at=asking_line())
        try:
            ids: list[int] = self._core.encode(text, add_special_tokens=add_special).ids
        except TypeError as error:  # what the library says of a str that UTF-8 cannot hold
            at = next((at for at, character in enumerate(text) if "\ud800" <= character <= "\udfff"), 0)
            raise OperandError(
                f"the text has half a character at {at}: {text[at]!r}",
                op="encode",
                expected="text without lone surrogates",
                at=asking_line(),
            ) from error
        if not add_special:
            return ids
        if self._without_first and ids and ids[0] == self.bos_id:
            ids = ids[1:]
        if self._without_last and ids and ids[-1] == self.eos_id:
            ids = ids[:-1]
        return [*self._first, *ids, *self._last]

    def decode(self, ids: Iterable[int], skip_special: bool = True) -> str:
        """Return the text of token ids; an id that the vocabulary lacks has none.

        Args:
            ids: Token ids.
            skip_special: Leave special tokens out.

        Raises:
            IndexRangeError: An id is negative.
        """
        tokens = [int(token) for token in ids]
        if tokens and min(tokens) < 0:
            raise IndexRangeError(f"token id {min(tokens)} is negative", op="decode", at=asking_line())
        return str(self._core.decode(tokens, skip_special_tokens=skip_special))

    def stream(self, skip_special: bool = True) -> TextStream:
        """Return a new stream: ``push(id)`` gives text as it becomes whole, ``finish()`` the rest."""
        return stream_for(self._core, self._decoder, skip_special)

    def chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        add_generation_prompt: bool = True,
        *,
        template: str = "default",
        variables: Mapping[str, Any] | None = None,
    ) -> str:
        """Return a conversation as the text that the model was trained on; encode it with ``add_special=False``.

        Args:
            messages: Each with ``role`` and ``content``.
            add_generation_prompt: End with the words that begin an answer.
            template: Which of ``templates``.
            variables: Further names for the template, such as ``tools`` or ``enable_thinking``.

        Raises:
            UnsupportedError: The checkpoint has no such template, or it is not valid.
            OperandError: The messages are no messages, or the template refuses them.
        """
        if template not in self.templates:
            raise UnsupportedError(
                f"the checkpoint has no chat template {template!r}",
                op="chat",
                expected="one of " + ", ".join(self.templates) if self.templates else "",
                hint="" if self.templates else "a base model has none: encode plain text instead",
                at=asking_line(),
            )
        names = {**self.special, **(variables or {})}
        return chat.render(self.templates[template], messages, add_generation_prompt, names)

    def save(self, folder: str | Path) -> None:
        """Write ``tokenizer.json`` and a ``tokenizer_config.json`` from which ``open`` makes an equal tokenizer.

        Raises:
            OSError: The folder cannot be written.
        """
        place = Path(folder)
        place.mkdir(parents=True, exist_ok=True)
        config: dict[str, Any] = {**self.special, _STOP_IDS: list(self._stop_ids)}
        if self.add_bos is not None:
            config["add_bos_token"] = self.add_bos
        if self.add_eos is not None:
            config["add_eos_token"] = self.add_eos
        if list(self.templates) == ["default"]:
            config["chat_template"] = self.templates["default"]
        elif self.templates:
            config["chat_template"] = [{"name": name, "template": text} for name, text in self.templates.items()]

        (place / _FILE).write_text(self._core.to_str(), encoding="utf-8")
        (place / _CONFIG).write_text(json.dumps(config, ensure_ascii=False, indent=2) + "\n", encoding="utf-8")

    def _end(self, name: str, wanted: bool | None, has: bool) -> tuple[list[int], bool]:
        """Return the ids to add at one end of a text, and whether to take off what ``core`` adds there."""
        if not wanted or has:
            return [], wanted is False and has
        token = self.token_id(self.special.get(name))
        if token is None:
            raise WeightsError(
                f"every text is to have {name}, and the vocabulary has no such token",
                op="tokenizer",
                operands={name: repr(self.special.get(name))},
                at=asking_line(),
            )
        return [token], False

    def __repr__(self) -> str:
        return f"Tokenizer({self.vocab_size} tokens, stop ids {list(self._stop_ids)})"


def _core(file: Path, content: str | None = None) -> tokenizers.Tokenizer:
    """Return the library's tokenizer, from what ``tokenizer.json`` holds or would hold."""
    require("tokenizers")
    from tokenizers import Tokenizer as Core

    try:
        core = Core.from_file(str(file)) if content is None else Core.from_str(content)
    except Exception as error:  # the library raises plain Exception
        raise WeightsError(
            f"the tokenizer cannot be made: {error}",
            op="tokenizer",
            operands={"file": file},
            hint="an interrupted download, or a Git LFS pointer instead of the file" if content is None else "",
            at=asking_line(),
        ) from error
    # Files keep the padding and truncation of the training run; a prompt wants neither.
    core.no_padding()
    core.no_truncation()
    return core


def _special(folder: Path, config: Mapping[str, Any]) -> dict[str, str]:
    """Return special tokens' texts: from the tokenizer's config, or from the older file of their own."""
    older = read_json_if_there(folder / "special_tokens_map.json")
    found = {}
    for name in _SPECIAL:
        entry = config.get(name, older.get(name))
        text = entry.get("content") if isinstance(entry, dict) else entry
        if isinstance(text, str):
            found[name] = text
    return found


def _templates(folder: Path, config: Mapping[str, Any]) -> dict[str, str]:
    held = config.get("chat_template")
    named = held if isinstance(held, list) else [{"name": "default", "template": held}]
    found = {
        str(entry.get("name")): entry["template"]
        for entry in named
        if isinstance(entry, dict) and isinstance(entry.get("template"), str)
    }

    files = {"default": folder / "chat_template.jinja"}
    files |= {file.stem: file for file in sorted((folder / "additional_chat_templates").glob("*.jinja"))}
    for name, file in files.items():
        if file.is_file():
            found[name] = file.read_text(encoding="utf-8")
    return found


def _stop_ids(
    core: tokenizers.Tokenizer, folder: Path, config: Mapping[str, Any], special: Mapping[str, str]
) -> tuple[int, ...]:
    if _STOP_IDS in config:
        return ids_of(config[_STOP_IDS])
    eos = core.token_to_id(special["eos_token"]) if "eos_token" in special else None
    return in_order(stop_ids_in(folder), ids_of(eos))


def stop_ids_in(folder: Path) -> tuple[int, ...]:
    """Return the end-of-sequence ids of a folder's ``generation_config.json`` and ``config.json``, each once.

    Raises:
        WeightsError: One of the two is broken.
    """
    files = [folder / "generation_config.json", folder / "config.json"]
    return in_order(*(ids_of(read_json(file).get("eos_token_id")) for file in files if file.is_file()))


def _flag(config: Mapping[str, Any], name: str) -> bool | None:
    value = config.get(name)
    return value if isinstance(value, bool) else None
