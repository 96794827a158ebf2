"""NLL: plain cross-entropy, the baseline that every other objective is compared with."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor

from losscore.objectives.objective import objective
from losscore.objectives.tokens import Tokens


@objective(
    title="NLL",
    idea="Pushes on every token in full, the more the less likely it was.",
    formula=r"-\log p",
    kind="baseline",
    reads=("log_p",),
)
def nll(tokens: Tokens) -> Float[Tensor, " tokens"]:
    """L = -log p; gate 1."""
    return -tokens.log_p
