from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any

import pytest

import losscore
from losscore.lanes import strip_payload
from losscore.lanes.change import Change, change_payload, change_words, largest_changes, summary, watch_payload
from losscore.sheet import Sheet
from tests.tiny import mini_model
from tests.tiny.table import sheet_of

TOKENS = ["The", "·8", "⏎", "·pens", "5"]


def sheet(p: Sequence[float | None], entropy: Sequence[float | None], rank: Sequence[float | None]) -> Sheet:
    """The first token unpredicted, the second context, the other three targets."""
    log_p = [None if value is None else math.log(value) for value in p]
    return sheet_of(TOKENS, is_target=[False, False, True, True, True], log_p=log_p, p=p, entropy=entropy, rank=rank)


BEFORE = sheet([None, 0.5, 0.12, 0.75, 0.25], [None, 1.0, 3.0, 1.0, 0.5], [None, 2, 120, 1, 2])
AFTER = sheet([None, 0.1, 0.83, 0.5, 0.25], [None, 2.5, 1.5, 1.3, 0.5], [None, 4, 3, 2, 2])


def lanes(payload: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {lane["key"]: lane for lane in payload["lanes"]}


def frozen(payload: dict[str, Any]) -> str:
    """All that makes the strip build its elements anew: everything but fills and values, and where they are blank."""
    still = [{key: value for key, value in lane.items() if key not in ("fill", "value")} for lane in payload["lanes"]]
    blank = [[fill is None for fill in lane["fill"]] for lane in payload["lanes"]]
    return json.dumps([{**payload, "lanes": still}, blank])


def test_differences_by_hand() -> None:
    drawn = lanes(change_payload(BEFORE, AFTER))
    assert list(drawn) == ["p", "entropy", "rank"]
    # 50 + 50 times: the difference of p; that of entropy over 3 nats; log(after / before) / log 1000 for the rank
    assert drawn["p"]["fill"] == [None, 30, 86, 38, 50]
    assert drawn["p"]["value"] == [None, "0.500 → 0.100", "0.120 → 0.830", "0.750 → 0.500", "0.250 → 0.250"]
    assert drawn["entropy"]["fill"] == [None, 75, 25, 55, 50]
    assert drawn["entropy"]["value"][2] == "3 → 1.50"
    assert drawn["rank"]["fill"] == [None, 55, 23, 55, 50]
    assert drawn["rank"]["value"] == [None, "2 → 4", "120 → 3", "1 → 2", "2 → 2"]


def test_a_change_lane_says_which_end_is_which() -> None:
    for key, lane in lanes(change_payload(BEFORE, AFTER)).items():
        assert lane["scale"] == "diverging", key
        assert lane["low"].startswith("fell"), key
        assert lane["high"].startswith("rose"), key
        assert lane["neutral"] == "no change", key
        assert lane["hue"] != lane["low_hue"], key
    rank = lanes(change_payload(BEFORE, AFTER))["rank"]
    assert "better" in rank["low"]
    assert "worse" in rank["high"]
    assert "Smaller is better" in rank["line"]


def test_what_a_reader_should_want_has_one_hue_in_p_and_rank() -> None:
    drawn = lanes(change_payload(BEFORE, AFTER))
    assert drawn["p"]["hue"] == drawn["rank"]["low_hue"] == "blue"
    assert drawn["p"]["low_hue"] == drawn["rank"]["hue"] == "vermillion"


def test_entropy_in_bits_changes_words_not_colours() -> None:
    nats, bits = (lanes(change_payload(BEFORE, AFTER, bits=on)) for on in (False, True))
    assert nats["entropy"]["fill"] == bits["entropy"]["fill"]
    assert bits["entropy"]["value"][2] == "4.33 → 2.16"
    assert (nats["entropy"]["high"], bits["entropy"]["high"]) == (
        "rose by 3 nats or more",
        "rose by 4.33 bits or more",
    )
    assert nats["p"] == bits["p"]
    assert nats["rank"] == bits["rank"]


def test_the_same_table_is_neutral_everywhere() -> None:
    for lane in change_payload(BEFORE, BEFORE)["lanes"]:
        assert lane["fill"] == [None, 50, 50, 50, 50]


def test_a_change_beyond_an_end_stops_there() -> None:
    far = sheet([None, 1.0, 1.0, 1.0, 1.0], [None, 9.0, 9.0, 0.0, 0.0], [None, 1, 1, 1, 2])
    wild = sheet([None, 1e-9, 1e-9, 1e-9, 1.0], [None, 0.0, 0.0, 9.0, 0.0], [None, 40000, 1000, 1, 2])
    drawn = lanes(change_payload(wild, far))
    assert drawn["entropy"]["fill"] == [None, 100, 100, 0, 50]
    assert drawn["rank"]["fill"] == [None, 0, 0, 50, 50]


def test_before_and_now_stand_on_one_scale() -> None:
    payload = watch_payload(BEFORE, [("NLL", AFTER), ("NLL", BEFORE)], "entropy")
    assert [lane["title"] for lane in payload["lanes"]] == ["Before", "NLL", "NLL"]
    assert len(lanes(payload)) == 3
    own = lanes(strip_payload(BEFORE))["entropy"], lanes(strip_payload(AFTER))["entropy"]
    for lane, drawn_alone in zip(payload["lanes"], [own[0], own[1], own[0]], strict=True):
        for part in ("fill", "value", "low", "high", "hue", "scale"):
            assert lane[part] == drawn_alone[part]
    assert payload["lanes"][1]["fill"] == [None, 36, 22, 19, 7]  # of log 1000


@pytest.mark.parametrize("column", ["p", "entropy", "rank"])
def test_only_fills_and_values_change_from_step_to_step(column: str) -> None:
    steps = [watch_payload(BEFORE, [("Now", now)], column) for now in (BEFORE, AFTER)]
    assert frozen(steps[0]) == frozen(steps[1])
    assert steps[0]["lanes"][1]["fill"] != steps[1]["lanes"][1]["fill"]


@pytest.mark.parametrize("column", ["p", "entropy", "rank"])
def test_the_structure_holds_for_real_sheets(column: str) -> None:
    text = "8 pens\ncost 12.5 😀"
    base, *tuned = (losscore.score(mini_model(seed=seed), text) for seed in range(3))
    steps = [watch_payload(base, [("a", now), ("b", base)], column) for now in tuned]
    assert frozen(steps[0]) == frozen(steps[1])
    assert steps[0]["tokens"] == strip_payload(base)["tokens"]
    assert steps[0]["glyphs"] == strip_payload(base)["glyphs"] != {}
    json.dumps([steps, change_payload(base, tuned[0])], allow_nan=False)


def test_other_tokens_or_columns_are_refused() -> None:
    other = sheet_of(["The", "·8"], p=[None, 0.5])
    with pytest.raises(ValueError, match="same tokens"):
        watch_payload(BEFORE, [("a", AFTER), ("b", other)])
    for compare in (change_payload, largest_changes, summary):
        with pytest.raises(ValueError, match="same tokens"):
            compare(BEFORE, other)
    with pytest.raises(ValueError, match="same tokens"):
        change_words(BEFORE, other, 1)
    with pytest.raises(ValueError, match="del_penalty"):
        watch_payload(BEFORE, [], "del_penalty")


def test_the_largest_changes_are_of_targets_up_or_down() -> None:
    # The context's p fell by 0.4; the last target's p is what it was.
    assert largest_changes(BEFORE, AFTER) == [Change(2, "⏎", 0.12, 0.83), Change(3, "·pens", 0.75, 0.5)]
    assert largest_changes(BEFORE, AFTER, 1) == [Change(2, "⏎", 0.12, 0.83)]
    assert largest_changes(AFTER, BEFORE, 1) == [Change(2, "⏎", 0.83, 0.12)]
    assert largest_changes(BEFORE, BEFORE) == []


def test_the_summary_by_hand() -> None:
    assert summary(BEFORE, AFTER) == (
        "Mean p over the targets rose from 0.373 to 0.527; p rose most at “⏎”, from 0.120 to 0.830, "
        "and p fell most at “·pens”, from 0.750 to 0.500."
    )
    assert summary(AFTER, BEFORE).startswith("Mean p over the targets fell from 0.527 to 0.373; p rose most at “·pens”")


def test_the_summary_names_only_what_happened() -> None:
    risen = sheet([None, 0.5, 0.25, 0.75, 0.25], BEFORE.columns["entropy"], BEFORE.columns["rank"])
    assert "fell" not in summary(BEFORE, risen)
    assert "rose" not in summary(risen, BEFORE)
    swapped = sheet([None, 0.5, 0.12, 0.25, 0.75], BEFORE.columns["entropy"], BEFORE.columns["rank"])
    assert summary(BEFORE, swapped).startswith("Mean p over the targets stayed at 0.373; p rose most at “5”")


def test_rounding_is_no_change() -> None:
    close = sheet([None, 0.5, 0.12 + 1e-8, 0.75 - 1e-8, 0.25], BEFORE.columns["entropy"], BEFORE.columns["rank"])
    for after in (BEFORE, close):
        assert summary(BEFORE, after) == "Nothing changed: every target has the p it had before."
        assert largest_changes(BEFORE, after) == []


def test_a_text_without_targets_says_so() -> None:
    bare = sheet_of(["a"], is_target=[False])
    assert "Nothing is scored" in summary(bare, bare)
    assert largest_changes(bare, bare) == []
    assert change_payload(bare, bare)["lanes"][0]["fill"] == [None]


def test_a_token_in_words() -> None:
    assert change_words(BEFORE, AFTER, 2) == "p 0.120 → 0.830 · entropy 3 → 1.50 nats · rank 120 → 3"
    assert change_words(BEFORE, AFTER, 2, bits=True) == "p 0.120 → 0.830 · entropy 4.33 → 2.16 bits · rank 120 → 3"
    assert change_words(BEFORE, AFTER, 0) == ""


def test_a_long_token_is_cut_in_the_sentence_and_markup_stays_what_it_is() -> None:
    tokens = ["a", "<img src=x onerror=alert(1)>" * 9]
    old, new = (sheet_of(tokens, log_p=[None, -1], p=[None, p]) for p in (0.1, 0.9))
    said = summary(old, new)
    assert "“<img src=x onerror=aler…”" in said
    assert change_payload(old, new)["tokens"] == tokens
