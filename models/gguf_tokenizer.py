"""The ``tokenizer.json`` that a GGUF file's vocabulary amounts to."""

from __future__ import annotations

import json
from typing import Any

from lazygraph.errors import UnsupportedError, WeightsError
from lazygraph.models.files import asking_line, ids_of, in_order
from lazygraph.models.gguf_file import GgufFile

# Token types. Source: gguf-py/gguf/constants.py, TokenType.
_NORMAL, _UNKNOWN, _CONTROL, _USER_DEFINED = 1, 2, 3, 4

_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_CL100K = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}%s"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_TEKKEN = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
    r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)

# tokenizer.ggml.pre -> the patterns that cut a text into words, one after the other.
# Source: the models' own tokenizer.json; for "default", which has none, llama.cpp's src/llama-vocab.cpp.
_WORDS = {
    "default": (r"[\p{P}\$\+<=>\^~\|]+", _GPT2, r"\p{N}+", "[0-9][0-9][0-9]"),
    "gpt-2": (_GPT2,),
    "smollm": (r"\p{N}", _GPT2),
    "llama-bpe": (_CL100K % "{1,3}",),
    "qwen2": (_CL100K % "",),
    "tekken": (_TEKKEN,),
}
_SAME_WORDS = {"llama3": "llama-bpe", "llama-v3": "llama-bpe", "deepseek-r1-qwen": "qwen2", "starcoder": "smollm"}

# Names that end a turn, looked for where the file names no such token itself.
_END_OF_TURN = ("<|eot_id|>", "<|im_end|>", "<|end|>", "<end_of_turn>")


def tokenizer_json(file: GgufFile) -> str:
    """Return what ``tokenizer.json`` would hold for this file's vocabulary.

    Raises:
        WeightsError: The vocabulary is absent or its lists do not fit each other.
        UnsupportedError: Its kind is neither ``gpt2`` (byte-level BPE) nor ``llama`` (SentencePiece BPE), or its
            way of cutting words is not known.
    """
    whole = file.metadata.get("tokenizer.huggingface.json")
    if isinstance(whole, str):
        return whole

    kind = file.metadata.get("tokenizer.ggml.model")
    if kind == "gpt2":
        content = _byte_level(file)
    elif kind == "llama":
        content = _sentencepiece(file)
    else:
        raise UnsupportedError(
            f"vocabulary kind {kind!r} is not read" if kind else "the file has no vocabulary",
            op="tokenizer",
            operands={"file": file.path, "key": "tokenizer.ggml.model"},
            expected="gpt2 (byte-level BPE) or llama (SentencePiece BPE)",
            at=asking_line(),
        )
    return json.dumps({"version": "1.0", "truncation": None, "padding": None, **content}, ensure_ascii=False)


def special_tokens(file: GgufFile) -> dict[str, str]:
    """Return the texts of the file's special tokens, by Hugging Face's names (``bos_token``)."""
    tokens = _list(file, "tokens", str)
    named = {}
    for name, key in (("bos", "bos"), ("eos", "eos"), ("unk", "unknown"), ("pad", "padding")):
        for token in _known_id(file, key, tokens):
            named[f"{name}_token"] = tokens[token]
    return named


def stop_ids(file: GgufFile) -> tuple[int, ...]:
    """Return the ids that end a text: end of sequence, of turn and of message, each once."""
    named = [ids_of(file.metadata.get(f"tokenizer.ggml.{key}_token_id")) for key in ("eos", "eot", "eom")]
    if not named[1]:
        tokens = file.metadata.get("tokenizer.ggml.tokens", [])
        named += [(tokens.index(text),) for text in _END_OF_TURN if text in tokens]
    return in_order(*named)


def chat_templates(file: GgufFile) -> dict[str, str]:
    """Return the file's chat templates by name; the usual one is called ``default``."""
    prefix = "tokenizer.chat_template"
    found = {
        name.removeprefix(prefix + "."): str(text)
        for name, text in file.metadata.items()
        if name.startswith(prefix + ".")
    }
    if prefix in file.metadata:
        found["default"] = str(file.metadata[prefix])
    return found


def _byte_level(file: GgufFile) -> dict[str, Any]:
    tokens = _list(file, "tokens", str)
    merges = _list(file, "merges", str)
    named = str(file.metadata.get("tokenizer.ggml.pre", "default"))
    cut = _SAME_WORDS.get(named, named)
    if cut not in _WORDS:
        raise UnsupportedError(
            f"the vocabulary cuts words the way of {named!r}, which is not known",
            op="tokenizer",
            operands={"file": file.path, "key": "tokenizer.ggml.pre"},
            expected="one of " + ", ".join([*_WORDS, *_SAME_WORDS]),
            at=asking_line(),
        )

    cuts: list[dict[str, Any]] = [
        {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}
        for pattern in _WORDS[cut]
    ]
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    return {
        "added_tokens": _added(file, tokens),
        "normalizer": {"type": "NFC"} if cut == "qwen2" else None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [*cuts, level]},
        "post_processor": _ends(file, tokens, add_bos=cut in ("llama-bpe", "tekken")),
        "decoder": level,
        "model": {
            "type": "BPE",
            "ignore_merges": cut in ("llama-bpe", "tekken"),
            "vocab": _vocab(tokens),
            "merges": merges,
        },
    }


def _sentencepiece(file: GgufFile) -> dict[str, Any]:
    tokens = _list(file, "tokens", str)
    scores = _list(file, "scores", float)
    if len(scores) != len(tokens):
        raise _bad(file, f"the vocabulary has {len(tokens)} tokens and {len(scores)} scores")

    prefix = bool(file.metadata.get("tokenizer.ggml.add_space_prefix", True))
    space = {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}
    back = {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}
    strip = [{"type": "Strip", "content": " ", "start": 1, "stop": 0}] if prefix else []
    named = file.metadata.get("tokenizer.ggml.unknown_token_id", 0)
    unknown = _known_id(file, "unknown", tokens) if named else (0,)
    if not unknown:
        raise _bad(file, f"the unknown token's id {named!r} is outside the vocabulary of {len(tokens)}")
    return {
        "added_tokens": _added(file, tokens),
        # Every stretch of text between special tokens gets its own leading space, as in llama.cpp.
        "normalizer": {
            "type": "Sequence",
            "normalizers": [{"type": "Prepend", "prepend": "▁"}, space] if prefix else [space],
        },
        "pre_tokenizer": None,
        "post_processor": _ends(file, tokens, add_bos=True),
        "decoder": {"type": "Sequence", "decoders": [back, {"type": "ByteFallback"}, {"type": "Fuse"}, *strip]},
        "model": {
            "type": "BPE",
            "unk_token": tokens[unknown[0]],
            "fuse_unk": True,
            "byte_fallback": True,
            "vocab": _vocab(tokens),
            "merges": _merges(tokens, scores, _types(file, tokens)),
        },
    }


def _merges(tokens: list[str], scores: list[float], types: list[int]) -> list[list[str]]:
    """Return the pairs that join into a token, best score first.

    SentencePiece takes the best-scoring pair, the leftmost of equals. Ranks cannot say "leftmost" across two ways to
    cut one token; the longer left part goes first, which is the same unless a token overlaps itself (``aaa``).
    """
    score_of = {token: score for token, score, kind in zip(tokens, scores, types, strict=True) if kind == _NORMAL}
    ranked = [
        (-score, -cut, token)
        for token, score in score_of.items()
        for cut in range(1, len(token))
        if token[:cut] in score_of and token[cut:] in score_of
    ]
    return [[token[:-cut], token[-cut:]] for _, cut, token in sorted(ranked)]


def _added(file: GgufFile, tokens: list[str]) -> list[dict[str, Any]]:
    types = _types(file, tokens)
    return [
        {
            "id": token,
            "content": text,
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
            "normalized": False,
            "special": kind != _USER_DEFINED,
        }
        for token, (text, kind) in enumerate(zip(tokens, types, strict=True))
        if kind in (_UNKNOWN, _CONTROL, _USER_DEFINED) and text
    ]


def _types(file: GgufFile, tokens: list[str]) -> list[int]:
    if "tokenizer.ggml.token_type" not in file.metadata:
        special = set(special_tokens(file).values())
        return [_CONTROL if text in special else _NORMAL for text in tokens]
    types = _list(file, "token_type", int)
    if len(types) != len(tokens):
        raise _bad(file, f"the vocabulary has {len(tokens)} tokens and {len(types)} token types")
    return types


def _ends(file: GgufFile, tokens: list[str], add_bos: bool) -> dict[str, Any] | None:
    """Return the post-processor that puts the first and last token around a text, or None when it has neither."""
    wanted = {
        "bos": bool(file.metadata.get("tokenizer.ggml.add_bos_token", add_bos)),
        "eos": bool(file.metadata.get("tokenizer.ggml.add_eos_token", False)),
    }
    ids: dict[str, int] = {}
    for name, add in wanted.items():
        for token in _known_id(file, name, tokens) if add else ():
            ids[name] = token
    if not ids:
        return None

    def one(name: str, kind: int) -> list[dict[str, Any]]:
        return [{"SpecialToken": {"id": tokens[ids[name]], "type_id": kind}}] if name in ids else []

    first = [*one("bos", 0), {"Sequence": {"id": "A", "type_id": 0}}, *one("eos", 0)]
    second = [*one("bos", 1), {"Sequence": {"id": "B", "type_id": 1}}, *one("eos", 1)]
    named = {tokens[token]: {"id": tokens[token], "ids": [token], "tokens": [tokens[token]]} for token in ids.values()}
    return {"type": "TemplateProcessing", "single": first, "pair": first + second, "special_tokens": named}


def _vocab(tokens: list[str]) -> dict[str, int]:
    # Of two equal texts (padding of the embedding's rows, usually) the first is the one that encoding gives.
    return {text: token for token, text in reversed(list(enumerate(tokens)))}


def _known_id(file: GgufFile, name: str, tokens: list[str]) -> tuple[int, ...]:
    """Return the id of a special token, or nothing where the file names none or one outside its vocabulary."""
    held = ids_of(file.metadata.get(f"tokenizer.ggml.{name}_token_id"))
    return tuple(token for token in held[:1] if token < len(tokens))


def _list(file: GgufFile, key: str, kind: type) -> list[Any]:
    values = file.metadata.get(f"tokenizer.ggml.{key}")
    if not isinstance(values, list) or not values or not isinstance(values[0], kind):
        raise _bad(file, f"metadata key 'tokenizer.ggml.{key}' is absent or not a list of {kind.__name__}")
    return values


def _bad(file: GgufFile, what: str) -> WeightsError:
    return WeightsError(what, op="tokenizer", operands={"file": file.path}, at=asking_line())
