"""The statistics of a next-token distribution, from its logits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

TOP = 20


@dataclass(frozen=True)
class Statistics:
    """What the model thought at each of T tokens; natural logarithms, float64, on the CPU.

    log_p: log-probability of the target. entropy: nats. rank: number of tokens at least as probable as the target,
    itself included. expected_rank: sum_i i p_(i), p sorted downwards. concentration: sum_v p_v^2. top_ids,
    top_log_p: the most probable tokens, best first. digit_logits: the logits of the ten digits, if asked for.
    A row whose logits hold NaN or +inf is NaN throughout, its rank 0.
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

    @staticmethod
    def join(parts: Sequence[Statistics]) -> Statistics:
        """One after the other."""
        return Statistics(*(torch.cat([getattr(part, f.name) for part in parts]) for f in fields(Statistics)))


def measure(
    logits: Float[Tensor, "tokens vocab"],
    targets: Int[Tensor, " tokens"],
    digit_ids: Sequence[int] = (),
    *,
    top: int = TOP,
) -> Statistics:
    """Statistics of a few rows of logits (row t is the prediction of targets[t]).

    Everything is written as a distance from the largest logit m, with the largest token's own mass taken out of the
    sums: Z = 1 + rest, so that log Z = log1p(rest) and the entropy log Z + sum_v p_v (m - z_v) keep their digits
    when the model is nearly certain. `-inf` logits have p = 0 and add nothing (0 log 0 = 0).
    """
    with torch.no_grad():
        # No float64 on Apple's GPU; everywhere else it costs little beside the sort.
        z = logits.detach().to("cpu" if logits.device.type == "mps" else logits.device)
        targets = targets.to(z.device)
        broken = ~torch.isfinite(z.amax(-1))
        descending = _sorted(z)
        z = z.double()
        m, best = z.max(-1, keepdim=True)
        e = (z - m).exp_()
        e.scatter_(-1, best, 0.0)
        rest = e.sum(-1)
        log_total = torch.log1p(rest)
        total = 1 + rest
        # exp(-800) is 0 in float64: the clamp only keeps 0 * inf from becoming NaN.
        entropy = log_total + (e * (m - z).clamp_(max=800.0)).sum(-1) / total
        concentration = (1 + e.square_().sum(-1)) / total.square()
        own = z.gather(-1, targets[:, None])
        log_p = (own - m).squeeze(-1) - log_total
        rank = (z >= own).sum(-1)
        ranks = torch.arange(1, z.shape[-1] + 1, dtype=torch.float64, device=z.device)
        expected_rank = (descending.double().sub_(m).exp_() @ ranks) / total
        top_log_p, top_ids = _top(z, min(top, z.shape[-1]))
        top_log_p = top_log_p - m - log_total[:, None]
        digits = torch.tensor(list(digit_ids), dtype=torch.long, device=z.device)
        digit_logits = z.index_select(-1, digits)

        for values in (log_p, entropy, expected_rank, concentration, top_log_p, digit_logits):
            values[broken] = torch.nan
        rank[broken] = 0
        return Statistics(
            log_p.cpu(),
            entropy.cpu(),
            rank.cpu(),
            expected_rank.cpu(),
            concentration.cpu(),
            top_ids.cpu(),
            top_log_p.cpu(),
            digit_logits.cpu(),
        )


def _sorted(logits: Float[Tensor, "tokens vocab"]) -> Float[Tensor, "tokens vocab"]:
    """Rows sorted downwards. On the CPU numpy's vectorised sort is faster than torch's."""
    if logits.device.type == "cpu" and logits.dtype in (torch.float32, torch.float64):
        return torch.from_numpy(np.sort(logits.numpy(), axis=-1)).flip(-1)
    return logits.sort(-1, descending=True).values


def _top(z: Float[Tensor, "tokens vocab"], count: int) -> tuple[Tensor, Tensor]:
    """The largest logits and their ids; equal logits in the order of their ids."""
    values, ids = z.topk(count, -1)
    order = ids.argsort(dim=-1)
    values, ids = values.gather(-1, order), ids.gather(-1, order)
    order = values.argsort(dim=-1, descending=True, stable=True)
    return values.gather(-1, order), ids.gather(-1, order)
