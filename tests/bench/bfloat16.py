"""What bfloat16 weights save, and what they change: the same texts scored in both, in turn in one process."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

import losscore
from losscore.models import Model
from tests.bench.clock import shares
from tests.bench.step import text_of
from tests.bench.table import Row


def rows(model: Model, repeats: int) -> Iterator[Row]:
    """A whole score in bfloat16 beside one in float32, and how far the two lie apart."""
    coarse = losscore.load(device="cpu", dtype="bfloat16")
    for tokens in (64, 512):
        text = text_of(model, tokens)
        share = shares([lambda: losscore.score(coarse, text)], lambda: losscore.score(model, text), repeats)[0]  # noqa: B023
        pair = [np.asarray(losscore.score(one, text).columns["p"], dtype=np.float64) for one in (model, coarse)]
        apart = np.abs(pair[0] - pair[1])
        note = f"(p differs by {np.nanmean(apart):.4f} on average, {np.nanmax(apart):.3f} at most)"
        yield Row("`losscore.score` in bfloat16 / in float32", f"{tokens} tokens", (share,), note=note)
