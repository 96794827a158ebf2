from __future__ import annotations

import sys
from dataclasses import fields

import pytest
import torch
from torch import Tensor

from losscore.stats import Statistics, measure, stream

# The package's names for the modules are the functions'.
stream_module = sys.modules[stream.__module__]
measure_module = sys.modules[measure.__module__]
WIDTH, VOCABULARY, TOKENS = 8, 50, 23
DIGITS = tuple(range(30, 40))


@pytest.fixture
def hidden() -> Tensor:
    return torch.randn(TOKENS, WIDTH, generator=torch.Generator().manual_seed(3), dtype=torch.float64) * 2


@pytest.fixture
def weight() -> Tensor:
    return torch.randn(WIDTH, VOCABULARY, generator=torch.Generator().manual_seed(4), dtype=torch.float64)


@pytest.fixture
def targets() -> Tensor:
    return torch.randint(0, VOCABULARY, (TOKENS,), generator=torch.Generator().manual_seed(5))


def same(one: Statistics, other: Statistics) -> None:
    for field in fields(Statistics):
        first, second = getattr(one, field.name), getattr(other, field.name)
        assert first.shape == second.shape, field.name
        assert torch.allclose(first.double(), second.double(), rtol=1e-12, atol=1e-14), field.name


@pytest.mark.parametrize("chunk", [1, 3, 7, TOKENS, None])
@pytest.mark.parametrize("few", [1, 2, 1_000])
@pytest.mark.parametrize("blocks", [[TOKENS], [5, 1, 17], [1] * TOKENS])
def test_how_the_work_is_cut_changes_no_value(
    hidden: Tensor,
    weight: Tensor,
    targets: Tensor,
    chunk: int | None,
    few: int,
    blocks: list[int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(measure_module, "ROW_ELEMENTS", few * VOCABULARY)
    found = stream(
        iter(hidden.split(blocks)), lambda rows: rows @ weight, targets, DIGITS, vocabulary=VOCABULARY, chunk=chunk
    )
    same(found, measure(hidden @ weight, targets, DIGITS))


@pytest.mark.parametrize("chunk", [1, 3, 7])
def test_no_more_rows_of_logits_than_a_chunk_exist_at_a_time(
    hidden: Tensor, weight: Tensor, targets: Tensor, chunk: int
) -> None:
    asked: list[int] = []

    def head(rows: Tensor) -> Tensor:
        asked.append(len(rows))
        return rows @ weight

    stream([hidden], head, targets, vocabulary=VOCABULARY, chunk=chunk)
    assert max(asked) == chunk
    assert sum(asked) == TOKENS


def test_the_default_chunk_is_bounded_in_elements(weight: Tensor, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    measured: list[int] = []
    equations = measure_module.by_equations

    def head(rows: Tensor) -> Tensor:
        asked.append(len(rows))
        return rows @ weight

    def counting(logits: Tensor, *rest: object, **settings: object) -> Statistics:
        measured.append(logits.numel())
        found: Statistics = equations(logits, *rest, **settings)
        return found

    monkeypatch.setattr(stream_module, "HEAD_ELEMENTS", 10 * VOCABULARY)
    monkeypatch.setattr(measure_module, "ROW_ELEMENTS", 4 * VOCABULARY)
    monkeypatch.setattr(measure_module, "by_equations", counting)
    rows = torch.zeros(95, WIDTH, dtype=torch.float64)
    stream([rows], head, torch.zeros(95, dtype=torch.long), vocabulary=VOCABULARY)
    assert max(asked) == 10
    assert max(measured) == 4 * VOCABULARY
    assert sum(measured) == 95 * VOCABULARY


def test_a_vocabulary_larger_than_a_chunk_goes_row_by_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_module, "HEAD_ELEMENTS", 10)
    rows = torch.randn(3, 50)
    whole = measure(rows, torch.tensor([0, 1, 2]))
    monkeypatch.setattr(measure_module, "ROW_ELEMENTS", 10)
    same(stream([rows], lambda part: part, torch.tensor([0, 1, 2]), vocabulary=50), whole)


def test_nothing_to_measure_is_an_empty_table() -> None:
    found = stream([], lambda rows: rows, torch.zeros(0, dtype=torch.long), DIGITS, vocabulary=VOCABULARY)
    assert len(found) == 0
    assert found.top_ids.shape == (0, 20)
    assert found.digit_logits.shape == (0, 10)


def test_each_chunk_ticks_and_a_tick_may_stop_the_work(hidden: Tensor, weight: Tensor, targets: Tensor) -> None:
    ticks: list[int] = []
    stream([hidden], lambda rows: rows @ weight, targets, vocabulary=VOCABULARY, chunk=10, tick=ticks.append)
    assert ticks == [10, 20, TOKENS]

    def stop(done: int) -> None:
        ticks.append(done)
        raise KeyboardInterrupt

    ticks.clear()
    with pytest.raises(KeyboardInterrupt):
        stream([hidden], lambda rows: rows @ weight, targets, vocabulary=VOCABULARY, chunk=10, tick=stop)
    assert ticks == [10]


def test_rows_and_targets_must_agree(hidden: Tensor, weight: Tensor, targets: Tensor) -> None:
    with pytest.raises(ValueError, match="22 rows for 23 targets"):
        stream([hidden[1:]], lambda rows: rows @ weight, targets, vocabulary=VOCABULARY)


def test_no_gradient_is_recorded(hidden: Tensor, weight: Tensor, targets: Tensor) -> None:
    recorded: list[bool] = []

    def head(rows: Tensor) -> Tensor:
        logits = rows @ weight.requires_grad_()
        recorded.append(logits.requires_grad)
        return logits

    stream([hidden], head, targets, vocabulary=VOCABULARY)
    assert recorded == [False]
