"""The expected rank of one row without sorting it: counts and exact masses of narrow buckets of probability."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

Floats = np.ndarray[Any, np.dtype[np.float32]]
Doubles = np.ndarray[Any, np.dtype[np.float64]]
Ints = np.ndarray[Any, np.dtype[np.int32]]

_TOLERANCE = 1e-6
# Some 256 buckets an octave over all the octaves that count; more would cost more than the pass over the row.
_BUCKETS = 15_000
# Buckets that share an exponent, as they do where the first is aligned.
_RUN = 256
_RUNS = -(-_BUCKETS // _RUN) + 2
_ONE = int(np.float32(1).view(np.int32))
_MANTISSA = 23


class RankCounter:
    """E[R] of up to `rows` rows of `size` float32 numbers, with the memory it takes: one counter a thread.

    The bits of a positive float, read as an integer, are in the order of the floats, so `bits >> shift` is a bucket and
    what is cut off says where in the bucket a number lies. One pass adds up, for every bucket, the count n and those
    rests (exactly: both are whole numbers, side by side in one float64), hence the bucket's mass m. With A numbers
    above the bucket,

        sum_i i e_(i) = sum over buckets of  m (A + (n + 1)/2) - D,    D = 1/4 sum_ij |e_i - e_j| within the bucket.

    D = n (n - 1) w / 12 for numbers spread evenly over the bucket's width w; it lies between 0 (all equal) and
    floor(n^2 / 4) w / 2 (half of them at either edge), so that guess is never wrong by more than itself, by twice
    itself where n = 2. Where these bounds add up to more than 1e-6 of the whole, the row is sorted after all.
    """

    def __init__(self, rows: int, size: int) -> None:
        # What is smaller is left out: together it adds at most size^2 / 2 times this to a result of 1 or more.
        self._floor = np.float32(2e-7 / size**2).view(np.int32)
        self._short = np.empty((rows, size), np.int32)
        self._key = np.empty((rows, size), np.int64)
        self._weight = np.empty((rows, size), np.float64)
        self._zeros = np.zeros(size, np.int32)
        self._sums, self._n, self._middle, self._mass = np.empty((4, rows, _RUNS, _RUN))
        self._steps = np.arange(_RUN, dtype=np.float64)

    def __call__(self, e: Floats) -> Doubles:
        """sum_i i e_(i) of each row, e sorted downwards; e in [0, 1], one of every row exactly 1."""
        count, size = e.shape
        lowest = e.min(1, keepdims=True).view(np.int32)
        floor = np.maximum(lowest, self._floor)
        shift = np.array([[((_ONE - int(bits)) // _BUCKETS).bit_length()] for bits in floor[:, 0]], np.int32)
        base = (floor >> shift) & -_RUN
        unit = np.ldexp(1.0, shift + size.bit_length())
        self._add_up(e, shift, base, unit)

        sums, n, middle, mass = (table[:count] for table in (self._sums, self._n, self._middle, self._mass))
        np.multiply(sums, 1 / unit[:, None], out=n)
        np.floor(n, out=n)
        rests = np.subtract(sums, np.multiply(n, unit[:, None], out=mass), out=sums)
        for row in range(count):
            # torch's running sum takes a third of numpy's time; a row at a time, it starts no threads of its own.
            torch.cumsum(torch.from_numpy(n[row].reshape(-1)), 0, out=torch.from_numpy(middle[row].reshape(-1)))
        middle -= np.multiply(n, 0.5, out=mass)

        # A float of these bits is worth mantissa x 2^exponent; what was cut off counts in the mantissa's own steps.
        bits = (base + np.arange(0, _RUNS * _RUN, _RUN, dtype=np.int32)) << shift
        worth = np.ldexp(1.0, (bits >> _MANTISSA) - (127 + _MANTISSA))
        mantissa = ((bits & ((1 << _MANTISSA) - 1)) + (1 << _MANTISSA)).astype(np.float64)
        np.add(mantissa[:, :, None], np.ldexp(self._steps, shift)[:, None], out=mass)
        mass *= n
        mass += rests
        left_out = (lowest >> shift < base)[:, 0]
        mass[left_out, 0, 0] = n[left_out, 0, 0] = 0
        found: Doubles = (worth * ((size + 0.5) * mass.sum(-1) - np.vecdot(mass, middle))).sum(-1)
        width = np.ldexp(worth, shift)
        guess = (width * (np.vecdot(n, n) - n.sum(-1))).sum(-1) / 12
        found -= guess
        for row in np.flatnonzero(2 * guess > _TOLERANCE * found).tolist():
            pairs = (width[row] * np.count_nonzero(n[row] == 2, axis=-1)).sum()
            if guess[row] + pairs / 6 > _TOLERANCE * found[row]:
                found[row] = by_sort(e[row])
        return found

    def _add_up(self, e: Floats, shift: Ints, base: Ints, unit: Doubles) -> None:
        """For every bucket from `base` on: its count times `unit`, and its numbers' rests."""
        count, bits = len(e), e.view(np.int32)
        short, key, weight, sums = (part[:count] for part in (self._short, self._key, self._weight, self._sums))
        np.right_shift(bits, shift, out=short)
        np.subtract(short, base, out=short)
        np.maximum(short, self._zeros, out=short)  # numpy is faster at two arrays than at an array and a number
        short += np.arange(0, sums.size, _RUNS * _RUN, dtype=np.int32)[:, None]
        key[:] = short
        np.bitwise_and(bits, (1 << shift) - 1, out=short)
        weight[:] = short
        weight += unit
        sums[:] = 0
        keys, weights, totals = (torch.from_numpy(part).view(-1) for part in (key, weight, sums))
        totals.scatter_add_(0, keys, weights)


def by_sort(e: Floats) -> float:
    """sum_i i e_(i), e sorted downwards."""
    ranks = np.arange(1, len(e) + 1, dtype=np.float64)
    return float(_dot(np.sort(e)[None, ::-1].astype(np.float64), ranks[None])[0])


def _dot(one: Doubles, other: Doubles) -> Doubles:
    # Not `@`: BLAS would share so long a product among threads of its own.
    product: Doubles = np.einsum("ij,ij->i", one, other)
    return product
