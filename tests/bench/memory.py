"""Peak memory beyond what was there before, each way in a process of its own."""

from __future__ import annotations

import ctypes
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from torch import Tensor, nn

from losscore.fused import Targets, fused
from losscore.objectives import CATALOGUE
from losscore.stats import stream
from tests.bench.statistics import LARGE_TOKENS, LARGE_VOCABULARY, WIDTH, plainly
from tests.bench.table import Row

VOCABULARIES = (49_152, LARGE_VOCABULARY)
Run = Callable[[int], object]


def rows() -> Iterator[Row]:
    """Statistics of a text, then the loss and its gradient, ours and the usual ways."""
    large = f"{LARGE_TOKENS:,} x {LARGE_VOCABULARY:,}"
    reading = {
        "stream": "head and all statistics",
        "logits": "all logits, no statistics",
        "plainly": "the obvious code",
    }
    for way, words in reading.items():
        most = 64 if way == "stream" else None
        yield Row(f"peak memory beyond the model's: {words}", large, (peak("memory", way),), most, ".0f", "MB")
    for vocabulary in VOCABULARIES:
        size = f"{LARGE_TOKENS:,} x {vocabulary:,}"
        tenth = LARGE_TOKENS * vocabulary * 4 / 1e7
        for head in ("frozen", "trained"):
            for way, most in (("fused", round(tenth)), ("transformers", None)):
                name = "DEFT, chunk by chunk" if way == "fused" else "transformers' cross-entropy"
                value = peak("memory", way, str(vocabulary), head)
                what = f"peak memory of the loss beyond the gradients', head {head}: {name}"
                yield Row(what, size, (value,), most, ".0f", "MB")


def peak(module: str, *arguments: str) -> float:
    """MB (10^6 bytes) that a way adds at its peak, as `tests.bench.MODULE` prints it; NaN outside Linux."""
    if not Path("/proc/self/clear_refs").exists():
        return float("nan")
    command = [sys.executable, "-m", f"tests.bench.{module}", *arguments]
    return float(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.split()[-1])


def added(work: Callable[[], object]) -> float:
    """MB that `work` adds at its peak to what this process holds."""
    ctypes.CDLL(None).malloc_trim(0)  # what was freed and not given back would hide as much of the peak
    before = _kilobytes("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts anew
    work()
    return (_kilobytes("VmHWM") - before) * 1024 / 1e6


def _kilobytes(entry: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(entry))


def _random(vocabulary: int) -> tuple[nn.Linear, Tensor, Tensor]:
    """A head, hidden states and targets."""
    seed = torch.Generator().manual_seed(0)
    head = nn.Linear(WIDTH, vocabulary, bias=False)
    head.weight.data = torch.randn(vocabulary, WIDTH, generator=seed).mul_(0.1)
    rows = torch.randn(LARGE_TOKENS, WIDTH, generator=seed)
    # A process's first large product makes a buffer that stays: where there is a model, its body has made it.
    torch.mm(rows[:256], head.weight.detach().T)
    return head, rows, torch.randint(0, vocabulary, (LARGE_TOKENS,), generator=seed)


def _reading(way: str) -> float:
    head, rows, targets = _random(LARGE_VOCABULARY)

    @torch.no_grad()
    def run(count: int) -> object:
        if way == "stream":
            return stream([rows[:count]], head, targets[:count], vocabulary=LARGE_VOCABULARY)
        logits = head(rows[:count])
        return plainly(logits, targets[:count]) if way == "plainly" else logits

    run(1)  # what libraries set up once is not the pass's own
    return added(lambda: run(LARGE_TOKENS))


def _loss(way: str, vocabulary: int, trained: bool) -> float:
    head, rows, ids = _random(vocabulary)
    head.requires_grad_(trained)
    run = _fused(head, rows, ids) if way == "fused" else _transformers(head, rows, ids)
    run(1)
    head.zero_grad(set_to_none=True)
    gradients = rows.numel() + head.weight.numel() * trained
    return added(lambda: run(len(rows))) - gradients * 4 / 1e6


def _fused(head: nn.Linear, rows: Tensor, ids: Tensor) -> Run:
    def run(count: int) -> object:
        blank = torch.full((count,), torch.nan, dtype=torch.float64)
        none = torch.zeros(count, dtype=torch.long)
        targets = Targets(ids[:count], none, torch.ones(count, dtype=torch.bool), none - 1, blank)
        return fused(
            CATALOGUE["deft"],
            rows[:count],
            head,
            targets,
            vocabulary=head.out_features,
            digit_ids=range(10),
            count=count,
            digit_count=0,
            weight=head.weight,
        )

    return run


def _transformers(head: nn.Linear, rows: Tensor, ids: Tensor) -> Run:
    from transformers.loss.loss_utils import ForCausalLMLoss

    def run(count: int) -> object:
        live = rows[:count].clone().requires_grad_()
        loss = ForCausalLMLoss(head(live)[None], None, head.out_features, shift_labels=ids[None, :count])
        loss.backward()
        return live.grad

    return run


if __name__ == "__main__":
    if sys.argv[1] in ("fused", "transformers"):
        print(_loss(sys.argv[1], int(sys.argv[2]), sys.argv[3] == "trained"))
    else:
        print(_reading(sys.argv[1]))
