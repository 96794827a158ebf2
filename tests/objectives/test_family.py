"""What holds for every objective: values, gradients, and what must not change them."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from losscore.objectives import CATALOGUE, log_p
from tests.objectives.family import (
    DIGIT_IDS,
    DIGITS,
    FAMILY,
    GATES,
    OF_THE_BATCH,
    VOCABULARY,
    WHOLE,
    Batch,
    batch,
    flat,
    frozen,
    statistics_by_hand,
    tokens_of,
    with_logits,
)

every = pytest.mark.parametrize("name", FAMILY)
exact = {"rtol": 1e-12, "atol": 1e-14}


def test_the_list_leaves_no_objective_out() -> None:
    assert CATALOGUE.keys() <= FAMILY.keys()
    assert GATES.keys() == FAMILY.keys() - WHOLE


@every
def test_gradcheck_with_the_constants_held(name: str) -> None:
    one = batch(1, texts=2, time=6)
    logits, target, places, sequence = flat(one)
    tokens = tokens_of(logits, target, sequence=sequence, places=places)

    def per_token(z: torch.Tensor) -> torch.Tensor:
        return FAMILY[name].per_token(with_logits(tokens, z, target, one.embedding))

    assert torch.autograd.gradcheck(frozen(per_token), (logits.requires_grad_(),), atol=1e-6, rtol=1e-5, fast_mode=True)


@pytest.mark.parametrize("name", sorted(FAMILY.keys() - WHOLE - DIGITS))
def test_no_gradient_flows_through_a_weight(name: str) -> None:
    """dL/dz = gate (p_v - [v = y]) with the gate written out by hand: a live weight would add to it."""
    one = batch(2)
    logits, target, _, sequence = flat(one)
    gates = torch.tensor([GATES[name](s) for s in statistics_by_hand(logits, target, sequence)], dtype=torch.float64)
    error = torch.softmax(logits, -1) - torch.nn.functional.one_hot(target, VOCABULARY)
    expected = gates[:, None] * error / len(target)
    _, gradient = one.value_and_gradient(FAMILY[name])
    found = gradient[:, :-1][one.labels[:, 1:] != -100]
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-14)
    assert (gradient[:, :-1][one.labels[:, 1:] == -100] == 0).all()
    assert (gradient[:, -1] == 0).all()


@every
def test_the_drop_in_is_the_mean_of_the_per_token_losses(name: str) -> None:
    one = batch(3)
    logits, target, places, sequence = flat(one)
    tokens = with_logits(tokens_of(logits, target, sequence=sequence, places=places), logits, target, one.embedding)
    values = FAMILY[name].per_token(tokens).detach()
    torch.testing.assert_close(one.loss(FAMILY[name]).detach(), values.mean(), **exact)
    where = one.labels[:, 1:] != -100
    spread = one.loss(FAMILY[name], reduction="none").detach()
    assert spread.shape == (3, 6)
    torch.testing.assert_close(spread[where], values, **exact)
    assert (spread[~where] == 0).all()


@every
def test_reductions_agree(name: str) -> None:
    one = batch(4)
    mean = one.loss(FAMILY[name])
    torch.testing.assert_close(one.loss(FAMILY[name], reduction="none").sum() / one.targets, mean, **exact)
    torch.testing.assert_close(one.loss(FAMILY[name], reduction="sum") / one.targets, mean, **exact)
    counted = one.loss(FAMILY[name], count=one.targets, digit_count=one.digits)
    torch.testing.assert_close(counted, mean, **exact)
    tensors = one.loss(FAMILY[name], count=torch.tensor(one.targets), digit_count=torch.tensor(one.digits))
    torch.testing.assert_close(tensors, mean, **exact)


@pytest.mark.parametrize("name", sorted(FAMILY.keys() - OF_THE_BATCH))
def test_texts_added_up_are_the_batch(name: str) -> None:
    """Gradient accumulation: text after text, divided by the targets (and the digits) of all of them."""
    one = batch(5)
    value, gradient = one.value_and_gradient(FAMILY[name])
    counts = {"count": one.targets, "digit_count": one.digits}
    parts = [one.only(slice(i, i + 1)).value_and_gradient(FAMILY[name], **counts) for i in range(3)]
    torch.testing.assert_close(sum(part for part, _ in parts), value, **exact)
    torch.testing.assert_close(torch.cat([part for _, part in parts]), gradient, **exact)


@every
@pytest.mark.parametrize("rows", [1, 2, 5])
def test_chunks_change_nothing(name: str, rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    one = batch(6)
    value, gradient = one.value_and_gradient(FAMILY[name])
    monkeypatch.setattr(log_p, "CACHED", rows * VOCABULARY)
    monkeypatch.setattr(log_p, "LARGE", rows * VOCABULARY)
    again, gradient_again = one.value_and_gradient(FAMILY[name])
    torch.testing.assert_close(again, value, **exact)
    torch.testing.assert_close(gradient_again, gradient, **exact)


@every
def test_the_order_of_the_vocabulary_changes_nothing(name: str) -> None:
    one = batch(7)
    order = torch.randperm(VOCABULARY, generator=torch.Generator().manual_seed(7))
    place = order.argsort()
    mixed = Batch(
        one.logits[..., order],
        torch.where(one.labels == -100, -100, place[one.labels.clamp(min=0)]),
        one.places,
        one.embedding[order],
        tuple(place[DIGIT_IDS].tolist()),
    )
    value, gradient = one.value_and_gradient(FAMILY[name])
    again, gradient_again = mixed.value_and_gradient(FAMILY[name])
    torch.testing.assert_close(again, value, **exact)
    torch.testing.assert_close(gradient_again[..., place], gradient, **exact)


@every
def test_what_is_masked_could_as_well_be_absent(name: str) -> None:
    one = batch(8)
    masked = replace(one, labels=one.labels.clone(), places=one.places.clone(), logits=one.logits.clone())
    masked.labels[:, 5:], masked.places[:, 5:] = -100, torch.nan
    masked.logits[:, 4:] = torch.nan
    short = replace(one, logits=one.logits[:, :5], labels=one.labels[:, :5], places=one.places[:, :5])
    value, gradient = masked.value_and_gradient(FAMILY[name])
    expected, expected_gradient = short.value_and_gradient(FAMILY[name])
    torch.testing.assert_close(value, expected, **exact)
    torch.testing.assert_close(gradient[:, :4], expected_gradient[:, :4], **exact)
    assert (gradient[:, 4:] == 0).all()


@every
@pytest.mark.parametrize("logit", [torch.nan, torch.inf, -torch.inf])
def test_a_target_without_a_finite_log_probability_is_left_out(name: str, logit: float) -> None:
    one = batch(9)
    ignored = replace(one, labels=one.labels.clone(), places=one.places.clone())
    ignored.labels[1, 2], ignored.places[1, 2] = -100, torch.nan
    broken = replace(one, logits=one.logits.clone())
    broken.logits[1, 1, one.labels[1, 2]] = logit
    value, gradient = broken.value_and_gradient(FAMILY[name])
    expected, expected_gradient = ignored.value_and_gradient(FAMILY[name])
    torch.testing.assert_close(value, expected, **exact)
    torch.testing.assert_close(gradient, expected_gradient, **exact)


@every
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_a_batch_without_targets_is_nought_and_attached(name: str, reduction: str) -> None:
    one = batch(10)
    # The only label left stands first, where nothing predicts it.
    labels = torch.full_like(one.labels, -100)
    labels[:, 0] = one.labels[:, 0]
    empty = replace(one, labels=labels, places=torch.full_like(one.places, torch.nan))
    value, gradient = empty.value_and_gradient(FAMILY[name], reduction=reduction)
    assert (value == 0).all()
    assert (gradient == 0).all()
    value, gradient = replace(empty, logits=empty.logits * torch.nan).value_and_gradient(FAMILY[name])
    assert value == 0
    assert (gradient == 0).all()


@every
def test_nothing_but_the_logits_gets_a_gradient_and_none_is_needed(name: str) -> None:
    one = batch(11)
    live = replace(one, embedding=one.embedding.requires_grad_(), logits=one.logits.requires_grad_())
    live.loss(FAMILY[name]).backward()
    assert live.embedding.grad is None
    with torch.no_grad():
        still = live.loss(FAMILY[name])
    assert not still.requires_grad
    torch.testing.assert_close(still, live.loss(FAMILY[name]).detach(), **exact)


@pytest.mark.parametrize("name", sorted(DIGITS))
def test_texts_without_digits_add_nothing_over_digits(name: str) -> None:
    one = batch(12)
    plain = replace(one, places=torch.full_like(one.places, torch.nan))
    value, gradient = plain.value_and_gradient(FAMILY[name])
    words = {"sum": "nll", "del_loss": "nll", "mixture": "overtone"}
    expected, expected_gradient = (
        plain.value_and_gradient(CATALOGUE[words[name]])
        if name in words
        else (torch.zeros_like(value), torch.zeros_like(gradient))
    )
    torch.testing.assert_close(value, expected, **exact)
    torch.testing.assert_close(gradient, expected_gradient, **exact)
