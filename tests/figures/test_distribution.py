from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest

import losscore
from losscore.figures.distribution import OTHER, REST, TARGET, bars_chart, digits_rows, top_tokens_rows
from losscore.sheet import Sheet
from tests.tiny.table import sheet_of

P = [0.4, 0.2, 0.1, 0.1]


def with_top(tokens: list[str], ids: list[int], *, target: int, rank: int, p: float, vocabulary: int = 50) -> Sheet:
    base = sheet_of(["a", "<b>$x$"], p=[None, p], rank=[None, rank], log_p=[None, math.log(p)])
    base.columns["id"][1] = target
    return Sheet(
        text=base.text,
        columns=base.columns,
        provenance={**base.provenance, "vocabulary": vocabulary},
        special=base.special,
        top_tokens=((), tuple(tokens)),
        top_ids=np.array([[-1] * len(ids), ids]),
        top_log_p=np.array([[math.nan] * len(ids), np.log(P[: len(ids)]).tolist()]),
    )


def test_a_target_among_the_top_is_marked_where_it_stands() -> None:
    sheet = with_top(["·the", "8", "·8", "8"], [3, 4, 5, 6], target=5, rank=3, p=0.1)
    rows = top_tokens_rows(sheet, 1)
    assert [row["place"] for row in rows] == [0, 1, 2, 3, 4]
    assert [row["token"] for row in rows] == ["·the", "8", "·8", "8", "all 46 others"]
    assert [row["p"] for row in rows] == pytest.approx([0.4, 0.2, 0.1, 0.1, 0.2])
    assert [row["kind"] for row in rows] == [OTHER, OTHER, TARGET, OTHER, REST]
    assert [row["bar"].split("\u2003\u2003") for row in rows] == [
        ["\u2068·the\u2069", "0.400"],
        ["\u20688\u2069", "0.200"],
        ["\u2068·8\u2069 ◀ target", "0.100"],
        ["\u20688\u2069", "0.100"],
        ["\u2068all 46 others\u2069", "0.200"],
    ]


def test_a_target_outside_the_top_is_added_with_its_true_rank_once() -> None:
    sheet = with_top(["·the", "8", "·8", "8"], [3, 4, 5, 6], target=9, rank=1234, p=0.01)
    rows = top_tokens_rows(sheet, 1)
    assert [row["token"] for row in rows] == ["·the", "8", "·8", "8", "<b>$x$", "all 45 others"]
    assert sum(row["p"] for row in rows) == pytest.approx(1)
    assert [row["kind"] for row in rows].count(TARGET) == 1
    assert rows[4]["bar"].endswith(" ◀ target\u2003\u2003rank 1,234 · 0.0100")
    assert rows[5]["p"] == pytest.approx(0.19)


def test_equal_tokens_keep_a_bar_each() -> None:
    rows = top_tokens_rows(with_top(["3", ".", "14", "14"], [1, 2, 3, 4], target=1, rank=1, p=0.4), 1)
    assert [row["token"] for row in rows][2:4] == ["14", "14"]
    assert len({row["bar"] for row in rows}) == len(rows)


def test_a_long_token_is_cut_beside_its_bar_and_whole_in_its_tooltip() -> None:
    names = ["a", "b", "c", "x" * 40]
    rows = top_tokens_rows(with_top(names, [1, 2, 3, 4], target=1, rank=1, p=0.4), 1)
    assert rows[3]["bar"].startswith("\u2068" + "x" * 17 + "…\u2069")
    assert rows[3]["token"] == "x" * 40


def test_the_chart_is_the_same_whatever_the_token_and_names_none() -> None:
    # What stands in a specification is read as fields and expressions; what stands in rows is text.
    chart = bars_chart("title")
    assert chart == bars_chart("title")
    encoding = chart["encoding"]
    fields = {one["field"] for one in (encoding["x"], encoding["y"], encoding["color"], *encoding["tooltip"])}
    (row, *_) = top_tokens_rows(with_top(["a"], [0], target=0, rank=1, p=0.4), 1)
    assert fields <= row.keys()
    assert encoding["color"]["scale"]["domain"] == [TARGET, OTHER, REST]


def test_a_vocabulary_no_larger_than_the_top_has_no_others() -> None:
    sheet = with_top(["a", "b", "c", "d"], [0, 1, 2, 3], target=0, rank=1, p=0.4, vocabulary=4)
    assert len(top_tokens_rows(sheet, 1)) == 4


def test_a_row_without_a_prediction_has_no_bars() -> None:
    assert top_tokens_rows(with_top(["a"], [0], target=0, rank=1, p=0.4), 0) == []


def test_the_bars_of_a_real_sheet_sum_to_one(mini: Any) -> None:
    sheet = losscore.score(mini, "8 cost 12.5")
    for row in range(1, len(sheet)):
        rows = top_tokens_rows(sheet, row)
        assert sum(one["p"] for one in rows) == pytest.approx(1, abs=1e-9)
        assert [one["p"] for one in rows if one["kind"] == TARGET] == pytest.approx([sheet.columns["p"][row]], rel=1e-9)
        json.dumps(rows, allow_nan=False)


def test_the_ten_digits(mini: Any) -> None:
    sheet = losscore.score(mini, "cost 12.5")
    (row, *_) = sheet.p_digits
    rows = digits_rows(sheet, row)
    assert [one["token"] for one in rows] == list("0123456789")
    assert [one["p"] for one in rows] == pytest.approx(list(sheet.p_digits[row]))
    assert sum(one["p"] for one in rows) == pytest.approx(1)
    digit = int(sheet.columns["digit"][row])
    assert [one["token"] for one in rows if one["kind"] == TARGET] == [str(digit)]
    assert rows[digit]["p"] == pytest.approx(sheet.columns["p_given_digit"][row])
    assert "target" in rows[digit]["bar"]


def test_rows_without_digit_probabilities_have_no_bars(mini: Any) -> None:
    sheet = losscore.score(mini, "7 pens")
    assert [digits_rows(sheet, row) for row in range(len(sheet))] == [[]] * len(sheet)
