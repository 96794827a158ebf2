"""Files: written whole or not at all, and the ones that come with losscore."""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from pathlib import Path

from losscore.errors import LosscoreError


def write_whole(path: str | Path, data: bytes) -> None:
    """Write `data` to `path` under a temporary name and rename it; the file's mode and links to it stay.

    Raises LosscoreError, leaving whatever was there, when that is not possible.
    """
    target = Path(os.path.realpath(path))
    partial = target.with_name(f".{target.name}.{os.getpid()}.partial")
    try:
        if target.exists() and not target.is_file():  # a pipe or a device
            target.write_bytes(data)
            return
        try:
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


def asset(name: str) -> Path:
    """A file that comes with losscore. Raises LosscoreError where it is missing."""
    package = Path(__file__).parent
    for folder in (package / "_site" / "assets", package.parent / "assets"):
        if (folder / name).is_file():
            return folder / name
    raise LosscoreError(f"losscore's own file {name} is missing: install losscore again.")
