"""Where an objective is another one: the limits that the papers name."""

from __future__ import annotations

import math
from dataclasses import replace
from importlib import import_module

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from losscore import objectives
from losscore.objectives import Objective, gate
from losscore.objectives.dist2loss import dist2loss
from losscore.objectives.talr import temperature
from losscore.objectives.tsallis import deformed_log
from tests.objectives.family import FAMILY, Batch, batch, flat, tokens_of

overtone = import_module("losscore.objectives.overtone")
exact = {"rtol": 1e-12, "atol": 1e-14}


def tensor(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


def same(one: Batch, first: Objective, second: Objective, *, gradients_only: bool = False) -> None:
    value, gradient = one.value_and_gradient(first)
    other_value, other_gradient = one.value_and_gradient(second)
    torch.testing.assert_close(gradient, other_gradient, **exact)
    if not gradients_only:
        torch.testing.assert_close(value, other_value, **exact)


@pytest.mark.parametrize(
    ("objective", "equal"),
    [
        (objectives.tsallis.with_parameters(a=0), objectives.nll),
        (objectives.tsallis.with_parameters(a=1), objectives.linear),
        (objectives.del_loss.with_parameters(alpha=0), objectives.nll),
        (objectives.mixce.with_parameters(eta=1), objectives.nll),
        (objectives.mixce.with_parameters(eta=0), objectives.dft),
        (objectives.eaft.with_parameters(power=0), objectives.nll),
        (objectives.overtone.with_parameters(lam=1), objectives.nll),
        (objectives.talr.with_parameters(floor=1), objectives.nll),
        (objectives.talr.with_parameters(tau=1, floor=0), objectives.dft),
        (objectives.from_formula("p"), objectives.dft),
        (objectives.from_formula("1"), objectives.nll),
        (objectives.from_formula("p ** concentration"), None),
    ],
    ids=lambda objective: f"{objective.name} {objective.values}" if objective else "",
)
def test_one_objective_is_another(objective: Objective, equal: Objective | None) -> None:
    for seed in range(3):
        # A frozen weight has the gradient of DEFT, though not its value.
        same(batch(seed), objective, equal or objectives.deft, gradients_only=equal is None)


def test_dft_has_the_gradient_of_the_linear_loss() -> None:
    same(batch(3), objectives.dft, objectives.linear, gradients_only=True)


@given(st.floats(-700, 0), st.floats(0, 2))
def test_the_deformed_logarithm_is_its_quotient(log_p: float, a: float) -> None:
    if abs(a * log_p) < 1e-3:
        return
    expected = -math.expm1(a * log_p) / a
    assert float(deformed_log(tensor(log_p), tensor(a))) == pytest.approx(expected, rel=1e-14)


@pytest.mark.parametrize("x", [0.0, 1e-300, 1e-16, 0.999e-8, 1.001e-8, 0.999e-5, 1.001e-5, 1e-3])
@pytest.mark.parametrize("log_p", [-1e-6, -1.0, -20.0])
def test_the_seam_near_a_of_nought(x: float, log_p: float) -> None:
    """(1 - e^-x) / x to all digits, by its series, on either side of the seam; and the gate p^a = e^-x."""
    a = x / -log_p
    series = -log_p * sum((-x) ** k / math.factorial(k + 1) for k in range(8))
    live = tensor(log_p).requires_grad_()
    value = deformed_log(live, tensor(a))
    (gradient,) = torch.autograd.grad(value.sum(), live)
    assert float(value.detach()) == pytest.approx(series, rel=1e-14)
    assert float(gradient) == pytest.approx(-math.exp(-x), rel=1e-14)


@pytest.mark.parametrize("a", [0.01, 0.3, 1.0, 2.0])
def test_the_gate_keeps_its_digits(a: float) -> None:
    """p^a, also in float32 and where p is far below its rounding."""
    log_p = -torch.logspace(-7, 1.5, 60)
    live = log_p.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(deformed_log(live, torch.full_like(live, a)).sum(), live)
    torch.testing.assert_close(-gradient.double(), torch.exp(a * log_p.double()), rtol=3e-6, atol=0)


@pytest.mark.parametrize("a", [0.0, 0.5, 2.0])
def test_the_largest_logarithm_of_a_float32(a: float) -> None:
    live = torch.tensor([-3e38]).requires_grad_()
    loss = deformed_log(live, torch.tensor([a]))
    (gradient,) = torch.autograd.grad(loss.sum(), live)
    assert loss.tolist() == pytest.approx([1 / a if a else 3e38])
    assert gradient.tolist() == [-1.0 if a == 0 else 0.0]


def test_a_focus_too_small_for_its_digits_in_float32() -> None:
    # Cayley's a = p / 4 is subnormal here.
    log_p = torch.tensor([-95.0, -100.0, -110.0])
    loss = deformed_log(log_p, log_p.exp() / 4)
    torch.testing.assert_close(loss, -log_p, rtol=1e-6, atol=0)


@pytest.mark.parametrize("options", [{}, {"exponent": 0.5}])
def test_ranktuner_without_a_surprise_is_nll(options: dict[str, float]) -> None:
    logits, target, _, _ = flat(batch(4))
    tokens = tokens_of(logits, target)
    level = replace(tokens, expected_rank=tokens.rank)
    found = objectives.ranktuner.with_parameters(**options).per_token(level)
    torch.testing.assert_close(found, objectives.nll.per_token(level), **exact)


def test_a_fixed_exponent_of_ranktuner() -> None:
    logits, target, _, _ = flat(batch(4))
    tokens = tokens_of(logits, target)
    weight = gate(objectives.ranktuner.with_parameters(exponent=0.7), tokens)
    torch.testing.assert_close(weight, (tokens.rank / tokens.expected_rank) ** 0.7, **exact)


@pytest.mark.parametrize(("vocabulary", "weight"), [(16, 1.0), (20, 1.0), (300, 1.0), (1, 0.0)])
@pytest.mark.parametrize("power", [0.5, 1.0, 3.0])
def test_eaft_of_a_uniform_distribution(vocabulary: int, weight: float, power: float) -> None:
    tokens = tokens_of(torch.zeros(1, vocabulary, dtype=torch.float64), torch.tensor([0]))
    assert float(gate(objectives.eaft.with_parameters(power=power), tokens)) == pytest.approx(weight, abs=1e-12)


def test_eaft_of_a_certain_distribution_is_nought_and_nought_to_the_nought_is_one() -> None:
    logits = torch.full((2, 40), -torch.inf, dtype=torch.float64)
    logits[:, 3] = 0.0
    logits[1, 5] = -90.0
    tokens = tokens_of(logits, torch.tensor([3, 5]))
    assert gate(objectives.eaft, tokens).tolist() == pytest.approx([0, 0], abs=1e-12)
    assert gate(objectives.eaft.with_parameters(power=0), tokens).tolist() == [1, 1]


def test_eaft_divides_by_three_as_published_code_does() -> None:
    tokens = tokens_of(torch.zeros(1, 50, dtype=torch.float64), torch.tensor([0]))
    weight = gate(objectives.eaft.with_parameters(divisor="3.0"), tokens)
    assert float(weight) == pytest.approx(math.log(20) / 3, rel=1e-12)


def test_the_temperature_of_talr_is_a_median_over_texts() -> None:
    log_p = tensor(-1, -3, -10, -4, -4, -4)
    logits, target, _, _ = flat(batch(5))
    tokens = replace(tokens_of(logits[:6], target[:6]), log_p=log_p, sequence=torch.tensor([0, 0, 2, 5, 5, 5]))
    assert float(temperature(tokens)) == pytest.approx(4.0)  # of 2, 10 and 4
    pair = replace(tokens, sequence=torch.tensor([0, 0, 0, 1, 1, 1]))
    assert float(temperature(pair)) == pytest.approx((14 / 3 + 4) / 2)


def test_a_certain_batch_has_the_weight_one() -> None:
    tokens = tokens_of(tensor(90.0, 0.0)[None], torch.tensor([0]))
    assert float(gate(objectives.talr, tokens)) == 1


def test_emo_with_orthogonal_embeddings_forgives_nothing() -> None:
    """d = 1 - q_y: the transport term adds the push -p log p to that of -log p, and both are halved."""
    one = replace(batch(6), embedding=torch.eye(30, dtype=torch.float64)[torch.randperm(30)])
    logits, target, _, _ = flat(one)
    log_p = torch.log_softmax(logits, -1).gather(-1, target[:, None])
    error = log_p.exp().new_tensor(torch.softmax(logits, -1).tolist()) - torch.nn.functional.one_hot(target, 30)
    _, gradient = one.value_and_gradient(objectives.emo, reduction="sum")
    expected = (1 - log_p.exp() * log_p) / 2 * error
    torch.testing.assert_close(gradient[:, :-1][one.labels[:, 1:] != -100], expected, rtol=1e-9, atol=1e-14)


def test_emo_with_one_embedding_for_all_is_half_of_nll() -> None:
    one = replace(batch(6), embedding=torch.ones(30, 3, dtype=torch.float64))
    same(one, objectives.emo, 0.5 * objectives.nll, gradients_only=True)
    torch.testing.assert_close(one.loss(objectives.emo), one.loss(objectives.nll), **exact)


def test_emo_keeps_its_value_where_all_mass_is_on_the_targets_twin() -> None:
    logits = tensor(0.0, 200.0, 0.0)[None, None].requires_grad_()
    rows = tensor(1.0, 1.0, -1.0)[:, None]
    loss = objectives.emo(logits, torch.tensor([[0]]), shift=False, embedding=rows)
    (gradient,) = torch.autograd.grad(loss, logits)
    assert float(loss.detach()) == pytest.approx(200.0)
    assert gradient.isfinite().all()


def test_overtone_learns_a_target_that_the_model_half_agrees_with() -> None:
    """By hand: logits 2, 1, -3 have mean 0 and deviation sqrt(14/3) = 2.16, so the two largest are kept."""
    logits = tensor(2.0, 1.0, -3.0)[None]
    log_probs = torch.log_softmax(logits, -1)
    own = tensor(math.e / (1 + math.e), 1 / (1 + math.e), 0.0)
    target = overtone.soft_target(log_probs, torch.tensor([0]), 0.4, 1.0)
    torch.testing.assert_close(target[0], 0.4 * tensor(1, 0, 0) + 0.6 * own, **exact)
    # n = 0.4: the second is 0.46 deviations away.
    target = overtone.soft_target(log_probs, torch.tensor([0]), 0.4, 0.4)
    torch.testing.assert_close(target[0], tensor(1, 0, 0), **exact)
    # Of the label's 0.1 and the model's 0.9 * 0.73 the model's is larger: one-hot.
    target = overtone.soft_target(log_probs, torch.tensor([1]), 0.1, 1.0)
    torch.testing.assert_close(target[0], tensor(0, 1, 0), **exact)


def test_overtone_counts_the_spread_without_what_is_ruled_out() -> None:
    finite, more = tensor(2.0, 1.0, -3.0)[None], tensor(2.0, 1.0, -3.0, -math.inf, -math.inf)[None]
    few = overtone.soft_target(torch.log_softmax(finite, -1), torch.tensor([0]), 0.4, 1.0)
    many = overtone.soft_target(torch.log_softmax(more, -1), torch.tensor([0]), 0.4, 1.0)
    torch.testing.assert_close(many[:, :3], few, **exact)
    assert many[:, 3:].eq(0).all()


@pytest.mark.parametrize("vocabulary", [16, 300, 49_151])
def test_overtone_of_a_uniform_distribution_keeps_one_token(vocabulary: int) -> None:
    log_probs = torch.log_softmax(torch.full((1, vocabulary), 1.7), -1)
    target = overtone.soft_target(log_probs, torch.tensor([5]), 0.9, 1.0)[0]
    assert target.nonzero().squeeze(-1).tolist() == [0, 5]
    assert target[[0, 5]].tolist() == pytest.approx([0.1, 0.9])


def test_overtone_pulls_towards_its_soft_target() -> None:
    one = batch(7)
    logits, target, _, _ = flat(one)
    soft = overtone.soft_target(torch.log_softmax(logits, -1), target, 0.3, 2.0)
    _, gradient = one.value_and_gradient(FAMILY["overtone_mild"], reduction="sum")
    expected = torch.softmax(logits, -1) - soft
    torch.testing.assert_close(gradient[:, :-1][one.labels[:, 1:] != -100], expected, rtol=1e-9, atol=1e-14)
    assert soft.ne(torch.nn.functional.one_hot(target, 30)).any()


def test_a_narrow_bell_is_the_cross_entropy_over_the_digits() -> None:
    logits, target, places, _ = flat(batch(8))
    tokens = tokens_of(logits, target, places=places)
    assert tokens.digits is not None
    narrow = dist2loss.with_parameters(tau=0.05).per_token(tokens).sum()
    log_phat = torch.log_softmax(tokens.digits.logits, -1)
    share = len(tokens) / len(tokens.digits.rows)
    expected = -share * log_phat.gather(-1, tokens.digits.digit[:, None]).sum()
    torch.testing.assert_close(narrow, expected, rtol=1e-7, atol=0)


def test_sure_of_the_digit_there_is_nothing_to_pay() -> None:
    for name in ("ntl_was", "ntl_mse"):
        _, target, places, _ = flat(batch(8))
        sure = torch.nn.functional.one_hot(target, 30).double() * 60
        tokens = tokens_of(sure, target, places=places)
        assert FAMILY[name].per_token(tokens).tolist() == pytest.approx([0] * len(tokens), abs=1e-12)
