"""NTL-MSE: a number token loss; the squared error of the expected digit."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from losscore.errors import LosscoreError
from losscore.objectives.objective import objective
from losscore.objectives.tokens import Tokens


@objective(
    title="NTL-MSE",
    idea="At a digit, the squared error of the mean predicted digit; opposite errors can cancel.",
    formula=r"\left(\textstyle\sum_d \hat p_d\, d - \mathrm{digit}\right)^2",
    kind="digits",
    paper="2411.02083",
    over="digits",
    differs="A term beside cross-entropy, as nll + 0.3 * ntl_mse.",
    reads=(),
)
def ntl_mse(tokens: Tokens) -> Float[Tensor, " digits"]:
    """L = (sum_d d phat_d - digit)^2 over the ten digits."""
    if tokens.digits is None:
        raise LosscoreError("NTL-MSE needs to know the digits.")
    digits = tokens.digits
    values = torch.arange(10, dtype=digits.logits.dtype, device=digits.logits.device)
    return (torch.softmax(digits.logits, -1) @ values - digits.digit) ** 2
