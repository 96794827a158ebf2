"""NTL-WAS: a number token loss; the mean distance of the predicted digits from the digit."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from losscore.errors import LosscoreError
from losscore.objectives.objective import objective
from losscore.objectives.tokens import Tokens


@objective(
    title="NTL-WAS",
    idea="At a digit, penalises mass on far-away digits: the Wasserstein-1 distance to the digit.",
    formula=r"\textstyle\sum_d \hat p_d\, \lvert d - \mathrm{digit}\rvert",
    kind="digits",
    paper="2411.02083",
    over="digits",
    differs="A term beside cross-entropy, as nll + 0.3 * ntl_was; published code can add a term outside the number "
    "tokens, which is not part of this.",
)
def ntl_was(tokens: Tokens) -> Float[Tensor, " digits"]:
    """L = sum_d phat_d |d - digit| over the ten digits."""
    if tokens.digits is None:
        raise LosscoreError("NTL-WAS needs to know the digits.")
    return (torch.softmax(tokens.digits.logits, -1) * tokens.digits.distance).sum(-1)
