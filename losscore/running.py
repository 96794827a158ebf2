"""A model run over the windows of a text: the outputs that predict each row, block after block."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from torch import Tensor

from losscore.text import Window

if TYPE_CHECKING:
    from losscore.models import Model


def outputs(model: Model, ids: Sequence[int], prefix: int, windows: Sequence[Window]) -> Iterator[Tensor]:
    """Rows (n, d) for `model.head`, in order, one for every token that has a prediction.

    Row t is predicted by the output at t - 1, so the first token has none without a prefix. The first `prefix` ids
    stand in front of every window.
    """
    front, body = list(ids[:prefix]), list(ids[prefix:])
    for window in windows:
        read = [*front, *body[window.start : window.stop]]
        first = prefix + window.first - window.start - 1
        if len(read) > 1:
            for _, block in model.blocks(read[:-1], first=max(first, 0)):
                yield block
