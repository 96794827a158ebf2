"""A seeded mini model, and one that knows what comes next."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM

from losscore.models import Model
from losscore.text import TextEncoder
from tests.tiny.vocabularies import smol_like


def mini_model(tokenizer: Any = None, *, context: int = 64, seed: int = 0, padding: int = 0) -> Model:
    """Two layers of width 32, far from uniform, the same at every start.

    padding: outputs beyond the tokenizer's ids, as models have whose vocabulary is rounded up.
    """
    tokenizer = tokenizer or smol_like()
    torch.manual_seed(seed)
    network = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(tokenizer) + padding,
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            max_position_embeddings=context,
            initializer_range=0.4,
            tie_word_embeddings=False,
        )
    ).eval()
    return Model(
        network=network,
        tokenizer=tokenizer,
        name="mini",
        revision=f"seed {seed}",
        device=torch.device("cpu"),
        dtype=torch.float32,
        context=context,
        vocabulary=len(tokenizer) + padding,
    )


class Oracle:
    """What `score` needs of a model; its logits at an id are a spike at the id that follows it in `text`.

    Each id of `text` must occur once. `asked` collects how many rows of logits were asked for at a time.
    """

    def __init__(self, text: str, *, spike: float = 40.0, context: int = 64, tokenizer: Any = None) -> None:
        self.tokenizer = tokenizer or smol_like()
        self.vocabulary = len(self.tokenizer)
        self.context = context
        self.name, self.revision, self.notes, self.tokenizer_from = "oracle", "none", (), ""
        self.device, self.dtype, self.streams = torch.device("cpu"), torch.float32, True
        self.asked: list[int] = []
        self.read: list[list[int]] = []
        ids = [*self.encoder._own_prefix, *self.encoder.encode(text, bos="never").ids]
        assert len(set(ids)) == len(ids), "each id must occur once"
        self._spike = torch.zeros(self.vocabulary, self.vocabulary)
        for here, following in pairwise(ids):
            self._spike[here, following] = spike

    @cached_property
    def encoder(self) -> TextEncoder:
        return TextEncoder(self.tokenizer)

    def blocks(
        self, ids: list[int], *, first: int = 0, piece: int = 1024, past: Any = None
    ) -> Iterator[tuple[int, Tensor]]:
        assert 0 < len(ids) <= self.context
        self.read.append(list(ids))
        for start in range(first, len(ids), piece):
            yield start, self._spike[ids[start : start + piece]]

    def head(self, rows: Tensor) -> Tensor:
        self.asked.append(len(rows))
        return rows
