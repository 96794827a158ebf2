"""Any objective's loss and gradient from hidden states, chunk by chunk: tokens x vocabulary is never held.

An objective reads statistics (constant), log p and the ten digit logits (live), so its gradient on the logits is

    dL_t/dz_v = g_t ([v = y_t] - p_v),   g_t = dL / d log p_t,   plus ten entries where the target is a digit.

One product with the head gives a chunk's logits; from them come the statistics, g, and the gradient, which goes back
through the head before the next chunk is looked at. The few objectives that look at the whole distribution are
differentiated through the chunk's own logits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.functional import normalize

from losscore.objectives import Objective, Tokens
from losscore.objectives.tokens import Distribution
from losscore.stats import Statistics, measure

# One chunk of logits exists at a time, its gradient is written over it. 32 MiB of float32 or more: glibc gives such
# blocks back at once, and the product with the head takes enough rows to be worth reading the head for.
_CHUNK_ELEMENTS = 1 << 23


@dataclass(frozen=True)
class Targets:
    """T tokens that are predicted, on the CPU: their ids, the text each belongs to, and whether it is trained on.

    digit, place: the digit and its place where a token is one of the digit set; -1 and NaN elsewhere.
    """

    ids: Int[Tensor, " tokens"]
    sequence: Int[Tensor, " tokens"]
    trained: Bool[Tensor, " tokens"]
    digit: Int[Tensor, " tokens"]
    place: Float[Tensor, " tokens"]

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, at: slice | Tensor) -> Targets:
        return Targets(*(getattr(self, field.name)[at] for field in fields(Targets)))

    @property
    def count(self) -> int:
        """How many are trained on."""
        return int(self.trained.sum())

    @property
    def digit_count(self) -> int:
        """How many of these are digits."""
        return int((self.trained & (self.digit >= 0)).sum())

    @staticmethod
    def join(parts: Sequence[Targets]) -> Targets:
        """One after the other."""
        return Targets(*(torch.cat([getattr(part, field.name) for part in parts]) for field in fields(Targets)))


@dataclass(frozen=True)
class Fused:
    """loss: the sum of the trained tokens' losses over `count`. gradient: of the loss on the rows, if asked for."""

    loss: float
    statistics: Statistics
    gradient: Float[Tensor, "tokens width"] | None


def fused(
    objective: Objective,
    rows: Float[Tensor, "tokens width"],
    head: Callable[[Tensor], Tensor],
    targets: Targets,
    *,
    vocabulary: int,
    digit_ids: Sequence[int],
    count: int,
    digit_count: int,
    embedding: Float[Tensor, "vocab width"] | None = None,
    weight: Float[Tensor, "vocab width"] | None = None,
    backward: bool = True,
    chunk: int | None = None,
) -> Fused:
    """Statistics of all targets and `objective` of the trained ones; with `backward` also its gradients.

    rows: what the head turns into logits (T, V) in float32 or better. The gradient on them is returned, not
    propagated; that on the head's own parameters is added to their `.grad`.
    count, digit_count: what the losses of tokens and digits are divided by; of all parts, where one step has several.
    embedding: rows of the output embedding, for EMO.
    weight: the head's, where it is rows @ weight.T and nothing else: its gradient is then added up in place, where
    autograd would make one of that size for every chunk.
    chunk: rows at a time; never changes a value beyond rounding.
    An objective that reads its batch reads it off these targets, if they are one chunk; with more of them, or if they
    are not all of the batch, it must be `settled` first. ValueError where it is not and they are several chunks.
    """
    chunk = chunk or chunk_rows(len(rows), vocabulary)
    if objective.needs_batch and len(rows) > chunk:
        raise ValueError(f"{objective.name} reads its batch: settle it first")
    unit = None
    if embedding is not None:
        unit = normalize(embedding.detach().to(torch.promote_types(embedding.dtype, torch.float32)), dim=-1)
    gradient = torch.zeros_like(rows) if backward else None
    share = count / max(digit_count, 1)
    parts: list[Statistics] = []
    total = 0.0
    for start in range(0, len(rows), chunk):
        piece = rows[start : start + chunk].detach()
        part = targets[start : start + len(piece)]
        learn = backward and bool(part.trained.any())
        piece.requires_grad_(learn)
        with torch.set_grad_enabled(learn and weight is None):
            logits = head(piece)
        statistics = measure(logits.detach(), part.ids, digit_ids)
        parts.append(statistics)
        if part.trained.any():
            # A head that hands its rows through lends them.
            z = logits.detach().clone() if logits.data_ptr() == piece.data_ptr() else logits.detach()
            value, push = _push(objective, z, statistics, part, digit_ids, share, unit, learn)
            total += value
            if push is not None and gradient is not None:
                gradient[start : start + len(piece)] = _back(logits, push.div_(count), piece, weight)
            del z, push
        del logits  # before the head makes the next
    return Fused(total / max(count, 1), Statistics.join(parts), gradient)


def _back(logits: Tensor, push: Tensor, piece: Tensor, weight: Tensor | None) -> Tensor:
    """A chunk's gradient through the head: added to its parameters', returned on the rows."""
    if weight is None:
        torch.autograd.backward(logits, push)
        return torch.zeros_like(piece) if piece.grad is None else piece.grad
    if weight.requires_grad:
        if weight.grad is None:
            weight.grad = torch.zeros_like(weight)
        weight.grad.addmm_(push.T, piece.detach())
    return push @ weight.detach()


def chunk_rows(tokens: int, vocabulary: int) -> int:
    """How many rows of logits to hold at a time."""
    return max(1, min(tokens, -(-_CHUNK_ELEMENTS // vocabulary)))


def tokens_of(statistics: Statistics, targets: Targets, vocabulary: int, share: float | None = None) -> Tokens:
    """The trained ones of `targets` as an objective sees them; share: see `losscore.objectives.tokens.Digits`."""
    at = targets.trained.nonzero().squeeze(-1)
    kept = statistics[at]
    tokens = Tokens.of(kept, vocabulary, sequence=targets.sequence[at])
    # A tokenizer without the ten digits has no digit targets, and statistics without digit logits.
    digit = targets.digit[at] if kept.digit_logits.shape[-1] else torch.full_like(at, -1)
    rows = (digit >= 0).nonzero().squeeze(-1)
    logits = kept.digit_logits[rows].clone().reshape(len(rows), 10).requires_grad_()
    return tokens.with_digits(logits, digit[rows], targets.place[at][rows], rows, share)


def _push(
    objective: Objective,
    logits: Float[Tensor, "tokens vocab"],
    statistics: Statistics,
    part: Targets,
    digit_ids: Sequence[int],
    share: float,
    unit: Tensor | None,
    learn: bool,
) -> tuple[float, Float[Tensor, "tokens vocab"] | None]:
    """The sum of the chunk's losses, and its gradient on the chunk's logits if there is to be one: in their place."""
    tokens = tokens_of(statistics, part, logits.shape[-1], share)
    at = part.trained.nonzero().squeeze(-1).to(logits.device)
    ids = part.ids.to(logits.device)
    if objective.needs_distribution:
        return _push_whole(objective, logits, tokens, at, ids, digit_ids, unit, learn)
    digits = tokens.digits
    assert digits is not None
    with torch.enable_grad():
        total = objective.per_token(tokens).sum()
        if not learn:
            return total.item(), None
        g, digit_gradient = torch.autograd.grad(total, [tokens.log_p, digits.logits], allow_unused=True)
    spread = torch.zeros(len(part), dtype=torch.float64)
    spread[part.trained] = g.double() if g is not None else 0.0
    g = spread.to(logits.device, logits.dtype)
    own = logits.gather(-1, ids[:, None])
    log_p = statistics.log_p.to(logits.device, logits.dtype)
    push = logits.sub_(own - log_p[:, None]).exp_().mul_(-g[:, None])  # nothing needs the logits any more
    push.scatter_add_(-1, ids[:, None], g[:, None])
    if digit_gradient is not None and len(digits.rows):
        rows = at[digits.rows.to(at.device)]
        columns = torch.tensor(list(digit_ids), device=logits.device)
        push[rows[:, None], columns] += digit_gradient.to(push)
    return total.item(), push


def _push_whole(
    objective: Objective,
    logits: Tensor,
    tokens: Tokens,
    at: Tensor,
    ids: Tensor,
    digit_ids: Sequence[int],
    unit: Tensor | None,
    learn: bool,
) -> tuple[float, Tensor | None]:
    with torch.enable_grad():
        z = logits.detach().requires_grad_()
        log_probs = torch.log_softmax(z[at], -1)
        log_p = log_probs.gather(-1, ids[at, None]).squeeze(-1)
        whole = replace(
            tokens.to(z.device, z.dtype),
            log_p=log_p,
            distribution=Distribution(log_probs, ids[at], None if unit is None else unit.to(z)),
        )
        if tokens.digits is not None and objective.needs_digits:
            rows = tokens.digits.rows.to(z.device)
            live = z[at[rows]][:, list(digit_ids)]
            whole = whole.with_digits(live, tokens.digits.digit, tokens.digits.place, rows, tokens.digits.share)
        total = objective.per_token(whole).sum()
        if not learn:
            return total.item(), None
        (push,) = torch.autograd.grad(total, z)
    return total.item(), push
