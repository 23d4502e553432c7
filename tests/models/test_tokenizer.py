"""Tokenizers: the real one against its golden, the rest against readings written here."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, decoders, models, pre_tokenizers, processors
from tokenizers import Tokenizer as Core

from lazygraph.errors import IndexRangeError, OperandError, UnsupportedError, WeightsError
from lazygraph.models.text_stream import byte_alphabet
from lazygraph.models.tokenizer import Tokenizer

_USER = [{"role": "user", "content": "Hi"}]
Make = Callable[..., Path]


def _core(add_bos: bool = False) -> Core:
    """Return a byte-level tokenizer of 256 bytes, one merge and three special tokens."""
    vocab = byte_alphabet() | {"Hi": 256}
    core = Core(models.BPE(vocab=vocab, merges=[("H", "i")]))
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    core.add_special_tokens([AddedToken(text, normalized=False) for text in ("<s>", "</s>", "<|eot|>")])
    if add_bos:
        core.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 257)])
    return core


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """Write a Hugging Face folder: the tokenizer, and JSON or text files by name."""

    def write(config: dict[str, Any] | None = None, add_bos: bool = False, **files: Any) -> Path:
        (tmp_path / "tokenizer.json").write_text(_core(add_bos).to_str(), encoding="utf-8")
        named = {"tokenizer_config.json": {"bos_token": "<s>", "eos_token": "</s>", **(config or {})}}
        named |= {name.replace("__", "."): content for name, content in files.items()}
        for name, content in named.items():
            text = content if isinstance(content, str) else json.dumps(content)
            (tmp_path / name).write_text(text, encoding="utf-8")
        return tmp_path

    return write


@pytest.mark.smollm2
def test_smollm2_reproduces_its_golden(goldens: Path, smollm2_path: Path, tmp_path: Path) -> None:
    cases = json.loads((goldens / "smollm2_135m.json").read_text(encoding="utf-8"))["cases"]
    first = Tokenizer.from_gguf(smollm2_path)
    first.save(tmp_path)

    assert cases
    for tokenizer in (first, Tokenizer.open(tmp_path)):
        for case in cases:
            text = tokenizer.chat([{"role": "user", "content": case["user"]}])
            assert text == case["text"]
            assert tokenizer.encode(text, add_special=False) == case["prompt_tokens"]
            assert tokenizer.encode(text) == case["prompt_tokens"]
            assert tokenizer.decode(case["prompt_tokens"], skip_special=False) == text
            assert tokenizer.decode(case["new_tokens"]) == case["new_text"]
            stream = tokenizer.stream()
            assert "".join(map(stream.push, case["new_tokens"])) + stream.finish() == case["new_text"]
        assert tokenizer.stop_ids == (2,)
        assert (tokenizer.bos_id, tokenizer.eos_id, tokenizer.vocab_size) == (1, 2, 49152)


def test_bytes_round_trip_and_special_tokens_in_text_are_recognised(make: Make) -> None:
    tokenizer = Tokenizer.open(make())
    assert tokenizer.encode("<s>Hi</s>") == [257, 256, 258]
    assert tokenizer.decode([257, 256, 258]) == "Hi"
    assert tokenizer.decode([257, 256, 258], skip_special=False) == "<s>Hi</s>"
    assert tokenizer.decode(tokenizer.encode("naïve → 🙂")) == "naïve → 🙂"
    assert tokenizer.decode([]) == ""
    assert tokenizer.decode([256, 99999]) == "Hi"


@pytest.mark.parametrize(
    ("in_file", "in_config", "ids"),
    [
        (False, None, [256]),
        (False, False, [256]),
        (False, True, [257, 256]),
        (True, None, [257, 256]),
        (True, True, [257, 256]),
        (True, False, [256]),
    ],
)
def test_the_config_overrules_the_file_on_the_first_token(
    make: Make, tmp_path: Path, in_file: bool, in_config: bool | None, ids: list[int]
) -> None:
    config = {} if in_config is None else {"add_bos_token": in_config}
    tokenizer = Tokenizer.open(make(config, add_bos=in_file))
    assert tokenizer.encode("Hi") == ids
    assert tokenizer.encode("Hi", add_special=False) == [256]
    tokenizer.save(tmp_path / "saved")
    assert Tokenizer.open(tmp_path / "saved").encode("Hi") == ids


def test_a_last_token_is_added_when_the_config_says_so(make: Make) -> None:
    assert Tokenizer.open(make({"add_eos_token": True})).encode("Hi") == [256, 258]


def test_a_first_token_that_does_not_exist_is_refused(make: Make) -> None:
    with pytest.raises(WeightsError, match="every text is to have bos_token"):
        Tokenizer.open(make({"add_bos_token": True, "bos_token": "<none>"}))


@pytest.mark.parametrize(
    ("files", "ids"),
    [
        ({}, (258,)),
        ({"generation_config__json": {"eos_token_id": 259}}, (259, 258)),
        ({"generation_config__json": {"eos_token_id": [259, 258]}}, (259, 258)),
        ({"config__json": {"eos_token_id": 256}}, (256, 258)),
        ({"config__json": {"eos_token_id": None}, "generation_config__json": {}}, (258,)),
    ],
)
def test_stop_ids_are_gathered_from_every_file(make: Make, files: dict[str, Any], ids: tuple[int, ...]) -> None:
    assert Tokenizer.open(make(**files)).stop_ids == ids


def test_special_tokens_may_be_objects_or_stand_in_the_older_file(make: Make) -> None:
    tokenizer = Tokenizer.open(
        make({"eos_token": {"content": "<|eot|>"}}, special_tokens_map__json={"pad_token": "Hi"})
    )
    assert (tokenizer.eos_id, tokenizer.special["pad_token"]) == (259, "Hi")


def test_templates_come_as_text_as_a_list_or_as_a_file(make: Make, tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match="no chat template 'default'"):
        Tokenizer.open(make()).chat(_USER)

    tokenizer = Tokenizer.open(make({"chat_template": "{{ bos_token }}{{ messages[0].content }}{{ eos_token }}"}))
    assert tokenizer.chat(_USER) == "<s>Hi</s>"

    named = [{"name": "default", "template": "plain"}, {"name": "tool_use", "template": "{{ tools }}"}]
    tokenizer = Tokenizer.open(make({"chat_template": named}))
    tokenizer.save(tmp_path / "saved")
    for opened in (tokenizer, Tokenizer.open(tmp_path / "saved")):
        assert opened.chat(_USER) == "plain"
        assert opened.chat(_USER, template="tool_use", variables={"tools": [1]}) == "[1]"
    with pytest.raises(UnsupportedError, match="no chat template 'rag'") as caught:
        tokenizer.chat(_USER, template="rag")
    assert "default, tool_use" in caught.value.expected

    assert Tokenizer.open(make({"chat_template": "old"}, chat_template__jinja="new")).chat(_USER) == "new"


def _chat(template: str, messages: Any = _USER, **options: Any) -> str:
    return Tokenizer(_core(), templates={"default": template}).chat(messages, **options)


def test_templates_are_rendered_as_transformers_renders_them() -> None:
    assert _chat("{% for m in messages %}\n  {% if true %}\n{{ m.role }}\n{% endif %}\n{% endfor %}") == "user\n"
    assert _chat("{{ add_generation_prompt }}") == "True"
    assert _chat("{{ add_generation_prompt }}", add_generation_prompt=False) == "False"
    assert _chat("{{ {'a': '<é&>'} | tojson }}") == '{"a": "<é&>"}'
    assert _chat("{{ {'a': 1} | tojson(indent=2) }}") == '{\n  "a": 1\n}'
    assert _chat("{% for i in range(9) %}{% if i == 2 %}{% break %}{% endif %}{{ i }}{% endfor %}") == "01"
    assert _chat("a{% generation %}b{{ messages[0].content }}{% endgeneration %}c") == "abHic"
    assert _chat("{{ strftime_now('%Y') }}") == str(datetime.now().year)
    assert _chat("{{ tools is none }}{{ thinking is defined }}") == "TrueFalse"
    assert _chat("{{ thinking }}", variables={"thinking": 3}) == "3"


def test_a_templates_refusal_is_passed_on_with_its_words() -> None:
    with pytest.raises(OperandError, match="refuses these messages: Roles must alternate") as caught:
        _chat("{{ raise_exception('Roles must alternate') }}", [*_USER, *_USER])
    assert caught.value.operands["roles"] == "user, user"


@pytest.mark.parametrize(
    "template",
    [
        "{{ messages.append(1) }}",
        "{{ ''.__class__.__mro__ }}{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{{ messages[0].content + 1 }}",
        "{{ nothing.at.all }}",
    ],
)
def test_a_template_cannot_change_reach_out_or_fail_silently(template: str) -> None:
    with pytest.raises(OperandError):
        _chat(template)


def test_a_template_that_is_not_jinja_is_named() -> None:
    with pytest.raises(UnsupportedError, match="the chat template is not valid"):
        _chat("{% if %}")


@pytest.mark.parametrize("messages", ["Hi", [{"content": "Hi"}], ["Hi"], 5, [{"role": 1}]])
def test_what_is_no_list_of_messages_is_refused(messages: Any) -> None:
    with pytest.raises(OperandError, match="these are not chat messages"):
        _chat("x", messages)


def test_wrong_kinds_of_text_and_ids_are_refused(make: Make) -> None:
    tokenizer = Tokenizer.open(make())
    with pytest.raises(OperandError, match="the text is a bytes"):
        tokenizer.encode(b"Hi")  # type: ignore[arg-type]
    with pytest.raises(OperandError, match="half a character at 1"):
        tokenizer.encode("a\ud800")
    with pytest.raises(IndexRangeError, match="token id -1 is negative"):
        tokenizer.decode([256, -1])
    with pytest.raises(IndexRangeError, match="token id -1 is negative"):
        tokenizer.stream().push(-1)


def test_an_absent_or_broken_tokenizer_is_named(make: Make, tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match=r"no tokenizer\.json") as caught:
        Tokenizer.open(tmp_path / "nowhere")
    assert caught.value.hint == "no such folder"

    folder = make()
    (folder / "tokenizer_config.json").write_text("{")
    with pytest.raises(WeightsError, match=r"tokenizer_config\.json is not JSON"):
        Tokenizer.open(folder)
    (folder / "tokenizer.json").write_text("{}")
    with pytest.raises(WeightsError, match="the tokenizer cannot be made"):
        Tokenizer.open(folder)


def test_padding_and_truncation_of_the_training_run_are_dropped(make: Make) -> None:
    folder = make()
    core = _core()
    core.enable_truncation(2)
    core.enable_padding(length=50, pad_token="Hi", pad_id=256)
    (folder / "tokenizer.json").write_text(core.to_str(), encoding="utf-8")
    ids = Tokenizer.open(folder).encode("abc")
    assert ids == _core().encode("abc").ids
    assert len(ids) == 3


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> tuple[Tokenizer, Tokenizer]:
    """A tokenizer with everything set, and what opening its saved form gives."""
    folder = tmp_path_factory.mktemp("saved")
    first = Tokenizer(
        _core(),
        special={"bos_token": "<s>", "eos_token": "</s>"},
        templates={"default": "{{ bos_token }}ü{{ messages }}"},
        stop_ids=[258, 259, 258],
        add_bos=True,
    )
    first.save(folder)
    assert sorted(file.name for file in folder.iterdir()) == ["tokenizer.json", "tokenizer_config.json"]
    (folder / "generation_config.json").write_text('{"eos_token_id": 0}')  # what save() wrote wins
    return first, Tokenizer.open(folder)


def test_a_saved_tokenizer_comes_back_equal(saved: tuple[Tokenizer, Tokenizer]) -> None:
    first, second = saved
    for name in ("special", "templates", "stop_ids", "add_bos", "add_eos", "bos_id", "eos_id", "vocab_size"):
        assert getattr(second, name) == getattr(first, name), name
    assert second.stop_ids == (258, 259)
    assert second.chat(_USER) == first.chat(_USER)


@given(text=st.text())
@settings(max_examples=100, deadline=None)
def test_a_saved_tokenizer_encodes_any_text_the_same(saved: tuple[Tokenizer, Tokenizer], text: str) -> None:
    first, second = saved
    ids = first.encode(text)
    assert second.encode(text) == ids
    assert ids[0] == 257
    assert second.decode(ids, skip_special=False) == "<s>" + text
