"""Logits -> statistics, by the equations as they stand or by one sweep through the processor's cache."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor

from losscore.stats.equations import by_equations
from losscore.stats.statistics import TOP, Statistics
from losscore.stats.sweep import SMALLEST, by_sweep

# Elements the equations see at one time: their float64 copies are the larger part of what they hold.
ROW_ELEMENTS = 1 << 20
EXACT, SWEPT = "float64", "float32 exponentials, float64 sums, expected rank within 5e-6"


def measure(
    logits: Float[Tensor, "tokens vocab"],
    targets: Int[Tensor, " tokens"],
    digit_ids: Sequence[int] = (),
    *,
    top: int = TOP,
) -> Statistics:
    """Statistics of rows of logits (row t is the prediction of targets[t]).

    float32 rows on the CPU are swept in cache (`by_sweep`, torch.get_num_threads() threads); float64 and half-precision
    ones, small vocabularies and a GPU's go by the equations (`by_equations`). Both see each row alone, and agree to the
    rounding of float32 exponentials (1e-6 relative); the expected rank, which is counted, to 5e-6 at worst.
    """
    z = logits.detach()
    if z.device.type == "mps":  # no float64 on Apple's GPU
        z = z.cpu()
    ids = targets.to(z.device)
    if arithmetic(z.device, z.dtype, z.shape[-1]) == SWEPT:
        return by_sweep(z, ids, digit_ids, top=top)
    few = max(1, ROW_ELEMENTS // max(1, z.shape[-1]))
    starts = range(0, max(1, len(z)), few)
    return Statistics.join([by_equations(z[at : at + few], ids[at : at + few], digit_ids, top=top) for at in starts])


def arithmetic(device: torch.device, dtype: torch.dtype, vocabulary: int) -> str:
    """How the statistics of such logits are taken: EXACT, or SWEPT, which agrees with it as far as `measure` says."""
    # Those of Apple's GPU are moved to the CPU.
    swept = device.type in ("cpu", "mps") and dtype == torch.float32 and vocabulary >= SMALLEST
    return SWEPT if swept else EXACT
