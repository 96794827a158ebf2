"""Which format to write, and where to: stdout or a file, whole or not at all."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from losscore.errors import LosscoreError
from losscore.storage import write_whole
from losscore.terminal import console_for, print_parts, say

if TYPE_CHECKING:
    from rich.console import RenderableType

Format = Literal["table", "json", "csv", "parquet", "html"]
_BY_SUFFIX: dict[str, Format] = {
    ".json": "json",
    ".csv": "csv",
    ".parquet": "parquet",
    ".html": "html",
    ".htm": "html",
    ".txt": "table",
}


def choose_format(format_: Format | None, output: Path | None) -> Format:
    """The format asked for, or that of the suffix; refuses, before anything is computed, what cannot be written."""
    if output is None:
        if format_ == "parquet" and sys.stdout.isatty():
            raise LosscoreError("Parquet is not for reading on a terminal: name a file with --output.")
        return format_ or "table"
    if output.is_dir():
        raise LosscoreError(f"{output} is a folder: name a file in it.")
    if not output.parent.is_dir():
        raise LosscoreError(f"There is no folder {output.parent}: create it, or name another file.")
    if format_ is None and output.suffix.lower() not in _BY_SUFFIX:
        raise LosscoreError(
            f"The name {output.name} does not say which format: end it in {', '.join(_BY_SUFFIX)}, or add --format."
        )
    return format_ or _BY_SUFFIX[output.suffix.lower()]


def print_or_write(parts: Iterable[RenderableType], output: Path | None) -> None:
    """On the terminal, or as plain text into a file."""
    if output is None:
        print_parts(*parts)
        return
    plain = StringIO()
    print_parts(*parts, console=console_for(file=plain, width=100))
    write_bytes(plain.getvalue().encode(), output)


def write_bytes(data: bytes, output: Path | None) -> None:
    """Exactly these bytes, to stdout or, whole or not at all, to a file."""
    if output is None:
        sys.stdout.flush()
        end = b"\n" if sys.stdout.isatty() and not data.endswith(b"\n") else b""
        sys.stdout.buffer.write(data + end)
        sys.stdout.buffer.flush()
        return
    write_whole(output, data)
    say(f"Wrote {output}.")
