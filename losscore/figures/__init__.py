"""A sheet -> figures: plotly's, or Vega-Lite where they are redrawn often. No torch, no Streamlit."""

from losscore.figures.film import digits_film_figure, film_figure
from losscore.figures.landscape import Contours, landscape_figure, ranks_figure
from losscore.figures.objectives import correlation_figure, gates_figure, gradient_figure

__all__ = [
    "Contours",
    "correlation_figure",
    "digits_film_figure",
    "film_figure",
    "gates_figure",
    "gradient_figure",
    "landscape_figure",
    "ranks_figure",
]
