"""The selected token: its distribution, and each lane's formula with this token's numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import streamlit as st

from losscore.figures import digits_figure, top_tokens_figure
from losscore.reading import read_row

if TYPE_CHECKING:
    from losscore.sheet import Sheet


def token_panel(sheet: Sheet, row: int) -> None:
    """Everything known about one row of `sheet`."""
    with st.container(border=True, key="token-panel"):
        with st.container(horizontal=True, vertical_alignment="center"):
            st.markdown(f"#### Token {row + 1} of {len(sheet)}", width="content")
            st.code(sheet.columns["token"][row], language=None, wrap_lines=True, width="content")
        bars, words = st.columns([1, 1], gap="medium")
        with bars:
            if sheet.value("log_p", row) is not None:
                st.plotly_chart(
                    top_tokens_figure(sheet, row),
                    key="top-tokens",
                    config={"displayModeBar": False},
                    alt="Bar chart of the most probable tokens at this place, the target marked.",
                )
            if row in sheet.p_digits:
                st.plotly_chart(
                    digits_figure(sheet, row),
                    key="ten-digits",
                    config={"displayModeBar": False},
                    alt="Bar chart of the ten digits' probabilities, the target marked.",
                )
        with words:
            for reading in read_row(sheet, row):
                formula = f"  \n`{reading.formula}`" if reading.formula else ""
                st.markdown(f"**{reading.title}**{formula}  \n{reading.sentence}")
