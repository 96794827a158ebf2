"""The Tokens page: a text, its lanes, the selected token, the table."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import streamlit as st

from app import session
from app.components import inputs
from app.components.plain import plain
from app.components.strip import mount, strip
from app.components.table import table
from app.components.token_panel import token_panel
from losscore.errors import LosscoreError
from losscore.lanes.change import change_payload, change_words, largest_changes, summary
from losscore.reading import precision

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
    lanes(sheet, request, example, _base_sheet(request))
    table(sheet)


@st.fragment
def lanes(sheet: Sheet, request: session.Request, example: str, base: Sheet | None) -> None:
    """Strip and token panel; a click reruns only this. base: the same text as the model before its fine-tune saw it."""
    views = inputs.VIEWS | (inputs.CHANGE if base is not None else {})
    left, right = st.columns([3, 1], vertical_alignment="bottom")
    with left:
        view = st.segmented_control(
            "Lanes",
            list(views),
            format_func=views.__getitem__,
            key="view",
            required=True,
            default="panes",
            bind="query-params",
            help="Six panes: the text once for each lane. Stripes: all lanes under one text, so that one token's six "
            "values stand under each other."
            + (" Change since base: what the fine-tune moved, and which way." if base is not None else ""),
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
    bits = units == "bits"
    if base is not None and view == "change":
        st.markdown(plain(summary(base, sheet)))
    start = _part(sheet)
    signature = f"{session.signature(request)}-{start}" if start else session.signature(request)
    drawn = sheet.part(start, start + session.DRAWN_TOKENS) if len(sheet) > session.DRAWN_TOKENS else sheet
    wanted = session.selected(request, _first(sheet, example)) - start
    first = session.start_row("tokens", signature, wanted if 0 <= wanted < len(drawn) else 0)
    if base is not None and view == "change":
        before = base.part(start, start + session.DRAWN_TOKENS) if len(base) > session.DRAWN_TOKENS else base
        row = start + mount(_change(before, drawn, signature, bits), f"strip-{signature}", first)
    else:
        row = start + strip(drawn, signature, view=view, bits=bits, first=first)
    session.select(request, row)
    if base is not None:
        _since_base(base, sheet, row, bits)
    token_panel(sheet, row)


def _part(sheet: Sheet) -> int:
    """The first token to draw: a very long text is drawn part by part, or the browser would stand still."""
    drawn = session.DRAWN_TOKENS
    if len(sheet) <= drawn:
        return 0
    starts = list(range(0, len(sheet), drawn))
    start: int = st.selectbox(
        "Tokens to draw",
        starts,
        format_func=lambda start: f"{start + 1:,} to {min(start + drawn, len(sheet)):,} of {len(sheet):,}",
        key="part",
        help="All of them are scored, and all are in the summary and in the downloads.",
    )
    return start


@st.cache_data(show_spinner=False, max_entries=32)
def _change(_base: Sheet, _tuned: Sheet, signature: str, bits: bool) -> dict[str, Any]:
    return change_payload(_base, _tuned, bits=bits)


def _base_sheet(request: session.Request) -> Sheet | None:
    """The text of `request` as the model read it that its tuned model started from; None for any other model."""
    base = session.base_of(request.model)
    if base is None:
        return None
    try:
        return session.sheet(replace(request, model=base))
    except LosscoreError as error:
        st.warning(plain(f"What changed cannot be shown: {error}"))
        return None


def _since_base(base: Sheet, tuned: Sheet, row: int, bits: bool) -> None:
    """The selected token before and after in words, and where in the text p changed most."""
    words = change_words(base, tuned, row, bits=bits)
    if words:
        st.markdown(f"**Since the base model, this token:** {words}")
    changes = largest_changes(base, tuned)
    if changes:
        with st.expander("Where p changed most"):
            st.dataframe(
                [{"number": c.row + 1, "token": c.token, "p before": c.before, "p after": c.after} for c in changes],
                hide_index=True,
                key="largest-changes",
            )


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
    if sheet.provenance["dtype"] != "float32":
        _precision(sheet, request)


def _precision(sheet: Sheet, request: session.Request) -> None:
    """What the coarser numbers of the model's own arithmetic change, when somebody asks."""
    if not st.button("Compare with float32", key="compare-dtype", help="Reads the text once more, in float32."):
        return
    try:
        st.markdown(plain(precision(session.sheet(replace(request, dtype="float32")), sheet)))
    except LosscoreError as error:
        st.warning(plain(str(error)))


def _wants_all(request: session.Request) -> bool:
    return bool(st.session_state.get("score_all") == request)


def _want_all(request: session.Request) -> None:
    st.session_state.score_all = request


_SUMMARY_HELP = (
    "Means over the targets. NLL: −log p in nats. Perplexity: exp(mean NLL). Bits per byte: the bits of all targets "
    "over their UTF-8 bytes, comparable between tokenizers. Digit set: the ten single-digit tokens that DEL works on."
)
page()
