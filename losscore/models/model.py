"""A loaded model: run its body once over a window, and turn rows into logits."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from inspect import signature
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from losscore.errors import ModelError
from losscore.text import TextEncoder


class Past:
    """Ids that were run and their key-value cache: what the next text that begins alike need not run again."""

    def __init__(self) -> None:
        self.ids: list[int] = []
        self.cache: Any = None

    def shared(self, ids: list[int]) -> int:
        """How many of `ids`, from the first on, are in the cache; never all, so that there is something to run."""
        pairs = zip(self.ids, ids[:-1], strict=False)
        return next((at for at, (one, other) in enumerate(pairs) if one != other), min(len(self.ids), len(ids) - 1))

    def cut(self, length: int) -> bool:
        """Forget all but the first `length` ids; False, and everything is forgotten, where the cache cannot do that."""
        whole = all(type(layer).__name__ == "DynamicLayer" for layer in getattr(self.cache, "layers", [None]))
        if not whole or length < 1:
            self.ids, self.cache = [], None
            return False
        if length < len(self.ids):
            self.cache.crop(length - len(self.ids))
        self.ids = self.ids[:length]
        return True


@dataclass(frozen=True, eq=False)
class Model:
    """A causal language model in eval mode. Shared: nothing may change `network`.

    `context` is the window in tokens, `vocabulary` the number of columns of the logits. `streams` says that logits are
    `head` of the body's last hidden state; where they are not, rows are the model's own logits. `caches` says that the
    body may be run in pieces. `notes` are sentences for the person: what was asked and could not be done, and what the
    library warned of. `origin` is what `load` finds it by again. `tokenizer_from` names the tokenizer where it is not
    the model's own, and `tokenizer_origin` is what `load` finds that by again.
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
    origin: str = ""
    tokenizer_from: str = ""
    tokenizer_origin: str = ""

    @cached_property
    def encoder(self) -> TextEncoder:
        """Reads texts with this model's tokenizer."""
        return TextEncoder(self.tokenizer)

    def blocks(
        self, ids: list[int], *, first: int = 0, piece: int = 1024, past: Past | None = None
    ) -> Iterator[tuple[int, Tensor]]:
        """Run the body once over `ids` and yield `(start, rows)` for the rows from `first` on, in order.

        Row t depends on `ids[: t + 1]` and predicts the token after it. `rows` is (n, d), the hidden states after the
        final norm, or (n, V), the model's own logits, where the model does not stream. At most `piece` tokens are run
        at a time, the earlier ones kept in the key-value cache; a model without one is run whole. past: ids that were
        run before, the first of which, as far as they agree with `ids` and lie before `first`, are not run again; once
        all blocks are taken it holds `ids`. No gradient is recorded.

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
        return self._walk(ids, first, piece if self.caches else max(len(ids), 1), past if self.caches else None)

    def _walk(self, ids: list[int], first: int, piece: int, past: Past | None) -> Iterator[tuple[int, Tensor]]:
        cache, begin = None, 0
        if past is not None:
            known = min(past.shared(ids), first)
            cache, begin = (past.cache, known) if past.cut(known) else (None, 0)
            # A walk that is broken off leaves nothing behind that could be taken for whole.
            past.ids, past.cache = [], None
        for start in range(begin, len(ids), piece):
            end = min(start + piece, len(ids))
            window = torch.tensor([ids[start:end]], device=self.device)
            keep = past is not None or len(ids) > piece
            rows, cache = run(self.network, window, streams=self.streams, cache=cache, keep=keep)
            if end > first:
                skipped = max(first - start, 0)
                yield start + skipped, rows[skipped:]
        if past is not None:
            past.ids, past.cache = list(ids), cache

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


def plain_head(network: PreTrainedModel) -> Tensor | None:
    """The head's weight (V, d) where `project` is rows times it, in float32 or better, and nothing else."""
    head = network.get_output_embeddings()
    config = network.config.get_text_config()
    scaled = any(_number(config, name) for name in ("logits_scaling", "logit_scale", "final_logit_softcapping"))
    if type(head) is not nn.Linear or head.bias is not None or scaled:
        return None
    return head.weight if head.weight.dtype in (torch.float32, torch.float64) else None


def _number(config: Any, name: str) -> float | None:
    value = getattr(config, name, None)
    return float(value) if isinstance(value, int | float) and value != 1 else None


def _upcast(values: Tensor) -> Tensor:
    return values if values.dtype == torch.float64 else values.float()
