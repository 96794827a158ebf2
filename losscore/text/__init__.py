"""Text -> ids, the exact bytes of each token, targets, numbers and digit places. Knows no model."""

from losscore.text.encoding import BOS_POLICIES, Encoding, TextEncoder
from losscore.text.numbers import DigitPlace, digit_places
from losscore.text.windows import Window, plan_windows

__all__ = ["BOS_POLICIES", "DigitPlace", "Encoding", "TextEncoder", "Window", "digit_places", "plan_windows"]
