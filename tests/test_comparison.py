"""Normalised weights, disagreement, rank correlation and gradient shares against small examples by hand."""

from __future__ import annotations

import numpy as np
import pytest

from losscore.comparison import P_BINS, disagreement, gradient_by_p, most_disputed, normalise, rank_correlation
from losscore.errors import LosscoreError

NAN = np.nan


def test_mean_and_share_by_hand() -> None:
    weights = np.array([NAN, 1.0, 3.0, 0.0])
    assert normalise(weights, "mean") == pytest.approx([NAN, 0.75, 2.25, 0.0], nan_ok=True)
    assert normalise(weights, "share") == pytest.approx([NAN, 0.25, 0.75, 0.0], nan_ok=True)


def test_ranks_run_from_0_to_1_with_ties_in_the_middle() -> None:
    assert normalise(np.array([5.0, 1.0, 5.0, NAN, 9.0]), "rank") == pytest.approx([0.5, 0, 0.5, NAN, 1], nan_ok=True)
    assert normalise(np.array([2.0, 2.0]), "rank") == pytest.approx([0.5, 0.5])
    assert normalise(np.array([2.0]), "rank") == pytest.approx([0.5])


def test_an_objective_that_pushes_nowhere_is_0_and_an_unknown_way_is_refused() -> None:
    assert normalise(np.zeros(3), "mean").tolist() == [0, 0, 0]
    with pytest.raises(LosscoreError, match="mean, share, rank"):
        normalise(np.ones(2), "median")


def test_disagreement_is_the_spread_of_the_ranks() -> None:
    table = {"a": np.array([NAN, 1.0, 2.0, 3.0]), "b": np.array([NAN, 3.0, 2.0, 1.0])}
    spread = disagreement(table)
    assert spread == pytest.approx([NAN, 0.5, 0.0, 0.5], nan_ok=True)
    assert most_disputed(spread) == [1, 3, 2]


def test_rank_correlation_is_spearmans() -> None:
    rows = {"a": np.array([1.0, 2.0, 3.0, 4.0]), "b": np.array([10.0, 30.0, 20.0, 40.0]), "flat": np.ones(4)}
    found = rank_correlation(rows)
    # 1 - 6 sum d^2 / (n (n^2 - 1)) with d = 0, 1, 1, 0
    assert found.loc["a", "b"] == pytest.approx(1 - 6 * 2 / (4 * 15))
    assert np.isnan(found.loc["a", "flat"])
    assert np.isnan(rank_correlation({"a": rows["a"], "b": np.ones(4) + 1e-15 * np.arange(4)}).loc["a", "b"])


def test_gradient_shares_add_up_to_one_and_fall_into_the_right_bins() -> None:
    p = np.array([NAN, 5e-5, 0.3, 0.5, 1.0])
    shares = gradient_by_p(p, {"x": np.array([NAN, 1.0, 2.0, 1.0, 0.0]), "none": np.zeros(5)})
    assert shares["tokens"].sum() == 4
    assert shares["x"].sum() == pytest.approx(1)
    assert shares.loc["0-0.0001", "x"] == pytest.approx(0.25)
    assert shares.loc["0.25-0.5", "x"] == pytest.approx(0.5)
    assert shares.loc["0.5-0.75", "x"] == pytest.approx(0.25)
    assert shares.loc["0.9-1", "tokens"] == 1
    assert shares["none"].sum() == 0
    assert len(shares) == len(P_BINS) - 1
