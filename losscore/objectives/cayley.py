"""Cayley: the deformed-log loss whose focus index follows the target's own probability.

    a = (1 - sqrt(1 - p)) / (1 + sqrt(1 - p)),  held constant; gate p^a

a goes to 0 with p (there the loss is -log p) and to 1 with p. arXiv 2602.11424.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

Tokens = Float[Tensor, " tokens"]


def alpha(log_p: Tokens) -> Tokens:
    """a = p / (1 + sqrt(1 - p))^2: the fraction above, expanded so that a small p keeps its digits.

    >>> alpha(torch.log(torch.tensor([0.75])))
    tensor([0.3333])
    """
    root = torch.sqrt(-torch.expm1(log_p))
    return torch.exp(log_p) / (1 + root) ** 2
