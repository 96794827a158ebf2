"""OverTone: learn a smoothed target that keeps what the model itself finds nearly as good as its first guess."""

from __future__ import annotations

from typing import Annotated

import torch
from jaxtyping import Float
from torch import Tensor

from losscore.errors import LosscoreError
from losscore.objectives.objective import objective
from losscore.objectives.parameter import Between
from losscore.objectives.tokens import Tokens


def soft_target(
    log_probs: Float[Tensor, "tokens vocab"], target: Tensor, lam: float, n: float
) -> Float[Tensor, "tokens vocab"]:
    """lam onehot + (1 - lam) softmax over the logits less than n standard deviations below the largest.

    One-hot where that target's largest entry is not the label (the label may share it). The spread is the population's,
    over the finite logits; where it is 0 the first of the largest is kept alone.
    """
    one_hot = torch.nn.functional.one_hot(target, log_probs.shape[-1]).to(log_probs.dtype)
    top, first = log_probs.max(-1, keepdim=True)
    below = log_probs - top
    finite = below.isfinite()
    size = finite.sum(-1, keepdim=True)
    apart = (below - below.masked_fill(~finite, 0.0).sum(-1, keepdim=True) / size).masked_fill(~finite, 0.0)
    # In units of the largest distance: the square of a masking logit such as -1e30 is not a float32.
    unit = apart.abs().amax(-1, keepdim=True).clamp(min=torch.finfo(apart.dtype).tiny)
    spread = unit * (((apart / unit) ** 2).sum(-1, keepdim=True) / size).sqrt()
    near = (below > -n * spread).scatter(-1, first, True)
    own = torch.softmax(log_probs.masked_fill(~near, -torch.inf), -1)
    mixed = lam * one_hot + (1 - lam) * own
    largest = mixed.gather(-1, target[:, None]) >= mixed.amax(-1, keepdim=True)
    return torch.where(largest, mixed, one_hot)


@objective(
    title="OverTone",
    idea="Leaves some of the target's mass on the alternatives that the model rates nearly as high.",
    formula=r"\mathrm{KL}\left(\lambda\,[v=y] + (1-\lambda)\,\tilde p_v \,\Vert\, p_v\right)",
    kind="calibrated",
    paper="2502.00602",
    whole=True,
    reads=(),
)
def overtone(
    tokens: Tokens,
    *,
    lam: Annotated[float, Between(0.0, 1.0, "Share λ of the one-hot target; 1 is cross-entropy.")] = 0.9,
    n: Annotated[float, Between(0.0, 5.0, "How many standard deviations below the top logit still count.")] = 1.0,
) -> Float[Tensor, " tokens"]:
    """L = KL(target || model), the soft target held constant; gradient p_v - target_v."""
    if tokens.distribution is None:
        raise LosscoreError("OverTone looks at the whole distribution: call it with logits.")
    log_probs = tokens.distribution.log_probs
    q = soft_target(log_probs.detach(), tokens.distribution.target, lam, n)
    # Tokens without target mass are left out: 0 * log 0 would be NaN.
    cross = (q * log_probs.masked_fill(q == 0, 0.0)).sum(-1)
    return torch.xlogy(q, q).sum(-1) - cross
