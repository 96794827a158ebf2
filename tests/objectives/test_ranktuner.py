from __future__ import annotations

import math
from importlib import import_module
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.conftest import reference_cases

ranktuner = import_module("losscore.objectives.ranktuner")

CASES = reference_cases("token_statistics")
ranks = st.floats(1, 1e6)


def tensor(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_values_that_losscore_did_not_compute(case: dict[str, Any]) -> None:
    stats, expected = case["stats"], case["ranktuner"]
    rank, expected_rank = tensor(stats["rank"]), tensor(stats["expected_rank"])
    log_p, entropy = tensor(stats["log_p"]), tensor(stats["entropy_nats"])
    close = {"rel": 1e-6, "abs": 1e-12}
    assert float(ranktuner.indicator(rank, expected_rank)) == pytest.approx(expected["indicator"], **close)
    assert float(ranktuner.scale(rank, expected_rank)) == pytest.approx(expected["scale"], **close)
    assert float(ranktuner.entropy_bound(entropy)) == pytest.approx(expected["entropy_bound"], **close)
    estimate = ranktuner.scale_from_bounds(log_p, entropy, rank)
    assert float(estimate) == pytest.approx(expected["scale_from_bounds"], **close)


@given(ranks)
def test_no_weight_where_rank_and_expected_rank_agree(rank: float) -> None:
    assert float(ranktuner.scale(tensor(rank), tensor(rank))) == 1


@given(ranks, ranks)
def test_scale_and_indicator_are_inverse_and_bounded(rank: float, expected: float) -> None:
    scale = float(ranktuner.scale(tensor(rank), tensor(expected)))
    assert scale * float(ranktuner.indicator(tensor(rank), tensor(expected))) == pytest.approx(1, rel=1e-12)
    assert 0.5 < scale < 2


@given(ranks, ranks)
def test_a_worse_rank_than_expected_pushes_more(rank: float, expected: float) -> None:
    scale = float(ranktuner.scale(tensor(rank), tensor(expected)))
    assert math.copysign(1, scale - 1) == math.copysign(1, rank - expected) or abs(scale - 1) < 1e-9


def exponent(x: float) -> float:
    return x / (x + 1) * math.log2(x + 1) ** -2


@given(ranks, ranks)
def test_the_mean_value_theorem(rank: float, expected: float) -> None:
    """S = (R / E[R])^K(xi) for some xi between them: K, falling in x from 1 on, brackets the exponent found."""
    if abs(math.log(rank / expected)) < 1e-3:
        return
    scale = float(ranktuner.scale(tensor(rank), tensor(expected)))
    found = math.log(scale) / math.log(rank / expected)
    between = [exponent(x) for x in np.geomspace(min(rank, expected), max(rank, expected), 400)]
    assert min(between) * (1 - 1e-6) <= found <= max(between) * (1 + 1e-6)


def test_the_exponent_at_one_is_one_half() -> None:
    # The paper's "about 0.5", as the slope of log S at R = E[R] = 1.
    step = 1e-6
    slope = math.log(float(ranktuner.scale(tensor(1 + step), tensor(1.0)))) / math.log(1 + step)
    assert slope == pytest.approx(0.5, rel=1e-4)


def test_a_vanishing_probability_keeps_a_finite_estimate() -> None:
    found = ranktuner.scale_from_bounds(tensor(-2_000.0), tensor(1.0), tensor(40_000.0))
    assert torch.isfinite(found).all()


def test_the_bound_in_bits() -> None:
    assert float(ranktuner.entropy_bound(tensor(2 * math.log(2)))) == pytest.approx(2.0, rel=1e-12)
    assert float(ranktuner.entropy_bound(tensor(6 * math.log(2)))) == pytest.approx(17.0, rel=1e-12)
