"""Values and gradients that losscore did not compute, through the drop-in call."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch

from losscore import objectives
from losscore.objectives import Objective
from losscore.text import digit_places
from tests.conftest import REFERENCE, reference_cases
from tests.objectives.family import FAMILY

LOGITS = {case["name"]: case for case in reference_cases("token_statistics")}
CASES = reference_cases("objectives")
DIGITS = json.loads((REFERENCE / "digit_losses.json").read_text("utf-8"))
NAMES: dict[str, Objective] = {
    "nll": objectives.nll,
    "linear": objectives.linear,
    "tsallis_0.5": objectives.tsallis,
    "deft": objectives.deft,
    "cayley": objectives.cayley,
    "dft": objectives.dft,
    "eaft": objectives.eaft,
    "ranktuner": objectives.ranktuner,
    "ranktuner_base_p": FAMILY["ranktuner_base_p"],
    "ranktuner_bounds": FAMILY["ranktuner_bounds"],
    "mixce_0.5": objectives.mixce,
    "overtone_lam0.9_n1": objectives.overtone,
    "talr_tau2": FAMILY["talr_tau2"],
    "emo": objectives.emo,
}
close = {"rtol": 1e-6, "atol": 1e-12}


def embedding(vocabulary: int) -> torch.Tensor:
    v = torch.arange(vocabulary, dtype=torch.float64)
    return torch.stack([torch.cos(v), torch.sin(2 * v), torch.cos(3 * v + 1), torch.ones_like(v)], -1)


def test_every_value_of_the_file_is_asked_for() -> None:
    assert all(case["objectives"].keys() == NAMES.keys() for case in CASES)
    assert [case["name"] for case in CASES] == list(LOGITS)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
@pytest.mark.parametrize("name", NAMES)
def test_loss_and_gradient(name: str, case: dict[str, Any]) -> None:
    given, expected = LOGITS[case["name"]], case["objectives"][name]
    logits = torch.tensor([[given["logits"]]], dtype=torch.float64, requires_grad=True)
    labels = torch.tensor([[given["target"]]])
    loss = NAMES[name](logits, labels, shift=False, embedding=embedding(logits.shape[-1]))
    loss.backward()
    torch.testing.assert_close(loss.detach(), torch.tensor(expected["loss"], dtype=torch.float64), **close)
    torch.testing.assert_close(logits.grad[0, 0], torch.tensor(expected["grad"], dtype=torch.float64), **close)


def digit_loss(objective: Objective, case: dict[str, Any], **options: Any) -> tuple[torch.Tensor, torch.Tensor]:
    logits = torch.tensor(case["logits"], dtype=torch.float64).reshape(1, -1, 32).requires_grad_()
    labels = torch.tensor(case["target_ids"], dtype=torch.long)[None]
    places = torch.full(labels.shape, torch.nan, dtype=torch.float64)
    for index, (_, place) in digit_places(case["text"]).items():
        places[0, index] = place
    loss = objective(logits, labels, shift=False, digit_ids=DIGITS["digit_ids"], places=places, **options)
    return loss.detach(), torch.autograd.grad(loss.sum(), logits)[0][0]


@pytest.mark.parametrize("case", DIGITS["cases"], ids=lambda case: case["text"])
def test_the_digit_penalty_and_its_gradient(case: dict[str, Any]) -> None:
    loss, gradient = digit_loss(objectives.del_penalty, case)
    torch.testing.assert_close(loss, torch.tensor(case["del_loss"], dtype=torch.float64), **close)
    rows = [digit["index"] for digit in case["digits"]]
    expected = torch.zeros_like(gradient)
    expected[rows] = torch.tensor(case["del_grad_rows"], dtype=torch.float64).reshape(-1, 32)
    torch.testing.assert_close(gradient, expected, **close)
    whole, _ = digit_loss(objectives.del_loss, case)
    nll, _ = digit_loss(objectives.nll, case)
    torch.testing.assert_close(whole - nll, loss, rtol=1e-9, atol=1e-14)


@pytest.mark.parametrize("case", [case for case in DIGITS["cases"] if case["digits"]], ids=lambda case: case["text"])
@pytest.mark.parametrize(
    ("name", "column"), [("ntl_was", "ntl_was"), ("ntl_mse", "ntl_mse"), ("dist2loss", "dist2_kl")]
)
def test_the_other_digit_losses(name: str, column: str, case: dict[str, Any]) -> None:
    expected = [digit[column] for digit in case["digits"]]
    loss, _ = digit_loss(FAMILY[name], case)
    assert float(loss) == pytest.approx(sum(expected) / len(expected), rel=1e-6, abs=1e-12)
    # One by one: a loss over N digits among T tokens stands at its digits, times T / N.
    each, _ = digit_loss(FAMILY[name], case, reduction="none")
    share = len(case["target_ids"]) / len(expected)
    found = [float(each[0, digit["index"]]) / share for digit in case["digits"]]
    assert found == pytest.approx(expected, rel=1e-6, abs=1e-12)
    assert int((each != 0).sum()) <= len(expected)
