"""What an objective may look at: the live log-probabilities of the targets, and constants about their distributions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from losscore.stats import Statistics

STATISTICS = ("entropy", "rank", "expected_rank", "concentration", "top_entropy")
READABLE = ("log_p", *STATISTICS)
_PER_TOKEN = (*READABLE, "sequence")


@dataclass(frozen=True)
class Digits:
    """The N digit targets among T tokens: their ten digit logits (live), the digit, its place, and which token it is.

    share: what each digit's loss counts beside one token's; None: T / N, so that a mean over the tokens holds a mean
    over the digits.
    """

    logits: Float[Tensor, "digits 10"]
    digit: Int[Tensor, " digits"]
    place: Float[Tensor, " digits"]
    rows: Int[Tensor, " digits"]
    share: float | None = None

    @property
    def one_hot(self) -> Float[Tensor, "digits 10"]:
        """[d = digit]."""
        return torch.nn.functional.one_hot(self.digit, 10).to(self.logits.dtype)

    @property
    def distance(self) -> Float[Tensor, "digits 10"]:
        """|d - digit| for the ten digits d."""
        values = torch.arange(10, device=self.digit.device)
        return (values - self.digit[:, None]).abs().to(self.logits.dtype)


@dataclass(frozen=True)
class Distribution:
    """The whole distribution at T tokens, for the few objectives that look at it: log p_v (live), the targets' ids, and
    the unit rows of the output embedding."""

    log_probs: Float[Tensor, "tokens vocab"]
    target: Int[Tensor, " tokens"]
    embedding: Float[Tensor, "vocab width"] | None = None


@dataclass(frozen=True)
class Tokens:
    """T target tokens. `log_p` carries gradient; everything else but digits and distribution is constant.

    entropy and top_entropy (of the renormalised 20 most probable tokens) are in nats. sequence says which text each
    token belongs to.
    """

    log_p: Float[Tensor, " tokens"]
    entropy: Float[Tensor, " tokens"]
    rank: Float[Tensor, " tokens"]
    expected_rank: Float[Tensor, " tokens"]
    concentration: Float[Tensor, " tokens"]
    top_entropy: Float[Tensor, " tokens"]
    vocabulary: int
    sequence: Int[Tensor, " tokens"]
    digits: Digits | None = None
    distribution: Distribution | None = None

    def __len__(self) -> int:
        return len(self.log_p)

    @property
    def p(self) -> Float[Tensor, " tokens"]:
        """The target's probability, held constant."""
        return self.log_p.detach().exp()

    def rows(self, at: Sequence[int]) -> Tokens:
        """Some of the tokens, without digits and distribution."""
        index = torch.tensor(list(at), dtype=torch.long, device=self.log_p.device)
        return replace(
            self, digits=None, distribution=None, **{name: getattr(self, name)[index] for name in _PER_TOKEN}
        )

    def to(self, device: torch.device, dtype: torch.dtype) -> Tokens:
        """The same tokens elsewhere, without digits and distribution."""
        columns = {name: getattr(self, name).to(device, dtype) for name in _PER_TOKEN if name != "sequence"}
        return replace(self, digits=None, distribution=None, sequence=self.sequence.to(device), **columns)

    @staticmethod
    def of(
        statistics: Statistics | None,
        vocabulary: int,
        *,
        log_p: Float[Tensor, " tokens"] | None = None,
        sequence: Int[Tensor, " tokens"] | None = None,
    ) -> Tokens:
        """Tokens from their statistics; `log_p` is the live one, by default the statistics' own as a leaf.

        Without statistics theirs are NaN: an objective that reads one without having declared it gives no number.
        ValueError where log_p is missing too.
        """
        if log_p is not None:
            live = log_p
        elif statistics is not None:
            live = statistics.log_p.clone().requires_grad_()
        else:
            raise ValueError("tokens have a log_p or statistics")
        columns: dict[str, Any]
        if statistics is None:
            columns = dict.fromkeys(STATISTICS, live.new_full((len(live),), torch.nan))
        else:
            columns = {name: getattr(statistics, name).to(live) for name in STATISTICS if name != "top_entropy"}
            columns["top_entropy"] = entropy_of_top(statistics.top_log_p).to(live)
        if sequence is None:
            sequence = torch.zeros(len(live), dtype=torch.long, device=live.device)
        return Tokens(live, **columns, vocabulary=vocabulary, sequence=sequence)

    def with_digits(
        self,
        logits: Float[Tensor, "digits 10"],
        digit: Sequence[int] | Tensor,
        place: Sequence[float] | Tensor,
        rows: Sequence[int] | Tensor,
        share: float | None = None,
    ) -> Tokens:
        """The same tokens, knowing which of them are digits."""
        device = logits.device
        return replace(
            self,
            digits=Digits(
                logits,
                torch.as_tensor(digit, dtype=torch.long, device=device),
                torch.as_tensor(place, dtype=logits.dtype, device=device),
                torch.as_tensor(rows, dtype=torch.long, device=device),
                share,
            ),
        )


def entropy_of_top(top_log_p: Float[Tensor, "tokens top"]) -> Float[Tensor, " tokens"]:
    """Entropy in nats of the most probable tokens, renormalised among themselves; at most ln(top)."""
    log_q = torch.log_softmax(top_log_p, -1)
    # A finite floor: a token that is ruled out (-inf) would give 0 * inf.
    return -(log_q.exp() * log_q.clamp(min=torch.finfo(log_q.dtype).min)).sum(-1)


def largest_top_entropy(vocabulary: int) -> float:
    """ln(min(20, V)), the entropy of 20 equally likely tokens."""
    return math.log(min(20, vocabulary))
