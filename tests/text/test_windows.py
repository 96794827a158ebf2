from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from losscore.errors import TextError
from losscore.text import Window, plan_windows


@given(st.integers(0, 300), st.integers(2, 40), st.integers(1, 39))
def test_every_token_is_scored_once_with_enough_before_it(length: int, size: int, stride: int) -> None:
    assume(stride < size)
    windows = plan_windows(length, size, stride)
    scored = [token for window in windows for token in range(window.first, window.stop)]
    assert scored == list(range(length))
    for window in windows:
        assert 0 <= window.start <= window.first < window.stop <= length
        assert window.stop - window.start <= size
        if window.first:
            assert window.first - window.start >= size - stride


def test_a_text_that_fits_exactly_is_one_window() -> None:
    assert plan_windows(16, 16, 8) == [Window(0, 16, 0)]
    assert plan_windows(17, 16, 8) == [Window(0, 16, 0), Window(1, 17, 16)]


def test_forty_tokens_in_windows_of_sixteen() -> None:
    assert plan_windows(40, 16) == [Window(0, 16, 0), Window(8, 24, 16), Window(16, 32, 24), Window(24, 40, 32)]


def test_no_tokens_no_windows() -> None:
    assert plan_windows(0, 16) == []


@pytest.mark.parametrize(("size", "stride"), [(1, 1), (0, None), (8, 0), (8, 8), (8, -1)])
def test_impossible_windows_are_refused(size: int, stride: int | None) -> None:
    with pytest.raises(TextError, match=r"must"):
        plan_windows(10, size, stride)
