"""NTL-WAS: a number token loss; the mean distance of the predicted digits from the digit."""

from __future__ import annotations

from typing import Annotated

import torch
from jaxtyping import Float
from torch import Tensor

from losscore.errors import LosscoreError
from losscore.objectives.objective import objective
from losscore.objectives.parameter import OneOf
from losscore.objectives.tokens import Tokens


@objective(
    title="NTL-WAS",
    idea="At a digit, penalises mass on far-away digits: the Wasserstein-1 distance to the digit.",
    formula=r"\textstyle\sum_d \hat p_d\, \lvert d - \mathrm{digit}\rvert",
    kind="digits",
    paper="2411.02083",
    over="digits",
    differs="A term beside cross-entropy, as nll + 0.3 * ntl_was. The published package also lifts the loss where the "
    "model expects no digit at all: `outside`.",
    reads=lambda outside: ("log_p",) if outside else (),
)
def ntl_was(
    tokens: Tokens,
    *,
    outside: Annotated[bool, OneOf("With the package's extra term for mass outside the digits.")] = False,
) -> Float[Tensor, " digits"]:
    """L = sum_d phat_d |d - digit| over the ten digits; with `outside`, m L + 1.01 * 9 (1 - m), m the digits' mass."""
    if tokens.digits is None:
        raise LosscoreError("NTL-WAS needs to know the digits.")
    digits = tokens.digits
    log_phat = torch.log_softmax(digits.logits, -1)
    loss = (log_phat.exp() * digits.distance).sum(-1)
    if not outside:
        return loss
    # p = m phat at the target; at most 1, whatever the rounding.
    own = log_phat.gather(-1, digits.digit[:, None]).squeeze(-1)
    mass = torch.exp((tokens.log_p[digits.rows].to(own.dtype) - own).clamp(max=0.0))
    return mass * loss + 1.01 * 9 * (1 - mass)
