"""EAFT: cross-entropy weighted by how undecided the model is among its 20 most probable tokens."""

from __future__ import annotations

from typing import Annotated, Literal

from jaxtyping import Float
from torch import Tensor

from losscore.objectives.objective import objective
from losscore.objectives.parameter import Between, OneOf
from losscore.objectives.tokens import Tokens, largest_top_entropy


@objective(
    title="EAFT",
    idea="Pushes where the model is undecided and lets go where it is sure, right or wrong.",
    formula=r"-\left(H_{20} / \ln 20\right)^{\beta} \log p",
    kind="entropy-dominant",
    paper="2601.02151",
    differs="Published code divides the entropy by 3.0 instead of ln 20 = 2.9957: `divisor`.",
    reads=("log_p", "top_entropy"),
)
def eaft(
    tokens: Tokens,
    *,
    power: Annotated[float, Between(0.0, 4.0, "Exponent β of the weight; 0 is cross-entropy.")] = 1.0,
    divisor: Annotated[Literal["ln 20", "3.0"], OneOf("What the top-20 entropy is divided by.")] = "ln 20",
) -> Float[Tensor, " tokens"]:
    """L = -(H_20 / ln 20)^power log p, the weight constant; H_20 the entropy of the renormalised top 20 (ln V where
    V < 20; 0^0 = 1). Uniform: weight 1; one-hot: 0."""
    largest = largest_top_entropy(tokens.vocabulary) if divisor == "ln 20" else 3.0
    share = tokens.top_entropy / largest if largest else 0 * tokens.top_entropy
    return -(share**power) * tokens.log_p
