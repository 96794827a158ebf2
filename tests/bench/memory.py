"""Peak memory beyond what was there before, each way in a process of its own: `python -m tests.bench.memory WAY`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import torch

from losscore.stats import stream
from tests.bench.statistics import LARGE_TOKENS, LARGE_VOCABULARY, WIDTH, plainly

WAYS = ("stream", "logits", "plainly")


def peak(way: str) -> float | None:
    """MB (10^6 bytes) that `way` adds at its peak; None where the kernel does not tell (other than Linux)."""
    if not Path("/proc/self/clear_refs").exists():
        return None
    done = subprocess.run([sys.executable, "-m", "tests.bench.memory", way], check=True, capture_output=True, text=True)
    return float(done.stdout)


def _kilobytes(entry: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(entry))


def _measure(way: str) -> float:
    seed = torch.Generator().manual_seed(0)
    weight = torch.randn(LARGE_VOCABULARY, WIDTH, generator=seed).mul_(0.1)
    rows = torch.randn(LARGE_TOKENS, WIDTH, generator=seed)
    targets = torch.randint(0, LARGE_VOCABULARY, (LARGE_TOKENS,), generator=seed)

    def run(count: int) -> object:
        if way == "stream":
            return stream([rows[:count]], lambda part: part @ weight.T, targets[:count], vocabulary=LARGE_VOCABULARY)
        logits = rows[:count] @ weight.T
        return plainly(logits, targets[:count]) if way == "plainly" else logits

    run(1)  # what libraries set up once is not the pass's own
    before = _kilobytes("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts anew
    run(LARGE_TOKENS)
    return (_kilobytes("VmHWM") - before) * 1024 / 1e6


if __name__ == "__main__":
    print(_measure(sys.argv[1]))
