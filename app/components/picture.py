"""A picture with one sentence on how to read it, its numbers as a table, and a download of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import streamlit as st

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go


def picture(figure: go.Figure, *, key: str, read: str, alt: str, data: pd.DataFrame) -> None:
    """Draw `figure`; `read` says how to read it, `alt` what it is for those who cannot see it."""
    st.markdown(f"**How to read it.** {read}")
    st.plotly_chart(figure, key=key, config={"displayModeBar": False}, alt=alt)
    numbers(data, key)


def numbers(data: pd.DataFrame, key: str) -> None:
    """The numbers behind a picture."""
    with st.expander("The numbers"):
        st.dataframe(data, key=f"{key}-table")
        st.download_button(
            "Download as CSV",
            lambda: data.to_csv().encode(),
            file_name=f"losscore-{key}.csv",
            mime="text/csv",
            key=f"{key}-csv",
            on_click="ignore",
        )
