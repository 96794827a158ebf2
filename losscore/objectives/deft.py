"""DEFT: trust a token's gradient as far as the distribution is undecided.

The deformed-log family L_a = (1 - p^a) / a has the gradient p^a (p_v - [v = y]): error times the trust gate p^a.
DEFT sets the focus index a to the concentration of the distribution, a = C = sum_v p_v^2, held constant: a confident
model (C near 1) lets go of a token it finds unlikely, an undecided one (C near 0) learns as with -log p.
arXiv 2602.11424.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from losscore.objectives.objective import objective
from losscore.objectives.tokens import Tokens
from losscore.objectives.tsallis import deformed_log

Values = Float[Tensor, " tokens"]


def alpha(concentration: Values) -> Values:
    """a = sum_v p_v^2, in (0, 1]."""
    return concentration


def gate(log_p: Values, focus: Values) -> Values:
    """p^a = -dL/d log p, in [0, 1]: 1 for p = 1 or a = 0.

    >>> gate(torch.log(torch.tensor([0.25])), torch.tensor([0.5]))
    tensor([0.5000])
    """
    # 0 * log 0 is NaN, and Cayley's a goes to 0 with p.
    return torch.where(focus == 0, 1.0, torch.exp(focus * log_p))


@objective(
    title="DEFT",
    idea="Trusts the gradient where the model is undecided; a sure model lets go of what it doubts.",
    formula=r"(1 - p^a) / a,\quad a = \textstyle\sum_v p_v^2",
    kind="gate",
    paper="2602.11424",
    reads=("log_p", "concentration"),
)
def deft(tokens: Tokens) -> Values:
    """L = (1 - p^a) / a with a = sum_v p_v^2 constant; gate p^a."""
    return deformed_log(tokens.log_p, alpha(tokens.concentration))
