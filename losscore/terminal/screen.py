"""Consoles, tables without frames and messages, all free of control characters."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from losscore.errors import LosscoreError

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.style import Style
    from rich.table import Table
    from rich.text import Text


def plain_table(*titles: str) -> Table:
    """A table whose only line stands under its titles."""
    from rich import box
    from rich.table import Table

    return Table(
        *titles, box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold"
    )


def console_for(**options: Any) -> Console:
    """A console that takes text as it is: no markup, no emoji codes, no guessed highlights."""
    from rich.console import Console

    return Console(markup=False, highlight=False, emoji=False, **options)


def print_parts(*parts: RenderableType, console: Console | None = None) -> None:
    """Print each of `parts` to `console`, or to stdout."""
    console = console or console_for()
    for part in parts:
        console.print(part)
    console.file.flush()


def styled(text: str, style: Style | str = "") -> Text:
    """`text` for a table or a console, its control characters spelled out."""
    from rich.text import Text

    return Text(visible(text), style=style)


def visible(text: str) -> str:
    """Without control characters: a file or a model may be named so as to command the terminal."""
    if text.isprintable():
        return text
    from losscore.text.display import show_character

    return "".join(character if character.isprintable() else show_character(character) for character in text)


def say(message: str) -> None:
    """One line on stderr."""
    print(visible(message), file=sys.stderr, flush=True)


def complain(error: LosscoreError) -> None:
    """The error's sentence on stderr."""
    say(f"losscore: {error}")
