"""The expected rank without sorting the row: counts and exact masses of narrow buckets of probability."""

from __future__ import annotations

from functools import cache
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float32
from torch import Tensor

Floats = np.ndarray[Any, np.dtype[np.float32]]
Doubles = np.ndarray[Any, np.dtype[np.float64]]
Longs = np.ndarray[Any, np.dtype[np.int64]]
Bools = np.ndarray[Any, np.dtype[np.bool_]]

TOLERANCE = 5e-6
_COARSEST, _FINEST = 16, 10
_BUCKETS = 1 << 13
_COLUMNS = 50_000
_ONE = int(np.float32(1).view(np.int32))
_MANTISSA, _BIAS = 23, 127


class RankCounter:
    """E[R] of up to `rows` rows of `size` float32 numbers at a time, with the memory it takes.

    The bits b of a positive float, read as an integer, are in the order of the floats, so `b >> shift` is a bucket. One
    pass adds up the bits of every bucket's numbers. They are b0 + r each, r < 2^shift, so the sum is n b0 and a rest
    smaller than b0: it tells the count n, and with it the mass m, both exactly. With A numbers above the bucket,

        sum_i i e_(i) = sum over buckets of  m (A + (n + 1)/2) - D,    D = 1/4 sum_ij |e_i - e_j| within the bucket.

    D = n (n - 1) w / 12 for numbers spread evenly over the bucket's width w; it lies between 0 (all equal) and
    floor(n^2 / 4) w / 2 (half of them at either edge), so that guess is never wrong by more than itself, by twice
    itself where n = 2. Where twice the guesses are more than 5e-6 of the whole, or a bucket holds so many that their
    rests may add up to b0, the row is looked at closely: first for buckets whose numbers are all equal, as those of
    half-precision logits are (there D is 0), then in narrower buckets; where that is not enough, it is sorted.
    """

    def __init__(self, rows: int, size: int) -> None:
        # What is smaller is left out: together it adds at most size^2 / 2 times this to a result of 1 or more.
        self._floor = _bits(2e-7 / size**2)
        together = min(rows, torch.get_num_threads())
        self._bits, self._bucket = torch.empty(2, together, min(size, _COLUMNS), dtype=torch.int64)
        self._sums = torch.empty(rows, (_ONE >> _COARSEST) + 1, dtype=torch.int64)
        self._tables = np.empty((4, rows, _BUCKETS + 1))

    def __call__(self, top: Doubles, e: Float32[Tensor, "rows size"]) -> Doubles:
        """sum_i i e_(i) of each row, e sorted downwards; its largest are given in `top` (rows, k) and stand as 0 in e.

        The largest of each row is 1.
        """
        sums = self._add_up(e, _COARSEST, self._floor, self._sums)
        found, sure = self._in_buckets(top, sums, _COARSEST, self._floor)
        for row in np.flatnonzero(~sure).tolist():
            found[row] = self._closely(top[row, None], e[row, None], sums[row, None])
        return found

    def _closely(self, top: Doubles, e: Float32[Tensor, "1 size"], sums: Longs) -> float:
        found, sure = self._in_buckets(top, sums, _COARSEST, self._floor, _varied(e[0].numpy(), sums[0]))
        if sure[0]:
            return float(found[0])
        others = e[e > 0]
        lowest = max(self._floor, _bits(float(others.min()) if len(others) else 1.0))
        shift = max(_FINEST, ((_ONE - lowest) // _BUCKETS).bit_length())
        if shift < _COARSEST:
            narrow = self._add_up(e, shift, lowest, torch.empty(1, (_ONE >> shift) + 1, dtype=torch.int64))
            found, sure = self._in_buckets(top, narrow, shift, lowest)
            if sure[0]:
                return float(found[0])
        return by_sort(top[0], e[0].numpy())

    def _add_up(self, e: Tensor, shift: int, lowest: int, into: Tensor) -> Longs:
        """The sum of the bits of the numbers in each bucket, from that of the bits `lowest` up to that of 1.

        A piece of the rows stays in cache, for every thread, from one pass to the next.
        """
        sums = into[: len(e), lowest >> shift :]
        sums.zero_()
        together, columns = self._bits.shape
        for rows, part in product(range(0, len(e), together), range(0, e.shape[1], columns)):
            piece = e[rows : rows + together, part : part + columns].view(torch.int32)
            bits, bucket = (to[: piece.shape[0], : piece.shape[1]] for to in (self._bits, self._bucket))
            bits.copy_(piece)
            torch.bitwise_right_shift(bits, shift, out=bucket)
            into[rows : rows + together].scatter_add_(1, bucket, bits)
        found: Longs = sums.numpy()
        return found

    def _in_buckets(
        self, top: Doubles, sums: Longs, shift: int, lowest: int, varied: Bools | None = None
    ) -> tuple[Doubles, Bools]:
        """What it comes to in buckets of 2^shift floats each, and of which rows that is sure enough.

        varied: which of the buckets hold different numbers; by default any may.
        """
        count, buckets = sums.shape
        total, n, mass, below = (table[:count, :buckets] for table in self._tables)
        inverse, offset, ulp = (part[-buckets:] for part in _scale(shift))
        total[:] = sums
        np.floor(np.multiply(total, inverse, out=n), out=n)
        np.multiply(n, offset, out=mass)
        mass += np.multiply(total, ulp, out=total)
        torch.cumsum(torch.from_numpy(n), 1, out=torch.from_numpy(below))
        best = top.shape[1]
        found = (below[:, -1] + (best + 0.5)) * mass.sum(1) - np.vecdot(mass, below) + np.vecdot(mass, n) / 2
        found += np.vecdot(top, np.arange(1.0, best + 1))
        spread = np.multiply(n, ulp, out=total)
        if varied is not None:
            spread *= varied
        guess = (np.vecdot(spread, n) - spread.sum(1)) * (2.0**shift / 12)
        found -= guess
        return found, (2 * guess <= TOLERANCE * found) & (n.max(1) < lowest >> shift)


class _Scale(NamedTuple):
    """Of the highest _BUCKETS + 1 buckets up to 1: 1 / b0 (rounded up); a float of bits b is worth offset + b ulp."""

    inverse: Doubles
    offset: Doubles
    ulp: Doubles


@cache
def _scale(shift: int) -> _Scale:
    first = np.arange((_ONE >> shift) - _BUCKETS, (_ONE >> shift) + 1, dtype=np.int32) << shift
    ulp = np.ldexp(1.0, (first >> _MANTISSA) - (_BIAS + _MANTISSA))
    offset = first.view(np.float32).astype(np.float64) - first * ulp
    return _Scale((1 + 2.0**-50) / first, offset, ulp)


def _varied(e: Floats, sums: Longs) -> Bools:
    """Which of the buckets of 2^_COARSEST floats hold numbers that differ from the mean of their bucket."""
    bits = e.view(np.int32)
    bucket = np.right_shift(bits, _COARSEST, dtype=np.int64)
    count = np.floor(sums * _scale(_COARSEST).inverse[-len(sums) :])
    mean = np.zeros((_ONE >> _COARSEST) + 1, np.int32)
    mean[-len(sums) :] = sums / np.maximum(count, 1)
    varied = np.zeros(len(mean), np.bool_)
    varied[bucket[np.flatnonzero(bits != mean.take(bucket))]] = True
    return varied[-len(sums) :]


def by_sort(top: Doubles, e: Floats) -> float:
    """sum_i i e_(i) of one row, sorted."""
    descending = np.concatenate([top, np.sort(e)[::-1].astype(np.float64)])
    return float(descending @ np.arange(1.0, len(descending) + 1))


def _bits(value: float) -> int:
    return int(np.float32(value).view(np.int32))
