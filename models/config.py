"""Reading a Hugging Face config so that nothing in it is overlooked.

Every key is either read by the model, known to change nothing in a forward pass, or refused: a key that nobody
understood may change the mathematics, and a wrong answer is worse than none.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from typing import Any

from lazygraph.errors import UnsupportedError, WeightsError

# Keys that do not change what a forward pass in evaluation mode computes.
HARMLESS = frozenset(
    """
    _name_or_path _attn_implementation _attn_implementation_autoset architectures attention_dropout auto_map
    bos_token_id dtype embd_pdrop eos_token_id finetuning_task forced_bos_token_id forced_eos_token_id
    gradient_checkpointing hidden_dropout id2label initializer_range is_decoder is_llama_config label2id
    max_position_embeddings max_window_layers
    model_type name_or_path output_attentions output_hidden_states output_router_logits pad_token_id pretraining_tp
    resid_pdrop return_dict rms_norm_eps rope_interleaved sep_token_id task_specific_params tokenizer_class torch_dtype
    torchscript transformers.js_config transformers_version unsloth_fixed unsloth_version use_bfloat16 use_cache
    vocab_size problem_type unk_token_id
    """.split()  # noqa: SIM905 - read as a list of words
)
_NOTHING: tuple[object, ...] = (None, False, [], {}, "")

# Keys that say something even by being false, with the one value that is served.
_USUAL = {"is_causal": True}


class Config:
    """A model's config, with book kept of the keys that were read.

    Args:
        values: The config's keys and values.
        ignore: Keys that the user vouches for: they are passed over though nobody understands them.
    """

    def __init__(self, values: Mapping[str, Any], ignore: Collection[str] = ()) -> None:
        self.values = dict(values)
        self.model_type = str(values.get("model_type", ""))
        self._read: set[str] = set(ignore)

    def get(self, key: str, default: Any = None) -> Any:
        """Return the value of a key, or the default where it is absent or null."""
        self._read.add(key)
        value = self.values.get(key)
        return default if value is None else value

    def integer(self, key: str, default: int | None = None, least: int = 1) -> int:
        """Return a whole number of at least ``least``.

        Raises:
            WeightsError: It is absent without a default, or no such number.
        """
        value = self.get(key, default)
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise self._wrong(key, value, f"a whole number of at least {least}")
        return value

    def number(self, key: str, default: float | None = None) -> float:
        """Return a positive number.

        Raises:
            WeightsError: It is absent without a default, or not a positive number.
        """
        value = self.get(key, default)
        return self.positive(key, value)

    def positive(self, key: str, value: object) -> float:
        """Return a value that the config holds somewhere under ``key`` as a positive, finite number.

        Raises:
            WeightsError: It is none.
        """
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < math.inf:
            raise self._wrong(key, value, "a positive number")
        return float(value)

    def flag(self, key: str, default: bool) -> bool:
        """Return true or false.

        Raises:
            WeightsError: It is neither.
        """
        value = self.get(key, default)
        if not isinstance(value, bool):
            raise self._wrong(key, value, "true or false")
        return value

    def only(self, key: str, *served: Any) -> None:
        """Require a key to be absent or to have one of the values that this model serves.

        Raises:
            UnsupportedError: It has another.
        """
        value = self.get(key)
        if value is not None and value not in served:
            raise self.unsupported(key, f"{key} is {value!r}", "one of " + ", ".join(map(repr, served)))

    def unsupported(self, key: str, what: str, supported: str) -> UnsupportedError:
        """Return the error of a value that this model cannot serve."""
        return UnsupportedError(
            what, op=f"config of {self.model_type}", expected=supported, key=key, value=self.values.get(key)
        )

    def finish(self) -> None:
        """Require every key to have been read, to be harmless, or to say nothing (null, false, zero, empty).

        Raises:
            UnsupportedError: Keys are left that nobody understood.
        """
        for key, usual in _USUAL.items():
            if key not in self._read:
                self.only(key, usual)
        left = sorted(
            key
            for key, value in self.values.items()
            if key not in self._read and key not in HARMLESS and not any(value is x or value == x for x in _NOTHING)
        )
        if left:
            raise UnsupportedError(
                f"keys that may change the mathematics are not understood: {', '.join(left)}",
                op=f"config of {self.model_type}",
                operands={key: repr(self.values[key]) for key in left},
                expected="keys that this model reads, or that change nothing in a forward pass",
                hint="if a key changes nothing, name it: --ignore-key KEY",
                keys=tuple(left),
            )

    def _wrong(self, key: str, value: object, expected: str) -> WeightsError:
        what = f"{key} is missing" if value is None else f"{key} is {value!r}"
        return WeightsError(what, op=f"config of {self.model_type}", expected=f"{key} {expected}", key=key)
