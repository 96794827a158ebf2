"""Per-token objectives: one file each, the body the equation. Each is a drop-in loss on logits and labels.

>>> import torch
>>> from losscore import objectives
>>> logits, labels = torch.zeros(1, 4, 30), torch.tensor([[0, 5, 12, 8]])
>>> objectives.deft(logits, labels)
tensor(3.2155)

At digits some look at the ten digit logits, and objectives add up:

>>> digits, places = list(range(10)), torch.tensor([[torch.nan, 1.0, torch.nan, 0.0]])
>>> (objectives.nll + 0.3 * objectives.ntl_was)(logits, labels, digit_ids=digits, places=places)
tensor(4.3312)
"""

from losscore.objectives.catalogue import CATALOGUE, find
from losscore.objectives.formula import from_formula
from losscore.objectives.objective import Objective
from losscore.objectives.parameter import Parameter
from losscore.objectives.push import gate, gradient_norm, norms_from_logits, weight
from losscore.objectives.tokens import Tokens

# Behind each name stands the objective, no longer the module it was written in.
globals().update(CATALOGUE)

__all__ = [
    "CATALOGUE",
    "Objective",
    "Parameter",
    "Tokens",
    "find",
    "from_formula",
    "gate",
    "gradient_norm",
    "norms_from_logits",
    "weight",
    *CATALOGUE,
]
