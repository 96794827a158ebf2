"""Objectives as lanes."""

from __future__ import annotations

import json

import numpy as np

from losscore.comparison import normalise
from losscore.lanes.weights import WeightLane, weights_payload
from tests.tiny.table import sheet_of

SHEET = sheet_of(["a", "b\n", "c"], log_p=[None, -1.0, -2.0])
SHEET.columns["token"][1] = "b⏎"
RAW = np.array([np.nan, 1.0, 3.0])


def lane(how: str) -> WeightLane:
    return WeightLane("deft", "DEFT", "gate", "idea", RAW, normalise(RAW, how), how)


def test_fills_follow_the_normalisation_and_values_stay_raw() -> None:
    fills = {how: weights_payload(SHEET, [lane(how)])["lanes"][0] for how in ("mean", "share", "rank")}
    assert fills["mean"]["fill"] == [None, 17, 50]
    assert fills["share"]["fill"] == [None, 33, 100]
    assert fills["rank"]["fill"] == [None, 0, 100]
    assert all(found["value"] == [None, "1", "3"] for found in fills.values())


def test_another_order_moves_everything_together() -> None:
    payload = weights_payload(SHEET, [lane("rank")], [2, 1])
    assert payload["tokens"] == ["c", "b⏎"]
    assert payload["kinds"] == "tt"
    assert payload["breaks"] == []
    assert payload["lanes"][0]["fill"] == [100, 0]
    assert weights_payload(SHEET, [lane("rank")])["breaks"] == [1]
    json.dumps(payload, allow_nan=False)
