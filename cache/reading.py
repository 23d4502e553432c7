"""What attention reads in one step: where the new rows stand, and which rows each of them may attend."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from lazygraph.attending import Rows
from lazygraph.tensor import Tensor

# Attention as a cache calls it: the rows of every slot, in one part or several that follow each other, and the mask of
# all their columns; the result is whatever attention makes of them.
Mix: TypeAlias = Callable[[Sequence[Rows], Tensor], Tensor]


@dataclass(frozen=True)
class CacheStep:
    """What all layers of one step share; made once, before the first layer, by ``cache.step(n)``.

    Attributes:
        positions: ``int64 (n,)``: where each new row stands in the text.
        masks: Per layer, ``float32 (n, rows)``: 0 where a new row may attend, very negative elsewhere. Layers that are
            read alike share one tensor.
    """

    positions: Tensor
    masks: tuple[Tensor, ...]
