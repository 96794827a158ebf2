from __future__ import annotations

import html
import json
import math
from typing import Any

import numpy as np
import pytest

import losscore
from losscore.figures import digits_figure, top_tokens_figure
from losscore.figures.distribution import OTHER, REST, TARGET
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


def bars(figure: Any) -> list[tuple[str, float, str, str]]:
    """name, length, colour and note of each bar, from the top down."""
    (bar,) = figure.data
    axis = figure.layout.yaxis
    assert list(axis.tickvals) == list(bar.y) == list(range(len(bar.y)))
    assert axis.autorange == "reversed"
    return list(zip(axis.ticktext, bar.x, bar.marker.color, bar.text, strict=True))


def test_a_target_among_the_top_is_marked_where_it_stands() -> None:
    sheet = with_top(["·the", "8", "·8", "8"], [3, 4, 5, 6], target=5, rank=3, p=0.1)
    found = bars(top_tokens_figure(sheet, 1))
    assert [name for name, *_ in found] == ["·the", "8", "·8", "8", "all 46 others"]
    assert [length for _, length, *_ in found] == pytest.approx([0.4, 0.2, 0.1, 0.1, 0.2])
    assert [colour for _, _, colour, _ in found] == [OTHER, OTHER, TARGET, OTHER, REST]
    assert [note for *_, note in found] == ["0.400", "0.200", "0.100  ◀ target", "0.100", "0.200"]


def test_a_target_outside_the_top_is_added_with_its_true_rank_once() -> None:
    sheet = with_top(["·the", "8", "·8", "8"], [3, 4, 5, 6], target=9, rank=1234, p=0.01)
    found = bars(top_tokens_figure(sheet, 1))
    assert [name for name, *_ in found] == ["·the", "8", "·8", "8", "&lt;b&gt;$x$", "all 45 others"]
    assert sum(length for _, length, *_ in found) == pytest.approx(1)
    assert [colour for _, _, colour, _ in found].count(TARGET) == 1
    assert found[4][3] == "0.0100  ◀ target, rank 1,234"
    assert found[5][1] == pytest.approx(0.19)


def test_equal_tokens_keep_a_bar_each_on_an_axis_of_positions() -> None:
    figure = top_tokens_figure(with_top(["3", ".", "14", "3"], [1, 2, 3, 4], target=1, rank=1, p=0.4), 1)
    assert [name for name, *_ in bars(figure)][:4] == ["3", ".", "14", "3"]
    assert figure.layout.yaxis.tickmode == "array"


def test_markup_in_a_token_is_text() -> None:
    names = ["<b>bold</b>", "<a href='http://e.x'>", "&amp;", "x" * 40]
    figure = top_tokens_figure(with_top(names, [1, 2, 3, 4], target=1, rank=1, p=0.4), 1)
    shown = [name for name, *_ in bars(figure)]
    assert not any("<" in name for name in shown)
    assert [html.unescape(name) for name in shown[:4]] == [
        "<b>bold</b>",
        "<a href='http://e…",
        "&amp;",
        "x" * 17 + "…",
    ]
    assert not any("<" in hover for hover in figure.data[0].hovertext)


def test_a_vocabulary_no_larger_than_the_top_has_no_others() -> None:
    found = bars(
        top_tokens_figure(with_top(["a", "b", "c", "d"], [0, 1, 2, 3], target=0, rank=1, p=0.4, vocabulary=4), 1)
    )
    assert len(found) == 4


def test_the_target_is_marked_by_more_than_its_colour() -> None:
    figure = top_tokens_figure(with_top(["a", "b", "c", "d"], [0, 1, 2, 3], target=2, rank=4, p=0.1), 1)
    assert list(figure.data[0].marker.pattern.shape) == ["", "", "/", "", ""]


def test_a_row_without_a_prediction_has_no_bars() -> None:
    figure = top_tokens_figure(with_top(["a"], [0], target=0, rank=1, p=0.4), 0)
    assert bars(figure) == []
    assert figure.layout.title.text == "Nothing predicts this token"


def test_the_bars_of_a_real_sheet_sum_to_one(mini: Any) -> None:
    sheet = losscore.score(mini, "8 cost 12.5")
    for row in range(1, len(sheet)):
        found = bars(top_tokens_figure(sheet, row))
        assert sum(length for _, length, *_ in found) == pytest.approx(1, abs=1e-9)
        marked = [length for _, length, colour, _ in found if colour == TARGET]
        assert marked == pytest.approx([sheet.columns["p"][row]], rel=1e-9)
        json.loads(top_tokens_figure(sheet, row).to_json())


def test_the_ten_digits(mini: Any) -> None:
    sheet = losscore.score(mini, "cost 12.5")
    (row, *_) = sheet.p_digits
    found = bars(digits_figure(sheet, row))
    assert [name for name, *_ in found] == list("0123456789")
    assert [length for _, length, *_ in found] == pytest.approx(list(sheet.p_digits[row]))
    assert sum(length for _, length, *_ in found) == pytest.approx(1)
    digit = int(sheet.columns["digit"][row])
    assert [name for name, _, colour, _ in found if colour == TARGET] == [str(digit)]
    assert found[digit][1] == pytest.approx(sheet.columns["p_given_digit"][row])
    assert "target" in found[digit][3]


def test_rows_without_digit_probabilities_have_no_bars(mini: Any) -> None:
    sheet = losscore.score(mini, "7 pens")
    for row in range(len(sheet)):
        figure = digits_figure(sheet, row)
        assert bars(figure) == []
        assert "No digit" in figure.layout.title.text
