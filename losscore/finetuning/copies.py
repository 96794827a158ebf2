"""A copy of a network to train: low-rank adapters over shared frozen weights, or all weights anew."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.pytorch_utils import Conv1D

from losscore.errors import LosscoreError, ModelError
from losscore.finetuning.settings import Settings
from losscore.models.adapters import is_adapted
from losscore.models.placement import free_bytes
from losscore.models.progress import ignore
from losscore.models.silence import silence

if TYPE_CHECKING:
    from losscore.models import Model

_NEAR_EMPTY = 1.2  # activations, beyond the weights and what belongs to them


@dataclass(frozen=True)
class TrainingCopy:
    """network: in evaluation mode, so that dropout never moves a value; adapter: peft's view of it, for LoRA."""

    network: PreTrainedModel
    adapter: Any | None

    @property
    def trained(self) -> list[nn.Parameter]:
        """The parameters that train; a tied one once."""
        return [parameter for parameter in self.network.parameters() if parameter.requires_grad]


def training_copy(model: Model, settings: Settings) -> TrainingCopy:
    """A copy of `model.network` in float32 whose training never changes the original.

    LoRA shares the frozen weights with it where these are float32 already. Raises LosscoreError where there is too
    little memory, or nothing that an adapter could be put on.
    """
    if is_adapted(model.network):
        raise ModelError(f"“{model.name}” is fine-tuned already: start from the model it was made of.")
    full = settings.method == "full"
    shares = not full and all(parameter.dtype == torch.float32 for parameter in model.network.parameters())
    size = sum(parameter.numel() for parameter in model.network.parameters()) * 4
    # With all weights trained: they themselves, as they were a step before, gradients and AdamW's two moments.
    needed = size * (5 if full else 0 if shares else 1) * _NEAR_EMPTY
    free = free_bytes(model.device)
    if needed > free:
        way = "choose LoRA or a smaller model" if full else "choose a smaller model"
        raise ModelError(
            f"Fine-tuning “{model.name}” this way needs about {needed / 1e9:.1f} GB and {free / 1e9:.1f} GB are free: "
            f"{way}, or close other programs."
        )
    with silence("preparing the copy", ignore):
        network = _copied(model.network, shares, full)
        if full:
            return TrainingCopy(network.eval(), None)
        wrapped = _with_lora(network, settings)
        return TrainingCopy(wrapped.get_base_model().eval(), wrapped)


def _copied(network: PreTrainedModel, shares: bool, trains: bool) -> PreTrainedModel:
    # deepcopy finds these in place of its own copies, also where two modules are tied to one parameter.
    memo: dict[int, Any] = {}
    for parameter in network.parameters():
        # What was made under inference_mode cannot take part in training, a clone of it can.
        data = parameter.detach().clone() if parameter.is_inference() else parameter.detach()
        memo[id(parameter)] = nn.Parameter(
            data if shares else data.to(torch.float32, copy=True), requires_grad=trains and data.is_floating_point()
        )
    copied = copy.deepcopy(network, memo)
    return copied if shares else copied.to(torch.float32)


def _with_lora(network: PreTrainedModel, settings: Settings) -> Any:
    from peft import LoraConfig, get_peft_model

    conv = [name for name, module in network.named_modules() if isinstance(module, Conv1D)]
    linear = [name for name, module in network.named_modules() if isinstance(module, nn.Linear)]
    if not conv and len(linear) <= 1:
        raise LosscoreError("This model has no linear layer that an adapter could be put on: choose full fine-tuning.")
    config = LoraConfig(
        r=settings.rank,
        lora_alpha=2 * settings.rank,
        target_modules="all-linear",
        # Mamba's fused kernels read this layer's weight without calling it.
        exclude_modules=["out_proj"] if "mamba" in str(network.config.model_type) else None,
        lora_dropout=0.0,
        fan_in_fan_out=bool(conv),
        task_type="CAUSAL_LM",
    )
    wrapped = get_peft_model(network, config)
    generator = torch.Generator().manual_seed(settings.seed)
    for first in _first_matrices(wrapped):
        # As peft does by default, but from a generator of its own: other threads cannot disturb it.
        fresh = torch.empty(first.shape)
        nn.init.kaiming_uniform_(fresh, a=math.sqrt(5), generator=generator)
        with torch.no_grad():
            first.copy_(fresh)
    return wrapped


def _first_matrices(wrapped: nn.Module) -> Iterator[Tensor]:
    for name, parameter in wrapped.named_parameters():
        if "lora_A" in name:
            yield parameter
