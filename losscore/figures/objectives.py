"""Objectives compared on one text: rank correlations, gates against p, where the gradient goes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import plotly.graph_objects as go

from losscore.figures.style import escape, line_of, pattern_of, quiet

if TYPE_CHECKING:
    import pandas as pd

    from losscore.landscape import Curve

Array = np.ndarray[Any, np.dtype[np.float64]]


def correlation_figure(correlation: pd.DataFrame) -> go.Figure:
    """Spearman's rank correlations as a small matrix with the numbers in it; blank where an objective weighs alike."""
    names = [escape(str(name)) for name in correlation.columns]
    values = correlation.to_numpy(dtype=np.float64)
    figure = go.Figure(
        go.Heatmap(
            z=values,
            zmin=-1,
            zmax=1,
            colorscale=[[0, "#D55E00"], [0.5, "#f7f7f7"], [1, "#0072B2"]],
            text=[[f"{v:.2f}" if np.isfinite(v) else "–" for v in row] for row in values],
            texttemplate="%{text}",
            hovertemplate="%{y} and %{x}: %{text}<extra></extra>",
            showscale=False,
            x=list(range(len(names))),
            y=list(range(len(names))),
        )
    )
    ticks = {"tickmode": "array", "tickvals": list(range(len(names))), "ticktext": names}
    figure = quiet(figure, 110 + 34 * len(names), "", "")
    figure.update_xaxes(**ticks, side="top")
    return figure.update_yaxes(**ticks, autorange="reversed")


def gates_figure(curves: Mapping[str, Curve], points: Mapping[str, tuple[Array, Array]], *, push: bool) -> go.Figure:
    """Weight (or weight x error, `push`) against p, one line per objective, the text's tokens as dots near it.

    points: per objective, p and weight of the text's tokens.
    """
    figure = go.Figure()
    for index, name in enumerate(points):
        line = line_of(index)
        if name in curves:
            drawn = curves[name]
            figure.add_scatter(
                x=drawn.p, y=drawn.push if push else drawn.weight, mode="lines", name=escape(name), line=line
            )
        p, weight = points[name]
        figure.add_scatter(
            x=p,
            y=weight * (1 - p) if push else weight,
            mode="markers",
            name=escape(name),
            showlegend=name not in curves,
            marker={"color": line["color"], "size": 5, "opacity": 0.5},
            hovertemplate=f"{escape(name)}<br>p = %{{x:.3g}}, %{{y:.3g}}<extra></extra>",
        )
    what = "gate × error = how far the logits move" if push else "gate, relative to cross-entropy"
    return quiet(figure, 420, "p of the target", what)


def gradient_figure(shares: pd.DataFrame, objectives: Sequence[str]) -> go.Figure:
    """The share of all gradient that falls on tokens of each range of p, bars side by side for the objectives."""
    figure = go.Figure()
    bins = [f"p {edge}<br>{count} token{'' if count == 1 else 's'}" for edge, count in shares["tokens"].items()]
    for index, name in enumerate(objectives):
        figure.add_bar(
            x=list(range(len(bins))),
            y=shares[name].tolist(),
            name=escape(name),
            marker={"color": str(line_of(index)["color"]), "pattern": {"shape": pattern_of(index)}},
            hovertemplate="%{y:.1%}<extra>" + escape(name) + "</extra>",
        )
    figure = quiet(figure, 420, "", "share of Σ |dL/dz|")
    figure.update_xaxes(tickmode="array", tickvals=list(range(len(bins))), ticktext=bins)
    return figure.update_yaxes(tickformat=".0%")
