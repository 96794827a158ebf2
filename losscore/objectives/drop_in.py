"""Any objective as a drop-in loss on logits and labels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import normalize, pad

from losscore.errors import LosscoreError
from losscore.objectives.log_p import adjacent, bound_of, live, log_p_of, pieces, wide
from losscore.objectives.objective import Objective
from losscore.objectives.tokens import STATISTICS, Distribution, Tokens
from losscore.stats import Statistics, measure


def loss(
    objective: Objective,
    logits: Float[Tensor, "batch time vocab"],
    labels: Int[Tensor, "batch time"],
    *,
    reduction: Literal["none", "mean", "sum"] = "mean",
    count: int | float | Tensor | None = None,
    digit_count: int | float | Tensor | None = None,
    ignore_index: int = -100,
    shift: bool = True,
    digit_ids: Sequence[int] | None = None,
    places: Float[Tensor, "batch time"] | None = None,
    embedding: Float[Tensor, "vocab width"] | None = None,
) -> Tensor:
    """`objective` of the labelled tokens.

    shift: labels stand at their own positions, as in transformers, and logits at t predict the label at t + 1: the
    shift is done here, once. With shift=False logits at t belong to the label at t.
    reduction: "mean" over the targets; "sum", which is the mean times their number; "none" gives one loss per label
    position (without the first one if shifted), 0 where there is no target.
    count: divide the sum by this instead of by the number of targets here; digit_count: likewise the number of digits
    among them, for the terms over digits. Both are those of all batches that are added up (gradient accumulation).
    digit_ids, places: the ten ids of the digits, and for each label its place (NaN where it is no digit); what
    `TextEncoder.encode(...).digits` says. embedding: rows of the output embedding, for EMO.

    Labels that the model gives no finite log-probability (a logit of -inf or NaN) are left out like ignored ones. A
    batch without targets gives 0, still attached to the graph.

    Only what the objective reads (`Objective.reads`) is computed: its statistics, or log p alone, or the ten digit
    logits. It is computed a few rows at a time, and once more in the backward pass: nothing as large as the logits
    exists but their gradient, except for objectives that look at the whole distribution. Raises LosscoreError where the
    arguments do not fit together, and in a backward pass with create_graph=True.
    """
    if reduction not in ("none", "mean", "sum"):
        raise LosscoreError(f"The reduction must be none, mean or sum, not {reduction!r}.")
    if logits.shape[:-1] != labels.shape or (places is not None and places.shape != labels.shape):
        raise LosscoreError("Logits, labels and places must agree in batch and time: one row of logits per label.")
    if embedding is not None and len(embedding) != logits.shape[-1]:
        raise LosscoreError(f"The embedding must have {logits.shape[-1]} rows, one for each token of the vocabulary.")
    if shift:
        # The labels move, not the logits: a slice of the logits would have to be copied.
        labels = pad(labels[:, 1:], (0, 1), value=ignore_index)
        places = None if places is None else pad(places[:, 1:], (0, 1), value=torch.nan)
    rows, target = logits.reshape(-1, logits.shape[-1]), labels.reshape(-1).to(logits.device)
    at = (target != ignore_index).nonzero().squeeze(-1)
    if ((target[at] < 0) | (target[at] >= logits.shape[-1])).any():
        raise LosscoreError(f"Labels must be token ids below {logits.shape[-1]}, or {ignore_index} to be ignored.")
    ids = _digit_ids(objective, digit_ids, places, target)
    digit, place = _digits(ids, places, target)
    if all(term.over == "digits" for _, term in objective.terms) and (reduction == "mean" or count is not None):
        at = at[digit[at] >= 0]  # a mean over the digits, however many tokens stand between them
    at, log_p, statistics = _measure(objective.reads, rows, at, target)
    digit_rows = (digit[at] >= 0).nonzero().squeeze(-1)
    distribution = None
    if objective.needs_distribution:
        z = wide(rows[adjacent(at)])
        unit = None if embedding is None else normalize(embedding.detach().to(z), dim=-1)
        distribution = Distribution(torch.log_softmax(z, -1), target[at], unit)
        log_p = distribution.log_probs.gather(-1, target[at, None]).squeeze(-1)
        digit_logits = z[digit_rows[:, None], ids]
    else:
        log_p, digit_logits = live(rows, log_p, at, target[at], at[digit_rows], ids)
    sequence = torch.div(at, labels.shape[1], rounding_mode="floor")
    tokens = Tokens.of(statistics, logits.shape[-1], log_p=log_p, sequence=sequence)
    if objective.needs_digits:
        share = _digit_share(objective, count, digit_count)
        tokens = tokens.with_digits(digit_logits, digit[at[digit_rows]], place[at[digit_rows]], digit_rows, share)
    tokens = replace(tokens, distribution=distribution)
    values = objective.per_token(tokens)
    if reduction == "none":
        flat = values.new_zeros(labels.numel()).index_put((at,), values).reshape(labels.shape)
        return flat[:, :-1] if shift else flat
    total = values.sum()
    if count is not None:
        return total / count
    return total / max(len(at), 1) if reduction == "mean" else total


def _measure(
    reads: frozenset[str], rows: Float[Tensor, "rows vocab"], at: Int[Tensor, " wanted"], target: Int[Tensor, " rows"]
) -> tuple[Int[Tensor, " tokens"], Float[Tensor, " tokens"], Statistics | None]:
    """What is to be read of the rows `at`: those of them whose target has a finite log-probability, log p, statistics.

    log p is NaN where nothing reads it, the statistics are None.
    """
    statistics = None
    if reads & set(STATISTICS) and len(at):
        parts = [measure(wide(rows.detach()[i]), target[at[w]]) for w, i in pieces(rows, at, cached=False)]
        statistics = Statistics.join(parts)
        # As it will be in the loss: a float64 logarithm can be too large for a float32.
        log_p = statistics.log_p.to(wide(rows[:0]).dtype).to(rows.device)
    else:
        log_p = (log_p_of if "log_p" in reads else bound_of)(rows, at, target[at])
    finite = log_p.isfinite()
    if not finite.all():
        at, log_p = at[finite], log_p[finite]
        statistics = None if statistics is None else statistics[finite.cpu()]
    known = statistics is not None or "log_p" in reads
    return at, log_p if known else torch.full_like(log_p, torch.nan), statistics


def _digit_ids(objective: Objective, digit_ids: Sequence[int] | None, places: Tensor | None, like: Tensor) -> Tensor:
    if not objective.needs_digits:
        return like.new_zeros(0)
    if digit_ids is None or places is None or len(digit_ids) != 10:
        raise LosscoreError(f"{objective.title} needs to know the digits: give the ten digit_ids and the places.")
    return torch.as_tensor(list(digit_ids), device=like.device)


def _digits(ids: Tensor, places: Tensor | None, target: Tensor) -> tuple[Tensor, Tensor]:
    """Which digit each target is, -1 where it is none, and its place."""
    if places is None or not len(ids):
        return torch.full_like(target, -1), torch.full_like(target, torch.nan, dtype=torch.float32)
    matches, place = target[:, None] == ids, places.reshape(-1).to(target.device)
    return torch.where(matches.any(-1) & ~place.isnan(), matches.int().argmax(-1), -1), place


def _digit_share(
    objective: Objective, count: int | float | Tensor | None, digit_count: int | float | Tensor | None
) -> float | None:
    """What a digit's loss counts beside one token's, so that the digits' mean is over all batches added up."""
    if count is None:
        return None
    if digit_count is None:
        raise LosscoreError(f"{objective.title} also averages over digits: give digit_count beside count.")
    return float(count) / max(float(digit_count), 1.0)
