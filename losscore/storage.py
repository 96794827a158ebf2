"""Files: written whole or not at all, and the ones that come with losscore."""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from glob import escape
from pathlib import Path

import psutil

from losscore.errors import LosscoreError


def write_whole(path: str | Path, data: bytes) -> None:
    """Write `data` to `path` under a temporary name and rename it; the file's mode and links to it stay.

    What a process that was killed while it wrote `path` left beside it is removed. Raises LosscoreError, leaving
    whatever was there, when that is not possible.
    """
    target = Path(os.path.realpath(path))
    partial = target.with_name(f".{target.name}.{os.getpid()}.partial")
    try:
        if target.exists() and not target.is_file():  # a pipe or a device
            target.write_bytes(data)
            return
        try:
            _sweep(target)
            partial.write_bytes(data)
            if target.exists():
                shutil.copymode(target, partial)
            partial.replace(target)
        finally:
            with suppress(OSError):
                partial.unlink(missing_ok=True)
    except OSError as error:
        raise LosscoreError(
            f"{path} could not be written ({error.strerror or 'unknown reason'}): name another file."
        ) from error


def _sweep(target: Path) -> None:
    """Remove the temporary files of `target` whose process is no more; another one may still be writing its own."""
    for leftover in target.parent.glob(f".{escape(target.name)}.*.partial"):
        process = leftover.name.split(".")[-2]
        if process.isdecimal() and not psutil.pid_exists(int(process)):
            with suppress(OSError):
                leftover.unlink()


def asset(name: str) -> Path:
    """A file that comes with losscore. Raises LosscoreError where it is missing."""
    package = Path(__file__).parent
    for folder in (package / "_site" / "assets", package.parent / "assets"):
        if (folder / name).is_file():
            return folder / name
    raise LosscoreError(f"losscore's own file {name} is missing: install losscore again.")
