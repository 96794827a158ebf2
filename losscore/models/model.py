"""A loaded model: run its body once over a window, and turn rows into logits."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from inspect import signature
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from losscore.errors import ModelError
from losscore.text import TextEncoder


@dataclass(frozen=True, eq=False)
class Model:
    """A causal language model in eval mode. Shared: nothing may change `network`.

    `context` is the window in tokens, `vocabulary` the number of columns of the logits. `streams` says that logits are
    `head` of the body's last hidden state; where they are not, rows are the model's own logits. `caches` says that the
    body may be run in pieces. `notes` are sentences for the person: what was asked and could not be done, and what the
    library warned of.
    """

    network: PreTrainedModel = field(repr=False)
    tokenizer: PreTrainedTokenizerBase = field(repr=False)
    name: str
    revision: str
    device: torch.device
    dtype: torch.dtype
    context: int
    vocabulary: int
    streams: bool = True
    caches: bool = True
    notes: tuple[str, ...] = ()

    @cached_property
    def encoder(self) -> TextEncoder:
        """Reads texts with this model's tokenizer."""
        return TextEncoder(self.tokenizer)

    def blocks(self, ids: list[int], *, first: int = 0, piece: int = 1024) -> Iterator[tuple[int, Tensor]]:
        """Run the body once over `ids` and yield `(start, rows)` for the rows from `first` on, in order.

        Row t depends on `ids[: t + 1]` and predicts the token after it. `rows` is (n, d), the hidden states after the
        final norm, or (n, V), the model's own logits, where the model does not stream. At most `piece` tokens are run
        at a time, the earlier ones kept in the key-value cache; a model without one is run whole. No gradient is
        recorded.

        ModelError, before anything is run, where there are more ids than the context holds or one is outside the
        vocabulary.
        """
        if piece < 1 or first < 0:
            raise ValueError("piece must be at least 1 and first at least 0")
        if len(ids) > self.context:
            raise ModelError(
                f"{len(ids)} tokens do not fit the model's context of {self.context}: shorten the text or use windows."
            )
        rows = embedding_rows(self.network)
        if ids and not (min(ids) >= 0 and max(ids) < rows):
            raise ModelError(f"The text has token ids outside the model's {rows}: use the tokenizer made for it.")
        return self._walk(ids, first, piece if self.caches else max(len(ids), 1))

    def _walk(self, ids: list[int], first: int, piece: int) -> Iterator[tuple[int, Tensor]]:
        cache = None
        for start in range(0, len(ids), piece):
            end = min(start + piece, len(ids))
            window = torch.tensor([ids[start:end]], device=self.device)
            rows, cache = run(self.network, window, streams=self.streams, cache=cache, keep=len(ids) > piece)
            if end > first:
                skipped = max(first - start, 0)
                yield start + skipped, rows[skipped:]

    def head(self, rows: Tensor) -> Tensor:
        """Logits (n, V) of rows (n, d), in float32 or better; rows that are logits already are only upcast.

        The product runs in the model's dtype; the scaling and soft-capping its config asks for follow in float32.
        Gradients flow through.
        """
        if not self.streams:
            return _upcast(rows)
        return project(self.network, rows)


def embedding_rows(network: PreTrainedModel) -> int:
    """How many ids the input embedding knows."""
    return int(network.get_input_embeddings().weight.shape[0])


@torch.no_grad()
def run(
    network: PreTrainedModel, window: Tensor, *, streams: bool, cache: Any = None, keep: bool = False
) -> tuple[Tensor, Any]:
    """Rows (n, d or V) of a window of ids (1, n) that continues `cache`, and the cache that goes on from there."""
    part = network.base_model if streams else network
    if not keep:
        out = part(input_ids=window, use_cache=False)
        return (out.last_hidden_state if streams else out.logits)[0], None
    argument = "cache" if "cache" in signature(part.forward).parameters else "past_key_values"  # transformers < 5.20
    out = part(input_ids=window, use_cache=True, **{argument: cache})
    return (out.last_hidden_state if streams else out.logits)[0], getattr(out, argument)


def project(network: PreTrainedModel, rows: Tensor) -> Tensor:
    """The head of `network` with what its config puts after it.

    logits_scaling divides (Granite), logit_scale multiplies (Cohere), final_logit_softcapping c gives c tanh(z / c)
    (Gemma).
    """
    config = network.config.get_text_config()
    logits = _upcast(network.get_output_embeddings()(rows))
    if divisor := _number(config, "logits_scaling"):
        logits = logits / divisor
    if factor := _number(config, "logit_scale"):
        logits = logits * factor
    if cap := _number(config, "final_logit_softcapping"):
        logits = torch.tanh(logits / cap) * cap
    return logits


def _number(config: Any, name: str) -> float | None:
    value = getattr(config, name, None)
    return float(value) if isinstance(value, int | float) and value != 1 else None


def _upcast(values: Tensor) -> Tensor:
    return values if values.dtype == torch.float64 else values.float()
