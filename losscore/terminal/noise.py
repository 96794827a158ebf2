"""What a noise check found, on the terminal."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from losscore.terminal.cells import undefined
from losscore.terminal.screen import plain_table, styled

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.text import Text

    from losscore.noise import NoiseReport


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
    return undefined() if value is None else styled(f"{value:.1%}")
