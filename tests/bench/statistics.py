"""What the statistics cost beside the forward pass they read: shares of its time, taken in turn in one process."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from statistics import median

import torch
from torch import Tensor

import losscore
from losscore.models import Model
from losscore.stats import stream
from tests.bench.clock import seconds, shares
from tests.bench.step import text_of
from tests.bench.table import Row

WIDTH, LARGE_VOCABULARY, LARGE_TOKENS = 576, 150_000, 2_048
MOST = 0.12


def rows(model: Model, repeats: int) -> Iterator[Row]:
    """The streaming pass, the obvious code and a whole score beside the bare forward pass."""
    size = f"512 x {model.vocabulary:,}"
    whole, head = embedded(model, 512).share(repeats)
    yield Row("all statistics / forward", size, (whole,), MOST, ".3f")
    yield Row("all statistics / head alone", size, (head,), form=".3f")
    whole, head = large(model).share(repeats)
    size_large = f"{LARGE_TOKENS:,} x {LARGE_VOCABULARY:,}, random head"
    yield Row("all statistics / forward", size_large, (whole,), MOST, ".3f")
    yield Row("all statistics / head alone", size_large, (head,), form=".3f")
    yield Row("the obvious code for the same statistics / forward", size, (obvious(model, 512, repeats),))
    for tokens in (64, 512, 2_000):
        value = scoring(model, tokens, repeats)
        yield Row("`losscore.score` / forward", f"{tokens:,} tokens", (value,))


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


def obvious(model: Model, tokens: int, repeats: int) -> float:
    """The obvious code over the bare forward pass, on the logits of the same text."""
    ids = model.encoder.encode(text_of(model, tokens), bos="never").ids
    targets = torch.tensor([*ids[1:], 0])
    with torch.no_grad():
        logits = model.head(body_of(model, ids))
    return shares([lambda: plainly(logits, targets)], lambda: forward(model, ids), repeats)[0]


@torch.no_grad()
def forward(model: Model, ids: list[int]) -> Tensor:
    """Body and head, nothing else."""
    return model.head(body_of(model, ids))


def scoring(model: Model, tokens: int, repeats: int) -> float:
    """losscore.score over the bare forward pass (body and head) of the same ids."""
    text = text_of(model, tokens)
    ids = model.encoder.encode(text, bos="never").ids
    work = lambda: losscore.score(model, text, bos="never")  # noqa: E731
    return shares([work], lambda: forward(model, ids), repeats)[0]
