"""Fine-tunes that run beside the page: a thread each, one at a time on a device, first come first served."""

from __future__ import annotations

import atexit
import copy
import gc
import logging
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Literal

import streamlit as st

from losscore.errors import Cancelled, LosscoreError

if TYPE_CHECKING:
    from losscore.finetuning import FineTune, Record, Snapshot
    from losscore.models import Model

State = Literal["waiting", "preparing", "running", "stopped", "finished", "failed"]
Stop = Callable[[], bool]
UNFORESEEN = "Something went wrong that losscore did not foresee: see the terminal, then press Fine-tune again."
_WATCHED = 0.1
_PATIENCE = 10.0
_left_behind = threading.Event()


class Line:
    """Who may fine-tune on which device: first come, first served. Shared by the whole server."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._jobs: dict[str, list[object]] = {}

    def join(self, device: str, job: object) -> None:
        """Stand at the end of the device's line."""
        with self._lock:
            self._jobs.setdefault(device, []).append(job)

    def leave(self, device: str, job: object) -> None:
        """Make room for the next one."""
        with self._lock:
            self._jobs[device].remove(job)

    def ahead(self, device: str, job: object) -> int:
        """How many stand before `job`; 0 when it is its turn, or when it has left."""
        with self._lock:
            jobs = self._jobs.get(device, [])
            return jobs.index(job) if job in jobs else 0


class Racer:
    """One objective of a job: how its fine-tune is built, what it has yielded, how it ended."""

    def __init__(self, title: str, build: Callable[[Stop], FineTune]) -> None:
        self.title = title
        self.ended = ""
        self.failed = False
        self.tuning: FineTune | None = None
        self.record: Record | None = None
        self._build = build
        self._steps: Iterator[Snapshot] | None = None
        self._tuned: Model | None = None

    def open(self, stop: Stop) -> None:
        """Build the training copy."""
        self.tuning = self._build(stop)
        self.record = self.tuning.record()
        self._steps = iter(self.tuning)

    def step(self) -> Snapshot | None:
        """The next snapshot, None after the last."""
        return next(self._steps, None) if self._steps else None

    def end(self, sentence: str, *, failed: bool = False) -> None:
        """Keep what was received, and the tuned model where there is one; free what only training needs."""
        self.ended, self.failed, self._steps = sentence, failed, None
        if self.record is not None:
            self.record.ended = sentence
        if self.record is None or not self.record.snapshots:
            self.close()

    def tuned(self) -> Model:
        """The tuned model, made once. Raises LosscoreError where it was freed."""
        if self._tuned is None:
            if self.tuning is None:
                raise LosscoreError("This tuned model is no longer there: fine-tune again.")
            self._tuned = self.tuning.tuned(self.title)
        return self._tuned

    def close(self) -> None:
        """Free the copy."""
        if self.tuning is not None:
            self.tuning.close()
            _left_behind.set()
        self.tuning = self._steps = self._tuned = None


@dataclass(frozen=True)
class Run:
    """One objective of a job as it stood at one moment; its record no longer grows."""

    title: str
    ended: str
    failed: bool
    record: Record


@dataclass(frozen=True)
class View:
    """A job as it stood at one moment.

    sentence: the state in words. version: grows with every snapshot. step of steps: updates made by all objectives.
    seconds: of one step of all objectives, None before the first; left: seconds that remain, likewise.
    """

    state: State
    sentence: str
    version: int
    step: int
    steps: int
    seconds: float | None
    left: float | None
    runs: tuple[Run, ...]

    @property
    def active(self) -> bool:
        """Whether more is to come."""
        return self.state in ("waiting", "preparing", "running")


class Job:
    """One press of the button: one fine-tune, or a race of several from the same start, each one step in turn.

    The thread draws nothing and keeps everything it has received, however it ends.
    """

    def __init__(self, racers: Sequence[Racer], device: str, steps: int, line: Line) -> None:
        self.id = uuid.uuid4().hex[:12]
        self.device = device
        self.steps = steps
        self.racers = tuple(racers)
        self._line = line
        self._lock = threading.Lock()
        self._cancelled = threading.Event()
        self._thread = threading.Thread(target=self._work, name=f"fine-tune {self.id}", daemon=True)
        self._state: State = "waiting"
        self._sentence = ""
        self._version = 0

    def start(self) -> None:
        """Stand in line, and go on beside the page."""
        self._line.join(self.device, self)
        # A thread that is cut off inside torch takes the interpreter down with it.
        atexit.register(self._give_up)
        self._thread.start()

    def cancel(self) -> None:
        """Ask it to end; it does so within a step."""
        self._cancelled.set()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for the thread's end; whether it has ended."""
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def close(self) -> None:
        """Free the tuned models of a job that has ended."""
        for racer in self.racers:
            racer.close()

    @property
    def active(self) -> bool:
        """Whether more is to come."""
        return self._state in ("waiting", "preparing", "running")

    def view(self) -> View:
        """How it stands now, all parts of the same moment."""
        with self._lock:
            runs = tuple(
                Run(racer.title, racer.ended, racer.failed, _copy(racer.record))
                for racer in self.racers
                if racer.record is not None and racer.record.snapshots
            )
            step = min((run.record.snapshots[-1].step for run in runs if not run.failed), default=0)
            seconds = _seconds(runs)
            return View(
                self._state,
                self._said(),
                self._version,
                step,
                self.steps,
                seconds,
                None if seconds is None else seconds * (self.steps - step),
                runs,
            )

    def _give_up(self) -> None:
        self.cancel()
        self.wait(_PATIENCE)

    def _said(self) -> str:
        if self._state != "waiting":
            return self._sentence
        ahead = self._line.ahead(self.device, self)
        place = "you are next" if ahead <= 1 else f"{ahead} are before you"
        return f"Waiting: another fine-tune runs on {self.device}; {place}."

    def _work(self) -> None:
        try:
            with self._turn():
                self._prepare()
                self._race()
        except Cancelled:
            self._stopped()
        except Exception:
            logging.getLogger(__name__).exception("a fine-tune ended with an unforeseen error")
            self._end("failed", UNFORESEEN)
        finally:
            atexit.unregister(self._give_up)

    @contextmanager
    def _turn(self) -> Iterator[None]:
        try:
            while self._line.ahead(self.device, self):
                if self._cancelled.wait(_WATCHED):
                    raise Cancelled("Stopped before it began.")
            self._go_on()
            yield
        finally:
            self._line.leave(self.device, self)

    def _prepare(self) -> None:
        self._set("preparing", "Preparing a copy of the model …")
        # Networks hang together in circles: what jobs before have left makes room only now.
        if _left_behind.is_set():
            _left_behind.clear()
            gc.collect()
        for racer in self.racers:
            self._go_on()
            try:
                racer.open(self._cancelled.is_set)
            except Cancelled:
                raise
            except LosscoreError as error:
                racer.end(str(error), failed=True)

    def _race(self) -> None:
        running = [racer for racer in self.racers if not racer.failed]
        self._set("running", "")
        while running:
            for racer in list(running):
                self._go_on()
                if not self._step(racer):
                    running.remove(racer)
        failed = [racer for racer in self.racers if racer.failed]
        if len(failed) == len(self.racers):
            self._end("failed", failed[0].ended)
        else:
            self._end("finished", f"Finished after {_steps(self.steps)}.")

    def _step(self, racer: Racer) -> bool:
        """Let one objective make one step; False when it has none left."""
        try:
            snapshot = racer.step()
        except Cancelled:
            raise
        except LosscoreError as error:
            with self._lock:
                racer.end(str(error), failed=True)
                self._version += 1
            return False
        with self._lock:
            if snapshot is None or racer.record is None:
                racer.end(f"finished after {_steps(self.steps)}")
                return False
            racer.record.add(snapshot)
            self._version += 1
            return True

    def _go_on(self) -> None:
        if self._cancelled.is_set():
            raise Cancelled("Stopped.")

    def _stopped(self) -> None:
        made = max((r.record.snapshots[-1].step for r in self.racers if r.record and r.record.snapshots), default=None)
        self._end("stopped", "Stopped before it began." if made is None else f"Stopped after {_steps(made)}.")

    def _set(self, state: State, sentence: str) -> None:
        with self._lock:
            self._state, self._sentence = state, sentence
            self._version += 1

    def _end(self, state: State, sentence: str) -> None:
        with self._lock:
            for racer in self.racers:
                if not racer.ended:
                    own = racer.record.snapshots[-1].step if racer.record and racer.record.snapshots else 0
                    racer.end(
                        f"stopped after {_steps(own)}" if state == "stopped" else sentence, failed=state == "failed"
                    )
            self._state, self._sentence = state, sentence
            self._version += 1


def _copy(record: Record) -> Record:
    """The record with a list of its own, so that nothing grows under the page's hands."""
    kept = copy.copy(record)
    kept.snapshots = list(record.snapshots)
    return kept


def _seconds(runs: Sequence[Run]) -> float | None:
    """Of one step of all objectives: the mean over their last steps."""
    latest = [[s.seconds for s in run.record.snapshots[1:]][-5:] for run in runs if not run.failed]
    known = [sum(times) / len(times) for times in latest if times]
    return sum(known) if known and len(known) == len(latest) else None


def _steps(count: int) -> str:
    return f"{count} step{'' if count == 1 else 's'}"


@st.cache_resource(show_spinner=False)
def line() -> Line:
    """The line of this server."""
    return Line()


def _cancel_all(jobs: list[Job]) -> None:
    for job in jobs:
        job.cancel()
        _left_behind.set()


# A closed tab, but also a lost connection, releases this: what was received stays in the session's state.
@st.cache_resource(show_spinner=False, scope="session", on_release=_cancel_all)
def _of_this_tab() -> list[Job]:
    return []


def current() -> Job | None:
    """The job of this session, running or ended."""
    job: Job | None = st.session_state.get("fine_tune_job")
    return job


def begin(racers: Sequence[Racer], device: str, steps: int) -> Job | None:
    """Start a job for this session and free the tuned models of the one before; None while one runs already."""
    before = current()
    if before is not None and before.active:
        return None
    if before is not None:
        before.close()
    job = Job(racers, device, steps, line())
    _of_this_tab()[:] = [job]
    st.session_state.fine_tune_job = job
    job.start()
    return job


@st.cache_resource(show_spinner=False)
def warm_up() -> threading.Thread:
    """Import what training needs while the person still reads the page."""

    def load() -> None:
        for name in ("peft", "losscore.finetuning"):
            import_module(name)

    thread = threading.Thread(target=load, name="warm-up", daemon=True)
    thread.start()
    return thread
