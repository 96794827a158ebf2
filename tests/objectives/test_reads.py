"""What an objective says that it reads is what it reads, and the drop-in loss computes no more than that."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import product
from typing import Any, NoReturn

import pytest
import torch

from losscore import objectives
from losscore.errors import LosscoreError
from losscore.objectives import CATALOGUE, Objective, Tokens, drop_in, from_formula
from losscore.objectives.objective import objective
from losscore.objectives.tokens import READABLE, STATISTICS
from tests.objectives.family import FAMILY, WHOLE, batch, flat, tokens_of, with_logits

MEASURED = {name for name, one in FAMILY.items() if one.reads & set(STATISTICS)}
every = pytest.mark.parametrize("name", FAMILY)


def settings(one: Objective) -> Iterator[Objective]:
    """It with every value of its choices and switches, its numbers as they are and at the other end of their range."""
    values = {
        name: parameter.choices
        or ((False, True) if isinstance(parameter.default, bool) else (parameter.default, parameter.high))
        for name, parameter in one.parameters.items()
    }
    for chosen in product(*values.values()):
        yield one.with_parameters(**dict(zip(values, chosen, strict=True)))


def value_and_gradient(
    one: Objective, columns: Iterable[str] = (), factor: float = math.nan
) -> tuple[torch.Tensor, torch.Tensor]:
    """Each token's loss and the gradient on the logits; `columns`, cut off from the logits, times that factor."""
    some = batch(1)
    logits, target, places, sequence = flat(some)
    logits = logits.requires_grad_()
    tokens = tokens_of(logits.detach(), target, sequence=sequence, places=places)
    tokens = with_logits(tokens, logits, target, some.embedding)
    changed = {name: (getattr(tokens, name).detach() * factor).requires_grad_() for name in columns}
    values = one.per_token(replace(tokens, **changed))
    (gradient,) = torch.autograd.grad(values.sum(), logits, materialize_grads=True)
    return values.detach(), gradient


@every
def test_what_it_does_not_say_that_it_reads_changes_nothing(name: str) -> None:
    for one in settings(FAMILY[name]):
        unread = set(READABLE) - one.reads
        value, gradient = value_and_gradient(one)
        again, gradient_again = value_and_gradient(one, unread)
        assert torch.equal(again, value), (one.label, unread)
        assert torch.equal(gradient_again, gradient), (one.label, unread)


@every
def test_what_it_says_that_it_reads_changes_its_loss_in_some_setting(name: str) -> None:
    declared, seen = set[str](), set[str]()
    for one in settings(FAMILY[name]):
        declared |= one.reads
        value, _ = value_and_gradient(one)
        seen |= {name for name in one.reads if not torch.equal(value_and_gradient(one, [name], 1.5)[0], value)}
    assert seen == declared


def test_what_a_few_say() -> None:
    assert objectives.nll.reads == {"log_p"}
    assert objectives.deft.reads == {"log_p", "concentration"}
    assert objectives.ranktuner.reads == {"log_p", "rank", "expected_rank"}
    assert objectives.ranktuner.with_parameters(estimate="bounds").reads == {"log_p", "rank", "entropy"}
    assert objectives.ntl_was.reads == objectives.del_penalty.reads == set()
    assert objectives.ntl_was.with_parameters(outside=True).reads == {"log_p"}
    assert (objectives.eaft + 0.3 * objectives.ntl_was).reads == {"log_p", "top_entropy"}
    assert from_formula("p if rank > 3 else 1/log(V)").reads == {"log_p", "rank"}
    assert from_formula("1").reads == {"log_p"}


def test_an_objective_that_does_not_say_reads_everything() -> None:
    def silent(tokens: Tokens) -> torch.Tensor:
        return -tokens.entropy * tokens.log_p

    assert objective(title="Silent", idea="", formula="", kind="baseline")(silent).reads == set(READABLE)


@pytest.mark.parametrize("names", [("log_p", "entropi"), "log_p"])
def test_a_column_that_there_is_not_is_refused(names: Any) -> None:
    @objective(title="Wrong", idea="", formula="", kind="baseline", reads=names)
    def wrong(tokens: Tokens) -> torch.Tensor:
        return -tokens.log_p

    with pytest.raises(ValueError, match=r"wrong can read log_p, entropy, rank, .* only, not "):
        _ = wrong.reads


def test_a_statistic_that_was_not_declared_gives_no_number() -> None:
    @objective(title="Sly", idea="", formula="", kind="baseline", reads=("log_p",))
    def sly(tokens: Tokens) -> torch.Tensor:
        return -tokens.entropy * tokens.log_p

    assert batch(2).loss(sly).isnan()


def refused(*_: Any, **__: Any) -> NoReturn:
    raise AssertionError("this was not to be computed")


@pytest.mark.parametrize("name", sorted(FAMILY.keys() - MEASURED))
def test_statistics_are_not_taken_for_what_reads_none(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    one = batch(3)
    expected, gradient = one.value_and_gradient(FAMILY[name])
    monkeypatch.setattr(drop_in, "measure", refused)
    value, again = one.value_and_gradient(FAMILY[name])
    assert torch.equal(value, expected)
    assert torch.equal(again, gradient)


@pytest.mark.parametrize("name", sorted(MEASURED))
def test_log_p_is_taken_once_with_the_statistics(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drop_in, "log_p_of", refused)
    assert batch(3).loss(FAMILY[name]).isfinite()


@pytest.mark.parametrize("name", [name for name in CATALOGUE if not CATALOGUE[name].reads and name not in WHOLE])
def test_what_reads_the_digits_alone_never_looks_at_a_whole_softmax(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    one = batch(4)
    monkeypatch.setattr(drop_in, "log_p_of", refused)
    softmax = torch.softmax

    def of_ten(z: torch.Tensor, *arguments: Any, **options: Any) -> torch.Tensor:
        assert z.shape[-1] == 10
        return softmax(z, *arguments, **options)

    monkeypatch.setattr(torch, "softmax", of_ten)
    value, gradient = one.value_and_gradient(FAMILY[name])
    assert value > 0
    elsewhere = torch.ones_like(gradient, dtype=torch.bool)
    elsewhere[..., list(one.digit_ids)] = False
    assert (gradient[elsewhere] == 0).all()
    assert (gradient != 0).any(-1).sum() == one.digits


@pytest.mark.parametrize("name", ["nll", "deft", "ntl_was"])
def test_what_would_be_differentiated_twice_is_refused(name: str) -> None:
    one = batch(5)
    logits = one.logits.requires_grad_()
    loss = replace(one, logits=logits).loss(FAMILY[name])
    # Without the refusal the second derivative would be left out in silence: the first one hangs on nothing.
    with pytest.raises(LosscoreError, match="only once: take its gradient without create_graph=True"):
        torch.autograd.grad(loss, logits, create_graph=True)
