"""Objectives add up and take factors; their hyperparameters come along."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from losscore import objectives
from losscore.errors import LosscoreError
from losscore.objectives import Objective
from tests.objectives.family import FAMILY, OF_THE_BATCH, batch

exact = {"rtol": 1e-12, "atol": 1e-14}


@pytest.mark.parametrize("first", FAMILY)
@pytest.mark.parametrize("second", ["nll", "ntl_was", "cayley"])
def test_a_sum_is_the_sum_of_both(first: str, second: str) -> None:
    one = batch(1)
    value, gradient = one.value_and_gradient(FAMILY[first] + 0.3 * FAMILY[second])
    left, left_gradient = one.value_and_gradient(FAMILY[first])
    right, right_gradient = one.value_and_gradient(FAMILY[second])
    torch.testing.assert_close(value, left + 0.3 * right, **exact)
    torch.testing.assert_close(gradient, left_gradient + 0.3 * right_gradient, **exact)


@pytest.mark.parametrize("name", FAMILY)
@pytest.mark.parametrize("factor", [2, -0.5, 0, np.float64(3)])
def test_a_factor_multiplies(name: str, factor: Any) -> None:
    one = batch(2)
    expected = one.loss(FAMILY[name]) * factor
    torch.testing.assert_close(one.loss(factor * FAMILY[name]), expected, **exact)
    torch.testing.assert_close(one.loss(FAMILY[name] * factor), expected, **exact)


def test_brackets() -> None:
    one = batch(2)
    both = 2 * (objectives.nll + objectives.ntl_was)
    torch.testing.assert_close(one.loss(both), 2 * one.loss(objectives.nll) + 2 * one.loss(objectives.ntl_was))
    assert (both.name, both.title) == ("2*(nll+ntl_was)", "2 · (NLL + NTL-WAS)")


def test_what_a_combination_says_of_itself() -> None:
    both = objectives.nll + 0.3 * objectives.ntl_was
    assert (both.name, both.title, both.kind, both.paper) == (
        "nll+0.3*ntl_was",
        "NLL + 0.3 · NTL-WAS",
        "digits",
        "2411.02083",
    )
    assert both.needs_digits
    assert not both.needs_distribution
    assert both.formula == rf"{objectives.nll.formula} + 0.3\,({objectives.ntl_was.formula})"
    assert (objectives.deft + objectives.cayley).paper == "2602.11424"
    assert (objectives.overtone + objectives.nll).needs_distribution


@pytest.mark.parametrize("wrong", [1, "nll", None])
def test_only_objectives_add_up_and_only_numbers_multiply(wrong: Any) -> None:
    with pytest.raises(TypeError):
        objectives.nll + wrong
    with pytest.raises(TypeError):
        objectives.nll * (objectives.nll if wrong == 1 else wrong)


def test_parameters_survive() -> None:
    one = batch(3)
    both = objectives.nll + 0.3 * objectives.del_penalty.with_parameters(alpha=0.1)
    assert both.values == {"alpha": 0.1}
    expected = one.loss(objectives.nll) + 0.3 * 10 * one.loss(objectives.del_penalty)
    torch.testing.assert_close(one.loss(both), expected, **exact)
    torch.testing.assert_close(one.loss(both, alpha=0.2) - one.loss(both), 0.3 * 10 * one.loss(objectives.del_penalty))
    assert (2 * both).with_parameters(alpha=0.5).values == {"alpha": 0.5}


def test_a_name_that_two_terms_have_carries_the_number_of_its_term() -> None:
    one = batch(4)
    both = objectives.talr + objectives.nll + objectives.dist2loss
    assert list(both.parameters) == ["tau_1", "floor", "tau_3"]
    assert (both.parameters["tau_1"].high, both.parameters["tau_3"].high) == (100, 10)
    assert both.parameters["tau_3"].name == "tau_3"
    changed = both.with_parameters(tau_1=2, tau_3=0.5)
    assert changed.values == {"tau_1": 2.0, "floor": 0.01, "tau_3": 0.5}
    parts = [
        one.loss(objectives.talr, tau=2),
        one.loss(objectives.nll),
        one.loss(objectives.dist2loss, tau=0.5),
    ]
    torch.testing.assert_close(one.loss(changed), sum(parts), **exact)
    with pytest.raises(LosscoreError, match="has no parameter 'tau'; it has: tau_1, floor, tau_3"):
        both.with_parameters(tau=1)


def test_one_objective_twice() -> None:
    one = batch(5)
    both = (objectives.tsallis + objectives.tsallis).with_parameters(a_1=0, a_2=1)
    assert both.values == {"a_1": 0.0, "a_2": 1.0}
    torch.testing.assert_close(one.loss(both), one.loss(objectives.nll) + one.loss(objectives.linear), **exact)


@pytest.mark.parametrize("name", sorted(FAMILY.keys() - OF_THE_BATCH))
def test_the_originals_are_left_as_they_were(name: str) -> None:
    objective: Objective = FAMILY[name]
    before = objective.values
    for parameter in objective.parameters.values():
        value = parameter.choices[-1] if parameter.choices else type(parameter.default)(parameter.high)
        objective.with_parameters(**{parameter.name: value})
    (objective + objectives.nll) * 3
    assert objective.values == before
