"""Tsallis: the deformed-log family between NLL and the linear loss."""

from __future__ import annotations

from typing import Annotated

import torch
from jaxtyping import Float
from torch import Tensor

from losscore.objectives.objective import objective
from losscore.objectives.parameter import Between
from losscore.objectives.tokens import Tokens


def deformed_log(log_p: Float[Tensor, " tokens"], a: Float[Tensor, " tokens"]) -> Float[Tensor, " tokens"]:
    """L_a = (1 - p^a) / a, its limit -log p at a = 0 (arXiv 2602.11424); dL/d log p = -p^a.

    >>> deformed_log(torch.log(torch.tensor([0.25])), torch.tensor([0.5]))
    tensor([1.])
    """
    x = a * log_p
    # 1 - exp has no digits left near 0, and expm1's own gradient, expm1 + 1, none far from it.
    rest = torch.where(x > -0.5, -torch.expm1(x), 1 - torch.exp(x))
    # Near a = 0 the quotient is 0 / 0: two terms of its series are exact to rounding there. Each branch gets harmless
    # numbers where the other one is taken, else its gradient would be NaN times 0.
    small = x.abs() < 1e-8
    near = torch.where(small, log_p, torch.zeros_like(log_p))
    return torch.where(small, -near * (1 + a * near / 2), rest / torch.where(small, torch.ones_like(a), a))


@objective(
    title="Tsallis",
    idea="Slides from cross-entropy (a = 0) to the linear loss (a = 1).",
    formula=r"(1 - p^a) / a",
    kind="probability-dominant",
    paper="2602.11424",
    reads=("log_p",),
)
def tsallis(
    tokens: Tokens, *, a: Annotated[float, Between(0.0, 2.0, "Focus index; 0 is cross-entropy, 1 is 1 − p.")] = 0.5
) -> Float[Tensor, " tokens"]:
    """L = (1 - p^a) / a; gate p^a."""
    return deformed_log(tokens.log_p, torch.full_like(tokens.log_p, a))
