"""What stands around a step: weights are put back if it comes to nothing, errors become plain words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch

from losscore.errors import LosscoreError
from losscore.models.placement import is_device_lost, is_memory_full


@contextmanager
def as_last_seen(parameters: Sequence[torch.nn.Parameter]) -> Iterator[None]:
    """If the step comes to nothing, put the weights back as the last snapshot saw them, and free their gradients."""
    kept = [parameter.detach().clone() for parameter in parameters]
    try:
        yield
    except BaseException:
        with torch.no_grad():
            for parameter, value in zip(parameters, kept, strict=True):
                parameter.copy_(value)
                parameter.grad = None
        raise


@contextmanager
def plainly(device: torch.device) -> Iterator[None]:
    """What a device or its memory complains of, as one plain sentence."""
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if is_memory_full(error):
            raise LosscoreError(
                f"The memory of {device} is full: give shorter or fewer examples, a smaller batch, or choose LoRA."
            ) from error
        if device.type != "cpu" and (is_device_lost(error) or "MPS" in str(error)):
            raise LosscoreError(f"The device {device} gave up: start losscore again, or train on the CPU.") from error
        raise
