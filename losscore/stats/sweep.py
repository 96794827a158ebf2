"""The statistics of float32 rows on the CPU: a few rows at a time, so that every pass over them stays in cache."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from losscore.stats.expected_rank import RankCounter
from losscore.stats.largest import largest, peaks_of
from losscore.stats.statistics import TOP, Statistics

Floats = np.ndarray[Any, np.dtype[np.float32]]
Doubles = np.ndarray[Any, np.dtype[np.float64]]

# Below this many columns the equations are as fast.
SMALLEST = 8192
# Elements looked at together: 2 rows of 150,000, 6 of 49,152, an even number for two threads.
_BLOCK_ELEMENTS = 300_000
# A float32 sum of so many terms, added in parallel lanes, is as good as its terms; longer ones are added in float64.
_RUN = 1024
# exp(-800) is 0 even in float64.
_FAR = -800.0


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
    float64. torch takes the long passes, which it shares among its threads, numpy the short ones, where it waits less.
    """
    tokens, size = logits.shape
    few = max(1, _BLOCK_ELEMENTS // size)
    own = logits.gather(-1, targets[:, None]).numpy()
    sweep = _Sweep(tokens, min(top, size), _scratch(few, size))
    # A row of logits with -inf or near the ends of float32 is mended; numpy need not say so.
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        for start in range(0, tokens, few):
            rows = slice(start, start + few)
            sweep.read(logits.numpy()[rows], own[rows], rows)
    digit_logits = logits[:, list(digit_ids)].double()
    digit_logits[torch.from_numpy(sweep.rank == 0)] = torch.nan
    return Statistics(
        log_p=torch.from_numpy(sweep.log_p),
        entropy=torch.from_numpy(sweep.entropy),
        rank=torch.from_numpy(sweep.rank),
        expected_rank=torch.from_numpy(sweep.expected_rank),
        concentration=torch.from_numpy(sweep.concentration),
        top_ids=torch.from_numpy(sweep.top_ids),
        top_log_p=torch.from_numpy(sweep.top_log_p),
        digit_logits=digit_logits,
    )


class _Scratch:
    """The memory that a few rows take on the way.

    x, e: distances from the largest logit and their exponentials. Their rows end in zeros that fill up the last run:
    exp(0) is never written there, so they add nothing to any sum.
    """

    def __init__(self, rows: int, size: int) -> None:
        runs = -(-size // _RUN)
        self.x, self.e = np.zeros((2, rows, runs * _RUN), np.float32)
        self.ones = np.ones(_RUN, np.float32)
        self.above = np.empty((rows, size), np.bool_)
        self.expected_rank = RankCounter(rows, size)


_kept = threading.local()


def _scratch(rows: int, size: int) -> _Scratch:
    """One a thread, for as long as it asks for the same: what is freed after every few rows lies between results."""
    key = rows, size, torch.get_num_threads()
    if getattr(_kept, "key", None) != key:
        _kept.key, _kept.scratch = key, _Scratch(rows, size)
    scratch: _Scratch = _kept.scratch
    return scratch


class _Sweep:
    """What was found of all tokens."""

    def __init__(self, tokens: int, top: int, scratch: _Scratch) -> None:
        self.log_p, self.entropy, self.expected_rank, self.concentration = np.empty((4, tokens))
        self.rank = np.empty(tokens, np.int64)
        self.top_ids = np.empty((tokens, top), np.int64)
        self.top_log_p = np.empty((tokens, top))
        self._scratch = scratch

    def read(self, z: Floats, own: Floats, rows: slice) -> None:
        """The statistics of a few rows. own: the targets' logits, a column."""
        count, size = z.shape
        peaks = peaks_of(z)
        broken = ~np.isfinite(peaks.max(1))
        if broken.any():
            z = np.where(broken[:, None], np.float32(0), z)
            peaks = peaks_of(z)
        most = self.top_ids.shape[1]
        best = largest(z, peaks, min(max(most, TOP), size))
        each = np.arange(count)[:, None]
        largest_z = z[each, best]
        m = largest_z[:, :1]
        x, e = self._scratch.x[:count], self._scratch.e[:count]
        np.subtract(z, m, out=x[:, :size])
        np.exp(x[:, :size], out=e[:, :size])
        e[each, best] = 0

        top_x = largest_z.astype(np.float64) - m
        top_e = np.exp(top_x)
        ranks = self._scratch.expected_rank(top_e, torch.from_numpy(e)[:, :size])
        rest = top_e[:, 1:].sum(1) + _dot(e, self._scratch.ones)
        squares = 1 + (top_e[:, 1:] ** 2).sum(1) + _dot(e, e)
        far = _dot(e, x)
        if np.isnan(far).any():
            far = _dot(e, np.maximum(x, _FAR))  # -inf: 0 log 0 = 0
        far = far + (top_e * np.maximum(top_x, _FAR)).sum(1)
        total = 1 + rest
        log_total = np.log1p(rest)

        above = np.greater_equal(z, own, out=self._scratch.above[:count])
        self.rank[rows] = [np.count_nonzero(row) for row in above]
        self.log_p[rows] = (own.astype(np.float64) - m)[:, 0] - log_total
        self.entropy[rows] = log_total - far / total
        self.expected_rank[rows] = ranks / total
        self.concentration[rows] = squares / total**2
        self.top_ids[rows] = best[:, :most]
        self.top_log_p[rows] = (top_x - log_total[:, None])[:, :most]
        if broken.any():
            self.rank[rows][broken] = 0
            for column in (self.log_p, self.entropy, self.expected_rank, self.concentration, self.top_log_p):
                column[rows][broken] = np.nan


def _dot(one: Floats, other: Floats) -> Doubles:
    """sum_v one_v other_v of every row; `other` may be one run that is used again and again."""
    runs = one.reshape(len(one), -1, _RUN)
    pairs = other if other.ndim == 1 else other.reshape(runs.shape)
    sums: Doubles = np.vecdot(runs, pairs).sum(1, dtype=np.float64)
    return sums
