"""DIST2Loss: learn a target that spreads over neighbouring digits by their squared distance."""

from __future__ import annotations

from typing import Annotated

import torch
from jaxtyping import Float
from torch import Tensor

from losscore.errors import LosscoreError
from losscore.objectives.objective import objective
from losscore.objectives.parameter import Between
from losscore.objectives.tokens import Tokens


@objective(
    title="DIST2Loss",
    idea="At a digit, asks for a bell around it instead of certainty.",
    formula=r"\mathrm{KL}\left(\mathrm{softmax}(-(d-\mathrm{digit})^2/\tau) \,\Vert\, \hat p\right)",
    kind="digits",
    paper="2503.02379",
    over="digits",
    differs="A term beside cross-entropy, as nll + 0.3 * dist2loss.",
    reads=(),
)
def dist2loss(
    tokens: Tokens, *, tau: Annotated[float, Between(0.05, 10.0, "Width of the bell; small is nearly one-hot.")] = 1.0
) -> Float[Tensor, " digits"]:
    """L = KL(softmax(-(d - digit)^2 / tau) || phat) over the digits that are not ruled out (a logit of -inf)."""
    if tokens.digits is None:
        raise LosscoreError("DIST2Loss needs to know the digits.")
    ruled_out = tokens.digits.logits.isneginf()
    log_target = torch.log_softmax((-(tokens.digits.distance**2) / tau).masked_fill(ruled_out, -torch.inf), -1)
    log_phat = torch.log_softmax(tokens.digits.logits, -1)
    return (log_target.exp() * (log_target - log_phat).masked_fill(ruled_out, 0.0)).sum(-1)
