"""The cost of the statistics, as a Markdown table: `python -m tests.bench [--repeats N]`, or `make bench`."""

from __future__ import annotations

import argparse
from collections.abc import Callable

import torch

import losscore
from losscore.models import Model
from losscore.stats import measure
from tests.bench import memory, peers
from tests.bench.statistics import Reading, body_of, embedded, large, plainly, scoring, shares
from tests.bench.step import machine, text_of

REPEATS = 7


def row(*cells: str) -> None:
    """One line of the table, as soon as it is known."""
    print("| " + " | ".join(cells) + " |", flush=True)


def statistics_rows(name: str, reading: Reading, repeats: int) -> None:
    """The streaming pass beside body and head, and beside the head alone."""
    whole, head = reading.share(repeats)
    row(name, "all statistics / (body + head)", f"{whole:.3f}")
    row(name, "all statistics / head alone", f"{head:.3f}")


def compared_rows(model: Model, tokens: int, repeats: int) -> None:
    """The obvious code and other libraries on the same logits, beside the same forward pass."""
    text = text_of(model, tokens)
    ids = model.encoder.encode(text, bos="never").ids
    targets = torch.tensor([*ids[1:], 0])
    with torch.no_grad():
        logits = model.head(body_of(model, ids))

    @torch.no_grad()
    def forward() -> None:
        model.head(body_of(model, ids))

    ways: dict[str, Callable[[], Callable[[], object]]] = {
        "all statistics (`measure`) / (body + head)": lambda: lambda: measure(logits, targets, range(10)),
        "obvious code for the same / (body + head)": lambda: lambda: plainly(logits, targets),
        "minicons: surprisal and rank, its forward included / (body + head)": lambda: peers.minicons(model, text),
        "TRL `entropy_from_logits`: the entropy alone / (body + head)": lambda: peers.trl(logits),
        "ntloss: one number loss / (body + head)": lambda: peers.ntloss(model, logits, targets),
    }
    works: dict[str, Callable[[], object]] = {}
    missing: dict[str, str] = {}
    for name, prepare in ways.items():
        try:
            works[name] = prepare()
        except ImportError as error:
            missing[name] = f"not installed ({error.name})"
    found = dict(zip(works, shares(list(works.values()), forward, repeats), strict=True))
    for name in ways:
        row(f"{tokens:,} x {model.vocabulary:,}", name, f"{found[name]:.3f}" if name in found else missing[name])


def memory_rows() -> None:
    """The peak with the statistics, and with all logits at once."""
    size = f"{memory.LARGE_TOKENS:,} x {memory.LARGE_VOCABULARY:,}"
    names = ("head and all statistics, streamed", "all logits, no statistics", "all logits and the obvious code")
    for name, way in zip(names, memory.WAYS, strict=True):
        peak = memory.peak(way)
        row(size, f"peak memory beyond the model's: {name}", "Linux only" if peak is None else f"{peak:,.0f} MB")


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("--repeats", type=int, default=REPEATS, help=f"at least {REPEATS} for a figure to be quoted")
    repeats = parser.parse_args().repeats
    model = losscore.load(device="cpu")
    print(f"Medians of {repeats} rounds in one process: {machine(model)}\n")
    row("tokens x vocabulary", "what", "value")
    row("---", "---", "---:")
    statistics_rows(f"512 x {model.vocabulary:,}", embedded(model, 512), repeats)
    compared_rows(model, 512, repeats)
    for tokens in (64, 512, 2_000):
        name = f"{tokens:,} x {model.vocabulary:,}"
        row(name, "`losscore.score` / (body + head)", f"{scoring(model, tokens, repeats):.2f}")
    statistics_rows(f"{memory.LARGE_TOKENS:,} x {memory.LARGE_VOCABULARY:,} (random head)", large(model), repeats)
    memory_rows()


if __name__ == "__main__":
    main()
