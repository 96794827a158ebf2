"""Progress on stderr."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from losscore.terminal.screen import console_for, say, visible


@contextmanager
def progress_bar() -> Iterator[Callable[[str, float | None], None]]:
    """A bar on stderr, gone when done; nothing where stderr is not a terminal.

    Yields show(message, share); a share of None says that it is not known.
    """
    if not sys.stderr.isatty():
        yield lambda message, share: None
        return
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console_for(file=sys.stderr), transient=True) as progress:
        task = progress.add_task("", total=None)

        def show(message: str, share: float | None) -> None:
            progress.update(
                task, description=visible(message), completed=share or 0, total=None if share is None else 1
            )

        yield show


@contextmanager
def step_progress(total: int) -> Iterator[Callable[[str, int], None]]:
    """A bar of `total` steps with the time left, on stderr; where that is no terminal, a line for each tenth of them.

    Yields show(message, done).
    """
    if not sys.stderr.isatty():
        said = -1

        def log(message: str, done: int) -> None:
            nonlocal said
            tenth = 10 * done // max(total, 1)
            if tenth > said:
                said = tenth
                say(message)

        yield log
        return
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=20),
        TimeRemainingColumn(compact=True),
        TextColumn("left", markup=False),
    )
    with Progress(*columns, console=console_for(file=sys.stderr), transient=True) as progress:
        task = progress.add_task("starting", total=max(total, 1))

        def show(message: str, done: int) -> None:
            progress.update(task, description=visible(message), completed=done)

        yield show
