"""Fine-tunes beside the page: states, the line, stopping, failing, racing. The fine-tunes here only count."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from app.jobs import UNFORESEEN, Job, Line, Racer
from losscore.errors import Cancelled, LosscoreError

SOON = 20


class Fake:
    """A fine-tune whose steps wait until the test lets them go; `log` collects who made which step."""

    def __init__(
        self,
        name: str,
        steps: int,
        *,
        log: list[str],
        gate: threading.Semaphore | None = None,
        fails_at: int | None = None,
        error: Exception | None = None,
        stop: Any = None,
    ) -> None:
        self.name, self.steps, self.log, self.gate = name, steps, log, gate
        self.fails_at, self.error, self.stop = fails_at, error or LosscoreError("The loss is no number."), stop
        self.closed = False

    def record(self) -> Any:
        record = SimpleNamespace(snapshots=[], ended="")
        record.add = record.snapshots.append
        return record

    def __iter__(self) -> Iterator[Any]:
        for step in range(self.steps + 1):
            if self.gate is not None:
                while not self.gate.acquire(timeout=0.01):
                    if self.stop and self.stop():
                        raise Cancelled("The fine-tune was stopped.")
            if step == self.fails_at:
                raise self.error
            self.log.append(f"{self.name}{step}")
            yield SimpleNamespace(step=step, steps=self.steps, seconds=0.5)

    def close(self) -> None:
        self.closed = True

    def tuned(self, name: str) -> Any:
        return object()


def job_of(*names: str, steps: int = 3, line: Line | None = None, **more: Any) -> tuple[Job, list[str], list[Fake]]:
    log: list[str] = []
    fakes: list[Fake] = []

    def racer(name: str) -> Racer:
        def build(stop: Any) -> Any:
            fakes.append(Fake(name, steps, log=log, stop=stop, **more))
            return fakes[-1]

        return Racer(name, build)

    return Job([racer(name) for name in names], "cpu", steps, line or Line()), log, fakes


def until(condition: Any) -> None:
    waited = threading.Event()
    for _ in range(SOON * 100):
        if condition():
            return
        waited.wait(0.01)
    pytest.fail("waited in vain")


def steps_of(job: Job) -> list[list[int]]:
    return [[snapshot.step for snapshot in run.record.snapshots] for run in job.view().runs]


def test_a_job_waits_runs_and_finishes_and_its_thread_ends():
    job, log, fakes = job_of("a")
    assert job.active
    assert job.view().state == "waiting"
    job.start()
    assert job.wait(SOON)
    view = job.view()
    assert (view.state, view.sentence, view.step, view.steps) == ("finished", "Finished after 3 steps.", 3, 3)
    assert not view.active
    assert log == ["a0", "a1", "a2", "a3"]
    assert view.runs[0].record.ended == "finished after 3 steps"
    assert not fakes[0].closed, "the tuned model is kept for its download"


def test_seconds_are_of_one_step_of_all_objectives_and_what_is_left_follows():
    gate = threading.Semaphore(4)
    job, _, _ = job_of("a", "b", steps=9, gate=gate)
    job.start()
    until(lambda: job.view().step == 1)
    view = job.view()
    assert view.seconds == pytest.approx(1.0)
    assert view.left == pytest.approx(8.0)
    job.cancel()
    assert job.wait(SOON)


def test_a_race_makes_one_step_of_each_in_turn():
    job, log, _ = job_of("a", "b", "c", steps=2)
    job.start()
    assert job.wait(SOON)
    assert log == ["a0", "b0", "c0", "a1", "b1", "c1", "a2", "b2", "c2"]


def test_stopping_takes_no_further_step_and_keeps_what_was_received():
    gate = threading.Semaphore(3)
    job, log, fakes = job_of("a", steps=50, gate=gate)
    job.start()
    until(lambda: len(log) == 3)
    job.cancel()
    assert job.wait(SOON)
    view = job.view()
    assert (view.state, view.sentence) == ("stopped", "Stopped after 2 steps.")
    assert view.runs[0].record.ended == "stopped after 2 steps"
    assert steps_of(job) == [[0, 1, 2]]
    assert not fakes[0].closed


def test_a_fine_tune_that_ignores_the_stop_is_left_after_its_step():
    log: list[str] = []
    gate = threading.Semaphore(1)
    job = Job([Racer("a", lambda _: Fake("a", 50, log=log, gate=gate))], "cpu", 50, Line())
    job.start()
    until(lambda: log == ["a0"])
    job.cancel()
    gate.release()
    assert job.wait(SOON)
    assert log in (["a0"], ["a0", "a1"])
    assert job.view().state == "stopped"


def test_a_failure_keeps_the_snapshots_and_says_its_sentence():
    job, _, fakes = job_of("a", fails_at=2)
    job.start()
    assert job.wait(SOON)
    view = job.view()
    assert (view.state, view.sentence) == ("failed", "The loss is no number.")
    assert steps_of(job) == [[0, 1]]
    assert view.runs[0].failed
    assert not fakes[0].closed


def test_one_that_fails_leaves_the_race_and_the_others_go_on():
    log: list[str] = []
    racers = [
        Racer("bad", lambda stop: Fake("bad", 3, log=log, fails_at=1)),
        Racer("good", lambda stop: Fake("good", 3, log=log)),
    ]
    job = Job(racers, "cpu", 3, Line())
    job.start()
    assert job.wait(SOON)
    view = job.view()
    assert view.state == "finished"
    assert view.step == 3
    assert [(run.title, run.failed, len(run.record.snapshots)) for run in view.runs] == [
        ("bad", True, 1),
        ("good", False, 4),
    ]
    assert view.runs[0].ended == "The loss is no number."


def test_what_cannot_be_built_fails_and_frees_its_place():
    def build(_: Any) -> Any:
        raise LosscoreError("There is nothing to train on.")

    line = Line()
    job = Job([Racer("a", build)], "cpu", 3, line)
    job.start()
    assert job.wait(SOON)
    assert (job.view().state, job.view().sentence) == ("failed", "There is nothing to train on.")
    following, _, _ = job_of("b", line=line)
    following.start()
    assert following.wait(SOON)
    assert following.view().state == "finished"


def test_an_unforeseen_error_never_leaves_the_job_running(caplog):
    job, _, _ = job_of("a", fails_at=1, error=ZeroDivisionError("oops"))
    job.start()
    assert job.wait(SOON)
    assert (job.view().state, job.view().sentence) == ("failed", UNFORESEEN)
    assert steps_of(job) == [[0]]
    assert "oops" in caplog.text


def test_jobs_on_one_device_run_one_after_the_other_in_their_order():
    line = Line()
    order: list[int] = []
    gates = [threading.Semaphore(0) for _ in range(3)]

    def build(number: int, stop: Any) -> Any:
        order.append(number)
        return Fake("a", 0, log=[], gate=gates[number], stop=stop)

    jobs = [Job([Racer("a", partial(build, number))], "cpu", 0, line) for number in range(3)]
    for job in jobs:
        job.start()
    until(lambda: jobs[0].view().state == "running")
    assert [job.view().state for job in jobs] == ["running", "waiting", "waiting"]
    assert jobs[1].view().sentence == "Waiting: another fine-tune runs on cpu; you are next."
    assert jobs[2].view().sentence == "Waiting: another fine-tune runs on cpu; 2 are before you."
    gates[0].release()
    until(lambda: jobs[1].view().state == "running")
    assert jobs[2].view().sentence == "Waiting: another fine-tune runs on cpu; you are next."
    gates[1].release()
    gates[2].release()
    assert all(job.wait(SOON) for job in jobs)
    assert order == [0, 1, 2]


def test_another_device_does_not_wait():
    line = Line()
    busy, _, _ = job_of("a", line=line, gate=threading.Semaphore(0))
    busy.start()
    log: list[str] = []
    other = Job([Racer("b", lambda stop: Fake("b", 1, log=log))], "cuda:0", 1, line)
    other.start()
    assert other.wait(SOON)
    assert other.view().state == "finished"
    busy.cancel()
    assert busy.wait(SOON)


def test_cancelling_while_waiting_builds_nothing_and_lets_the_next_one_move_up():
    line = Line()
    gate = threading.Semaphore(0)
    first, _, _ = job_of("a", steps=0, line=line, gate=gate)
    second, _, built = job_of("b", line=line)
    third, _, _ = job_of("c", steps=0, line=line)
    for job in (first, second, third):
        job.start()
    until(lambda: first.view().state == "running")
    second.cancel()
    assert second.wait(SOON)
    assert (second.view().state, second.view().sentence) == ("stopped", "Stopped before it began.")
    assert built == []
    assert "you are next" in third.view().sentence
    gate.release()
    assert third.wait(SOON)
    assert third.view().state == "finished"


def test_a_view_does_not_grow_and_its_version_tells_of_news():
    gate = threading.Semaphore(1)
    job, log, _ = job_of("a", steps=2, gate=gate)
    job.start()
    until(lambda: job.view().runs)
    early = job.view()
    assert job.view().version == early.version
    gate.release()
    until(lambda: len(log) == 2 and job.view().version > early.version)
    assert len(early.runs[0].record.snapshots) == 1
    job.cancel()
    assert job.wait(SOON)


def test_closing_frees_the_tuned_models_and_says_so_when_they_are_asked_for():
    job, _, fakes = job_of("a", "b")
    job.start()
    assert job.wait(SOON)
    assert job.racers[0].tuned() is job.racers[0].tuned()
    job.close()
    assert all(fake.closed for fake in fakes)
    with pytest.raises(LosscoreError, match="no longer there"):
        job.racers[0].tuned()
    assert len(job.view().runs[0].record.snapshots) == 4, "what was received stays"
