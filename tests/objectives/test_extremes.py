"""Logits as large, as equal or as broken as they come: values and gradients stay finite."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch

from losscore import objectives
from losscore.objectives import gate
from tests.objectives.family import DIGIT_IDS, DIGITS, FAMILY, tokens_of

INF = math.inf
SIZE = 24


def row(**at: float) -> list[float]:
    """Nought but at the ids named, as v3=80."""
    values = [at.get("rest", 0.0)] * SIZE
    for name, value in at.items():
        if name != "rest":
            values[int(name[1:])] = value
    return values


# The target is token 5, which is digit 0.
ROWS: dict[str, list[float]] = {
    "uniform": row(),
    "hit": row(v5=80.0),
    "miss": row(v3=80.0),
    "miss by far": row(v3=110.0, v5=-110.0),
    "certain": row(v5=0.0, rest=-INF),
    "ruled out beside": row(v5=0.0, v6=0.0, rest=-INF),
    "ruled out": row(v5=-INF),
    "a digit is ruled out": row(v12=-INF, v9=-INF),
    "all but two digits are ruled out": row(v12=1.0, v6=-INF, v9=-INF, v13=-INF, v10=-INF, v7=-INF, v14=-INF, v11=-INF),
    "nothing is left": row(rest=-INF),
    "nan": row(v2=math.nan),
    "infinite": row(v2=INF),
    "tie at the top": row(v5=7.0, v6=7.0, v7=7.0),
    "half at its largest": row(v5=65504.0, rest=-65504.0),
    "half at its worst": row(v5=-65504.0, v1=65504.0),
    "shifted": row(v5=1e4, rest=9.99e3),
}
HUGE = {
    "huge hit": row(v5=1e30),
    "huge miss": row(v3=1e30),
    "huge both": row(v3=1e30, v5=-1e30),
    "masked": row(v5=1.0, v6=2.0, rest=-1e30),
    "masked target": row(v5=-1e30),
    "beyond a float32's logarithm": row(v3=3e38, v5=-3e38),
    "lowest": row(v5=0.0, rest=-3.4e38),
}


def loss(name: str, rows: list[list[float]], dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    logits = torch.tensor([rows], dtype=torch.float64).to(dtype).requires_grad_()
    labels = torch.full((1, len(rows)), 5)
    random = torch.Generator().manual_seed(0)
    value = FAMILY[name](
        logits,
        labels,
        shift=False,
        digit_ids=DIGIT_IDS,
        places=torch.ones(1, len(rows), dtype=torch.float64),
        embedding=torch.randn(SIZE, 4, generator=random),
    )
    return value.detach(), torch.autograd.grad(value, logits)[0]


@pytest.mark.parametrize("name", FAMILY)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_finite_whatever_the_logits(name: str, dtype: torch.dtype) -> None:
    rows = ROWS if dtype == torch.float16 else ROWS | HUGE
    for which, values in rows.items():
        value, gradient = loss(name, [values], dtype)
        assert value.isfinite(), which
        assert gradient.isfinite().all(), which
    value, gradient = loss(name, list(ROWS.values()), dtype)
    assert value.isfinite()
    assert gradient.isfinite().all()


@pytest.mark.parametrize("name", [name for name in FAMILY if name not in DIGITS and name != "formula"])
def test_a_vocabulary_of_one(name: str) -> None:
    logits = torch.tensor([[[4.2], [-1.0]]], requires_grad=True)
    value = FAMILY[name](logits, torch.zeros(1, 2, dtype=torch.long), embedding=torch.ones(1, 3))
    value.backward()
    assert float(value.detach()) == 0
    assert logits.grad.eq(0).all()


@pytest.mark.parametrize(
    ("rows", "entropy"), [([0.0, -INF], 0.0), ([0.0, 0.0, -INF], math.log(2)), ([65504.0, -65504.0], 0.0)]
)
def test_the_top_entropy_of_ruled_out_tokens(rows: list[float], entropy: float) -> None:
    tokens = tokens_of(torch.tensor([rows], dtype=torch.float64), torch.tensor([0]))
    assert tokens.top_entropy.tolist() == pytest.approx([entropy], abs=1e-15)


def test_a_probability_below_the_smallest_number_still_has_its_logarithm() -> None:
    logits = torch.tensor([[[0.0, -110.0]]], requires_grad=True)
    labels = torch.tensor([[1]])
    nll = objectives.nll(logits, labels, shift=False)
    assert float(nll.detach()) == pytest.approx(110.0, rel=1e-6)
    (gradient,) = torch.autograd.grad(nll, logits)
    assert gradient.tolist() == [[[1.0, -1.0]]]
    (gradient,) = torch.autograd.grad(objectives.dft(logits, labels, shift=False), logits)
    assert gradient.abs().max() < 1e-37
    assert gradient.isfinite().all()
    (gradient,) = torch.autograd.grad(objectives.cayley(logits, labels, shift=False), logits)
    torch.testing.assert_close(gradient, torch.tensor([[[1.0, -1.0]]]))


@pytest.mark.parametrize("entropy", [0.0, 2.0, 9.0])
@pytest.mark.parametrize("log_p", [-1e3, -1e30])
def test_the_bounds_of_ranktuner_do_not_run_away(log_p: float, entropy: float) -> None:
    values: dict[str, Any] = {"log_p": log_p, "entropy": entropy, "rank": 2.0}
    columns = {name: torch.tensor([value], dtype=torch.float64) for name, value in values.items()}
    base = tokens_of(torch.zeros(1, 4, dtype=torch.float64), torch.tensor([0]))
    weight = gate(FAMILY["ranktuner_bounds"], replace(base, **columns))
    assert 1 < float(weight) <= 2**15 * (1 + 1e-12)
