"""A lane's value as a cell: the number, a bar, and the lane's hue behind it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from losscore.terminal.screen import styled

if TYPE_CHECKING:
    from rich.style import Style
    from rich.text import Text

# Okabe and Ito's palette, told apart by most colour-blind people.
HUES = {
    "blue": (0, 114, 178),
    "purple": (204, 121, 167),
    "orange": (230, 159, 0),
    "vermillion": (213, 94, 0),
    "green": (0, 158, 115),
    "yellow": (240, 228, 66),
    "sky": (86, 180, 233),
}
_BARS = "▁▂▃▄▅▆▇█"
_FAINT = 0.04


def cell(lane: dict[str, Any], row: int, *, bar: bool = True) -> Text:
    """Row `row` of a lane of `losscore.lanes.strip_payload`; a dash where it is undefined. bar: draw one beside it."""
    value, fill = lane["value"][row], lane["fill"][row]
    if value is None or fill is None:
        return undefined()
    drawn = f" {_BARS[round(fill / 100 * (len(_BARS) - 1))]}" if bar else ""
    if lane["scale"] == "diverging":
        hue, strength = lane["hue"] if fill >= 50 else lane["low_hue"], abs(fill - 50) / 50
    else:
        hue, strength = lane["hue"], fill / 100
    return styled(f"{value}{drawn}", shade(hue, strength))


def undefined() -> Text:
    return styled("–", "dim")


def shade(hue: str, strength: float) -> Style | str:
    """A background between the terminal's and the hue, with black or white on it, whichever reads better."""
    if strength < _FAINT:
        return ""
    from rich.color import Color, blend_rgb
    from rich.color_triplet import ColorTriplet
    from rich.style import Style

    # Terminals that say so: the last number is the background, 7 and 15 are light.
    light = os.environ.get("COLORFGBG", "").rpartition(";")[2] in ("7", "15")
    ground = ColorTriplet(250, 250, 250) if light else ColorTriplet(24, 26, 32)
    back = blend_rgb(ground, ColorTriplet(*HUES[hue]), 0.85 * strength)
    linear = [((part / 255 + 0.055) / 1.055) ** 2.4 for part in back]
    luminance = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
    front = ColorTriplet(0, 0, 0) if luminance > 0.179 else ColorTriplet(255, 255, 255)
    return Style(color=Color.from_triplet(front), bgcolor=Color.from_triplet(back))
