"""The lanes: which column of a sheet is drawn, how it is coloured, and the strip that draws it over the text."""

from losscore.lanes.lane import LANES, Lane
from losscore.lanes.payload import strip_payload

__all__ = ["LANES", "Lane", "strip_payload"]
