"""All columns of a sheet, and its downloads."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import streamlit as st

from losscore.columns import COLUMNS

if TYPE_CHECKING:
    from losscore.sheet import Sheet

_SHOWN = 20_000
_DOWNLOADS = {
    "csv": ("CSV", "text/csv"),
    "json": ("JSON", "application/json"),
    "parquet": ("Parquet", "application/vnd.apache.parquet"),
    "html": ("HTML page", "text/html"),
}


def table(sheet: Sheet) -> None:
    """The table, sortable by any column, and one button for each export."""
    st.subheader("All columns", anchor=False)
    meanings = {name: st.column_config.Column(help=column.meaning) for name, column in COLUMNS.items()}
    shown = sheet if len(sheet) <= _SHOWN else sheet.part(0, _SHOWN)
    if len(sheet) > _SHOWN:
        st.caption(f"The first {_SHOWN:,} of {len(sheet):,} rows; the downloads have all of them.")
    st.dataframe(shown.to_frame(), hide_index=True, key="table", column_config=meanings)
    with st.container(horizontal=True):
        for suffix, (label, mime) in _DOWNLOADS.items():
            st.download_button(
                f"Download {label}",
                partial(sheet.export, suffix),
                file_name=f"losscore.{suffix}",
                mime=mime,
                key=f"download-{suffix}",
                on_click="ignore",
            )
    with st.expander("How this was made"):
        st.json(dict(sheet.provenance), expanded=1)
