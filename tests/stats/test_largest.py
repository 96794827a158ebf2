from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from losscore.stats.largest import largest, peaks_of


def slowly(row: np.ndarray, count: int) -> list[int]:
    return sorted(range(len(row)), key=lambda v: (-row[v], v))[:count]


# Few different values, so that nearly every row is tied at its edge.
@given(arrays(np.float32, st.tuples(st.integers(1, 3), st.integers(64, 300)), elements=st.integers(-3, 3)), st.data())
def test_equal_ones_come_in_the_order_of_their_ids(z: np.ndarray, data: st.DataObject) -> None:
    count = data.draw(st.integers(1, z.shape[1]))
    assert largest(z, peaks_of(z), count).tolist() == [slowly(row, count) for row in z]


@pytest.mark.parametrize("size", [64, 65, 127, 8_192, 8_255])
@pytest.mark.parametrize("count", [1, 20, 64])
def test_wherever_they_stand(size: int, count: int) -> None:
    random = np.random.default_rng(9)
    z = np.stack([random.normal(size=size), np.arange(size), -np.arange(size)]).astype(np.float32)
    assert largest(z, peaks_of(z), count).tolist() == [slowly(row, count) for row in z]


@given(arrays(np.float32, st.tuples(st.integers(1, 3), st.integers(1, 300)), elements=st.integers(-9, 9)))
def test_a_peak_is_the_largest_of_its_group(z: np.ndarray) -> None:
    peaks = peaks_of(z)
    groups = peaks.shape[1]
    assert peaks.tolist() == [[max(row[group::groups]) for group in range(groups)] for row in z]


def test_a_row_that_is_not_a_number_shows_in_its_peaks() -> None:
    z = np.zeros((3, 300), np.float32)
    z[1, 299], z[2, 5] = np.nan, np.inf
    assert np.isfinite(peaks_of(z).max(1)).tolist() == [True, False, False]


def test_a_row_of_mostly_minus_infinity() -> None:
    z = np.full((1, 200), -np.inf, np.float32)
    z[0, 150] = 1
    assert largest(z, peaks_of(z), 3).tolist() == [[150, 0, 1]]
