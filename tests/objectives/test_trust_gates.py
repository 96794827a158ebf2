"""DEFT and Cayley: two focus indices of one gate, p^a."""

from __future__ import annotations

import math
from importlib import import_module
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.conftest import reference_cases

cayley = import_module("losscore.objectives.cayley")
deft = import_module("losscore.objectives.deft")

STATISTICS = {case["name"]: case["stats"] for case in reference_cases("token_statistics")}
CASES = reference_cases("objectives")
probabilities = st.floats(1e-12, 1.0)


def tensor(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_values_that_losscore_did_not_compute(case: dict[str, Any]) -> None:
    stats, expected = STATISTICS[case["name"]], case["gates"]
    log_p = tensor(stats["log_p"])
    focus, own = deft.alpha(tensor(stats["concentration"])), cayley.alpha(log_p)
    close = {"rel": 1e-6, "abs": 1e-12}
    assert float(focus) == pytest.approx(expected["deft_alpha"], **close)
    assert float(deft.gate(log_p, focus)) == pytest.approx(expected["deft"], **close)
    assert float(own) == pytest.approx(expected["cayley_alpha"], **close)
    assert float(deft.gate(log_p, own)) == pytest.approx(expected["cayley"], **close)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
@pytest.mark.parametrize("name", ["deft", "cayley"])
def test_the_gate_is_the_push_of_the_reference_gradient(case: dict[str, Any], name: str) -> None:
    """d L / d z = gate (p_v - [v = y]), so at the target the reference's gradient is -gate (1 - p)."""
    stats = STATISTICS[case["name"]]
    log_p = tensor(stats["log_p"])
    focus = deft.alpha(tensor(stats["concentration"])) if name == "deft" else cayley.alpha(log_p)
    at_target = min(case["objectives"][name]["grad"])
    push = float(deft.gate(log_p, focus)) * -math.expm1(stats["log_p"])
    assert push == pytest.approx(-at_target, rel=1e-6, abs=1e-12)


@given(probabilities)
def test_the_ends_of_the_family(p: float) -> None:
    log_p = tensor(math.log(p))
    assert float(deft.gate(log_p, tensor(0.0))) == 1
    assert float(deft.gate(log_p, tensor(1.0))) == pytest.approx(p, rel=1e-12)
    assert float(deft.gate(tensor(0.0), tensor(0.7))) == 1


@given(st.floats(0.01, 0.999), st.floats(0.01, 1))
def test_the_gate_is_the_slope_of_the_loss(p: float, focus: float) -> None:
    def loss(log: float) -> float:
        return (1 - math.exp(focus * log)) / focus

    step = 1e-5
    slope = (loss(math.log(p) - step) - loss(math.log(p) + step)) / (2 * step)
    assert float(deft.gate(tensor(math.log(p)), tensor(focus))) == pytest.approx(slope, rel=1e-6)


@given(st.floats(0.01, 0.99))
def test_cayley_is_the_fraction_it_is_named_after(p: float) -> None:
    root = math.sqrt(1 - p)
    assert float(cayley.alpha(tensor(math.log(p)))) == pytest.approx((1 - root) / (1 + root), rel=1e-9)


def test_the_limits_of_cayley() -> None:
    # a ~ p / 4 as p -> 0, where the fraction itself has no digits left.
    for log_p in (-30.0, -200.0, -700.0):
        assert float(cayley.alpha(tensor(log_p))) == pytest.approx(math.exp(log_p) / 4, rel=1e-6, abs=0)
    # 1 - a ~ 2 sqrt(1 - p) as p -> 1
    for rest in (1e-8, 1e-12, 1e-16):
        alpha = float(cayley.alpha(tensor(-rest)))
        assert 1 - alpha == pytest.approx(2 * math.sqrt(rest), rel=1e-3, abs=0)
    assert float(cayley.alpha(tensor(0.0))) == 1


def test_a_token_that_is_ruled_out() -> None:
    log_p = tensor(-math.inf)
    assert float(cayley.alpha(log_p)) == 0
    # p^a -> 1 as a = p / 4 -> 0; and 0 for any a that stays above 0
    assert float(deft.gate(log_p, cayley.alpha(log_p))) == 1
    assert float(deft.gate(log_p, tensor(0.3))) == 0


@given(st.floats(-700, 0), st.floats(0, 1))
def test_gates_stay_between_none_and_all(log_p: float, focus: float) -> None:
    assert 0 <= float(deft.gate(tensor(log_p), tensor(focus))) <= 1
    assert 0 <= float(cayley.alpha(tensor(log_p))) <= 1
