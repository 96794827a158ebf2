"""Charts that are redrawn in place while a fine-tune runs: Vega-Lite specifications, and the rows they draw.

A specification stays the same during a run; only its rows change, so that nothing is built anew. Token text stands in
rows, in axis labels drawn on a canvas and in tooltips that Vega escapes; never in a field's name.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from losscore.figures.style import line_of

if TYPE_CHECKING:
    from losscore.finetuning import Record
    from losscore.sheet import Sheet

Rows = list[dict[str, Any]]
Chart = dict[str, Any]
BEFORE = "before"
_DASHES = {"solid": [1, 0], "dash": [7, 4], "dot": [2, 3], "dashdot": [7, 3, 2, 3], "longdash": [12, 4]}
_BEFORE_COLOUR = "#a3a8b4"
_NEWCOMERS = 3
_HEAT_STEPS = 40
_HEAT_TOKENS = 120
_LONGEST = 16


def curve_rows(runs: Sequence[tuple[str, Record]], name: str) -> Rows:
    """One row for each objective and snapshot at which the curve `name` of its record is known."""
    return [
        {"step": snapshot.step, "value": value, "objective": title}
        for title, record in runs
        for snapshot, value in zip(record.snapshots, record.curve(name), strict=True)
        if value is not None and math.isfinite(value)
    ]


def token_curve_rows(runs: Sequence[tuple[str, Record]], column: str, row: int, example: int = 0) -> Rows:
    """The same of one token's `column`."""
    return [
        {"step": snapshot.step, "value": float(value), "objective": title}
        for title, record in runs
        for snapshot, value in zip(record.snapshots, record.series(column, example)[:, row], strict=True)
        if math.isfinite(value)
    ]


def curve_chart(steps: int, objectives: Sequence[str], title: str, *, legend: bool = False) -> Chart:
    """One line an objective over the steps, told apart by colour and dash."""
    lines = [line_of(index) for index in range(len(objectives))]
    names = list(objectives)
    key = {"orient": "top", "title": None, "columns": 4, "symbolType": "stroke", "symbolSize": 300} if legend else None
    return {
        "height": 190 + 50 * legend,
        "mark": {"type": "line", "point": {"size": 18}},
        "encoding": {
            "x": {
                "field": "step",
                "type": "quantitative",
                "title": None,
                "scale": {"domain": [0, max(steps, 1)], "nice": False},
                "axis": {"tickMinStep": 1, "format": "d", "grid": False},
            },
            "y": {
                "field": "value",
                "type": "quantitative",
                "title": title,
                "scale": {"zero": False},
                "axis": {"tickCount": 4},
            },
            "color": {
                "field": "objective",
                "type": "nominal",
                "scale": {"domain": names, "range": [line["color"] for line in lines]},
                "legend": key,
            },
            "strokeDash": {
                "field": "objective",
                "type": "nominal",
                "scale": {"domain": names, "range": [_DASHES[str(line["dash"])] for line in lines]},
                "legend": key,
            },
            "tooltip": [
                {"field": "objective", "title": "objective"},
                {"field": "step", "title": "step"},
                {"field": "value", "title": title, "format": ".4~g"},
            ],
        },
    }


def token_rows(before: Sheet, now: Sheet, row: int, title: str) -> Rows:
    """The most probable tokens at `row` before and now: the 20 best before, the best newcomers, the target.

    A token below the 20 best has no known p there: its bar is missing. What no bar shows is "all others".
    """
    old, new = _best(before, row), _best(now, row)
    if not old:
        return []
    target = int(before.columns["id"][row])
    names = {i: name for i, (name, _) in (new | old).items()} | {target: str(before.columns["token"][row])}
    newcomers = [i for i in new if i not in old and i != target][:_NEWCOMERS]
    order = [*old, *newcomers, *([target] if target not in old else [])]
    labels = distinct([f"{short(names[i])}{' ◀ target' if i == target else ''}" for i in order])
    rows: Rows = []
    for when, sheet, best in ((BEFORE, before, old), (title, now, new)):
        known = {i: p for i, (_, p) in best.items()} | {target: float(sheet.columns["p"][row])}
        shown = [(place, i) for place, i in enumerate(order) if i in known]
        rows += [{"place": place, "token": labels[place], "when": when, "p": known[i]} for place, i in shown]
        rest = max(0.0, 1 - sum(known[i] for _, i in shown))
        rows.append({"place": len(order), "token": "all others", "when": when, "p": rest})
    return rows


def token_chart(title: str, *, height: int = 420) -> Chart:
    """Bars before and now, side by side for each token; p on a fixed axis, so that growth is seen."""
    return _bars(
        [BEFORE, title],
        {
            "y": {
                "field": "token",
                "type": "nominal",
                "sort": {"field": "place", "op": "min"},
                "title": None,
                "axis": {"labelLimit": 170, "ticks": False, "labelOverlap": False},
            },
            "yOffset": {"field": "when", "type": "nominal", "scale": {"domain": [BEFORE, title]}},
            "x": _p_axis("p"),
        },
        height,
    )


def digit_rows(before: Sheet, now: Sequence[tuple[str, Sheet]], row: int) -> Rows:
    """p among the ten digits at `row` before and now, for each (title, sheet); nothing at other rows."""
    return [
        {"place": digit, "token": str(digit), "when": when, "p": p}
        for when, sheet in [(BEFORE, before), *now]
        for digit, p in enumerate(sheet.p_digits.get(row, ()))
    ]


def digits_chart(titles: Sequence[str], digit: int, *, height: int = 260) -> Chart:
    """The ten digits, for each a bar before and one per objective now; the target digit is marked."""
    whens = [BEFORE, *titles]
    return _bars(
        whens,
        {
            "x": {
                "field": "token",
                "type": "nominal",
                "title": None,
                "axis": {"labelAngle": 0, "labelExpr": f"datum.value === '{digit}' ? '▲ {digit} target' : datum.value"},
            },
            "xOffset": {"field": "when", "type": "nominal", "scale": {"domain": whens}},
            "y": _p_axis("p among the digits"),
        },
        height,
    )


def heat_rows(record: Record, example: int = 0) -> Rows:
    """p of each token at each step: the tokens of `heat_tokens`, at most some forty steps."""
    p = record.series("p", example)
    sheet = record.snapshots[0].sheet(example)
    apart = _apart(record.snapshots[0].steps)
    drawn = [(at, s.step) for at, s in enumerate(record.snapshots) if s.step % apart == 0 or s.step == s.steps]
    return [
        {"position": row, "number": row + 1, "token": str(sheet.columns["token"][row]), "step": step, "p": p[at, row]}
        for at, step in drawn
        for row in heat_tokens(sheet)
        if math.isfinite(p[at, row])
    ]


def heat_tokens(sheet: Sheet) -> list[int]:
    """The rows that the heat map shows: the first targets that have a prediction."""
    known = np.asarray(sheet.columns["is_target"], dtype=bool) & np.isfinite(sheet.columns["p"])
    return [int(row) for row in np.flatnonzero(known)[:_HEAT_TOKENS]]


def heat_chart(sheet: Sheet, steps: int) -> Chart:
    """Tokens in their order along x, the steps downwards, colour is p; it fills from the top while a run goes on."""
    apart = _apart(steps)
    ordinals = [step for step in range(steps + 1) if step % apart == 0 or step == steps]
    names = json.dumps([short(str(token)) for token in sheet.columns["token"]])
    return {
        "height": max(200, min(15 * len(ordinals), 330)),
        "mark": {"type": "rect"},
        "encoding": {
            "x": {
                "field": "position",
                "type": "ordinal",
                "title": None,
                "scale": {"domain": heat_tokens(sheet)},
                # A JSON list of strings is one of Vega's expressions too.
                "axis": {"labelExpr": f"{names}[datum.value]", "labelAngle": -90, "labelLimit": 80, "ticks": False},
            },
            "y": {
                "field": "step",
                "type": "ordinal",
                "title": "step",
                "scale": {"domain": ordinals},
                "axis": {"labelOverlap": True},
            },
            "color": {
                "field": "p",
                "type": "quantitative",
                "scale": {"domain": [0, 1], "scheme": "viridis"},
                "legend": {"title": "p", "format": ".0%", "gradientLength": 110},
            },
            "tooltip": [
                {"field": "token", "title": "token"},
                {"field": "number", "title": "position"},
                {"field": "step", "title": "step"},
                {"field": "p", "title": "p", "format": ".3~g"},
            ],
        },
    }


def _bars(whens: list[str], axes: Chart, height: int) -> Chart:
    colours = [_BEFORE_COLOUR, *(str(line_of(index)["color"]) for index in range(len(whens) - 1))]
    return {
        "height": height,
        "mark": {"type": "bar"},
        "encoding": {
            **axes,
            "color": {
                "field": "when",
                "type": "nominal",
                "scale": {"domain": whens, "range": colours},
                "legend": {"orient": "top", "title": None},
            },
            "tooltip": [
                {"field": "token", "title": "token"},
                {"field": "when", "title": "when"},
                {"field": "p", "title": "p", "format": ".3~g"},
            ],
        },
    }


def _p_axis(title: str) -> Chart:
    return {
        "field": "p",
        "type": "quantitative",
        "title": title,
        "scale": {"domain": [0, 1]},
        "axis": {"format": ".0%", "tickCount": 5},
    }


def _best(sheet: Sheet, row: int) -> dict[int, tuple[str, float]]:
    """Token id -> its text and p, the most probable first."""
    if not sheet.top_tokens[row] or sheet.top_ids is None or sheet.top_log_p is None:
        return {}
    pairs = zip(sheet.top_tokens[row], np.exp(sheet.top_log_p[row]).tolist(), strict=True)
    return dict(zip(sheet.top_ids[row].tolist(), pairs, strict=True))


def distinct(labels: list[str]) -> list[str]:
    """Equal labels told apart by what nobody sees, or their bars would be one."""
    found: list[str] = []
    for label in labels:
        while label in found:
            label += "\u200b"
        found.append(label)
    return found


def short(token: str, longest: int = _LONGEST) -> str:
    """The token, cut where it is longer than that."""
    return token if len(token) <= longest else f"{token[: longest - 1]}…"


def _apart(steps: int) -> int:
    return max(1, math.ceil((steps + 1) / _HEAT_STEPS))
