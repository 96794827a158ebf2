"""A sheet -> plotly figures. Draws finished numbers; no torch, no Streamlit."""

from losscore.figures.distribution import digits_figure, top_tokens_figure
from losscore.figures.film import digits_film_figure, film_figure
from losscore.figures.landscape import Contours, landscape_figure, ranks_figure
from losscore.figures.objectives import correlation_figure, gates_figure, gradient_figure

__all__ = [
    "Contours",
    "correlation_figure",
    "digits_figure",
    "digits_film_figure",
    "film_figure",
    "gates_figure",
    "gradient_figure",
    "landscape_figure",
    "ranks_figure",
    "top_tokens_figure",
]
