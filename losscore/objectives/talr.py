"""TALR: down-weigh a token by its probability, at a temperature read off the batch."""

from __future__ import annotations

from typing import Annotated

import torch
from jaxtyping import Float
from torch import Tensor

from losscore.objectives.objective import objective
from losscore.objectives.parameter import Between
from losscore.objectives.tokens import Tokens


def temperature(tokens: Tokens) -> Tensor:
    """tau: the median over the sequences of their mean NLL; of an even number, the mean of the middle two."""
    sizes = torch.bincount(tokens.sequence)
    sums = torch.bincount(tokens.sequence, weights=-tokens.log_p.detach())
    return (sums / sizes)[sizes > 0].quantile(0.5)


@objective(
    title="TALR",
    idea="Lowers the learning rate of improbable tokens, less so in a batch that is hard altogether.",
    formula=r"-\max(p^{1/\tau},\, w_{\min}) \log p",
    kind="probability-dominant",
    paper="2509.20758",
    from_batch={"tau": temperature},
    reads=("log_p",),
)
def talr(
    tokens: Tokens,
    *,
    tau: Annotated[float, Between(0.0, 100.0, "Temperature; 0 takes the batch's median of the mean NLL.")] = 0.0,
    floor: Annotated[float, Between(0.0, 1.0, "Smallest weight.")] = 0.01,
) -> Float[Tensor, " tokens"]:
    """L = -max(p^(1/tau), floor) log p, the weight constant; gate max(p^(1/tau), floor).

    With tau = 0 a token's weight depends on its batch, so batches added up are not the same as one.
    """
    if not len(tokens):
        return -tokens.log_p
    # A batch that is already certain has tau = 0, and there every p^(1/tau) is 1.
    heat = (torch.full_like(tokens.log_p[0], tau) if tau else temperature(tokens)).clamp(min=1e-12)
    return -torch.exp(tokens.log_p.detach() / heat).clamp(min=floor) * tokens.log_p
