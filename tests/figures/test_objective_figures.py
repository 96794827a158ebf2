"""The pictures of the Objectives page hold the numbers they are given."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from losscore.figures import Contours, correlation_figure, gates_figure, gradient_figure, landscape_figure, ranks_figure
from losscore.landscape import Curve
from tests.tiny.table import sheet_of

SHEET = sheet_of(
    ["a", "<b>b</b>", "c"], p=[None, 0.1, 0.5], entropy=[None, 2.0, 1.0], rank=[None, 7, 1], expected_rank=[None, 3, 2]
)
ROWS = np.array([1, 2])
WEIGHTS = np.array([np.nan, 0.25, 0.75])


def test_the_landscape_has_a_dot_per_token_and_marks_the_selected_one() -> None:
    grid = Contours(np.array([0.1, 0.5]), np.array([1.0, 2.0]), np.array([[1.0, 2.0], [3.0, np.nan]]))
    figure = landscape_figure(SHEET, ROWS, WEIGHTS, selected=2, contours=grid, noise=True)
    dots = next(trace for trace in figure.data if trace.name == "tokens of the text")
    assert list(dots.x) == [0.1, 0.5]
    assert list(dots.y) == [2.0, 1.0]
    assert list(dots.marker.color) == [0.25, 0.75]
    assert dots.customdata[0][1] == "&lt;b&gt;b&lt;/b&gt;"
    assert any(trace.type == "contour" for trace in figure.data)
    ring = next(trace for trace in figure.data if trace.name == "selected")
    assert (ring.x[0], ring.y[0]) == (0.5, 1.0)
    assert any("noise" in note.text for note in figure.layout.annotations)
    assert figure.layout.xaxis.type == "log"


def test_the_ranks_name_the_papers_regions() -> None:
    figure = ranks_figure(SHEET, ROWS, WEIGHTS)
    dots = next(trace for trace in figure.data if trace.name == "tokens of the text")
    assert list(dots.x) == [3, 2]
    assert list(dots.y) == [7, 1]
    words = " ".join(note.text or "" for note in figure.layout.annotations)
    for region in ("priority", "negligible", "under-learned"):
        assert region in words


@pytest.mark.parametrize("push", [False, True])
def test_gates_draw_a_line_where_there_is_one_and_dots_for_all(push: bool) -> None:
    curves = {"A": Curve(np.array([0.1, 0.9]), np.array([1.0, 2.0]), np.array([0.9, 0.2]))}
    points = {"A": (np.array([0.5]), np.array([1.5])), "B": (np.array([0.5]), np.array([0.4]))}
    figure = gates_figure(curves, points, push=push)
    lines = [trace for trace in figure.data if trace.mode == "lines"]
    dots = [trace for trace in figure.data if trace.mode == "markers"]
    assert [line.name for line in lines] == ["A"]
    assert list(lines[0].y) == ([0.9, 0.2] if push else [1.0, 2.0])
    assert [float(dot.y[0]) for dot in dots] == pytest.approx([0.75, 0.2] if push else [1.5, 0.4])


def test_bars_and_matrix_hold_their_tables() -> None:
    shares = pd.DataFrame({"tokens": [1, 3], "A": [0.25, 0.75]}, index=["0-0.5", "0.5-1"])
    bars = gradient_figure(shares, ["A"])
    assert list(bars.data[0].y) == [0.25, 0.75]
    assert bars.layout.xaxis.ticktext == ("p 0-0.5<br>1 token", "p 0.5-1<br>3 tokens")
    matrix = correlation_figure(pd.DataFrame({"A": [1.0, np.nan], "B": [np.nan, 1.0]}, index=["A", "B"]))
    assert [list(row) for row in matrix.data[0].text] == [["1.00", "–"], ["–", "1.00"]]
