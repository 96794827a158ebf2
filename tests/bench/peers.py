"""Other libraries that compute some of the same statistics, where they are installed."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from losscore.models import Model


def minicons(model: Model, text: str) -> Callable[[], object]:
    """Surprisal and rank of every token, its own forward pass included."""
    from minicons import scorer  # type: ignore[import-not-found]

    reader = scorer.IncrementalLMScorer(model.network, device="cpu", tokenizer=model.tokenizer)
    return lambda: reader.token_score(text, surprisal=True, rank=True)


def trl(logits: Tensor) -> Callable[[], object]:
    """The entropy alone, of logits that are there already."""
    from trl.trainer.utils import entropy_from_logits  # type: ignore[import-not-found]

    return lambda: entropy_from_logits(logits)


def ntloss(model: Model, logits: Tensor, labels: Tensor) -> Callable[[], object]:
    """One number loss, of logits that are there already."""
    from ntloss import NTLoss  # type: ignore[import-not-found]

    loss = NTLoss(model.tokenizer, vocab_size=logits.shape[-1])

    def value() -> object:
        with torch.no_grad():
            return loss(logits[None], labels[None])

    return value
