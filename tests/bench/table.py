"""The rows of the table of figures, kept in figures.json section by section, and the table as Markdown."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

FIGURES = Path(__file__).with_name("figures.json")
HEAD = ("| what | size | measured | reach |", "|---|---|---:|---:|")


class NotMeasured(Exception):
    """Something that a section measures is missing on this machine; the message says what."""


@dataclass(frozen=True)
class Row:
    """One line: values of what at a size; most: what none of them should exceed, where there is such a thing.

    form, unit: how a value is written. note: what must be known beside the values.
    """

    what: str
    size: str
    values: tuple[float, ...]
    most: float | None = None
    form: str = ".2f"
    unit: str = ""
    note: str = ""

    @property
    def missed(self) -> bool:
        """Whether a value, as it is written, exceeds what was to be reached."""
        return self.most is not None and any(float(f"{value:{self.form}}") > self.most for value in self.values)

    def line(self) -> str:
        """The row in Markdown."""
        shown = " / ".join(f"{value:{self.form}}" for value in self.values)
        reach = "" if self.most is None else f"≤ {self.most:g}{', **missed**' * self.missed}"
        return f"| {self.what} | {self.size} | {' '.join(filter(None, [shown, self.unit, self.note]))} | {reach} |"


@dataclass(frozen=True)
class Section:
    """What one part of the bench measured, and the machine and the number of rounds it took."""

    head: str
    rows: tuple[Row, ...]


def kept() -> dict[str, Section]:
    """The sections measured last, in the order of the table."""
    if not FIGURES.exists():
        return {}
    found = json.loads(FIGURES.read_text("utf-8"))
    return {
        name: Section(one["head"], tuple(Row(**{**row, "values": tuple(row["values"])}) for row in one["rows"]))
        for name, one in found.items()
    }


def keep(name: str, section: Section, order: Sequence[str]) -> None:
    """Put a section in the place of the one of that name."""
    found = kept() | {name: section}
    text = json.dumps({one: asdict(found[one]) for one in order if one in found}, ensure_ascii=False, indent=1)
    FIGURES.write_text(text + "\n", "utf-8")


def table(sections: dict[str, Section]) -> str:
    """All sections as one table, after the machines they were measured on."""
    heads = dict.fromkeys(section.head for section in sections.values())
    lines = [row.line() for section in sections.values() for row in section.rows]
    return "\n".join([*heads, "", *HEAD, *lines])
