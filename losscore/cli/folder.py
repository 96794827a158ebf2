"""A folder for a command's results: refused before the work where it cannot be used, and nothing half-written in it."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from losscore.errors import LosscoreError

_STAGE = re.compile(r"\.(\d+)\.partial")


def check_folder(folder: Path) -> None:
    """Raises LosscoreError where `folder` holds something, is a file, or cannot be written; leaves no trace."""
    with _staging(folder):
        pass


@contextmanager
def filled_folder(folder: Path) -> Iterator[Path]:
    """Yields a temporary folder inside `folder`; what is in it at the end is moved up under its own name.

    After an error nothing is moved, and `folder` is gone again unless it was there before. Raises LosscoreError as
    `check_folder`, and where something cannot be written.
    """
    with _staging(folder) as stage:
        yield stage
        for path in sorted(stage.iterdir()):
            path.rename(folder / path.name)


@contextmanager
def _staging(folder: Path) -> Iterator[Path]:
    if not folder.parent.is_dir():
        raise LosscoreError(f"There is no folder {folder.parent}: create it, or name another one.")
    stage = folder / f".{os.getpid()}.partial"
    made = not folder.exists()
    try:
        if not made:
            _sweep(folder)
        if not made and any(folder.iterdir()):
            raise LosscoreError(f"The folder {folder} is not empty: name a new one.")
        stage.mkdir(parents=made)
        yield stage
    except NotADirectoryError:
        raise LosscoreError(f"{folder} is a file: name a folder.") from None
    except OSError as error:
        raise LosscoreError(
            f"{folder} could not be written ({error.strerror or 'unknown reason'}): name another folder."
        ) from error
    finally:
        shutil.rmtree(stage, ignore_errors=True)
        if made:
            with suppress(OSError):  # it holds the results
                folder.rmdir()


def _sweep(folder: Path) -> None:
    """Remove the stages of processes that were killed before they could."""
    import psutil

    for path in folder.iterdir():
        stage = _STAGE.fullmatch(path.name)
        # A stage of this process's number is older than this process.
        if stage and (int(stage[1]) == os.getpid() or not psutil.pid_exists(int(stage[1]))):
            shutil.rmtree(path, ignore_errors=True)
