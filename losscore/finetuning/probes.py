"""What a fine-tune costs elsewhere: how far the model has moved on texts it was not trained on."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from losscore.errors import TextError
from losscore.finetuning.passage import read_passages
from losscore.finetuning.trainee import Trainee
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


class Probe:
    """One text (its first window, where it is longer), run through the base model once; of that only rows are kept."""

    def __init__(self, model: Model, text: str, bos: str) -> None:
        if not isinstance(text, str):
            raise TextError(f"A text to look at elsewhere must be a text, not {type(text).__name__}.")
        try:
            (passage,) = read_passages(model, [Example("", text)], bos)
        except TextError as error:
            raise TextError("A text to look at elsewhere needs at least two tokens: make it longer.") from error
        self.text = text
        self._base = model
        self._stretch = passage.stretches[0]

    @cached_property
    def _rows(self) -> Tensor:
        blocks = self._base.blocks(list(self._stretch.ids), first=self._stretch.first)
        return torch.cat([rows for _, rows in blocks])

    @torch.no_grad()
    def read(self, trainee: Trainee) -> ProbeReading:
        """How the trainee does on it."""
        ids = torch.tensor([self._stretch.ids], device=trainee.device)
        rows = trainee.body(ids)[0, self._stretch.first :]
        targets = self._stretch.targets.ids
        size = chunk_rows(len(rows), self._base.vocabulary)
        nll = base_nll = kl = 0.0
        for start in range(0, len(rows), size):
            part = slice(start, start + size)
            base, tuned = _log_p(self._base.head(self._rows[part])), _log_p(trainee.head(rows[part]))
            wanted = targets[part, None].to(base.device)
            base_nll -= float(base.gather(-1, wanted).sum())
            nll -= float(tuned.gather(-1, wanted).sum())
            # A token that the base rules out adds nothing: 0 log 0 = 0.
            kl += float((base.exp() * (base - tuned)).masked_fill(base == -torch.inf, 0.0).sum())
        count = len(targets)
        return ProbeReading(self.text, count, nll / count, (nll - base_nll) / count, kl / count)


def _log_p(logits: Tensor) -> Tensor:
    """Log-probabilities in float64; Apple's GPU has none."""
    return torch.log_softmax((logits.cpu() if logits.device.type == "mps" else logits).double(), -1)
