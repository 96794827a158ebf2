"""DEL, digit entropy loss: at a digit, push the ten digits' own distribution, weighted by the digit's place.

Over the ten digit logits z_d, with phat = softmax(z):

    criterion = sum_d phat_d BCE(sigmoid(z_d), [d = digit])
    penalty   = (alpha / 10) criterion u,    u = 2 (i + 1) for place i >= 0, 1.02^(i - 1) below

alpha = 0.01 (the authors use 0.1 for CodeLlama and Mistral). The loss adds the mean penalty over the digits to the
mean -log p over all targets; phat and the BCE both carry gradient. arXiv 2605.20369.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import logsigmoid

from losscore.errors import LosscoreError
from losscore.objectives.nll import nll
from losscore.objectives.objective import objective
from losscore.objectives.parameter import Between
from losscore.objectives.tokens import Tokens

DigitLogits = Float[Tensor, "digits 10"]
Values = Float[Tensor, " digits"]


def p_given_digit(digit_logits: DigitLogits) -> DigitLogits:
    """phat: the distribution over the ten digits alone."""
    return torch.softmax(digit_logits, -1)


def digit_entropy(digit_logits: DigitLogits) -> Values:
    """Entropy of phat in nats, between 0 and ln 10."""
    log_phat = torch.log_softmax(digit_logits, -1)
    # A finite floor: a digit that is ruled out (-inf) would give 0 * inf.
    return -(log_phat.exp() * log_phat.clamp(min=torch.finfo(log_phat.dtype).min)).sum(-1)


def criterion(digit_logits: DigitLogits, one_hot: DigitLogits) -> Values:
    """sum_d phat_d BCE(sigmoid(z_d), [d = digit]); the BCE is -log sigmoid(z) for the digit, -log sigmoid(-z) else."""
    # A finite floor: a digit that is ruled out (-inf) would give 0 * inf.
    z = digit_logits.clamp(min=torch.finfo(digit_logits.dtype).min)
    bce = -logsigmoid(z * (2 * one_hot - 1))
    return (torch.softmax(digit_logits, -1) * bce).sum(-1)


def place_weight(place: Values) -> Values:
    """u = 2 (i + 1) for i >= 0, 1.02^(i - 1) below: 2 for units, 4 for tens, 0.961 for tenths."""
    return torch.where(place >= 0, 2 * (place + 1), 1.02 ** (place - 1))


def penalty(digit_logits: DigitLogits, one_hot: DigitLogits, place: Values, *, alpha: float = 0.01) -> Values:
    """(alpha / 10) criterion u."""
    return alpha / 10 * criterion(digit_logits, one_hot) * place_weight(place)


@objective(
    title="DEL penalty",
    idea="At a digit, sharpens the ten digits' own distribution, more at places further left.",
    formula=r"\tfrac{\alpha}{10}\, u \textstyle\sum_d \hat p_d\, \mathrm{BCE}(\sigma(z_d), [d=\mathrm{digit}])",
    kind="digits",
    paper="2605.20369",
    over="digits",
    differs="The authors use alpha = 0.1 for CodeLlama and Mistral, 0.01 otherwise.",
    reads=(),
)
def del_penalty(
    tokens: Tokens, *, alpha: Annotated[float, Between(0.0, 1.0, "Strength of the digit penalty.")] = 0.01
) -> Values:
    """L = (alpha / 10) criterion u, at the digits."""
    if tokens.digits is None:
        raise LosscoreError("DEL needs to know the digits.")
    digits = tokens.digits
    return penalty(digits.logits, digits.one_hot, digits.place, alpha=alpha)


del_loss = replace(
    nll + del_penalty, name="del_loss", title="DEL", idea="Cross-entropy plus a penalty on the digits, by their place."
)
