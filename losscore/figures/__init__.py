"""A sheet -> plotly figures. Draws finished numbers; no torch, no Streamlit."""

from losscore.figures.distribution import digits_figure, top_tokens_figure

__all__ = ["digits_figure", "top_tokens_figure"]
