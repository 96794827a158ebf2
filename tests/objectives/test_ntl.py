"""NTL-WAS with the published package's term for mass outside the digits, against the same written on full logits."""

from __future__ import annotations

import torch

from losscore import objectives
from losscore.objectives import Tokens, gradient_norm
from losscore.stats import measure

DIGIT_IDS = [5, 12, 9, 6, 13, 10, 7, 14, 11, 8]


def test_mass_outside_the_digits_costs_more_than_the_worst_digit() -> None:
    generator = torch.Generator().manual_seed(3)
    logits = torch.randn(4, 30, generator=generator, dtype=torch.float64)
    digit = torch.tensor([3, 0, 9, 5])
    labels = torch.tensor(DIGIT_IDS)[digit]
    full = logits.clone().requires_grad_()
    p = torch.softmax(full, -1)[:, DIGIT_IDS]
    mass = p.sum(-1)
    was = (p / mass[:, None] * (torch.arange(10) - digit[:, None]).abs()).sum(-1)
    expected = mass * was + 1.01 * 9 * (1 - mass)
    expected.sum().backward()

    ours = logits.clone().requires_grad_()
    found = objectives.ntl_was(
        ours[None],
        labels[None],
        reduction="none",
        shift=False,
        digit_ids=DIGIT_IDS,
        places=torch.zeros(1, 4),
        outside=True,
    )
    assert torch.allclose(found[0], expected, rtol=1e-12)
    found.sum().backward()
    assert torch.allclose(ours.grad, full.grad, rtol=1e-9, atol=1e-12)

    tokens = Tokens.of(measure(logits, labels), 30).with_digits(
        logits[:, DIGIT_IDS], digit.tolist(), [0.0] * 4, [0, 1, 2, 3]
    )
    norms = gradient_norm(objectives.ntl_was.with_parameters(outside=True), tokens)
    assert torch.allclose(norms, full.grad.abs().sum(-1), rtol=1e-9)
