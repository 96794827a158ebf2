from __future__ import annotations

import html
import json
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

import losscore
from losscore.figures import digits_film_figure, film_figure
from losscore.figures.film import UNKNOWN
from losscore.figures.style import BARS
from losscore.sheet import Sheet
from tests.tiny import mini_model
from tests.tiny.table import sheet_of

NAMES = {1: "·the", 2: "8", 3: "<b>$x$", 4: "8", 9: "·y"}


def sheet(top: Mapping[int, float], *, target: int = 9, p: float, names: Mapping[int, str] = NAMES) -> Sheet:
    """A text of two tokens: the second is `target`, with `top` as the most probable ones in its place."""
    base = sheet_of(["a", names[target]], log_p=[None, math.log(p)], p=[None, p], rank=[None, 1])
    base.columns["id"][1] = target
    ids = sorted(top, key=lambda i: -top[i])
    return Sheet(
        text=base.text,
        columns=base.columns,
        provenance={**base.provenance, "vocabulary": 50},
        special=base.special,
        top_tokens=((), tuple(names[i] for i in ids)),
        top_ids=np.array([[-1] * len(ids), ids]),
        top_log_p=np.array([[math.nan] * len(ids), np.log([top[i] for i in ids])]),
    )


STEPS = [
    (0, sheet({1: 0.5, 2: 0.2, 3: 0.1}, p=0.01)),
    (5, sheet({1: 0.4, 3: 0.3, 9: 0.2}, p=0.2)),
    (9, sheet({9: 0.8, 4: 0.1, 1: 0.05}, p=0.8)),
]


def bars(figure: Any, step: int | None = None) -> dict[str, tuple[list[Any], list[str], list[str]]]:
    """What each bar is, in the order from the top: names, lengths before, lengths and notes at `step`."""
    pale, solid, notes = figure.data
    if step is not None:
        (frame,) = [frame for frame in figure.frames if frame.name == str(step)]
        assert list(frame.traces) == [1, 2]
        solid, notes = frame.data
    axis = figure.layout.yaxis
    assert list(axis.tickvals) == list(pale.y) == list(solid.y) == list(range(len(axis.ticktext)))
    assert axis.range[0] > axis.range[1]
    return {
        "names": list(axis.ticktext),
        "before": list(pale.x),
        "now": list(solid.x),
        "notes": [note.strip() for note in notes.text],
    }


def test_the_union_of_first_and_last_by_hand() -> None:
    figure = film_figure(STEPS, 1)
    drawn = bars(figure, 0)
    # by p at the last step, then at the first: 9, 4, 1, then 2 and 3, which the last step does not know
    assert drawn["names"] == ["·y", "8", "·the", "8", "&lt;b&gt;$x$", "all others"]
    assert drawn["before"] == pytest.approx([0.01, None, 0.5, 0.2, 0.1, 0.19])
    assert drawn["now"] == pytest.approx([0.01, None, 0.5, 0.2, 0.1, 0.19])
    assert bars(figure, 5)["now"] == pytest.approx([0.2, None, 0.4, None, 0.3, 0.1])
    assert bars(figure, 9)["now"] == pytest.approx([0.8, 0.1, 0.05, None, None, 0.05])
    assert list(figure.data[1].marker.color) == [BARS["target"], *[BARS["token"]] * 4, BARS["all others"]]
    assert list(figure.data[1].marker.pattern.shape) == ["/", "", "", "", "", ""]


def test_what_is_not_known_is_blank_and_said_never_zero() -> None:
    drawn = bars(film_figure(STEPS, 1), 9)
    assert drawn["now"][3] is None
    assert drawn["notes"][3] == UNKNOWN == "below the 20 best"
    assert drawn["notes"][0] == "0.800  ◀ target"
    hover = film_figure(STEPS, 1).frames[2].data[1].hovertext
    assert hover[1] == "8: before below the 20 best, at step 9 0.100"


def test_it_opens_at_the_last_step_beside_the_first() -> None:
    figure = film_figure(STEPS, 1)
    assert bars(figure) == bars(figure, 9)
    assert figure.layout.sliders[0].active == 2
    assert figure.layout.title.text == figure.frames[2].layout.title.text
    assert "step 9" in figure.layout.title.text
    assert figure.data[0].marker.opacity < 0.5
    assert figure.data[1].marker.opacity is None


def test_slider_play_and_pause_reach_every_frame() -> None:
    figure = film_figure(STEPS, 1)
    names = [frame.name for frame in figure.frames]
    assert names == ["0", "5", "9"]
    slider = figure.layout.sliders[0].steps
    assert [list(step.args[0]) for step in slider] == [[name] for name in names]
    assert [step.label for step in slider] == names
    assert all(f"step {name}" in frame.layout.title.text for name, frame in zip(names, figure.frames, strict=True))
    play, pause = figure.layout.updatemenus[0].buttons
    assert ("Play" in play.label, play.args[0]) == (True, None)
    assert ("Pause" in pause.label, list(pause.args[0])) == (True, [None])


def test_the_axis_stands_still_and_holds_every_frame() -> None:
    figure = film_figure(STEPS, 1)
    most = max(value for step, _ in STEPS for value in bars(figure, step)["now"] if value is not None)
    assert figure.layout.xaxis.range[0] == 0
    assert figure.layout.xaxis.range[1] > most
    assert all(frame.layout.xaxis.range is None for frame in figure.frames)


def test_at_most_thirty_frames_evenly_with_first_and_last() -> None:
    steps = [(step, STEPS[0][1]) for step in range(0, 1001)]
    kept = [int(frame.name) for frame in film_figure(steps, 1).frames]
    assert (len(kept), kept[0], kept[-1]) == (30, 0, 1000)
    assert max(np.diff(kept)) - min(np.diff(kept)) <= 1
    assert [frame.name for frame in film_figure(steps[:30], 1).frames] == [str(step) for step in range(30)]


def test_at_most_24_bars_with_the_target_and_the_others() -> None:
    names = {i: f"t{i}" for i in range(50)}
    first = sheet({i: 0.03 - 0.001 * i for i in range(20)}, target=45, p=1e-6, names=names)
    last = sheet({i: 0.03 - 0.001 * (i - 20) for i in range(20, 40)}, target=45, p=2e-6, names=names)
    drawn = bars(film_figure([(0, first), (1, last)], 1), 1)
    assert len(drawn["names"]) == 24
    assert drawn["names"][-1] == "all others"
    assert "t45" in drawn["names"]
    assert {"t0", "t10", "t20", "t30"} <= set(drawn["names"])
    assert not {"t11", "t31"} & set(drawn["names"])
    known = [value for value in drawn["now"] if value is not None]
    assert math.fsum(known) == pytest.approx(1)


def test_markup_in_tokens_is_text() -> None:
    names = {1: "<a href='http://e.x'>", 9: "<img src=x onerror=alert(1)>" * 3}
    figure = film_figure([(0, sheet({1: 0.5}, p=0.1, names=names)), (1, sheet({1: 0.4}, p=0.2, names=names))], 1)
    text = html.unescape(json.dumps(figure.layout.yaxis.ticktext))
    assert "<img" in text
    texts = [*figure.layout.yaxis.ticktext, *(hover for frame in figure.frames for hover in frame.data[1].hovertext)]
    assert not any("<" in shown for shown in texts)


def test_one_sheet_is_a_film_of_one_frame_and_none_is_refused() -> None:
    assert len(film_figure(STEPS[:1], 1).frames) == 1
    for film in (film_figure, digits_film_figure):
        with pytest.raises(ValueError, match="at least one"):
            film([], 1)


def test_a_row_without_a_prediction_says_so() -> None:
    figure = film_figure(STEPS, 0)
    assert (len(figure.data), len(figure.frames)) == (0, 0)
    assert figure.layout.title.text == "Nothing predicts this token"


def test_a_real_film_is_whole_at_every_step() -> None:
    sheets = [(seed, losscore.score(mini_model(seed=seed), "8 cost 12.5")) for seed in range(4)]
    for row in range(1, len(sheets[0][1])):
        figure = film_figure(sheets, row)
        for step, scored in sheets:
            drawn = bars(figure, step)
            known = [value for value in drawn["now"] if value is not None]
            assert math.fsum(known) == pytest.approx(1, abs=1e-9)
            at = [note.endswith("◀ target") for note in drawn["notes"]].index(True)
            assert drawn["now"][at] == pytest.approx(scored.columns["p"][row], rel=1e-9)
        json.loads(figure.to_json())


def test_ten_digits_over_the_steps() -> None:
    sheets = [(seed, losscore.score(mini_model(seed=seed), "cost 12.5")) for seed in range(3)]
    (row, *_) = sheets[0][1].p_digits
    figure = digits_film_figure(sheets, row)
    digit = int(sheets[0][1].columns["digit"][row])
    for step, scored in sheets:
        drawn = bars(figure, step)
        assert drawn["names"] == list("0123456789")
        assert drawn["before"] == pytest.approx(list(sheets[0][1].p_digits[row]))
        assert drawn["now"] == pytest.approx(list(scored.p_digits[row]))
        assert drawn["now"][digit] == pytest.approx(scored.columns["p_given_digit"][row])
        assert drawn["notes"][digit].endswith("◀ target")
    assert "No digit" in digits_film_figure(sheets, 0).layout.title.text
