"""The network in training as two functions, body and head, both with gradient."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor
from transformers import PreTrainedModel

from losscore.finetuning.passage import Stretch, padded
from losscore.models.model import plain_head, project


@dataclass(frozen=True)
class Trainee:
    """streams: whether logits are the head of the body's last hidden state, as in `losscore.models.Model`."""

    network: PreTrainedModel
    streams: bool
    autocast: bool = False

    @property
    def device(self) -> torch.device:
        place: torch.device = self.network.device
        return place

    def body(self, ids: Tensor) -> Tensor:
        """Rows (n, length, d) of ids (n, length): hidden states after the final norm, or the model's own logits."""
        part = self.network.base_model if self.streams else self.network
        with self._precision():
            out = part(input_ids=ids, use_cache=False)
        rows: Tensor = out.last_hidden_state if self.streams else out.logits
        return rows

    def head(self, rows: Tensor) -> Tensor:
        """Logits (n, V) of rows (n, d), float32."""
        if not self.streams:
            return rows.float()
        with self._precision():
            return project(self.network, rows)

    @property
    def embedding(self) -> Tensor | None:
        """Rows of the output embedding (V, d)."""
        head = self.network.get_output_embeddings()
        return None if head is None else head.weight

    @property
    def weight(self) -> Tensor | None:
        """The head's weight (V, d) where the head is a product with it and nothing else."""
        return plain_head(self.network) if self.streams and not self.autocast else None

    def _precision(self) -> AbstractContextManager[object]:
        if not self.autocast:
            return nullcontext()
        return torch.autocast(self.device.type, dtype=torch.bfloat16)


def run_group(trainee: Trainee, group: Sequence[Stretch]) -> list[Tensor]:
    """The rows (targets, d) that predict each stretch's targets, all stretches run at one time."""
    out = trainee.body(padded(group, trainee.device))
    return [out[at, stretch.first : len(stretch.ids)] for at, stretch in enumerate(group)]
