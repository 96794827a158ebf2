"""What TEXT on the command line stands for: itself, a file's content or standard input."""

from __future__ import annotations

import os
import sys
from typing import Literal

from losscore.errors import TextError
from losscore.terminal import say

# A single word that ends so was meant as a file, also where there is none.
_TEXT_SUFFIXES = frozenset({".txt", ".md", ".rst", ".tex", ".log", ".json", ".jsonl", ".csv", ".html"})


def text_of(text: str, errors: Literal["strict", "replace"]) -> str:
    """The text that an argument stands for; says on stderr when it is a file's."""
    from losscore.text.source import read_file, read_stream

    if text == "-":
        if sys.stdin is None:
            raise TextError("There is no standard input: give the text or a file instead of -.")
        if sys.stdin.isatty():
            say("Reading the keyboard: end with Ctrl-Z and Enter." if os.name == "nt" else "Type; Ctrl-D ends.")
        content, notes = read_stream(sys.stdin.buffer, "standard input", errors)
    elif os.path.exists(text):
        if os.path.isdir(text):
            raise TextError(f"{text} is a folder: name a file in it, or add --literal to take the word as the text.")
        content, notes = read_file(text, errors)
        say(f"Reading the file {text}; --literal would take its name as the text.")
    elif os.path.splitext(text)[1].lower() in _TEXT_SUFFIXES and not any(map(str.isspace, text)):
        raise TextError(f"There is no file {text}: check its name, or add --literal to take the word as the text.")
    else:
        return text
    for note in notes:
        say(note)
    return content
