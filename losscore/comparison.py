"""Objectives side by side on one text: normalised weights, where they disagree, where their gradient goes."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from losscore.errors import LosscoreError

if TYPE_CHECKING:
    import pandas as pd

Array = np.ndarray[Any, np.dtype[np.float64]]
NORMALISATIONS = ("mean", "share", "rank")
P_BINS = (0.0, 1e-4, 1e-3, 1e-2, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 1.0)


def normalise(weights: Array, how: str) -> Array:
    """Weights of one text made comparable between objectives; NaN stays NaN.

    "mean": divided by their mean. "share": of the sum. "rank": 0 for the smallest to 1 for the largest, ties in the
    middle. An objective that pushes nowhere is 0 everywhere (rank: 1/2).
    """
    known = np.isfinite(weights)
    out = np.full(len(weights), np.nan)
    values = weights[known]
    if how == "rank":
        below = (values[:, None] > values[None, :]).sum(1)
        ties = (values[:, None] == values[None, :]).sum(1) - 1
        out[known] = (below + ties / 2) / max(len(values) - 1, 1) if len(values) > 1 else 0.5
    elif how in ("mean", "share"):
        total = values.sum()
        scale = len(values) if how == "mean" else 1
        out[known] = values * scale / total if total > 0 else 0.0
    else:
        raise LosscoreError(f"The normalisation must be one of {', '.join(NORMALISATIONS)}, not {how!r}.")
    return out


def disagreement(table: Mapping[str, Array]) -> Array:
    """Per token, the standard deviation of its normalised rank over the objectives; NaN where it has no weight."""
    ranks = np.vstack([normalise(weights, "rank") for weights in table.values()])
    known = np.isfinite(ranks).any(0)
    spread = np.full(ranks.shape[1], np.nan)
    spread[known] = np.nanstd(ranks[:, known], axis=0)
    return spread


def most_disputed(spread: Array) -> list[int]:
    """The rows that have a `disagreement`, the largest first."""
    known = np.flatnonzero(np.isfinite(spread))
    return [int(row) for row in known[np.argsort(-spread[known], kind="stable")]]


def rank_correlation(table: Mapping[str, Array]) -> pd.DataFrame:
    """Spearman's rank correlation between the objectives' weights; blank for one that weighs all tokens alike."""
    import pandas as pd

    # Rounding noise must not rank tokens that an objective weighs alike.
    frame = pd.DataFrame({name: np.round(weights, 12) for name, weights in table.items()})
    return frame.corr(method="spearman")


def gradient_by_p(p: Array, norms: Mapping[str, Array]) -> pd.DataFrame:
    """The share of sum_t sum_v |dL_t/dz_v| that falls on tokens of each range of p, per objective; columns sum to 1."""
    import pandas as pd

    edges = [f"{low:g}-{high:g}" for low, high in pairwise(P_BINS)]
    known = np.isfinite(p)
    bins = np.clip(np.searchsorted(P_BINS, p[known], side="right") - 1, 0, len(edges) - 1)
    shares = {}
    for name, norm in norms.items():
        sums = np.bincount(bins, weights=np.nan_to_num(norm[known]), minlength=len(edges))
        shares[name] = sums / sums.sum() if sums.sum() > 0 else sums
    frame = pd.DataFrame(shares, index=pd.Index(edges, name="p"))
    frame.insert(0, "tokens", np.bincount(bins, minlength=len(edges)))
    return frame
