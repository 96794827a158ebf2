"""The text's tokens in a plane, coloured by one objective's weight, with its contours or the paper's regions."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import plotly.graph_objects as go

from losscore.figures.style import escape, quiet
from losscore.sheet import Sheet

Array = np.ndarray[Any, np.dtype[np.float64]]


class Contours(NamedTuple):
    """A weight on a grid: p along x, entropy in nats along y."""

    p: Array
    entropy: Array
    weight: Array


def landscape_figure(
    sheet: Sheet,
    rows: np.ndarray[Any, np.dtype[np.int64]],
    weights: Array,
    *,
    selected: int | None = None,
    contours: Contours | None = None,
    noise: bool = False,
) -> go.Figure:
    """p (log scale) against entropy. noise: name the corner that RankTuner's paper calls noise (high H, low p)."""
    p, entropy = (np.asarray(sheet.columns[name], dtype=np.float64) for name in ("p", "entropy"))
    figure = go.Figure()
    if contours is not None:
        figure.add_contour(
            x=contours.p,
            y=contours.entropy,
            z=contours.weight,
            contours={"coloring": "lines", "showlabels": True},
            line={"width": 1},
            colorscale="Viridis",
            showscale=False,
            hoverinfo="skip",
        )
    _points(figure, sheet, rows, p, entropy, weights, selected)
    figure = quiet(figure, 480, "p of the token (log scale)", "entropy of the distribution, nats")
    if noise and len(rows):
        high, low = float(np.median(entropy[rows])), float(np.median(p[rows]))
        figure.add_shape(
            type="rect", xref="x", yref="y", x0=max(float(p[rows].min()), 1e-12) / 2, x1=low, y0=high,
            y1=float(entropy[rows].max()) * 1.05, line={"dash": "dot", "width": 1}, fillcolor="rgba(0,0,0,0)",
        )  # fmt: skip
        figure.add_annotation(
            x=np.log10(low), y=float(entropy[rows].max()) * 1.05, xanchor="right", yanchor="bottom", showarrow=False,
            text="noise: high H, low p",
        )  # fmt: skip
    return figure.update_xaxes(type="log", exponentformat="power")


def ranks_figure(
    sheet: Sheet, rows: np.ndarray[Any, np.dtype[np.int64]], weights: Array, *, selected: int | None = None
) -> go.Figure:
    """Expected rank against rank, both log: RankTuner is above 1 over the diagonal, below 1 under it.

    The regions in the paper's words, cut at the medians of this text.
    """
    rank, expected = (np.asarray(sheet.columns[name], dtype=np.float64) for name in ("rank", "expected_rank"))
    figure = go.Figure()
    top = float(max(rank[rows].max(initial=2), expected[rows].max(initial=2)))
    figure.add_scatter(
        x=[1, top], y=[1, top], mode="lines", line={"dash": "dash", "width": 1, "color": "#7F7F7F"}, name="S = 1",
        hoverinfo="skip",
    )  # fmt: skip
    _points(figure, sheet, rows, expected, rank, weights, selected)
    figure = quiet(figure, 480, "expected rank E[R] (log scale)", "rank R (log scale)")
    for x, y, text in (
        (0.02, 0.03, "priority: low R, low E[R]"),
        (0.98, 0.97, "negligible: high R, high E[R]"),
        (0.02, 0.97, "under-learned: high R, low E[R]"),
    ):
        figure.add_annotation(
            xref="paper", yref="paper", x=x, y=y, showarrow=False, text=text,
            xanchor="left" if x < 0.5 else "right", yanchor="bottom" if y < 0.5 else "top",
        )  # fmt: skip
    figure.add_vline(x=float(np.median(expected[rows])), line={"dash": "dot", "width": 1, "color": "#7F7F7F"})
    figure.add_hline(y=float(np.median(rank[rows])), line={"dash": "dot", "width": 1, "color": "#7F7F7F"})
    # Room under rank 1 for the name of the region there.
    return figure.update_xaxes(type="log").update_yaxes(type="log", range=[-0.5, np.log10(top) + 0.2])


def _points(
    figure: go.Figure,
    sheet: Sheet,
    rows: np.ndarray[Any, np.dtype[np.int64]],
    x: Array,
    y: Array,
    weights: Array,
    selected: int | None,
) -> None:
    names = [escape(str(sheet.columns["token"][row])) for row in rows]
    figure.add_scatter(
        x=x[rows],
        y=y[rows],
        mode="markers",
        name="tokens of the text",
        marker={
            "size": 9,
            "color": weights[rows],
            "colorscale": "Viridis",
            "colorbar": {"title": {"text": "weight"}},
            "line": {"width": 0.5, "color": "#7F7F7F"},
        },
        customdata=[[int(row), name, float(weights[row])] for row, name in zip(rows, names, strict=True)],
        hovertemplate="%{customdata[1]}<br>x = %{x:.3g}, y = %{y:.3g}<br>weight %{customdata[2]:.3g}<extra></extra>",
    )
    if selected is not None and selected in set(rows.tolist()):
        figure.add_scatter(
            x=[x[selected]],
            y=[y[selected]],
            mode="markers+text",
            text=[escape(str(sheet.columns["token"][selected]))],
            textposition="top center",
            name="selected",
            marker={"size": 16, "symbol": "circle-open", "color": "#D55E00", "line": {"width": 3}},
            hoverinfo="skip",
        )
