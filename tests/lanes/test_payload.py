from __future__ import annotations

import json
import math
from typing import Any

import pytest

import losscore
from losscore.lanes import strip_payload
from losscore.sheet import Sheet
from tests.tiny import Oracle
from tests.tiny.table import sheet_of


@pytest.fixture
def sheet() -> Sheet:
    return sheet_of(
        ["The", "·8", "⏎", "·pens", "5"],
        is_target=[False, False, True, True, True],
        log_p=[None, math.log(0.25), math.log(0.5), -800.0, -math.inf],
        p=[None, 0.25, 0.5, 0.0, 0.0],
        entropy=[None, 0.0, math.log(10), math.log(1000), 1.0],
        rank=[None, 1, 10, 1000, 1000],
        expected_rank=[None, 1.0, 5.0, 500.5, 2.0],
        ranktuner_scale=[None, 1.0, 0.5, 2.0, 2**0.5],
        deft_gate=[None, 1.0, 0.125, 0.0, 0.0],
        del_penalty=[None, None, None, None, 0.02],
    )


def lane(payload: dict[str, Any], key: str) -> dict[str, Any]:
    return next(lane for lane in payload["lanes"] if lane["key"] == key)


def test_fills_and_values_by_hand(sheet: Sheet) -> None:
    payload = strip_payload(sheet)
    assert payload["tokens"] == ["The", "·8", "⏎", "·pens", "5"]
    assert lane(payload, "p")["fill"] == [None, 25, 50, 0, 0]
    assert lane(payload, "p")["value"] == [None, "0.250", "0.500", "0", "0"]
    assert lane(payload, "entropy")["fill"] == [None, 0, 33, 100, 14]
    assert lane(payload, "entropy")["value"] == [None, "0", "2.30", "6.91", "1"]
    assert lane(payload, "rank")["fill"] == [None, 0, 33, 100, 100]
    assert lane(payload, "rank")["value"] == [None, "1", "10", "1,000", "1,000"]
    assert lane(payload, "deft_gate")["fill"] == [None, 100, 12, 0, 0]
    assert lane(payload, "del_penalty")["fill"] == [None, None, None, None, 100]
    assert lane(payload, "del_penalty")["value"] == [None, None, None, None, "0.0200"]


def test_a_diverging_lane_is_neutral_where_the_scale_is_one(sheet: Sheet) -> None:
    scale = lane(strip_payload(sheet), "ranktuner_scale")
    assert scale["fill"] == [None, 50, 0, 100, 75]
    assert (scale["scale"], scale["neutral"]) == ("diverging", "1")
    assert scale["low_hue"] != scale["hue"]
    others = [lane for lane in strip_payload(sheet)["lanes"] if lane["key"] != "ranktuner_scale"]
    assert {lane["scale"] for lane in others} == {"sequential"}


def test_kinds_breaks_and_glyphs(sheet: Sheet) -> None:
    payload = strip_payload(sheet)
    assert payload["kinds"] == "xpttt"
    assert payload["breaks"] == [2]
    special = Sheet(
        text=sheet.text,
        columns=sheet.columns,
        provenance=sheet.provenance,
        special=(True, False, False, False, False),
        cut_characters={3: ("😀", 2)},
    )
    assert strip_payload(special)["kinds"] == "spttt"
    assert strip_payload(special)["glyphs"] == {"3": ["😀", 2]}


def test_entropy_in_bits_changes_labels_not_colours(sheet: Sheet) -> None:
    nats, bits = (lane(strip_payload(sheet, bits=on), "entropy") for on in (False, True))
    assert nats["fill"] == bits["fill"]
    assert bits["value"] == [None, "0", "3.32", "9.97", "1.44"]
    assert (nats["high"], bits["high"]) == ("6.91 nats · any token", "9.97 bits · any token")
    assert lane(strip_payload(sheet, bits=True), "rank") == lane(strip_payload(sheet), "rank")


def test_the_view_is_passed_on(sheet: Sheet) -> None:
    assert strip_payload(sheet)["view"] == "panes"
    assert strip_payload(sheet, view="stripes")["view"] == "stripes"


def test_fills_are_whole_numbers_between_the_ends(mini: Any) -> None:
    payload = strip_payload(losscore.score(mini, "8 pens cost 12.5 and 100.0 😀"))
    for part in payload["lanes"]:
        assert all(fill is None or (type(fill) is int and 0 <= fill <= 100) for fill in part["fill"])
        assert [fill is None for fill in part["fill"]] == [value is None for value in part["value"]]


def test_a_value_beyond_an_end_stops_there() -> None:
    beyond = sheet_of(["a", "b", "c"], entropy=[None, 1.02 * math.log(1000), -0.1], rank=[None, 2000, 1])
    payload = strip_payload(beyond)
    assert lane(payload, "entropy")["fill"] == [None, 100, 0]
    assert lane(payload, "rank")["fill"] == [None, 100, 0]


def test_a_certain_model_fills_the_ends() -> None:
    payload = strip_payload(losscore.score(Oracle("ABCDE"), "ABCDE"))
    assert lane(payload, "p")["fill"] == [None, 100, 100, 100, 100]
    assert lane(payload, "rank")["fill"] == [None, 0, 0, 0, 0]
    assert lane(payload, "ranktuner_scale")["fill"] == [None, 50, 50, 50, 50]
    assert lane(payload, "del_penalty")["high"] == "no digits here"


def test_two_thousand_tokens_are_small_and_strict_json() -> None:
    values = [0.123456789 * (row % 7 + 1) for row in range(2_000)]
    sheet = sheet_of(
        ["·token"] * 2_000,
        **dict.fromkeys(["log_p", "p", "entropy", "rank", "ranktuner_scale", "deft_gate", "del_penalty"], values),
    )
    text = json.dumps(strip_payload(sheet), allow_nan=False, ensure_ascii=False, separators=(",", ":"))
    assert len(text.encode()) < 250_000


@pytest.mark.parametrize("text", ["", "a"])
def test_little_or_nothing_to_draw(mini: Any, text: str) -> None:
    payload = strip_payload(losscore.score(mini, text))
    assert payload["kinds"] == "x" * len(text)
    json.dumps(payload, allow_nan=False)
