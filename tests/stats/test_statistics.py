from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from losscore.objectives.ranktuner import entropy_bound
from losscore.stats import Statistics, measure
from tests.conftest import reference_cases

CASES = reference_cases("token_statistics")
FIELDS = ("log_p", "entropy", "expected_rank", "concentration")
logits_rows = arrays(np.float64, st.integers(1, 60), elements=st.floats(-30, 30))


def one(logits: Any, target: int = 0, dtype: torch.dtype = torch.float64, **settings: Any) -> Statistics:
    return measure(torch.tensor([logits], dtype=dtype), torch.tensor([target]), **settings)


def exactly(values: list[float], dtype: torch.dtype) -> bool:
    return torch.tensor(values, dtype=dtype).double().tolist() == values


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_values_that_losscore_did_not_compute(case: dict[str, Any], dtype: torch.dtype) -> None:
    found = one(case["logits"], case["target"], dtype)
    # Logits that float32 rounds are another distribution: there only the rounding of the input may show.
    rel = 1e-6 if exactly(case["logits"], dtype) else 2e-5
    expected = case["stats"]
    assert int(found.rank) == expected["rank"]
    assert float(found.log_p) == pytest.approx(expected["log_p"], rel=rel, abs=1e-12)
    assert float(found.log_p.exp()) == pytest.approx(expected["p"], rel=rel, abs=1e-12)
    assert float(found.entropy) == pytest.approx(expected["entropy_nats"], rel=rel, abs=1e-12)
    assert float(found.entropy) / math.log(2) == pytest.approx(expected["entropy_bits"], rel=rel, abs=1e-12)
    assert float(found.expected_rank) == pytest.approx(expected["expected_rank"], rel=rel, abs=1e-12)
    assert float(found.concentration) == pytest.approx(expected["concentration"], rel=rel, abs=1e-12)


@pytest.mark.parametrize("scale", [1.0, 5.0, 20.0])
def test_float32_logits_lose_no_more_than_naive_float32_code(scale: float) -> None:
    torch.manual_seed(1)
    logits = torch.randn(40, 3_000) * scale
    targets = torch.randint(0, 3_000, (40,))
    found = measure(logits, targets)

    exact_log = torch.log_softmax(logits.double(), -1)
    naive_log = torch.log_softmax(logits, -1)
    ranks = torch.arange(1, 3_001)

    def values(log: torch.Tensor) -> dict[str, torch.Tensor]:
        p = log.exp()
        return {
            "log_p": log.gather(-1, targets[:, None])[:, 0],
            "entropy": -(p * log).sum(-1),
            "expected_rank": (p.sort(-1, descending=True).values * ranks).sum(-1),
            "concentration": p.square().sum(-1),
        }

    exact, naive = values(exact_log), values(naive_log)
    for name in FIELDS:
        ours = (getattr(found, name) - exact[name]).abs().max()
        theirs = (naive[name].double() - exact[name]).abs().max()
        assert ours <= theirs + 1e-12, name


def test_near_certainty_keeps_its_digits() -> None:
    found = one([50.0, 0.0, 0.0])
    # p = 1 / (1 + 2 e^-50): 1 - p is far below what 1.0 can show, log p and the entropy are not.
    rest = 2 * math.exp(-50)
    assert float(found.log_p) == pytest.approx(-rest, rel=1e-12, abs=0)
    assert float(found.entropy) == pytest.approx(rest * (1 + 50), rel=1e-12, abs=0)
    miss = one([50.0, 0.0, 0.0], target=2)
    assert float(miss.log_p) == pytest.approx(-50, rel=1e-12, abs=0)


def test_a_probability_below_float32_still_has_a_logarithm() -> None:
    assert float(one([0.0, -110.0, -200.0], 1, torch.float32).log_p) == pytest.approx(-110.0, rel=1e-12)
    assert float(one([0.0, -1000.0], 1).log_p) == -1000.0


def test_a_ruled_out_token_adds_nothing() -> None:
    inf = math.inf
    assert float(one([0.0, -inf]).entropy) == 0
    assert float(one([0.0, 0.0, -inf]).entropy) == pytest.approx(math.log(2), rel=1e-12)
    found = one([0.0, 0.0, -inf], 2)
    assert float(found.log_p) == -inf
    assert (int(found.rank), float(found.expected_rank), float(found.concentration)) == (3, 1.5, 0.5)


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
def test_the_ends_of_the_number_range(dtype: torch.dtype) -> None:
    top = torch.finfo(dtype).max if dtype == torch.float16 else 1e30
    found = one([top, -top], 0, dtype)
    assert (float(found.log_p), float(found.entropy), float(found.expected_rank)) == (0, 0, 1)
    tied = one([top, top, -top], 1, dtype)
    assert float(tied.log_p) == pytest.approx(-math.log(2), rel=1e-12)
    assert float(tied.entropy) == pytest.approx(math.log(2), rel=1e-12)
    assert int(tied.rank) == 2
    assert all(torch.isfinite(getattr(found, name)).all() for name in FIELDS)


@pytest.mark.parametrize("bad", [[math.nan, 0.0, 1.0], [0.0, math.inf, 1.0], [-math.inf] * 3])
def test_a_row_that_is_not_a_number_is_blank_and_alone(bad: list[float]) -> None:
    found = measure(torch.tensor([bad, [0.0, 1.0, 2.0]]), torch.tensor([2, 2]), (0, 1))
    for name in (*FIELDS, "top_log_p", "digit_logits"):
        values = getattr(found, name)
        assert torch.isnan(values[0]).all(), name
        assert torch.isfinite(values[1]).all(), name
    assert found.rank.tolist() == [0, 1]
    alone = measure(torch.tensor([[0.0, 1.0, 2.0]]), torch.tensor([2]), (0, 1))
    for name in (*FIELDS, "top_log_p", "digit_logits", "top_ids"):
        assert torch.equal(getattr(found, name)[1:], getattr(alone, name)), name


def test_ties_count_against_the_target() -> None:
    assert int(one([0.0] * 10, 3).rank) == 10
    assert int(one([2.0, 1.0, 1.0, 0.0], 1).rank) == 3
    assert int(one([5.0, 5.0, 1.0], 0).rank) == 2
    assert float(one([0.0] * 10, 3).expected_rank) == pytest.approx(5.5, rel=1e-12)


def test_a_vocabulary_of_one() -> None:
    found = one([4.2])
    assert (float(found.log_p), float(found.entropy), int(found.rank)) == (0, 0, 1)
    assert (float(found.expected_rank), float(found.concentration)) == (1, 1)
    assert found.top_ids.tolist() == [[0]]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_raised_before_anything_is_computed(dtype: torch.dtype) -> None:
    torch.manual_seed(2)
    logits = (torch.randn(3, 5_000) * 3).to(dtype)
    targets = torch.tensor([1, 2, 3])
    half, double = measure(logits, targets), measure(logits.double(), targets)
    for name in (*FIELDS, "top_log_p"):
        assert torch.allclose(getattr(half, name), getattr(double, name), rtol=1e-12, atol=0), name
    assert torch.equal(half.rank, double.rank)
    assert torch.equal(half.top_ids, double.top_ids)


def test_the_top_is_sorted_and_equal_logits_keep_the_order_of_their_ids() -> None:
    found = one([1.0, 3.0, 2.0, 3.0, 0.0, 2.0], top=5)
    assert found.top_ids.tolist() == [[1, 3, 2, 5, 0]]
    expected = torch.log_softmax(torch.tensor([1.0, 3.0, 2.0, 3.0, 0.0, 2.0]).double(), -1)[[1, 3, 2, 5, 0]]
    assert torch.allclose(found.top_log_p[0], expected, rtol=1e-12)
    level = one([0.0] * 3_000).top_ids[0].tolist()
    assert level == sorted(level)
    assert one([float(v) for v in range(30)]).top_ids.shape == (1, 20)
    assert one([9.0, 8.0, 7.0, 6.0], top=3).top_ids.tolist() == [[0, 1, 2]]


def test_the_digits_logits_come_in_the_order_of_the_digits() -> None:
    logits = [float(v) for v in range(12)]
    assert one(logits, digit_ids=(7, 3, 11)).digit_logits.tolist() == [[7.0, 3.0, 11.0]]
    assert one(logits).digit_logits.shape == (1, 0)


def test_the_logits_are_not_changed_and_carry_no_gradient() -> None:
    logits = torch.randn(2, 9, dtype=torch.float64, requires_grad=True)
    before = logits.detach().clone()
    found = measure(logits, torch.tensor([0, 1]))
    assert torch.equal(logits.detach(), before)
    assert not found.log_p.requires_grad


def test_shapes_are_checked_in_the_tests() -> None:
    with pytest.raises(Exception, match=r"(?i)type|shape"):
        measure(torch.zeros(2, 3), torch.tensor([0]))


@given(logits_rows, st.randoms(use_true_random=False))
def test_the_order_of_the_vocabulary_changes_nothing(row: np.ndarray, random: Any) -> None:
    order = list(range(len(row)))
    random.shuffle(order)
    target = random.randrange(len(row))
    straight, shuffled = one(row.tolist(), target), one(row[order].tolist(), order.index(target))
    assert torch.equal(straight.rank, shuffled.rank)
    for name in FIELDS:
        assert torch.allclose(getattr(straight, name), getattr(shuffled, name), rtol=1e-9, atol=1e-14), name


@given(logits_rows, st.data())
def test_bounds_that_hold_for_every_distribution(row: np.ndarray, data: Any) -> None:
    found = one(row.tolist(), data.draw(st.integers(0, len(row) - 1)))
    p, size = float(found.log_p.exp()), len(row)
    assert 0 <= p <= 1
    assert int(found.rank) <= 1 / p * (1 + 1e-9) if p > 0 else True
    assert -1e-12 <= float(found.entropy) <= math.log(size) + 1e-9
    assert 1 - 1e-12 <= float(found.expected_rank) <= (size + 1) / 2 + 1e-9
    # exp of minus the Rényi-2 entropy, which no Shannon entropy falls below
    assert math.exp(-float(found.entropy)) - 1e-12 <= float(found.concentration) <= 1 + 1e-12


@given(logits_rows)
def test_masseys_bound_holds_from_two_bits_on(row: np.ndarray) -> None:
    found = one((row / 10).tolist())
    if float(found.entropy) >= 2 * math.log(2):
        bound = float(entropy_bound(found.entropy))
        assert float(found.expected_rank) >= bound - 1e-9


def test_the_bound_is_attained_by_the_geometric_distribution_at_two_bits() -> None:
    found = one([-k * math.log(2) for k in range(200)])
    assert float(found.entropy) == pytest.approx(2 * math.log(2), rel=1e-9)
    assert float(entropy_bound(found.entropy)) == pytest.approx(float(found.expected_rank), rel=1e-9)
