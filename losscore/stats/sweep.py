"""The statistics of float32 rows on the CPU: a few rows at a time, so that every pass over them stays in cache."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor

from losscore.stats.expected_rank import RankCounter
from losscore.stats.largest import largest
from losscore.stats.statistics import TOP, Statistics

# Below this many columns the equations are as fast.
SMALLEST = 8192
# Elements each thread looks at together.
_ELEMENTS = 1 << 17
# A float32 sum of so many terms is as good as its terms; longer ones are added in float64.
_RUN = 1024


@torch.no_grad()
def by_sweep(
    logits: Float[Tensor, "tokens vocab"],
    targets: Int[Tensor, " tokens"],
    digit_ids: Sequence[int] = (),
    *,
    top: int = TOP,
) -> Statistics:
    """Statistics of float32 rows on the CPU, of SMALLEST columns or more.

    The most probable tokens are taken out of every sum and added in float64, so the entropy and log p of a nearly
    certain model keep their digits (as in `by_equations`); the exponentials of all others are float32, their sums
    float64.
    """
    tokens, size = logits.shape
    own = logits.gather(-1, targets[:, None])
    rows = max(1, min(tokens, _ELEMENTS * torch.get_num_threads() // size))
    sweep = _Sweep(rows, size, min(top, size), list(digit_ids))
    return Statistics.join(
        [sweep(logits[at : at + rows], own[at : at + rows]) for at in range(0, max(1, tokens), rows)]
    )


class _Sweep:
    """A block of rows after the other, in the same memory.

    Rows are padded with zeros to whole runs: exp(0) is never written there, so they add nothing to any sum.
    """

    def __init__(self, rows: int, size: int, top: int, digit_ids: list[int]) -> None:
        self._x, self._e, self._product = torch.zeros(3, rows, -(-size // _RUN) * _RUN)
        self._expected_rank = RankCounter(rows, size)
        self._top, self._digit_ids = top, digit_ids

    def __call__(self, z: Float[Tensor, "rows vocab"], own: Float[Tensor, "rows 1"]) -> Statistics:
        """The statistics of a few rows; own: the targets' logits."""
        rows, size = z.shape
        broken = ~torch.isfinite(z.amax(-1))
        if broken.any():
            z = z.masked_fill(broken[:, None], 0)
        best = largest(z, min(max(self._top, TOP), size))
        m = z.gather(-1, best[:, :1])

        x, e, product = self._x[:rows], self._e[:rows], self._product[:rows]
        torch.exp(torch.sub(z, m, out=x[:, :size]), out=e[:, :size])
        ranks = self._expected_rank(e[:, :size])
        e.scatter_(-1, best, 0.0)

        top_x = z.gather(-1, best).double() - m
        top_e = top_x.exp()
        total = 1 + (rest := top_e[:, 1:].sum(-1) + _sum(e))
        squares = 1 + top_e[:, 1:].square().sum(-1) + _sum(torch.mul(e, e, out=product))
        far = _sum(torch.mul(e, x, out=product))
        if far.isnan().any():
            # -inf: 0 log 0 = 0
            far = _sum(e * x.clamp(min=-800))
        far += (top_e * top_x.clamp(min=-800)).sum(-1)
        log_total = rest.log1p()
        torch.ge(z, own, out=product[:, :size])
        rank = _sum(product).long()

        found = Statistics(
            log_p=(own.double() - m)[:, 0] - log_total,
            entropy=log_total - far / total,
            rank=rank.masked_fill_(broken, 0),
            expected_rank=ranks / total,
            concentration=squares / total.square(),
            top_ids=best[:, : self._top],
            top_log_p=(top_x - log_total[:, None])[:, : self._top],
            digit_logits=z[:, self._digit_ids].double(),
        )
        for values in (found.log_p, found.entropy, found.expected_rank, found.concentration):
            values[broken] = torch.nan
        for table in (found.top_log_p, found.digit_logits):
            table[broken] = torch.nan
        return found


def _sum(values: Float[Tensor, "rows padded"]) -> Float[Tensor, " rows"]:
    return values.unflatten(-1, (-1, _RUN)).sum(-1).double().sum(-1)
