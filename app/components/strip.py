"""The token strip: the lanes over the text, one selection for all of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import streamlit as st

from losscore.lanes import strip_payload
from losscore.lanes.page import strip_script, strip_style

if TYPE_CHECKING:
    from losscore.sheet import Sheet

_strip = st.components.v2.component("losscore_strip", html="<div></div>", css=strip_style(), js=strip_script())


@st.cache_data(show_spinner=False, max_entries=32)
def _payload(_sheet: Sheet, signature: str, view: str, bits: bool) -> dict[str, Any]:
    return strip_payload(_sheet, view=view, bits=bits)


def strip(sheet: Sheet, signature: str, *, view: str, bits: bool, first: int) -> int:
    """Draw the lanes of `sheet` and return the selected row; `first` is selected until a person picks another.

    signature: changes whenever the sheet does, so that a selection never outlives its text.
    """
    return mount(_payload(sheet, signature, view, bits), f"strip-{signature}", first)


def mount(payload: dict[str, Any], key: str, first: int) -> int:
    """Draw any payload of the strip and return the selected index."""
    result = _strip(
        key=key,
        # The start selection never changes with a click, so the browser's copy of this message stays good.
        data=payload | {"selected": first},
        default={"selected": first},
        on_selected_change=lambda: None,
    )
    selected = result.get("selected", first)
    known = isinstance(selected, int | float) and 0 <= int(selected) < len(payload["tokens"])
    return int(selected) if known else first
