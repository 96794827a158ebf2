"""A sheet on the terminal: its lanes as a table, its summary and how it was made."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from losscore.terminal.cells import cell
from losscore.terminal.screen import plain_table, styled

if TYPE_CHECKING:
    from rich.console import RenderableType

    from losscore.sheet import Sheet

# Before a token with a real blank, which no token shows.
_CONTROL, _PROMPT = "◆", "›"


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
        table.add_row(str(row), name, *(cell(lane, row) for lane in payload["lanes"]))
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


def _in_prompt(sheet: Sheet, row: int) -> bool:
    return bool(0 < sheet.columns["end"][row] <= sheet.provenance["prompt_characters"])
