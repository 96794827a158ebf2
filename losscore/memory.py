"""What the text scored last left behind, so that an edit at its end costs only what it changed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from losscore.models.model import Past
from losscore.stats import Statistics

if TYPE_CHECKING:
    from losscore.models import Model


class Memory:
    """The ids, the statistics and the key-value cache of the text scored last; at most `room` tokens of them.

    A token's statistics depend on it and on the tokens before it, so those of the tokens that two texts begin with are
    the same; the others are run after the cached ones, which changes nothing beyond rounding. For one thread at a time.
    """

    def __init__(self, room: int = 1024) -> None:
        self._room = room
        self._model: Model | None = None
        self._ids: tuple[int, ...] = ()
        self._statistics: Statistics | None = None
        self._past = Past()

    def recall(self, model: Model, ids: Sequence[int], front: int) -> tuple[Statistics | None, Past | None]:
        """What is known of a text with these ids, the first `front` of which have no prediction, and its past.

        (None, None) where the text is too long to be kept.
        """
        if len(ids) > self._room:
            return None, None
        if model is not self._model:
            self._model, self._ids, self._statistics, self._past = model, (), None, Past()
        shared = 0
        for one, other in zip(self._ids, ids, strict=False):
            if one != other:
                break
            shared += 1
        # At least one token is run, and as many have no prediction as before.
        known = min(shared, len(ids) - 1) - front
        if self._statistics is None or known < 1 or len(self._ids) - len(self._statistics) != front:
            return None, self._past
        return self._statistics[:known], self._past

    def keep(self, model: Model, ids: Sequence[int], statistics: Statistics) -> None:
        """Remember a text that was just scored."""
        self._model, self._ids, self._statistics = model, tuple(ids), statistics
