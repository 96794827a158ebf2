"""A sheet's lanes as the JSON that the strip draws."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from losscore.lanes.lane import ENTROPY, LANES, Array, Lane, format_value


class Table(Protocol):
    """What a lane needs of a sheet."""

    @property
    def columns(self) -> Mapping[str, Any]: ...
    @property
    def provenance(self) -> Mapping[str, Any]: ...
    @property
    def special(self) -> tuple[bool, ...]: ...
    @property
    def cut_characters(self) -> Mapping[int, tuple[str, int]]: ...


def strip_payload(
    sheet: Table, *, view: str = "panes", bits: bool = False, lanes: Sequence[Lane] = LANES
) -> dict[str, Any]:
    """Tokens, their kinds and each lane's values and colour positions; rounded for the screen.

    view: "panes" (one card a lane) or "stripes" (all lanes under one text). bits: entropy in bits, not nats.
    """
    tokens: list[str] = list(sheet.columns["token"])
    return {
        "tokens": tokens,
        "glyphs": {str(row): list(cut) for row, cut in sheet.cut_characters.items()},
        "kinds": token_kinds(sheet),
        "breaks": [row for row, token in enumerate(tokens) if "⏎" in token],
        "view": view,
        "lanes": [_lane(lane, sheet, bits) for lane in lanes],
    }


def token_kinds(sheet: Table) -> str:
    """One letter per token: s special, x without a prediction, t target, p prompt."""
    return "".join(map(_kind, sheet.special, sheet.columns["is_target"], sheet.columns["log_p"]))


def _kind(special: bool, is_target: bool, log_p: float) -> str:
    if special:
        return "s"
    if math.isnan(log_p):
        return "x"
    return "t" if is_target else "p"


def _lane(lane: Lane, sheet: Table, bits: bool) -> dict[str, Any]:
    values: Array = np.asarray(sheet.columns[lane.column], dtype=np.float64)
    vocabulary = int(sheet.provenance["vocabulary"])
    low, high = lane.ends(values, vocabulary)
    shown = values
    if bits and lane is ENTROPY:
        shown = values / math.log(2)
        high = f"{format_value(math.log2(max(vocabulary, 2)))} bits · any token"
    with np.errstate(divide="ignore", invalid="ignore"):
        fill = np.clip(lane.place(values, vocabulary), 0, 100)
    return {
        "key": lane.column,
        "title": lane.title,
        "name": lane.name,
        "line": lane.line,
        "low": low,
        "high": high,
        "scale": "diverging" if lane.low_hue else "sequential",
        "hue": lane.hue,
        "low_hue": lane.low_hue,
        "neutral": lane.neutral,
        "blank": lane.blank,
        "fill": [round(place) if math.isfinite(place) else None for place in fill.tolist()],
        "value": [format_value(value) if math.isfinite(value) else None for value in shown.tolist()],
    }
