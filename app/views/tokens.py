"""The Tokens page: a text, its lanes, the selected token, the table."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import streamlit as st

from app import session
from app.components import inputs
from app.components.plain import plain
from app.components.strip import strip
from app.components.table import table
from app.components.token_panel import token_panel
from losscore.errors import LosscoreError

if TYPE_CHECKING:
    from losscore.sheet import Sheet


def page() -> None:
    """Draw the page from top to bottom; the controls come first so that they are there while the model loads."""
    st.markdown("### What a fine-tuning objective sees")
    st.markdown(
        "A small language model reads your text. Every token is coloured by **what the model thought of it** "
        "(p, entropy, rank) and by **how hard an objective would push on it** (RankTuner, DEFT, DEL)."
    )
    request, example = inputs.controls()
    if not request.text and not request.prompt:
        st.info("Type or paste a text above, or pick an example.", icon="✏️")
        return
    request = replace(request, limit=None) if _wants_all(request) else request
    try:
        sheet = session.sheet(request)
    except LosscoreError as error:
        st.error(plain(str(error)))
        return
    session.remember(request)
    _notices(sheet, request)
    if not len(sheet):
        return
    lanes(sheet, request, example)
    table(sheet)


@st.fragment
def lanes(sheet: Sheet, request: session.Request, example: str) -> None:
    """Strip and token panel; a click reruns only this."""
    left, right = st.columns([3, 1], vertical_alignment="bottom")
    with left:
        view = st.segmented_control(
            "Lanes",
            list(inputs.VIEWS),
            format_func=inputs.VIEWS.__getitem__,
            key="view",
            required=True,
            default="panes",
            bind="query-params",
            help="Six panes: the text once for each lane. Stripes: all lanes under one text, so that one token's six "
            "values stand under each other.",
        )
    with right:
        units = st.segmented_control(
            "Entropy in",
            list(inputs.UNITS),
            key="units",
            required=True,
            default="nats",
            bind="query-params",
        )
    signature = session.signature(request)
    first = session.start_row("tokens", signature, session.selected(request, _first(sheet, example)))
    row = strip(sheet, signature, view=view, bits=units == "bits", first=first)
    session.select(request, row)
    token_panel(sheet, row)


def _first(sheet: Sheet, example: str) -> int:
    """The token that the example points at; else the first one that has a prediction."""
    wanted = session.examples().get(example, {}).get("select", "")
    at = sheet.text.rfind(wanted)
    row = sheet.row_at(at + len(wanted) - 1) if wanted and at >= 0 else 0
    predicted = [row, *range(row + 1, len(sheet)), *range(row)]
    return next((row for row in predicted if sheet.value("p", row) is not None), 0)


def _notices(sheet: Sheet, request: session.Request) -> None:
    """The summary line and whatever a reader must know about how the text was read."""
    summary = sheet.summary
    st.markdown(f"**{plain(summary.line())}**", help=_SUMMARY_HELP)
    left_out = int(sheet.provenance["tokens_left_out"])
    if left_out:
        st.warning(f"The first {len(sheet):,} tokens are scored; {left_out:,} more follow.")
        st.button(f"Score all {len(sheet) + left_out:,} tokens", on_click=_want_all, args=(request,), key="score-all")
    if summary.digits_covered < summary.digits_in_text:
        missing = summary.digits_in_text - summary.digits_covered
        st.warning(f"This tokenizer merges digits: {missing} of {summary.digits_in_text} digits get no DEL penalty.")
    for note in sheet.provenance["notes"]:
        st.caption(f"ℹ️ {plain(note)}")


def _wants_all(request: session.Request) -> bool:
    return bool(st.session_state.get("score_all") == request)


def _want_all(request: session.Request) -> None:
    st.session_state.score_all = request


_SUMMARY_HELP = (
    "Means over the targets. NLL: −log p in nats. Perplexity: exp(mean NLL). Bits per byte: the bits of all targets "
    "over their UTF-8 bytes, comparable between tokenizers. Digit set: the ten single-digit tokens that DEL works on."
)
page()
