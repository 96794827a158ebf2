"""A fine-tune on the terminal: the tokens that changed most, the objectives side by side, what it cost elsewhere."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from losscore.terminal.cells import cell, undefined
from losscore.terminal.screen import plain_table, styled

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table
    from rich.text import Text

    from losscore.finetuning import Record, Snapshot

SHOWN_TOKENS = 20
_LONGEST_PROBE = 40
_RACE = {
    "steps": "steps",
    "p": "mean p",
    "nll": "NLL\nnats",
    "entropy": "entropy\nnats",
    "digit_entropy": "digit\nentropy",
    "nll_change_elsewhere": "Δ NLL\nelsewhere",
    "kl_elsewhere": "KL\nelsewhere",
    "seconds": "seconds",
}


def tune_parts(records: Sequence[Record]) -> Iterator[RenderableType]:
    """What the runs that got as far as a snapshot did; all of them start from the same state."""
    from losscore.lanes.change import summary

    records = [record for record in records if record.snapshots]
    changed = _changed(records)
    if changed:
        yield _token_table(records, changed)
        most = f"The {len(changed)} targets whose p changed most, in the text's order."
        yield styled(most if len(records) > 1 else f"{most} Rank 1 is the model's first guess.", "dim")
    for record in records:
        if record.snapshots[0].examples == 1:
            before, after = (record.snapshots[at].sheet(0) for at in (0, -1))
            yield styled(_named([record], records, summary(before, after)))
    yield styled("")
    yield _race_table(records)
    looked = [(record, snapshot) for record in records if (snapshot := _last_look(record))]
    if looked:
        yield styled("")
        yield _probe_table(looked)
        yield styled(
            "Elsewhere: texts that were not trained on, in nats a token. The change of their NLL, and KL(before || "
            "after), how far the predictions moved. Near 0 is good.",
            "dim",
        )
    for record, snapshot in looked:
        if snapshot is not record.snapshots[-1]:
            yield styled(_named([record], records, f"these texts were last looked at at step {snapshot.step}."))
    for ended in dict.fromkeys(record.ended for record in records):
        alike = [record for record in records if record.ended == ended]
        yield styled(_named(alike, records, f"{ended.rstrip('.')}."), "bold")
    yield styled(_made(records[0]))


def _named(some: Sequence[Record], records: Sequence[Record], words: str) -> str:
    """`words` with the names of the runs that they are about, where there are others too."""
    labels = ", ".join(record.objective.label for record in some)
    return f"{labels}: {words}" if len(records) > 1 else f"{words[0].upper()}{words[1:]}"


def _changed(records: Sequence[Record]) -> list[tuple[int, int]]:
    """(example, row) of the targets whose p changed most in any of the runs, in order."""
    from losscore.lanes.change import largest_changes

    moved: dict[tuple[int, int], float] = {}
    for record in records:
        first, last = record.snapshots[0], record.snapshots[-1]
        for example in range(first.examples):
            for change in largest_changes(first.sheet(example), last.sheet(example), SHOWN_TOKENS):
                key = example, change.row
                moved[key] = max(moved.get(key, 0.0), abs(change.after - change.before))
    return sorted(sorted(moved, key=lambda key: (-moved[key], key))[:SHOWN_TOKENS])


def _token_table(records: Sequence[Record], changed: Sequence[tuple[int, int]]) -> Table:
    from losscore.lanes import strip_payload

    several = records[0].snapshots[0].examples > 1
    table = plain_table(*(["text"] if several else []), "#", "token")
    for column in table.columns[:-1]:
        column.style, column.justify, column.no_wrap = "dim", "right", True
    table.columns[-1].overflow, table.columns[-1].min_width = "fold", 4
    one = len(records) == 1
    after = ["p after"] if one else [f"p after\n{_broken(record)}" for record in records]
    for title in ("p before", *after, *(["rank\nbefore → after"] if one else [])):
        table.add_column(title, justify="right", no_wrap=True)
    # One pass over each example that has a row here.
    drawn: dict[int, list[dict[str, Any]]] = {}
    for example, row in changed:
        if example not in drawn:
            sheets = [records[0].snapshots[0].sheet(example), *(one.snapshots[-1].sheet(example) for one in records)]
            drawn[example] = [_by_key(strip_payload(sheet)) for sheet in sheets]
        before, *now = drawn[example]
        ranks = " → ".join(lanes["rank"]["value"][row] or "–" for lanes in (before, now[0]))
        table.add_row(
            *([str(example + 1)] if several else []),
            str(row),
            styled(before["tokens"][row]),
            *(cell(lanes["p"], row, bar=one) for lanes in (before, *now)),
            *([styled(ranks)] if one else []),
        )
    return table


def _broken(record: Record) -> str:
    """The label over several lines, for a narrow column."""
    return record.objective.label.replace(":", ":\n").replace(",", ",\n")


def _by_key(payload: dict[str, Any]) -> dict[str, Any]:
    return {"tokens": payload["tokens"], **{lane["key"]: lane for lane in payload["lanes"]}}


def _race_table(records: Sequence[Record]) -> Table:
    """The start and the runs, one a row; figures that nothing is known of are left out."""
    from losscore.finetuning import race_table

    frame = race_table(records)
    known = [name for name in _RACE if frame[name].notna().any()]
    table = plain_table("", *(_RACE[name] for name in known))
    for at, column in enumerate(table.columns):
        column.justify, column.no_wrap = "right" if at else "left", True
    names = ["before", *map(_broken, records)]
    for name, row in zip(names, frame[known].to_dict("records"), strict=True):
        table.add_row(name, *(_figure(column, row[column]) for column in known))
    return table


def _figure(name: str, value: Any) -> Text:
    from losscore.lanes.lane import format_value

    if value is None or not math.isfinite(value):
        return undefined()
    if name == "steps":
        return styled(f"{int(value)}")
    if name == "nll_change_elsewhere":
        return styled(_signed(value))
    return styled(f"{value:.1f}" if name == "seconds" else format_value(float(value)))


def _signed(value: float) -> str:
    from losscore.lanes.lane import format_value

    return f"{'+' if value > 0 else '−' if value < 0 else ''}{format_value(abs(value))}"


def _last_look(record: Record) -> Snapshot | None:
    """The last snapshot at which the probes were measured."""
    return next((snapshot for snapshot in reversed(record.snapshots) if snapshot.probes), None)


def _probe_table(looked: Sequence[tuple[Record, Snapshot]]) -> Table:
    from losscore.lanes.lane import format_value

    several = len(looked) > 1
    table = plain_table("elsewhere", *(["objective"] if several else []))
    table.columns[0].no_wrap = True
    for title in ("tokens", "NLL", "change", "KL"):
        table.add_column(title, justify="right", no_wrap=True)
    for number, first in enumerate(looked[0][1].probes):
        text = " ".join(first.text.split())
        shown = text if len(text) <= _LONGEST_PROBE else f"{text[: _LONGEST_PROBE - 1]}…"
        for record, snapshot in looked:
            reading = snapshot.probes[number]
            table.add_row(
                styled(shown),
                *([styled(record.objective.label)] if several else []),
                str(reading.tokens),
                format_value(reading.nll),
                _signed(reading.nll_change),
                format_value(reading.kl),
            )
            shown = ""
    return table


def _made(record: Record) -> str:
    made, settings = record.provenance, record.settings
    method = f"LoRA of rank {settings.rank}" if settings.method == "lora" else "all weights"
    parts = [
        f"{made['base']} ({made['base_revision']})",
        f"{method}: {made['trained_parameters']:,} parameters on {record.snapshots[0].sheet().provenance['device']}",
        f"learning rate {settings.rate:g}, seed {settings.seed}",
        f"{made['targets']:,} targets in {made['examples']} {'text' if made['examples'] == 1 else 'texts'}",
    ]
    if settings.batch:
        parts.append(f"{settings.batch} texts a step")
    return " · ".join(parts)
