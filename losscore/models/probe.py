"""What a freshly loaded network really does, asked of the network itself with eight tokens."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from losscore.errors import ModelError
from losscore.models.model import embedding_rows, project, run

_LENGTH, _CUT = 8, 4
# how foreign architectures refuse a call that others accept
_REFUSALS = (AttributeError, IndexError, KeyError, RuntimeError, TypeError, ValueError)


@dataclass(frozen=True)
class Findings:
    """The number of columns of the logits, and whether hidden states and the key-value cache can be relied on."""

    vocabulary: int
    streams: bool
    caches: bool
    notes: tuple[str, ...]


def probe(network: PreTrainedModel, name: str) -> Findings:
    """Run eight tokens whole and in two pieces, and compare.

    ModelError where the network cannot be run on ids alone, gives logits that are not numbers, or lets a token see
    the ones after it.
    """
    rows = embedding_rows(network)
    ids = [(7 * index + 3) % rows for index in range(_LENGTH)]
    window = torch.tensor([ids], device=network.device)
    try:
        logits, hidden = _logits_and_hidden(network, window)
        early, _ = run(network, window[:, :_CUT], streams=False)
    except _REFUSALS as error:
        raise ModelError(f"“{name}” cannot be run on text alone: choose a causal language model.") from error
    if logits.isnan().any():
        raise ModelError(f"“{name}” gives no finite logits in {_label(network.dtype)}: load it in float32 or bfloat16.")
    if not _close(early, logits[:_CUT], network.dtype):
        raise ModelError(f"“{name}” is not a causal language model, its tokens see later ones: choose one that is.")
    streams = _streams(network, hidden, logits)
    caches = _caches(network, window, streams, logits if hidden is None or not streams else hidden)
    notes = [] if streams else ["This model's logits are taken whole: they are more than its head of a hidden state."]
    if not caches:
        notes.append("This model has no key-value cache that can be used here: each window is run whole.")
    return Findings(logits.shape[1], streams, caches, tuple(notes))


@torch.no_grad()
def _logits_and_hidden(network: PreTrainedModel, window: Tensor) -> tuple[Tensor, Tensor | None]:
    """The network's own logits, and what its body gave it on the way; None where it has no separate body."""
    seen: list[Tensor | None] = []

    def keep(module: torch.nn.Module, arguments: tuple[Any, ...], out: Any) -> None:
        seen.append(getattr(out, "last_hidden_state", None))

    hook = None if network.base_model is network else network.base_model.register_forward_hook(keep)
    try:
        logits, _ = run(network, window, streams=False)
    finally:
        if hook is not None:
            hook.remove()
    hidden = seen[0] if len(seen) == 1 else None
    return logits, None if hidden is None else hidden[0]


def _streams(network: PreTrainedModel, hidden: Tensor | None, logits: Tensor) -> bool:
    if hidden is None or network.get_output_embeddings() is None:
        return False
    try:
        with torch.no_grad():
            return _close(project(network, hidden), logits, network.dtype)
    except _REFUSALS:
        return False


def _caches(network: PreTrainedModel, window: Tensor, streams: bool, whole: Tensor) -> bool:
    try:
        head, cache = run(network, window[:, :_CUT], streams=streams, keep=True)
        tail, _ = run(network, window[:, _CUT:], streams=streams, cache=cache, keep=True)
    except _REFUSALS:
        return False
    return cache is not None and _close(torch.cat([head, tail]), whole, network.dtype)


def _close(values: Tensor, reference: Tensor, dtype: torch.dtype) -> bool:
    """Equal within rounding: 1e-4 of the reference's spread, or the dtype's own steps where these are coarser."""
    if values.shape != reference.shape:
        return False
    spread = (reference.max() - reference.min()).item()
    tolerance = max(1e-4, 4 * torch.finfo(dtype).eps) * spread
    return bool((values.float() - reference.float()).abs().max().item() <= tolerance)


def _label(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
