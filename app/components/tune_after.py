"""A fine-tune that has ended: what changed and where, the film, the downloads."""

from __future__ import annotations

from typing import Any

import streamlit as st

from app import session
from app.components.plain import plain
from app.components.tune_scene import Scene
from app.components.tune_setup import Order
from app.jobs import Job, Racer, View
from losscore.errors import LosscoreError
from losscore.figures.film import digits_film_figure, film_figure
from losscore.lanes.change import summary


def outcome(view: View) -> None:
    """How it ended, and for each objective what changed and where."""
    said = plain(view.sentence)
    if view.state == "failed":
        st.error(said)
    elif view.state == "stopped":
        st.info(said, icon="⏹️")
    else:
        st.success(said, icon="✅")
    for run in view.runs:
        name = f"**{plain(run.title)}.** " if len(view.runs) > 1 else ""
        if run.failed and view.state != "failed":
            st.warning(f"{name}{plain(run.ended)}")
        shots = run.record.snapshots
        if len(shots) > 1:
            st.markdown(f"{name}{plain(summary(shots[0].sheet(0), shots[-1].sheet(0)))}")


def film(scene: Scene) -> None:
    """The selected token's distribution over the steps."""
    shots = scene.runs[scene.look].record.snapshots
    if len(shots) < 2 or scene.before.value("p", scene.row) is None:
        return
    of = f" · {plain(scene.runs[scene.look].title)}" if len(scene.runs) > 1 else ""
    st.markdown(
        f"#### The film of token {scene.row + 1}{of}", help="Press Play, or drag the slider, to see every step."
    )
    digit = scene.row in scene.before.p_digits
    places = st.columns([3, 2]) if digit else [st.container()]
    with places[0]:
        _figure(scene, "film", film_figure, "Bars of the most probable tokens at this place, step by step.")
    if digit:
        with places[1]:
            _figure(scene, "digits-film", digits_film_figure, "Bars of the ten digits at this place, step by step.")


def _figure(scene: Scene, slot: str, draw: Any, alt: str) -> None:
    shots = scene.runs[scene.look].record.snapshots
    memory = st.session_state.setdefault("tune_films", {})
    key = (scene.job.id, scene.look, scene.example, scene.row, len(shots))
    if memory.get(slot, (None,))[0] != key:
        sheets = [(shot.step, shot.sheet(scene.example)) for shot in shots]
        memory[slot] = key, draw(sheets, scene.row)
    st.plotly_chart(memory[slot][1], key=f"tune-{slot}", config={"displayModeBar": False}, alt=alt)


def keep(job: Job, view: View, order: Order) -> None:
    """Downloads, and the way to the Tokens page, for each objective."""
    st.markdown("#### Keep it")
    racers = {racer.title: racer for racer in job.racers}
    for index, run in enumerate(view.runs):
        racer = racers[run.title]
        with st.container(horizontal=True, vertical_alignment="center"):
            if len(view.runs) > 1:
                st.markdown(f"**{plain(run.title)}**", width="content")
            if racer.tuning is not None and st.button(
                "See the tuned model on the Tokens page",
                key=f"tune-see-{index}",
                icon="🔎",
                help="All lanes, the table and your own texts with the tuned model; and what changed since the base.",
            ):
                _show_tuned(racer, run.record.snapshots[-1].step, order)
            st.download_button(
                "Download the run (JSON)",
                run.record.to_json,
                file_name=f"losscore-run-{index + 1}.json",
                mime="application/json",
                key=f"tune-json-{index}",
                on_click="ignore",
                help="Settings, how it was made, and every snapshot's columns.",
            )
            if racer.tuning is not None:
                st.download_button(
                    "Download the tuned weights (.zip)",
                    racer.tuning.adapter_archive,
                    file_name=f"losscore-tuned-{index + 1}.zip",
                    mime="application/zip",
                    key=f"tune-zip-{index}",
                    on_click="ignore",
                    help="LoRA: the adapter in peft's format. All weights: the whole model. Unpack it, and losscore "
                    "loads the folder.",
                )


def _show_tuned(racer: Racer, steps: int, order: Order) -> None:
    try:
        key = session.add_tuned(f"{racer.title}, {steps} step{'' if steps == 1 else 's'}", racer.tuned(), order.model)
    except LosscoreError as error:
        st.error(plain(str(error)))
        return
    session.choose_model(key)
    st.switch_page("views/tokens.py")
