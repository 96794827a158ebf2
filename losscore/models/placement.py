"""Device and dtype: what was asked for, what this machine can do, and whether the weights fit."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from losscore.errors import ModelError

if TYPE_CHECKING:
    import torch

DTYPES = ("float32", "bfloat16", "float16")
_HEADROOM = 1.2  # activations and the loader's own copies, beyond the weights


def choose_device(name: str) -> "torch.device":
    """`auto` is CUDA, then MPS, then the CPU. ModelError for an unknown device or one this machine lacks."""
    import torch

    if name == "auto":
        if torch.cuda.is_available():
            return torch.device("cuda")
        return torch.device("mps" if torch.backends.mps.is_available() else "cpu")
    kind, _, index = name.partition(":")
    if kind not in ("cpu", "cuda", "mps") or (index and not index.isdigit()):
        raise ModelError(f"There is no device “{name}”: choose auto, cpu, cuda or mps.")
    found = {"cpu": 1, "cuda": torch.cuda.device_count(), "mps": int(torch.backends.mps.is_available())}[kind]
    if int(index or 0) >= found:
        raise ModelError(f"This machine has no device “{name}” that PyTorch can use: choose auto or cpu.")
    return torch.device(name)


def choose_dtype(name: str, device: "torch.device") -> tuple["torch.dtype", list[str]]:
    """The dtype to load in, and a note where it is not the one asked for. ModelError for an unknown dtype."""
    import torch

    if name not in DTYPES:
        raise ModelError(f"There is no dtype “{name}”: choose float32, bfloat16 or float16.")
    if name == "float16" and device.type == "cpu":
        return torch.float32, ["float16 is slow and imprecise on a CPU: the model runs in float32."]
    return getattr(torch, name), []


def check_memory(name: str, parameters: int, dtype: "torch.dtype", device: "torch.device") -> None:
    """ModelError where `parameters` of `dtype`, with a fifth on top, exceed the memory now free on `device`."""
    needed = parameters * dtype.itemsize * _HEADROOM
    free = free_bytes(device)
    if needed > free:
        raise ModelError(
            f"“{name}” needs about {needed / 1e9:.1f} GB in {str(dtype).removeprefix('torch.')} and "
            f"{free / 1e9:.1f} GB are free: choose a smaller model or bfloat16, or close other programs."
        )


def free_bytes(device: "torch.device") -> int:
    """Memory that is free on `device` now."""
    if device.type == "cuda":
        import torch

        return torch.cuda.mem_get_info(device)[0]
    import psutil

    return psutil.virtual_memory().available


def is_memory_full(error: BaseException) -> bool:
    """Whether a device ran out of memory; on the CPU torch reports that as a plain RuntimeError."""
    import torch

    return isinstance(error, torch.OutOfMemoryError | MemoryError) or "allocate memory" in str(error)


def is_device_lost(error: BaseException) -> bool:
    """Whether the GPU failed in a way that poisons everything this process asks of it from then on."""
    return isinstance(error, RuntimeError) and any(sign in str(error) for sign in ("CUDA error", "device-side assert"))


@contextmanager
def told_when_lost() -> Iterator[None]:
    """A GPU that is lost, in one sentence: nothing it gives afterwards could be trusted."""
    try:
        yield
    except RuntimeError as error:
        if not is_device_lost(error):
            raise
        raise ModelError(
            "The GPU failed and gives no more results to this process: stop losscore and start it again, "
            "or use the CPU."
        ) from error
