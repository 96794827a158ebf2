"""A fine-tune at one step: what the model thinks of the examples now, and how far it has moved elsewhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from losscore.assembly import assemble
from losscore.finetuning.passage import Passage
from losscore.finetuning.probes import ProbeReading
from losscore.objectives.digit_entropy import digit_entropy
from losscore.sheet import Sheet
from losscore.stats import Statistics

if TYPE_CHECKING:
    from losscore.finetuning.step import Pass
    from losscore.models import Model


@dataclass(frozen=True)
class Reading:
    """One example's statistics at a step, and what makes a sheet of them."""

    passage: Passage
    statistics: Statistics


@dataclass(frozen=True, eq=False)
class Snapshot:
    """The model after `step` of `steps` updates; every mean is over the targets of all examples, or of the watched ones
    where a step takes only some.

    loss: the objective's own. nll: plain cross-entropy, nats. entropy: nats. p: probability. digit_entropy: nats, over
    the digit targets, None without any. gradient_norm: of the gradient taken here, before clipping; None at the end,
    where none is taken. seconds: since the snapshot before. probes: empty at steps where they are not looked at.
    """

    step: int
    steps: int
    loss: float
    nll: float
    entropy: float
    p: float
    digit_entropy: float | None
    gradient_norm: float | None
    seconds: float
    probes: tuple[ProbeReading, ...]
    readings: tuple[Reading, ...] = field(repr=False)
    model: Model = field(repr=False)
    provenance: Mapping[str, Any] = field(repr=False)
    _sheets: dict[int, Sheet] = field(default_factory=dict, repr=False)

    @property
    def examples(self) -> int:
        """How many examples are watched."""
        return len(self.readings)

    def sheet(self, example: int = 0) -> Sheet:
        """The sheet of a watched example, its rows the same at every step."""
        if example not in self._sheets:
            reading = self.readings[example]
            encoding = reading.passage.encoding
            method = {
                "bos_policy": self.provenance["settings"]["bos"],
                "special_tokens_parsed": False,
                "prompt_characters": reading.passage.prompt_characters,
                "tokens_left_out": 0,
                **reading.passage.plan.provenance,
                "fine_tune": {**self.provenance, "step": self.step},
            }
            self._sheets[example] = assemble(self.model, encoding, reading.statistics, method)
        return self._sheets[example]


def split(statistics: Statistics, passages: Sequence[Passage]) -> list[Statistics]:
    """The statistics of each passage, from those of all of them in order."""
    parts, start = [], 0
    for passage in passages:
        stop = start + len(passage.targets)
        parts.append(statistics[start:stop])
        start = stop
    return parts


def means(done: Pass) -> dict[str, float | None]:
    """NLL, entropy, p and digit entropy over the trained targets of a pass."""
    at = done.targets.trained
    log_p = done.statistics.log_p[at]
    digits = at & (done.targets.digit >= 0)
    entropies = digit_entropy(done.statistics.digit_logits[digits]) if digits.any() else None
    return {
        "nll": float(-log_p.mean()),
        "entropy": float(done.statistics.entropy[at].mean()),
        "p": float(log_p.exp().mean()),
        "digit_entropy": None if entropies is None else float(entropies.mean()),
    }
