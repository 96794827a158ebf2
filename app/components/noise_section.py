"""The noise check on the page: random words in worked answers, and who pushes on them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd
import streamlit as st

from app import session
from app.components.picture import numbers
from app.components.plain import plain
from losscore.noise import (
    PAPER,
    PAPER_SOURCE,
    NoiseReport,
    noise_check,
    worked_answers,
)
from losscore.text.examples import Example, parse_examples
from losscore.text.source import read_text

if TYPE_CHECKING:
    from losscore.objectives import Objective


def noise_section(request: session.Request, objectives: list[Objective]) -> None:
    """Settings, the button, the table of what was found last."""
    st.markdown(
        "Random words are put into worked answers. An objective that weighs tokens should not spend its emphasis on "
        "them: of the 10 % of tokens with the largest weights, how many are noise? **Low is good.**"
    )
    columns = st.columns(4, vertical_alignment="bottom")
    rate = columns[0].number_input("Noise rate", 0.01, 0.5, 0.1, 0.01, help="Share of the gaps that get a random word.")
    seed = columns[1].number_input("Seed", 0, 10_000, 0, 1, help="Which words, and where.")
    count = columns[2].number_input("Answers", 1, 200, 8, 1, help="How many answers to use, from the first one on.")
    upload = st.file_uploader(
        "Your own answers instead of the shipped ones (optional)",
        type=["jsonl", "json", "txt"],
        help='One JSON object a line, with "response" and perhaps "prompt", or with "text".',
    )
    if columns[3].button("Check", type="primary", width="stretch", key="run-noise"):
        st.session_state.pop("noise", None)
        examples = worked_answers()
        if upload is not None:
            text, notes = read_text(upload.getvalue(), upload.name)
            for note in notes:
                st.caption(f"ℹ️ {plain(note)}")
            examples = parse_examples(text, upload.name)
        st.session_state.noise = _run(request, examples[: int(count)], objectives, rate, int(seed))
    if "noise" in st.session_state:
        _show(st.session_state.noise)


def _run(
    request: session.Request, examples: list[Example], objectives: list[Objective], rate: float, seed: int
) -> NoiseReport:
    model = session.model(request.model, request.dtype)
    # Any click reruns the page, which ends this run at the next step.
    st.button("Stop", key="stop-noise")
    bar = st.progress(0.0, f"Reading {len(examples)} answers …")

    def show(share: float) -> None:
        bar.progress(min(share, 1.0), f"Reading {len(examples)} answers … {share:.0%}")

    try:
        return noise_check(model, examples, objectives, rate=rate, seed=seed, progress=show)
    finally:
        bar.empty()


def _show(report: NoiseReport) -> None:
    frame = report.to_frame()
    st.markdown(
        f"**How to read it.** {report.noise_tokens:,} of {report.tokens:,} tokens are noise ({report.base_rate:.1%}). "
        f"*Precision*: share of noise among the top 10 % of weights; an objective that weighs all alike has "
        f"{report.base_rate:.1%}. *Recall*: share of all noise among them. *Sequences hit*: answers with some noise "
        "among them. Low is easy for whoever avoids every surprise: read it beside the other pictures."
    )
    percent = st.column_config.NumberColumn(format="percent")
    shares = dict.fromkeys(("precision", "base_rate", "recall", "sequences_hit"), percent)
    st.dataframe(frame.drop(columns=["objective", "tokens"]), hide_index=True, column_config=shares, key="noise-table")
    st.markdown("**What RankTuner's authors report** (their model and data, so compare the order):")
    st.dataframe(pd.DataFrame(PAPER), hide_index=True, column_config=shares, key="noise-paper")
    st.caption(PAPER_SOURCE)
    numbers(frame, "noise")
