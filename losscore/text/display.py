"""How a token's bytes are shown: blanks, newlines and invisible characters get marks, cut characters their bytes."""

from __future__ import annotations

import unicodedata

MARKS = {" ": "·", "\n": "⏎", "\t": "⇥", "\r": "␍"}
# A typed mark is spelled out, so that a mark on the screen never stands for itself.
_SPELLED = frozenset(MARKS.values()) | {"⟨", "⟩", "◌"}
# Hangul fillers, the Braille blank, the grapheme joiner, Khmer inherent vowels, variation selectors.
_BLANK = (
    ("\u034f", "\u034f"),
    ("\u115f", "\u1160"),
    ("\u17b4", "\u17b5"),
    ("\u180b", "\u180f"),
    ("\u2800", "\u2800"),
    ("\u3164", "\u3164"),
    ("\ufe00", "\ufe0f"),
    ("\uffa0", "\uffa0"),
    ("\U000e0100", "\U000e01ef"),
)
_HIDDEN = frozenset({"Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp", "Zs"})


def show_character(character: str) -> str:
    """One character as it is shown; what cannot be seen is named, as `⟨U+200B⟩`."""
    if character in MARKS:
        return MARKS[character]
    if character in _SPELLED or unicodedata.category(character) in _HIDDEN or _is_blank(character):
        return f"⟨U+{ord(character):04X}⟩"
    return character


def show_bytes(data: bytes) -> str:
    """The bytes of one token as text; bytes that are only part of a character as `⟨F0 9F⟩`.

    >>> show_bytes(b" a\\n"), show_bytes(b"\\xf0\\x9f")
    ('·a⏎', '⟨F0 9F⟩')
    """
    shown: list[str] = []
    cut = b""
    while data:
        try:
            whole, broken, data = data.decode("utf-8"), b"", b""
        except UnicodeDecodeError as error:
            whole = data[: error.start].decode("utf-8")
            broken, data = data[error.start : error.end], data[error.end :]
        if whole:
            shown += [_hex(cut), _show_text(whole)]
            cut = b""
        cut += broken
    return "".join([*shown, _hex(cut)])


def _show_text(text: str) -> str:
    # A combining mark at a token's start would otherwise sit on the neighbouring token's last letter.
    circle = "◌" if unicodedata.category(text[0]).startswith("M") and not _is_blank(text[0]) else ""
    return circle + "".join(map(show_character, text))


def _hex(data: bytes) -> str:
    return f"⟨{data.hex(' ').upper()}⟩" if data else ""


def _is_blank(character: str) -> bool:
    # Letters and marks by category, yet drawn as nothing.
    return any(first <= character <= last for first, last in _BLANK)
