"""The distribution at one token: its most probable tokens, and at a digit the ten digits."""

from __future__ import annotations

import html
from typing import Any

import numpy as np
import plotly.graph_objects as go

from losscore.lanes.lane import format_value
from losscore.sheet import Sheet

TARGET, OTHER, REST = "#D55E00", "#56B4E9", "#999999"


def top_tokens_figure(sheet: Sheet, row: int) -> go.Figure:
    """Bars of the most probable tokens at `row`, the target marked wherever its rank, and the rest of the mass."""
    if not sheet.top_tokens[row] or sheet.top_ids is None or sheet.top_log_p is None:
        return _bars([], [], [], [], "Nothing predicts this token")
    target = int(sheet.columns["id"][row])
    ids, p = sheet.top_ids[row].tolist(), np.exp(sheet.top_log_p[row]).tolist()
    names = [_label(token) for token in sheet.top_tokens[row]]
    colours = [TARGET if i == target else OTHER for i in ids]
    notes = [f"{format_value(value)}{'  ◀ target' if i == target else ''}" for i, value in zip(ids, p, strict=True)]
    if target not in ids:
        own = float(sheet.columns["p"][row])
        names.append(_label(str(sheet.columns["token"][row])))
        p.append(own)
        colours.append(TARGET)
        notes.append(f"{format_value(own)}  ◀ target, rank {int(sheet.columns['rank'][row]):,}")
    rest = max(0.0, 1 - sum(p))
    others = int(sheet.provenance["vocabulary"]) - len(p)
    if others > 0:
        names.append(f"all {others:,} others")
        p.append(rest)
        colours.append(REST)
        notes.append(format_value(rest) if rest > 1e-12 else "almost 0")
    return _bars(names, p, colours, notes, "Most probable tokens here")


def digits_figure(sheet: Sheet, row: int) -> go.Figure:
    """The ten digit probabilities at `row`, renormalised over the digits, the target marked; no bars at other rows."""
    if row not in sheet.p_digits:
        return _bars([], [], [], [], "No digit of the digit set is predicted here")
    digit = int(sheet.columns["digit"][row])
    p = list(sheet.p_digits[row])
    colours = [TARGET if d == digit else OTHER for d in range(10)]
    notes = [f"{format_value(value)}{' ◀ target' if d == digit else ''}" for d, value in enumerate(p)]
    return _bars([str(d) for d in range(10)], p, colours, notes, "Among the ten digits")


def _label(token: str) -> str:
    # Plotly reads <b>, <a> and the like in any text.
    return html.escape(token if len(token) <= 18 else f"{token[:17]}…")


def _bars(names: list[str], p: list[float], colours: list[str], notes: list[str], title: str) -> go.Figure:
    # Positions with tick texts: as plain labels, equal tokens would merge and digits become a number axis.
    places = list(range(len(names)))
    figure = go.Figure(
        go.Bar(
            x=p,
            y=places,
            orientation="h",
            marker={"color": colours, "pattern": {"shape": ["/" if c == TARGET else "" for c in colours]}},
            text=[html.escape(note) for note in notes],
            textposition="outside",
            cliponaxis=False,
            hovertext=[f"{name}: {html.escape(note)}" for name, note in zip(names, notes, strict=True)],
            hoverinfo="text",
        )
    )
    axis: dict[str, Any] = {"tickmode": "array", "tickvals": places, "ticktext": names, "autorange": "reversed"}
    figure.update_layout(
        title={"text": title, "font": {"size": 15}},
        height=80 + 21 * max(len(names), 3),
        margin={"l": 10, "r": 10, "t": 40, "b": 30},
        showlegend=False,
        bargap=0.25,
        yaxis={**axis, "automargin": True, "fixedrange": True},
        xaxis={"range": [0, max([*p, 0.01]) * 1.45], "tickformat": ".0%", "fixedrange": True},
    )
    return figure
