"""Times of works that take turns in one process."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from statistics import median

Work = Callable[[], object]


def seconds(work: Work) -> float:
    """How long it takes."""
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def shares(works: Sequence[Work], base: Work, repeats: int) -> list[float]:
    """Each work's time over the base's, medians over rounds in which all take turns; the first is dropped."""
    found: list[list[float]] = [[] for _ in works]
    for turn in range(repeats + 1):
        whole = seconds(base)
        for work, values in zip(works, found, strict=True):
            value = seconds(work) / whole
            if turn:
                values.append(value)
    return [median(values) for values in found]
