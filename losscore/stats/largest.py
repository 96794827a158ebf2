"""The largest of each row, equal ones in the order of their ids."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

Floats = np.ndarray[Any, np.dtype[np.float32]]
Ids = np.ndarray[Any, np.dtype[np.int64]]

_GROUP = 64


def largest(z: Floats, count: int) -> Ids:
    """Ids (rows, count) of the largest of each row of z (rows, size), best first. No NaN; count <= size.

    The largest lie in those groups of 64 whose own largest are the largest: a pass of maxima and a few candidates
    instead of a search through the row.
    """
    rows, size = z.shape
    groups = size // _GROUP
    whole = groups * _GROUP
    grouped = z[:, :whole].reshape(rows, _GROUP, groups)
    peaks = grouped.max(1)
    picked = torch.from_numpy(peaks).topk(min(count, groups), -1).indices.numpy()
    each = np.arange(rows)[:, None]
    values = grouped[each, :, picked].reshape(rows, -1)
    ids = (picked[:, :, None] + groups * np.arange(_GROUP)).reshape(rows, -1)
    if whole < size:
        values = np.concatenate([values, z[:, whole:]], 1)
        ids = np.concatenate([ids, np.broadcast_to(np.arange(whole, size), (rows, size - whole))], 1)
    best, order = (part.numpy() for part in torch.from_numpy(values).topk(count, -1))
    ids, edge = ids[each, order], best[:, -1:]
    tied = ((values >= edge).sum(1) > count) | ((peaks >= edge).sum(1) > picked.shape[1])
    for row in np.flatnonzero(tied):
        above = np.flatnonzero(z[row] > edge[row])
        equal = np.flatnonzero(z[row] == edge[row])
        ids[row] = np.concatenate([above, equal[: count - len(above)]])
        best[row] = z[row, ids[row]]
    sorted_ids: Ids = ids[each, np.lexsort((ids, -best), axis=-1)]
    return sorted_ids
