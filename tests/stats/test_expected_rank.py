from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from losscore.stats import expected_rank
from losscore.stats.expected_rank import Floats, RankCounter


def slowly(e: Floats) -> float:
    return math.fsum(rank * float(value) for rank, value in enumerate(sorted(e, reverse=True), 1))


def count(e: Floats, top: int = 0) -> float:
    return by(RankCounter(1, len(e)), [e], top)[0]


def by(counter: RankCounter, rows: list[Floats], top: int = 0) -> list[float]:
    e = np.stack(rows)
    best = np.argsort(-e, axis=1, kind="stable")[:, :top]
    largest = np.take_along_axis(e, best, 1).astype(np.float64)
    np.put_along_axis(e, best, 0, 1)
    return counter(largest, torch.from_numpy(e)).tolist()


def smooth(spread: float, size: int = 30_000) -> Floats:
    z = np.random.default_rng(8).normal(size=size) * spread
    return np.exp(z - z.max()).astype(np.float32)


def with_one(e: np.ndarray) -> Floats:
    return np.concatenate([[1.0], e]).astype(np.float32)


@pytest.fixture
def sorts(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    counted: list[int] = []
    whole: Callable[..., float] = expected_rank.by_sort

    def counting(top: np.ndarray, e: Floats) -> float:
        counted.append(len(e))
        return whole(top, e)

    monkeypatch.setattr(expected_rank, "by_sort", counting)
    return counted


@pytest.mark.parametrize(("spread", "error"), [(0.001, 3e-8), (0.1, 3e-8), (1.0, 3e-8), (3.0, 3e-8), (6.0, 2e-7)])
def test_a_smooth_distribution_is_counted_not_sorted(spread: float, error: float, sorts: list[int]) -> None:
    e = smooth(spread)
    # Far closer than the bound of 5e-6 that spares the sort.
    assert count(e) == pytest.approx(slowly(e), rel=error)
    assert sorts == []


@pytest.mark.parametrize("mean", [0.0, 12.0])
def test_the_equal_numbers_of_half_precision_are_counted_not_sorted(mean: float, sorts: list[int]) -> None:
    z = torch.from_numpy(np.random.default_rng(3).normal(mean, 3.0, 49_152)).bfloat16().double()
    e = torch.exp(z - z.max()).float().numpy()
    assert len(np.unique(e)) < 5_000
    assert count(e, 20) == pytest.approx(slowly(e), rel=2e-6)
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
@pytest.mark.parametrize("top", [0, 3])
def test_a_heap_within_one_bucket_is_told_apart(name: str, top: int) -> None:
    # The last one makes the buckets wide.
    e = with_one(np.append(HEAPS[name], 2.0**-40))
    assert count(e, top) == pytest.approx(slowly(e), rel=5e-6)


def test_a_heap_whose_rests_reach_the_first_of_its_bucket() -> None:
    # So many that their sum reads as more of them; the others weigh so much that the guess within the heap is nothing.
    heap = np.nextafter(np.float32(2.0**-20 * (1 + 2.0**-7)), np.float32(0)).repeat(30_000)
    e = np.concatenate([smooth(2.0, 100_000), heap, [np.float32(2.0**-40)]])
    assert count(e) == pytest.approx(slowly(e), rel=5e-6)


@pytest.mark.parametrize("top", [1, 20])
def test_the_largest_may_stand_apart(top: int) -> None:
    for e in (smooth(0.1), smooth(3.0), smooth(6.0), with_one(np.full(300, 0.25, np.float32))):
        assert count(e, top) == pytest.approx(slowly(e), rel=2e-7)


def test_what_is_left_out_weighs_nothing() -> None:
    for each in (1e-20, 4e-18, 2e-17):  # the last adds 4e-7
        e = with_one(np.repeat(np.float32(each), 200_000))
        assert count(e) == pytest.approx(slowly(e), rel=1.1e-7)
    assert count(np.array([1, 0, 0, 0], np.float32)) == 1.0


def test_a_counter_carries_nothing_from_row_to_row() -> None:
    rows = [smooth(3.0), smooth(0.001), smooth(6.0)]
    counter = RankCounter(3, len(rows[0]))
    first = by(counter, rows)
    assert first == [count(row) for row in rows]
    assert by(counter, rows[:1]) == first[:1]
    assert by(counter, rows[::-1]) == first[::-1]


@given(arrays(np.float32, st.integers(1, 80), elements=st.floats(0, 1, width=32)), st.integers(0, 20))
def test_any_row(rest: np.ndarray, top: int) -> None:
    e = with_one(rest)
    assert count(e, top) == pytest.approx(slowly(e), rel=5e-6)
