"""How much of each objective's emphasis falls on the noise."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from losscore.errors import LosscoreError
from losscore.noise.injection import Mask, inject, noise_tokens
from losscore.noise.report import NoiseReport, NoiseRow
from losscore.objectives import Objective
from losscore.scoring import score
from losscore.text.encoding import mend_surrogates
from losscore.text.examples import Example
from losscore.weighing import target_rows, weigh

if TYPE_CHECKING:
    from losscore.models import Model

Numbers = np.ndarray[Any, Any]
TOP = 0.1


def measure_noise(weights: Numbers, noise: Mask, sequence: Numbers, top: float = TOP) -> tuple[float, float, float]:
    """Precision, recall and share of sequences hit (see `NoiseRow`) of the top k = ceil(top n) of n weights.

    All arguments have one entry per token. Where tokens of equal weight compete for the last places, each choice
    among them is equally likely and the figures are exact expectations: of m tied tokens, r places and j noise tokens,
    r j / m noise tokens get a place, and at least one does with probability 1 - C(m - j, r) / C(m, r). Weights are
    equal when they are so in float32, the precision of a model's logits. NaN where there is no token, or no noise.
    """
    size = len(weights)
    if not size:
        return math.nan, math.nan, math.nan
    k = math.ceil(round(top * size, 6))
    weights = weights.astype(np.float32)
    border = np.sort(weights)[size - k]
    above, tied = weights > border, weights == border
    places, rivals = k - int(above.sum()), int(tied.sum())
    caught = (above & noise).sum() + places * (tied & noise).sum() / rivals
    hits = []
    for one in np.unique(sequence[noise]):
        own = noise & (sequence == one)
        missed = 1.0
        for i in range(int((tied & own).sum())):
            missed *= max(rivals - places - i, 0) / (rivals - i)
        hits.append(1.0 if (above & own).any() else 1 - missed)
    return (
        float(caught / k),
        float(caught / noise.sum()) if noise.any() else math.nan,
        float(np.mean(hits)) if hits else math.nan,
    )


def noise_check(
    model: Model,
    examples: Sequence[Example],
    objectives: Sequence[Objective],
    *,
    rate: float = 0.1,
    seed: int = 0,
    top: float = TOP,
    progress: Callable[[float], None] | None = None,
    stop: Callable[[], bool] | None = None,
) -> NoiseReport:
    """Inject noise into the responses, score them with `model` and find the noise among each objective's top weights.

    rate: share of the gaps between words that get a word. top: share of the tokens, all answers together, whose weights
    count as large. The weights are those of `losscore.weighing.weigh`: how hard an objective pushes relative to
    cross-entropy. Each answer is weighed by itself, so what an objective reads off the batch (TALR's temperature) it
    reads off one answer.
    progress(share): called as the work goes on. stop(): return True to end with Cancelled.
    Raises LosscoreError with one plain sentence.
    """
    if not examples:
        raise LosscoreError("There is no worked answer to check: give at least one.")
    if not objectives:
        raise LosscoreError("There is no objective to check: name at least one.")
    if not 0 < top <= 1:
        raise LosscoreError(f"The share of top tokens must lie above 0 and not above 1, not {top:g}.")
    noise: list[Mask] = []
    weights: list[list[Numbers]] = [[] for _ in objectives]
    notes: dict[str, None] = {}
    for number, example in enumerate(examples):
        prompt, response = (mend_surrogates(text)[0] for text in example)
        noisy = inject(response, rate=rate, seed=f"{seed}/{number}")
        report = None if progress is None else _part(progress, number, len(examples))
        sheet = score(model, noisy.text, prompt, progress=report, stop=stop)
        rows = target_rows(sheet)
        spans = [(len(prompt) + first, len(prompt) + last) for first, last in noisy.spans]
        noise.append(noise_tokens(sheet, spans)[rows])
        for collected, objective in zip(weights, objectives, strict=True):
            collected.append(weigh(sheet, objective, model=model)[rows])
        notes |= dict.fromkeys(sheet.provenance["notes"])
    is_noise = np.concatenate(noise)
    if not is_noise.any():
        raise LosscoreError("No word could be injected: raise the rate, or give longer answers.")
    sequence = np.repeat(np.arange(len(noise), dtype=np.float64), [len(part) for part in noise])
    kept = ("losscore", "model", "revision", "dtype", "device", "tokenizer", "vocabulary", "bos", "versions")
    return NoiseReport(
        rows=tuple(
            _row(objective, np.concatenate(collected), is_noise, sequence, top)
            for objective, collected in zip(objectives, weights, strict=True)
        ),
        tokens=len(is_noise),
        noise_tokens=int(is_noise.sum()),
        provenance={
            **{name: sheet.provenance[name] for name in kept},
            "answers": len(examples),
            "answers_sha256": hashlib.sha256(json.dumps(examples).encode()).hexdigest(),
            "rate": rate,
            "seed": seed,
            "top": top,
            "top_of": "all answers together",
            "notes": list(notes),
        },
    )


def _row(objective: Objective, weights: Numbers, noise: Mask, sequence: Numbers, top: float) -> NoiseRow:
    known = ~np.isnan(weights)
    figures = measure_noise(weights[known], noise[known], sequence[known], top)
    precision, recall, hit = (None if math.isnan(figure) else figure for figure in figures)
    return NoiseRow(objective.label, objective.title, objective.kind, int(known.sum()), precision, recall, hit)


def _part(progress: Callable[[float], None], done: int, of: int) -> Callable[[float], None]:
    return lambda share: progress((done + share) / of)
