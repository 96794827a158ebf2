from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

import losscore
from losscore.reading import Reading, place_name, precision, read_row
from losscore.sheet import Sheet
from tests.tiny.table import sheet_of


def row(**values: float) -> Sheet:
    """A first token without a prediction, and one with these values."""
    known = {"log_p": math.log(values.get("p", 0.5)) if values.get("p", 0.5) > 0 else -800.0, "p": 0.5}
    known |= {"entropy": math.log(8), "rank": 2, "expected_rank": 5.3, "ranktuner_scale": 0.838}
    known |= {"ranktuner_scale_from_bounds": 0.9, "deft_alpha": 0.5, "deft_gate": 0.5}
    return sheet_of(["a", "b"], **{name: [None, value] for name, value in {**known, **values}.items()})


def reading(sheet: Sheet, title: str) -> Reading:
    return next(reading for reading in read_row(sheet, 1) if reading.title == title)


def test_one_reading_a_lane_in_their_order() -> None:
    assert [reading.title for reading in read_row(row(), 1)] == [
        "p",
        "Entropy",
        "Rank",
        "RankTuner scale",
        "DEFT gate",
        "DEL penalty",
    ]


def test_the_example_of_the_scale() -> None:
    found = reading(
        row(rank=2, expected_rank=5.3, ranktuner_scale=2 ** (1 / math.log2(6.3) - 1 / math.log2(3))), "RankTuner scale"
    )
    assert found.formula == "S = 2^(f(5.30) − f(2)) = 0.838,  f(x) = 1/log₂(x+1)"
    assert "pushes less" in found.sentence
    assert "Estimated from the bounds, without sorting: 0.900." in found.sentence


@pytest.mark.parametrize(
    ("scale", "said"),
    [(0.96, "pushes less"), (0.98, "plain cross-entropy"), (1.0, "plain"), (1.02, "plain"), (1.04, "pushes more")],
)
def test_the_sentence_of_the_scale_follows_its_side_of_one(scale: float, said: str) -> None:
    assert said in reading(row(ranktuner_scale=scale), "RankTuner scale").sentence


def test_below_two_bits_the_estimate_is_not_to_be_relied_on() -> None:
    warning = "the bound does not hold below 2 bits"
    assert warning in reading(row(entropy=1.99 * math.log(2)), "RankTuner scale").sentence
    assert warning not in reading(row(entropy=2 * math.log(2)), "RankTuner scale").sentence


@pytest.mark.parametrize(
    ("p", "formula", "sentence"),
    [
        (0.75, "p = exp(−0.288) = 0.750", "The model gave this token a chance of 75 %."),
        (0.01, "p = exp(−4.61) = 0.0100", "The model gave this token a chance of about 1 in 100."),
        (1e-20, "p = exp(−46.1) = 1.0e-20", "The model gave this token a chance of about 1 in 1.0e20."),
        (5e-324, "p = exp(−744) = 4.9e-324", "The model all but ruled this token out."),
        (0.0, "p = exp(−800) = 0", "The model all but ruled this token out."),
        (1.0, "p = exp(−0) = 1", "The model gave this token a chance of 100 %."),
    ],
)
def test_the_reading_of_p(p: float, formula: str, sentence: str) -> None:
    found = reading(row(p=p), "p")
    assert (found.formula, found.sentence) == (formula, sentence)


def test_the_reading_of_entropy() -> None:
    found = reading(row(entropy=math.log(8)), "Entropy")
    assert found.formula == "H = −Σ p_v log p_v = 2.08 nats = 3 bits" or "3.00 bits" in found.formula
    assert "8.00 equally likely" in found.sentence or "8 equally likely" in found.sentence


@pytest.mark.parametrize(
    ("rank", "said"),
    [(1, "This was the model's first guess"), (2, "1 other token at least as likely"), (1500, "1,499 other tokens")],
)
def test_the_reading_of_rank(rank: int, said: str) -> None:
    found = reading(row(rank=rank), "Rank")
    assert found.sentence.startswith(said)
    assert found.sentence.endswith("one would expect rank 5.30 here.")
    assert f"= {rank:,}," in found.formula


@pytest.mark.parametrize(
    ("p", "alpha", "gate", "said"),
    [
        (0.01, 0.5, 0.1, "10 % of the push through: the model is sure of something else"),
        (1e-9, 0.1, 0.126, "12.6 % of the push through: it found the token very unlikely"),
        (0.01, 0.05, 0.794, "79.4 % of the push through: the model is undecided"),
        (0.9, 0.8, 0.919, "91.9 % of the push through: the token fits"),
    ],
)
def test_the_reading_of_the_gate(p: float, alpha: float, gate: float, said: str) -> None:
    found = reading(row(p=p, deft_alpha=alpha, deft_gate=gate), "DEFT gate")
    assert said in found.sentence


def test_the_formula_of_the_gate() -> None:
    found = reading(row(p=0.25, deft_alpha=0.5, deft_gate=0.5), "DEFT gate")
    assert found.formula == "p^a = 0.250^0.500 = 0.500,  a = Σ p_v² = 0.500"


def test_the_reading_of_a_digit() -> None:
    sheet = row(digit=7, place=1, place_weight=4.0, p_given_digit=0.125, del_criterion=1.5, del_penalty=0.006)
    found = reading(sheet, "DEL penalty")
    assert found.formula == "(0.01/10) · 1.50 · 4 = 0.00600"
    assert found.sentence == "Digit 7 at the tens, weight u = 4; among the ten digits the model gave it 12.5 %."


def test_no_digit_no_penalty() -> None:
    assert reading(row(), "DEL penalty") == Reading(
        "DEL penalty", "", "Not one of the ten single-digit tokens, so DEL adds nothing here."
    )


@pytest.mark.parametrize(
    ("place", "name"),
    [(0, "units"), (1, "tens"), (3, "thousands"), (-1, "tenths"), (-3, "thousandths"), (9, "10^9 place")],
)
def test_names_of_places(place: int, name: str) -> None:
    assert place_name(place) == name


def test_a_blank_first_row_says_why() -> None:
    (found,) = read_row(row(), 0)
    assert found == Reading(
        "No prediction", "", "Nothing stands before the first token, so the model makes no prediction of it."
    )


def test_an_added_first_row_says_why(mini: Any) -> None:
    (found,) = read_row(losscore.score(mini, "a", bos="always"), 0)
    assert "put in front of the text" in found.sentence


def test_a_broken_row_says_why() -> None:
    (found,) = read_row(sheet_of(["a", "b"]), 1)
    assert "not a number here" in found.sentence


def test_a_ruled_out_token_still_has_its_readings() -> None:
    sheet = row(log_p=-math.inf, p=0.0, deft_gate=0.0, ranktuner_scale_from_bounds=math.inf)
    assert reading(sheet, "p").sentence == "The model all but ruled this token out."
    assert len(read_row(sheet, 1)) == 6


def test_every_row_of_a_real_sheet_can_be_read(mini: Any) -> None:
    sheet = losscore.score(mini, "8 pens cost 12.5 😀")
    for at in range(len(sheet)):
        assert all(said.title and said.sentence for said in read_row(sheet, at))


def test_what_another_dtype_changes_is_said_with_its_largest_difference() -> None:
    tokens = ["a", "b", "c"]
    exact = sheet_of(tokens, p=[None, 0.5, 0.25], log_p=[None, math.log(0.5), math.log(0.25)])
    coarse = sheet_of(tokens, p=[None, 0.49, 0.5], log_p=[None, math.log(0.49), math.log(0.5)])
    exact, coarse = (
        replace(sheet, provenance={**sheet.provenance, "dtype": dtype})
        for sheet, dtype in ((exact, "float32"), (coarse, "bfloat16"))
    )
    nll, other = -math.log(0.125) / 2, -math.log(0.49 * 0.5) / 2
    assert precision(exact, coarse) == (
        "bfloat16 against float32: p differs by at most 0.250, at token 3 “c” (0.250 against 0.500); "
        f"mean NLL {nll:.4f} against {other:.4f} nats."
    )
    assert "nothing to compare" in precision(sheet_of(["a"]), sheet_of(["a"]))


def test_another_device_is_named_where_the_two_differ() -> None:
    sheets = [
        replace(sheet, provenance={**sheet.provenance, "dtype": "float32", "device": device})
        for sheet, device in (
            (sheet_of(["a", "b"], p=[None, 0.5], log_p=[None, math.log(0.5)]), "cpu"),
            (sheet_of(["a", "b"], p=[None, 0.25], log_p=[None, math.log(0.25)]), "mps"),
        )
    ]
    assert precision(*sheets) == (
        "float32 on mps against float32 on cpu: p differs by at most 0.250, at token 2 “b” (0.500 against 0.250); "
        "mean NLL 0.6931 against 1.3863 nats."
    )
