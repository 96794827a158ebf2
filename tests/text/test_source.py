"""Bytes to text: marks, bad bytes and files that cannot be read."""

from __future__ import annotations

import codecs
import io
import os
import sys
from pathlib import Path

import pytest

from losscore.errors import TextError
from losscore.text import source
from losscore.text.source import read_file, read_stream, read_text

KOREAN = "가격은 3.14\r\n😀"


@pytest.mark.parametrize("text", ["", "a\r\nb\r\n", "a\rb\nc", "tab\tnul\x00esc\x1b", KOREAN, "x\ufeffy", "\ufffd"])
def test_utf8_is_kept_as_it_is(text: str) -> None:
    assert read_text(text.encode(), "f") == (text, ())


@pytest.mark.parametrize(
    ("mark", "codec", "title"),
    [
        (codecs.BOM_UTF8, "utf-8", "UTF-8"),
        (codecs.BOM_UTF16_LE, "utf-16-le", "UTF-16"),
        (codecs.BOM_UTF16_BE, "utf-16-be", "UTF-16"),
        (codecs.BOM_UTF32_LE, "utf-32-le", "UTF-32"),
        (codecs.BOM_UTF32_BE, "utf-32-be", "UTF-32"),
    ],
)
def test_a_mark_tells_the_encoding_and_is_removed_with_a_note(mark: bytes, codec: str, title: str) -> None:
    text, notes = read_text(mark + KOREAN.encode(codec), "f.txt")
    assert text == KOREAN
    assert notes == (f"f.txt: a {title} byte order mark was removed.",)


def test_only_the_first_mark_is_one() -> None:
    assert read_text(codecs.BOM_UTF8 * 2 + b"hi", "f")[0] == "\ufeffhi"


@pytest.mark.parametrize(
    ("data", "offset", "byte"),
    [
        (b"caf\xe9 ole", 3, "0xE9"),
        (codecs.BOM_UTF8 + b"caf\xe9", 6, "0xE9"),
        ("😀".encode()[:3], 0, "0xF0"),
        (b"ab\xed\xa0\x80", 2, "0xED"),  # a surrogate, which is no UTF-8
        (codecs.BOM_UTF16_LE + b"h\0i", 4, "0x69"),
        (codecs.BOM_UTF16_LE + b"h\0\x3d\xd8i\0", 4, "0x3D"),
    ],
)
def test_bad_bytes_are_named_by_file_and_offset(data: bytes, offset: int, byte: str) -> None:
    with pytest.raises(TextError) as caught:
        read_text(data, "notes.txt")
    sentence = str(caught.value)
    assert sentence.startswith("notes.txt ")
    assert f"byte offset {offset} ({byte})" in sentence


@pytest.mark.parametrize(
    ("data", "text", "count"),
    [
        (b"caf\xe9 \xff", "caf\ufffd \ufffd", "2 invalid byte sequences"),
        ("\ufffd".encode() + b"\xe9", "\ufffd\ufffd", "1 invalid byte sequence "),
        (codecs.BOM_UTF16_LE + b"h\0i", "h\ufffd", "1 invalid byte sequence "),
    ],
)
def test_replacing_is_counted_without_what_was_there_before(data: bytes, text: str, count: str) -> None:
    read, notes = read_text(data, "f.txt", "replace")
    assert read == text
    assert count in notes[-1]


def test_replacing_nothing_notes_nothing() -> None:
    assert read_text(b"fine", "f", "replace") == ("fine", ())


def test_a_file_is_read_as_bytes(tmp_path: Path) -> None:
    path = tmp_path / "crlf.txt"
    path.write_bytes(b"a\r\nb\r\n\x1a c")
    assert read_file(path) == ("a\r\nb\r\n\x1a c", ())


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(TextError, match=r"There is no file .*gone"):
        read_file(tmp_path / "gone")
    with pytest.raises(TextError, match="is a folder"):
        read_file(tmp_path)


def test_a_file_that_may_not_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    (tmp_path / "shut").write_text("x")
    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(TextError, match="may not be read"):
        read_file(tmp_path / "shut")


@pytest.mark.skipif(sys.platform == "win32", reason="names have no such limit there")
def test_any_other_trouble_is_a_sentence_too(tmp_path: Path) -> None:
    os.symlink("loop", tmp_path / "loop")
    with pytest.raises(TextError, match="cannot be read"):
        read_file(tmp_path / "loop")


def test_too_much_is_refused_and_never_all_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "MAX_BYTES", 1_000_000)
    assert len(read_stream(io.BytesIO(b"x" * 1_000_000), "f")[0]) == 1_000_000
    endless = io.BytesIO(b"x" * 5_000_000)
    with pytest.raises(TextError, match="larger than 1 MB"):
        read_stream(endless, "f")
    assert endless.tell() == 1_000_001
