"""The statistics as their equations stand: float64, a sort for the expected rank. What the sweep is tested against."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from losscore.stats.statistics import TOP, Statistics


@torch.no_grad()
def by_equations(
    logits: Float[Tensor, "tokens vocab"],
    targets: Int[Tensor, " tokens"],
    digit_ids: Sequence[int] = (),
    *,
    top: int = TOP,
) -> Statistics:
    """Statistics of a few rows of logits of any floating dtype, on any device that has float64.

    Everything is written as a distance from the largest logit m, with the largest token's own mass taken out of the
    sums: Z = 1 + rest, so that log Z = log1p(rest) and the entropy log Z + sum_v p_v (m - z_v) keep their digits
    when the model is nearly certain. `-inf` logits have p = 0 and add nothing (0 log 0 = 0).
    """
    broken = ~torch.isfinite(logits.amax(-1))
    descending = _sorted(logits)
    z = logits.double()
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
    if count:
        # topk takes any of several equal logits at its edge.
        tied = ((z >= values[:, -1:]).sum(-1) > count).nonzero().squeeze(-1)
        ids[tied] = z[tied].sort(dim=-1, descending=True, stable=True).indices[:, :count]
    ids = ids.sort(-1).values
    values = z.gather(-1, ids)
    order = values.argsort(dim=-1, descending=True, stable=True)
    return values.gather(-1, order), ids.gather(-1, order)
