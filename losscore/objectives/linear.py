"""Linear: one minus the probability, the deformed-log loss at a = 1."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from losscore.objectives.objective import objective
from losscore.objectives.tokens import Tokens
from losscore.objectives.tsallis import deformed_log


@objective(
    title="Linear",
    idea="Trusts what the model already finds likely: the push shrinks with p.",
    formula=r"1 - p",
    kind="probability-dominant",
    paper="2602.11424",
    reads=("log_p",),
)
def linear(tokens: Tokens) -> Float[Tensor, " tokens"]:
    """L = 1 - p; gate p, the same gradient as DFT's."""
    return deformed_log(tokens.log_p, torch.ones_like(tokens.log_p))
