"""The largest of each row, equal ones in the order of their ids."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor

_GROUP = 64


def largest(z: Float[Tensor, "rows size"], count: int) -> Int[Tensor, "rows count"]:
    """Ids of the largest of each row of z, best first. No NaN; 64 columns or more; count <= size.

    The largest lie in those groups of 64 whose own largest are the largest: a pass of maxima and a few candidates
    instead of a search through the row.
    """
    rows, size = z.shape
    groups = size // _GROUP
    whole = groups * _GROUP
    grouped = z[:, :whole].unflatten(1, (_GROUP, groups))
    peaks = grouped.amax(1)
    picked = peaks.topk(min(count, groups), -1).indices
    ids = torch.cat(
        [
            (picked[:, :, None] + groups * torch.arange(_GROUP)).flatten(1),
            torch.arange(whole, size).expand(rows, -1),
        ],
        1,
    )
    values = z.gather(1, ids)
    best, order = values.topk(count, -1)
    ids, edge = ids.gather(1, order), best[:, -1:]
    tied = ((values >= edge).sum(1) > count) | ((peaks >= edge).sum(1) > picked.shape[1])
    for row in tied.nonzero()[:, 0].tolist():
        above = (z[row] > edge[row]).nonzero()[:, 0]
        equal = (z[row] == edge[row]).nonzero()[:, 0]
        ids[row] = torch.cat([above, equal[: count - len(above)]])
    ids = ids.sort(-1).values
    return ids.gather(1, z.gather(1, ids).argsort(-1, descending=True, stable=True))
