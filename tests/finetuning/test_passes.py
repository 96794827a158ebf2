"""What a run does no more than it must, and what it measures: passes through the network, gradients, time, sheets."""

from __future__ import annotations

import math
from itertools import count
from typing import Any

import pytest
import torch

from losscore.errors import Cancelled, LosscoreError
from losscore.finetuning import FineTune, finetune, run
from losscore.finetuning.passage import read_passages
from losscore.finetuning.step import run_pass
from losscore.finetuning.trainee import Trainee
from losscore.models.model import project
from losscore.objectives import find
from losscore.text.examples import as_examples
from tests.tiny import mini_model

TEXTS = ["They cost 2 * 13 = 26 euros.", "9 or 12", "words alone"]
FAST = {"lr": 1e-2, "steps": 3}


class Counted(Trainee):
    """A trainee that notes how many texts each pass through its body takes."""

    def body(self, ids: torch.Tensor) -> torch.Tensor:
        taken.append(len(ids))
        return super().body(ids)


taken: list[int] = []


@pytest.mark.parametrize(
    ("objective", "parts", "passes"),
    [("nll", 1, [3]), ("nll", 3, [1, 1, 1]), ("talr", 1, [3]), ("talr", 3, [1, 1, 1, 1, 1, 1])],
)
def test_only_an_objective_that_reads_its_batch_in_parts_is_run_twice(objective, parts, passes):
    model = mini_model()
    taken.clear()
    run_pass(
        find(objective),
        Counted(model.network, True),
        read_passages(model, as_examples(TEXTS), "auto"),
        vocabulary=model.vocabulary,
        digit_ids=model.encoder.vocabulary.digit_ids,
        parts=parts,
    )
    assert taken == passes


def test_a_stop_is_heard_while_the_batch_is_read_too():
    model = mini_model()

    def stop() -> None:
        raise Cancelled("stopped")

    taken.clear()
    with pytest.raises(Cancelled):
        run_pass(
            find("talr"),
            Counted(model.network, True),
            read_passages(model, as_examples(TEXTS), "auto"),
            vocabulary=model.vocabulary,
            digit_ids=(),
            tick=stop,
        )
    assert taken == []


@pytest.mark.parametrize("batch", [None, 3])
def test_a_batch_of_all_examples_is_one_pass_a_step(monkeypatch, batch):
    asked: list[bool] = []
    passed = run.run_pass

    def note(*given: Any, learn: bool, **options: Any) -> Any:
        asked.append(learn)
        return passed(*given, learn=learn, **options)

    monkeypatch.setattr(run, "run_pass", note)
    list(finetune(mini_model(), TEXTS, batch=batch, **FAST))
    assert asked == [True, True, True, False]


@pytest.mark.parametrize("batch", [None, 1])
def test_at_the_end_no_gradient_is_taken_or_kept(batch):
    tuning = FineTune(mini_model(), TEXTS, batch=batch, **FAST)
    list(tuning)
    assert tuning._copy is not None
    assert all(parameter.grad is None for parameter in tuning._copy.network.parameters())


def test_seconds_are_of_the_step_and_not_of_who_looks_at_it(monkeypatch):
    ticks = count()
    ahead = [0.0]
    monkeypatch.setattr(run.time, "perf_counter", lambda: next(ticks) + ahead[0])
    for snapshot in FineTune(mini_model(), TEXTS, **FAST):
        assert snapshot.seconds == 1.0
        ahead[0] += 100.0


def test_a_sheet_is_made_once():
    (snapshot,) = finetune(mini_model(), TEXTS, steps=0)
    assert snapshot.sheet(1) is snapshot.sheet(1)
    assert snapshot.sheet(1) is not snapshot.sheet(0)


def test_no_clipping_is_that_of_a_limit_never_reached():
    none, far, close = ([s.nll for s in finetune(mini_model(), TEXTS, clip=clip, **FAST)] for clip in (0.0, 1e9, 1e-9))
    assert none == far
    assert none[-1] < none[0]
    assert close[1] != none[1]


def test_a_gradient_beyond_all_numbers_ends_with_a_sentence(monkeypatch):
    monkeypatch.setattr(run, "_norm", lambda *_: math.inf)
    with pytest.raises(LosscoreError, match="at step 0"):
        list(finetune(mini_model(), TEXTS, **FAST))


@pytest.mark.parametrize("streams", [True, False])
def test_under_autocast_products_are_bfloat16_and_logits_float32(streams):
    network = mini_model().network
    ids = torch.tensor([[5, 9, 200, 31]])
    exact, short = Trainee(network, streams), Trainee(network, streams, autocast=True)
    rows = short.body(ids)[0]
    logits = short.head(rows)
    assert logits.dtype == torch.float32
    assert not torch.equal(exact.body(ids)[0], rows)
    if streams:
        weight = network.get_output_embeddings().weight
        torch.testing.assert_close(logits, (rows.bfloat16() @ weight.bfloat16().T).float(), rtol=0, atol=0)
        assert not torch.equal(project(network, rows.float()), logits)
