"""``lazygraph run``: ask an exported decoder, and see the answer as it comes."""

from __future__ import annotations

import argparse
import sys
import time
from contextlib import AbstractContextManager, nullcontext

from lazygraph.command_export import size
from lazygraph.errors import OperandError, UnsupportedError
from lazygraph.export.decoder import Decoder
from lazygraph.models.tokenizer import Tokenizer


def run(options: argparse.Namespace) -> int:
    """Run the command; return its exit code."""
    began = time.perf_counter()
    with loading(options.folder):
        decoder = Decoder.open(options.folder, options.provider, options.threads)
    if not (decoder.folder / "tokenizer.json").is_file():
        raise UnsupportedError(
            f"{options.folder} has no tokenizer",
            op="run",
            hint="lazygraph.Decoder takes token ids; or add a tokenizer.json and export again",
        )
    tokenizer = Tokenizer.open(decoder.folder)
    opened = time.perf_counter()

    ids = _prompt_ids(options, tokenizer)
    stream = tokenizer.stream()
    arrivals: list[float] = []
    for token in decoder.generate(
        ids,
        options.max_new_tokens,
        temperature=options.temperature,
        top_p=options.top_p,
        top_k=options.top_k,
        seed=options.seed,
    ):
        arrivals.append(time.perf_counter())
        print(stream.push(token), end="", flush=True)
    print(stream.finish(), flush=True)

    if options.stats:
        print(_stats(decoder, len(ids), opened - began, opened, arrivals), file=sys.stderr)
    return 0


def loading(folder: str) -> AbstractContextManager[object]:
    """Show on stderr that a model is being loaded; nothing where stderr is no terminal."""
    if sys.stderr is None or not sys.stderr.isatty():
        return nullcontext()
    from rich.console import Console

    return Console(stderr=True).status(f"loading {folder}")


def _prompt_ids(options: argparse.Namespace, tokenizer: Tokenizer) -> list[int]:
    text = _stdin() if options.prompt == "-" else options.prompt
    if not text:
        raise OperandError("the prompt is empty", op="run", expected="some text")
    if options.raw or not tokenizer.templates:
        if not options.raw:
            print("note: the tokenizer has no chat template; the prompt is used as it is", file=sys.stderr)
        return tokenizer.encode(text)
    return tokenizer.encode(tokenizer.chat([{"role": "user", "content": text}]), add_special=False)


def _stdin() -> str:
    if sys.stdin is None:
        raise OperandError("the prompt is to come from stdin, which is closed", op="run", expected="some text")
    try:
        return sys.stdin.read()
    except UnicodeDecodeError as error:
        raise OperandError(f"the prompt on stdin is not {error.encoding} text", op="run", expected="UTF-8") from error


def _stats(decoder: Decoder, prompt: int, load: float, start: float, arrivals: list[float]) -> str:
    lines = [f"load      {load * 1e3:,.0f} ms"]
    if arrivals:
        first = arrivals[0] - start
        lines.append(f"prompt    {prompt:,} tokens in {first * 1e3:,.0f} ms ({prompt / first:,.1f} tokens/s)")
    if len(arrivals) > 1:
        rest = arrivals[-1] - arrivals[0]
        lines.append(f"answer    {len(arrivals):,} tokens, {(len(arrivals) - 1) / rest:,.1f} tokens/s")
    used = decoder.length * decoder.manifest.bytes_per_token
    lines.append(f"cache     {decoder.length:,} of {decoder.max_seq_len:,} tokens, {size(used)} in use")
    return "\n" + "\n".join(lines)
