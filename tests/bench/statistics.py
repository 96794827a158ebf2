"""What the statistics cost beside the forward pass they read: shares of its time, taken in turn in one process."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import median

import torch
from torch import Tensor

import losscore
from losscore.models import Model
from losscore.stats import stream
from tests.bench.step import text_of

WIDTH, LARGE_VOCABULARY, LARGE_TOKENS = 576, 150_000, 2_048
Work = Callable[[], object]


def seconds(work: Work) -> float:
    """How long it takes."""
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def shares(works: Sequence[Work], forward: Work, repeats: int) -> list[float]:
    """Each work's time over the forward pass's, medians over rounds in which all take turns; the first is dropped."""
    found: list[list[float]] = [[] for _ in works]
    for turn in range(repeats + 1):
        base = seconds(forward)
        for work, values in zip(works, found, strict=True):
            value = seconds(work) / base
            if turn:
                values.append(value)
    return [median(values) for values in found]


@dataclass
class Timed:
    """A head that adds up the time it takes."""

    head: Callable[[Tensor], Tensor]
    seconds: float = field(default=0.0, init=False)

    def __call__(self, rows: Tensor) -> Tensor:
        began = time.perf_counter()
        logits = self.head(rows)
        self.seconds += time.perf_counter() - began
        return logits


@dataclass
class Reading:
    """Hidden states come from `body`; what is timed is the streaming pass over their logits, the head taken out."""

    body: Callable[[], Tensor]
    head: Callable[[Tensor], Tensor]
    targets: Tensor
    vocabulary: int

    def times(self) -> tuple[float, float, float]:
        """Seconds of the body, the head and all statistics, of one and the same pass."""
        head = Timed(self.head)
        began = time.perf_counter()
        rows = self.body()
        body = time.perf_counter() - began
        whole = seconds(lambda: stream([rows], head, self.targets, range(10), vocabulary=self.vocabulary))
        return body, head.seconds, whole - head.seconds

    def share(self, repeats: int) -> tuple[float, float]:
        """Median of statistics / (body + head), and of statistics / head alone."""
        taken = [self.times() for _ in range(repeats + 1)][1:]
        return median(s / (b + h) for b, h, s in taken), median(s / h for _, h, s in taken)


def embedded(model: Model, tokens: int) -> Reading:
    """A text of so many tokens with the model's own head."""
    ids = model.encoder.encode(text_of(model, tokens), bos="never").ids
    return Reading(lambda: body_of(model, ids), model.head, torch.tensor([*ids[1:], 0]), model.vocabulary)


def body_of(model: Model, ids: list[int]) -> Tensor:
    """The hidden states of one run of the body."""
    return torch.cat([rows for _, rows in model.blocks(ids)])


def large(model: Model) -> Reading:
    """The model's body with a random head of 150,000 tokens: logits spread as a young model's."""
    seed = torch.Generator().manual_seed(0)
    weight = torch.randn(LARGE_VOCABULARY, WIDTH, generator=seed) * 0.1
    ids = model.encoder.encode(text_of(model, LARGE_TOKENS), bos="never").ids
    targets = torch.randint(0, LARGE_VOCABULARY, (LARGE_TOKENS,), generator=seed)
    return Reading(
        lambda: torch.nn.functional.normalize(body_of(model, ids), dim=-1) * WIDTH**0.5,
        lambda rows: rows @ weight.T,
        targets,
        LARGE_VOCABULARY,
    )


def plainly(logits: Tensor, targets: Tensor) -> tuple[Tensor, ...]:
    """The obvious code for the same statistics, over the full matrix."""
    log_p = torch.log_softmax(logits, -1)
    p = log_p.exp()
    own = log_p.gather(-1, targets[:, None])
    ranks = torch.arange(1, p.shape[-1] + 1, dtype=p.dtype)
    expected_rank = p.sort(-1, descending=True).values @ ranks
    return own, -(p * log_p).sum(-1), (log_p >= own).sum(-1), expected_rank, p.square().sum(-1), *log_p.topk(20, -1)


def scoring(model: Model, tokens: int, repeats: int) -> float:
    """losscore.score over the bare forward pass (body and head) of the same ids."""
    text = text_of(model, tokens)
    ids = model.encoder.encode(text, bos="never").ids

    def forward() -> None:
        with torch.no_grad():
            model.head(body_of(model, ids))

    return shares([lambda: losscore.score(model, text, bos="never")], forward, repeats)[0]
