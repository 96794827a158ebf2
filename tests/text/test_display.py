from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from losscore.text.display import show_bytes, show_character


@pytest.mark.parametrize(
    ("data", "shown"),
    [
        (b"", ""),
        (b" cost", "·cost"),
        (b"\n\n\t \r", "⏎⏎⇥·␍"),
        (b"\xf0\x9f", "⟨F0 9F⟩"),
        (b"a\xf0\x9f", "a⟨F0 9F⟩"),
        (b"\x98\x80b", "⟨98 80⟩b"),
        (b"\x98\x80b\xf0", "⟨98 80⟩b⟨F0⟩"),
        ("é".encode(), "é"),
        ("\u0301a".encode(), "◌\u0301a"),
        ("\u0e31".encode(), "◌\u0e31"),
        ("\ufffd".encode(), "\ufffd"),
        ("\u200b\u202e\ufeff\u00a0\x1b\x00".encode(), "⟨U+200B⟩⟨U+202E⟩⟨U+FEFF⟩⟨U+00A0⟩⟨U+001B⟩⟨U+0000⟩"),
        ("❤\ufe0f".encode(), "❤⟨U+FE0F⟩"),
        ("\ufe0f\U000e0101\u034f\u3164".encode(), "⟨U+FE0F⟩⟨U+E0101⟩⟨U+034F⟩⟨U+3164⟩"),
        ("·⏎⇥␍⟨⟩◌".encode(), "⟨U+00B7⟩⟨U+23CE⟩⟨U+21E5⟩⟨U+240D⟩⟨U+27E8⟩⟨U+27E9⟩⟨U+25CC⟩"),
        ("▁Ġ".encode(), "▁Ġ"),
        (b"<b>$x$ *a*</b>", "<b>$x$·*a*</b>"),
    ],
)
def test_what_is_shown(data: bytes, shown: str) -> None:
    assert show_bytes(data) == shown


@given(st.binary(max_size=12))
def test_nothing_invisible_and_no_replacement_character(data: bytes) -> None:
    shown = show_bytes(data)
    assert bool(shown) == bool(data)
    assert "\ufffd" not in shown or b"\xef\xbf\xbd" in data
    # Only a blank inside a named run of bytes.
    assert all(character == " " or unicodedata.category(character)[0] not in "CZ" for character in shown)


@given(st.characters(exclude_categories=["Cs"]), st.characters(exclude_categories=["Cs"]))
def test_two_characters_never_look_the_same(one: str, other: str) -> None:
    assert (show_character(one) == show_character(other)) == (one == other)


@given(st.binary(max_size=8), st.binary(max_size=8))
def test_two_tokens_never_look_the_same(one: bytes, other: bytes) -> None:
    assert (show_bytes(one) == show_bytes(other)) == (one == other)
