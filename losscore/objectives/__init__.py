"""Per-token objectives: one file each, the body the equation. Tensors in, values out; no model, no text."""

from losscore.objectives import cayley, deft, digit_entropy, ranktuner

__all__ = ["cayley", "deft", "digit_entropy", "ranktuner"]
