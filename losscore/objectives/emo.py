"""EMO: an earth mover's bound, that forgives mass on tokens whose embedding is near the target's."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor

from losscore.errors import LosscoreError
from losscore.objectives.objective import objective
from losscore.objectives.tokens import Tokens


@objective(
    title="EMO",
    idea="Moves mass towards the target, less urgently from tokens with a similar embedding.",
    formula=r"\tfrac12\left(\mathrm{const}\!\left(\tfrac{-\log p}{d}\right) d - \log p\right),\quad "
    r"d = 1 - \textstyle\sum_v q_v \langle e_y, e_v\rangle",
    kind="calibrated",
    paper="2310.04691",
    whole=True,
    reads=("log_p",),
)
def emo(tokens: Tokens) -> Float[Tensor, " tokens"]:
    """L = (const(nll / d) d + nll) / 2 with unit embedding rows e_v and d = 1 - sum_v q_v <e_y, e_v>.

    q = p, except that the target's own entry counts 0 in the value but keeps its gradient.

    Orthogonal rows forgive nothing: there the gate is (1 - p log p) / 2. The value is always nll.
    """
    whole = tokens.distribution
    if whole is None or whole.embedding is None:
        raise LosscoreError("EMO compares embeddings: call it with logits and the output embedding.")
    cost = (1 - whole.embedding[whole.target] @ whole.embedding.T).clamp(min=0.0)
    # The same d as a sum of what cannot be negative, sum_v p_v (1 - <e_y, e_v>) + const(p_y): nothing cancels.
    distance = (whole.log_probs.exp() * cost).sum(-1) + tokens.p
    nll = -tokens.log_p
    scale = nll.detach() / distance.detach().clamp(min=1e-8)
    moved = nll.detach() + scale * (distance - distance.detach())
    return (moved + nll) / 2
