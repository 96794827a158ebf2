from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from losscore.stats import expected_rank
from losscore.stats.expected_rank import Floats, RankCounter


def slowly(e: Floats) -> float:
    return math.fsum(rank * float(value) for rank, value in enumerate(sorted(e, reverse=True), 1))


def count(e: Floats) -> float:
    return float(RankCounter(1, len(e))(e[None])[0])


def smooth(spread: float, size: int = 30_000) -> Floats:
    z = np.random.default_rng(8).normal(size=size) * spread
    return np.exp(z - z.max()).astype(np.float32)


def with_one(e: np.ndarray) -> Floats:
    return np.concatenate([[1.0], e]).astype(np.float32)


@pytest.fixture
def sorts(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    counted: list[int] = []
    whole: Callable[[Floats], float] = expected_rank.by_sort

    def counting(e: Floats) -> float:
        counted.append(len(e))
        return whole(e)

    monkeypatch.setattr(expected_rank, "by_sort", counting)
    return counted


@pytest.mark.parametrize("spread", [0.001, 0.1, 1.0, 3.0, 6.0])
def test_a_smooth_distribution_is_counted_not_sorted(spread: float, sorts: list[int]) -> None:
    e = smooth(spread)
    # Far closer than the bound of 1e-6 that spares the sort.
    assert count(e) == pytest.approx(slowly(e), rel=3e-8)
    assert sorts == []


EDGE = np.float32(2.0**-8)
NEXT = np.nextafter(np.float32(2.0**-8 * (1 + 2.0**-8)), np.float32(0))
HEAPS = {
    "at both edges of a bucket": np.repeat([EDGE, NEXT], 5_000),
    "at one edge": np.repeat(EDGE, 10_000),
    "at the other": np.repeat(NEXT, 10_000),
    "of pairs": np.repeat(2.0 ** -np.arange(4, 12), 2),
    "of two, at either edge": np.array([EDGE, NEXT]) / 4,
}


@pytest.mark.parametrize("name", HEAPS)
def test_a_heap_within_one_bucket_is_told_apart(name: str) -> None:
    # The last one makes the buckets wide.
    e = with_one(np.append(HEAPS[name], 2.0**-40))
    assert count(e) == pytest.approx(slowly(e), rel=1e-6)


def test_what_is_left_out_weighs_nothing() -> None:
    e = with_one(np.repeat(np.float32(1e-20), 200_000))
    assert count(e) == pytest.approx(slowly(e), rel=1e-7)
    assert count(np.array([1, 0, 0, 0], np.float32)) == 1.0


def test_a_counter_carries_nothing_from_row_to_row() -> None:
    rows = np.stack([smooth(3.0), smooth(0.001), smooth(6.0)])
    counter = RankCounter(3, rows.shape[1])
    first = counter(rows).tolist()
    assert first == [count(row) for row in rows]
    assert counter(rows[:1]).tolist() == first[:1]
    assert counter(rows[::-1].copy()).tolist() == first[::-1]


@given(arrays(np.float32, st.integers(1, 80), elements=st.floats(0, 1, width=32)))
def test_any_row(rest: np.ndarray) -> None:
    e = with_one(rest)
    assert count(e) == pytest.approx(slowly(e), rel=1e-6)
