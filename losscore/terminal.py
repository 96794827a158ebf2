"""What the command line shows: the table of lanes, messages, progress. Nothing of a text can command the terminal."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from losscore.errors import LosscoreError

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.style import Style
    from rich.table import Table
    from rich.text import Text

    from losscore.noise import NoiseReport
    from losscore.sheet import Sheet

# Okabe and Ito's palette, told apart by most colour-blind people.
_HUES = {
    "blue": (0, 114, 178),
    "purple": (204, 121, 167),
    "orange": (230, 159, 0),
    "vermillion": (213, 94, 0),
    "green": (0, 158, 115),
    "yellow": (240, 228, 66),
    "sky": (86, 180, 233),
}
_BARS = "▁▂▃▄▅▆▇█"
# Before a token with a real blank, which no token shows.
_CONTROL, _PROMPT = "◆", "›"
_FAINT = 0.04


def report(sheet: Sheet, bits: bool) -> Iterator[RenderableType]:
    """The table of a sheet, its summary and how it was made."""
    from losscore.lanes import strip_payload

    payload = strip_payload(sheet, bits=bits)
    table = plain_table("#", "token")
    table.columns[0].style = "dim"
    table.columns[0].justify = "right"
    table.columns[1].overflow = "fold"
    for lane in payload["lanes"]:
        title = lane["title"].replace(" ", "\n")
        if lane["key"] == "entropy":
            title += "\nbits" if bits else "\nnats"
        table.add_column(title, justify="right", no_wrap=True)
    for row, token in enumerate(payload["tokens"]):
        mark = _CONTROL if sheet.special[row] else _PROMPT if _in_prompt(sheet, row) else ""
        name = styled(f"{mark} {token}" if mark else token, "dim" if _in_prompt(sheet, row) else "")
        table.add_row(str(row), name, *(_cell(lane, row) for lane in payload["lanes"]))
    if payload["tokens"]:
        yield table
    legend = [f"{_PROMPT} prompt, not counted"] if sheet.provenance["prompt_characters"] else []
    legend += [f"{_CONTROL} control token"] if any(sheet.special) else []
    if legend:
        yield styled(" · ".join(legend), "dim")
    yield styled(sheet.summary.line(), "bold")
    made = sheet.provenance
    parts = [f"{made['model']} ({made['revision']})", f"{made['dtype']} on {made['device']}", f"BOS: {made['bos']}"]
    parts.append("digit set: one token a digit" if made["digit_set"] else "digit set: none, so no DEL")
    if made["windows"] > 1:
        parts.append(f"{made['windows']} windows of {made['window']:,} tokens, {made['stride']:,} apart")
    yield styled(" · ".join(parts))
    for note in made["notes"]:
        yield styled(f"Note: {note}")


def noise_parts(found: NoiseReport) -> Iterator[RenderableType]:
    """The table of a noise check, how to read it, and what the paper reports."""
    from losscore.noise import PAPER, PAPER_SOURCE

    made = found.provenance
    table = plain_table("objective", "kind")
    for title in ("precision", "recall", "answers hit"):
        table.add_column(title, justify="right", no_wrap=True)
    for row in found.rows:
        table.add_row(
            styled(row.objective), styled(row.kind), *map(_share, (row.precision, row.recall, row.sequences_hit))
        )
    yield table
    top = f"{made['top']:.0%}"
    yield styled(
        f"Of the {top} of all tokens with the largest weights, precision is the share that is noise; recall is the "
        f"share of all noise that lies among them, and an answer is hit when any of its noise does. Low is good: the "
        f"emphasis keeps away from noise. Weighing all tokens alike gives {found.base_rate:.1%} and {top}."
    )
    yield styled(
        f"{found.noise_tokens:,} of {found.tokens:,} tokens are noise · {made['answers']} answers · "
        f"rate {made['rate']:g}, seed {made['seed']} · {made['model']} ({made['revision']}), {made['dtype']}",
        "bold",
    )
    reported = "; ".join(
        f"{row.method} {row.precision:.2%}, {row.recall:.2%}, {row.sequences_hit:.0%}" for row in PAPER
    )
    yield styled(f"The paper reports {reported}. {PAPER_SOURCE}", "dim")
    for note in made["notes"]:
        yield styled(f"Note: {note}")


def _share(value: float | None) -> Text:
    return styled("–", "dim") if value is None else styled(f"{value:.1%}")


def _in_prompt(sheet: Sheet, row: int) -> bool:
    return bool(0 < sheet.columns["end"][row] <= sheet.provenance["prompt_characters"])


def _cell(lane: dict[str, Any], row: int) -> Text:
    value, fill = lane["value"][row], lane["fill"][row]
    if value is None or fill is None:
        return styled("–", "dim")
    bar = _BARS[round(fill / 100 * (len(_BARS) - 1))]
    if lane["scale"] == "diverging":
        hue, strength = lane["hue"] if fill >= 50 else lane["low_hue"], abs(fill - 50) / 50
    else:
        hue, strength = lane["hue"], fill / 100
    return styled(f"{value} {bar}", _shade(hue, strength))


def _shade(hue: str, strength: float) -> Style | str:
    """A background between the terminal's and the hue, with black or white on it, whichever reads better."""
    if strength < _FAINT:
        return ""
    from rich.color import Color, blend_rgb
    from rich.color_triplet import ColorTriplet
    from rich.style import Style

    # Terminals that say so: the last number is the background, 7 and 15 are light.
    light = os.environ.get("COLORFGBG", "").rpartition(";")[2] in ("7", "15")
    ground = ColorTriplet(250, 250, 250) if light else ColorTriplet(24, 26, 32)
    back = blend_rgb(ground, ColorTriplet(*_HUES[hue]), 0.85 * strength)
    linear = [((part / 255 + 0.055) / 1.055) ** 2.4 for part in back]
    luminance = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
    front = ColorTriplet(0, 0, 0) if luminance > 0.179 else ColorTriplet(255, 255, 255)
    return Style(color=Color.from_triplet(front), bgcolor=Color.from_triplet(back))


def plain_table(*titles: str) -> Table:
    from rich import box
    from rich.table import Table

    return Table(
        *titles, box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold"
    )


def console_for(**options: Any) -> Console:
    from rich.console import Console

    return Console(markup=False, highlight=False, emoji=False, **options)


def print_parts(*parts: RenderableType, console: Console | None = None) -> None:
    console = console or console_for()
    for part in parts:
        console.print(part)
    console.file.flush()


def styled(text: str, style: Style | str = "") -> Text:
    from rich.text import Text

    return Text(_visible(text), style=style)


def _visible(text: str) -> str:
    """Without control characters: a file or a model may be named so as to command the terminal."""
    if text.isprintable():
        return text
    from losscore.text.display import show_character

    return "".join(character if character.isprintable() else show_character(character) for character in text)


def say(message: str) -> None:
    print(_visible(message), file=sys.stderr, flush=True)


def complain(error: LosscoreError) -> None:
    say(f"losscore: {error}")


@contextmanager
def progress_bar() -> Iterator[Callable[[str, float | None], None]]:
    """A bar on stderr, gone when done; nothing where stderr is not a terminal."""
    if not sys.stderr.isatty():
        yield lambda message, share: None
        return
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console_for(file=sys.stderr), transient=True) as progress:
        task = progress.add_task("", total=None)

        def show(message: str, share: float | None) -> None:
            progress.update(
                task, description=_visible(message), completed=share or 0, total=None if share is None else 1
            )

        yield show
