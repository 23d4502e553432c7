"""The cache against a numpy model of a cache: any order of appends, advances, forks, reads and misuse."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, multiple, rule

import lazygraph as lg
from lazygraph.tensor import Tensor

Array = np.ndarray[Any, Any]


@dataclass
class Model:
    """What a cache holds, in numpy: the independent oracle."""

    capacity: int
    trailing: list[list[int]]
    rows: list[list[Array]]
    length: int = 0
    pending: list[int] = field(default_factory=list)

    def append(self, layer: int, new: list[Array]) -> Model:
        other = self.copy()
        count = len(new[0])
        for slot, rows in enumerate(new):
            other.rows[layer][slot][self.length : self.length + count] = rows
        other.pending[layer] += count
        return other

    def advance(self, n: int) -> Model:
        other = self.copy()
        other.length += n
        other.pending = [0] * len(self.pending)
        return other

    def copy(self) -> Model:
        rows = [[slot.copy() for slot in layer] for layer in self.rows]
        return Model(self.capacity, self.trailing, rows, self.length, list(self.pending))


@dataclass
class Pair:
    """A cache and its model, after the same history."""

    cache: lg.LatentCache
    model: Model


class CacheMachine(RuleBasedStateMachine):
    pairs: Bundle[Pair] = Bundle("pairs")

    @initialize(
        target=pairs,
        n_layers=st.integers(1, 3),
        capacity=st.integers(1, 9),
        trailing=st.lists(st.lists(st.integers(1, 3), max_size=2), min_size=1, max_size=3),
        dtype=st.sampled_from(["float32", "float64", "float16"]),
        seed=st.integers(0, 2**31),
    )
    def start(self, n_layers: int, capacity: int, trailing: list[list[int]], dtype: str, seed: int) -> Pair:
        self.random = np.random.default_rng(seed)
        self.anchor = lg.input("anchor", "float32", ["n"])
        self.dtype = dtype
        self.everything: list[Pair] = []
        cache = lg.LatentCache(self.anchor, n_layers, capacity, trailing, dtype)
        rows = [[np.zeros((capacity, *sizes), dtype) for sizes in trailing] for _ in range(n_layers)]
        return self.kept(Pair(cache, Model(capacity, trailing, rows, 0, [0] * n_layers)))

    def kept(self, pair: Pair) -> Pair:
        self.everything.append(pair)
        return pair

    def new_rows(self, pair: Pair, count: int) -> tuple[list[Array], list[Tensor]]:
        arrays = [self.random.standard_normal((count, *sizes)).astype(self.dtype) for sizes in pair.model.trailing]
        return arrays, [self.anchor.const(array) for array in arrays]

    @rule(target=pairs, pair=pairs, layer=st.integers(0, 2), count=st.integers(0, 4))
    def append(self, pair: Pair, layer: int, count: int) -> Any:
        model, cache = pair.model, pair.cache
        arrays, tensors = self.new_rows(pair, count)
        others = [rows for rows in model.pending if rows]
        if layer >= cache.n_layers:
            self.refused(pair, lg.CacheLayerError, lambda: cache.append(layer, tensors))
        elif count and (model.pending[layer] or any(rows != count for rows in others)):
            self.refused(pair, lg.CacheStepError, lambda: cache.append(layer, tensors))
        elif count and model.length + count > model.capacity:
            self.refused(pair, lg.CacheOverflowError, lambda: cache.append(layer, tensors))
        else:
            appended = model.append(layer, arrays) if count else model
            return self.kept(Pair(cache.append(layer, tensors), appended))
        return multiple()

    @rule(target=pairs, pair=pairs, count=st.integers(0, 4))
    def advance(self, pair: Pair, count: int) -> Any:
        model, cache = pair.model, pair.cache
        if count and any(rows != count for rows in model.pending):
            self.refused(pair, lg.CacheStepError, lambda: cache.advance_by(count))
            return multiple()
        return self.kept(Pair(cache.advance_by(count), model.advance(count) if count else model))

    @rule(target=pairs, pair=pairs, count=st.integers(1, 3))
    def step(self, pair: Pair, count: int) -> Any:
        """A whole step: every layer, then the advance."""
        model, cache = pair.model, pair.cache
        if any(model.pending) or model.length + count > model.capacity:
            return multiple()
        for layer in range(cache.n_layers):
            arrays, tensors = self.new_rows(pair, count)
            cache, model = cache.append(layer, tensors), model.append(layer, arrays)
        return self.kept(Pair(cache.advance_by(count), model.advance(count)))

    @rule(pair=pairs, layer=st.sampled_from([-1, 3, 99]), slot=st.sampled_from([-1, 3, 99]))
    def misread(self, pair: Pair, layer: int, slot: int) -> None:
        self.refused(pair, lg.CacheLayerError, lambda: pair.cache.slot(layer, 0))
        self.refused(pair, lg.CacheLayerError, lambda: pair.cache.slot(0, slot))
        self.refused(pair, lg.CacheLayerError, lambda: pair.cache.slot_buffer_full(layer, 0))

    @rule(pair=pairs)
    def misshape(self, pair: Pair) -> None:
        _, tensors = self.new_rows(pair, 1)
        cache = pair.cache
        self.refused(pair, lg.SlotCountError, lambda: cache.append(0, [*tensors, tensors[0]]))
        self.refused(pair, lg.SlotShapeError, lambda: cache.append(0, [lg.unsqueeze(tensors[0], 1), *tensors[1:]]))
        if len(tensors) > 1:
            _, more = self.new_rows(pair, 2)
            self.refused(pair, lg.SeqLenMismatchError, lambda: cache.append(0, [*tensors[:-1], more[-1]]))
        wrong = "float32" if self.dtype == "float16" else "float16"
        self.refused(pair, lg.DTypeError, lambda: cache.append(0, [tensors[0].astype(wrong), *tensors[1:]]))

    def refused(self, pair: Pair, error: type[Exception], call: Any) -> None:
        before = repr(pair.cache)
        with pytest.raises(error):
            call()
        assert repr(pair.cache) == before

    def teardown(self) -> None:
        """Read every cache that ever was, forks and ancestors too, in one run of one exported graph."""
        wanted: dict[str, Array] = {}
        tensors: dict[str, Tensor] = {}
        for i, pair in enumerate(getattr(self, "everything", [])):
            model, cache = pair.model, pair.cache
            assert cache.current_seq_len == model.length
            for layer in range(cache.n_layers):
                for slot in range(cache.n_slots):
                    buffer = model.rows[layer][slot]
                    name = f"{i}.{layer}.{slot}"
                    tensors[name] = cache.slot(layer, slot)
                    wanted[name] = buffer[: max(1, model.length)]
                    tensors[name + ".full"] = cache.slot_buffer_full(layer, slot)
                    wanted[name + ".full"] = buffer
                    tensors[name + ".pending"] = cache.slot(layer, slot, include_pending=True)
                    wanted[name + ".pending"] = buffer[: max(1, model.length + model.pending[layer])]
        if not tensors:
            return
        for name, tensor in tensors.items():
            assert tensor.shape == wanted[name].shape
        for name, got in lg.realize(tensors).items():
            np.testing.assert_array_equal(got, wanted[name], err_msg=name)


TestCacheMachine = CacheMachine.TestCase
TestCacheMachine.settings = settings(
    max_examples=60, stateful_step_count=14, deadline=None, suppress_health_check=list(HealthCheck)
)
