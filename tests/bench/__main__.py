"""What losscore costs, as a Markdown table: `python -m tests.bench [SECTION ...]`, or `make bench` for all of it.

A section that was measured whole, with enough rounds, is kept in figures.json, from which `python -m tests.readme`
writes the table of the README.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import losscore
from losscore.models import Model
from tests.bench import bfloat16, lengths, memory, page, peers, start, statistics, step
from tests.bench.step import REPEATS, machine
from tests.bench.table import HEAD, NotMeasured, Row, Section, keep

FEW = 3


@cache
def _model() -> Model:
    return losscore.load(device="cpu")


# The last two take minutes: their figures are medians of fewer rounds, which their rows say.
SECTIONS: dict[str, Callable[[int], Iterator[Row]]] = {
    "statistics": lambda repeats: statistics.rows(_model(), repeats),
    "memory": lambda repeats: memory.rows(),
    "objectives": lambda repeats: step.catalogue_rows(_model(), repeats),
    "steps-64": lambda repeats: step.rows(_model(), [64], repeats),
    "steps-512": lambda repeats: step.rows(_model(), [512], repeats),
    "peers": lambda repeats: peers.rows(_model(), repeats),
    "bfloat16": lambda repeats: bfloat16.rows(_model(), repeats),
    "start": start.rows,
    "page": lambda repeats: page.rows(_model(), repeats),
    "steps-2048": lambda repeats: step.rows(_model(), [2048], min(repeats, FEW)),
    "long-texts": lambda repeats: lengths.rows(_model()),
}


def main() -> None:
    """Print the table, each row as soon as it is known."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("sections", nargs="*", choices=[*SECTIONS, []], help="all of them where none is named")
    parser.add_argument("--repeats", type=int, default=REPEATS, help=f"at least {REPEATS} for a figure to be kept")
    options: Any = parser.parse_args()
    head = f"Medians of {options.repeats} rounds in one process: {machine(_model())}."
    print("\n".join([head, "", *HEAD]))
    for name in options.sections or SECTIONS:
        found = []
        try:
            for row in SECTIONS[name](options.repeats):
                print(row.line(), flush=True)
                found.append(row)
        except NotMeasured as error:
            print(f"{name}: {error}; the figures kept of it stay as they were.", file=sys.stderr)
            continue
        if options.repeats >= REPEATS:
            keep(name, Section(head, tuple(found)), list(SECTIONS))


if __name__ == "__main__":
    main()
