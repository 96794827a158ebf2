"""A model run over the windows of a text: the outputs that predict each row, block after block."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from torch import Tensor

from losscore.errors import ModelError
from losscore.text import Encoding, Window, plan_windows

if TYPE_CHECKING:
    from losscore.models import Model
    from losscore.models.model import Past


@dataclass(frozen=True)
class Plan:
    """How a text is cut to fit a model: windows of `size` tokens, of which `prefix` stand in front of each."""

    prefix: int
    size: int
    stride: int
    windows: tuple[Window, ...]

    @property
    def provenance(self) -> dict[str, int]:
        return {
            "prefix_tokens": self.prefix,
            "window": self.size,
            "stride": self.stride,
            "windows": len(self.windows),
        }


def plan_reading(model: Model, encoding: Encoding, window: int | None = None, stride: int | None = None) -> Plan:
    """Windows over `encoding` (default: the model's context, half of it as stride).

    ModelError where the model lacks a token of it; TextError where the windows make no sense.
    """
    if max(encoding.ids, default=0) >= model.vocabulary:
        raise ModelError(f"The tokenizer knows more tokens than “{model.name}”: use the tokenizer made for this model.")
    room = (model.context if window is None else min(window, model.context)) - encoding.prefix
    stride = room // 2 if stride is None else stride
    windows = plan_windows(len(encoding) - encoding.prefix, room, stride)
    return Plan(encoding.prefix, encoding.prefix + room, stride, tuple(windows))


def outputs(
    model: Model,
    ids: Sequence[int],
    prefix: int,
    windows: Sequence[Window],
    *,
    skip: int = 0,
    past: Past | None = None,
) -> Iterator[Tensor]:
    """Rows (n, d) for `model.head`, in order, one for every token that has a prediction.

    Row t is predicted by the output at t - 1, so the first token has none without a prefix. The first `prefix` ids
    stand in front of every window. skip: leave out that many rows from the first on; past: see `Model.blocks`. Both
    are for a text of one window.
    """
    front, body = list(ids[:prefix]), list(ids[prefix:])
    for window in windows:
        read = [*front, *body[window.start : window.stop]]
        first = prefix + window.first - window.start - 1
        if len(read) > 1:
            for _, block in model.blocks(read[:-1], first=max(first, 0) + skip, past=past):
                yield block
