"""Weights from a sheet equal autograd on the model's own full logits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import losscore
from losscore import objectives
from losscore.errors import LosscoreError
from losscore.objectives import CATALOGUE
from losscore.weighing import gradient, target_rows, tokens_of, weigh, weights_table

TEXT = "Pens cost 12.5 and 8 more cost 3.0"
PROMPT = "Q: 7 pens? A: "


def by_autograd(model: Any, sheet: losscore.Sheet, objective: objectives.Objective) -> np.ndarray:
    """sum_v |dL_t/dz_v| for the whole text at once, the loss called as a drop-in on the model's own logits."""
    ids = torch.tensor([sheet.columns["id"].tolist()])
    with torch.no_grad():
        logits = model.network(ids).logits.double()
    logits.requires_grad_()
    labels = torch.where(torch.tensor([sheet.columns["is_target"].tolist()]), ids, -100)
    places = torch.tensor([np.asarray(sheet.columns["place"], dtype=np.float64).tolist()])
    loss = objective(
        logits,
        labels,
        reduction="sum",
        digit_ids=model.encoder.vocabulary.digit_ids,
        places=places,
        embedding=model.network.get_output_embeddings().weight,
    )
    loss.backward()
    rows = target_rows(sheet)
    return logits.grad[0].abs().sum(-1)[rows - 1].numpy()


@pytest.mark.parametrize("name", CATALOGUE)
@pytest.mark.parametrize("prompt", [None, PROMPT])
def test_the_gradient_of_every_objective_is_autograds(mini: Any, name: str, prompt: str | None) -> None:
    sheet = losscore.score(mini, TEXT, prompt)
    found = gradient(sheet, CATALOGUE[name], mini)
    expected = by_autograd(mini, sheet, CATALOGUE[name])
    assert np.allclose(found[target_rows(sheet)], expected, rtol=2e-4, atol=1e-7)
    assert np.isnan(np.delete(found, target_rows(sheet))).all()


def test_weights_are_the_lanes_where_a_lane_is_a_gate(mini: Any) -> None:
    sheet = losscore.score(mini, TEXT)
    rows = target_rows(sheet)
    for name, column in (
        ("deft", "deft_gate"),
        ("cayley", "cayley_gate"),
        ("ranktuner", "ranktuner_scale"),
        ("dft", "p"),
    ):
        assert weigh(sheet, CATALOGUE[name])[rows] == pytest.approx(np.asarray(sheet.columns[column])[rows], rel=1e-9)
    assert weigh(sheet, objectives.nll)[rows] == pytest.approx(1.0)


def test_windows_do_not_change_what_the_whole_distribution_says(mini: Any) -> None:
    whole = losscore.score(mini, TEXT)
    cut = losscore.score(mini, TEXT, window=12, stride=6)
    assert cut.provenance["windows"] > 1
    expected = gradient(cut, objectives.nll)
    # OverTone at lam = 1 is plain cross-entropy, whatever path it takes.
    slow = gradient(cut, objectives.overtone.with_parameters(lam=1.0), mini)
    rows = target_rows(cut)
    assert slow[rows] == pytest.approx(expected[rows], rel=1e-4, abs=1e-7)
    assert len(target_rows(whole)) == len(rows)


def test_digits_are_where_the_sheet_says(mini: Any) -> None:
    sheet = losscore.score(mini, TEXT, PROMPT)
    digits = tokens_of(sheet).digits
    assert digits is not None
    rows = target_rows(sheet)[digits.rows.numpy()]
    assert [int(sheet.columns["digit"][row]) for row in rows] == digits.digit.tolist()
    assert [float(sheet.columns["place"][row]) for row in rows] == digits.place.tolist()
    assert digits.digit.tolist() == [1, 2, 5, 8, 3, 0]


def test_a_text_without_targets_has_no_weights(mini: Any) -> None:
    for text in ("", "a"):
        sheet = losscore.score(mini, text, bos="never")
        if not len(target_rows(sheet)):
            assert np.isnan(weigh(sheet, objectives.deft)).all()


def test_the_whole_distribution_needs_its_model_and_no_company(mini: Any) -> None:
    sheet = losscore.score(mini, TEXT)
    with pytest.raises(LosscoreError, match="give the model"):
        weigh(sheet, objectives.overtone)
    with pytest.raises(LosscoreError, match="pick one"):
        weigh(sheet, objectives.overtone + objectives.nll, mini)


def test_the_table_reports_its_progress(mini: Any) -> None:
    shares: list[float] = []
    table = weights_table(losscore.score(mini, TEXT), [objectives.nll, objectives.deft], progress=shares.append)
    assert list(table) == ["nll", "deft"]
    assert shares == [0.5, 1.0]


def test_one_objective_with_two_settings_stands_in_the_table_twice(mini: Any) -> None:
    sheet = losscore.score(mini, TEXT)
    both = [objectives.ranktuner, objectives.ranktuner.with_parameters(base="p")]
    table = weights_table(sheet, both)
    assert list(table) == ["ranktuner", "ranktuner:base=p"]
    rows = target_rows(sheet)
    p = np.asarray(sheet.columns["p"])[rows]
    assert table["ranktuner:base=p"][rows] == pytest.approx(table["ranktuner"][rows] * p)
