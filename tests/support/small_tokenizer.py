"""A byte-level tokenizer of 160 tokens, made by hand, for models with a vocabulary that small."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

TEMPLATE = (
    "{% for message in messages %}{{ bos_token }}{{ message.role }}: {{ message.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant:{% endif %}"
)


def chat_text(prompt: str) -> str:
    """Return what the template makes of one user message."""
    return f"<s>user: {prompt}\nassistant:"


def write_tokenizer(folder: Path, template: bool = True, eos: bool = True) -> None:
    """Write ``tokenizer.json`` and ``tokenizer_config.json``: printable ASCII, newline, and pairs of letters."""
    vocab = {"<pad>": 0, "<s>": 1, "</s>": 2}
    for symbol in ["Ġ", "Ċ", *(chr(code) for code in range(33, 127))]:  # how byte-level BPE writes space and newline
        vocab[symbol] = len(vocab)
    merges = []
    for first, second in itertools.product("aeionrst", "aeionrst"):
        if len(vocab) < 160:
            merges.append([first, second])
            vocab[first + second] = len(vocab)
    assert len(vocab) == 160
    specials = [
        {"id": vocab[text], "content": text, "special": True}
        | dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
        for text in ("<pad>", "<s>", "</s>")
    ]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    model = {"type": "BPE", "vocab": vocab, "merges": merges, "fuse_unk": False, "byte_fallback": False}
    content: dict[str, Any] = {
        "version": "1.0",
        "added_tokens": specials,
        "pre_tokenizer": byte_level,
        "decoder": byte_level,
        "model": model | {"unk_token": None, "dropout": None},
    }
    (folder / "tokenizer.json").write_text(json.dumps(content | {"normalizer": None, "post_processor": None}))
    config: dict[str, Any] = {"bos_token": "<s>"}
    if eos:
        config["eos_token"] = "</s>"
    if template:
        config["chat_template"] = TEMPLATE
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
