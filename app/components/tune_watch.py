"""A fine-tune as it goes on, and any of its steps afterwards: lanes before and now, curves, the selected token."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import streamlit as st

from app import session
from app.components.plain import plain
from app.components.strip import mount
from app.components.tune_numbers import elsewhere, numbers, numbers_to_come
from app.components.tune_scene import Scene
from app.components.tune_setup import Order
from app.jobs import Job
from losscore.figures import live
from losscore.lanes.change import change_words, watch_payload

if TYPE_CHECKING:
    from losscore.sheet import Sheet

_LANES = {"p": "p", "entropy": "Entropy", "rank": "Rank"}
_CURVES = {
    "nll": ("plain cross-entropy (NLL), nats", "The same yardstick for every objective: smaller is better."),
    "loss": ("the objective's own loss", "What is made small. Compare an objective only with itself."),
    "entropy": ("mean entropy, nats", "Falls as the model gets more decided."),
    "gradient_norm": ("gradient norm", "How hard the step pulls, before clipping."),
}


def draw(scene: Scene, order: Order) -> Scene:
    """Everything from the numbers down to the heat map; the scene with the selected row."""
    numbers(scene)
    row = _lanes(scene, order)
    scene = replace(scene, row=row)
    left, right = st.columns([1, 1], gap="medium")
    with left:
        _token(scene)
    with right:
        _curves(scene)
    _heat(scene)
    elsewhere(scene)
    return scene


def draw_start(job: Job, order: Order) -> None:
    """The lanes before the run has its own: those of the Tokens page, where it learns that text."""
    sheet = session.plain_sheet(order.request) if order.request else None
    if sheet is None:
        return
    # What will stand above the strip, so that it is painted anew in its place.
    st.container()
    titles = [racer.title for racer in job.racers]
    numbers_to_come(len(titles))
    column = _lane_picker()
    payload = watch_payload(sheet, [(title, sheet) for title in (titles if len(titles) > 1 else ["Now"])], column)
    _mount(job, 0, payload, sheet, order)
    st.caption("This is how the model reads it before the first step. Colours change with every step.")


def _lanes(scene: Scene, order: Order) -> int:
    column = _lane_picker()
    payload = scene.kept("strip", lambda: watch_payload(scene.before, _panes(scene), column), column)
    return _mount(scene.job, scene.example, payload, scene.before, order)


def _mount(job: Job, example: int, payload: dict[str, Any], before: Sheet, order: Order) -> int:
    key = f"tune-strip-{job.id}-{example}"
    return mount(payload, key, session.start_row("finetune", key, _start(before, order)))


def _lane_picker() -> str:
    with st.container(horizontal=True, vertical_alignment="center"):
        st.markdown("#### Token by token", width="content")
        column: str = st.segmented_control(
            "Lane",
            list(_LANES),
            format_func=_LANES.__getitem__,
            default="p",
            key="tune-lane",
            required=True,
            label_visibility="collapsed",
            persist_state="session",
        )
        st.caption("Click a token to see its bars.", width="content")
    return column


def _panes(scene: Scene) -> list[tuple[str, Sheet]]:
    if len(scene.runs) > 1:
        return scene.sheets()
    ended = not scene.view.active
    last = scene.step == len(scene.runs[0].record.snapshots) - 1
    title = "Now" if not ended else "After" if last else "At this step"
    return [(title, scene.sheets()[0][1])]


def _start(before: Sheet, order: Order) -> int:
    """The token selected on the Tokens page where this is its text, else the target found least likely."""
    p = np.asarray(before.columns["p"], dtype=np.float64)
    p = np.where(np.asarray(before.columns["is_target"], dtype=bool), p, np.nan)
    least = int(np.nanargmin(p)) if np.isfinite(p).any() else 0
    return min(session.selected(order.request, least), len(p) - 1) if order.request else least


def _token(scene: Scene) -> None:
    """The selected token in words and bars, before and now."""
    before, row = scene.before, scene.row
    run = scene.runs[scene.look]
    title = scene.titles[scene.look]
    with st.container(border=True, key="tune-token"):
        with st.container(horizontal=True, vertical_alignment="center"):
            st.markdown(f"#### Token {row + 1} of {len(before)}", width="content")
            st.code(before.columns["token"][row], language=None, wrap_lines=True, width="content")
        now = scene.shot(run).sheet(scene.example)
        words = change_words(before, now, row)
        if not words:
            st.markdown("Nothing predicts this token, so nothing can change here: pick another one.")
            return
        for name, sheet in scene.sheets():
            said = change_words(before, sheet, row)
            st.markdown(f"**{plain(name)}:** {said}" if len(scene.runs) > 1 else f"**{said}**")
        st.vega_lite_chart(
            scene.kept("bars", lambda: live.token_rows(before, now, row, title), row),
            live.token_chart(title),
            key="tune-bars",
            alt="Bars of the most probable tokens at this place, before and now; the target is marked.",
        )
        if row in before.p_digits:
            _digits(scene)


def _digits(scene: Scene) -> None:
    before, row = scene.before, scene.row
    st.markdown("**Among the ten digits**")
    st.vega_lite_chart(
        scene.kept("digits", lambda: live.digit_rows(before, scene.sheets(), row), row),
        live.digits_chart(scene.titles, int(before.columns["digit"][row])),
        key="tune-digits",
        alt="Bars of the ten digits' probabilities, before and now; the target digit is marked.",
    )
    st.markdown("**How decided among them**", help="Entropy of the ten digits, nats. 0: sure of one; 2.3: any of them.")
    st.vega_lite_chart(
        scene.kept(
            "digit-entropy",
            lambda: live.token_curve_rows(scene.named, "digit_entropy", row, scene.example),
            row,
        ),
        live.curve_chart(scene.view.steps, [run.title for run in scene.runs], "digit entropy"),
        key="tune-digit-entropy",
        alt="Line of this token's digit entropy over the steps.",
    )


def _curves(scene: Scene) -> None:
    titles = [run.title for run in scene.runs]
    with st.container(border=True, key="tune-curves"):
        for name, (title, meaning) in _CURVES.items():
            st.markdown(f"**{title[0].upper()}{title[1:]}**", help=meaning)
            st.vega_lite_chart(
                scene.kept(name, lambda name=name: live.curve_rows(scene.named, name)),  # type: ignore[misc]
                live.curve_chart(
                    scene.view.steps, titles, name.replace("_", " "), legend=len(titles) > 1 and name == "nll"
                ),
                key=f"tune-curve-{name}",
                alt=f"Line of {title} over the steps, one line an objective.",
            )


def _heat(scene: Scene) -> None:
    run = scene.runs[scene.look]
    of = f" · {plain(run.title)}" if len(scene.runs) > 1 else ""
    st.markdown(
        f"#### p of every token, step by step{of}",
        help="One column a token, one row a step, from the top down. Bright: likely.",
    )
    st.vega_lite_chart(
        scene.kept("heat", lambda: live.heat_rows(run.record, scene.example)),
        scene.kept("heat-chart", lambda: live.heat_chart(scene.before, scene.view.steps)),
        key="tune-heat",
        alt="Heat map of p: tokens from left to right, steps from top to bottom.",
    )
