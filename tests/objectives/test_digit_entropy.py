from __future__ import annotations

import json
import math
from importlib import import_module
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from losscore.text import digit_places
from tests.conftest import REFERENCE

digit_entropy = import_module("losscore.objectives.digit_entropy")

TABLE = json.loads((REFERENCE / "digit_losses.json").read_text("utf-8"))
DIGITS = [(case, digit) for case in TABLE["cases"] for digit in case["digits"]]
logits = st.lists(st.floats(-30, 30), min_size=10, max_size=10)


def one_hot(digit: int) -> torch.Tensor:
    return torch.eye(10, dtype=torch.float64)[[digit]]


def tensor(values: list[float]) -> torch.Tensor:
    return torch.tensor([values], dtype=torch.float64)


@pytest.mark.parametrize(("case", "digit"), DIGITS, ids=lambda value: str(value.get("text", value.get("index"))))
def test_values_that_losscore_did_not_compute(case: dict[str, Any], digit: dict[str, Any]) -> None:
    row = torch.tensor([case["logits"][digit["index"]]], dtype=torch.float64)[:, TABLE["digit_ids"]]
    hot, place = one_hot(digit["digit"]), torch.tensor([float(digit["place"])], dtype=torch.float64)
    close = {"rel": 1e-6, "abs": 1e-12}
    share = float(digit_entropy.p_given_digit(row)[0, digit["digit"]])
    assert share == pytest.approx(digit["p_given_digit"], **close)
    assert float(digit_entropy.digit_entropy(row)) == pytest.approx(digit["digit_entropy_nats"], **close)
    assert float(digit_entropy.criterion(row, hot)) == pytest.approx(digit["criterion"], **close)
    assert float(digit_entropy.place_weight(place)) == pytest.approx(digit["place_weight"], **close)
    assert float(digit_entropy.penalty(row, hot, place)) == pytest.approx(digit["penalty"], **close)


@pytest.mark.parametrize("case", TABLE["cases"], ids=lambda case: case["text"])
def test_the_loss_is_the_mean_of_the_penalties(case: dict[str, Any]) -> None:
    penalties = []
    for digit in case["digits"]:
        row = torch.tensor([case["logits"][digit["index"]]], dtype=torch.float64)[:, TABLE["digit_ids"]]
        place = torch.tensor([float(digit["place"])], dtype=torch.float64)
        penalties.append(float(digit_entropy.penalty(row, one_hot(digit["digit"]), place)))
    mean = sum(penalties) / len(penalties) if penalties else 0.0
    assert mean == pytest.approx(case["del_loss"], rel=1e-6, abs=1e-12)


@pytest.mark.parametrize("case", [c for c in TABLE["cases"] if len(c["text"]) == len(c["target_ids"])])
def test_the_places_are_those_of_the_text(case: dict[str, Any]) -> None:
    expected = {digit["index"]: (digit["digit"], digit["place"]) for digit in case["digits"]}
    assert digit_places(case["text"]) == expected


def test_place_weights() -> None:
    places = torch.tensor([3.0, 1.0, 0.0, -1.0, -2.0], dtype=torch.float64)
    expected = [8.0, 4.0, 2.0, 1.02**-2, 1.02**-3]
    assert digit_entropy.place_weight(places).tolist() == pytest.approx(expected, rel=1e-12)
    far = torch.tensor([50_000.0, -50_000.0], dtype=torch.float64)
    assert digit_entropy.place_weight(far).tolist() == [100_002.0, 0.0]


def test_alpha_scales_the_penalty() -> None:
    row, hot, place = tensor([float(d) for d in range(10)]), one_hot(3), torch.tensor([1.0], dtype=torch.float64)
    small, large = digit_entropy.penalty(row, hot, place), digit_entropy.penalty(row, hot, place, alpha=0.1)
    assert float(large) == pytest.approx(10 * float(small), rel=1e-12)


def test_an_undecided_model_has_the_entropy_of_ten() -> None:
    assert float(digit_entropy.digit_entropy(tensor([0.7] * 10))) == pytest.approx(math.log(10), rel=1e-12)


@given(logits, st.integers(0, 9))
def test_a_slow_sum(values: list[float], digit: int) -> None:
    weights = [math.exp(z) for z in values]
    shares = [weight / math.fsum(weights) for weight in weights]
    criterion = 0.0
    for d, (share, z) in enumerate(zip(shares, values, strict=True)):
        sigmoid = 1 / (1 + math.exp(-z))
        criterion += share * (math.log1p(math.exp(-z)) if d == digit else math.log1p(math.exp(z)))
        assert 0 < sigmoid <= 1
    entropy = -math.fsum(share * math.log(share) for share in shares)
    row = tensor(values)
    assert float(digit_entropy.criterion(row, one_hot(digit))) == pytest.approx(criterion, rel=1e-9)
    assert float(digit_entropy.digit_entropy(row)) == pytest.approx(entropy, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("digit", [0, 5])
@pytest.mark.parametrize("low", [-math.inf, -1e30])
def test_a_ruled_out_digit_gives_a_finite_value_and_a_finite_gradient(digit: int, low: float) -> None:
    row = torch.zeros(1, 10, dtype=torch.float64)
    row[0, 0] = low
    row.requires_grad_()
    value = digit_entropy.criterion(row, one_hot(digit))
    (gradient,) = torch.autograd.grad(value.sum(), row)
    # Nine even digits; the ruled-out one costs nothing, right or wrong: its share is 0.
    hits = 9 if digit == 0 else 8
    expected = (hits * math.log(2) + (0 if digit == 0 else math.log(2))) / 9
    assert float(value.detach()) == pytest.approx(expected, rel=1e-12)
    assert torch.isfinite(gradient).all()
    assert float(digit_entropy.digit_entropy(row.detach())) == pytest.approx(math.log(9), rel=1e-12)


def test_both_factors_carry_gradient() -> None:
    row = torch.randn(1, 10, dtype=torch.float64, generator=torch.Generator().manual_seed(6), requires_grad=True)
    assert torch.autograd.gradcheck(lambda z: digit_entropy.criterion(z, one_hot(4)), (row,))
