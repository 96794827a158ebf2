"""A fine-tune in numbers: means over the targets then and now, the race, and what it costs elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import streamlit as st

from app.components.tune_scene import Scene
from app.jobs import Run
from losscore.finetuning import race_table

if TYPE_CHECKING:
    from losscore.finetuning import ProbeReading


def numbers(scene: Scene) -> None:
    """Means over the targets, then and now; in a race one line an objective."""
    if len(scene.runs) > 1:
        st.dataframe(
            scene.kept("race", lambda: race_table([scene.until(run) for run in scene.runs])),
            hide_index=True,
            key=f"tune-race-{scene.job.id}",
            column_config=_RACE,
        )
        return
    first, now = scene.runs[0].record.snapshots[0], scene.shot(scene.runs[0])
    columns = st.columns(4)
    for column, (label, name, good, meaning) in zip(columns, _MEANS, strict=False):
        old, new = getattr(first, name), getattr(now, name)
        column.metric(
            label, f"{new:.3f}", f"{new - old:+.3f}" if now.step else None, delta_color=good, help=meaning, border=True
        )
    # Nothing before the first look.
    measured = scene.until(scene.runs[0]).forgetting()
    columns[3].metric(
        _ELSEWHERE,
        "–" if measured is None else f"{measured[0]:.3f}",
        f"{measured[1]:+.3f} NLL there" if measured and now.step else None,
        delta_color="inverse",
        help=_MOVED,
        border=True,
    )


def numbers_to_come(objectives: int) -> None:
    """The place of the numbers, before there are any."""
    if objectives > 1:
        st.container()
        return
    titles = [(label, meaning) for label, _, _, meaning in _MEANS] + [(_ELSEWHERE, _MOVED)]
    for column, (label, meaning) in zip(st.columns(4), titles, strict=True):
        column.metric(label, "–", help=meaning, border=True)


def elsewhere(scene: Scene) -> None:
    """The probes, text by text."""
    st.markdown(
        "#### What it costs elsewhere",
        help="Texts that were not trained on. KL: how far the model's distributions have moved, mean KL(base ‖ tuned) "
        "a token. Change of NLL: above 0, the model finds the text harder than before.",
    )
    rows = [
        {
            **({"objective": run.title} if len(scene.runs) > 1 else {}),
            "text": reading.text,
            "NLL now": reading.nll,
            "change of NLL": reading.nll_change,
            "KL": reading.kl,
        }
        for run in scene.runs
        for reading in _readings(scene, run)
    ]
    if not rows:
        st.caption("Not measured yet: it is after some steps, and at the end.")
        return
    st.caption(f"Measured at step {max(_measured(scene, run) for run in scene.runs)}.")
    number = st.column_config.NumberColumn(format="%.3f")
    st.dataframe(
        rows,
        hide_index=True,
        key=f"tune-probes-table-{scene.job.id}",
        column_config=dict.fromkeys(("NLL now", "change of NLL", "KL"), number),
    )


def _measured(scene: Scene, run: Run) -> int:
    """The step at which the probes were measured last, at the scene's step or before it."""
    return next((shot.step for shot in reversed(scene.until(run).snapshots) if shot.probes), 0)


def _readings(scene: Scene, run: Run) -> Sequence[ProbeReading]:
    return scene.until(run).snapshots[_measured(scene, run)].probes


_MEANS: tuple[tuple[str, str, Any, str], ...] = (
    ("Mean p of the targets", "p", "normal", "How likely the model finds the tokens it learns, on average."),
    (
        "Cross-entropy (NLL)",
        "nll",
        "inverse",
        "Mean −log p of the targets, nats: plain cross-entropy, smaller is better.",
    ),
    ("Mean entropy", "entropy", "off", "How undecided the model is at the targets, nats."),
)
_ELSEWHERE = "Elsewhere: moved by (KL)"
_MOVED = (
    "How far the model has moved on texts it is not trained on: mean KL(base ‖ tuned), nats a token. 0: not at all. "
    "Below it, how much harder they got. The table further down has them one by one."
)
_RACE: dict[str, Any] = {
    "objective": st.column_config.TextColumn("objective", help="What was trained with; the first line: before."),
    "steps": st.column_config.NumberColumn("steps"),
    "p": st.column_config.NumberColumn("mean p", format="%.3f", help="Of the targets: larger is better."),
    "nll": st.column_config.NumberColumn("NLL", format="%.3f", help="Plain cross-entropy: smaller is better."),
    "entropy": st.column_config.NumberColumn("entropy", format="%.3f", help="Mean over the targets, nats."),
    "digit_entropy": st.column_config.NumberColumn(
        "digit entropy", format="%.3f", help="Mean over digit targets, nats. Near 0: very sure; 2.3: any digit."
    ),
    "kl_elsewhere": st.column_config.NumberColumn(
        "KL elsewhere",
        format="%.3f",
        help="How far the model has moved on other texts, when last measured: less is better.",
    ),
    "nll_change_elsewhere": st.column_config.NumberColumn(
        "NLL change elsewhere", format="%+.3f", help="Above 0: other texts got harder."
    ),
    "seconds": st.column_config.NumberColumn("seconds", format="%.1f"),
}
