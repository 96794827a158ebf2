"""RankTuner: weigh a token by how its rank compares with the rank that its place leads one to expect.

    f(x) = 1 / log2(x + 1)
    I = 2^(f(R) - f(E[R]))        indicator, above 1 where the model did better than expected
    S = 1 / I                     scale, in (1/2, 2): the loss is -S log p, S held constant

S = 1 where rank and expected rank agree. arXiv 2602.01745.

All functions take and return float tensors of one shape (one entry per token).
"""

from __future__ import annotations

import math
from typing import Annotated, Literal

import torch
from jaxtyping import Float
from torch import Tensor

from losscore.objectives.objective import objective
from losscore.objectives.parameter import Between, OneOf
from losscore.objectives.tokens import Tokens

Values = Float[Tensor, " tokens"]


def reciprocal_log(x: Values) -> Values:
    """f(x) = 1 / log2(x + 1): 1 at rank 1, falling to 0."""
    return 1 / torch.log2(x + 1)


def indicator(rank: Values, expected_rank: Values) -> Values:
    """I = 2^(f(R) - f(E[R])).

    >>> indicator(torch.tensor([1.0]), torch.tensor([3.0]))
    tensor([1.4142])
    """
    return torch.exp2(reciprocal_log(rank) - reciprocal_log(expected_rank))


def scale(rank: Values, expected_rank: Values, exponent: float = 0.0) -> Values:
    """S = 1 / I: above 1 for the under-learned token, ranked worse than its place leads one to expect.

    exponent: a fixed K in S = (R / E[R])^K instead of the one that the mean value theorem gives (0).
    """
    if exponent:
        return (rank / expected_rank) ** exponent
    return torch.exp2(reciprocal_log(expected_rank) - reciprocal_log(rank))


def entropy_bound(entropy: Values) -> Values:
    """s(H) = 2^H / 4 + 1 with H in bits (`entropy` is in nats).

    A lower bound of E[R] where H is at least 2 bits (Massey 1994); below that it does not hold.
    """
    return torch.exp2(entropy / math.log(2)) / 4 + 1


def scale_from_bounds(log_p: Values, entropy: Values, rank: Values, exponent: float = 0.0) -> Values:
    """The scale without sorting: S ~ (p s(H))^-K, with xi = max(R, s(H)) and K = log2(xi + 1)^-2, or a fixed K.

    Taken in log space, where a vanishing p still has a logarithm; at most 2^15, which no
    text comes near and every floating-point type holds.
    """
    bound = entropy_bound(entropy)
    power = torch.full_like(bound, exponent) if exponent else torch.log2(torch.maximum(rank, bound) + 1) ** -2
    return torch.exp((-power * (log_p + torch.log(bound))).clamp(max=15 * math.log(2)))


@objective(
    title="RankTuner",
    idea="Pushes more where the token ranks worse than its place leads one to expect, less where it ranks better.",
    formula=r"-w\,S \log p,\quad S = 2^{f(E[R]) - f(R)},\; f(x) = 1/\log_2(x+1)",
    kind="calibrated",
    paper="2602.01745",
    differs="`bounds` estimates S without sorting, as the paper does in practice; its bound does not hold below 2 bits "
    "of entropy. The paper's base weight is p for mathematics and 1 otherwise.",
    reads=lambda estimate, **_: ("log_p", "rank", "expected_rank" if estimate == "exact" else "entropy"),
)
def ranktuner(
    tokens: Tokens,
    *,
    estimate: Annotated[Literal["exact", "bounds"], OneOf("Expected rank by sorting, or from the bounds.")] = "exact",
    base: Annotated[Literal["1", "p"], OneOf("Base weight w: p for mathematics, as DFT.")] = "1",
    exponent: Annotated[float, Between(0.0, 2.0, "A fixed exponent K; 0 lets it follow rank and entropy.")] = 0.0,
) -> Values:
    """L = -w S log p, weight and scale constant; gate w S."""
    if estimate == "exact":
        weight = scale(tokens.rank, tokens.expected_rank, exponent)
    else:
        weight = scale_from_bounds(tokens.log_p.detach(), tokens.entropy, tokens.rank, exponent)
    return -(weight * tokens.p if base == "p" else weight) * tokens.log_p
