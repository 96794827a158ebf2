"""The statistics of float32 rows on the CPU: a few rows at a time, so that every pass over them stays in cache."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from losscore.stats.expected_rank import RankCounter
from losscore.stats.largest import largest
from losscore.stats.statistics import TOP, Statistics

Floats = np.ndarray[Any, np.dtype[np.float32]]
Doubles = np.ndarray[Any, np.dtype[np.float64]]

# Below this many columns the equations are as fast.
SMALLEST = 8192
# Elements a thread looks at together, and those of them whose expected ranks it counts together.
_BLOCK_ELEMENTS = 1 << 19
_COUNTED_ELEMENTS = 1 << 17
# A float32 sum of so many terms, added in parallel lanes, is as good as its terms; longer ones are added in float64.
_RUN = 1024


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
    float64. Blocks of rows are shared among torch.get_num_threads() threads: numpy and torch let go of Python's lock.
    """
    tokens, size = logits.shape
    found = _Found(tokens, min(top, size))
    few = max(1, _BLOCK_ELEMENTS // size)
    work = _Work(logits.numpy(), logits.gather(-1, targets[:, None]).numpy(), few, found)
    workers = min(torch.get_num_threads(), -(-tokens // few))
    if workers > 1:
        with ThreadPoolExecutor(workers) as pool:
            jobs = [pool.submit(work) for _ in range(workers)]
        for job in jobs:
            job.result()
    else:
        work()
    digit_logits = logits[:, list(digit_ids)].double()
    digit_logits[torch.from_numpy(found.rank == 0)] = torch.nan
    return found.statistics(digit_logits)


class _Found:
    """What the threads write into, each its own rows."""

    def __init__(self, tokens: int, top: int) -> None:
        self.log_p, self.entropy, self.expected_rank, self.concentration = np.empty((4, tokens))
        self.rank = np.empty(tokens, np.int64)
        self.top_ids = np.empty((tokens, top), np.int64)
        self.top_log_p = np.empty((tokens, top))

    def statistics(self, digit_logits: Tensor) -> Statistics:
        return Statistics(
            log_p=torch.from_numpy(self.log_p),
            entropy=torch.from_numpy(self.entropy),
            rank=torch.from_numpy(self.rank),
            expected_rank=torch.from_numpy(self.expected_rank),
            concentration=torch.from_numpy(self.concentration),
            top_ids=torch.from_numpy(self.top_ids),
            top_log_p=torch.from_numpy(self.top_log_p),
            digit_logits=digit_logits,
        )


class _Scratch:
    """The memory of one thread: a block's distances from the largest logit and their exponentials.

    Rows are padded with zeros to whole runs: exp(0) is never written there, so they add nothing to any sum.
    """

    def __init__(self, rows: int, size: int) -> None:
        runs = -(-size // _RUN)
        self.x = np.zeros((rows, runs * _RUN), np.float32)
        self.e = np.zeros_like(self.x)
        self.ones = np.ones(_RUN, np.float32)
        self.above = np.empty((rows, size), np.bool_)
        self.counted = max(1, min(rows, _COUNTED_ELEMENTS // size))
        self.expected_rank = RankCounter(self.counted, size)


class _Work:
    """Blocks of rows, handed out one by one to whichever thread is free. own: the targets' logits, a column."""

    def __init__(self, z: Floats, own: Floats, few: int, found: _Found) -> None:
        self._z, self._own, self._few, self._found = z, own, few, found
        self._blocks = iter([slice(start, start + few) for start in range(0, len(z), few)])

    def __call__(self) -> None:
        """Block after block, until none is left."""
        scratch = _Scratch(self._few, self._z.shape[1])
        # A row of logits with -inf or near the ends of float32 is mended below; numpy need not say so.
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            for rows in self._blocks:
                _block(self._z[rows], self._own[rows], rows, scratch, self._found)


def _block(z: Floats, own: Floats, rows: slice, scratch: _Scratch, found: _Found) -> None:
    """The statistics of a few rows."""
    count, size = z.shape
    broken = ~np.isfinite(z.max(1))
    if broken.any():
        z = np.where(broken[:, None], np.float32(0), z)
    most = found.top_ids.shape[1]
    best = largest(z, min(max(most, TOP), size))
    m = np.take_along_axis(z, best[:, :1], 1)

    x, e = scratch.x[:count], scratch.e[:count]
    np.subtract(z, m, out=x[:, :size])
    np.exp(x[:, :size], out=e[:, :size])
    few = range(0, count, scratch.counted)
    ranks = np.concatenate([scratch.expected_rank(e[at : at + scratch.counted, :size]) for at in few])
    np.put_along_axis(e, best, 0, 1)

    top_x = np.take_along_axis(z, best, 1).astype(np.float64) - m
    top_e = np.exp(top_x)
    rest = top_e[:, 1:].sum(1) + _dot(e, scratch.ones)
    squares = 1 + (top_e[:, 1:] ** 2).sum(1) + _dot(e, e)
    far = _dot(e, x)
    if np.isnan(far).any():
        # -inf: 0 log 0 = 0
        far = _dot(e, np.maximum(x, np.float32(-800)))
    far = far + (top_e * np.maximum(top_x, -800)).sum(1)
    total = 1 + rest
    log_total = np.log1p(rest)

    above = np.greater_equal(z, own, out=scratch.above[:count])
    found.rank[rows] = [np.count_nonzero(row) for row in above]
    found.log_p[rows] = (own.astype(np.float64) - m)[:, 0] - log_total
    found.entropy[rows] = log_total - far / total
    found.expected_rank[rows] = ranks / total
    found.concentration[rows] = squares / total**2
    found.top_ids[rows] = best[:, :most]
    found.top_log_p[rows] = (top_x - log_total[:, None])[:, :most]
    if broken.any():
        found.rank[rows][broken] = 0
        for column in (found.log_p, found.entropy, found.expected_rank, found.concentration, found.top_log_p):
            column[rows][broken] = np.nan


def _dot(one: Floats, other: Floats) -> Doubles:
    """sum_v one_v other_v of every row; `other` may be one run that is used again and again."""
    runs = one.reshape(len(one), -1, _RUN)
    pairs = other if other.ndim == 1 else other.reshape(runs.shape)
    sums: Doubles = np.vecdot(runs, pairs).sum(1, dtype=np.float64)
    return sums
