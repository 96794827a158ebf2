from __future__ import annotations

import math
import sys
from collections.abc import Callable
from dataclasses import fields
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from losscore.stats import Statistics, measure, sweep
from losscore.stats.equations import by_equations
from losscore.stats.sweep import SMALLEST, by_sweep
from tests.conftest import reference_cases

measure_module = sys.modules[measure.__module__]
SUMS = ("log_p", "entropy", "expected_rank", "concentration", "top_log_p")
ROWS, SIZE = 5, SMALLEST + 37
INF = math.inf


def normal(spread: float) -> Tensor:
    return torch.randn(ROWS, SIZE, generator=torch.Generator().manual_seed(6)) * spread


def peak_over(rest: Tensor | float) -> Tensor:
    logits = torch.zeros(ROWS, SIZE) + rest
    logits[:, 4_321] = 0
    return logits


DISTRIBUTIONS: dict[str, Callable[[], Tensor]] = {
    "as a model's": lambda: normal(3.0),
    "spread out": lambda: normal(0.3),
    "peaked": lambda: normal(15.0),
    "nearly flat": lambda: normal(1e-4),
    "flat": lambda: torch.full((ROWS, SIZE), 3.5),
    "tied below a peak": lambda: peak_over(-8.0),
    "narrow below a peak": lambda: peak_over(normal(1e-3) - 8),
    "two heaps in one bucket": lambda: peak_over(torch.where(torch.arange(SIZE) % 2 == 0, -8.0, -8.0018)),
    "in steps, as half precision has them": lambda: normal(3.0).bfloat16().float(),
    "geometric": lambda: -0.01 * torch.arange(SIZE).float().repeat(ROWS, 1),
    "Zipf's": lambda: -torch.log1p(torch.arange(SIZE).flip(0).float()).repeat(ROWS, 1),
    "mostly ruled out": lambda: torch.where(torch.arange(SIZE) % 300 == 7, normal(1.0), -INF),
    "far from zero": lambda: normal(2.0) + 1e4,
}


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_the_sweep_agrees_with_the_equations_it_stands_for(name: str) -> None:
    logits = DISTRIBUTIONS[name]()
    targets = torch.tensor([0, 7, 4_321, SIZE - 1, 100])
    found, expected = by_sweep(logits, targets, (3, 5)), by_equations(logits, targets, (3, 5))
    for field in SUMS:
        assert torch.allclose(getattr(found, field), getattr(expected, field), rtol=5e-7, atol=0), field
    for field in ("rank", "top_ids", "digit_logits"):
        assert torch.equal(getattr(found, field), getattr(expected, field)), field


@pytest.mark.parametrize("case", reference_cases("token_statistics"), ids=lambda case: case["name"])
def test_values_that_losscore_did_not_compute(case: dict[str, Any]) -> None:
    row = torch.tensor(case["logits"], dtype=torch.float64)
    rel = 1e-6 if torch.equal(row.float().double(), row) else 2e-5
    logits = torch.full((1, max(SMALLEST, len(row))), -INF)
    logits[0, : len(row)] = row
    found, expected = measure(logits, torch.tensor([case["target"]])), case["stats"]
    assert int(found.rank) == expected["rank"]
    assert float(found.log_p) == pytest.approx(expected["log_p"], rel=rel, abs=1e-12)
    assert float(found.entropy) == pytest.approx(expected["entropy_nats"], rel=rel, abs=1e-12)
    assert float(found.expected_rank) == pytest.approx(expected["expected_rank"], rel=rel)
    assert float(found.concentration) == pytest.approx(expected["concentration"], rel=rel)


@pytest.mark.parametrize("rest", [-INF, -1e30, -1000.0])
def test_a_certain_model_is_certain(rest: float) -> None:
    found = by_sweep(peak_over(rest), torch.full((ROWS,), 4_321))
    assert found.expected_rank.tolist() == [1.0] * ROWS
    assert found.log_p.tolist() == found.entropy.tolist() == [0.0] * ROWS
    assert found.concentration.tolist() == [1.0] * ROWS


@pytest.mark.parametrize("gap", [12.0, 20.0, 40.0])
def test_near_certainty_keeps_its_digits(gap: float) -> None:
    found = by_sweep(peak_over(-gap), torch.full((ROWS,), 4_321))
    rest = (SIZE - 1) * math.exp(-gap)
    log_total = math.log1p(rest)
    assert found.log_p.tolist() == pytest.approx([-log_total] * ROWS, rel=1e-6, abs=0)
    assert found.entropy.tolist() == pytest.approx([log_total + rest * gap / (1 + rest)] * ROWS, rel=1e-6, abs=0)
    few = by_sweep(peak_over(torch.where(torch.arange(SIZE) < 9, -gap, -INF)), torch.full((ROWS,), 4_321))
    # So few tokens are all among the most probable, which are added in float64.
    assert few.log_p.tolist() == pytest.approx([-math.log1p(9 * math.exp(-gap))] * ROWS, rel=1e-13, abs=0)


def test_the_ends_of_the_number_range() -> None:
    largest = torch.finfo(torch.float32).max
    logits = torch.full((1, SIZE), -largest)
    logits[0, :2] = largest
    found = by_sweep(logits, torch.tensor([1]))
    assert float(found.log_p) == pytest.approx(-math.log(2), rel=1e-12)
    assert float(found.entropy) == pytest.approx(math.log(2), rel=1e-12)
    assert (int(found.rank), float(found.expected_rank), float(found.concentration)) == (2, 1.5, 0.5)


def test_ties_count_against_the_target() -> None:
    logits = torch.zeros(2, SIZE)
    logits[1, 100:] = -1
    assert by_sweep(logits, torch.tensor([3, 3])).rank.tolist() == [SIZE, 100]
    assert by_sweep(logits, torch.tensor([3, 3]), top=4).top_ids.tolist() == [[0, 1, 2, 3]] * 2


@pytest.mark.parametrize("bad", [math.nan, INF, None])
def test_a_row_that_is_not_a_number_is_blank_and_alone(bad: float | None) -> None:
    logits = normal(3.0)
    targets = torch.arange(ROWS)
    clean = by_sweep(logits, targets, (0, 1))
    if bad is None:
        logits[2] = -INF
    else:
        logits[2, 5_000] = bad
    found = by_sweep(logits, targets, (0, 1))
    others = [0, 1, 3, 4]
    for name in (*SUMS, "digit_logits"):
        assert torch.isnan(getattr(found, name)[2]).all(), name
        assert torch.equal(getattr(found, name)[others], getattr(clean, name)[others]), name
    assert int(found.rank[2]) == 0
    assert torch.equal(found.rank[others], clean.rank[others])


def identical(one: Statistics, other: Statistics) -> bool:
    return all(torch.equal(getattr(one, field.name), getattr(other, field.name)) for field in fields(Statistics))


@pytest.mark.parametrize("threads", [1, 2, 3, 8])
@pytest.mark.parametrize("block", [1, 2, 100])
def test_threads_and_blocks_change_no_bit(threads: int, block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    logits, targets = normal(3.0), torch.arange(ROWS)
    alone = Statistics.join([by_sweep(logits[t : t + 1], targets[t : t + 1], (4, 2)) for t in range(ROWS)])
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    monkeypatch.setattr(sweep, "_BLOCK_ELEMENTS", block * SIZE)
    assert identical(by_sweep(logits, targets, (4, 2)), alone)


def test_the_order_of_the_vocabulary_changes_nothing() -> None:
    logits, targets = normal(3.0), torch.arange(ROWS)
    order = torch.randperm(SIZE, generator=torch.Generator().manual_seed(7))
    straight, shuffled = by_sweep(logits, targets), by_sweep(logits[:, order], order.argsort()[targets])
    assert torch.equal(straight.rank, shuffled.rank)
    assert torch.equal(straight.top_ids, order[shuffled.top_ids])
    for name in SUMS:
        assert torch.allclose(getattr(straight, name), getattr(shuffled, name), rtol=1e-7, atol=0), name


def test_logits_that_do_not_lie_row_after_row() -> None:
    logits, targets = normal(3.0), torch.arange(ROWS)
    assert identical(by_sweep(logits.T.contiguous().T, targets), by_sweep(logits, targets))


@pytest.mark.parametrize("target", [-1, SIZE])
def test_a_target_outside_the_vocabulary_is_an_error(target: int) -> None:
    with pytest.raises(RuntimeError, match="out of bounds"):
        by_sweep(normal(1.0), torch.tensor([0, 1, target, 3, 4]))


def test_what_one_text_leaves_behind_is_not_read_by_the_next() -> None:
    first, odd = normal(3.0), normal(1.0)
    odd[0, 7], odd[1] = torch.inf, -torch.inf
    alone = by_sweep(first, torch.arange(ROWS))
    by_sweep(odd, torch.arange(ROWS))
    by_sweep(torch.randn(3, SIZE + 1), torch.arange(3))
    assert identical(by_sweep(first, torch.arange(ROWS)), alone)


@pytest.mark.parametrize(
    ("dtype", "size", "swept"),
    [
        (torch.float32, SMALLEST, True),
        (torch.float32, SMALLEST - 1, False),
        (torch.float64, SMALLEST, False),
        (torch.bfloat16, SMALLEST, False),
    ],
)
def test_only_long_rows_of_float32_are_swept(
    dtype: torch.dtype, size: int, swept: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []
    for name in ("by_sweep", "by_equations"):
        whole = getattr(measure_module, name)

        def noting(*given: Any, name: str = name, whole: Any = whole, **settings: Any) -> Any:
            seen.append(name)
            return whole(*given, **settings)

        monkeypatch.setattr(measure_module, name, noting)
    logits = torch.randn(2, size, dtype=dtype, requires_grad=True)
    before = logits.detach().clone()
    found = measure(logits, torch.tensor([0, 1]))
    assert set(seen) == {"by_sweep" if swept else "by_equations"}
    assert torch.equal(logits.detach(), before)
    assert not found.log_p.requires_grad
    assert found.entropy.dtype == torch.float64


def test_no_row_is_an_empty_table() -> None:
    found = by_sweep(torch.zeros(0, SIZE), torch.zeros(0, dtype=torch.long), (1, 2), top=7)
    assert [tuple(getattr(found, field.name).shape) for field in fields(Statistics)][-3:] == [(0, 7), (0, 7), (0, 2)]
    assert len(found) == 0


def test_no_warning_reaches_the_caller() -> None:
    with np.errstate(all="raise"):
        by_sweep(peak_over(-INF), torch.arange(ROWS))
