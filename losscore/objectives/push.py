"""How hard an objective pushes on each token: its gate, and the size of its gradient on the logits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import normalize

from losscore.errors import LosscoreError
from losscore.objectives.objective import Objective
from losscore.objectives.tokens import Digits, Distribution, Tokens


def gate(objective: Objective, tokens: Tokens) -> Float[Tensor, " tokens"]:
    """-dL_t / d log p_t: 1 everywhere for -log p, the weight for a weighted -log p.

    What an objective adds over the digit logits is not in it; see `gradient_norm`. Raises LosscoreError for an
    objective of the whole distribution: it has no such single number.
    """
    _refuse_whole(objective)
    gradient, _ = _gradients(objective, tokens)
    return -gradient


def gradient_norm(objective: Objective, tokens: Tokens) -> Float[Tensor, " tokens"]:
    """sum_v |dL_t / dz_v| for an objective of log_p and digit logits, from the statistics alone.

    dL/dz_v = g ([v = y] - p_v) with g = dL / d log p, plus the digits' own gradient at the ten digit ids.
    Raises LosscoreError for an objective of the whole distribution; for those see `norms_from_logits`.
    """
    _refuse_whole(objective)
    g, own = _gradients(objective, tokens)
    log_p = tokens.log_p.detach()
    norm = 2 * g.abs() * -torch.expm1(log_p)
    if tokens.digits is None or own is None:
        return norm
    rows, z = tokens.digits.rows, tokens.digits.logits.detach()
    # p_v of the ten digits, from how far their logits are from the target's.
    p = torch.exp(z - z.gather(-1, tokens.digits.digit[:, None]) + log_p[rows, None])
    inside = g[rows, None] * (tokens.digits.one_hot - p) + own
    outside = g[rows].abs() * (1 - p.sum(-1)).clamp(min=0)
    return norm.index_put((rows,), inside.abs().sum(-1) + outside)


def norms_from_logits(
    objective: Objective,
    logits: Float[Tensor, "tokens vocab"],
    target: Int[Tensor, " tokens"],
    tokens: Tokens,
    embedding: Float[Tensor, "vocab width"] | None = None,
    digit_ids: Sequence[int] | None = None,
) -> Float[Tensor, " tokens"]:
    """sum_v |dL_t / dz_v| by autograd through the logits of these tokens, for objectives of the whole distribution.

    embedding: rows of the output embedding, for EMO. digit_ids: the ten ids of the digits, for terms over digits.
    """
    if objective.needs_digits and digit_ids is None:
        raise LosscoreError(f"{objective.title} needs to know the digits: give the ten digit_ids.")
    with torch.enable_grad():
        z = logits.detach().to(tokens.log_p.dtype).requires_grad_()
        log_probs = torch.log_softmax(z, -1)
        log_p = log_probs.gather(-1, target[:, None]).squeeze(-1)
        unit = None if embedding is None else normalize(embedding.detach().to(z), dim=-1)
        whole = replace(tokens, log_p=log_p, distribution=Distribution(log_probs, target, unit))
        if tokens.digits is not None and digit_ids is not None:
            whole = replace(whole, digits=replace(tokens.digits, logits=z[tokens.digits.rows][:, list(digit_ids)]))
        (gradient,) = torch.autograd.grad(objective.per_token(whole).sum(), z)
    return gradient.abs().sum(-1)


def weight(norm: Float[Tensor, " tokens"], tokens: Tokens) -> Float[Tensor, " tokens"]:
    """The push relative to cross-entropy's: sum_v |dL/dz_v| / (2 (1 - p)); equals the gate where an objective has one.

    1 for -log p at every token; NaN where p is 1 to rounding and nothing pushes at all.
    """
    error = -torch.expm1(tokens.log_p.detach())
    return torch.where(error > 0, norm / (2 * error), torch.nan)


def _gradients(objective: Objective, tokens: Tokens) -> tuple[Tensor, Tensor | None]:
    """dL_t / d log p_t, and that on the digit logits if the objective reads them."""
    with torch.enable_grad():
        log_p = tokens.log_p.detach().requires_grad_()
        live: Digits | None = None
        if tokens.digits is not None:
            live = replace(tokens.digits, logits=tokens.digits.logits.detach().requires_grad_())
        total = objective.per_token(replace(tokens, log_p=log_p, digits=live)).sum()
        wanted = [log_p] if live is None else [log_p, live.logits]
        gradients = torch.autograd.grad(total, wanted, allow_unused=True)
    return gradients[0], gradients[-1] if live is not None else None


def _refuse_whole(objective: Objective) -> None:
    if objective.needs_distribution:
        raise LosscoreError(f"{objective.title} looks at the whole distribution: its gradient needs the logits.")
