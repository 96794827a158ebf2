"""Hundreds of live updates: what was drawn before is let go, and the memory in use stays flat."""

from __future__ import annotations

import gc
import tracemalloc
import weakref
from types import SimpleNamespace
from typing import Any

import pytest
import streamlit as st

from app.components.tune_scene import Scene
from losscore.figures import live
from losscore.finetuning import FineTune
from losscore.lanes.change import watch_payload

UPDATES = 500


class Drawn:
    """What one update draws in one place."""

    def __init__(self, content: Any) -> None:
        self.content = content


def test_500_updates_of_the_plots_hold_no_more_than_the_last(mini: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(st, "session_state", {})
    with FineTune(mini, "They cost 2 * 13 = 26.", steps=2) as tuning:
        record = tuning.record()
        for snapshot in tuning:
            record.add(snapshot)
    before, runs = record.snapshots[0].sheet(0), [("now", record)]
    places = {
        "strip": lambda now: watch_payload(before, [("Now", now)], "p"),
        "bars": lambda now: live.token_rows(before, now, 3, "now"),
        "nll": lambda now: live.curve_rows(runs, "nll"),
        "heat": lambda now: live.heat_rows(record),
        "heat-chart": lambda now: live.heat_chart(before, 2),
    }
    drawn: list[weakref.ref[Drawn]] = []

    def update(version: int) -> None:
        view: Any = SimpleNamespace(version=version)
        job: Any = SimpleNamespace(id=1)
        scene = Scene(job, view, 2, 0, 0)
        now = record.snapshots[-1].sheet(0)
        for place, build in places.items():
            made = scene.kept(place, lambda build=build: Drawn(build(now)))
            assert scene.kept(place, lambda: pytest.fail("drawn twice")) is made
            drawn.append(weakref.ref(made))

    held = []
    tracemalloc.start()
    try:
        for version in range(UPDATES):
            update(version)
            if version + 1 in (UPDATES // 5, UPDATES):
                gc.collect()
                drawn[:] = [one for one in drawn if one() is not None]
                assert len(drawn) == len(places), "only the last of each place"
                held.append(tracemalloc.get_traced_memory()[0])
    finally:
        tracemalloc.stop()
    assert held[1] <= 1.05 * held[0], held
