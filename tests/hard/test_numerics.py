"""Logits at the ends of what numbers are: the right values and gradients, not just finite ones, on every path."""

from __future__ import annotations

import math
from decimal import Decimal, localcontext
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer, models
from torch import Tensor
from transformers import PreTrainedTokenizerFast

import losscore
from losscore import objectives
from losscore.errors import LosscoreError
from losscore.finetuning import FineTune
from losscore.fused import Targets, fused, tokens_of
from losscore.objectives import from_formula
from losscore.stats import measure
from tests.hard.test_exports import assert_reads_back
from tests.objectives.family import DIGIT_IDS, DIGITS, FAMILY, GATES, WHOLE
from tests.objectives.test_extremes import HUGE, ROWS, SIZE
from tests.tiny import mini_model

TARGET = 5  # digit 0
# Those whose target has a finite logarithm.
SOUND = {
    name: values
    for name, values in (ROWS | HUGE).items()
    if not any(map(math.isnan, values)) and max(values) < math.inf and values[TARGET] > -math.inf
}
# One number a token, known without the rest of the batch; not those whose limits are not written out.
BY_HAND = {
    name: gate
    for name, gate in GATES.items()
    if name not in DIGITS | WHOLE | {"talr", "formula", "ranktuner_bounds_fixed"}
} | {
    # Not through p, which may be below every double where this power of it is not.
    "tsallis_a1e-9": lambda read: math.exp(1e-9 * read["log_p"])
}
DTYPES = (torch.float64, torch.float32, torch.bfloat16, torch.float16)


def slowly(values: list[float]) -> tuple[dict[str, float], list[float]]:
    """What the equations read of a row and its p, in decimals of 60 digits."""
    with localcontext() as context:
        context.prec = 60
        exact = [Decimal(value) if value > -math.inf else None for value in values]
        top = max(value for value in exact if value is not None)
        # Below e^-5000 no double can be told from nought, and Decimal takes long.
        worth = [Decimal(0) if value is None or value - top < -5000 else (value - top).exp() for value in exact]
        total = sum(worth)
        p = [each / total for each in worth]
        own = exact[TARGET]
        assert own is not None
        log_p = own - top - total.ln()
        down = sorted(p, reverse=True)
        first = [each / sum(down[:20]) for each in down[:20]]
        read = {
            "log_p": log_p,
            "p": p[TARGET],
            "entropy": -sum((each * each.ln() for each in p if each), Decimal(0)),
            "rank": Decimal(sum(value is not None and value >= own for value in exact)),
            "expected_rank": sum((rank * each for rank, each in enumerate(down, 1)), Decimal(0)),
            "concentration": sum((each * each for each in p), Decimal(0)),
            "top_entropy": -sum((each * each.ln() for each in first if each), Decimal(0)),
        }
    return {name: float(value) for name, value in read.items()}, [float(each) for each in p]


def row(values: list[float], dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.tensor([[values]], dtype=torch.float64).to(dtype).requires_grad_()


@pytest.mark.parametrize("which", SOUND)
def test_statistics_are_those_of_slow_decimals(which: str) -> None:
    expected, _ = slowly(SOUND[which])
    found = measure(torch.tensor([SOUND[which]], dtype=torch.float64), torch.tensor([TARGET]))
    for name in ("log_p", "entropy", "rank", "expected_rank", "concentration"):
        assert float(getattr(found, name)) == pytest.approx(expected[name], rel=1e-12, abs=1e-14), name


@pytest.mark.parametrize("which", SOUND)
@pytest.mark.parametrize("name", BY_HAND)
def test_gradients_are_the_gate_written_out_times_p_less_the_target(name: str, which: str) -> None:
    logits = row(SOUND[which])
    (gradient,) = torch.autograd.grad(FAMILY[name](logits, torch.tensor([[TARGET]]), shift=False), logits)
    read, p = slowly(SOUND[which])
    if name == "ranktuner_bounds" and read["p"] < 1e-9:
        return  # there the weight is limited, which another test asks for
    gate = BY_HAND[name](read)
    expected = [gate * (each - (i == TARGET)) for i, each in enumerate(p)]
    assert gradient.flatten().tolist() == pytest.approx(expected, rel=1e-9, abs=1e-15)


def has(dtype: torch.dtype, values: list[float]) -> bool:
    return all(abs(value) <= torch.finfo(dtype).max for value in values if value > -math.inf)


@pytest.mark.parametrize(
    ("which", "dtype"), [(which, dtype) for which in SOUND for dtype in DTYPES if has(dtype, SOUND[which])], ids=str
)
def test_nll_and_its_gradient_in_every_dtype(which: str, dtype: torch.dtype) -> None:
    logits = row(SOUND[which], dtype)
    value = objectives.nll(logits, torch.tensor([[TARGET]]), shift=False)
    read, p = slowly(logits.detach().double().flatten().tolist())
    if read["log_p"] < -torch.finfo(torch.float32).max and dtype != torch.float64:
        assert float(value.detach()) == 0, "no float32 is that large: left out, as documented"
        return
    (gradient,) = torch.autograd.grad(value, logits)
    assert gradient.dtype == dtype
    assert float(value.detach()) == pytest.approx(-read["log_p"], rel=1e-6, abs=1e-7)
    expected = [each - (i == TARGET) for i, each in enumerate(p)]
    rounding = torch.finfo(dtype).eps if dtype in (torch.bfloat16, torch.float16) else 1e-6
    assert gradient.double().flatten().tolist() == pytest.approx(expected, rel=rounding, abs=1e-6)


def by_parts(name: str, rows: Tensor) -> tuple[float, Tensor]:
    """The loss that training takes, and its gradient on logits that nothing stands in front of."""
    count = len(rows)
    targets = Targets(
        torch.full((count,), TARGET),
        torch.zeros(count, dtype=torch.long),
        torch.ones(count, dtype=torch.bool),
        torch.zeros(count, dtype=torch.long),
        torch.ones(count, dtype=torch.float64),
    )
    settled = FAMILY[name]
    if settled.needs_batch:
        settled = settled.settled(tokens_of(measure(rows, targets.ids), targets, SIZE))
    done = fused(
        settled,
        rows,
        lambda piece: piece * 1.0,
        targets,
        vocabulary=SIZE,
        digit_ids=DIGIT_IDS,
        count=count,
        digit_count=count,
        embedding=_embedding(),
        chunk=4,
    )
    assert done.gradient is not None
    return done.loss, done.gradient


def _embedding() -> Tensor:
    return torch.randn(SIZE, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


@pytest.mark.parametrize("name", FAMILY)
def test_training_takes_the_same_loss_and_gradient_there(name: str) -> None:
    rows = torch.tensor([SOUND[which] for which in SOUND if which in ROWS], dtype=torch.float64)
    loss, gradient = by_parts(name, rows)
    logits = rows[None].clone().requires_grad_()
    value = FAMILY[name](
        logits,
        torch.full((1, len(rows)), TARGET),
        shift=False,
        digit_ids=DIGIT_IDS,
        places=torch.ones(1, len(rows), dtype=torch.float64),
        embedding=_embedding(),
    )
    (expected,) = torch.autograd.grad(value, logits)
    assert loss == pytest.approx(float(value.detach()), rel=1e-9, abs=1e-12)
    torch.testing.assert_close(gradient, expected[0], rtol=1e-7, atol=1e-12)


# A vocabulary of one -------------------------------------------------------------------------------------------------


def of_one_token() -> Any:
    """A model and a tokenizer that know "a" and nothing else."""
    backend = Tokenizer(models.BPE(vocab={"a": 0}, merges=[]))
    return mini_model(PreTrainedTokenizerFast(tokenizer_object=backend))


def test_a_model_of_one_token_is_certain_of_it() -> None:
    model = of_one_token()
    assert model.vocabulary == 1
    sheet = losscore.score(model, "aaaa", objectives=[name for name in FAMILY if name in objectives.CATALOGUE])
    assert len(sheet) == 4
    for name, value in {
        "p": 1.0,
        "log_p": 0.0,
        "entropy": 0.0,
        "rank": 1,
        "expected_rank": 1.0,
        "concentration": 1.0,
        "ranktuner_indicator": 1.0,
        "ranktuner_scale": 1.0,
        "deft_alpha": 1.0,
        "deft_gate": 1.0,
        "cayley_alpha": 1.0,
        "cayley_gate": 1.0,
    }.items():
        assert [sheet.value(name, at) for at in range(4)] == [None, value, value, value], name
    assert sheet.top_tokens[1] == ("a",)
    assert_reads_back(sheet)


def test_there_is_nothing_to_learn_from_one_token() -> None:
    model = of_one_token()
    for name in ("nll", "deft", "talr", "overtone", "eaft", "del_loss"):
        with FineTune(model, "aaaa", objective=name, steps=2, method="full", probes=()) as tuning:
            *_, last = tuning
        assert last.loss == 0, name
        assert last.nll == 0, name


def test_a_formula_over_the_logarithm_of_one_is_refused_in_a_sentence() -> None:
    logits = torch.tensor([[[4.2], [-1.0]]], requires_grad=True)
    labels = torch.zeros(1, 2, dtype=torch.long)
    with pytest.raises(LosscoreError, match="divides by 0 at some token"):
        from_formula("entropy / log(V)")(logits, labels)
    (gradient,) = torch.autograd.grad(from_formula("p + 1 / expected_rank")(logits, labels), logits)
    assert gradient.eq(0).all()
