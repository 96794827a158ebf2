"""The statistics of a next-token distribution, from its logits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import torch
from jaxtyping import Float, Int
from torch import Tensor

TOP = 20


@dataclass(frozen=True)
class Statistics:
    """What the model thought at each of T tokens; natural logarithms, float64, on the CPU.

    log_p: log-probability of the target. entropy: nats. rank: number of tokens at least as probable as the target,
    itself included. expected_rank: sum_i i p_(i), p sorted downwards. concentration: sum_v p_v^2. top_ids,
    top_log_p: the most probable tokens, best first, equal ones in the order of their ids. digit_logits: the logits of
    the ten digits, if asked for. A row whose logits hold NaN or +inf is NaN throughout, its rank 0.
    """

    log_p: Float[Tensor, " tokens"]
    entropy: Float[Tensor, " tokens"]
    rank: Int[Tensor, " tokens"]
    expected_rank: Float[Tensor, " tokens"]
    concentration: Float[Tensor, " tokens"]
    top_ids: Int[Tensor, "tokens top"]
    top_log_p: Float[Tensor, "tokens top"]
    digit_logits: Float[Tensor, "tokens digits"]

    def __len__(self) -> int:
        return len(self.log_p)

    def __getitem__(self, at: slice | Tensor) -> Statistics:
        """Some of the tokens."""
        return Statistics(*(getattr(self, f.name)[at] for f in fields(Statistics)))

    @staticmethod
    def join(parts: Sequence[Statistics]) -> Statistics:
        """One after the other."""
        return Statistics(*(torch.cat([getattr(part, f.name) for part in parts]) for f in fields(Statistics)))
