"""One token's distribution over the steps of a fine-tune: a figure with frames, a slider, Play and Pause."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import plotly.graph_objects as go

from losscore.figures.style import BARS, escape
from losscore.lanes.lane import format_value
from losscore.sheet import Sheet

MOST_FRAMES = 30
MOST_BARS = 24
UNKNOWN = "below the 20 best"
_TICKS = (0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 0.75, 1.0)
_PALE = 0.35
_SECONDS = 0.35


class _Bars(NamedTuple):
    """What is drawn: a name for each bar, p of each at every step (None: not known), and which one is the target."""

    names: list[str]
    p: list[list[float | None]]
    target: int
    rest: int | None = None


def film_figure(sheets: Sequence[tuple[int, Sheet]], row: int) -> go.Figure:
    """The most probable tokens at `row` over the steps: pale bars as before, solid bars as at the step shown.

    sheets: (step, sheet) in order, of one text. The bars are the 20 most probable tokens of the first and of the last
    step, the target always, at most 24 with "all others" as the last. Where a token is not among the 20 best of a
    step, its p there is not known: it stays blank and counts among the others. At most 30 frames, first and last kept.
    Opens at the last step. Raises ValueError without sheets.
    """
    chosen = _thinned(sheets)
    if not chosen[0][1].top_tokens[row]:
        return _empty("Nothing predicts this token")
    return _film([step for step, _ in chosen], _top_bars([sheet for _, sheet in chosen], row), "Most probable tokens")


def digits_film_figure(sheets: Sequence[tuple[int, Sheet]], row: int) -> go.Figure:
    """The ten digits' probabilities at `row`, renormalised over the digits, over the steps; as `film_figure`."""
    chosen = _thinned(sheets)
    if row not in chosen[0][1].p_digits:
        return _empty("No digit of the digit set is predicted here")
    p: list[list[float | None]] = [list(sheet.p_digits[row]) for _, sheet in chosen]
    bars = _Bars([str(digit) for digit in range(10)], p, int(chosen[0][1].columns["digit"][row]))
    return _film([step for step, _ in chosen], bars, "Among the ten digits")


def _thinned(sheets: Sequence[tuple[int, Sheet]]) -> list[tuple[int, Sheet]]:
    if not sheets:
        raise ValueError("a film needs at least one sheet")
    kept = np.unique(np.linspace(0, len(sheets) - 1, min(len(sheets), MOST_FRAMES)).round().astype(int))
    return [sheets[at] for at in kept.tolist()]


def _top_bars(sheets: Sequence[Sheet], row: int) -> _Bars:
    target = int(sheets[0].columns["id"][row])
    known = [_known(sheet, row) for sheet in sheets]
    first, last = known[0], known[-1]
    shown = {i: max(first.get(i, 0.0), last.get(i, 0.0)) for i in first | last if i != target}
    names = {target: str(sheets[0].columns["token"][row])}
    for sheet in (sheets[0], sheets[-1]):
        names |= dict(zip(_ids(sheet, row), sheet.top_tokens[row], strict=True))
    ids = [target, *sorted(shown, key=shown.__getitem__, reverse=True)[: MOST_BARS - 2]]
    ids.sort(key=lambda i: (-last.get(i, 0.0), -first.get(i, 0.0)))
    p: list[list[float | None]] = [[at_step.get(i) for i in ids] for at_step in known]
    labels = [names[i] for i in ids]
    if int(sheets[0].provenance["vocabulary"]) > len(ids):
        labels.append("all others")
        for values in p:
            values.append(max(0.0, 1 - math.fsum(value for value in values if value is not None)))
        return _Bars(labels, p, ids.index(target), len(ids))
    return _Bars(labels, p, ids.index(target))


def _ids(sheet: Sheet, row: int) -> list[int]:
    assert sheet.top_ids is not None
    return [int(i) for i in sheet.top_ids[row]][: len(sheet.top_tokens[row])]


def _known(sheet: Sheet, row: int) -> dict[int, float]:
    """p by token id: the most probable ones and the target."""
    assert sheet.top_log_p is not None
    top = zip(_ids(sheet, row), np.exp(sheet.top_log_p[row]).tolist(), strict=False)
    return {int(sheet.columns["id"][row]): float(sheet.columns["p"][row])} | dict(top)


def _film(steps: Sequence[int], bars: _Bars, what: str) -> go.Figure:
    places = list(range(len(bars.names)))
    kinds = ["target" if at == bars.target else "all others" if at == bars.rest else "token" for at in places]
    colours = [BARS[kind] for kind in kinds]
    before = bars.p[0]

    def traces(index: int) -> list[go.Bar | go.Scatter]:
        p = bars.p[index]
        return [
            go.Bar(
                x=p,
                y=places,
                orientation="h",
                width=0.5,
                marker={"color": colours, "pattern": {"shape": ["/" if at == bars.target else "" for at in places]}},
                name="at this step",
                hoverinfo="skip",
            ),
            go.Scatter(
                x=[max(value or 0.0, old or 0.0) for value, old in zip(p, before, strict=True)],
                y=places,
                mode="text",
                text=[f" {_note(value, at == bars.target)}" for at, value in enumerate(p)],
                textposition="middle right",
                cliponaxis=False,
                hovertext=[
                    f"{escape(name)}: before {_said(old)}, at step {steps[index]} {_said(value)}"
                    for name, old, value in zip(bars.names, before, p, strict=True)
                ],
                hoverinfo="text",
                showlegend=False,
            ),
        ]

    pale = go.Bar(
        x=before, y=places, orientation="h", width=0.9, marker={"color": colours, "opacity": _PALE}, name="before",
        hoverinfo="skip",
    )  # fmt: skip
    last = len(steps) - 1
    figure = go.Figure(
        data=[pale, *traces(last)],
        frames=[
            go.Frame(name=str(step), data=traces(index), traces=[1, 2], layout={"title": {"text": _title(what, step)}})
            for index, step in enumerate(steps)
        ],
    )
    most = max([0.01, *(value for values in bars.p for value in values if value is not None)])
    figure.update_layout(
        title={"text": _title(what, steps[last]), "font": {"size": 15}},
        barmode="overlay",
        height=220 + 22 * max(len(places), 3),
        margin={"l": 10, "r": 10, "t": 40, "b": 130},
        showlegend=False,
        xaxis={
            "range": [0, 1.5 * most],
            "tickvals": [0, *(tick for tick in _TICKS if most / 5 <= tick <= 1.02 * most)],
            "tickformat": ".0%",
            "fixedrange": True,
        },
        yaxis={
            "tickmode": "array",
            "tickvals": places,
            "ticktext": [escape(name) for name in bars.names],
            "range": [len(places) - 0.4, -0.6],
            "automargin": True,
            "fixedrange": True,
        },
    )
    return _controls(figure, steps)


def _controls(figure: go.Figure, steps: Sequence[int]) -> go.Figure:
    """The slider over the steps, Play and Pause under the picture."""
    now: dict[str, Any] = {"mode": "immediate", "frame": {"duration": 0, "redraw": True}, "transition": {"duration": 0}}
    play = now | {"fromcurrent": True, "frame": {"duration": 1000 * _SECONDS, "redraw": True}}
    figure.update_layout(
        sliders=[
            {
                "active": len(steps) - 1,
                "currentvalue": {"prefix": "Step "},
                "pad": {"t": 70, "l": 10, "r": 10},
                "steps": [{"label": str(step), "method": "animate", "args": [[str(step)], now]} for step in steps],
            }
        ],
        updatemenus=[
            {
                "type": "buttons",
                "direction": "right",
                "showactive": False,
                "x": 0,
                "xanchor": "left",
                "y": 0,
                "yanchor": "top",
                "pad": {"t": 30, "l": 10},
                "buttons": [
                    {"label": "▶ Play", "method": "animate", "args": [None, play]},
                    {"label": "❚❚ Pause", "method": "animate", "args": [[None], now]},
                ],
            }
        ],
    )
    return figure


def _title(what: str, step: int) -> str:
    return f"{what}: pale before, solid at step {step}"


def _note(p: float | None, target: bool) -> str:
    return f"{_said(p)}{'  ◀ target' if target else ''}"


def _said(p: float | None) -> str:
    if p is None:
        return UNKNOWN
    return format_value(p) if p > 1e-12 else "almost 0"


def _empty(title: str) -> go.Figure:
    return go.Figure().update_layout(title={"text": title, "font": {"size": 15}}, height=120)
