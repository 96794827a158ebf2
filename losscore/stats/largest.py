"""The largest of each row, equal ones in the order of their ids."""

from __future__ import annotations

from typing import Any

import numpy as np

Floats = np.ndarray[Any, np.dtype[np.float32]]
Ids = np.ndarray[Any, np.dtype[np.int64]]

_GROUP = 128


def peaks_of(z: Floats) -> Floats:
    """The largest of every group of a row, (rows, groups): column v is in group v modulo their number."""
    rows, size = z.shape
    groups = -(-size // _GROUP)
    whole = size // groups * groups
    peaks: Floats = z[:, :whole].reshape(rows, -1, groups).max(1)
    np.maximum(peaks[:, : size - whole], z[:, whole:], out=peaks[:, : size - whole])
    return peaks


def largest(z: Floats, peaks: Floats, count: int) -> Ids:
    """Ids (rows, count) of the largest of each row of z (rows, size), best first. No NaN; count <= size.

    The count-th largest peak is no larger than the count-th largest of all, so only groups with a peak as large hold
    what is looked for.
    """
    rows, size = z.shape
    groups = peaks.shape[1]
    least = np.full(rows, -np.inf, np.float32)
    if count <= groups:
        least = np.partition(peaks, -count, 1)[:, -count]
    steps = np.arange(0, size, groups)[:, None]
    ids = np.empty((rows, count), np.int64)
    for row, values in enumerate(z):
        among = (steps + np.flatnonzero(peaks[row] >= least[row])).ravel()
        among = among[: among.searchsorted(size)]
        chosen = values[among]
        at_least = chosen >= least[row]
        among, chosen = among[at_least], chosen[at_least]
        if len(among) > 4 * count:  # many equal ones
            edge = np.partition(chosen, -count)[-count]
            among = np.concatenate([among[chosen > edge], among[chosen == edge]])[:count]
            chosen = values[among]
        ids[row] = among[np.lexsort((among, -chosen))[:count]]
    return ids
