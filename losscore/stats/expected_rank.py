"""The expected rank of one row without sorting it: counts and exact masses of narrow buckets of probability."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import torch

Floats = np.ndarray[Any, np.dtype[np.float32]]
Doubles = np.ndarray[Any, np.dtype[np.float64]]

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
        self._floor = np.float32(2e-7 / size**2)
        self._short = np.empty(size, np.int32)
        self._key = np.empty(size, np.int64)
        self._weight = np.empty(size, np.float64)
        self._sums = np.empty(_BUCKETS + 2, np.float64)
        self._keys, self._weights, self._totals = map(torch.from_numpy, (self._key, self._weight, self._sums))

    def __call__(self, e: Floats) -> float:
        """sum_i i e_(i), e sorted downwards; e in [0, 1], one of them exactly 1."""
        lowest = e.min()
        left_out = bool(lowest < self._floor)
        floor = int(max(lowest, self._floor).view(np.int32))
        shift = ((_ONE - floor) // _BUCKETS).bit_length()
        base = floor >> shift
        edges, width = _edges(base, shift)
        unit = float(1 << (shift + len(e).bit_length()))
        sums = self._add_up(e, shift, base, unit, left_out)[: len(width)]

        n = sums * (1 / unit)
        np.floor(n, out=n)
        # torch's running sum takes a third of numpy's time.
        middle = torch.from_numpy(n).cumsum(0).numpy()
        mass = n * unit
        np.subtract(sums, mass, out=mass)
        mass *= width
        mass *= 2.0**-shift
        mass += np.multiply(edges, n, out=sums)
        middle -= np.multiply(n, 0.5, out=sums)
        spread = np.multiply(n, width, out=sums)
        if left_out:
            mass[0] = spread[0] = 0
        guess = (_dot(spread, n) - float(spread.sum())) / 12
        found = (len(e) + 0.5) * float(mass.sum()) - _dot(mass, middle) - guess
        bound = guess
        if guess <= _TOLERANCE * found < 2 * guess:
            bound += float(width[n == 2].sum()) / 6
        return found if bound <= _TOLERANCE * found else by_sort(e)

    def _add_up(self, e: Floats, shift: int, base: int, unit: float, clamp: bool) -> Doubles:
        """For every bucket from `base` on: its count times `unit`, and its numbers' rests."""
        short, bits = self._short, e.view(np.int32)
        np.right_shift(bits, shift, out=short)
        if clamp:
            np.maximum(short, base, out=short)
        np.subtract(short, base, out=short)
        self._key[:] = short
        np.bitwise_and(bits, (1 << shift) - 1, out=short)
        self._weight[:] = short
        self._weight += unit
        self._sums[:] = 0
        self._totals.scatter_add_(0, self._keys, self._weights)
        return self._sums


@lru_cache(maxsize=8)
def _edges(base: int, shift: int) -> tuple[Doubles, Doubles]:
    """The lower edges and the widths of the buckets from `base` to that of 1."""
    edges = (np.arange(base, (_ONE >> shift) + 2, dtype=np.int32) << shift).view(np.float32).astype(np.float64)
    return edges[:-1], np.diff(edges)


def by_sort(e: Floats) -> float:
    """sum_i i e_(i), e sorted downwards."""
    return _dot(np.sort(e)[::-1].astype(np.float64), np.arange(1, len(e) + 1, dtype=np.float64))


def _dot(one: Doubles, other: Doubles) -> float:
    # Not `@`: BLAS would share so long a product among threads of its own.
    return float(np.einsum("i,i->", one, other))
