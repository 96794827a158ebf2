"""What the figures of objectives share: one colour and one dash for each, and quiet layouts."""

from __future__ import annotations

import html

import plotly.graph_objects as go

# Okabe and Ito's palette; the dash tells objectives apart where colours cannot.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#7F7F7F")
# What a bar of a distribution stands for, and its colour.
BARS = {"target": "#D55E00", "token": "#56B4E9", "all others": "#999999"}
_DASHES = ("solid", "dash", "dot", "dashdot", "longdash")


def line_of(index: int) -> dict[str, object]:
    """Colour and dash of the objective at `index` of those shown."""
    return {"color": _COLOURS[index % len(_COLOURS)], "dash": _DASHES[index % len(_DASHES)], "width": 2}


def pattern_of(index: int) -> str:
    """The bars' pattern that goes with `line_of`."""
    return ("", "/", "x", "-", "|", "+", ".")[index % 7]


def escape(text: str) -> str:
    """Plotly reads <b>, <a> and the like in any text."""
    return html.escape(text if len(text) <= 24 else f"{text[:23]}…")


def quiet(figure: go.Figure, height: int, x: str, y: str) -> go.Figure:
    """Axis titles, height, a legend above; nothing else."""
    figure.update_layout(
        height=height,
        margin={"l": 10, "r": 10, "t": 30, "b": 10},
        legend={"orientation": "h", "yanchor": "bottom", "y": 1.02, "x": 0},
        xaxis={"title": {"text": x}, "automargin": True},
        yaxis={"title": {"text": y}, "automargin": True},
    )
    return figure
