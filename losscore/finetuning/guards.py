"""What stands around a step: gradients whatever mode the caller is in, weights put back, errors in plain words."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

import torch

from losscore.errors import LosscoreError

_Function = TypeVar("_Function", bound=Callable[..., object])


def in_training(function: _Function) -> _Function:
    """`function` outside of inference mode: what is made under it never trains, and says nothing."""
    free: _Function = torch.inference_mode(False)(function)
    return free


@contextmanager
def as_last_seen(parameters: Sequence[torch.nn.Parameter]) -> Iterator[None]:
    """Put the weights back if the step comes to nothing: they then are those of the last snapshot."""
    kept = [parameter.detach().clone() for parameter in parameters]
    try:
        yield
    except BaseException:
        with torch.no_grad():
            for parameter, value in zip(parameters, kept, strict=True):
                parameter.copy_(value)
        raise


@contextmanager
def plainly(device: torch.device) -> Iterator[None]:
    """What a device or its memory complains of, as one plain sentence."""
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        words = str(error)
        if isinstance(error, torch.OutOfMemoryError | MemoryError) or "allocate memory" in words:
            raise LosscoreError(
                f"The memory of {device} is full: give shorter or fewer examples, a smaller batch, or choose LoRA."
            ) from error
        if device.type != "cpu" and any(sign in words for sign in ("CUDA error", "MPS", "device-side assert")):
            raise LosscoreError(f"The device {device} gave up: start losscore again, or train on the CPU.") from error
        raise
