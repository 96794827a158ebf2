"""One row of a sheet in words: each lane's formula with this token's numbers, and one sentence that reads it."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from losscore.lanes.lane import format_value as f
from losscore.sheet import Sheet

# A scale this near to 1 changes the push by less than a reader would call a difference.
_NEUTRAL = 0.03


class Reading(NamedTuple):
    """What one lane says of one token: `title`, `formula` with the numbers put in, `sentence`."""

    title: str
    formula: str
    sentence: str


def read_row(sheet: Sheet, row: int) -> list[Reading]:
    """The readings of the six lanes at `row`; a single one where the row has no prediction."""
    if math.isnan(_number(sheet, "log_p", row)):
        return [Reading("No prediction", "", _why_blank(sheet, row))]
    return [
        _probability(sheet, row),
        _entropy(sheet, row),
        _rank(sheet, row),
        _ranktuner(sheet, row),
        _deft(sheet, row),
        _del(sheet, row),
    ]


def _number(sheet: Sheet, column: str, row: int) -> float:
    return float(sheet.columns[column][row])


def _why_blank(sheet: Sheet, row: int) -> str:
    if row == 0 and not sheet.columns["bytes"][0]:
        return "This token was put in front of the text; the model predicts what follows it."
    if row == 0:
        return "Nothing stands before the first token, so the model makes no prediction of it."
    return "The model's output is not a number here, so nothing can be said of this token."


def _probability(sheet: Sheet, row: int) -> Reading:
    p, log_p = _number(sheet, "p", row), _number(sheet, "log_p", row)
    # 1 / p overflows for the smallest p that float64 can hold.
    if p < 1e-300:
        sentence = "The model all but ruled this token out."
    else:
        odds = f"about 1 in {f(round(1 / p))}" if p < 0.5 else f"{100 * p:.3g} %"
        sentence = f"The model gave this token a chance of {odds}."
    return Reading("p", f"p = exp(−{f(abs(log_p))}) = {f(p)}", sentence)


def _entropy(sheet: Sheet, row: int) -> Reading:
    entropy = _number(sheet, "entropy", row)
    return Reading(
        "Entropy",
        f"H = −Σ p_v log p_v = {f(entropy)} nats = {f(entropy / math.log(2))} bits",
        f"As undecided as among {f(math.exp(entropy))} equally likely tokens, whatever came here.",
    )


def _rank(sheet: Sheet, row: int) -> Reading:
    rank, expected = int(_number(sheet, "rank", row)), _number(sheet, "expected_rank", row)
    said = (
        "This was the model's first guess"
        if rank == 1
        else f"{f(rank - 1)} other token{_s(rank - 1)} at least as likely"
    )
    return Reading(
        "Rank",
        f"R = #{{v : p_v ≥ p}} = {f(rank)},  E[R] = Σ i·p₍ᵢ₎ = {f(expected)}",
        f"{said}; on average one would expect rank {f(expected)} here.",
    )


def _ranktuner(sheet: Sheet, row: int) -> Reading:
    rank, expected = _number(sheet, "rank", row), _number(sheet, "expected_rank", row)
    scale, entropy = _number(sheet, "ranktuner_scale", row), _number(sheet, "entropy", row)
    formula = f"S = 2^(f({f(expected)}) − f({f(rank)})) = {f(scale)},  f(x) = 1/log₂(x+1)"
    if scale < 1 - _NEUTRAL:
        sentence = (
            "The model guessed this better than such an uncertain place leads one to expect, so RankTuner pushes less."
        )
    elif scale > 1 + _NEUTRAL:
        sentence = "The model ranked this worse than this place leads one to expect, so RankTuner pushes more."
    else:
        sentence = "Rank and expected rank agree, so RankTuner pushes as plain cross-entropy does."
    estimate = f(_number(sheet, "ranktuner_scale_from_bounds", row))
    sentence += f" Estimated from the bounds, without sorting: {estimate}"
    sentence += (
        "."
        if entropy >= 2 * math.log(2)
        else " (the bound does not hold below 2 bits of entropy, so don't rely on it here)."
    )
    return Reading("RankTuner scale", formula, sentence)


def _deft(sheet: Sheet, row: int) -> Reading:
    p, alpha, gate = (_number(sheet, name, row) for name in ("p", "deft_alpha", "deft_gate"))
    formula = f"p^a = {f(p)}^{f(alpha)} = {f(gate)},  a = Σ p_v² = {f(alpha)}"
    if gate < 0.5:
        why = "the model is sure of something else" if alpha > 0.3 else "it found the token very unlikely"
        sentence = f"DEFT lets {_percent(gate)} of the push through: {why}, so the token is not trusted much."
    elif alpha < 0.1:
        sentence = (
            f"DEFT lets {_percent(gate)} of the push through: the model is undecided, so there is much to learn here."
        )
    else:
        sentence = f"DEFT lets {_percent(gate)} of the push through: the token fits what the model believes."
    return Reading("DEFT gate", formula, sentence)


def _del(sheet: Sheet, row: int) -> Reading:
    penalty = sheet.value("del_penalty", row)
    if penalty is None:
        return Reading("DEL penalty", "", "Not one of the ten single-digit tokens, so DEL adds nothing here.")
    alpha = float(sheet.provenance["objectives"]["del"]["alpha"])
    criterion, weight, p = (_number(sheet, name, row) for name in ("del_criterion", "place_weight", "p_given_digit"))
    digit, place = int(_number(sheet, "digit", row)), int(_number(sheet, "place", row))
    return Reading(
        "DEL penalty",
        f"({alpha:g}/10) · {f(criterion)} · {f(weight)} = {f(penalty)}",
        f"Digit {digit} at the {place_name(place)}, weight u = {f(weight)}; "
        f"among the ten digits the model gave it {_percent(p)}.",
    )


def place_name(place: int) -> str:
    """0 -> "units", 1 -> "tens", -1 -> "tenths", and so on."""
    names = {
        0: "units",
        1: "tens",
        2: "hundreds",
        3: "thousands",
        -1: "tenths",
        -2: "hundredths",
        -3: "thousandths",
    }
    return names.get(place, f"10^{place} place")


def _percent(share: float) -> str:
    return f"{100 * share:.3g} %" if share >= 1e-4 else f"{100 * share:.1e} %"


def _s(count: int) -> str:
    return "" if count == 1 else "s"


def verdict(weight: float) -> str:
    """How hard a weight pushes, next to cross-entropy's 1."""
    if math.isnan(weight):
        return "nothing to push"
    if weight < 0.1:
        return "lets it go"
    if weight < 0.9:
        return "pushes less"
    if weight <= 1.1:
        return "pushes as cross-entropy does"
    return "pushes more"


def precision(exact: Sheet, coarse: Sheet) -> str:
    """How far the figures of one text move when the model computes in another dtype or on another device, in words."""
    one, other = (np.asarray(sheet.columns["p"], dtype=np.float64) for sheet in (exact, coarse))
    known = np.isfinite(one) & np.isfinite(other)
    if not known.any():
        return "There is nothing to compare: no token has a prediction."
    moved = np.where(known, np.abs(other - one), -1.0)
    row = int(moved.argmax())
    before, after = exact.summary.mean_nll, coarse.summary.mean_nll
    nll = f"; mean NLL {before:.4f} against {after:.4f} nats" if before is not None and after is not None else ""
    return (
        f"{_arithmetic(coarse, exact)} against {_arithmetic(exact, coarse)}: p differs by at most "
        f"{f(float(moved[row]))}, at token {row + 1} “{exact.columns['token'][row]}” "
        f"({f(float(one[row]))} against {f(float(other[row]))}){nll}."
    )


def _arithmetic(sheet: Sheet, other: Sheet) -> str:
    """What the model computed in; and on what, where that is not the same for both."""
    dtype, device = sheet.provenance["dtype"], sheet.provenance.get("device")
    return str(dtype) if device == other.provenance.get("device") else f"{dtype} on {device}"
