"""The selected token: its distribution, and each lane's formula with this token's numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import streamlit as st

from losscore.figures.distribution import bars_chart, digits_rows, top_tokens_rows
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
                st.vega_lite_chart(
                    top_tokens_rows(sheet, row),
                    bars_chart("Most probable tokens here"),
                    key="top-tokens",
                    alt="Bar chart of the most probable tokens at this place, the target marked.",
                )
            if row in sheet.p_digits:
                st.vega_lite_chart(
                    digits_rows(sheet, row),
                    bars_chart("Among the ten digits"),
                    key="ten-digits",
                    alt="Bar chart of the ten digits' probabilities, the target marked.",
                )
        with words:
            for reading in read_row(sheet, row):
                formula = f"  \n`{reading.formula}`" if reading.formula else ""
                st.markdown(f"**{reading.title}**{formula}  \n{reading.sentence}")
