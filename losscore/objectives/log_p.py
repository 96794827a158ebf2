"""log p of some rows of logits, and its gradient on all of them: written once, a few rows at a time.

    dL/dz_v = g ([v = y] - p_v),   g = dL / d log p,   plus what comes back through the ten digit logits

Nothing is kept for the backward pass beside the logits, which are there anyway: the softmax is taken again.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from losscore.errors import LosscoreError

# Elements of the logits that are looked at together: for each thread of the CPU as many as stay in its cache from one
# pass to the next, elsewhere enough to be worth a launch.
CACHED, LARGE = 1 << 18, 1 << 23


def wide(logits: Tensor) -> Tensor:
    """float64 as it is, everything else as float32."""
    return logits if logits.dtype == torch.float64 else logits.float()


def pieces(rows: Tensor, at: Tensor, *, cached: bool = True) -> Iterator[tuple[slice, slice | Tensor]]:
    """The rows `at` (ascending) in groups: where they stand in `at`, and which they are.

    Rows that lie one after the other are a slice, so that `rows[...]` is no copy. cached: without it the groups are
    large on the CPU too, for what cuts them up itself.
    """
    elements = CACHED * torch.get_num_threads() if cached and rows.device.type == "cpu" else LARGE
    size = max(1, elements // rows.shape[-1])
    for start in range(0, len(at), size):
        group = at[start : start + size]
        yield slice(start, start + len(group)), adjacent(group)


def adjacent(at: Tensor) -> slice | Tensor:
    """The same rows as a slice if they lie one after the other."""
    if not len(at):
        return slice(0)
    first, last = int(at[0]), int(at[-1])
    return slice(first, last + 1) if last - first == len(at) - 1 else at


@torch.no_grad()
def log_p_of(
    rows: Float[Tensor, "rows vocab"], at: Int[Tensor, " tokens"], target: Int[Tensor, " tokens"]
) -> Float[Tensor, " tokens"]:
    """log p of `target` at the rows `at`; not finite where the row or the target's logit is not."""
    found = wide(rows[:0]).new_empty(len(at))
    for where, index in pieces(rows, at):
        log_probs = torch.log_softmax(wide(rows[index]), -1)
        found[where] = log_probs.gather(-1, target[where, None]).squeeze(-1)
    return found


@torch.no_grad()
def bound_of(
    rows: Float[Tensor, "rows vocab"], at: Int[Tensor, " tokens"], target: Int[Tensor, " tokens"]
) -> Float[Tensor, " tokens"]:
    """z_y - max_v z_v, which log p is not above, and at most ln V below: finite where log p is, and much cheaper."""
    found = wide(rows[:0]).new_empty(len(at))
    for where, index in pieces(rows, at):
        z = rows[index]
        found[where] = wide(z.gather(-1, target[where, None]).squeeze(-1)) - wide(z.amax(-1))
    return found


def live(
    rows: Float[Tensor, "rows vocab"],
    log_p: Float[Tensor, " tokens"],
    at: Int[Tensor, " tokens"],
    target: Int[Tensor, " tokens"],
    digit_at: Int[Tensor, " digits"],
    digit_ids: Int[Tensor, " ids"],
) -> tuple[Float[Tensor, " tokens"], Float[Tensor, "digits ids"]]:
    """What an objective differentiates: log p of the rows `at`, its values known, and the logits `digit_ids` of others.

    The gradient on `rows` has their dtype. LosscoreError where it is to be differentiated again.
    """
    found: tuple[Tensor, Tensor] = _Live.apply(rows, log_p, at, target, digit_at, digit_ids)  # type: ignore[no-untyped-call]
    return found


class _Live(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, rows: Tensor, log_p: Tensor, at: Tensor, target: Tensor, digit_at: Tensor, digit_ids: Tensor
    ) -> tuple[Tensor, Tensor]:
        ctx.save_for_backward(rows, at, target, digit_at, digit_ids)
        return log_p.clone(), wide(rows[digit_at[:, None], digit_ids])

    @staticmethod
    def backward(ctx: Any, g: Tensor, digit_gradient: Tensor) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled():
            raise LosscoreError(
                "A drop-in loss can be differentiated only once: take its gradient without create_graph=True."
            )
        rows, at, target, digit_at, digit_ids = ctx.saved_tensors
        gradient = _zeros_like(rows)
        for where, index in pieces(rows, at):
            own = g[where, None]
            if not own.any():  # terms over digits alone
                continue
            in_place = isinstance(index, slice) and rows.dtype == g.dtype
            push = torch.softmax(wide(rows[index]), -1, out=gradient[index] if in_place else None)
            push.mul_(-own).scatter_add_(-1, target[where, None], own)
            if not in_place:
                gradient[index] = push.to(gradient.dtype)
        gradient.index_put_((digit_at[:, None], digit_ids), digit_gradient.to(gradient.dtype), accumulate=True)
        return gradient, None, None, None, None, None


def _zeros_like(rows: Tensor) -> Tensor:
    size = rows.numel() * rows.element_size()
    if rows.device.type != "cpu" or not size:
        return torch.zeros_like(rows)
    # New pages are zero, and one that nothing is written to is never made: most of them, where only digits learn.
    pages = mmap.mmap(-1, size, access=mmap.ACCESS_COPY)
    return torch.frombuffer(pages, dtype=rows.dtype).view(rows.shape)
