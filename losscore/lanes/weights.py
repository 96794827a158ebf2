"""Objectives as lanes: the weight of each on every token of one text, in any order of the tokens."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from losscore.lanes.lane import Array, format_value
from losscore.lanes.payload import Table, token_kinds

# Okabe and Ito's hues by kind of objective, so that like stands beside like.
_HUES = {
    "baseline": "blue",
    "probability-dominant": "sky",
    "entropy-dominant": "purple",
    "calibrated": "orange",
    "gate": "green",
    "digits": "vermillion",
    "own formula": "blue",
}
_ENDS = {
    "mean": ("0 · let go", "3 × its mean"),
    "share": ("0 · let go", "its largest share"),
    "rank": ("its smallest", "its largest"),
}


class WeightLane(NamedTuple):
    """One objective: what it says of itself, its raw weights, and the same made comparable (`how` says how)."""

    key: str
    title: str
    kind: str
    line: str
    raw: Array
    normalised: Array
    how: str


def weights_payload(sheet: Table, lanes: Sequence[WeightLane], order: Sequence[int] | None = None) -> dict[str, Any]:
    """The strip's JSON with one stripe per objective; `order` lists the rows to show, by default all as in the text."""
    tokens: list[str] = list(sheet.columns["token"])
    rows = list(range(len(tokens))) if order is None else list(order)
    kinds = token_kinds(sheet)
    in_text_order = order is None
    return {
        "tokens": [tokens[row] for row in rows],
        "glyphs": {str(row): list(cut) for row, cut in sheet.cut_characters.items()} if in_text_order else {},
        "kinds": "".join(kinds[row] for row in rows),
        "breaks": [row for row in rows if "⏎" in tokens[row]] if in_text_order else [],
        "view": "stripes",
        "lanes": [_lane(lane, rows) for lane in lanes],
    }


def _lane(lane: WeightLane, rows: Sequence[int]) -> dict[str, Any]:
    low, high = _ENDS[lane.how]
    top = {"mean": 3.0, "rank": 1.0}.get(lane.how) or float(np.nanmax(lane.normalised, initial=0.0)) or 1.0
    fill = np.clip(100 * lane.normalised / top, 0, 100)
    return {
        "key": lane.key,
        "title": lane.title,
        "name": lane.kind,
        "line": lane.line,
        "low": low,
        "high": high,
        "scale": "sequential",
        "hue": _HUES[lane.kind],
        "low_hue": "",
        "neutral": "",
        "blank": "no weight",
        "fill": [round(float(fill[row])) if math.isfinite(fill[row]) else None for row in rows],
        "value": [format_value(float(lane.raw[row])) if math.isfinite(lane.raw[row]) else None for row in rows],
    }
