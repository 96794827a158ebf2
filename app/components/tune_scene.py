"""What is looked at on the Fine-tune page: a run at one step, one of its examples, one token."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import streamlit as st

from app.jobs import Job, Run, View

if TYPE_CHECKING:
    from losscore.finetuning import Record, Snapshot
    from losscore.sheet import Sheet


@dataclass(frozen=True)
class Scene:
    """What is looked at: a job as it stands, the snapshots of one step, one example, one lane, one token."""

    job: Job
    view: View
    step: int
    example: int
    look: int
    row: int = 0

    @property
    def runs(self) -> tuple[Run, ...]:
        return self.view.runs

    @property
    def titles(self) -> list[str]:
        """The objectives' names; just "now" where there is one."""
        return [run.title for run in self.runs] if len(self.runs) > 1 else ["now"]

    @property
    def named(self) -> list[tuple[str, Record]]:
        return [(run.title, run.record) for run in self.runs]

    @property
    def before(self) -> Sheet:
        return self.runs[0].record.snapshots[0].sheet(self.example)

    def shot(self, run: Run) -> Snapshot:
        """The run's snapshot at the step, its last one where it has not come so far."""
        return run.record.snapshots[min(self.step, len(run.record.snapshots) - 1)]

    def until(self, run: Run) -> Record:
        """The run's record as it was at the step."""
        record = copy.copy(run.record)
        record.snapshots = run.record.snapshots[: self.step + 1]
        return record

    def sheets(self) -> list[tuple[str, Sheet]]:
        return [(title, self.shot(run).sheet(self.example)) for title, run in zip(self.titles, self.runs, strict=True)]

    def kept(self, slot: str, build: Callable[[], Any], *on: Any) -> Any:
        """What `build` gives; built anew only when a snapshot has come, or another step, example or `on` is chosen."""
        memory: dict[str, tuple[Any, Any]] = st.session_state.setdefault("tune_drawn", {})
        key = (self.job.id, self.view.version, self.step, self.example, self.look, *on)
        if slot not in memory or memory[slot][0] != key:
            memory[slot] = key, build()
        return memory[slot][1]


def choose_scene(job: Job, view: View) -> Scene:
    """Which step (once ended), which example and which objective is looked at."""
    runs = view.runs
    last = max(run.record.snapshots[-1].step for run in runs)
    examples = runs[0].record.snapshots[0].examples
    step = example = last
    with st.container(horizontal=True, vertical_alignment="bottom"):
        if not view.active and last:
            step = st.slider(
                "Step",
                0,
                last,
                last,
                key=f"tune-step-{job.id}",
                help="Go back to any step: lanes, bars and numbers below show the model as it was then.",
            )
        example = (
            st.selectbox(
                "Example",
                range(examples),
                format_func=lambda index: f"{index + 1} of {examples}",
                key=f"tune-example-{job.id}",
                help="Which of the examples is shown below. All are trained on.",
            )
            if examples > 1
            else 0
        )
        look = (
            st.segmented_control(
                "Look closely at",
                range(len(runs)),
                format_func=lambda index: runs[index].title,
                default=0,
                required=True,
                key=f"tune-look-{job.id}",
                help="Whose bars and heat map are shown below. Lanes and curves show all.",
            )
            if len(runs) > 1
            else 0
        )
    return Scene(job, view, step, int(example or 0), min(int(look or 0), len(runs) - 1))
