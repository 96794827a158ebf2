"""The expected rank of one row without sorting it: counts and exact masses of narrow buckets of probability."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

Floats = np.ndarray[Any, np.dtype[np.float32]]

_TOLERANCE = 1e-6
# Some 256 buckets an octave over all the octaves that count; more would cost more than the pass over the row.
_BUCKETS = 15_000
_ONE = int(np.float32(1).view(np.int32))


class RankCounter:
    """E[R] of rows of `size` float32 numbers, with the memory it takes: one counter a thread.

    The bits of a positive float, read as an integer, are in the order of the floats, so `bits >> shift` is a bucket and
    what is cut off says where in the bucket a number lies. One pass adds up, for every bucket, the count n and those
    rests (exactly: both are whole numbers, side by side in one float64), hence the bucket's mass m. With A numbers
    above the bucket,

        sum_i i e_(i) = sum over buckets of  m (A + (n + 1)/2) - D,    D = 1/4 sum_ij |e_i - e_j| within the bucket.

    D = n (n - 1) w / 12 for numbers spread evenly over the bucket's width w; it lies between 0 (all equal) and
    floor(n^2 / 4) w / 2 (half of them at either edge), so that guess is never wrong by more than itself, by twice
    itself where n = 2. Where these bounds add up to more than 1e-6 of the whole, the row is sorted after all.
    """

    def __init__(self, size: int) -> None:
        # What is smaller is left out: together it adds at most size^2 / 2 times this to a result of 1 or more.
        self._floor = int(np.float32(2e-7 / size**2).view(np.int32))
        self._short = np.empty(size, np.int32)
        self._key = np.empty(size, np.int64)
        self._weight = np.empty(size, np.float64)
        self._sums = np.empty(_BUCKETS + 2, np.float64)
        self._keys, self._weights, self._totals = map(torch.from_numpy, (self._key, self._weight, self._sums))

    def __call__(self, e: Floats) -> float:
        """sum_i i e_(i), e sorted downwards; e in [0, 1], one of them exactly 1."""
        bits = e.view(np.int32)
        lowest = int(bits.min())
        floor = max(lowest, self._floor)
        shift = ((_ONE - floor) // _BUCKETS).bit_length()
        base = floor >> shift
        used = (_ONE >> shift) - base + 1
        unit = float(1 << (shift + len(e).bit_length()))

        np.right_shift(bits, shift, out=self._short)
        if lowest < floor:
            np.maximum(self._short, base, out=self._short)
        np.subtract(self._short, base, out=self._short)
        self._key[:] = self._short
        np.bitwise_and(bits, (1 << shift) - 1, out=self._short)
        self._weight[:] = self._short
        self._weight += unit
        sums = self._sums[:used]
        sums[:] = 0
        self._totals.scatter_add_(0, self._keys, self._weights)

        n = np.floor(sums * (1 / unit))
        sums -= n * unit
        edges = (np.arange(base, base + used + 1, dtype=np.int32) << shift).view(np.float32).astype(np.float64)
        width = edges[1:] - edges[:-1]
        mass = edges[:-1] * n
        mass += sums * width * 2.0**-shift
        middle = np.cumsum(n)
        middle -= n * 0.5
        if lowest < floor:
            mass[0] = width[0] = 0
        pairs = float(width[n == 2].sum())
        n *= n - 1
        guess = float(np.vecdot(n, width)) / 12
        found = (len(e) + 0.5) * float(mass.sum()) - float(np.vecdot(mass, middle)) - guess
        return found if guess + pairs / 6 <= _TOLERANCE * found else by_sort(e)


def by_sort(e: Floats) -> float:
    """sum_i i e_(i), e sorted downwards."""
    return float(np.sort(e)[::-1].astype(np.float64) @ np.arange(1, len(e) + 1, dtype=np.float64))
