"""Windows over a text longer than the model's context."""

from __future__ import annotations

from typing import NamedTuple

from losscore.errors import TextError


class Window(NamedTuple):
    """Tokens `start:stop` are read; those from `first` on are scored (`start <= first < stop`)."""

    start: int
    stop: int
    first: int


def plan_windows(length: int, size: int, stride: int | None = None) -> list[Window]:
    """Windows of at most `size` tokens over `length` tokens; each token is scored in exactly one of them.

    After the first window each one moves on by `stride` tokens (default: half the window), so every token scored
    there has at least `size - stride` tokens before it.
    """
    if size < 2:
        raise TextError("The model's window must hold at least two tokens.")
    stride = size // 2 if stride is None else stride
    if not 1 <= stride < size:
        raise TextError(f"The stride must lie between 1 and {size - 1}, one less than the window.")
    windows = [Window(0, min(size, length), 0)] if length else []
    while windows and windows[-1].stop < length:
        first = windows[-1].stop
        stop = min(first + stride, length)
        windows.append(Window(max(0, stop - size), stop, first))
    return windows
