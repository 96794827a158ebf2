"""DFT: cross-entropy weighted by the token's own probability."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor

from losscore.objectives.objective import objective
from losscore.objectives.tokens import Tokens


@objective(
    title="DFT",
    idea="Weighs each token by its own probability, held constant.",
    formula=r"-\mathrm{const}(p)\,\log p",
    kind="probability-dominant",
    paper="2508.05629",
    reads=("log_p",),
)
def dft(tokens: Tokens) -> Float[Tensor, " tokens"]:
    """L = -p log p with the weight p constant; gate p."""
    return -tokens.p * tokens.log_p
