"""p of every token at every step of a fine-tune, as a heat map that reads as the text does."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go

from losscore.figures.style import escape, quiet

# More names along the axis than this cannot be read on a narrow screen.
_MOST_NAMES = 36


def heat_figure(steps: Sequence[int], p: np.ndarray[Any, Any], tokens: Sequence[str]) -> go.Figure:
    """Tokens from left to right, steps from top to bottom, colour for p from 0 to 1; NaN stays blank.

    p: (steps, tokens). Raises ValueError where its shape is another.
    """
    if p.shape != (len(steps), len(tokens)):
        raise ValueError(f"p must be {(len(steps), len(tokens))}, steps by tokens, not {p.shape}")
    names = [escape(token) for token in tokens]
    rows = [str(step) for step in steps]
    figure = go.Figure(
        go.Heatmap(
            z=[[float(value) if math.isfinite(value) else None for value in values] for values in p],
            x=list(range(len(names))),
            y=list(range(len(rows))),
            zmin=0,
            zmax=1,
            colorscale="Cividis",
            colorbar={
                "title": {"text": "p, probability", "side": "top"},
                "tickvals": [0, 0.5, 1],
                "ticktext": ["0 · surprised", "0.5", "1 · certain"],
                "orientation": "h",
                "x": 0,
                "xanchor": "left",
                "y": 1.02,
                "yanchor": "bottom",
                "len": 240,
                "lenmode": "pixels",
                "thickness": 10,
            },
            customdata=[[[name, row] for name in names] for row in rows],
            hovertemplate="%{customdata[0]}<br>step %{customdata[1]}: p = %{z:.3g}<extra></extra>",
            hoverongaps=False,
        )
    )
    every_name = math.ceil(len(names) / _MOST_NAMES) or 1
    every_row = math.ceil(len(rows) / 20) or 1
    figure = quiet(figure, min(220 + 16 * len(rows), 700), "", "step")
    figure.update_xaxes(
        tickmode="array",
        tickvals=list(range(0, len(names), every_name)),
        ticktext=names[::every_name],
        tickangle=-90,
        tickfont={"size": 11},
        showgrid=False,
    )
    return figure.update_yaxes(
        tickmode="array",
        tickvals=list(range(0, len(rows), every_row)),
        ticktext=rows[::every_row],
        autorange="reversed",
        showgrid=False,
    )
