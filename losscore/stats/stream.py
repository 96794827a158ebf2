"""Statistics of a whole text in one pass, never holding tokens x vocabulary."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor

from losscore.stats.measure import measure
from losscore.stats.statistics import TOP, Statistics

# A head matmul reads the whole vocabulary matrix, so it takes many rows at once. No fewer than 32 MiB of float32: glibc
# gives back blocks from that size on, and smaller ones would stay, each behind the few results that outlive it.
HEAD_ELEMENTS = 1 << 23


def stream(
    rows: Iterable[Float[Tensor, "rows width"]],
    head: Callable[[Tensor], Tensor],
    targets: Int[Tensor, " tokens"],
    digit_ids: Sequence[int] = (),
    *,
    vocabulary: int,
    top: int = TOP,
    chunk: int | None = None,
    tick: Callable[[int], None] | None = None,
) -> Statistics:
    """Statistics of `targets`, predicted by `rows` (hidden states, block after block, T in all) through `head`.

    chunk: rows whose logits exist at one time (default: about 32 MB of float32); it never changes a value beyond
    rounding. tick(done) is called after each chunk and may raise to stop. ValueError where rows and targets differ in
    number.
    """
    chunk = chunk or -(-HEAD_ELEMENTS // vocabulary)
    parts: list[Statistics] = []
    done = 0
    for block in rows:
        for first in range(0, len(block), chunk):
            piece = block[first : first + chunk]
            with torch.no_grad():
                logits = head(piece)
            parts.append(measure(logits, targets[done : done + len(logits)], digit_ids, top=top))
            done += len(logits)
            del logits  # before the head makes the next
            if tick:
                tick(done)
    if done != len(targets):
        raise ValueError(f"{done} rows for {len(targets)} targets")
    if not parts:
        empty = torch.zeros(0, vocabulary)
        return measure(empty, targets[:0], digit_ids, top=top)
    return Statistics.join(parts)
