"""The settings of a fine-tune, and what they may be."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from losscore.errors import LosscoreError

Method = Literal["lora", "full"]
METHODS: tuple[Method, ...] = ("lora", "full")
LEARNING_RATES: dict[Method, float] = {"lora": 5e-4, "full": 2e-5}
MOST_STEPS = 1000


@dataclass(frozen=True)
class Settings:
    """How to fine-tune. Raises LosscoreError, one sentence, for a value out of range.

    lr: AdamW's learning rate; None takes the method's own (`LEARNING_RATES`). method: "lora" trains a low-rank adapter
    on every linear layer but the head (scaling 2), "full" all weights. rank: the adapter's. clip: largest gradient
    norm, 0 for none. warmup: steps over which the rate rises to lr. batch: examples a step, None for all.
    accumulation: parts a step is computed in. autocast: compute in bfloat16, the weights in float32. probe_every: steps
    between two looks at the probes, the last of which is at the end. bos: see `losscore.score`.
    """

    steps: int = 20
    lr: float | None = None
    method: Method = "lora"
    seed: int = 0
    rank: int = 8
    clip: float = 1.0
    warmup: int = 0
    batch: int | None = None
    accumulation: int = 1
    autocast: bool = False
    probe_every: int = 5
    bos: str = "auto"

    def __post_init__(self) -> None:
        if self.method not in METHODS:
            raise LosscoreError(f"The method must be lora or full, not {self.method!r}.")
        _whole("number of steps", self.steps, 0, MOST_STEPS)
        _whole("seed", self.seed, 0, 2**63 - 1)
        _whole("rank of the adapter", self.rank, 1, 1024)
        _whole("number of warm-up steps", self.warmup, 0, MOST_STEPS)
        _whole("number of parts a step is computed in", self.accumulation, 1, 10_000)
        _whole("number of steps between two looks at the probes", self.probe_every, 1, MOST_STEPS)
        if self.batch is not None:
            _whole("number of examples a step", self.batch, 1, 1_000_000)
        if not isinstance(self.autocast, bool):
            raise LosscoreError(f"Autocast must be True or False, not {self.autocast!r}.")
        if self.lr is not None and not (_is_finite(self.lr) and 0 <= self.lr <= 1):
            raise LosscoreError(f"The learning rate must lie between 0 and 1, not {self.lr!r}.")
        if not (_is_finite(self.clip) and self.clip >= 0):
            raise LosscoreError(f"The largest gradient norm must be 0 (no clipping) or more, not {self.clip!r}.")

    @property
    def rate(self) -> float:
        """The learning rate after warm-up."""
        return LEARNING_RATES[self.method] if self.lr is None else self.lr

    def rate_at(self, step: int) -> float:
        """The learning rate of the update that follows `step` updates."""
        return self.rate * min(1.0, (step + 1) / self.warmup) if self.warmup else self.rate


def _is_finite(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _whole(what: str, value: int, low: int, high: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise LosscoreError(f"The {what} must be a whole number from {low:,} to {high:,}, not {value!r}.")
