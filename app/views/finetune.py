"""The Fine-tune page: press the button, and watch the distributions sharpen."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

import streamlit as st

from app import jobs, session
from app.components import tune_after, tune_watch
from app.components.plain import plain
from app.components.tune_scene import choose_scene
from app.components.tune_setup import Order, setup
from losscore.errors import LosscoreError

if TYPE_CHECKING:
    from losscore.finetuning import FineTune
    from losscore.models import Model
    from losscore.objectives import Objective

_EVERY = 0.25


def page() -> None:
    """What to learn, the button, and the run of this tab: going on, or ended."""
    jobs.warm_up()
    st.markdown("### Fine-tune, and watch the distributions sharpen")
    st.markdown(
        "A copy of the model learns your text for a few steps. You see **p** of every token change, and what that "
        "costs on other texts."
    )
    order, place = setup()
    job = jobs.current()
    busy = job is not None and job.active
    pressed = place.button(
        "Fine-tune",
        type="primary",
        width="stretch",
        disabled=busy or isinstance(order, str),
        key="tune-start",
        help="One fine-tune at a time: stop the one below first." if busy else "Starts a fresh copy of the model.",
    )
    if isinstance(order, str):
        st.info(plain(order), icon="✏️")
    elif pressed and not busy:
        _begin(order)
    job = jobs.current()
    if job is None:
        st.caption("20 steps take less than a minute on two processor cores. Nothing leaves this computer.")
        return
    follow(job, st.session_state.fine_tune_order)


def follow(job: jobs.Job, order: Order) -> None:
    """Draw the run as it stands. While it goes on, the whole page is drawn again whenever there is something new."""
    view = job.view()
    if view.active:
        # A poll that finds nothing new costs two elements, or drawing would slow down what trains beside it.
        st.fragment(_watch, run_every=_EVERY)(job, view.version, _looks(job, view))
    else:
        tune_after.outcome(view)
    st.caption(f"{plain(', '.join(racer.title for racer in job.racers))} on: {plain(order.learned)}")
    st.fragment(_draw)(job, order, _looks(job, view))


def _looks(job: jobs.Job, view: jobs.View) -> Iterator[jobs.View]:
    """First the view that the page is drawn with, then at each look how the job stands by then."""
    yield view
    while True:
        yield job.view()


def _watch(job: jobs.Job, drawn: int, looks: Iterator[jobs.View]) -> None:
    view = next(looks)
    if view.version != drawn:
        st.rerun()
    _progress(job, view)


def _draw(job: jobs.Job, order: Order, looks: Iterator[jobs.View]) -> None:
    view = next(looks)
    if not view.runs:
        tune_watch.draw_start(job, order)
        return
    scene = tune_watch.draw(choose_scene(job, view), order)
    for note in scene.before.provenance["notes"]:
        st.caption(f"ℹ️ {plain(note)}")
    if not view.active:
        tune_after.film(scene)
        tune_after.keep(job, view, order)


def _progress(job: jobs.Job, view: jobs.View) -> None:
    bar, button = st.columns([6, 1], vertical_alignment="bottom")
    if view.state == "running":
        pace = "" if view.seconds is None or view.left is None else f" · {_spoken(view.seconds)} a step"
        left = "" if view.left is None else f" · about {_spoken(view.left)} left"
        words = f"Step {view.step} of {view.steps}{pace}{left} · on {job.device}"
    else:
        words = view.sentence
    bar.progress(view.step / max(view.steps, 1), plain(words))
    button.button("Stop", on_click=job.cancel, key="tune-stop", icon="⏹️", width="stretch", help="Keeps what is there.")


def _spoken(seconds: float) -> str:
    if seconds >= 90:
        return f"{seconds / 60:.0f} min"
    return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.1f} s"


def _begin(order: Order) -> None:
    try:
        model = session.model(order.model)
    except LosscoreError as error:
        st.error(plain(str(error)))
        return
    racers = [jobs.Racer(one.heading, partial(_build, model, order, one)) for one in order.objectives]
    st.session_state.fine_tune_order = order
    jobs.begin(racers, str(model.device), order.settings.steps)
    st.rerun()


def _build(model: Model, order: Order, objective: Objective, stop: jobs.Stop) -> FineTune:
    from losscore.finetuning import FineTune

    return FineTune(model, order.examples, objective=objective, probes=order.probes, stop=stop, settings=order.settings)


page()
