"""Random words put between the words of a text, and which tokens they became."""

from __future__ import annotations

import math
import random
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from losscore.errors import LosscoreError
from losscore.sheet import Sheet

Mask = np.ndarray[Any, np.dtype[np.bool_]]

# Plain nouns that have little to do with sums and shops.
_WORDS = """
    acorn anchor ankle antler apron arrow attic badge bamboo banjo barrel basil beacon beard beetle blanket blizzard
    bonfire bonnet boulder bracelet bramble breeze bridle bronze bucket buffalo button cabin cactus camel candle
    canoe canyon captain caravan carpet castle cathedral cavern cello chapel chimney cinnamon citadel cliff clover
    cobweb comet compass copper coral cottage cradle crane crater cricket crown curtain cushion cymbal daisy dancer
    desert diamond dolphin donkey dragon drawer drum dune eagle echo elbow ember emerald engine falcon feather fern
    fiddle flute fog forehead forest fountain fox frost galaxy geyser ghost giant glacier goblet goose gravel guitar
    hammer harbour harp hawk hedgehog helmet heron honey horizon hornet igloo inkwell island ivory jacket jaguar
    jewel jungle kettle kitten knight ladder lagoon lamp lantern lavender leopard lighthouse lily lizard locket
    magnet maple marble meadow melody meteor mirror mitten monk moss moth mountain mustard napkin nettle oak oasis
    octopus opera orchard orchid otter owl oyster paddle palace panther parade parrot peacock pebble pepper piano
    pigeon pillow pirate planet plum poem pony puddle puppet pyramid quilt raven reef ribbon saddle sail shovel
    sparrow spider squirrel stallion starfish statue stork thimble thunder tiger trumpet turnip turtle umbrella
    valley velvet violin volcano walnut walrus willow zebra
"""
WORDS = tuple(_WORDS.split())


class Noisy(NamedTuple):
    """A text with random words in it; `spans` are the character ranges of these words without the blanks before."""

    text: str
    spans: tuple[tuple[int, int], ...]


def inject(text: str, *, rate: float, seed: int | str) -> Noisy:
    """Put a random word of WORDS, with a blank before it, into a share `rate` of the gaps between words.

    A word is a run without blanks; it keeps its comma or full stop, and the gap its newline. Of n gaps
    floor(rate n + u) get a word, u in [0, 1) drawn once, so that short texts too meet the share on average. The same
    seed gives the same words with every version of Python. Raises LosscoreError for a rate outside 0 to 1.
    """
    if not 0 <= rate <= 1:
        raise LosscoreError(f"The rate must lie between 0 and 1, not {rate:g}.")
    # Of the random module only random() is the same in every version.
    draw = random.Random(str(seed)).random
    gaps = [word.end() for word in re.finditer(r"\S+", text)][:-1]
    count = math.floor(rate * len(gaps) + draw())
    chosen = sorted(sorted(gaps, key=lambda _: draw())[:count])
    noisy, spans, done = "", [], 0
    for gap in chosen:
        noisy += text[done:gap] + " "
        word = WORDS[int(draw() * len(WORDS))]
        spans.append((len(noisy), len(noisy) + len(word)))
        noisy, done = noisy + word, gap
    return Noisy(noisy + text[done:], tuple(spans))


def noise_tokens(sheet: Sheet, spans: Sequence[tuple[int, int]]) -> Mask:
    """Which tokens of `sheet` are noise: those with a byte, other than a blank, of one of the words at `spans`.

    So " lamp" is noise, its blank with it, and so is each piece of a word; a blank that is a token of its own is not.
    """
    start, end = (np.asarray(sheet.columns[name]) for name in ("start", "end"))
    noise = np.zeros(len(sheet), dtype=bool)
    for first, last in spans:
        noise |= (start < end) & (start < last) & (end > first)
    return noise
