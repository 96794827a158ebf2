"""The largest of each row, equal ones in the order of their ids."""

from __future__ import annotations

from typing import Any

import numpy as np

Floats = np.ndarray[Any, np.dtype[np.float32]]
Ids = np.ndarray[Any, np.dtype[np.int64]]

_GROUP = 64


def largest(z: Floats, count: int) -> Ids:
    """Ids (rows, count) of the largest of each row of z (rows, size), best first. No NaN; count <= size.

    Where the row is cut into groups, the count-th largest of the groups' own largest is no larger than the count-th
    largest of all: a pass of maxima leaves a few candidates to sort.
    """
    rows, size = z.shape
    groups = size // _GROUP
    least = np.full(rows, -np.inf, np.float32)
    if groups >= count:
        peaks = z[:, : groups * _GROUP].reshape(rows, _GROUP, groups).max(1)
        least = np.partition(peaks, -count, 1)[:, -count]
    ids = np.empty((rows, count), np.int64)
    for row, values in enumerate(z):
        among = np.flatnonzero(values >= least[row])
        chosen = values[among]
        if len(among) > 4 * count:  # many equal ones
            edge = np.partition(chosen, -count)[-count]
            among = np.concatenate([among[chosen > edge], among[chosen == edge]])[:count]
            chosen = values[among]
        ids[row] = among[np.lexsort((among, -chosen))[:count]]
    return ids
