"""``lazygraph run`` as a process and in one: what it says, draws, streams, refuses, and how it is stopped."""

from __future__ import annotations

import io
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import tokenizers

import lazygraph as lg
from lazygraph.cli import main
from lazygraph.export.decoder import Decoder
from tests.support.small_tokenizer import chat_text, write_tokenizer

Run = Callable[..., "subprocess.CompletedProcess[str]"]


def _greedy(folder: Path, text: str, count: int) -> str:
    """Return what the model says after a text, by the tokenizers library and one call per token."""
    core = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    decoder = Decoder.open(folder)
    ids = core.encode(text, add_special_tokens=False).ids
    made: list[int] = []
    for _ in range(count):
        made.append(int(np.argmax(decoder.append(ids)[-1])))
        ids = made[-1:]
    said: str = core.decode(made)
    return said


def test_the_answer_streams_to_stdout_and_nothing_else(lazygraph: Run, exported: Path) -> None:
    done = lazygraph("run", exported, "Hello there", "--max-new-tokens", 12)
    assert done.returncode == 0
    assert done.stdout == _greedy(exported, chat_text("Hello there"), 12) + "\n"
    assert done.stderr == ""


def test_raw_takes_the_prompt_as_it_is(exported: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", str(exported), "Hello there", "--raw", "--max-new-tokens", "12"]) == 0
    raw = capsys.readouterr().out
    assert raw == _greedy(exported, "Hello there", 12) + "\n"
    assert raw != _greedy(exported, chat_text("Hello there"), 12) + "\n"


def test_a_tokenizer_without_a_template_is_noted(
    talker: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(talker, tmp_path / "in")
    write_tokenizer(tmp_path / "in", template=False)
    lg.convert(tmp_path / "in", tmp_path / "out")
    assert main(["run", str(tmp_path / "out"), "Hello", "--max-new-tokens", "4"]) == 0
    out, err = capsys.readouterr()
    assert out == _greedy(tmp_path / "out", "Hello", 4) + "\n"
    assert err == "note: the tokenizer has no chat template; the prompt is used as it is\n"
    assert main(["run", str(tmp_path / "out"), "Hello", "--max-new-tokens", "4", "--raw"]) == 0
    assert capsys.readouterr().err == ""


def test_the_prompt_can_come_from_stdin(lazygraph: Run, exported: Path) -> None:
    done = lazygraph("run", exported, "-", "--raw", "--max-new-tokens", 8, stdin="Tell me\nmore")
    assert done.returncode == 0
    assert done.stdout == _greedy(exported, "Tell me\nmore", 8) + "\n"


def test_stdin_that_is_no_text_or_empty_or_closed_is_refused(
    lazygraph: Run, exported: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    done = lazygraph(
        "run", exported, "-", stdin=b"\xff\xfe\xfa", PYTHONUTF8="0", LC_ALL="C.UTF-8", PYTHONIOENCODING="utf-8"
    )
    assert done.returncode == 2
    assert done.stderr.startswith("lazygraph: run: the prompt on stdin is not utf-8 text")
    for stdin, part in ((io.StringIO(""), "the prompt is empty"), (None, "which is closed")):
        monkeypatch.setattr(sys, "stdin", stdin)
        assert main(["run", str(exported), "-"]) == 2
        assert part in capsys.readouterr().err
    assert main(["run", str(exported), ""]) == 2
    assert "the prompt is empty" in capsys.readouterr().err


def test_a_seed_makes_draws_repeatable(exported: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = []
    for seed in ("7", "7", "8"):
        arguments = ["run", str(exported), "Hi", "--temperature", "1.5", "--seed", seed, "--max-new-tokens", "24"]
        assert main(arguments) == 0
        said.append(capsys.readouterr().out)
    assert said[0] == said[1] != said[2]
    assert main(["run", str(exported), "Hi", "--temperature", "1.5", "--top-k", "1", "--max-new-tokens", "24"]) == 0
    assert capsys.readouterr().out == _greedy(exported, chat_text("Hi"), 24) + "\n"


def test_stats_go_to_stderr(exported: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", str(exported), "Hello", "--max-new-tokens", "5", "--stats", "--threads", "1"]) == 0
    out, err = capsys.readouterr()
    assert out == _greedy(exported, chat_text("Hello"), 5) + "\n"
    assert [line.split()[0] for line in err.split("\n") if line] == ["load", "prompt", "answer", "cache"]
    assert " of 20,000 tokens" in err
    assert main(["run", str(exported), "Hello", "--max-new-tokens", "1", "--stats"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().err.split("\n") if line] == ["load", "prompt", "cache"]


def test_an_answer_ends_when_the_cache_is_full(
    talker: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lg.convert(talker, tmp_path / "out", max_seq_len=8)
    assert main(["run", str(tmp_path / "out"), "abcd", "--raw"]) == 0
    assert capsys.readouterr().out == _greedy(tmp_path / "out", "abcd", 5) + "\n"
    assert main(["run", str(tmp_path / "out"), "abcdefghi", "--raw"]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert "9 tokens after 0 pass the end at 8" in err
    assert "Traceback" not in err


def test_an_answer_ends_before_a_stop_id(talker: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lg.convert(talker, tmp_path / "plain")
    core = tokenizers.Tokenizer.from_file(str(talker / "tokenizer.json"))
    ids = core.encode("abc", add_special_tokens=False).ids
    made = list(Decoder.open(tmp_path / "plain").generate(ids, 6))
    shutil.copytree(talker, tmp_path / "in")
    (tmp_path / "in" / "generation_config.json").write_text(f'{{"eos_token_id": [{made[4]}]}}')
    lg.convert(tmp_path / "in", tmp_path / "out")
    assert main(["run", str(tmp_path / "out"), "abc", "--raw"]) == 0
    assert capsys.readouterr().out == core.decode(made[: made.index(made[4])]) + "\n"


def test_what_the_output_cannot_show_is_replaced(lazygraph: Run, exported: Path) -> None:
    done = lazygraph("run", exported, "Hi", "--max-new-tokens", 8, PYTHONIOENCODING="ascii")
    assert done.returncode == 0
    assert done.stdout.isascii()


# --- what it refuses ---


def test_a_folder_that_is_no_export_is_refused(
    lazygraph: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    done = lazygraph("run", "nowhere", "Hi")
    assert done.returncode == 2
    assert done.stderr.startswith("lazygraph: open: no manifest.json in nowhere")
    assert "there is no such folder" in done.stderr
    assert "Traceback" not in done.stderr
    (tmp_path / "empty").mkdir()
    assert main(["run", str(tmp_path / "empty"), "Hi"]) == 2
    assert "no manifest.json" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "content", "part"),
    [
        ("manifest.json", b"{", "cannot be read"),
        ("manifest.json", b"[]", "is of format"),
        ("manifest.json", b'{"format": 99}', "format 99"),
        ("manifest.json", b'{"format": 2}', "incomplete"),
        ("model.onnx", b"", "not the file that the manifest describes"),
        ("model.onnx", None, "no model.onnx"),
        ("weights", None, "data"),
        ("weights", b"short", ""),
        ("tokenizer.json", b"{", "the tokenizer cannot be made"),
    ],
)
def test_a_damaged_export_is_refused(
    exported: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, content: bytes | None, part: str
) -> None:
    shutil.copytree(exported, tmp_path / "out")
    file = next((tmp_path / "out").glob("*.data")) if name == "weights" else tmp_path / "out" / name
    file.unlink() if content is None else file.write_bytes(content)
    code = main(["run", str(tmp_path / "out"), "Hi", "--max-new-tokens", "2"])
    out, err = capsys.readouterr()
    assert code in (1, 2)
    assert out == ""
    assert err.startswith("lazygraph: ")
    assert part in err
    assert "Traceback" not in err


def test_an_export_without_a_tokenizer_says_what_to_do(
    goldens: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lg.convert(goldens / "llama", tmp_path / "out")
    assert main(["run", str(tmp_path / "out"), "Hi"]) == 1
    err = capsys.readouterr().err
    assert "has no tokenizer" in err
    assert "lazygraph.Decoder takes token ids" in err


@pytest.mark.parametrize(
    ("options", "part"),
    [
        (["--max-new-tokens", "0"], "'0' is not a whole number of at least 1"),
        (["--temperature", "-1"], "'-1' is not a number of at least 0"),
        (["--temperature", "hot"], "'hot' is not a number"),
        (["--temperature", "nan"], "'nan' is not a number"),
        (["--temperature", "inf"], "'inf' is not a number"),
        (["--top-p", "0"], "'0' is not a number above 0 and at most 1"),
        (["--top-p", "1.1"], "'1.1' is not a number"),
        (["--top-k", "-1"], "'-1' is not a whole number of at least 0"),
        (["--seed", "-1"], "'-1' is not a whole number of at least 0"),
        (["--seed", "x"], "'x' is not a whole number"),
        (["--threads", "0"], "'0' is not a whole number of at least 1"),
        (["--provider", "tpu"], "invalid choice: 'tpu'"),
    ],
)
def test_options_that_cannot_be_read_end_with_two(
    exported: Path, capsys: pytest.CaptureFixture[str], options: list[str], part: str
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["run", str(exported), "Hi", *options])
    assert ended.value.code == 2
    assert part in capsys.readouterr().err


# --- when it is stopped ---


def _talk(exported: Path, environment: dict[str, str]) -> subprocess.Popen[bytes]:
    """Start an answer of 19,000 tokens, and wait until it has begun."""
    process = subprocess.Popen(
        [sys.executable, "-m", "lazygraph", "run", str(exported), "Hello", "--max-new-tokens", "19000"],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stdout.read(1)
    return process


def test_ctrl_c_ends_an_answer(exported: Path, environment: dict[str, str]) -> None:
    process = _talk(exported, environment)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert err == b"\ninterrupted\n"


def test_a_reader_that_goes_away_ends_an_answer(exported: Path, environment: dict[str, str]) -> None:
    process = _talk(exported, environment)
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    assert process.stderr.read() == b""
    assert process.wait(timeout=60) == 0
    process.stderr.close()
