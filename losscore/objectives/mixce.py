"""MixCE: a mixture of forward and reverse cross-entropy."""

from __future__ import annotations

from typing import Annotated

from jaxtyping import Float
from torch import Tensor

from losscore.objectives.objective import objective
from losscore.objectives.parameter import Between
from losscore.objectives.tokens import Tokens


@objective(
    title="MixCE",
    idea="Half cross-entropy, half its self-reinforcing mirror that follows the model's own probability.",
    formula=r"-\left(\eta + (1-\eta)\,\mathrm{const}(p)\right) \log p",
    kind="probability-dominant",
    paper="2305.16958",
    reads=("log_p",),
)
def mixce(
    tokens: Tokens, *, eta: Annotated[float, Between(0.0, 1.0, "Share of plain cross-entropy; 1 is all of it.")] = 0.5
) -> Float[Tensor, " tokens"]:
    """L = -(eta + (1 - eta) p) log p, the weight constant."""
    return -(eta + (1 - eta) * tokens.p) * tokens.log_p
