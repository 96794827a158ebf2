"""Any objective as a drop-in loss on logits and labels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.functional import normalize, pad
from torch.utils.checkpoint import checkpoint

from losscore.errors import LosscoreError
from losscore.objectives.objective import Objective
from losscore.objectives.tokens import Distribution, Tokens
from losscore.stats import Statistics, measure

_CHUNK_ELEMENTS = 1 << 23


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

    Labels that the model gives no finite log-probability (a logit of -inf or NaN) are left out like ignored ones. Rows
    are taken to float32 chunk by chunk and recomputed in the backward pass, so float32 logits of the whole batch never
    exist, except for objectives that look at the whole distribution. A batch without targets gives 0, still attached to
    the graph. Raises LosscoreError where the arguments do not fit together.
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
    wanted = target != ignore_index
    if ((target < 0) | (target >= logits.shape[-1]))[wanted].any():
        raise LosscoreError(f"Labels must be token ids below {logits.shape[-1]}, or {ignore_index} to be ignored.")
    ids = _digit_ids(objective, digit_ids, places, target)
    statistics, kept = _measure(rows, target, wanted)
    log_p, digit_logits = _live(rows, target, kept, ids)
    at = kept.nonzero().squeeze(-1)
    tokens = Tokens.of(
        statistics, logits.shape[-1], log_p=log_p, sequence=torch.div(at, labels.shape[1], rounding_mode="floor")
    )
    if places is not None and objective.needs_digits:
        share = _digit_share(objective, count, digit_count)
        tokens = _with_digits(tokens, digit_logits, target[at], ids, places.reshape(-1).to(at.device)[at], share)
    if objective.needs_distribution:
        unit = None if embedding is None else normalize(embedding.detach().to(log_p), dim=-1)
        log_probs = torch.log_softmax(_wide(rows[at]), -1)
        tokens = replace(tokens, distribution=Distribution(log_probs, target[at], unit))
    values = objective.per_token(tokens)
    if reduction == "none":
        flat = values.new_zeros(labels.numel()).index_put((at,), values).reshape(labels.shape)
        return flat[:, :-1] if shift else flat
    total = values.sum()
    if count is not None:
        return total / count
    return total / max(len(at), 1) if reduction == "mean" else total


def _wide(logits: Tensor) -> Tensor:
    return logits if logits.dtype == torch.float64 else logits.float()


def _chunks(rows: Tensor, *columns: Tensor) -> list[tuple[Tensor, ...]]:
    size = max(1, _CHUNK_ELEMENTS // rows.shape[-1])
    return list(zip(*(torch.split(column, size) for column in (rows, *columns)), strict=True))


def _measure(
    rows: Float[Tensor, "rows vocab"], target: Int[Tensor, " rows"], wanted: Bool[Tensor, " rows"]
) -> tuple[Statistics, Bool[Tensor, " rows"]]:
    """Statistics of the wanted rows whose target has a finite log-probability, and which rows those are."""
    statistics = Statistics.join(
        [measure(_wide(z[keep]), ids[keep]) for z, ids, keep in _chunks(rows.detach(), target, wanted)]
    )
    # As it will be in the loss: a float64 logarithm can be too large for a float32.
    finite = statistics.log_p.to(_wide(rows[:0]).dtype).isfinite()
    kept = wanted.clone()
    kept[wanted] = finite.to(wanted.device)
    return statistics[finite], kept


def _live(
    rows: Float[Tensor, "rows vocab"],
    target: Int[Tensor, " rows"],
    kept: Bool[Tensor, " rows"],
    digit_ids: Int[Tensor, " digits"],
) -> tuple[Float[Tensor, " tokens"], Float[Tensor, "tokens digits"]]:
    """The kept rows' log-probabilities and digit logits, with gradient."""

    def of(z: Tensor, ids: Tensor, keep: Tensor) -> tuple[Tensor, Tensor]:
        wide = _wide(z[keep])
        return torch.log_softmax(wide, -1).gather(-1, ids[keep, None]).squeeze(-1), wide[:, digit_ids]

    # Pieces of one split, not slices: their gradients are joined once instead of being padded to the whole each time.
    parts = [
        checkpoint(of, *part, use_reentrant=False, preserve_rng_state=False) for part in _chunks(rows, target, kept)
    ]
    log_p, digit_logits = zip(*parts, strict=True)
    return torch.cat(log_p), torch.cat(digit_logits)


def _digit_ids(objective: Objective, digit_ids: Sequence[int] | None, places: Tensor | None, like: Tensor) -> Tensor:
    if not objective.needs_digits:
        return like.new_zeros(0)
    if digit_ids is None or places is None or len(digit_ids) != 10:
        raise LosscoreError(f"{objective.title} needs to know the digits: give the ten digit_ids and the places.")
    return torch.as_tensor(list(digit_ids), device=like.device)


def _digit_share(
    objective: Objective, count: int | float | Tensor | None, digit_count: int | float | Tensor | None
) -> float | None:
    """What a digit's loss counts beside one token's, so that the digits' mean is over all batches added up."""
    if count is None:
        return None
    if digit_count is None:
        raise LosscoreError(f"{objective.title} also averages over digits: give digit_count beside count.")
    return float(count) / max(float(digit_count), 1.0)


def _with_digits(
    tokens: Tokens, digit_logits: Tensor, target: Tensor, digit_ids: Tensor, place: Tensor, share: float | None
) -> Tokens:
    matches = target[:, None] == digit_ids
    rows = (matches.any(-1) & ~place.isnan()).nonzero().squeeze(-1)
    return tokens.with_digits(digit_logits[rows], matches[rows].int().argmax(-1), place[rows], rows, share)
