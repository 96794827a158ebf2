"""One lane: a column, what it means in one line, and where each value stands on its colour scale."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[np.float64]]


@dataclass(frozen=True)
class Lane:
    """A quantity drawn over the text.

    place(values, vocabulary) puts each value on the colour scale, 0-100 (50 is neutral on a diverging scale);
    `ends(values, vocabulary)` are the labels of the two ends. Hues are names of the Okabe-Ito palette.
    """

    column: str
    title: str
    name: str
    line: str
    hue: str
    place: Callable[[Array, int], Array]
    ends: Callable[[Array, int], tuple[str, str]]
    low_hue: str = ""
    neutral: str = ""
    blank: str = "no prediction"


def format_value(value: float) -> str:
    """Three significant digits; very small and very large values in powers of ten."""
    if value != 0 and not 1e-3 <= abs(value) < 1e6:
        mantissa, _, exponent = f"{value:.1e}".partition("e")
        return f"{mantissa}e{int(exponent)}" if exponent else mantissa
    if float(value).is_integer():
        return f"{int(value):,}"
    return f"{value:,.0f}" if abs(value) >= 999.5 else f"{value:#.3g}".rstrip(".")


def _share(values: Array, _: int) -> Array:
    return 100 * values


def _largest(values: Array) -> float:
    return float(np.nanmax(values)) if np.isfinite(values).any() else math.nan


def _penalty_ends(values: Array, _: int) -> tuple[str, str]:
    top = _largest(values)
    return "0 · no push", f"{format_value(top)} · most here" if math.isfinite(top) else "no digits here"


P = Lane(
    "p",
    "p",
    "probability",
    "How likely the model found this token.",
    "blue",
    _share,
    lambda *_: ("0 · surprised", "1 · certain"),
)
ENTROPY = Lane(
    "entropy",
    "Entropy",
    "H",
    "How undecided the model was here, whatever came.",
    "purple",
    lambda values, vocabulary: 100 * values / math.log(max(vocabulary, 2)),
    lambda _, vocabulary: ("0 · decided", f"{format_value(math.log(max(vocabulary, 2)))} nats · any token"),
)
RANK = Lane(
    "rank",
    "Rank",
    "R, log scale",
    "How many tokens the model found at least as likely; 1 is its first guess.",
    "orange",
    lambda values, vocabulary: 100 * np.log(values) / math.log(max(vocabulary, 2)),
    lambda _, vocabulary: ("1 · first guess", f"{vocabulary:,} · last"),
)
RANKTUNER = Lane(
    "ranktuner_scale",
    "RankTuner scale",
    "S",
    "Above 1: ranked worse than this place leads one to expect, so push more.",
    "vermillion",
    lambda values, _: 50 + 50 * np.log2(values),
    lambda *_: ("½ · push less", "2 · push more"),
    low_hue="blue",
    neutral="1",
)
DEFT = Lane(
    "deft_gate",
    "DEFT gate",
    "pᵃ",
    "How much of the push DEFT lets through; it lets go of what a sure model doubts.",
    "green",
    _share,
    lambda *_: ("0 · let go", "1 · full push"),
)
DEL = Lane(
    "del_penalty",
    "DEL penalty",
    "digits only",
    "Extra push on a digit, larger the further left its place.",
    "sky",
    lambda values, _: 100 * values / (_largest(values) or 1.0),
    _penalty_ends,
    blank="no single digit",
)
LANES: tuple[Lane, ...] = (P, ENTROPY, RANK, RANKTUNER, DEFT, DEL)
