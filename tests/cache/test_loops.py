"""A cache as the state of a loop: what a loop over tokens computes is what steps one after the other do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lazygraph as lg

CAPACITY, WIDTH = 8, 3


def _step(cache: lg.LatentCache, row: lg.Tensor) -> tuple[lg.LatentCache, lg.Tensor]:
    """Return the cache with a row in both layers, and the mean of what counts then."""
    n = row.shape[0]
    cache = cache.append(0, [row]).append(1, [row * 2.0])
    visible = lg.cast(cache.causal_mask(n), lg.float32)
    kept = cache.slot(0, 0, include_pending=True) + cache.slot(1, 0, include_pending=True)
    return cache.advance_by(n), (visible @ kept) / lg.reduce_sum(visible, -1, keepdims=True)


@pytest.mark.parametrize("start", [0, 2])
@pytest.mark.parametrize("how", ["loop", "scan"])
def test_a_loop_over_tokens_fills_a_cache(how: str, start: int) -> None:
    x = lg.input("x", lg.float32, ["n", WIDTH])
    cache = lg.LatentCache(x, 2, CAPACITY, [[WIDTH]], position=start)
    if how == "loop":

        def body(i: lg.Tensor, cache: lg.LatentCache) -> tuple[list[Any], list[Any]]:
            cache, mean = _step(cache, lg.unsqueeze(lg.gather(x, i), 0))
            return [cache], [mean[0]]

        (filled,), (means,) = lg.loop(body, [cache], steps=x.shape[0])
    else:

        def each(cache: lg.LatentCache, row: lg.Tensor) -> tuple[list[Any], list[Any]]:
            cache, mean = _step(cache, lg.unsqueeze(row, 0))
            return [cache], [mean[0]]

        (filled,), (means,) = lg.scan(each, [cache], [x])
    assert isinstance(filled, lg.LatentCache)
    assert str(means.shape) == f"(n, {WIDTH})"

    numbers = np.arange(4 * WIDTH, dtype=np.float32).reshape(4, WIDTH)
    got = lg.realize(
        [means, filled.slot(1, 0), filled.slot_buffer_full(0, 0), filled.carried()[-1], cache.slot_buffer_full(0, 0)],
        {"x": numbers},
    )
    rows = np.concatenate([np.zeros((start, WIDTH), np.float32), numbers])
    wanted = [3 * rows[: start + k + 1].mean(0) for k in range(4)]
    np.testing.assert_allclose(got[0], wanted, rtol=1e-5)
    np.testing.assert_array_equal(got[1], rows * 2)
    np.testing.assert_array_equal(got[2][: start + 4], rows)
    assert int(got[3]) == start + 4
    assert not got[4].any()  # the cache before the loop is what it was


def test_steps_may_bring_several_rows_and_a_loop_goes_on_where_another_ended() -> None:
    x = lg.input("x", lg.float32, [CAPACITY, WIDTH])
    cache = lg.LatentCache(x, 2, CAPACITY, [[WIDTH]])

    def body(i: lg.Tensor, cache: lg.LatentCache) -> tuple[list[Any], list[Any]]:
        rows = lg.gather(x, lg.arange(0, 2, anchor=x) + cache.carried()[-1])
        cache, _ = _step(cache, rows)
        return [cache], []

    (half,), _ = lg.loop(body, [cache], steps=2)
    (whole,), _ = lg.loop(body, [half], steps=2)
    numbers = np.random.default_rng(0).normal(size=(CAPACITY, WIDTH)).astype(np.float32)
    np.testing.assert_array_equal(lg.realize(whole.slot_buffer_full(0, 0), {"x": numbers}), numbers)


def test_a_loop_past_the_end_fails_and_does_not_overwrite() -> None:
    x = lg.input("x", lg.float32, ["n", WIDTH])
    cache = lg.LatentCache(x, 2, CAPACITY, [[WIDTH]])
    (filled,), _ = lg.scan(lambda cache, row: ([_step(cache, lg.unsqueeze(row, 0))[0]], []), [cache], [x])
    with pytest.raises(lg.ExportError, match=r"scan|scatter_nd"):
        lg.realize(filled.slot(0, 0), {"x": np.ones((CAPACITY + 1, WIDTH), np.float32)})


def test_caches_that_a_loop_cannot_carry_are_refused() -> None:
    x = lg.input("x", lg.float32, ["n", WIDTH])
    cache = lg.LatentCache(x, 1, CAPACITY, [[WIDTH]])
    with pytest.raises(lg.CacheStepError, match="layer 0 was given 1 rows since the last advance") as caught:
        lg.loop(lambda i, cache: ([cache.append(0, [lg.zeros([1, WIDTH], anchor=x)])], []), [cache], steps=2)
    assert Path(__file__).name in str(caught.value.at)
    growing = lg.LatentCache.inputs(x, 1, CAPACITY, [[WIDTH]], lowering="concat")
    with pytest.raises(lg.UnsupportedError, match="a loop does not carry this LatentCache"):
        lg.loop(lambda i, cache: ([cache], []), [growing], steps=2)
    with pytest.raises(lg.OperandError, match="1 next states for 1"):
        lg.loop(lambda i, cache: ([x], []), [cache], steps=2)
