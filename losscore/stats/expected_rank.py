"""The expected rank without sorting: counts and exact masses of narrow buckets of probability."""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

_TOLERANCE = 1e-6
# Some 256 buckets an octave over all the octaves that count; more would cost more than the pass over the row.
_BUCKETS = 15_000
# Buckets that share an exponent, as they do where the first is aligned.
_RUN = 256
_RUNS = -(-_BUCKETS // _RUN) + 2
_ONE = int(np.float32(1).view(np.int32))
_MANTISSA = 23


class RankCounter:
    """E[R] of up to `rows` rows of `size` float32 numbers on the CPU, with the memory it takes.

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
        self._floor = int(np.float32(2e-7 / size**2).view(np.int32))
        self._short = torch.empty(rows, size, dtype=torch.int32)
        self._key = torch.empty(rows, size, dtype=torch.int64)
        self._weight = torch.empty(rows, size, dtype=torch.float64)
        self._tables = torch.empty(5, rows, _RUNS, _RUN, dtype=torch.float64)

    def __call__(self, e: Float[Tensor, "rows size"]) -> Float[Tensor, " rows"]:
        """sum_i i e_(i) of each row, e sorted downwards; e in [0, 1], one of every row exactly 1."""
        rows, size = e.shape
        lowest = e.amin(1).view(torch.int32)
        floor = lowest.clamp(min=self._floor)
        shifts = [((_ONE - bits) // _BUCKETS).bit_length() for bits in floor.tolist()]
        shift = torch.tensor(shifts, dtype=torch.int32)[:, None]
        base = (floor[:, None] >> shift) & -_RUN
        unit = _power(shift + size.bit_length())
        sums, n, middle, mass, product = self._tables[:, :rows]
        self._add_up(e, shift, base, unit, sums)

        torch.mul(sums, 1 / unit[:, :, None], out=n).floor_()
        rests = sums.sub_(torch.mul(n, unit[:, :, None], out=product))
        torch.cumsum(n.flatten(1), 1, out=middle.flatten(1))
        middle.sub_(n, alpha=0.5)
        # A float of these bits is worth mantissa x 2^exponent; what was cut off counts in the mantissa's own steps.
        bits = (base + torch.arange(0, _RUNS * _RUN, _RUN, dtype=torch.int32)) << shift
        worth = _power((bits >> _MANTISSA) - (127 + _MANTISSA))
        mantissa = (bits & ((1 << _MANTISSA) - 1)) + (1 << _MANTISSA)
        steps = torch.arange(_RUN) << shift
        torch.add(mantissa.double()[:, :, None], steps.double()[:, None], out=mass)
        mass.mul_(n).add_(rests)
        left_out = (lowest[:, None] >> shift < base)[:, 0]
        mass[left_out, 0, 0] = 0
        n[left_out, 0, 0] = 0
        found = (worth * ((size + 0.5) * mass.sum(-1) - middle.mul_(mass).sum(-1))).sum(-1)
        width = worth * _power(shift)
        guess = (width * (torch.mul(n, n, out=product).sum(-1) - n.sum(-1))).sum(-1) / 12
        found -= guess
        for row in (2 * guess > _TOLERANCE * found).nonzero()[:, 0].tolist():
            pairs = (width[row] * (n[row] == 2).sum(-1)).sum()
            if guess[row] + pairs / 6 > _TOLERANCE * found[row]:
                found[row] = by_sort(e[row])
        return found

    def _add_up(
        self,
        e: Float[Tensor, "rows size"],
        shift: Int[Tensor, "rows 1"],
        base: Int[Tensor, "rows 1"],
        unit: Float[Tensor, "rows 1"],
        sums: Float[Tensor, "rows runs run"],
    ) -> None:
        """For every bucket from `base` on: its count times `unit`, and its numbers' rests."""
        rows, bits = len(e), e.view(torch.int32)
        short, key, weight = self._short[:rows], self._key[:rows], self._weight[:rows]
        key.copy_(torch.bitwise_right_shift(bits, shift, out=short).sub_(base).clamp_(min=0))
        weight.copy_(torch.bitwise_and(bits, (1 << shift) - 1, out=short)).add_(unit)
        sums.zero_().flatten(1).scatter_add_(1, key, weight)


def _power(exponent: Int[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """2 to the exponent, exactly."""
    return torch.from_numpy(np.ldexp(1.0, exponent.numpy()))


def by_sort(e: Float[Tensor, " size"]) -> float:
    """sum_i i e_(i), e sorted downwards."""
    descending = torch.from_numpy(np.sort(e.numpy())).flip(0).double()
    return float((descending * torch.arange(1, len(e) + 1)).sum())
