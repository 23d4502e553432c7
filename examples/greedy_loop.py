"""Greedy generation as one graph: an exported decoder inside a Loop, whose state is the token, the position, the cache.

``python greedy_loop.py made.onnx FOLDER 5,7,11`` takes what ``lazygraph export`` wrote, and ids to begin with. The
first step reads the whole prompt, every other one the token before it: the decoder stands in the file once.
"""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime

import lazygraph as lg

path, folder, text = sys.argv[1], Path(sys.argv[2]), [int(token) for token in sys.argv[3].split(",")]
decoder = lg.load(folder / "model.onnx")
capacity = json.loads((folder / "manifest.json").read_text())["max_seq_len"]
past = [name for name in decoder.inputs if name.startswith("past.")]


def empty(name: str, anchor: lg.Tensor) -> lg.Tensor:
    buffer = decoder.inputs[name]
    return lg.zeros([size if isinstance(size, int) else capacity for size in buffer.shape], buffer.dtype, anchor=anchor)


def step(i: lg.Tensor, ids: lg.Tensor, position: lg.Tensor, *buffers: lg.Tensor) -> tuple[list[Any], list[Any]]:
    count = lg.size_tensor(ids.shape[0], ids)
    feeds = {"input_ids": ids, "past_len": position, "logits_from": count - 1, **dict(zip(past, buffers, strict=True))}
    made = lg.inline(decoder, feeds)  # logits: (1, vocab), of the last token only
    token = lg.argmax(made["logits"], -1)
    return [token, position + count, *(made[name.replace("past", "present", 1)] for name in past)], [token[0]]


prompt = lg.input("prompt", lg.int64, [lg.size("n", min=1)])
steps = lg.size_input("steps", anchor=prompt)
init = [prompt, prompt.const(0), *(empty(name, prompt) for name in past)]
_, (tokens,) = lg.loop(step, init, steps, shapes=[[None], *[None] * (len(init) - 1)])
lg.save({"tokens": tokens}, path)
print(f"tokens: {tokens.shape}")

session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
(found,) = session.run(None, {"prompt": np.array(text), "steps": np.array(12)})
print(*found)
