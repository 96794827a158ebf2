"""Logits -> what the distribution at each token says. No gradient, no model, no text."""

from losscore.stats.measure import arithmetic, measure
from losscore.stats.statistics import Statistics
from losscore.stats.stream import stream

__all__ = ["Statistics", "arithmetic", "measure", "stream"]
