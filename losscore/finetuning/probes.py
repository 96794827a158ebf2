"""What a fine-tune costs elsewhere: how far the model has moved on texts it was not trained on."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from losscore.errors import TextError
from losscore.finetuning.passage import ROOM, Stretch, batches, read_passages
from losscore.finetuning.trainee import Trainee, run_group
from losscore.fused import chunk_rows
from losscore.storage import asset
from losscore.text.examples import Example

if TYPE_CHECKING:
    from losscore.models import Model


@dataclass(frozen=True)
class ProbeReading:
    """A text that was not trained on, with the model as it stands; all means over its `tokens` predicted tokens.

    nll: nats. nll_change: against the base model. kl: KL(base || tuned) = sum_v p_v (log p_v - log q_v), nats.
    """

    text: str
    tokens: int
    nll: float
    nll_change: float
    kl: float


def shipped_probes() -> list[str]:
    """The short texts of several kinds that come with losscore."""
    return [json.loads(line)["text"] for line in asset("probes.jsonl").read_text("utf-8").splitlines() if line.strip()]


class Probes:
    """Texts (of longer ones the first window), run through the base model once; of that only rows are kept."""

    def __init__(self, model: Model, texts: Sequence[str], bos: str, tick: Callable[[], None]) -> None:
        """tick() is called before each text and may raise. TextError for what has no two tokens."""
        self._base = model
        self._texts: list[str] = []
        stretches: list[Stretch] = []
        for text in texts:
            tick()
            self._texts.append(text)
            stretches.append(_first_stretch(model, text, bos))
        self._groups = batches(stretches, 1, ROOM)

    @cached_property
    def _rows(self) -> list[Tensor]:
        base = Trainee(self._base.network, self._base.streams)
        return [rows for group in self._groups for rows in run_group(base, group)]

    @torch.no_grad()
    def read(self, trainee: Trainee, tick: Callable[[], None]) -> tuple[ProbeReading, ...]:
        """How the trainee does on each. tick() is called before each group that runs together, and may raise.

        Base and trainee see the same padded ids, so that one equal to the other has a KL of exactly 0.
        """
        readings: list[ProbeReading] = []
        for group in self._groups:
            tick()
            for stretch, rows in zip(group, run_group(trainee, group), strict=True):
                at = len(readings)
                readings.append(self._reading(trainee, self._texts[at], stretch, self._rows[at], rows))
        return tuple(readings)

    def _reading(self, trainee: Trainee, text: str, stretch: Stretch, before: Tensor, now: Tensor) -> ProbeReading:
        targets = stretch.targets.ids
        size = chunk_rows(len(now), self._base.vocabulary)
        nll = base_nll = kl = 0.0
        for start in range(0, len(now), size):
            part = slice(start, start + size)
            base, tuned = _log_p(self._base.head(before[part])), _log_p(trainee.head(now[part]))
            wanted = targets[part, None].to(base.device)
            base_nll -= float(base.gather(-1, wanted).sum())
            nll -= float(tuned.gather(-1, wanted).sum())
            # A token that the base rules out adds nothing: 0 log 0 = 0.
            kl += float((base.exp() * (base - tuned)).masked_fill(base == -torch.inf, 0.0).sum())
        count = len(targets)
        return ProbeReading(text, count, nll / count, (nll - base_nll) / count, kl / count)


def _first_stretch(model: Model, text: str, bos: str) -> Stretch:
    if not isinstance(text, str):
        raise TextError(f"A text to look at elsewhere must be a text, not {type(text).__name__}.")
    try:
        (passage,) = read_passages(model, [Example("", text)], bos)
    except TextError as error:
        raise TextError("A text to look at elsewhere needs at least two tokens: make it longer.") from error
    return passage.stretches[0]


def _log_p(logits: Tensor) -> Tensor:
    """Log-probabilities in float64; Apple's GPU has none."""
    return torch.log_softmax((logits.cpu() if logits.device.type == "mps" else logits).double(), -1)
