"""How hard an objective pushes: its gate, its gradient on all logits, its weight."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from losscore import objectives
from losscore.errors import LosscoreError
from losscore.objectives import Tokens, gate, gradient_norm, norms_from_logits, weight
from tests.objectives.family import (
    DIGIT_IDS,
    DIGITS,
    FAMILY,
    GATES,
    WHOLE,
    Batch,
    batch,
    flat,
    statistics_by_hand,
    tokens_of,
)

exact = {"rtol": 1e-9, "atol": 1e-13}
streamed = pytest.mark.parametrize("name", sorted(FAMILY.keys() - WHOLE))
every = pytest.mark.parametrize("name", FAMILY)


def known(one: Batch) -> tuple[torch.Tensor, torch.Tensor, Tokens]:
    logits, target, places, sequence = flat(one)
    return logits, target, tokens_of(logits, target, sequence=sequence, places=places)


def norms_by_autograd(one: Batch, name: str) -> torch.Tensor:
    _, gradient = one.value_and_gradient(FAMILY[name], reduction="sum")
    return gradient[:, :-1][one.labels[:, 1:] != -100].abs().sum(-1)


@streamed
@pytest.mark.parametrize("seed", range(3))
def test_the_gate_is_the_weight_written_by_hand(name: str, seed: int) -> None:
    logits, target, tokens = known(batch(seed))
    statistics = statistics_by_hand(logits, target, tokens.sequence)
    expected = torch.tensor([GATES[name](s) for s in statistics], dtype=torch.float64)
    torch.testing.assert_close(gate(FAMILY[name], tokens), expected, **exact)


@streamed
@pytest.mark.parametrize("seed", range(3))
def test_the_gradient_norm_needs_no_logits(name: str, seed: int) -> None:
    one = batch(seed)
    _, _, tokens = known(one)
    torch.testing.assert_close(gradient_norm(FAMILY[name], tokens), norms_by_autograd(one, name), **exact)


@every
def test_the_gradient_norm_from_logits(name: str) -> None:
    one = batch(3)
    logits, target, tokens = known(one)
    found = norms_from_logits(FAMILY[name], logits, target, tokens, one.embedding, DIGIT_IDS)
    torch.testing.assert_close(found, norms_by_autograd(one, name), **exact)
    with torch.no_grad():
        again = norms_from_logits(FAMILY[name], logits, target, tokens, one.embedding, DIGIT_IDS)
    torch.testing.assert_close(again, found, rtol=0, atol=0)


@pytest.mark.parametrize("name", sorted(FAMILY.keys() - WHOLE - DIGITS))
def test_the_weight_is_the_gate(name: str) -> None:
    _, _, tokens = known(batch(4))
    found = weight(gradient_norm(FAMILY[name], tokens), tokens)
    torch.testing.assert_close(found, gate(FAMILY[name], tokens), **exact)


def test_the_weight_of_nll_is_one() -> None:
    _, _, tokens = known(batch(5))
    found = weight(gradient_norm(objectives.nll, tokens), tokens)
    torch.testing.assert_close(found, torch.ones_like(found), **exact)


def test_nothing_pushes_where_p_is_one() -> None:
    tokens = tokens_of(torch.tensor([[0.0, -torch.inf], [0.0, 0.0]], dtype=torch.float64), torch.tensor([0, 0]))
    assert weight(gradient_norm(objectives.deft, tokens), tokens).isnan().tolist() == [True, False]


@streamed
def test_the_push_is_asked_without_touching_the_tokens(name: str) -> None:
    _, _, tokens = known(batch(6))
    with torch.no_grad():
        first = gate(FAMILY[name], tokens), gradient_norm(FAMILY[name], tokens)
    assert tokens.log_p.grad is None
    assert not any(push.requires_grad for push in first)
    torch.testing.assert_close(gradient_norm(FAMILY[name], tokens), first[1], rtol=0, atol=0)


@every
def test_no_tokens_no_push(name: str) -> None:
    one = batch(7)
    logits, target, tokens = known(one)
    none = tokens.rows([]).with_digits(torch.zeros(0, 10, dtype=torch.float64), [], [], [])
    assert norms_from_logits(FAMILY[name], logits[:0], target[:0], none, one.embedding, DIGIT_IDS).shape == (0,)
    if name not in WHOLE:
        assert gate(FAMILY[name], none).shape == gradient_norm(FAMILY[name], none).shape == (0,)


@pytest.mark.parametrize("name", sorted(WHOLE))
def test_objectives_of_the_whole_distribution_have_no_gate(name: str) -> None:
    _, _, tokens = known(batch(8))
    for ask in (gate, gradient_norm):
        with pytest.raises(LosscoreError, match=r"looks at the whole distribution: its gradient needs the logits\."):
            ask(FAMILY[name], tokens)


def test_the_digits_of_a_mixture_are_not_forgotten() -> None:
    one = batch(9)
    logits, target, tokens = known(one)
    with pytest.raises(LosscoreError, match="give the ten digit_ids"):
        norms_from_logits(FAMILY["mixture"], logits, target, tokens, one.embedding)


def test_some_of_the_tokens_push_as_before() -> None:
    _, _, tokens = known(batch(9))
    some = tokens.rows([4, 1])
    torch.testing.assert_close(gate(objectives.ranktuner, some), gate(objectives.ranktuner, tokens)[[4, 1]])
    assert some.sequence.tolist() == tokens.sequence[[4, 1]].tolist()
    narrow = tokens.to(torch.device("cpu"), torch.float32)
    assert gate(objectives.deft, narrow).dtype == torch.float32
    torch.testing.assert_close(gate(objectives.deft, narrow).double(), gate(objectives.deft, tokens), rtol=1e-5, atol=0)


def test_ruled_out_digits_push_nowhere() -> None:
    logits, target, tokens = known(batch(9))
    assert tokens.digits is not None
    wrong = (int(tokens.digits.digit[0]) + 1) % 10
    logits[tokens.digits.rows[0], DIGIT_IDS[wrong]] = -torch.inf
    places = torch.full((len(target),), torch.nan, dtype=torch.float64)
    places[tokens.digits.rows] = tokens.digits.place
    ruled = tokens_of(logits, target, places=places)
    for name in ("ntl_was", "dist2loss", "del_loss"):
        expected = norms_from_logits(FAMILY[name], logits, target, ruled, None, DIGIT_IDS)
        torch.testing.assert_close(gradient_norm(FAMILY[name], ruled), expected, **exact)
        assert expected.isfinite().all()


def test_a_share_of_ones_own() -> None:
    _, _, tokens = known(batch(9))
    assert tokens.digits is not None
    once = replace(tokens, digits=replace(tokens.digits, share=1.0))
    ratio = len(tokens) / len(tokens.digits.rows)
    usual = objectives.ntl_was.per_token(tokens).detach()
    torch.testing.assert_close(objectives.ntl_was.per_token(once).detach() * ratio, usual)
