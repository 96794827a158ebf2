"""How the time of a score grows with the text."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median

import losscore
from losscore.models import Model
from tests.bench.clock import seconds
from tests.bench.step import text_of
from tests.bench.table import Row

LENGTHS = (1_000, 2_000, 4_000, 8_000, 16_000)


def rows(model: Model, repeats: int = 1) -> Iterator[Row]:
    """Seconds a token, beside those at the shortest length."""
    texts = {tokens: text_of(model, tokens) for tokens in LENGTHS}
    losscore.score(model, texts[LENGTHS[0]])
    first = 0.0
    for tokens, text in texts.items():
        taken = median(seconds(lambda: losscore.score(model, text)) for _ in range(repeats))  # noqa: B023
        first = first or taken / tokens
        what = f"`losscore.score`, time a token / that at {LENGTHS[0]:,}"
        yield Row(what, f"{tokens:,} tokens", (taken / tokens / first,), note=f"({taken:.1f} s, {repeats} round)")
