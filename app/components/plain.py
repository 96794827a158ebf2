"""Text of unknown origin inside Streamlit's Markdown."""

from __future__ import annotations

import re

_PUNCTUATION = re.compile(r"([!-/:-@\[-`{-~])")


def plain(text: str) -> str:
    """`text` so that Markdown shows it as it is: nothing is styled, linked, fetched or read as a formula."""
    return _PUNCTUATION.sub(r"\\\1", text)
