"""What a step costs on the device: seconds, and memory beside transformers' own cross-entropy step."""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from statistics import median

import torch

from losscore.finetuning import METHODS, FineTune, Settings
from losscore.models import Model
from tests.bench.step import Contest, race
from tests.gpu.report import Report
from tests.gpu.subject import TEXT


def tell_seconds(report: Report, model: Model, steps: int) -> None:
    """A whole fine-tune of a short text, for each method and precision."""
    for method in METHODS:
        for autocast in (False, True):
            _tidy(model.device)
            settings = Settings(steps=steps, method=method, autocast=autocast)
            with FineTune(model, TEXT, settings=settings) as run:
                taken = [snapshot.seconds for snapshot in run]
            precision = "bfloat16 autocast" if autocast else "float32"
            report.figure(
                f"{steps} steps, {method}, {precision}, seconds", all=sum(taken), median=median(taken[1:] or taken)
            )


def tell_memory(report: Report, model: Model, lengths: Sequence[int], repeats: int) -> None:
    """Peak memory of a step beyond what lies there before it, and its time, ours and theirs."""
    for tokens in lengths:
        for method in METHODS:
            for autocast in (False, True):
                _tidy(model.device)
                contest = Contest(model, method, tokens, autocast)
                contest.ours("nll")  # the optimizer's moments belong to neither step
                ours, theirs = (_peak(model.device, step) for step in (contest.ours, contest.theirs))
                seconds, own = race(contest, ["nll"], repeats)
                precision = "bfloat16 autocast" if autocast else "float32"
                report.figure(
                    f"step of {tokens:,} tokens, {method}, {precision}",
                    peak_mb=None if ours is None else ours / 1e6,
                    their_peak_mb=None if theirs is None else theirs / 1e6,
                    memory_ratio=ours / theirs if ours is not None and theirs else None,
                    seconds=own["nll"],
                    time_ratio=own["nll"] / seconds,
                )
                del contest


def _peak(device: torch.device, step: Callable[[], object]) -> float | None:
    """Bytes that a step takes at most, beyond those that were taken before it; unknown on the CPU."""
    if device.type != "cuda":
        return None
    _tidy(device)
    before = torch.cuda.memory_allocated(device)
    torch.cuda.reset_peak_memory_stats(device)
    step()
    torch.cuda.synchronize(device)
    return float(torch.cuda.max_memory_allocated(device) - before)


def _tidy(device: torch.device) -> None:
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()
