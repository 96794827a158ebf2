"""RankTuner: weigh a token by how its rank compares with the rank that its place leads one to expect.

    f(x) = 1 / log2(x + 1)
    I = 2^(f(R) - f(E[R]))        indicator, above 1 where the model did better than expected
    S = 1 / I                     scale, in (1/2, 2): the loss is -S log p, S held constant

S = 1 where rank and expected rank agree. arXiv 2602.01745.

All functions take and return float tensors of one shape (one entry per token).
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor

Tokens = Float[Tensor, " tokens"]


def reciprocal_log(x: Tokens) -> Tokens:
    """f(x) = 1 / log2(x + 1): 1 at rank 1, falling to 0."""
    return 1 / torch.log2(x + 1)


def indicator(rank: Tokens, expected_rank: Tokens) -> Tokens:
    """I = 2^(f(R) - f(E[R])).

    >>> indicator(torch.tensor([1.0]), torch.tensor([3.0]))
    tensor([1.4142])
    """
    return torch.exp2(reciprocal_log(rank) - reciprocal_log(expected_rank))


def scale(rank: Tokens, expected_rank: Tokens) -> Tokens:
    """S = 1 / I: above 1 for the under-learned token, ranked worse than its place leads one to expect."""
    return torch.exp2(reciprocal_log(expected_rank) - reciprocal_log(rank))


def entropy_bound(entropy: Tokens) -> Tokens:
    """s(H) = 2^H / 4 + 1 with H in bits (`entropy` is in nats).

    A lower bound of E[R] where H is at least 2 bits (Massey 1994); below that it does not hold.
    """
    return torch.exp2(entropy / math.log(2)) / 4 + 1


def scale_from_bounds(log_p: Tokens, entropy: Tokens, rank: Tokens) -> Tokens:
    """The scale without sorting: S ~ (p s(H))^-K, with xi = max(R, s(H)) and K = log2(xi + 1)^-2.

    Taken in log space, where a vanishing p still has a logarithm.
    """
    bound = entropy_bound(entropy)
    exponent = torch.log2(torch.maximum(rank, bound) + 1) ** -2
    return torch.exp(-exponent * (log_p + torch.log(bound)))
