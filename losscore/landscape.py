"""Objectives away from any text: their weight as a function of p, of p and entropy, of how the rest is spread."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import torch

from losscore.objectives import Objective, Tokens, gradient_norm, norms_from_logits
from losscore.objectives import weight as relative_weight
from losscore.stats import measure

Array = np.ndarray[Any, np.dtype[np.float64]]


class Curve(NamedTuple):
    """An objective against p: `weight` relative to cross-entropy's push, `push` = weight x error (1 - p)."""

    p: Array
    weight: Array
    push: Array


def probabilities(points: int = 81) -> Array:
    """p from 1e-6 to 1 - 1e-3, evenly in log p below 1/2 and evenly in p above."""
    low = np.geomspace(1e-6, 0.5, points // 2, endpoint=False)
    return np.concatenate([low, np.linspace(0.5, 0.999, points - len(low))])


def curve(objective: Objective, p: Array, others: int, vocabulary: int) -> Curve | None:
    """`objective` at tokens of probability p, the rest 1 - p shared evenly by `others` tokens.

    None for what this cannot show: the digits' own terms, a temperature read off the batch, embeddings.
    """
    if objective.needs_digits or _looks_at_the_batch(objective):
        return None
    rest = np.log1p(-p) - math.log(others)
    logits = torch.from_numpy(np.column_stack([np.log(p), np.repeat(rest[:, None], others, 1)]))
    target = torch.zeros(len(p), dtype=torch.long)
    tokens = Tokens.of(measure(logits, target), vocabulary)
    if not objective.needs_distribution:
        norm = gradient_norm(objective, tokens)
    elif any(term.function.__name__ == "emo" for _, term in objective.terms):
        return None
    else:
        norm = norms_from_logits(objective, logits, target, tokens)
    weight = relative_weight(norm, tokens).numpy()
    return Curve(p, weight, weight * (1 - p))


def plane(objective: Objective, p: Array, entropy: Array, vocabulary: int) -> Array | None:
    """The weight on the grid entropy x p (nats), NaN where no distribution over the vocabulary has such a pair.

    None where the weight is not a function of these two alone.
    """
    if objective.needs_digits or objective.needs_distribution or not _of_p_and_entropy(objective, vocabulary):
        return None
    grid_p, grid_h = np.meshgrid(p, entropy)
    tokens = _tokens(grid_p.ravel(), grid_h.ravel(), vocabulary, np.random.default_rng(0))
    weight = relative_weight(gradient_norm(objective, tokens), tokens).numpy().reshape(grid_p.shape)
    two = -(grid_p * np.log(grid_p) + (1 - grid_p) * np.log1p(-grid_p))
    possible = (grid_h >= two) & (grid_h <= two + (1 - grid_p) * math.log(max(vocabulary - 1, 1)))
    return np.where(possible, weight, np.nan)


def _tokens(p: Array, entropy: Array, vocabulary: int, random: np.random.Generator) -> Tokens:
    """Tokens of the given p and entropy, everything else at random."""
    size = len(p)
    rank = torch.from_numpy(random.uniform(1, 1000, size))
    return Tokens(
        log_p=torch.from_numpy(np.log(p)),
        entropy=torch.from_numpy(entropy.astype(np.float64)),
        rank=rank,
        expected_rank=torch.from_numpy(random.uniform(1, 1000, size)),
        concentration=torch.from_numpy(random.uniform(0.01, 1, size)),
        top_entropy=torch.from_numpy(random.uniform(0, math.log(20), size)),
        vocabulary=vocabulary,
        sequence=torch.zeros(size, dtype=torch.long),
    )


def _of_p_and_entropy(objective: Objective, vocabulary: int) -> bool:
    """Whether nothing but p and entropy moves the weight: asked of the objective itself."""
    random = np.random.default_rng(1)
    p, entropy = random.uniform(0.01, 0.99, 24), random.uniform(0.1, 5, 24)
    one, two = (_tokens(p, entropy, vocabulary, np.random.default_rng(seed)) for seed in (2, 3))
    same = torch.allclose(gradient_norm(objective, one), gradient_norm(objective, two))
    return same and not _looks_at_the_batch(objective)


def _looks_at_the_batch(objective: Objective) -> bool:
    """Whether a token's weight changes with the company it is in."""
    if objective.needs_distribution:
        return False
    random = np.random.default_rng(4)
    tokens = _tokens(random.uniform(0.01, 0.99, 8), random.uniform(0.1, 5, 8), 1000, random)
    alone = torch.cat([gradient_norm(objective, tokens.rows([at])) for at in range(len(tokens))])
    return not torch.allclose(alone, gradient_norm(objective, tokens))
