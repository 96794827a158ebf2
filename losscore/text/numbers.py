"""Numbers in a text, and the place of each of their digits.

A number is a maximal run of ASCII digits and dots, trailing dots cut off. Without a dot it is an integer;
with one dot (also a leading one) a decimal; with two or more dots (versions, addresses) each group of digits
is an integer of its own. Signs, commas, blanks and letters end a run. Only ASCII 0-9 are digits: superscripts,
full-width and other scripts' digits are text.
"""

from __future__ import annotations

import re
from typing import NamedTuple

_RUN = re.compile(r"[0-9.]+")
_GROUP = re.compile(r"[0-9]+")


class DigitPlace(NamedTuple):
    """One digit of a number: its value 0-9 and its place (0 units, 1 tens, -1 tenths)."""

    digit: int
    place: int


def digit_places(text: str) -> dict[int, DigitPlace]:
    """Every ASCII digit of `text` by its character index. Linear in the length of the text.

    >>> digit_places("x 12.5.")
    {2: DigitPlace(digit=1, place=1), 3: DigitPlace(digit=2, place=0), 5: DigitPlace(digit=5, place=-1)}
    """
    places: dict[int, DigitPlace] = {}
    for run in _RUN.finditer(text):
        number = run.group().rstrip(".")
        decimal = number.count(".") == 1
        for group in _GROUP.finditer(number):
            fraction = decimal and group.start() > number.index(".")
            top = -1 if fraction else len(group.group()) - 1
            for offset, character in enumerate(group.group()):
                index = run.start() + group.start() + offset
                places[index] = DigitPlace(int(character), top - offset)
    return places
