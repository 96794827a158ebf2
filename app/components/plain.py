"""Text of unknown origin inside Streamlit's Markdown."""

from __future__ import annotations

import re

_PUNCTUATION = re.compile(r"([!-/:-@\[-`{-~])")
# Addresses become links even where every sign is escaped, unless something stands inside them.
_ADDRESS = re.compile(r"(?<=http:)(?=//)|(?<=https:)(?=//)|(?<=www)(?=\.)|(?<=[-.\w+])(?=@[-\w])", re.IGNORECASE)
_WORD_JOINER = "\u2060"


def plain(text: str) -> str:
    """`text` so that Markdown shows it as it is: nothing is styled, linked, fetched or read as a formula.

    An address in it gets an invisible mark (U+2060).
    """
    return _PUNCTUATION.sub(r"\\\1", _ADDRESS.sub(_WORD_JOINER, text))
