"""A block of DeepSeek's latent attention by hand: built, exported, run in pieces of any size on one file.

Per token the cache keeps a latent and a rotated key that all heads share: RANK + ROPE numbers. Change what you like.
"""

import sys
import tempfile

import numpy as np
import onnxruntime

import lazygraph as lg
from lazygraph import nn

HIDDEN, HEADS, RANK, NOPE, ROPE, V, CAPACITY = 64, 4, 16, 12, 8, 10, 32
random = np.random.default_rng(0)


def weight(x: lg.Tensor, name: str, *sizes: int) -> lg.Tensor:
    return x.const((random.normal(size=sizes) / HIDDEN**0.5).astype(np.float32), name)


def block(x: lg.Tensor, cache: lg.LatentCache) -> tuple[lg.Tensor, lg.LatentCache]:
    inv_freq = x.const((10000.0 ** (-np.arange(0, ROPE, 2) / ROPE)).astype(np.float32))
    cos, sin = nn.rotary_tables(cache.positions("n"), inv_freq)

    h = nn.rms_norm(x, x.const(np.ones(HIDDEN, np.float32)))
    q = lg.reshape(h @ weight(x, "q", HIDDEN, HEADS * (NOPE + ROPE)), ["n", HEADS, NOPE + ROPE])
    q_nope, q_pe = lg.split(q, [NOPE, ROPE], axis=-1)
    c_kv, k_pe = lg.split(h @ weight(x, "kv_a", HIDDEN, RANK + ROPE), [RANK, ROPE], axis=-1)
    c_kv = nn.rms_norm(c_kv, x.const(np.ones(RANK, np.float32)))
    q_pe, k_pe = nn.rotary(q_pe, cos, sin), nn.rotary(k_pe[:, None], cos, sin)[:, 0]

    cache = cache.append(0, [c_kv, k_pe])
    rows_c, rows_k = (cache.slot(0, slot, include_pending=True) for slot in (0, 1))
    w_uk, w_uv = weight(x, "w_uk", HEADS, NOPE, RANK), weight(x, "w_uv", HEADS, RANK, V)
    mask = nn.additive_mask(cache.causal_mask("n"))
    by_head = [lg.transpose(part, [1, 0, 2]) for part in (q_nope, q_pe)]  # (heads, n, ...)
    query = nn.LatentQuery(*by_head, w_uk, w_uv, mask, scale=(NOPE + ROPE) ** -0.5)
    mixed = nn.latent_attention(query, rows_c, rows_k)  # "absorbed", "expanded", or the cheaper one on each run
    return x + mixed @ weight(x, "o", HEADS * V, HIDDEN), cache.advance_by("n")


x = lg.input("x", lg.float32, [lg.size("n", min=1, max=CAPACITY), HIDDEN])
y, cache = block(x, lg.LatentCache.inputs(x, 1, CAPACITY, [[RANK], [ROPE]], slot_names=["c_kv", "k_pe"]))
path = sys.argv[1] if len(sys.argv) > 1 else f"{tempfile.mkdtemp()}/mla_block.onnx"
lg.save({"y": y, **cache.outputs()}, path)

session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
tokens = random.normal(size=(12, HIDDEN)).astype(np.float32)
for pieces in ([12], [5, 1, 1, 4, 1], [1] * 12):
    past = {f"past.0.{n}": np.zeros((CAPACITY, w), np.float32) for n, w in (("c_kv", RANK), ("k_pe", ROPE))}
    done, found = 0, []
    for n in pieces:
        made, *past_values = session.run(None, {"x": tokens[done : done + n], "past_len": np.array(done), **past})
        past, done, found = dict(zip(past, past_values, strict=True)), done + n, [*found, made]
    whole = np.concatenate(found) if pieces[1:] else (first := found[0])
    print(f"{pieces}: largest difference {np.abs(whole - first).max():.1e}")
