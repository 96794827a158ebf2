"""The Objectives page: on the text of the Tokens page, how the objectives differ."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import streamlit as st

from app import session
from app.components import objective_sections as sections
from app.components.noise_section import noise_section
from app.components.objective_picker import about_objectives, pick_objectives
from app.components.plain import plain
from losscore.errors import LosscoreError
from losscore.weighing import weights_table

if TYPE_CHECKING:
    from losscore.objectives import Objective
    from losscore.sheet import Sheet

_SECTIONS = ("Weights", "Landscape", "Gates", "Gradient", "Noise check")


def page() -> None:
    """Pick objectives, then look at one of the five pictures."""
    st.markdown("### How the objectives differ on this text")
    request = session.remembered()
    try:
        sheet = session.sheet(request)
        whole = len(sheet) + int(sheet.provenance["tokens_left_out"])
        if len(sheet) > session.DRAWN_TOKENS:
            request = replace(request, limit=session.FIRST_TOKENS)
            sheet = session.sheet(request)
        with st.container(horizontal=True, vertical_alignment="center"):
            st.markdown("The text of the Tokens page:", width="content")
            shown = sheet.text if len(sheet.text) <= 90 else f"{sheet.text[:89]}…"
            st.code(shown.replace("\n", " ⏎ "), language=None, width="content", wrap_lines=True)
            st.page_link("views/tokens.py", label="Change it", icon="✏️", width="content")
        if len(sheet) < whole:
            st.caption(
                f"Only the first {len(sheet):,} of the text's {whole:,} tokens are compared here. To compare another "
                "part, make it the text of the Tokens page."
            )
        objectives = pick_objectives()
        if not objectives:
            st.info("Pick at least one objective above.", icon="☝️")
            return
        section = st.segmented_control(
            "Show", _SECTIONS, default=_SECTIONS[0], key="section", required=True, bind="query-params"
        )
        if section == "Noise check":
            noise_section(request, objectives)
            about_objectives(objectives)
            return
        if not sheet.summary.scored:
            st.info("Nothing is scored in this text: it needs at least two tokens, or a start token (BOS).", icon="✏️")
            return
        _on_text(section, sheet, request, objectives)
        about_objectives(objectives)
    except LosscoreError as error:
        st.error(plain(str(error)))


def _on_text(section: str, sheet: Sheet, request: session.Request, objectives: list[Objective]) -> None:
    table = _weights(sheet, request, objectives)
    draw: dict[str, Any] = {
        "Weights": sections.weights_section,
        "Landscape": sections.landscape_section,
        "Gates": sections.gates_section,
        "Gradient": sections.gradient_section,
    }
    draw[section](sheet, request, objectives, table)


def _weights(sheet: Sheet, request: session.Request, objectives: list[Objective]) -> dict[str, Any]:
    """Weights by objective; the model is only run again for those that look at the whole distribution."""
    slow = any(objective.needs_distribution for objective in objectives)
    if not slow:
        return weights_table(sheet, objectives)
    model = session.model(request.model, request.dtype)
    bar = st.progress(0.0, "Running the model again …")

    def show(share: float) -> None:
        bar.progress(share, "Running the model again …")

    try:
        return weights_table(sheet, objectives, model, show)
    finally:
        bar.empty()


page()
