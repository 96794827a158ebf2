"""Cayley: the deformed-log loss whose focus index follows the target's own probability.

    a = (1 - sqrt(1 - p)) / (1 + sqrt(1 - p)),  held constant; gate p^a

a goes to 0 with p (there the loss is -log p) and to 1 with p. arXiv 2602.11424.
"""

from __future__ import annotations

from typing import Annotated

import torch
from jaxtyping import Float
from torch import Tensor

from losscore.objectives.objective import objective
from losscore.objectives.parameter import OneOf
from losscore.objectives.tokens import Tokens
from losscore.objectives.tsallis import deformed_log

Values = Float[Tensor, " tokens"]


def alpha(log_p: Values, square_root: bool = True) -> Values:
    """a = p / (1 + sqrt(1 - p))^2: the fraction above, expanded so that a small p keeps its digits.

    square_root: without it a = (1 - (1 - p)) / (1 + (1 - p)) = p / (2 - p).

    >>> alpha(torch.log(torch.tensor([0.75])))
    tensor([0.3333])
    """
    rest = -torch.expm1(log_p)
    return torch.exp(log_p) / ((1 + torch.sqrt(rest)) ** 2 if square_root else 1 + rest)


@objective(
    title="Cayley",
    idea="Cross-entropy for unlikely tokens, the linear loss for likely ones.",
    formula=r"(1 - p^a) / a,\quad a = \frac{1 - \sqrt{1-p}}{1 + \sqrt{1-p}}",
    kind="gate",
    paper="2602.11424",
    differs="One published trainer leaves the square root out (`square_root`) and adds a floor taken from the batch, "
    "which is not offered here.",
    reads=("log_p",),
)
def cayley(
    tokens: Tokens, *, square_root: Annotated[bool, OneOf("With the square root, as in the paper.")] = True
) -> Values:
    """L = (1 - p^a) / a with a = (1 - r) / (1 + r), r = sqrt(1 - p) (or 1 - p), held constant; gate p^a."""
    return deformed_log(tokens.log_p, alpha(tokens.log_p.detach(), square_root))
